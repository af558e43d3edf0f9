//! `redis`, as far as it needs no transaction; `math.random`, and `unpack`.

use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use super::args::{Answer, Args, Fail, Raised, add};
use super::numbers::whole;
use super::state::State;
use crate::sha::{hex, sha1};

/// `redis.call`, `redis.pcall` and `redis.acl_check_cmd` of a script that runs. They are functions in Rust: the place in a script that has called one is where it is told to have gone wrong.
pub(super) type Commands = [Function; 3];

/// What is there while a library is loaded, too: levels of the log, the version, and the log.
pub(super) fn always(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let numbers = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REDIS_VERSION_NUM", 0x0007_000f),
    ];
    for (name, number) in numbers {
        table.raw_set(name, number)?;
    }
    table.raw_set("REDIS_VERSION", crate::form::REDIS_VERSION)?;
    add(lua, &table, "log", log)?;
    Ok(table)
}

/// Bytes of a line of the log.
const LOGGED: usize = 1024;

pub(super) fn failed(text: &str) -> Fail {
    Fail::Lua(mlua::Error::external(Raised { text: format!("ERR {text}").into_bytes(), counted: false }))
}

/// A number whose kind does not matter; 0 if it is none.
fn loose(args: &Args<'_>, at: usize) -> f64 {
    args.number(at).unwrap_or_default()
}

/// The functions of `redis` that need no transaction.
pub(super) fn redis(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = always(lua)?;
    for (name, number) in [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)] {
        table.raw_set(name, number)?;
    }
    let own = state.clone();
    add(lua, &table, "setresp", move |args| {
        if args.len() != 1 {
            return Err(failed("redis.setresp() requires one argument."));
        }
        let version = whole(loose(args, 0));
        if version != 2 && version != 3 {
            return Err(failed("RESP version must be 2 or 3."));
        }
        own.three.set(version == 3);
        Ok(())
    })?;
    add(lua, &table, "set_repl", |args| {
        if args.len() != 1 {
            return Err(failed("redis.set_repl() requires two arguments."));
        }
        if whole(loose(args, 0)) & !3 != 0 {
            return Err(failed("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."));
        }
        Ok(())
    })?;
    let own = state.clone();
    add(lua, &table, "sha1hex", move |args| {
        own.go_on()?;
        if args.len() != 1 {
            return Err(failed("wrong number of arguments"));
        }
        let text = args.maybe_string(0)?;
        Ok(hex(&sha1(text.as_ref().map(LuaString::as_bytes).as_deref().unwrap_or_default())))
    })?;
    Ok(table)
}

fn log(args: &Args<'_>) -> Answer<()> {
    if args.len() < 2 {
        return Err(failed("redis.log() requires two arguments or more."));
    }
    let level = args.number(0).map_err(|_| failed("First argument must be a number (log level).")).map(whole)?;
    if !(0..=3).contains(&level) {
        return Err(failed("Invalid debug level."));
    }
    // A script is no way to fill a disk with one call.
    let mut text = Vec::new();
    for at in 1..args.len() {
        if let Some(word) = args.maybe_string(at)? {
            text.extend_from_slice(if at > 1 { b" " } else { b"" });
            text.extend_from_slice(&word.as_bytes()[..word.as_bytes().len().min(LOGGED)]);
        }
        if text.len() >= LOGGED {
            break;
        }
    }
    text.truncate(LOGGED);
    let text = text.escape_ascii();
    match level {
        0 | 1 => tracing::debug!("a script says: {text}"),
        2 => tracing::info!("a script says: {text}"),
        _ => tracing::warn!("a script says: {text}"),
    }
    Ok(())
}

/// Values on Lua's stack at one time, of one function.
const STACK: i64 = 8000;

/// `unpack`. The number of values overflows in Lua's own, which then leaves its stack.
pub(super) fn unpack(args: &Args<'_>) -> Answer<MultiValue> {
    let Value::Table(table) = args.get(0) else { return Err(args.expected(0, "table")) };
    let from = args.int_or(1, 1)? as i32;
    let to = match args.get(2) {
        Value::Nil => table.raw_len() as i64,
        _ => i64::from(args.int_or(2, 0)? as i32),
    };
    let from = i64::from(from);
    if from > to {
        return Ok(MultiValue::new());
    }
    if to - from + 1 > STACK - args.len() as i64 {
        return Err("too many results to unpack".into());
    }
    Ok((from..=to).map(|at| table.raw_get(at)).collect::<mlua::Result<Vec<Value>>>()?.into_iter().collect())
}

/// `math.random`.
pub(super) fn random(args: &Args<'_>, state: &State) -> Answer<f64> {
    let whole = |at: usize| Ok::<i32, Fail>(args.int(at)? as i32);
    let (low, high, at) = match args.len() {
        0 => return Ok(state.random()),
        1 => (1, whole(0)?, 0),
        2 => (whole(0)?, whole(1)?, 1),
        _ => return Err("wrong number of arguments".into()),
    };
    if low > high {
        return Err(args.wrong(at, "interval is empty"));
    }
    let values = if at == 0 { high } else { high.wrapping_sub(low).wrapping_add(1) };
    Ok((state.random() * f64::from(values)).floor() + f64::from(low))
}
