//! How many different elements a key was given, about: a sketch in a string, the same as Redis'.

mod sketch;

use self::sketch::{CORRUPT, COUNT, INVALID, Sketch, estimate, register};
use super::flag::{FAST, HYPERLOGLOG, MAY_WRITE, READ, WRITE};
use super::{Command, Context, MANY, ONE, Outcome, data};
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[
    data("pfadd", -2, WRITE | FAST | HYPERLOGLOG, ONE, pfadd),
    // It keeps in the sketch what it has found.
    data("pfcount", -2, READ | MAY_WRITE | HYPERLOGLOG, MANY, pfcount),
    data("pfmerge", -2, WRITE | HYPERLOGLOG, MANY, pfmerge),
];

fn sketch(c: &Context<'_>, key: &[u8]) -> Outcome<Option<Sketch>> {
    match c.string(key)? {
        None => Ok(None),
        Some(bytes) => Sketch::read(&bytes).map(Some).ok_or_else(|| INVALID.into()),
    }
}

/// Sets it, with the expiry that the key has.
fn keep(c: &mut Context<'_>, key: &[u8], sketch: &Sketch, is_new: bool) -> Outcome {
    if is_new { c.put_string(key, &sketch.0, None) } else { c.change_string(key, &sketch.0) }
}

fn pfadd(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let found = sketch(c, args.get(1))?;
    let is_new = found.is_none();
    let (mut sketch, mut changed) = (found.unwrap_or_else(Sketch::new), is_new);
    for element in args.from(2) {
        let (register, value) = register(element);
        changed |= sketch.set(register, value).ok_or(CORRUPT)?;
    }
    if changed {
        sketch.forget();
        keep(c, args.get(1), &sketch, is_new)?;
    }
    c.reply.int(changed.into());
    Ok(())
}

/// What one sketch takes, about, in nanoseconds.
const SKETCH: u64 = 20_000;

fn pfcount(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    c.takes(SKETCH.saturating_mul(args.len() as u64))?;
    let mut registers = [0; COUNT];
    if args.len() > 2 {
        for key in args.from(1) {
            if let Some(sketch) = sketch(c, key)? {
                sketch.raise(&mut registers).ok_or(CORRUPT)?;
            }
        }
        c.reply.int(estimate(&registers) as i64);
        return Ok(());
    }
    let key = args.get(1);
    let Some(mut sketch) = sketch(c, key)? else {
        c.reply.int(0);
        return Ok(());
    };
    if let Some(count) = sketch.known() {
        c.reply.int(count as i64);
        return Ok(());
    }
    sketch.raise(&mut registers).ok_or(CORRUPT)?;
    let count = estimate(&registers);
    // A script may be one that only reads.
    if !c.looks.scripted {
        sketch.know(count);
        keep(c, key, &sketch, false)?;
    }
    c.reply.int(count as i64);
    Ok(())
}

fn pfmerge(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    c.takes(SKETCH.saturating_mul(args.len() as u64))?;
    let (mut registers, mut dense) = ([0; COUNT], false);
    let mut to = None;
    for (at, key) in args.from(1).enumerate() {
        let Some(one) = sketch(c, key)? else { continue };
        dense |= one.is_dense();
        one.raise(&mut registers).ok_or(CORRUPT)?;
        if at == 0 {
            to = Some(one);
        }
    }
    let is_new = to.is_none();
    let mut to = to.unwrap_or_else(Sketch::new);
    if dense {
        to.make_dense().ok_or(CORRUPT)?;
    }
    for (register, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        to.set(register, *value).ok_or(CORRUPT)?;
    }
    to.forget();
    keep(c, args.get(1), &to, is_new)?;
    c.reply.ok();
    Ok(())
}
