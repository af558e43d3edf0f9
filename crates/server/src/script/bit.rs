//! `bit`: whole numbers of 32 bits, as LuaJIT's library has them.

use mlua::{Lua, Table};

use super::args::{Answer, Args, add};

/// A number modulo 2³²: the low bits of its sum with 2⁵² + 2⁵¹, as in the original, which rounds halves to the even neighbour and knows no larger numbers.
fn bits(args: &Args<'_>, at: usize) -> Answer<u32> {
    Ok((args.number(at)? + 6_755_399_441_055_744.0).to_bits() as u32)
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

type Two = fn(u32, u32) -> u32;
type One = fn(u32) -> u32;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let folds: [(&'static str, Two); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, fold) in folds {
        add(lua, &table, name, move |args| {
            let mut all = bits(args, 0)?;
            for at in 1..args.len() {
                all = fold(all, bits(args, at)?);
            }
            Ok(signed(all))
        })?;
    }
    let shifts: [(&'static str, Two); 5] = [
        ("lshift", |a, n| a << n),
        ("rshift", |a, n| a >> n),
        ("arshift", |a, n| (a as i32 >> n) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, shift) in shifts {
        add(lua, &table, name, move |args| Ok(signed(shift(bits(args, 0)?, bits(args, 1)? & 31))))?;
    }
    let unary: [(&'static str, One); 3] = [("tobit", |a| a), ("bnot", |a| !a), ("bswap", u32::swap_bytes)];
    for (name, of) in unary {
        add(lua, &table, name, move |args| Ok(signed(of(bits(args, 0)?))))?;
    }
    add(lua, &table, "tohex", |args| {
        let bits_of = bits(args, 0)?;
        let digits = if args.len() > 1 { bits(args, 1)? as i32 } else { 8 };
        let count = digits.unsigned_abs().min(8) as usize;
        let text = if digits < 0 { format!("{bits_of:08X}") } else { format!("{bits_of:08x}") };
        Ok(text[8 - count..].to_owned())
    })?;
    Ok(table)
}
