//! Libraries in an interpreter. A library is loaded when it comes to the store, to see which functions it has, and for each call of one: what it keeps in its own variables is
//! that call's, so that a call which is run again, or on another thread, finds what the first found.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::api::{self, failed};
use super::args::{Answer, Args, add};
use super::call::Env;
use super::run::{Interpreter, compiled, keep};
use super::{Call, Called, Sha, broken, cut, ended, run, run_script, sha1, terms};
use crate::commands::{Outcome, Stop};
use crate::functions::{self, BAD_NAME, FLAGS, Function, LIBRARY_MAX, Loaded, NO_WRITES};
use crate::reply::Reply;
use crate::request::{Arguments, number};

/// Functions of a library.
const FUNCTIONS: usize = 10_000;
/// Bytes of a description.
const DESCRIPTION: usize = 64 << 10;

/// A function that a library has registered.
struct Registered {
    name: Vec<u8>,
    /// Its place among the callbacks.
    callback: usize,
    flags: u8,
    description: Option<Vec<u8>>,
}

/// What the library that is being loaded has registered.
#[derive(Default)]
pub(super) struct Registry {
    loads: Cell<bool>,
    all: RefCell<Vec<Registered>>,
    /// In small letters: they are found however they are written, so two of one would be one.
    names: RefCell<HashSet<Vec<u8>>>,
    /// In Lua's memory: an interpreter has few places for what is held outside of it.
    callbacks: RefCell<Option<Table>>,
}

/// What an interpreter has of libraries.
pub(super) struct Libraries {
    env: Table,
    /// What is behind `redis` of functions.
    pub(super) redis: Table,
    load: mlua::Function,
    run: mlua::Function,
    registry: Rc<Registry>,
    compiled: HashMap<Sha, mlua::Function>,
}

impl Libraries {
    pub(super) fn new(own: &Table, registry: Rc<Registry>) -> mlua::Result<Self> {
        let compiled = HashMap::new();
        let (env, redis) = (own.raw_get("env")?, own.raw_get("redis")?);
        Ok(Self { env, redis, load: own.raw_get("load")?, run: own.raw_get("run")?, registry, compiled })
    }

    /// True and what it returns, or false and its error.
    pub(super) fn run(&self, function: &mlua::Function, keys: Table, args: Table) -> mlua::Result<(bool, Value)> {
        self.run.call((function, keys, args))
    }

    /// The library, or what is wrong with it.
    fn compile(&mut self, lua: &Lua, sha: &Sha, text: &[u8]) -> mlua::Result<Result<mlua::Function, String>> {
        if let Some(known) = self.compiled.get(sha) {
            return Ok(Ok(known.clone()));
        }
        let made = compiled(lua, text, "@user_function", &self.env)?;
        if let Ok(made) = &made {
            keep(&mut self.compiled, sha, made);
        }
        Ok(made)
    }

    /// Runs it from its beginning: what it has registered, or its error.
    fn load(&self, lua: &Lua, chunk: &mlua::Function) -> mlua::Result<Result<(Vec<Registered>, Table), Value>> {
        let callbacks = lua.create_table()?;
        *self.registry.callbacks.borrow_mut() = Some(callbacks.clone());
        self.registry.loads.set(true);
        let outcome = self.load.call::<(bool, Value)>(chunk);
        self.registry.loads.set(false);
        let all = self.registry.all.take();
        drop((self.registry.names.take(), self.registry.callbacks.take()));
        let (ok, error) = outcome?;
        Ok(if ok { Ok((all, callbacks)) } else { Err(error) })
    }
}

// ---- redis.register_function ------------------------------------------------------------------------------------

/// `redis`, of a library that is being loaded.
pub(super) fn loading(lua: &Lua, registry: &Rc<Registry>) -> mlua::Result<Table> {
    let (table, registry) = (api::always(lua)?, registry.clone());
    add(lua, &table, "register_function", move |args| register(args, &registry))?;
    Ok(table)
}

fn register(args: &Args<'_>, registry: &Registry) -> Answer<()> {
    if !registry.loads.get() {
        return Err(failed("redis.register_function can only be called on FUNCTION LOAD command"));
    }
    let (mut one, callback) = match (args.len(), args.get(0)) {
        (1, Value::Table(named)) => by_name(args.lua, named)?,
        (1, _) => {
            return Err(failed(
                "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
            ));
        }
        (2, name) => {
            let wrong = "first argument to redis.register_function must be a string";
            let name = text(args.lua, name)?.ok_or_else(|| failed(wrong))?;
            let Value::Function(callback) = args.get(1) else {
                return Err(failed("second argument to redis.register_function must be a function"));
            };
            (Registered { name, callback: 0, flags: 0, description: None }, callback.clone())
        }
        _ => return Err(failed("wrong number of arguments to redis.register_function")),
    };
    if !functions::is_name(&one.name) {
        return Err(failed(BAD_NAME));
    }
    let mut all = registry.all.borrow_mut();
    if !registry.names.borrow_mut().insert(one.name.to_ascii_lowercase()) {
        return Err(failed("Function already exists in the library"));
    }
    if all.len() == FUNCTIONS || one.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION) {
        return Err(failed(&format!(
            "a library has {FUNCTIONS} functions at most, and a description {DESCRIPTION} bytes"
        )));
    }
    one.callback = all.len() + 1;
    if let Some(callbacks) = &*registry.callbacks.borrow() {
        callbacks.raw_set(one.callback, callback)?;
    }
    all.push(one);
    Ok(())
}

fn text(lua: &Lua, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    Ok(match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec())
        }
        _ => None,
    })
}

fn by_name(lua: &Lua, named: &Table) -> Answer<(Registered, mlua::Function)> {
    let must =
        |what: &str, kind: &str| failed(&format!("{what} argument given to redis.register_function must be a {kind}"));
    let (mut name, mut callback, mut flags, mut description) = (None, None, 0, None);
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = if let Value::String(key) = &key { key.as_bytes().to_vec() } else { Vec::new() };
        match &key[..] {
            b"function_name" => {
                name = Some(text(lua, &value)?.ok_or_else(|| must("function_name", "string"))?);
            }
            b"description" => {
                description = Some(text(lua, &value)?.ok_or_else(|| must("description", "string"))?);
            }
            b"callback" => {
                let Value::Function(function) = value else { return Err(must("callback", "function")) };
                callback = Some(function);
            }
            b"flags" => {
                let Value::Table(table) = value else {
                    return Err(failed(
                        "flags argument to redis.register_function must be a table representing function flags",
                    ));
                };
                flags = flags_of(&table)?;
            }
            _ => return Err(failed("unknown argument given to redis.register_function")),
        }
    }
    let name = name.ok_or_else(|| failed("redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or_else(|| failed("redis.register_function must get a callback argument"))?;
    Ok((Registered { name, callback: 0, flags, description }, callback))
}

fn flags_of(table: &Table) -> Answer<u8> {
    let mut flags = 0;
    for at in 1..=FLAGS.len() * 8 {
        let flag: Value = table.raw_get(at)?;
        if flag.is_nil() {
            break;
        }
        let Value::String(flag) = &flag else { return Err(failed("unknown flag given")) };
        let known = FLAGS.iter().find(|(name, _)| name.as_bytes() == &*flag.as_bytes());
        flags |= known.ok_or_else(|| failed("unknown flag given"))?.1;
    }
    Ok(flags)
}

// ---- what commands do -------------------------------------------------------------------------------------------

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
                Err(error) => Ok(Err(Stop::Error(format!("ERR Error registering functions: {}", error_of(&error)?)))),
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
fn error_of(error: &Value) -> mlua::Result<String> {
    Ok(match error {
        Value::Table(table) => match table.raw_get("err")? {
            Value::String(text) => cut(&text),
            _ => "ERR unknown error".to_owned(),
        },
        Value::String(text) => format!("ERR {}", cut(text)),
        Value::Error(error) => format!("ERR {}", run::text_of(error)),
        _ => "ERR unknown error".to_owned(),
    })
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
    env.session.db = db;
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
        Err(error) => return Ok(Err(Stop::Error(format!("ERR Error registering functions: {}", error_of(&error)?)))),
    };
    let found = all.into_iter().find(|one| one.name == function.name);
    let Some(found) = found else { return Ok(Err("ERR Function not found".into())) };
    Ok(Ok(callbacks.raw_get(found.callback)?))
}
