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
mod call;
mod cjson;
mod cmsgpack;
mod convert;
mod known;
mod numbers;
mod pattern;
mod run;
mod strings;
mod structs;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value};
use sha1::{Digest, Sha1};

use self::args::Raised;
use self::call::Caller;
pub(crate) use self::call::Env;
use self::convert::hex;
pub(crate) use self::known::{Long, Scripts};
use self::run::{Ended, Interpreter, Terms};
use crate::commands::{Outcome, Stop, int};
use crate::engine::Error;
use crate::metrics::Watch;
use crate::reply::Reply;
use crate::request::Arguments;

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
    /// Keys as they are in the store, at which somebody may wait.
    pub(crate) woken: BTreeSet<Vec<u8>>,
}

impl Running {
    /// The transaction begins, or begins again.
    pub(crate) fn begin(&mut self) {
        (self.leaves, self.began) = (false, None);
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
        run_script(one, script, env, (args, count), reply, (&sha, read_only))
    });
    // The script's own database is not its connection's.
    env.session.db = db;
    outcome.map_err(|error| broken(&error))?
}

fn list<'a>(lua: &Lua, words: impl Iterator<Item = &'a [u8]>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (at, word) in words.enumerate() {
        table.raw_set(at + 1, lua.create_string(word)?)?;
    }
    Ok(table)
}

fn run_script(
    one: &mut Interpreter,
    script: mlua::Function,
    env: &mut Env<'_>,
    (args, count): (&Arguments<'_>, usize),
    reply: &mut Reply,
    (sha, read_only): (&Sha, bool),
) -> mlua::Result<Outcome> {
    let (lua, redis, state) = (one.lua.clone(), one.redis.clone(), one.state.clone());
    let (keys, rest) = (list(&lua, args.from(3).take(count))?, list(&lua, args.from(3 + count))?);
    let shared = env.session.shared.clone();
    let limit = shared.settings().script_time;
    let terms = match &env.session.script.long {
        Some(long) => {
            Terms { began: long.began, budget: long.limit, long: Some(long.clone()), random: shared.random() }
        }
        None => {
            let began = *env.session.script.began.get_or_insert_with(Watch::start);
            let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            Terms { began, budget: SHORT.min(limit), long: None, random: shared.random() }
        }
    };
    let caller = RefCell::new(Caller::new(env, &state, read_only));
    let outcome = lua.scope(|scope| {
        let call = |lua: &Lua, values: MultiValue| match caller.borrow_mut().call(lua, &values)? {
            Ok(value) => Ok(value),
            Err(text) => Err(mlua::Error::external(Raised(text))),
        };
        let pcall = |lua: &Lua, values: MultiValue| match caller.borrow_mut().call(lua, &values)? {
            Ok(value) => Ok(value),
            Err(text) => convert::error(lua, &text),
        };
        redis.raw_set("call", scope.create_function(call)?)?;
        redis.raw_set("pcall", scope.create_function(pcall)?)?;
        let may = |_: &Lua, values: MultiValue| caller.borrow_mut().may(&values);
        redis.raw_set("acl_check_cmd", scope.create_function(may)?)?;
        one.run(script, keys, rest, terms)
    });
    let failed = caller.into_inner().failed;
    match state.ended.get() {
        Some(Ended::Transaction) => {
            return Ok(Err(Stop::Engine(failed.unwrap_or_else(|| Error::Other("the transaction failed".to_owned())))));
        }
        Some(Ended::TooLong) => {
            let running = &mut env.session.script;
            running.leaves = running.long.is_none();
            let ms = limit.as_millis();
            let text = format!(
                "the script ran for more than {ms} ms (lua-time-limit) and was ended; nothing is written of it"
            );
            return Ok(Err(Stop::Engine(Error::Other(text))));
        }
        Some(Ended::Killed) => {
            let text = "Script killed by user with SCRIPT KILL... Nothing is written of it".to_owned();
            return Ok(Err(Stop::Engine(Error::Other(text))));
        }
        None => {}
    }
    Ok(match outcome {
        Ok((true, value)) => {
            let mark = reply.len();
            let three = state.three.get();
            convert::answer(&value, reply, three, 0).map_err(|error| {
                reply.truncate(mark);
                broken(&error)
            })
        }
        Ok((false, error)) => Err(Stop::Error(text_of(&error, sha)?)),
        Err(error) => Err(broken(&error)),
    })
}

/// What the client is told of a script's error.
fn text_of(error: &Value, sha: &Sha) -> mlua::Result<String> {
    let table = match error {
        Value::Table(table) => table,
        Value::Error(error) => return Ok(format!("ERR {} script: {}", run::text_of(error), hex(sha))),
        // The handler was not called: there was no memory, or no stack.
        Value::String(text) => return Ok(format!("ERR {} script: {}", text.to_string_lossy(), hex(sha))),
        _ => return Ok(format!("ERR Error running script {}", hex(sha))),
    };
    let field = |name: &str| -> mlua::Result<Option<String>> {
        Ok(match table.raw_get(name)? {
            Value::String(text) => Some(text.to_string_lossy()),
            Value::Integer(number) => Some(number.to_string()),
            Value::Number(number) => Some(numbers::general(number, 14)),
            _ => None,
        })
    };
    let text = field("err")?.unwrap_or_else(|| "ERR unknown error".to_owned());
    Ok(match (field("source")?, field("line")?) {
        (Some(source), Some(line)) => format!("{text} script: {}, on {source}:{line}.", hex(sha)),
        _ => text,
    })
}
