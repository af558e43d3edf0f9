//! Bits of strings, counted from the highest of the first byte.

use std::ops::ControlFlow;

use super::flag::{BITMAP, FAST, READ, WRITE};
use super::{Command, Context, KeysAt, ONE, Outcome, SYNTAX, data, int, is};
use crate::data::STRING_MAX;
use crate::data::chunks::Text;
use crate::engine::{self, Tx};
use crate::request::{Arguments, number};

pub(super) const COMMANDS: &[Command] = &[
    data("bitcount", -2, READ | BITMAP, ONE, bitcount),
    data("bitop", -4, WRITE | BITMAP, KeysAt::Range(2, -1, 1), bitop),
    data("bitpos", -3, READ | BITMAP, ONE, bitpos),
    data("getbit", 3, READ | FAST | BITMAP, ONE, getbit),
    data("setbit", 4, WRITE | BITMAP, ONE, setbit),
];

/// The byte a bit is in, and the bit alone in such a byte.
fn bit(text: &[u8]) -> Outcome<(usize, u8)> {
    let at = number(text).and_then(|at| usize::try_from(at).ok()).filter(|at| at / 8 < STRING_MAX);
    let at = at.ok_or("ERR bit offset is not an integer or out of range")?;
    Ok((at / 8, 0x80 >> (at % 8)))
}

/// The byte at a place; zero where there is none.
fn byte(tx: &dyn Tx, text: &Text<'_>, at: usize) -> engine::Result<u8> {
    Ok(text.part(tx, at..at + 1)?.first().copied().unwrap_or(0))
}

fn getbit(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (at, mask) = bit(args.get(2))?;
    let text = c.text(args.get(1))?;
    let byte = text.map_or(Ok(0), |text| byte(&*c.tx, &text, at))?;
    c.reply.int((byte & mask != 0).into());
    Ok(())
}

fn setbit(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (at, mask) = bit(args.get(2))?;
    let on = match args.get(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let key = args.get(1);
    let text = c.text(key)?.unwrap_or(Text::Whole(&[]));
    let (before, len) = (byte(&*c.tx, &text, at)?, text.len().max(at + 1));
    let after = if on { before | mask } else { before & !mask };
    match text.whole().filter(|_| c.is_whole(len)) {
        // As in Redis this is no change.
        _ if after == before && len == text.len() => {}
        Some(bytes) => {
            let mut bytes = bytes.to_vec();
            bytes.resize(len, 0);
            bytes[at] = after;
            c.change_string(key, &bytes)?;
        }
        None => drop(c.write_at(key, at, &[after])?),
    }
    c.reply.int((before & mask != 0).into());
    Ok(())
}

// ---- ranges ---------------------------------------------------------------------------------------------------

/// Whether a range is of bits, not of bytes.
fn in_bits(unit: &[u8]) -> Outcome<bool> {
    match unit {
        word if is(word, "BIT") => Ok(true),
        word if is(word, "BYTE") => Ok(false),
        _ => Err(SYNTAX.into()),
    }
}

/// The bits from `from` to before `to` that two arguments, if there are two, and a unit mean.
fn bits(args: &Arguments<'_>, at: usize, len: usize) -> Outcome<(u64, u64)> {
    let from = if args.len() > at { int(args.get(at))? } else { 0 };
    let to = if args.len() > at + 1 { int(args.get(at + 1))? } else { -1 };
    let in_bits = args.len() > at + 2 && in_bits(args.get(at + 2))?;
    let (unit, count) = if in_bits { (1, len as i64 * 8) } else { (8, len as i64) };
    let absolute = |at: i64| if at < 0 { at.saturating_add(count).max(0) } else { at };
    let (from, to) = (absolute(from), absolute(to).min(count - 1));
    Ok(if from <= to { (from as u64 * unit, (to as u64 + 1) * unit) } else { (0, 0) })
}

/// The byte at `at` without its bits outside of `from..to`, which are `outside` instead.
fn masked(bytes: &[u8], at: u64, from: u64, to: u64, outside: u8) -> u8 {
    let start = 0xff >> from.saturating_sub(at * 8).min(8) as u32;
    let end = !(0xff >> to.saturating_sub(at * 8).min(8) as u32);
    let mask = (start & end) as u8;
    bytes.get(at as usize).copied().unwrap_or(0) & mask | outside & !mask
}

/// A piece of a string.
struct Piece<'p> {
    /// Where it begins in the string, in bytes.
    start: u64,
    bytes: &'p [u8],
    /// Which of its own bits are asked for.
    from: u64,
    to: u64,
}

/// Shows the pieces of a string that have bits of `from..to`.
fn pieces(
    tx: &dyn Tx,
    text: &Text<'_>,
    from: u64,
    to: u64,
    visit: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
) -> engine::Result<()> {
    let long = match text {
        Text::Whole(bytes) => {
            let _ = visit(Piece { start: 0, bytes, from, to });
            return Ok(());
        }
        Text::Chunked(long) => long,
    };
    let mut start = from / 8 * 8;
    long.each(tx, (from / 8) as usize..to.div_ceil(8) as usize, &mut |bytes| {
        let end = start + 8 * bytes.len() as u64;
        let (from, to) = (from.max(start) - start, to.min(end) - start);
        let flow = visit(Piece { start: start / 8, bytes, from, to });
        start = end;
        flow
    })
}

/// How many bits among `from..to` are set.
fn count(bytes: &[u8], from: u64, to: u64) -> u64 {
    let (first, last) = (from / 8, to.div_ceil(8));
    if last <= first + 2 {
        return (first..last).map(|at| u64::from(masked(bytes, at, from, to, 0).count_ones())).sum();
    }
    let ends = [first, last - 1].map(|at| u64::from(masked(bytes, at, from, to, 0).count_ones()));
    let between = bytes.get(first as usize + 1..last as usize - 1).unwrap_or_default();
    ends[0] + ends[1] + ones(between)
}

fn bitcount(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    // What is not there has no bits, whichever are asked for.
    let Some(text) = c.text(args.get(1))? else {
        c.reply.int(0);
        return Ok(());
    };
    if args.len() == 3 || args.len() > 5 {
        return Err(SYNTAX.into());
    }
    // This comes before the unit is looked at.
    if let (Some(from), Some(to)) = (number(args.get(2)), number(args.get(3)))
        && from < 0
        && to < 0
        && from > to
    {
        c.reply.int(0);
        return Ok(());
    }
    let (from, to) = bits(args, 2, text.len())?;
    c.reads((to.saturating_sub(from) / 8) as usize)?;
    let mut all = 0;
    pieces(&*c.tx, &text, from, to, &mut |piece| {
        all += count(piece.bytes, piece.from, piece.to);
        ControlFlow::Continue(())
    })?;
    c.reply.int(all as i64);
    Ok(())
}

fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

fn bitpos(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let on = match int(args.get(2))? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let Some(text) = c.text(args.get(1))? else {
        c.reply.int(if on { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(SYNTAX.into());
    }
    if args.len() == 6 {
        // This comes before the end is looked at.
        int(args.get(3))?;
        in_bits(args.get(5))?;
    }
    let (from, to) = bits(args, 3, text.len())?;
    let mut found = None;
    pieces(&*c.tx, &text, from, to, &mut |piece| {
        found = position(piece.bytes, piece.from, piece.to, on).map(|at| 8 * piece.start + at);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // A string goes on with zeros where no end was given.
    let endless = !on && args.len() < 5 && from < to;
    let answer = found.or_else(|| endless.then_some(text.len() as u64 * 8));
    c.reply.int(answer.map_or(-1, |at| at as i64));
    Ok(())
}

/// The first bit among `from..to` that is `on`.
fn position(bytes: &[u8], from: u64, to: u64, on: bool) -> Option<u64> {
    let skipped = if on { 0 } else { 0xff };
    let (mut at, end) = (from / 8, to.div_ceil(8));
    while at < end {
        let byte = masked(bytes, at, from, to, skipped);
        if byte != skipped {
            return Some(at * 8 + u64::from((byte ^ skipped).leading_zeros()));
        }
        at += 1;
        let rest = bytes.get(at as usize..end as usize).unwrap_or_default();
        at += rest.iter().position(|byte| *byte != skipped).unwrap_or(rest.len()) as u64;
    }
    None
}

// ---- several strings ------------------------------------------------------------------------------------------

fn bitop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let with: fn(u8, u8) -> u8 = match args.get(1) {
        word if is(word, "AND") => |a, b| a & b,
        word if is(word, "OR") => |a, b| a | b,
        word if is(word, "XOR") => |a, b| a ^ b,
        word if is(word, "NOT") && args.len() > 4 => {
            return Err("ERR BITOP NOT must be called with a single source key.".into());
        }
        word if is(word, "NOT") => |a, _| !a,
        _ => return Err(SYNTAX.into()),
    };
    let mut sources = Vec::new();
    for key in args.from(3) {
        sources.push(c.text(key)?.unwrap_or(Text::Whole(&[])));
    }
    let len = sources.iter().map(Text::len).max().unwrap_or(0);
    c.writes(len)?;
    let mut result = Vec::with_capacity(len);
    if let Some(first) = sources.first() {
        first.append_to(&*c.tx, &mut result)?;
    }
    // The shorter ones go on with zeros.
    result.resize(len, 0);
    if args.len() == 4 {
        if is(args.get(1), "NOT") {
            result.iter_mut().for_each(|byte| *byte = with(*byte, 0));
        }
    } else {
        for other in sources.iter().skip(1) {
            let mut at = 0;
            other.each(&*c.tx, &mut |piece| {
                let bytes = result.iter_mut().skip(at).zip(piece);
                bytes.for_each(|(byte, other)| *byte = with(*byte, *other));
                at += piece.len();
                ControlFlow::Continue(())
            })?;
            result.iter_mut().skip(at).for_each(|byte| *byte = with(*byte, 0));
        }
    }
    if result.is_empty() {
        c.remove(args.get(2))?;
    } else {
        c.put_string(args.get(2), &result, None)?;
    }
    c.reply.int(len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_is_found_wherever_it_is() {
        let bytes = [0, 0x10, 0xff, 0, 0x01];
        for on in [false, true] {
            for from in 0..40 {
                for to in from..=40 {
                    let has = |at: &u64| (bytes[*at as usize / 8] & 0x80 >> (at % 8) != 0) == on;
                    assert_eq!(position(&bytes, from, to, on), (from..to).find(has), "{on} {from} {to}");
                }
            }
        }
        assert_eq!((ones(&[0xff; 17]), ones(&[])), (17 * 8, 0));
    }
}
