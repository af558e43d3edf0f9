//! An interpreter, of which each thread that runs scripts has one; and what ends a script.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};

use super::args::{Raised, add};
use super::library::{self, Libraries};
use super::{End, Long, Sha, api, args, bit, cjson, cmsgpack, convert, strings, structs};
use mlua::chunk::ChunkMode;

use crate::metrics::Watch;

/// Bytes of an interpreter with all that a script makes.
pub(super) const MEMORY: usize = 64 << 20;
/// Bytes that the scripts of one transaction may write, publish and answer.
pub(super) const PASSED: usize = 256 << 20;
/// Pieces between two looks at the clock.
const STEPS: u32 = 64;
/// Bytes of a chunk's name; people are shown 60.
const NAME: usize = 1024;
/// Bytes from which on an interpreter is not kept.
const KEPT: usize = 16 << 20;
/// Scripts that are kept as they were compiled.
const COMPILED: usize = 500;
/// Nanoseconds that one may wait for others without being one that runs long.
const WAITED: u64 = 2_000_000_000;
/// Instructions between two looks at the clock.
const INSTRUCTIONS: u32 = 250;
/// What the chunk of the sandbox is called.
pub(super) const OWN: &str = "=cairn";

/// Why a script ends that does not want to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    TooLong,
    /// It runs long, and somebody wants it to end.
    By(End),
    /// The transaction cannot go on.
    Transaction,
}

/// What the functions of an interpreter know of the script that runs.
pub(super) struct State {
    began: Cell<Option<Watch>>,
    /// Nanoseconds that it may take.
    budget: Cell<u64>,
    long: RefCell<Option<Arc<Long>>>,
    pub(super) ended: Cell<Option<Ended>>,
    /// What `redis.setresp` says.
    pub(super) three: Cell<bool>,
    /// `drand48`, as Redis has it.
    random: Cell<u64>,
    /// Bytes that the transaction's scripts have outside of the interpreter for as long as it lasts.
    pub(super) passed: Cell<usize>,
    /// Nanoseconds of it that it waited for others, on a thread that serves nobody.
    pub(super) waited: Cell<u64>,
    /// Steps since the last look at the clock.
    steps: Cell<u32>,
    json: Rc<Cell<cjson::Settings>>,
}

impl State {
    /// Whether the script may go on: an error that it cannot catch if not.
    pub(super) fn go_on(&self) -> mlua::Result<()> {
        if self.ended.get().is_none() {
            if let Some(end) = self.long.borrow().as_ref().and_then(|long| long.end()) {
                self.ended.set(Some(Ended::By(end)));
            } else if self.began.get().is_some_and(|began| self.spent(began) > self.budget.get()) {
                self.ended.set(Some(Ended::TooLong));
            }
        }
        self.check()
    }

    /// What counts: of one that runs long all of it, so that it ends.
    fn spent(&self, began: Watch) -> u64 {
        let waited = if self.long.borrow().is_some() { 0 } else { self.waited.get().min(WAITED) };
        began.nanos().saturating_sub(waited)
    }

    /// The same, now and then: for each piece of what may be long.
    pub(super) fn step(&self) -> mlua::Result<()> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() < STEPS {
            return Ok(());
        }
        self.steps.set(0);
        self.go_on()
    }

    /// So many bytes are about to leave the interpreter until the transaction has ended; none that it may not have are copied.
    pub(super) fn pass(&self, bytes: usize) -> Result<(), &'static str> {
        let passed = self.passed.get().saturating_add(bytes);
        if passed > PASSED {
            return Err(
                "not enough memory: what scripts of one transaction write, publish and answer is more than 256 MiB",
            );
        }
        self.passed.set(passed);
        Ok(())
    }

    /// Whether it has ended.
    fn check(&self) -> mlua::Result<()> {
        if self.ended.get().is_none() { Ok(()) } else { Err(mlua::Error::runtime("the script is ended")) }
    }

    /// From 0 on, and less than 1.
    pub(super) fn random(&self) -> f64 {
        let next = self.random.get().wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & 0xFFFF_FFFF_FFFF;
        self.random.set(next);
        let most = i32::MAX as u64;
        ((next >> 17) % most) as f64 / most as f64
    }

    fn seed(&self, seed: i32) {
        self.random.set(u64::from(seed as u32) << 16 | 0x330E);
    }
}

/// What a script is run with.
pub(super) struct Terms {
    pub(super) began: Watch,
    pub(super) budget: u64,
    pub(super) long: Option<Arc<Long>>,
    pub(super) random: u64,
    /// What scripts before it in the transaction have passed on, and how long they have waited.
    pub(super) passed: usize,
    pub(super) waited: u64,
}

/// An interpreter with the sandbox.
pub(super) struct Interpreter {
    pub(super) lua: Lua,
    pub(super) state: Rc<State>,
    /// What scripts see as globals, and what is behind it.
    env: Table,
    globals: Table,
    /// What is behind `redis`: functions that need the transaction are added to it.
    pub(super) redis: Table,
    run: Function,
    compiled: HashMap<Sha, Function>,
    /// Of functions.
    pub(super) libraries: Libraries,
}

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
    static APART: Cell<bool> = const { Cell::new(false) };
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

/// Runs `f`, which may run scripts, on a thread that serves nobody. There are too many of those for each to keep an interpreter.
pub(crate) fn apart<R>(f: impl FnOnce() -> R) -> R {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            APART.set(false);
            INTERPRETER.set(None);
        }
    }
    APART.set(true);
    let _back = Back;
    f()
}

/// Whether this thread serves nobody.
pub(super) fn is_apart() -> bool {
    APART.get()
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let state = Rc::new(State {
            began: Cell::new(None),
            budget: Cell::new(0),
            long: RefCell::new(None),
            ended: Cell::new(None),
            three: Cell::new(false),
            random: Cell::new(0),
            passed: Cell::new(0),
            waited: Cell::new(0),
            steps: Cell::new(0),
            json: Rc::default(),
        });
        let own = state.clone();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            own.go_on().map(|()| VmState::Continue)
        })?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(OWN).set_mode(ChunkMode::Text).into_function()?;
        let registered = Rc::default();
        let functions = functions(&lua, &state)?;
        functions.raw_set("loading", library::loading(&lua, &registered)?)?;
        let parts = (lua.globals(), functions, modules(&lua, &state)?);
        let (env, globals, redis, run, own): (_, _, _, _, Table) = sandbox.call(parts)?;
        let libraries = Libraries::new(&own, registered)?;
        lua.set_memory_limit(MEMORY)?;
        Ok(Self { lua, state, env, globals, redis, run, compiled: HashMap::new(), libraries })
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
        let state = &self.state;
        state.began.set(Some(terms.began));
        state.budget.set(terms.budget);
        *state.long.borrow_mut() = terms.long;
        state.ended.set(None);
        state.three.set(false);
        state.random.set(terms.random);
        state.passed.set(terms.passed);
        state.waited.set(terms.waited);
        state.json.set(cjson::Settings::default());
    }

    /// Runs it: true and what it returns, or false and its error.
    pub(super) fn run(&self, script: Function, keys: Table, args: Table) -> mlua::Result<(bool, Value)> {
        self.globals.raw_set("KEYS", keys)?;
        self.globals.raw_set("ARGV", args)?;
        self.run.call(script)
    }

    /// Nothing of it is there for the next one to see.
    pub(super) fn end(&self) -> mlua::Result<()> {
        self.state.began.set(None);
        *self.state.long.borrow_mut() = None;
        self.globals.raw_set("KEYS", Value::Nil)?;
        self.globals.raw_set("ARGV", Value::Nil)
    }
}

/// A chunk of this name and environment, or what is wrong with it.
pub(super) fn compiled(lua: &Lua, body: &[u8], name: &str, env: &Table) -> mlua::Result<Result<Function, String>> {
    let chunk = lua.load(body).set_name(name).set_mode(ChunkMode::Text).set_environment(env.clone());
    match chunk.into_function() {
        Ok(made) => Ok(Ok(made)),
        Err(mlua::Error::SyntaxError { message, .. }) => Ok(Err(message)),
        Err(other) => Err(other),
    }
}

/// Keeps what was compiled, for the next time.
pub(super) fn keep(kept: &mut HashMap<Sha, Function>, sha: &Sha, made: &Function) {
    if kept.len() >= COMPILED {
        kept.clear();
    }
    kept.insert(*sha, made.clone());
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
            Some(Raised(text)) => convert::error(lua, text),
            None => Ok(Value::String(lua.create_string(cause.to_string())?)),
        },
        other => Ok(Value::String(lua.create_string(text_of(other))?)),
    }
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
                Some(text) => [b"ERR ", &text.as_bytes()[..]].concat(),
                None => [b"ERR ", text.as_bytes()].concat(),
            };
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
    };
    // Functions of Rust and of the sandbox are not where a script goes wrong.
    for level in 1..8 {
        let place = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let text = source.source.map(|text| text.into_owned()).unwrap_or_default();
            let is_own = source.what == "C" || source.what == "tail" || text == OWN;
            (is_own, text, debug.current_line())
        });
        match place {
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
    let own = state.clone();
    let load = lua.create_function(move |lua, (text, name, env): (LuaString, LuaString, Table)| {
        own.go_on()?;
        let name = name.as_bytes();
        let name = name[..name.len().min(NAME)].split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let chunk = lua.load(text.as_bytes().to_vec()).set_name(name).set_mode(ChunkMode::Text).set_environment(env);
        match chunk.into_function() {
            Ok(function) => Ok((Value::Function(function), Value::Nil)),
            Err(mlua::Error::SyntaxError { message, .. }) => {
                Ok((Value::Nil, Value::String(lua.create_string(message)?)))
            }
            Err(other) => Err(other),
        }
    })?;
    table.raw_set("load", load)?;
    Ok(table)
}

fn modules(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("bit", bit::library(lua)?)?;
    table.raw_set("struct", structs::library(lua)?)?;
    table.raw_set("cmsgpack", cmsgpack::library(lua, state)?)?;
    table.raw_set("cjson", cjson::library(lua, &state.json, state)?)?;
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
    use super::*;

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
        let scripts = super::super::Scripts::default();
        let long = scripts.begin_long(std::time::Duration::ZERO);
        assert!(begun(&one, hours, Some(long)).is_err(), "it ends");
    }

    #[test]
    fn a_thread_that_serves_nobody_keeps_no_interpreter() {
        let has_one = || INTERPRETER.with_borrow(Option::is_some);
        let used = || with(|one| one.lua.load("return 1").eval::<i64>()).unwrap();
        assert_eq!((used(), has_one(), is_apart()), (1, true, false));
        apart(|| assert_eq!((used(), has_one(), is_apart()), (1, true, true)));
        assert_eq!((has_one(), is_apart()), (false, false));
    }
}
