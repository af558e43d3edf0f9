//! Scripts in Lua, each of them a part of one transaction.
//!
//! ```text
//!   EVAL ─> the thread's interpreter, for 20 ms at most ─> commands run in the transaction ─> what was returned becomes the reply
//!                │ longer                                     │ a conflict
//!                v                                            v
//!          begun anew on a thread of its own, until        all of it is run again, from the beginning
//!          lua-time-limit or SCRIPT KILL
//! ```
//!
//! A script that is run again has left nothing behind: its interpreter has no state but what the script itself makes, its writes are the transaction's, and what it publishes
//! goes out when all is durable. One that fails by itself keeps what it has written, as in Redis; one that is ended from outside has written nothing.

mod api;
mod args;
mod bit;
mod bounded;
mod call;
mod cjson;
mod cmsgpack;
mod convert;
mod known;
mod library;
mod numbers;
mod pattern;
mod run;
mod strings;
mod structs;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};
use sha1::{Digest, Sha1};

use self::args::Raised;
use self::bounded::Bounded;
use self::call::Caller;
pub(crate) use self::call::Env;
use self::convert::hex;
pub(crate) use self::known::{End, Long, Now, Scripts};
pub(crate) use self::library::{call as call_function, load as load_library};
pub(crate) use self::run::apart;
use self::run::{Ended, Interpreter, State, Terms};
use crate::commands::{Outcome, Stop, int};
use crate::engine::Error;
use crate::metrics::Watch;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Session;

/// Bytes that are told of the text of an error.
const ERROR: usize = 64 << 10;

/// What a script may take before it gets a thread of its own, in nanoseconds.
const SHORT: u64 = 20_000_000;

pub(crate) type Sha = [u8; 20];

pub(crate) fn sha1(bytes: &[u8]) -> Sha {
    Sha1::digest(bytes).into()
}

/// What a connection knows of the scripts in its transaction.
#[derive(Default)]
pub(crate) struct Running {
    /// They may take long.
    pub(crate) long: Option<Arc<Long>>,
    /// They take longer than they may where they run.
    pub(crate) leaves: bool,
    /// When the first began.
    began: Option<Watch>,
    /// Bytes that they have passed on: [`run::PASSED`].
    passed: usize,
    /// Nanoseconds that they have waited for locks.
    waited: u64,
    /// Keys as they are in the store, at which somebody may wait.
    pub(crate) woken: BTreeSet<Vec<u8>>,
}

impl Running {
    /// The transaction begins, or begins again.
    pub(crate) fn begin(&mut self) {
        (self.leaves, self.began, self.passed, self.waited) = (false, None, 0, 0);
        if !self.woken.is_empty() {
            self.woken.clear();
        }
    }
}

/// What the first line of a script says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    /// It has such a line.
    named: bool,
    no_writes: bool,
}

/// The flags of a script, and what follows its first line.
fn shebang(body: &[u8]) -> Result<(Flags, &[u8]), String> {
    let Some(rest) = body.strip_prefix(b"#!") else { return Ok((Flags::default(), body)) };
    let end = body.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or("Invalid script shebang")?;
    let line = String::from_utf8_lossy(&rest[..end - 2]).into_owned();
    let mut words = line.split(' ');
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(format!("Unexpected engine in script shebang: #!{engine}"));
    }
    let mut flags = Flags { named: true, ..Flags::default() };
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for name in names.split(',').filter(|_| !names.is_empty()) {
            match name {
                "no-writes" => flags.no_writes = true,
                // There is no such state here.
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("Unexpected flag in script shebang: {name}")),
            }
        }
    }
    Ok((flags, &body[end..]))
}

fn unhex(text: &[u8]) -> Option<Sha> {
    let mut sha = [0; 20];
    if text.len() != 40 {
        return None;
    }
    for (byte, two) in sha.iter_mut().zip(text.chunks(2)) {
        let digit = |at: usize| char::from(two[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(sha)
}

/// How a script is asked for.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) by_sha: bool,
    pub(crate) read_only: bool,
}

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

fn broken(error: &mlua::Error) -> Stop {
    Stop::Error(format!("ERR {}", run::text_of(error)))
}

/// `SCRIPT LOAD`: the digest of a script that can be compiled.
pub(crate) fn load(scripts: &Scripts, body: &[u8]) -> Outcome<String> {
    if body.len() > known::BYTES {
        return Err(Stop::Error(format!("ERR a script has {} bytes at most", known::BYTES)));
    }
    let sha = sha1(body);
    if scripts.find(&sha).is_none() {
        let (_, text) = shebang(body).map_err(|text| Stop::Error(format!("ERR {text}")))?;
        run::with(|one| one.compile(&sha, text)).map_err(|error| broken(&error))?.map_err(compile_error)?;
    }
    scripts.add(sha, body, true);
    Ok(hex(&sha))
}

fn compile_error(text: String) -> Stop {
    Stop::Error(format!("ERR Error compiling script (new function): {text}"))
}

/// Runs a script: `EVAL` and its like.
pub(crate) fn eval(env: &mut Env<'_>, args: &Arguments<'_>, reply: &mut Reply, how: How) -> Outcome {
    if how.by_sha && args.get(1).len() != 40 {
        return Err(NO_SCRIPT.into());
    }
    let count = int(args.get(2))?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let scripts = &env.session.shared.clone().scripts;
    let (sha, body) = if how.by_sha {
        let sha = unhex(args.get(1)).ok_or(NO_SCRIPT)?;
        (sha, scripts.find(&sha).ok_or(NO_SCRIPT)?)
    } else {
        let sha = sha1(args.get(1));
        (sha, scripts.find(&sha).unwrap_or_else(|| args.get(1).into()))
    };
    let (flags, text) = shebang(&body).map_err(|text| Stop::Error(format!("ERR {text}")))?;
    if how.read_only && flags.named && !flags.no_writes {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    let read_only = how.read_only || flags.no_writes;
    let db = env.session.db;
    let outcome = run::with(|one| {
        let script = match one.compile(&sha, text)? {
            Ok(script) => script,
            Err(text) => return Ok(Err(compile_error(text))),
        };
        if !how.by_sha {
            scripts.add(sha, &body, false);
        }
        one.begin(terms(env.session));
        let (called, name) = (Called::Script(script), &hex(&sha));
        run_script(one, env, &Call { called, name, args, keys: count, read_only }, reply)
    });
    // The script's own database is not its connection's.
    env.session.db = db;
    outcome.map_err(|error| broken(&error))?
}

fn list<'a>(lua: &Lua, words: impl Iterator<Item = &'a [u8]>, state: &State) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (at, word) in words.enumerate() {
        // Long ones are hashed by some of their bytes, so very many may have to be compared with each.
        state.step()?;
        table.raw_set(at + 1, lua.create_string(word)?)?;
    }
    Ok(table)
}

/// The time that a script has, and the memory that is left.
fn terms(session: &mut Session) -> Terms {
    let (limit, random) = (session.shared.settings().script_time, session.shared.random());
    let running = &mut session.script;
    let (passed, waited) = (running.passed, running.waited);
    match &running.long {
        Some(long) => Terms { began: long.began, budget: long.limit, long: Some(long.clone()), random, passed, waited },
        None => {
            let began = *running.began.get_or_insert_with(Watch::start);
            let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            Terms { began, budget: SHORT.min(limit), long: None, random, passed, waited }
        }
    }
}

/// What is run: a script, or a function.
enum Called {
    Script(mlua::Function),
    /// What its library makes of it when it is loaded.
    Function(mlua::Function),
}

/// What is run, and what it is given.
struct Call<'a, 'b> {
    called: Called,
    /// By what its errors call it: a digest, or a function's name.
    name: &'a str,
    args: &'a Arguments<'b>,
    /// How many of those behind the third are keys.
    keys: usize,
    read_only: bool,
}

fn run_script(
    one: &mut Interpreter,
    env: &mut Env<'_>,
    call: &Call<'_, '_>,
    reply: &mut Reply,
) -> mlua::Result<Outcome> {
    let (state, mark) = (one.state.clone(), reply.len());
    let mut failed = None;
    if let Some(long) = &env.session.script.long {
        long.runs(|| Now::new(matches!(call.called, Called::Function(_)), call.name, call.args));
    }
    let outcome = call_script(one, env, call, &mut failed);
    let outcome = outcome.and_then(|(ok, value)| match ok {
        true => convert::answer(&value, reply, &state, 0).map(|()| Ok(())),
        false => Ok(Err(Stop::Error(text_of(&value, call.name)?))),
    });
    ended(one, env, failed)?.map_or_else(
        || {
            Ok(outcome.unwrap_or_else(|error| {
                reply.truncate(mark);
                Err(broken(&error))
            }))
        },
        |stop| Ok(Err(stop)),
    )
}

/// It has run. Why it was ended, if it was, so that its transaction fails.
fn ended(one: &Interpreter, env: &mut Env<'_>, failed: Option<Error>) -> mlua::Result<Option<Stop>> {
    let state = &one.state;
    (env.session.script.passed, env.session.script.waited) = (state.passed.get(), state.waited.get());
    one.end()?;
    let ms = env.session.shared.settings().script_time.as_millis();
    let ended = match state.ended.get() {
        None => return Ok(None),
        Some(Ended::Transaction) => failed.unwrap_or_else(|| Error::Other("the transaction failed".to_owned())),
        Some(Ended::TooLong) => {
            let running = &mut env.session.script;
            running.leaves = running.long.is_none();
            Error::Other(format!(
                "the script ran for more than {ms} ms (lua-time-limit) and was ended; nothing is written of it"
            ))
        }
        Some(Ended::By(end)) => Error::Other(
            match end {
                End::Killed => "Script killed by user with SCRIPT KILL... Nothing is written of it",
                End::Steps => "the script ran long while others removed very many keys, and was ended; nothing is written of it, run it again",
                End::Full => "the script ran long while the store was full, and was ended so that space can be taken back; nothing is written of it, run it again",
            }
            .to_owned(),
        ),
    };
    Ok(Some(Stop::Engine(ended)))
}

/// Calls it with its arguments: true and what it returns, or false and its error.
fn call_script(
    one: &Interpreter,
    env: &mut Env<'_>,
    call: &Call<'_, '_>,
    failed: &mut Option<Error>,
) -> mlua::Result<(bool, Value)> {
    let (lua, state) = (&one.lua, &*one.state);
    let redis = if let Called::Script(_) = call.called { &one.redis } else { &one.libraries.redis };
    let keys = list(lua, call.args.from(3).take(call.keys), state)?;
    let rest = list(lua, call.args.from(3 + call.keys), state)?;
    let mut bounded = Bounded { tx: &mut *env.tx, state, waits: run::is_apart() };
    let mut env = Env { tx: &mut bounded, session: &mut *env.session, now: env.now, looks: &mut *env.looks };
    let caller = RefCell::new(Caller::new(&mut env, state, call.read_only));
    let outcome = lua.scope(|scope| {
        let call_it = |lua: &Lua, values: MultiValue| match caller.borrow_mut().call(lua, &values)? {
            Ok(value) => Ok(value),
            Err(text) => Err(mlua::Error::external(Raised(text))),
        };
        let pcall = |lua: &Lua, values: MultiValue| match caller.borrow_mut().call(lua, &values)? {
            Ok(value) => Ok(value),
            Err(text) => convert::error(lua, &text),
        };
        redis.raw_set("call", scope.create_function(call_it)?)?;
        redis.raw_set("pcall", scope.create_function(pcall)?)?;
        let may = |_: &Lua, values: MultiValue| caller.borrow_mut().may(&values);
        redis.raw_set("acl_check_cmd", scope.create_function(may)?)?;
        match &call.called {
            Called::Script(script) => one.run(script.clone(), keys, rest),
            Called::Function(function) => one.libraries.run(function, keys, rest),
        }
    });
    *failed = caller.into_inner().failed;
    outcome
}

fn cut(text: &LuaString) -> String {
    let text = text.as_bytes();
    String::from_utf8_lossy(&text[..text.len().min(ERROR)]).into_owned()
}

/// What the client is told of a script's error.
fn text_of(error: &Value, name: &str) -> mlua::Result<String> {
    let table = match error {
        Value::Table(table) => table,
        Value::Error(error) => return Ok(format!("ERR {} script: {}", run::text_of(error), name)),
        // The handler was not called: there was no memory, or no stack.
        Value::String(text) => return Ok(format!("ERR {} script: {}", cut(text), name)),
        _ => return Ok(format!("ERR Error running script {}", name)),
    };
    let field = |name: &str| -> mlua::Result<Option<String>> {
        Ok(match table.raw_get(name)? {
            Value::String(text) => Some(cut(&text)),
            Value::Integer(number) => Some(number.to_string()),
            Value::Number(number) => Some(numbers::general(number, 14)),
            _ => None,
        })
    };
    let text = field("err")?.unwrap_or_else(|| "ERR unknown error".to_owned());
    Ok(match (field("source")?, field("line")?) {
        (Some(source), Some(line)) => format!("{text} script: {}, on {source}:{line}.", name),
        _ => text,
    })
}
