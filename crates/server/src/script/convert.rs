//! Replies become values of Lua, and values replies, as Redis has them.

use mlua::{Lua, LuaString, Table, Value};

use super::args::{Raised, number};
use super::numbers::{self, whole};
use super::state::State;
use crate::reply::Reply;
use crate::request;

/// Tables within tables of an answer.
const DEPTH: usize = 1000;

/// A text as C has it: up to its first zero.
pub(super) fn c_text(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// `{err = text}`, of an error that begins with its code. Those of commands have a field that says that they are counted.
pub(super) fn error(lua: &Lua, Raised { text, counted }: &Raised) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 2)?;
    // A reply is a line, whether or not it was sent.
    let line: Vec<u8> =
        c_text(text).iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect();
    table.raw_set("err", lua.create_string(line)?)?;
    if *counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(Value::Table(table))
}

fn single(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// What commands have answered, which is well formed.
pub(super) struct Answer<'a> {
    rest: &'a [u8],
    state: &'a State,
}

impl<'a> Answer<'a> {
    pub(super) fn new(bytes: &'a [u8], state: &'a State) -> Self {
        Self { rest: bytes, state }
    }

    fn line(&mut self) -> &'a [u8] {
        let len = self.rest.windows(2).position(|pair| pair == b"\r\n").unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(len);
        self.rest = rest.get(2..).unwrap_or_default();
        line
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (some, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest.get(2..).unwrap_or_default();
        some
    }

    pub(super) fn value(&mut self, lua: &Lua) -> mlua::Result<Value> {
        self.state.step()?;
        let line = self.line();
        let Some((kind, text)) = line.split_first() else { return Ok(Value::Nil) };
        let count = request::number(text);
        let len = count.and_then(|count| usize::try_from(count).ok());
        Ok(match (kind, len) {
            (b'+', _) => single(lua, "ok", Value::String(lua.create_string(text)?))?,
            (b'-', _) => error(lua, &Raised { text: text.to_vec(), counted: true })?,
            (b':', _) => Value::Number(count.unwrap_or(0) as f64),
            (b'$', Some(len)) => Value::String(lua.create_string(self.bytes(len))?),
            (b'*', Some(len)) => {
                // It grows as in Redis: of one with nil in it the length that `#` finds depends on that.
                let table = lua.create_table()?;
                for at in 1..=len {
                    table.raw_set(at, self.value(lua)?)?;
                }
                Value::Table(table)
            }
            (b'$' | b'*', None) => Value::Boolean(false),
            (b'%', Some(len)) => {
                let table = lua.create_table()?;
                for _ in 0..len {
                    let key = self.value(lua)?;
                    table.raw_set(key, self.value(lua)?)?;
                }
                single(lua, "map", Value::Table(table))?
            }
            (b'~', Some(len)) => {
                let table = lua.create_table()?;
                for _ in 0..len {
                    table.raw_set(self.value(lua)?, true)?;
                }
                single(lua, "set", Value::Table(table))?
            }
            (b',', _) => {
                let number = numbers::prefix(text).map_or(0.0, |(number, _)| number);
                single(lua, "double", Value::Number(number))?
            }
            (b'#', _) => Value::Boolean(text == b"t"),
            (b'(', _) => single(lua, "big_number", Value::String(lua.create_string(text)?))?,
            (b'=', Some(len)) => {
                let text = self.bytes(len);
                let table = lua.create_table()?;
                table.raw_set("format", lua.create_string(text.get(..3).unwrap_or_default())?)?;
                table.raw_set("string", lua.create_string(text.get(4..).unwrap_or_default())?)?;
                single(lua, "verbatim_string", Value::Table(table))?
            }
            _ => Value::Nil,
        })
    }
}

/// The field of a table that is of that type, by itself: no metatable has a say.
fn text_field(table: &Table, name: &str) -> mlua::Result<Option<LuaString>> {
    Ok(match table.raw_get(name)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

fn table_field(table: &Table, name: &str) -> mlua::Result<Option<Table>> {
    Ok(match table.raw_get(name)? {
        Value::Table(table) => Some(table),
        _ => None,
    })
}

/// Bytes of a reply, besides those of a text.
const HEAD: usize = 16;

/// Room for a text of the answer, before it is copied there.
fn room(state: &State, len: usize) -> mlua::Result<()> {
    state.step()?;
    state.pass(len + HEAD).map_err(mlua::Error::runtime)
}

/// Writes what a script returns.
pub(super) fn answer(value: &Value, reply: &mut Reply, state: &State, depth: usize) -> mlua::Result<()> {
    if depth > DEPTH {
        return Err(mlua::Error::runtime("reached lua stack limit"));
    }
    room(state, if let Value::String(text) = value { text.as_bytes().len() } else { 0 })?;
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Boolean(value) if state.three.get() => reply.boolean(*value),
        Value::Boolean(true) => reply.int(1),
        Value::Integer(_) | Value::Number(_) => reply.int(whole(number(value).unwrap_or_default())),
        Value::Table(table) if !answer_named(table, reply, state)? => return answer_table(table, reply, state, depth),
        Value::Table(_) => {}
        _ => reply.null(),
    }
    Ok(())
}

/// A table whose field says what it is; false if there is none of these.
fn answer_named(table: &Table, reply: &mut Reply, state: &State) -> mlua::Result<bool> {
    let write: fn(&mut Reply, &[u8]) = Reply::error_bytes;
    for (name, write) in [("err", write), ("ok", Reply::simple_bytes)] {
        if let Some(text) = text_field(table, name)? {
            room(state, text.as_bytes().len())?;
            write(reply, c_text(&text.as_bytes()));
            return Ok(true);
        }
    }
    if let Some(value) = number(&table.raw_get("double")?) {
        reply.double(value);
        return Ok(true);
    }
    if let Some(text) = text_field(table, "big_number")? {
        room(state, text.as_bytes().len())?;
        reply.big_number(&text.as_bytes());
        return Ok(true);
    }
    if let Some(of) = table_field(table, "verbatim_string")?
        && let (Some(format), Some(text)) = (text_field(&of, "format")?, text_field(&of, "string")?)
    {
        room(state, text.as_bytes().len())?;
        reply.verbatim_bytes(c_text(&format.as_bytes()), &text.as_bytes());
        return Ok(true);
    }
    Ok(false)
}

fn answer_table(table: &Table, reply: &mut Reply, state: &State, depth: usize) -> mlua::Result<()> {
    if let Some(map) = table_field(table, "map")? {
        reply.map(pairs(&map)?);
        // Not within a call of Lua, which can have 200 of them open.
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            answer(&key, reply, state, depth + 1)?;
            answer(&value, reply, state, depth + 1)?;
        }
        return Ok(());
    }
    if let Some(set) = table_field(table, "set")? {
        reply.set(pairs(&set)?);
        for pair in set.pairs::<Value, Value>() {
            answer(&pair?.0, reply, state, depth + 1)?;
        }
        return Ok(());
    }
    let mut len = 0;
    while !matches!(table.raw_get(len + 1)?, Value::Nil) {
        len += 1;
        state.step()?;
    }
    reply.array(len);
    for at in 1..=len {
        answer(&table.raw_get(at)?, reply, state, depth + 1)?;
    }
    Ok(())
}

fn pairs(table: &Table) -> mlua::Result<usize> {
    let mut count = 0;
    table.for_each(|_: Value, _: Value| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}
