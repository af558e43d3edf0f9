//! `struct`: values as bytes of fixed layouts, and back.

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::args::{Answer, Args, Fail, add, number};
use super::state::MEMORY;

/// The largest whole number, and string, that a format may name.
const SIZE_MAX: usize = i32::MAX as usize;
/// Bytes of the largest whole number.
const INT_MAX: usize = 32;
/// What `!` alone means.
const ALIGN: usize = 8;

/// A format, as it is read.
struct Format<'f> {
    rest: &'f [u8],
    big: bool,
    align: usize,
}

struct Option_ {
    letter: u8,
    size: usize,
}

impl<'f> Format<'f> {
    fn new(text: &'f [u8]) -> Self {
        // As in C the text ends at a zero.
        let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Self { rest: &text[..len], big: false, align: 1 }
    }

    fn count(&mut self, or: usize) -> Answer<usize> {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Ok(or);
        }
        let mut count = 0;
        while let Some(digit) = self.rest.first().filter(|byte| byte.is_ascii_digit()) {
            if count > SIZE_MAX / 10 || count * 10 > SIZE_MAX - usize::from(digit - b'0') {
                return Err("integral size overflow".into());
            }
            count = count * 10 + usize::from(digit - b'0');
            self.rest = &self.rest[1..];
        }
        Ok(count)
    }

    fn next(&mut self) -> Answer<Option<Option_>> {
        let Some((letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.count(1)?,
            b'i' | b'I' => {
                let size = self.count(4)?;
                if size > INT_MAX {
                    return Err(format!("integral size {size} is larger than limit of {INT_MAX}").into());
                }
                size
            }
            // Of those that are none `control` says so.
            _ => 0,
        };
        Ok(Some(Option_ { letter: *letter, size }))
    }

    /// Bytes that are left out in front of a value.
    fn padding(&self, len: usize, option: &Option_) -> usize {
        if option.size == 0 || option.letter == b'c' {
            return 0;
        }
        let size = option.size.min(self.align);
        if size > 1 { (size - (len & (size - 1))) & (size - 1) } else { 0 }
    }

    fn control(&mut self, letter: u8, args: &Args<'_>) -> Answer<()> {
        match letter {
            b'>' => self.big = true,
            b'<' => self.big = false,
            b'!' => {
                let align = self.count(ALIGN)?;
                if !align.is_power_of_two() {
                    return Err(format!("alignment {align} is not a power of 2").into());
                }
                self.align = align;
            }
            b' ' => {}
            other => return Err(args.wrong(0, &format!("invalid format option '{}'", char::from(other)))),
        }
        Ok(())
    }

    fn order<const N: usize>(&self, mut little: [u8; N]) -> [u8; N] {
        if self.big {
            little.reverse();
        }
        little
    }
}

fn pack(args: &Args<'_>) -> Answer<mlua::LuaString> {
    let text = args.string(0)?;
    let text = text.as_bytes();
    let (mut format, mut bytes, mut at) = (Format::new(&text), Vec::new(), 1);
    while let Some(option) = format.next()? {
        bytes.resize(bytes.len() + format.padding(bytes.len(), &option), 0);
        match option.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = next(args, at)?;
                at += 1;
                let value = if value < i64::MAX as f64 { whole(value) as u64 } else { value as u64 };
                let byte = |n: usize| if n < 8 { (value >> (8 * n)) as u8 } else { 0 };
                let from = bytes.len();
                bytes.extend((0..option.size).map(byte));
                if format.big {
                    bytes[from..].reverse();
                }
            }
            b'x' => bytes.push(0),
            b'f' => {
                bytes.extend(format.order((next(args, at)? as f32).to_le_bytes()));
                at += 1;
            }
            b'd' => {
                bytes.extend(format.order(next(args, at)?.to_le_bytes()));
                at += 1;
            }
            b'c' | b's' => {
                let value = args.string(at)?;
                at += 1;
                let size = if option.size == 0 { value.as_bytes().len() } else { option.size };
                let value = value.as_bytes();
                let some = value.get(..size).ok_or_else(|| args.wrong(at, "string too short"))?;
                if bytes.len() + size > MEMORY {
                    return Err("not enough memory".into());
                }
                bytes.extend_from_slice(some);
                if option.letter == b's' {
                    bytes.push(0);
                }
            }
            other => format.control(other, args)?,
        }
    }
    Ok(args.lua.create_string(bytes)?)
}

/// The next value. The original puts a nil behind the last one.
fn next(args: &Args<'_>, at: usize) -> Answer<f64> {
    if at == args.len() {
        return Err(args.wrong(at, "number expected, got nil"));
    }
    args.number(at)
}

/// As C takes a double to a long.
fn whole(value: f64) -> i64 {
    if value >= -9_223_372_036_854_775_808.0 { value as i64 } else { i64::MIN }
}

fn read(bytes: &[u8], big: bool, signed: bool) -> f64 {
    let mut all: u64 = 0;
    let byte = |n: usize| if big { bytes[bytes.len() - 1 - n] } else { bytes[n] };
    (0..bytes.len().min(8)).for_each(|n| all |= u64::from(byte(n)) << (8 * n));
    if !signed {
        return all as f64;
    }
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    ((all << unused) as i64 >> unused) as f64
}

fn unpack(args: &Args<'_>) -> Answer<MultiValue> {
    let (text, data) = (args.string(0)?, args.string(1)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let from = args.int_or(2, 1)?;
    let too_short = || args.wrong(1, "data string too short");
    if from == 0 {
        return Err(args.wrong(2, "offset must be 1 or greater"));
    }
    // A place in front of the data is one far behind it, where there is nothing to read.
    let mut at = from.wrapping_sub(1) as usize;
    let (mut format, mut values) = (Format::new(&text), Vec::<Value>::new());
    while let Some(option) = format.next()? {
        at = at.saturating_add(format.padding(at, &option));
        let mut size = option.size;
        let piece = |size: usize| at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(too_short);
        let bytes = piece(size)?;
        let lua = args.lua;
        match option.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' if size > 0 => {
                values.push(Value::Number(read(bytes, format.big, option.letter.is_ascii_lowercase())));
            }
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => values.push(Value::Number(0.0)),
            b'x' => {}
            b'f' => {
                let value = f32::from_le_bytes(format.order(bytes.try_into().map_err(|_| too_short())?));
                values.push(Value::Number(value.into()));
            }
            b'd' => {
                let value = f64::from_le_bytes(format.order(bytes.try_into().map_err(|_| too_short())?));
                values.push(Value::Number(value));
            }
            b'c' => {
                if size == 0 {
                    let before = values.pop().as_ref().and_then(number);
                    let before = before.ok_or_else(|| Fail::from("format 'c0' needs a previous size"))?;
                    size = if (0.0..1e15).contains(&before) { before as usize } else { usize::MAX };
                }
                values.push(lua.create_string(piece(size)?)?.into_lua(lua)?);
            }
            b's' => {
                let rest = data.get(at..).unwrap_or_default();
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| Fail::from("unfinished string in data"))?;
                values.push(lua.create_string(&rest[..end])?.into_lua(lua)?);
                size = end + 1;
            }
            other => format.control(other, args)?,
        }
        if values.len() > 7_000 {
            return Err("too many results to unpack".into());
        }
        at += size;
    }
    values.push(Value::Number(at.wrapping_add(1) as i64 as f64));
    Ok(values.into_iter().collect())
}

fn size(args: &Args<'_>) -> Answer<f64> {
    let text = args.string(0)?;
    let text = text.as_bytes();
    let (mut format, mut size) = (Format::new(&text), 0_usize);
    while let Some(option) = format.next()? {
        size += format.padding(size, &option);
        match option.letter {
            b's' => return Err(args.wrong(0, "option 's' has no fixed size")),
            b'c' if option.size == 0 => return Err(args.wrong(0, "option 'c0' has no fixed size")),
            // Those that are unknown as well.
            letter if letter.is_ascii_alphanumeric() => {}
            other => format.control(other, args)?,
        }
        size = size.checked_add(option.size).filter(|size| *size <= SIZE_MAX).ok_or("integral size overflow")?;
    }
    Ok(size as f64)
}

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", pack)?;
    add(lua, &table, "unpack", unpack)?;
    add(lua, &table, "size", size)?;
    Ok(table)
}
