//! What an interpreter has of libraries: what they registered, and how they are loaded.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::api::{self, Commands, failed};
use super::args::{Answer, Args, add};
use super::compiled::{compiled, keep};
use crate::functions::{self, BAD_NAME, FLAGS};
use crate::sha::Sha;

/// Functions of a library.
const FUNCTIONS: usize = 10_000;

/// Bytes of a description.
const DESCRIPTION: usize = 64 << 10;

/// A function that a library has registered.
pub(super) struct Registered {
    pub(super) name: Vec<u8>,
    /// Its place among the callbacks.
    pub(super) callback: usize,
    pub(super) flags: u8,
    pub(super) description: Option<Vec<u8>>,
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
    load: mlua::Function,
    run: mlua::Function,
    registry: Rc<Registry>,
    pub(super) compiled: HashMap<Sha, mlua::Function>,
}

impl Libraries {
    pub(super) fn new(own: &Table, registry: Rc<Registry>) -> mlua::Result<Self> {
        let compiled = HashMap::new();
        let (env, load, run) = (own.raw_get("env")?, own.raw_get("load")?, own.raw_get("run")?);
        Ok(Self { env, load, run, registry, compiled })
    }

    /// Runs a function with these functions of `redis`: true and what it returns, or false and its error.
    pub(super) fn run(
        &self,
        function: &mlua::Function,
        keys: Table,
        args: Table,
        commands: Commands,
    ) -> mlua::Result<(bool, Value)> {
        let [call, pcall, may] = commands;
        self.run.call((function, keys, args, call, pcall, may))
    }

    /// The library, or what is wrong with it.
    pub(super) fn compile(
        &mut self,
        lua: &Lua,
        sha: &Sha,
        text: &[u8],
    ) -> mlua::Result<Result<mlua::Function, String>> {
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
    pub(super) fn load(
        &self,
        lua: &Lua,
        chunk: &mlua::Function,
    ) -> mlua::Result<Result<(Vec<Registered>, Table), Value>> {
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
