//! `cjson`: JSON, as lua-cjson writes and reads it. Its settings hold for one script.

mod decode;

use std::cell::Cell;
use std::rc::Rc;

use mlua::{IntoLua, Lua, Table, Value};

use super::args::{Answer, Args, Fail, add, number, type_name};
use super::convert::c_text;
use super::numbers::general;
use super::state::{MEMORY, State};

/// What scripts can change.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth: i64,
    decode_depth: i64,
    precision: i64,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// What becomes of numbers that JSON has not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: 1000,
            decode_depth: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
        }
    }
}

/// Bytes of a text between two looks at the room that is left.
const PIECE: usize = 64 << 10;

struct Encoder<'e> {
    settings: Settings,
    to: Vec<u8>,
    state: &'e State,
}

fn unsupported(value: &Value, why: &str) -> Fail {
    Fail::Text(format!("Cannot serialise {}: {why}", type_name(value)))
}

impl Encoder<'_> {
    /// A table may be there many times, so what is written is more than what there is.
    fn room(&self) -> Answer<()> {
        self.state.step()?;
        if self.to.len() > MEMORY { Err("not enough memory".into()) } else { Ok(()) }
    }

    fn value(&mut self, value: &Value, depth: i64) -> Answer<()> {
        self.room()?;
        match value {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Boolean(true) => self.to.extend_from_slice(b"true"),
            Value::Boolean(false) => self.to.extend_from_slice(b"false"),
            Value::Nil => self.to.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.to.extend_from_slice(b"null"),
            Value::Integer(_) | Value::Number(_) => self.number(value)?,
            Value::Table(table) => self.table(value, table, depth + 1)?,
            other => return Err(unsupported(other, "type not supported")),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Answer<()> {
        let number = number(value).unwrap_or_default();
        match self.settings.encode_invalid {
            _ if number.is_finite() => {}
            Invalid::Refused => return Err(unsupported(value, "must not be NaN or Inf")),
            Invalid::Null => {
                self.to.extend_from_slice(b"null");
                return Ok(());
            }
            // Whatever its sign.
            Invalid::Written if number.is_nan() => {
                self.to.extend_from_slice(b"nan");
                return Ok(());
            }
            Invalid::Written => {}
        }
        let text = general(number, self.settings.precision as usize);
        self.to.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> Answer<()> {
        self.to.push(b'"');
        for piece in text.chunks(PIECE) {
            self.room()?;
            self.piece(piece);
        }
        self.to.push(b'"');
        Ok(())
    }

    fn piece(&mut self, text: &[u8]) {
        for byte in text {
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                8 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                12 => b"\\f",
                b'\r' => b"\\r",
                0..=31 | 127 => {
                    self.to.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                other => {
                    self.to.push(*other);
                    continue;
                }
            };
            self.to.extend_from_slice(escape);
        }
    }

    /// How long an array it is; none if it is an object.
    fn array_len(&self, value: &Value, table: &Table) -> Answer<Option<i64>> {
        // In C, where the length is an `int`, one that is too long is none.
        let int = |key: f64| if key <= f64::from(i32::MAX) { key as i64 } else { i64::from(i32::MIN) };
        let (mut most, mut count, mut array) = (0_i64, 0_i64, true);
        table.for_each(|key: Value, _: Value| {
            match number(&key) {
                Some(key) if key.floor() == key && key >= 1.0 => {
                    most = if key > most as f64 { int(key) } else { most };
                    count += 1;
                }
                _ => array = false,
            }
            Ok(())
        })?;
        let s = &self.settings;
        if !array {
            return Ok(None);
        }
        let sparse = s.sparse_ratio > 0 && most > count.saturating_mul(s.sparse_ratio) && most > s.sparse_safe;
        if sparse && !s.sparse_convert {
            return Err(unsupported(value, "excessively sparse array"));
        }
        Ok((most > 0 && !sparse).then_some(most))
    }

    fn table(&mut self, value: &Value, table: &Table, depth: i64) -> Answer<()> {
        if depth > self.settings.encode_depth.min(1000) {
            return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
        }
        if let Some(len) = self.array_len(value, table)? {
            self.to.push(b'[');
            for at in 1..=len {
                if at > 1 {
                    self.to.push(b',');
                }
                self.value(&table.raw_get(at)?, depth)?;
            }
            self.to.push(b']');
            return Ok(());
        }
        self.to.push(b'{');
        // Not within a call of Lua, which can have 200 of them open.
        for (at, pair) in table.pairs::<Value, Value>().enumerate() {
            if at > 0 {
                self.to.push(b',');
            }
            let (key, held) = pair?;
            self.pair(&key, &held, depth)?;
        }
        self.to.push(b'}');
        Ok(())
    }

    fn pair(&mut self, key: &Value, held: &Value, depth: i64) -> Answer<()> {
        match key {
            Value::Integer(_) | Value::Number(_) => {
                self.to.push(b'"');
                self.number(key)?;
                self.to.push(b'"');
            }
            Value::String(text) => self.string(&text.as_bytes())?,
            _ => return Err(unsupported(key, "table key must be a number or string")),
        }
        self.to.push(b':');
        self.value(held, depth)
    }
}

/// A whole number in place of what is set, if there is an argument.
fn integer(args: &Args<'_>, at: usize, now: i64, from: i64, to: i64) -> Answer<i64> {
    if matches!(args.get(at), Value::Nil) {
        return Ok(now);
    }
    let value = args.number(at)? as i64;
    if (from..=to).contains(&value) {
        return Ok(value);
    }
    Err(args.wrong(at, &format!("expected integer between {from} and {to}")))
}

fn switch(args: &Args<'_>, now: bool) -> Answer<bool> {
    match args.get(0) {
        Value::Nil => Ok(now),
        Value::Boolean(value) => Ok(*value),
        _ => match &*args.string(0)?.as_bytes() {
            b"on" => Ok(true),
            b"off" => Ok(false),
            other => Err(args.wrong(0, &format!("invalid option '{}'", String::from_utf8_lossy(c_text(other))))),
        },
    }
}

/// Where one of the settings is.
type Field<T> = fn(&mut Settings) -> &mut T;

/// A function that sets what it is told, if that is anything, and returns what is set.
fn add_setting<T: Copy + IntoLua + 'static>(
    lua: &Lua,
    table: &Table,
    (name, field): (&'static str, Field<T>),
    settings: &Rc<Cell<Settings>>,
    told: impl Fn(&Args<'_>, T) -> Answer<T> + 'static,
) -> mlua::Result<()> {
    let settings = settings.clone();
    add(lua, table, name, move |args| {
        let mut changed = settings.get();
        let set = told(args, *field(&mut changed))?;
        *field(&mut changed) = set;
        settings.set(changed);
        Ok(set)
    })
}

fn settings_functions(lua: &Lua, table: &Table, settings: &Rc<Cell<Settings>>) -> mlua::Result<()> {
    let most = i64::from(i32::MAX);
    let change = |settings: &Rc<Cell<Settings>>, f: &dyn Fn(&mut Settings) -> Answer<()>| -> Answer<Settings> {
        let mut changed = settings.get();
        f(&mut changed)?;
        settings.set(changed);
        Ok(changed)
    };
    let all = settings.clone();
    add(lua, table, "encode_sparse_array", move |args| {
        let changed = change(&all, &|s| {
            s.sparse_convert = switch(args, s.sparse_convert)?;
            s.sparse_ratio = integer(args, 1, s.sparse_ratio, 0, most)?;
            s.sparse_safe = integer(args, 2, s.sparse_safe, 0, most)?;
            Ok(())
        })?;
        Ok((changed.sparse_convert, changed.sparse_ratio, changed.sparse_safe))
    })?;
    let integers: [(&'static str, Field<i64>, i64); 3] = [
        ("encode_max_depth", |s| &mut s.encode_depth, most),
        ("decode_max_depth", |s| &mut s.decode_depth, most),
        ("encode_number_precision", |s| &mut s.precision, 14),
    ];
    for (name, field, to) in integers {
        add_setting(lua, table, (name, field), settings, move |args, now| integer(args, 0, now, 1, to))?;
    }
    let switches: [(&'static str, Field<bool>); 2] =
        [("encode_keep_buffer", |s| &mut s.keep_buffer), ("decode_invalid_numbers", |s| &mut s.decode_invalid)];
    for of in switches {
        add_setting(lua, table, of, settings, switch)?;
    }
    let all = settings.clone();
    add(lua, table, "encode_invalid_numbers", move |args| {
        let changed = change(&all, &|s| {
            let null = matches!(args.get(0), Value::String(text) if &*text.as_bytes() == b"null");
            s.encode_invalid = match null {
                true => Invalid::Null,
                false if matches!(args.get(0), Value::Nil) => s.encode_invalid,
                false if switch(args, false)? => Invalid::Written,
                false => Invalid::Refused,
            };
            Ok(())
        })?;
        Ok(match changed.encode_invalid {
            Invalid::Null => Value::String(args.lua.create_string("null")?),
            other => Value::Boolean(other == Invalid::Written),
        })
    })
}

pub(super) fn library(lua: &Lua, settings: &Rc<Cell<Settings>>, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let (all, own) = (settings.clone(), state.clone());
    add(lua, &table, "encode", move |args| {
        if args.len() != 1 {
            return Err(args.wrong(0, "expected 1 argument"));
        }
        let mut encoder = Encoder { settings: all.get(), to: Vec::new(), state: &own };
        encoder.value(args.get(0), 0)?;
        Ok(args.lua.create_string(encoder.to)?)
    })?;
    let (all, own) = (settings.clone(), state.clone());
    add(lua, &table, "decode", move |args| {
        if args.len() != 1 {
            return Err(args.wrong(0, "expected 1 argument"));
        }
        let text = args.string(0)?;
        let s = all.get();
        decode::decode(args.lua, &text.as_bytes(), s.decode_depth, s.decode_invalid, &own)
    })?;
    settings_functions(lua, &table, settings)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}
