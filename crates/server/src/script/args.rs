//! Arguments of functions that scripts call, and their errors in the words of Lua.

use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::numbers::whole;
use super::state::OWN;

/// Why a function fails.
#[derive(Debug)]
pub(super) enum Fail {
    /// The script is told, where it has called the function.
    Text(String),
    /// The interpreter itself: no memory, or the end of the script.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Fail {
    fn from(error: mlua::Error) -> Self {
        match error {
            mlua::Error::MemoryError(_) => Self::Text("not enough memory".to_owned()),
            other => Self::Lua(other),
        }
    }
}

impl From<String> for Fail {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Fail {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

pub(super) type Answer<T> = Result<T, Fail>;

/// What a function was called with.
pub(super) struct Args<'a> {
    pub(super) lua: &'a Lua,
    name: &'static str,
    values: MultiValue,
}

impl Args<'_> {
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Counted from 0.
    pub(super) fn get(&self, at: usize) -> &Value {
        self.values.get(at).unwrap_or(&Value::Nil)
    }

    pub(super) fn wrong(&self, at: usize, what: &str) -> Fail {
        Fail::Text(format!("bad argument #{} to '{}' ({what})", at + 1, self.name))
    }

    pub(super) fn expected(&self, at: usize, what: &str) -> Fail {
        let got = self.values.get(at).map_or("no value", type_name);
        self.wrong(at, &format!("{what} expected, got {got}"))
    }

    pub(super) fn number(&self, at: usize) -> Answer<f64> {
        self.maybe_number(at)?.ok_or_else(|| self.expected(at, "number"))
    }

    fn maybe_number(&self, at: usize) -> Answer<Option<f64>> {
        Ok(match self.get(at) {
            text @ Value::String(_) => self.lua.coerce_number(text.clone())?,
            other => number(other),
        })
    }

    /// A whole number; this one if there is none.
    pub(super) fn int_or(&self, at: usize, or: i64) -> Answer<i64> {
        if matches!(self.get(at), Value::Nil) { Ok(or) } else { Ok(whole(self.number(at)?)) }
    }

    /// A whole number, which has to be there.
    pub(super) fn int(&self, at: usize) -> Answer<i64> {
        self.number(at).map(whole)
    }

    pub(super) fn string(&self, at: usize) -> Answer<LuaString> {
        self.maybe_string(at)?.ok_or_else(|| self.expected(at, "string"))
    }

    pub(super) fn maybe_string(&self, at: usize) -> Answer<Option<LuaString>> {
        Ok(match self.get(at) {
            Value::String(text) => Some(text.clone()),
            value @ (Value::Number(_) | Value::Integer(_)) => self.lua.coerce_string(value.clone())?,
            _ => None,
        })
    }
}

/// A number as such, whichever way it is held.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) | Value::Number(_) => "number",
        Value::LightUserData(_) | Value::Error(_) | Value::UserData(_) => "userdata",
        other => other.type_name(),
    }
}

/// An error of a command, which begins with its code: a table for scripts that catch it.
#[derive(Debug, thiserror::Error)]
#[error("{}", String::from_utf8_lossy(.text))]
pub(super) struct Raised {
    pub(super) text: Vec<u8>,
    /// It came of a command, so it is among the errors that are counted.
    pub(super) counted: bool,
}

/// The place in a script that has called the function which runs.
fn location(lua: &Lua) -> String {
    // Those of the sandbox are not places of a script.
    (1..4)
        .find_map(|level| {
            lua.inspect_stack(level, |debug| {
                let source = debug.source();
                let is_own = source.source.as_deref() == Some(OWN);
                (!is_own).then(|| match (source.short_src, debug.current_line()) {
                    (Some(name), Some(line)) => format!("{name}:{line}: "),
                    _ => String::new(),
                })
            })?
        })
        .unwrap_or_default()
}

/// The error that a function ends with.
pub(super) fn raise(lua: &Lua, fail: Fail) -> mlua::Error {
    match fail {
        Fail::Text(text) => mlua::Error::RuntimeError(format!("{}{text}", location(lua))),
        Fail::Lua(error) => error,
    }
}

/// A function in the words of Lua's own.
pub(super) fn function<R: IntoLuaMulti>(
    lua: &Lua,
    name: &'static str,
    f: impl Fn(&Args<'_>) -> Answer<R> + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| f(&Args { lua, name, values }).map_err(|fail| raise(lua, fail)))
}

/// Adds such a function to a table.
pub(super) fn add<R: IntoLuaMulti>(
    lua: &Lua,
    to: &Table,
    name: &'static str,
    f: impl Fn(&Args<'_>) -> Answer<R> + 'static,
) -> mlua::Result<()> {
    to.raw_set(name, function(lua, name, f)?)
}
