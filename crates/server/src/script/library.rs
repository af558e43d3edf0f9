//! Libraries in an interpreter. A library is loaded when it comes to the store, to see which functions it has, and for each call of one: what it keeps in its own variables is
//! that call's, so that a call which is run again, or on another thread, finds what the first found.

use mlua::Value;

use super::libraries::Registered;
use super::perform::{Call, Called, broken, cut, ended, run_script, terms};
use super::run::{self, Interpreter};
use crate::command::Env;
use crate::functions::{self, Function, LIBRARY_MAX, Loaded, NO_WRITES};
use crate::outcome::{Outcome, Stop};
use crate::reply::Reply;
use crate::request::{Arguments, number};
use crate::sha::sha1;

/// Loads a library that is to be put into the store: its functions, or what is wrong with it. Nothing of it runs in the transaction.
pub(crate) fn load(env: &mut Env<'_>, name: Vec<u8>, code: &[u8], text: &[u8]) -> Outcome<Loaded> {
    if code.len() > LIBRARY_MAX {
        return Err(Stop::Error(format!("ERR a library has {LIBRARY_MAX} bytes at most")));
    }
    let sha = sha1(code);
    let outcome = run::with(|one| {
        one.begin(terms(env.session));
        let chunk = one.libraries.compile(&one.lua, &sha, text);
        let outcome = chunk.and_then(|chunk| match chunk {
            Err(text) => Ok(Err(Stop::Error(format!("ERR Error compiling function: {text}")))),
            Ok(chunk) => match one.libraries.load(&one.lua, &chunk)? {
                Ok((all, _)) => Ok(Ok(all)),
                Err(error) => Ok(Err(registering(&error)?)),
            },
        });
        Ok(match ended(one, env, None)? {
            Some(stop) => Err(stop),
            None => outcome.unwrap_or_else(|error| Err(broken(&error))),
        })
    });
    let all = outcome.map_err(|error| broken(&error))??;
    if all.is_empty() {
        return Err("ERR No functions registered".into());
    }
    let function = |one: Registered| Function {
        name: one.name,
        library: name.clone(),
        sha,
        flags: one.flags,
        description: one.description,
    };
    let functions = all.into_iter().map(function).collect();
    Ok(Loaded { name, code: code.to_vec(), functions })
}

/// What a library is told that could not be loaded.
fn registering(error: &Value) -> mlua::Result<Stop> {
    let text = match error {
        Value::Table(table) => match table.raw_get("err")? {
            Value::String(text) => cut(&text),
            _ => b"ERR unknown error".to_vec(),
        },
        Value::String(text) => [b"ERR ", &cut(text)[..]].concat(),
        Value::Error(error) => format!("ERR {}", run::text_of(error)).into_bytes(),
        _ => b"ERR unknown error".to_vec(),
    };
    Ok(Stop::Raised([b"ERR Error registering functions: ", &text[..]].concat()))
}

/// Calls a function: `FCALL` and `FCALL_RO`.
pub(crate) fn call(env: &mut Env<'_>, args: &Arguments<'_>, reply: &mut Reply, read_only: bool) -> Outcome {
    let function = functions::find(env.tx, args.get(1))?.ok_or("ERR Function not found")?;
    let count = number(args.get(2)).ok_or("ERR Bad number of keys provided")?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let keys = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let no_writes = function.flags & NO_WRITES != 0;
    if read_only && !no_writes {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    let db = env.session.db;
    let outcome = run::with(|one| {
        one.begin(terms(env.session));
        match made(one, env, &function) {
            Ok(Ok(called)) => {
                let name = &String::from_utf8_lossy(&function.name).into_owned();
                let call = Call { called: Called::Function(called), name, args, keys, read_only: no_writes };
                run_script(one, env, &call, reply)
            }
            other => Ok(match ended(one, env, None)? {
                Some(stop) => Err(stop),
                None => other?.map(drop),
            }),
        }
    });
    // The function's own database is not its connection's.
    env.session.use_database(db);
    outcome.map_err(|error| broken(&error))?
}

/// The function, as its library makes it.
fn made(one: &mut Interpreter, env: &Env<'_>, function: &Function) -> mlua::Result<Outcome<mlua::Function>> {
    let chunk = match one.libraries.compiled.get(&function.sha) {
        Some(known) => known.clone(),
        None => {
            let code = match functions::code(env.tx, &function.library) {
                Ok(code) => code.unwrap_or_default(),
                Err(error) => return Ok(Err(error.into())),
            };
            let text = match functions::library_of(code) {
                Ok((_, text)) => text,
                Err(text) => return Ok(Err(Stop::Error(format!("ERR {text}")))),
            };
            match one.libraries.compile(&one.lua, &function.sha, text)? {
                Ok(chunk) => chunk,
                Err(text) => return Ok(Err(Stop::Error(format!("ERR Error compiling function: {text}")))),
            }
        }
    };
    let (all, callbacks) = match one.libraries.load(&one.lua, &chunk)? {
        Ok(all) => all,
        Err(error) => return Ok(Err(registering(&error)?)),
    };
    let found = all.into_iter().find(|one| one.name == function.name);
    let Some(found) = found else { return Ok(Err("ERR Function not found".into())) };
    Ok(Ok(callbacks.raw_get(found.callback)?))
}
