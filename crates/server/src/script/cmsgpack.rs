//! `cmsgpack`: MessagePack, as Redis' library writes and reads it.

use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Table, Value};
use rmp::Marker;

use super::args::{Answer, Args, Fail, add, number};
use super::state::{MEMORY, State};

/// Tables within tables that are written; deeper ones are nil.
const DEPTH: usize = 16;
/// The same of what is read, which the stack has to bear.
const DEPTH_READ: usize = 1000;

/// It writes to memory, where there is always room.
fn written<T, E>(_: Result<T, E>) {}

fn write_number(to: &mut Vec<u8>, value: f64) {
    use rmp::encode::{write_f32, write_f64, write_sint, write_uint};
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value) {
        let whole = value as i64;
        match u64::try_from(whole) {
            Ok(positive) => written(write_uint(to, positive)),
            Err(_) => written(write_sint(to, whole)),
        }
    } else if f64::from(value as f32) == value {
        written(write_f32(to, value as f32));
    } else {
        written(write_f64(to, value));
    }
}

/// Keys from 1 to the number of pairs, and no others.
fn is_array(table: &Table) -> mlua::Result<Option<usize>> {
    let (mut count, mut most, mut array) = (0_usize, 0.0_f64, true);
    table.for_each(|key: Value, _: Value| {
        count += 1;
        match number(&key) {
            Some(key) if key >= 1.0 && key.fract() == 0.0 => most = most.max(key),
            _ => array = false,
        }
        Ok(())
    })?;
    Ok((array && most == count as f64).then_some(count))
}

fn write(to: &mut Vec<u8>, value: &Value, depth: usize, state: &State) -> mlua::Result<()> {
    use rmp::encode::{write_array_len, write_bool, write_map_len, write_nil, write_str_len};
    // A table, or a text, may be there many times: what is written is more than what there is.
    let len = if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
    state.step()?;
    if to.len() + len > MEMORY {
        return Err(mlua::Error::MemoryError("what is packed".to_owned()));
    }
    match value {
        Value::String(text) => {
            written(write_str_len(to, text.as_bytes().len() as u32));
            to.extend_from_slice(&text.as_bytes());
        }
        Value::Boolean(value) => written(write_bool(to, *value)),
        Value::Integer(value) => write_number(to, *value as f64),
        Value::Number(value) => write_number(to, *value),
        Value::Table(table) if depth < DEPTH => {
            if let Some(len) = is_array(table)? {
                written(write_array_len(to, len as u32));
                for at in 1..=len {
                    write(to, &table.raw_get(at)?, depth + 1, state)?;
                }
                return Ok(());
            }
            let mut len = 0;
            table.for_each(|_: Value, _: Value| {
                len += 1;
                Ok(())
            })?;
            written(write_map_len(to, len));
            table.for_each(|key: Value, value: Value| {
                write(to, &key, depth + 1, state)?;
                write(to, &value, depth + 1, state)
            })?;
        }
        _ => written(write_nil(to)),
    }
    Ok(())
}

fn pack(args: &Args<'_>, state: &State) -> Answer<mlua::LuaString> {
    if args.len() == 0 {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut bytes = Vec::new();
    for at in 0..args.len() {
        write(&mut bytes, args.get(at), 0, state)?;
    }
    Ok(args.lua.create_string(bytes)?)
}

/// Bytes that are read.
struct Reader<'r> {
    lua: &'r Lua,
    rest: &'r [u8],
    state: &'r State,
}

impl<'r> Reader<'r> {
    fn take(&mut self, len: usize) -> Answer<&'r [u8]> {
        let (some, rest) = self.rest.split_at_checked(len).ok_or("Missing bytes in input.")?;
        self.rest = rest;
        Ok(some)
    }

    fn number<const N: usize>(&mut self) -> Answer<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "Missing bytes in input.".into())
    }

    fn text(&mut self, len: usize) -> Answer<Value> {
        Ok(self.lua.create_string(self.take(len)?)?.into_lua(self.lua)?)
    }

    fn array(&mut self, len: usize, depth: usize) -> Answer<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=len {
            table.raw_set(at, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Answer<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            match &key {
                Value::Nil => return Err("table index is nil".into()),
                other if number(other).is_some_and(f64::is_nan) => return Err("table index is NaN".into()),
                _ => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> Answer<Value> {
        if depth > DEPTH_READ {
            return Err("Bad data format in input.".into());
        }
        self.state.step()?;
        let number = |value: f64| Ok(Value::Number(value));
        match Marker::from_u8(self.take(1)?[0]) {
            Marker::FixPos(value) => number(value.into()),
            Marker::FixNeg(value) => number(value.into()),
            Marker::U8 => number(u8::from_be_bytes(self.number()?).into()),
            Marker::U16 => number(u16::from_be_bytes(self.number()?).into()),
            Marker::U32 => number(u32::from_be_bytes(self.number()?).into()),
            Marker::U64 => number(u64::from_be_bytes(self.number()?) as f64),
            Marker::I8 => number(i8::from_be_bytes(self.number()?).into()),
            Marker::I16 => number(i16::from_be_bytes(self.number()?).into()),
            Marker::I32 => number(i32::from_be_bytes(self.number()?).into()),
            Marker::I64 => number(i64::from_be_bytes(self.number()?) as f64),
            Marker::F32 => number(f32::from_be_bytes(self.number()?).into()),
            Marker::F64 => number(f64::from_be_bytes(self.number()?)),
            Marker::Null => Ok(Value::Nil),
            Marker::True => Ok(Value::Boolean(true)),
            Marker::False => Ok(Value::Boolean(false)),
            Marker::FixStr(len) => self.text(len.into()),
            Marker::Str8 => {
                let len = u8::from_be_bytes(self.number()?);
                self.text(len.into())
            }
            Marker::Str16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.text(len.into())
            }
            Marker::Str32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.text(len as usize)
            }
            Marker::FixArray(len) => self.array(len.into(), depth),
            Marker::Array16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.array(len.into(), depth)
            }
            Marker::Array32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.array(len as usize, depth)
            }
            Marker::FixMap(len) => self.map(len.into(), depth),
            Marker::Map16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.map(len.into(), depth)
            }
            Marker::Map32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.map(len as usize, depth)
            }
            _ => Err("Bad data format in input.".into()),
        }
    }
}

/// Reads values from `offset` on, at most so many (0: all); says where it has stopped, if that was asked for.
fn unpack(args: &Args<'_>, state: &State, (limit, offset): (i64, i64), tells: bool) -> Answer<MultiValue> {
    let text = args.string(0)?;
    let text = text.as_bytes();
    if offset < 0 || limit < 0 {
        return Err(format!("Invalid request to unpack with offset of {offset} and limit of {}.", text.len()).into());
    }
    let Some(rest) = usize::try_from(offset).ok().and_then(|from| text.get(from..)) else {
        return Err(format!("Start offset {offset} greater than input length {}.", text.len()).into());
    };
    // Without limit and offset it is `unpack`.
    let tells = tells && (limit != 0 || offset != 0);
    let limit = if limit == 0 && !tells { i64::MAX } else { limit };
    let mut reader = Reader { lua: args.lua, rest, state };
    let mut values = Vec::new();
    while !reader.rest.is_empty() && (values.len() as i64) < limit {
        if values.len() > 7_000 {
            return Err(Fail::from("too many results to unpack"));
        }
        values.push(reader.value(0)?);
    }
    if tells {
        let at = if reader.rest.is_empty() { -1.0 } else { (text.len() - reader.rest.len()) as f64 };
        values.insert(0, Value::Number(at));
    }
    Ok(values.into_iter().collect())
}

pub(super) fn library(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = state.clone();
    add(lua, &table, "pack", move |args| pack(args, &own))?;
    let own = state.clone();
    add(lua, &table, "unpack", move |args| unpack(args, &own, (0, 0), false))?;
    let own = state.clone();
    add(lua, &table, "unpack_one", move |args| unpack(args, &own, (1, args.int_or(1, 0)?), true))?;
    let own = state.clone();
    add(lua, &table, "unpack_limit", move |args| {
        unpack(args, &own, (args.number(1)? as i64, args.int_or(2, 0)?), true)
    })?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}
