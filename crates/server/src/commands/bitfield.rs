//! Integers of any number of bits, anywhere in a string.

use std::borrow::Cow;

use super::flag::{BITMAP, FAST, READ, WRITE};
use super::{Command, Context, ONE, Outcome, SYNTAX, data, int, is};
use crate::data::STRING_MAX;
use crate::data::chunks::Text;
use crate::engine::{self, Tx};
use crate::request::{Arguments, number};

pub(super) const COMMANDS: &[Command] = &[
    data("bitfield", -2, WRITE | BITMAP, ONE, bitfield),
    data("bitfield_ro", -2, READ | FAST | BITMAP, ONE, bitfield_ro),
];

/// An integer's type, `i8` or `u63`.
#[derive(Clone, Copy)]
struct Type {
    signed: bool,
    bits: u32,
}

/// What becomes of a value that its type has not.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Act {
    Get,
    Set(i64),
    Add(i64),
}

struct Op {
    act: Act,
    of: Type,
    /// In bits.
    offset: u64,
    overflow: Overflow,
}

impl Type {
    fn parse(text: &[u8]) -> Outcome<Self> {
        let wrong = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        let (signed, max) = match text.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(wrong.into()),
        };
        let bits = number(&text[1..]).filter(|bits| (1..=max).contains(bits)).ok_or(wrong)?;
        Ok(Self { signed, bits: bits as u32 })
    }

    /// The smallest and the largest.
    fn range(self) -> (i128, i128) {
        if self.signed { (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1) } else { (0, (1 << self.bits) - 1) }
    }

    /// The value as the type has it; none if that is to fail.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = self.range();
        match overflow {
            _ if (min..=max).contains(&value) => Some(value),
            Overflow::Wrap => Some(self.of_bits(value as u64)),
            Overflow::Saturate => Some(value.clamp(min, max)),
            Overflow::Fail => None,
        }
    }

    /// As in Redis, where the distance from the largest value to one that is to be set overflows if that is far below: then it counts as too large.
    fn as_compared(self, value: i128) -> i128 {
        let max = self.range().1;
        if self.bits < 64 && max - value > i64::MAX.into() { value + (1 << 64) } else { value }
    }

    /// The value that the lowest bits are.
    fn of_bits(self, bits: u64) -> i128 {
        let value = i128::from(bits) & ((1 << self.bits) - 1);
        if value > self.range().1 { value - (1 << self.bits) } else { value }
    }

    fn read(self, bytes: &[u8], offset: u64) -> i128 {
        let bit = |at: u64| bytes.get((at / 8) as usize).is_some_and(|byte| byte & 0x80 >> (at % 8) != 0);
        let bits = (offset..offset + u64::from(self.bits)).fold(0, |value, at| value << 1 | u64::from(bit(at)));
        self.of_bits(bits)
    }

    /// Into bytes that are long enough.
    fn write(self, bytes: &mut [u8], offset: u64, value: i128) {
        for n in 0..u64::from(self.bits) {
            let (at, on) = (offset + n, value >> (u64::from(self.bits) - 1 - n) & 1 != 0);
            let (byte, mask) = (&mut bytes[(at / 8) as usize], 0x80 >> (at % 8));
            *byte = if on { *byte | mask } else { *byte & !mask };
        }
    }
}

/// Where it is; behind `#`, as the integer of that number. What is only read may begin in the last byte that a string can have; what is written must end there.
fn offset(text: &[u8], of: Type, reads: bool) -> Outcome<u64> {
    let (text, unit) = match text.strip_prefix(b"#") {
        Some(text) => (text, i64::from(of.bits)),
        None => (text, 1),
    };
    let at = number(text).and_then(|at| at.checked_mul(unit)).and_then(|at| u64::try_from(at).ok());
    let fits =
        |at: &u64| at / 8 < STRING_MAX as u64 && (reads || (at + u64::from(of.bits)).div_ceil(8) <= STRING_MAX as u64);
    Ok(at.filter(fits).ok_or("ERR bit offset is not an integer or out of range")?)
}

fn ops(args: &Arguments<'_>) -> Outcome<Vec<Op>> {
    let (mut ops, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < args.len() {
        let (word, rest) = (args.get(at), args.len() - at - 1);
        if is(word, "OVERFLOW") && rest >= 1 {
            overflow = match args.get(at + 1) {
                how if is(how, "WRAP") => Overflow::Wrap,
                how if is(how, "SAT") => Overflow::Saturate,
                how if is(how, "FAIL") => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            at += 2;
            continue;
        }
        let wanted = match word {
            word if is(word, "GET") => 2,
            word if is(word, "SET") || is(word, "INCRBY") => 3,
            _ => return Err(SYNTAX.into()),
        };
        if rest < wanted {
            return Err(SYNTAX.into());
        }
        let of = Type::parse(args.get(at + 1))?;
        let offset = offset(args.get(at + 2), of, wanted == 2)?;
        let act = match word {
            _ if wanted == 2 => Act::Get,
            word if is(word, "SET") => Act::Set(int(args.get(at + 3))?),
            _ => Act::Add(int(args.get(at + 3))?),
        };
        ops.push(Op { act, of, offset, overflow });
        at += 1 + wanted;
    }
    Ok(ops)
}

fn bitfield(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    run(c, args, false)
}

fn bitfield_ro(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    run(c, args, true)
}

fn run(c: &mut Context<'_>, args: &Arguments<'_>, reads: bool) -> Outcome {
    let ops = ops(args)?;
    let end = |op: &Op| (op.offset + u64::from(op.of.bits)).div_ceil(8) as usize;
    let Some(end) = ops.iter().filter(|op| !matches!(op.act, Act::Get)).map(end).max() else {
        let text = c.text(args.get(1))?.unwrap_or(Text::Whole(&[]));
        let mut values = Vec::with_capacity(ops.len());
        for op in &ops {
            let (bytes, op) = window(&*c.tx, &text, op)?;
            values.push(op.of.read(&bytes, op.offset));
        }
        c.reply.array(values.len());
        values.into_iter().for_each(|value| c.reply.int(value as i64));
        return Ok(());
    };
    if reads {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    let text = c.text(args.get(1))?.unwrap_or(Text::Whole(&[]));
    let len = text.len().max(end);
    let answers = match text.whole().filter(|_| c.is_whole(len)) {
        Some(before) => {
            let mut bytes = before.to_vec();
            bytes.resize(len, 0);
            // As in Redis: what is set back again has changed, and what is set to what it was has not.
            let mut changed = len > before.len();
            let one = |op: &Op| {
                let was = op.of.read(&bytes, op.offset);
                let answer = apply(op, &mut bytes);
                changed |= op.of.read(&bytes, op.offset) != was;
                answer
            };
            let answers: Vec<Option<i128>> = ops.iter().map(one).collect();
            if changed {
                c.change_string(args.get(1), &bytes)?;
            }
            answers
        }
        None => ops.iter().map(|op| apply_long(c, args.get(1), op)).collect::<Outcome<_>>()?,
    };
    c.reply.array(answers.len());
    for answer in answers {
        match answer {
            Some(value) => c.reply.int(value as i64),
            None => c.reply.null(),
        }
    }
    Ok(())
}

/// The bytes of a string that an operation reads or writes, as far as they are there, and the same operation on these.
fn window<'t, 'v: 't>(tx: &'t dyn Tx, text: &Text<'v>, op: &Op) -> engine::Result<(Cow<'t, [u8]>, Op)> {
    let (from, to) = (op.offset / 8, (op.offset + u64::from(op.of.bits)).div_ceil(8));
    let bytes = text.part(tx, from as usize..to as usize)?;
    Ok((bytes, Op { offset: op.offset % 8, ..*op }))
}

/// The same as [`apply`], of a string that is long, or becomes so.
fn apply_long(c: &mut Context<'_>, key: &[u8], op: &Op) -> Outcome<Option<i128>> {
    let text = c.text(key)?.unwrap_or(Text::Whole(&[]));
    let (before, op_here) = window(&*c.tx, &text, op)?;
    if matches!(op.act, Act::Get) {
        return Ok(Some(op_here.of.read(&before, op_here.offset)));
    }
    let mut bytes = before.to_vec();
    bytes.resize((op_here.offset + u64::from(op.of.bits)).div_ceil(8) as usize, 0);
    let answer = apply(&op_here, &mut bytes);
    if *bytes != *before {
        c.write_at(key, (op.offset / 8) as usize, &bytes)?;
    }
    Ok(answer)
}

/// Its answer; none if it failed and has changed nothing.
fn apply(op: &Op, bytes: &mut [u8]) -> Option<i128> {
    let before = op.of.read(bytes, op.offset);
    let (value, answers_before) = match op.act {
        Act::Get => return Some(before),
        Act::Set(value) if op.of.signed => (op.of.as_compared(value.into()), true),
        Act::Set(value) => (i128::from(value as u64), true),
        Act::Add(value) => (before + i128::from(value), false),
    };
    let value = op.of.fit(value, op.overflow)?;
    op.of.write(bytes, op.offset, value);
    Some(if answers_before { before } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in Redis, what is only read may hang over the end of the longest string.
    #[test]
    fn the_last_byte_of_the_longest_string_is_read() {
        let of = Type { signed: false, bits: 13 };
        let last = STRING_MAX as u64 * 8 - 1;
        for (at, reads, fits) in
            [(last, true, true), (last, false, false), (last - 12, false, true), (last + 1, true, false)]
        {
            assert_eq!(offset(at.to_string().as_bytes(), of, reads).ok(), fits.then_some(at), "{at} {reads}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_beside_it_changes() {
        for signed in [false, true] {
            for bits in 1..=if signed { 64 } else { 63 } {
                for offset in 0..17 {
                    let of = Type { signed, bits };
                    let (min, max) = of.range();
                    for value in [min, max, 0, 1.min(max), max / 3, min / 3] {
                        for fill in [0, 0xff] {
                            let mut bytes = [fill; 11];
                            of.write(&mut bytes, offset, value);
                            assert_eq!(of.read(&bytes, offset), value, "{signed} {bits} {offset}");
                            of.write(&mut bytes, offset, of.of_bits(if fill == 0 { 0 } else { u64::MAX }));
                            assert_eq!(bytes, [fill; 11]);
                        }
                    }
                    assert_eq!(of.fit(max + 1, Overflow::Wrap), Some(min));
                    assert_eq!(of.fit(min - 1, Overflow::Saturate), Some(min));
                    assert_eq!(of.fit(max + 1, Overflow::Fail), None);
                    if signed {
                        let set = |value| Op { act: Act::Set(value), of, offset: 0, overflow: Overflow::Saturate };
                        let mut bytes = [0; 8];
                        apply(&set(i64::MIN), &mut bytes);
                        assert_eq!(of.read(&bytes, 0), if bits < 64 { max } else { min }, "far below, as in Redis");
                        apply(&set(min.max(1 - (1 << 62)) as i64 - 1), &mut bytes);
                        assert!(of.read(&bytes, 0) < 0, "{bits}");
                    }
                }
            }
        }
    }
}
