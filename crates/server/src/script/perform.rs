//! Runs what an interpreter has: a script, or a function of a library.

use std::cell::RefCell;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use super::bounded::Bounded;
use super::call::Caller;
use super::run::{self, Interpreter};
use super::state::{Ended, State, Terms, VALUE, make};
use super::{convert, numbers};
use crate::apart::is_apart;
use crate::clock::Watch;
use crate::command::Env;
use crate::engine::Error;
use crate::outcome::{Outcome, Stop};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::scripts::{End, Now};
use crate::session::Session;

/// Bytes that are told of the text of an error.
const ERROR: usize = 64 << 10;

/// What a script may take on a thread that serves others, in nanoseconds; and on one that serves none, before it is one that runs long.
const BRIEF: u64 = 3_000_000;
const SHORT: u64 = 20_000_000;

pub(super) fn broken(error: &mlua::Error) -> Stop {
    Stop::Error(format!("ERR {}", run::text_of(error)))
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
pub(super) fn terms(session: &mut Session) -> Terms {
    let (limit, random) = (session.shared.settings().script_time, session.shared.random());
    let running = &mut session.script;
    let (passed, waited) = (running.passed, running.waited);
    match &running.long {
        Some(long) => {
            Terms { began: long.began, budget: long.budget(), long: Some(long.clone()), random, passed, waited }
        }
        None => {
            let began = *running.began.get_or_insert_with(Watch::start);
            let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            let budget = if is_apart() { SHORT } else { BRIEF };
            Terms { began, budget: budget.min(limit), long: None, random, passed, waited }
        }
    }
}

/// What is run: a script, or a function.
pub(super) enum Called {
    Script(mlua::Function),
    /// What its library makes of it when it is loaded.
    Function(mlua::Function),
}

/// What is run, and what it is given.
pub(super) struct Call<'a, 'b> {
    pub(super) called: Called,
    /// By what its errors call it: a digest, or a function's name.
    pub(super) name: &'a str,
    pub(super) args: &'a Arguments<'b>,
    /// How many of those behind the third are keys.
    pub(super) keys: usize,
    pub(super) read_only: bool,
}

pub(super) fn run_script(
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
        // It looks at what is there.
        true => make(&one.lua, 0, || convert::answer(&value, reply, &state, 0)).map(Ok),
        false => Ok(Err(Stop::Raised(text_of(&value, call.name)?))),
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
pub(super) fn ended(one: &Interpreter, env: &mut Env<'_>, failed: Option<Error>) -> mlua::Result<Option<Stop>> {
    let state = &one.state;
    (env.session.script.passed, env.session.script.waited) = (state.passed.get(), state.waited.get());
    state.end();
    let ms = env.session.shared.settings().script_time.as_millis();
    let ended = match state.ended.get() {
        None => return Ok(None),
        Some(Ended::Transaction) => failed.unwrap_or_else(|| Error::Other("the transaction failed".to_owned())),
        Some(Ended::TooLong) if env.session.script.long.is_none() && !is_apart() => Error::TooLong,
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
                End::Steps => "the script ran long while others removed very many keys, or exchanged databases, and was ended; nothing is written of it, run it again",
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
    let bytes = call.args.from(3).map(|word| word.len() + VALUE).sum();
    let (keys, rest) = make(lua, bytes, || {
        let keys = list(lua, call.args.from(3).take(call.keys), state)?;
        Ok((keys, list(lua, call.args.from(3 + call.keys), state)?))
    })?;
    let mut bounded = Bounded { tx: &mut *env.tx, state, waits: is_apart() };
    let mut env = Env {
        tx: &mut bounded,
        session: &mut *env.session,
        now: env.now,
        looks: &mut *env.looks,
        commands: env.commands,
    };
    let caller = RefCell::new(Caller::new(&mut env, state, call.read_only));
    let call_it = |lua: &Lua, values: MultiValue| match caller.borrow_mut().call(lua, &values)? {
        Ok(value) => Ok(value),
        Err(raised) => Err(mlua::Error::external(raised)),
    };
    let pcall = |lua: &Lua, values: MultiValue| match caller.borrow_mut().call(lua, &values)? {
        Ok(value) => Ok(value),
        Err(raised) => convert::error(lua, &raised),
    };
    let may = |_: &Lua, values: MultiValue| caller.borrow_mut().may(&values);
    let outcome = lua.scope(|scope| {
        let commands = make(lua, 0, || {
            Ok([scope.create_function(call_it)?, scope.create_function(pcall)?, scope.create_function(may)?])
        })?;
        match &call.called {
            Called::Script(script) => one.run(script, keys, rest, commands),
            Called::Function(function) => one.libraries.run(function, keys, rest, commands),
        }
    });
    *failed = caller.into_inner().failed;
    outcome
}

pub(super) fn cut(text: &LuaString) -> Vec<u8> {
    let text = text.as_bytes();
    convert::c_text(&text[..text.len().min(ERROR)]).to_vec()
}

/// What the client is told of a script's error.
fn text_of(error: &Value, name: &str) -> mlua::Result<Vec<u8>> {
    let table = match error {
        Value::Table(table) => table,
        Value::Error(error) => return Ok(format!("ERR {} script: {name}", run::text_of(error)).into_bytes()),
        // The handler was not called: there was no memory, or no stack.
        Value::String(text) => {
            return Ok([b"ERR ", &cut(text)[..], b" script: ", name.as_bytes()].concat());
        }
        _ => return Ok(format!("ERR Error running script {name}").into_bytes()),
    };
    let field = |name: &str| -> mlua::Result<Option<Vec<u8>>> {
        Ok(match table.raw_get(name)? {
            Value::String(text) => Some(cut(&text)),
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            Value::Number(number) => Some(numbers::general(number, 14).into_bytes()),
            _ => None,
        })
    };
    let text = field("err")?.unwrap_or_else(|| b"ERR unknown error".to_vec());
    Ok(match (field("source")?, field("line")?) {
        (Some(source), Some(line)) => {
            [&text[..], b" script: ", name.as_bytes(), b", on ", &source, b":", &line, b"."].concat()
        }
        _ => text,
    })
}
