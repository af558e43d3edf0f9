//! An interpreter, of which each thread that runs scripts has one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};

use super::api::Commands;
use super::args::{Raised, add};
use super::compiled::{compiled, keep};
use super::libraries::{self, Libraries};
use super::state::{MEMORY, OWN, State, Terms};
use super::{api, args, bit, cjson, cmsgpack, convert, strings, structs};
use crate::apart::{Apart, Aside};
use crate::sha::Sha;
use mlua::chunk::ChunkMode;

/// Bytes from which on an interpreter is not kept.
const KEPT: usize = 16 << 20;
/// Instructions between two looks at the clock.
const INSTRUCTIONS: u32 = 250;

/// An interpreter with the sandbox.
pub(super) struct Interpreter {
    pub(super) lua: Lua,
    pub(super) state: Rc<State>,
    json: Rc<Cell<cjson::Settings>>,
    /// What scripts see as globals.
    env: Table,
    run: Function,
    compiled: HashMap<Sha, Function>,
    /// Of functions.
    pub(super) libraries: Libraries,
}

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// Lends the thread's interpreter. One that is left by a panic is not used again.
pub(super) fn with<R>(f: impl FnOnce(&mut Interpreter) -> mlua::Result<R>) -> mlua::Result<R> {
    let mut one = match INTERPRETER.take() {
        Some(one) => one,
        None => Interpreter::new()?,
    };
    let outcome = f(&mut one);
    if one.lua.used_memory() > KEPT {
        let _ = one.lua.gc_collect();
    }
    if one.lua.used_memory() <= KEPT {
        INTERPRETER.set(Some(one));
    }
    outcome
}

/// Runs `f`, which may run scripts, on a thread that serves no connections. There are too many of those for each to keep an interpreter.
pub(crate) fn apart<R>(what: Apart, f: impl FnOnce() -> R) -> R {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            INTERPRETER.set(None);
        }
    }
    let (_apart, _back) = (Aside::begin(what), Back);
    f()
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let (state, json) = (Rc::new(State::new()), Rc::default());
        let own = state.clone();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            own.go_on().map(|()| VmState::Continue)
        })?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(OWN).set_mode(ChunkMode::Text).into_function()?;
        let registered = Rc::default();
        let functions = functions(&lua, &state)?;
        functions.raw_set("loading", libraries::loading(&lua, &registered)?)?;
        let parts = (lua.globals(), functions, modules(&lua, &state, &json)?);
        let (env, run, own): (_, _, Table) = sandbox.call(parts)?;
        let libraries = Libraries::new(&own, registered)?;
        lua.set_memory_limit(MEMORY)?;
        Ok(Self { lua, state, json, env, run, compiled: HashMap::new(), libraries })
    }

    /// The script, or what is wrong with it.
    pub(super) fn compile(&mut self, sha: &Sha, body: &[u8]) -> mlua::Result<Result<Function, String>> {
        if let Some(known) = self.compiled.get(sha) {
            return Ok(Ok(known.clone()));
        }
        // Nothing that one run does to it is there in the next: it has no upvalues, and its environment cannot be changed.
        let made = compiled(&self.lua, body, "@user_script", &self.env)?;
        if let Ok(made) = &made {
            keep(&mut self.compiled, sha, made);
        }
        Ok(made)
    }

    /// From now on the clock runs.
    pub(super) fn begin(&self, terms: Terms) {
        self.state.begin(terms);
        self.json.set(cjson::Settings::default());
    }

    /// Runs it with these functions of `redis`: true and what it returns, or false and its error.
    pub(super) fn run(
        &self,
        script: &Function,
        keys: Table,
        args: Table,
        commands: Commands,
    ) -> mlua::Result<(bool, Value)> {
        let [call, pcall, may] = commands;
        self.run.call((script, keys, args, call, pcall, may))
    }
}

/// An error of a function in Rust, as those of Lua are.
fn plain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let Value::Error(error) = error else { return Ok(error) };
    let mut error = &*error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    match error {
        mlua::Error::ExternalError(cause) => match cause.downcast_ref::<Raised>() {
            Some(raised) => convert::error(lua, raised),
            None => Ok(Value::String(lua.create_string(cause.to_string())?)),
        },
        other => Ok(Value::String(lua.create_string(text_of(other))?)),
    }
}

/// Without a place in the sandbox, which is none of the script's.
fn without_own(text: &[u8]) -> &[u8] {
    let behind = text.strip_prefix(&OWN.as_bytes()[1..]).and_then(|rest| rest.strip_prefix(b":"));
    let digits = |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    behind.and_then(|rest| rest[digits(rest)..].strip_prefix(b": ")).unwrap_or(text)
}

/// Where an error was raised, in the words of the script's error.
fn explain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match plain(lua, error)? {
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::Nil => "nil".to_owned(),
                Value::Boolean(value) => value.to_string(),
                Value::String(_) | Value::Integer(_) | Value::Number(_) => String::new(),
                other => format!("({})", args::type_name(other)),
            };
            let text = match lua.coerce_string(other)? {
                Some(text) => [b"ERR ", without_own(&text.as_bytes())].concat(),
                None => [b"ERR ", text.as_bytes()].concat(),
            };
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
    };
    // Functions of Rust and of the sandbox are not where a script goes wrong.
    for level in 1..8 {
        let location = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let text = source.source.map(|text| text.into_owned()).unwrap_or_default();
            let is_own = source.what == "C" || source.what == "tail" || text == OWN;
            (is_own, text, debug.current_line())
        });
        match location {
            Some((true, ..)) => {}
            Some((false, source, line)) => {
                table.raw_set("source", source)?;
                table.raw_set("line", line.map_or(-1, |line| line as i64))?;
                break;
            }
            None => break,
        }
    }
    Ok(Value::Table(table))
}

/// What the sandbox needs of Rust.
fn functions(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    strings::add_to(lua, &table, state)?;
    let own = state.clone();
    table.raw_set("check", lua.create_function(move |_, ()| own.check())?)?;
    let own = state.clone();
    table.raw_set("running", lua.create_function(move |_, ()| own.go_on())?)?;
    let own = state.clone();
    add(lua, &table, "random", move |args| api::random(args, &own))?;
    add(lua, &table, "unpack", api::unpack)?;
    let own = state.clone();
    add(lua, &table, "randomseed", move |args| {
        own.seed(args.number(0)? as i64 as i32);
        Ok(())
    })?;
    table.raw_set("plain", lua.create_function(plain)?)?;
    table.raw_set("explain", lua.create_function(explain)?)?;
    table.raw_set("redis", api::redis(lua, state)?)?;
    table.raw_set("bytecode", "bytecode is not loaded")?;
    Ok(table)
}

fn modules(lua: &Lua, state: &Rc<State>, json: &Rc<Cell<cjson::Settings>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("bit", bit::library(lua)?)?;
    table.raw_set("struct", structs::library(lua)?)?;
    table.raw_set("cmsgpack", cmsgpack::library(lua, state)?)?;
    table.raw_set("cjson", cjson::library(lua, json, state)?)?;
    Ok(table)
}

/// An error of the interpreter itself, as text.
pub(super) fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::RuntimeError(text) => text.split("\nstack traceback:").next().unwrap_or_default().to_owned(),
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::apart::is_apart;
    use crate::clock::Watch;
    use crate::scripts::{Long, Scripts};

    fn begun(one: &Interpreter, waited: u64, long: Option<Arc<Long>>) -> mlua::Result<()> {
        let terms = Terms { began: Watch::start(), budget: 0, long, random: 1, passed: 0, waited };
        one.begin(terms);
        while one.state.began.get().is_some_and(|began| began.nanos() == 0) {}
        one.state.go_on()
    }

    #[test]
    fn what_is_waited_for_others_does_not_count_but_for_one_that_runs_long() {
        let one = Interpreter::new().unwrap();
        let hours = 10_000_000_000_000;
        assert!(begun(&one, 0, None).is_err(), "its time is over");
        assert!(begun(&one, hours, None).is_ok());
        let scripts = Scripts::default();
        let long = scripts.begin_long(std::time::Duration::ZERO);
        assert!(begun(&one, hours, Some(long)).is_err(), "it ends");
    }

    #[test]
    fn a_thread_that_serves_nobody_keeps_no_interpreter() {
        let has_one = || INTERPRETER.with_borrow(Option::is_some);
        let used = || with(|one| one.lua.load("return 1").eval::<i64>()).unwrap();
        assert_eq!((used(), has_one(), is_apart()), (1, true, false));
        apart(Apart::Waiting, || assert_eq!((used(), has_one(), is_apart()), (1, true, true)));
        assert_eq!((has_one(), is_apart()), (false, false));
    }
}
