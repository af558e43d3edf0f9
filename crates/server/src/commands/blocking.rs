//! Pops that wait until there is something. Here is what they do when there is, and what they say when there is not; `connection::blocking` waits.

use super::flag::{BLOCKING, FAST, LIST, SORTED, WRITE};
use super::names::{Popped, popped};
use super::{Command, Context, Form, KeysAt, Outcome, Run, SYNTAX, Stop, Timeout, WRONG_TYPE, lists, sorted};
use crate::data::Kind;
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[
    block("blmove", 6, LIST, KeysAt::Range(1, 2, 1), Timeout::BehindEnds, blmove),
    block("blmpop", -5, LIST, KeysAt::Counted(2), Timeout::First, blmpop),
    block("blpop", -3, LIST, KeysAt::Range(1, -2, 1), Timeout::Last, blpop),
    block("brpop", -3, LIST, KeysAt::Range(1, -2, 1), Timeout::Last, brpop),
    block("brpoplpush", 4, LIST, KeysAt::Range(1, 2, 1), Timeout::Last, brpoplpush),
    block("bzmpop", -5, SORTED, KeysAt::Counted(2), Timeout::First, bzmpop),
    block("bzpopmax", -3, SORTED | FAST, KeysAt::Range(1, -2, 1), Timeout::Last, bzpopmax),
    block("bzpopmin", -3, SORTED | FAST, KeysAt::Range(1, -2, 1), Timeout::Last, bzpopmin),
];

const fn block(
    name: &'static str,
    arity: i32,
    of: u32,
    keys: KeysAt,
    timeout: Timeout,
    run: fn(&mut Context<'_>, &Arguments<'_>) -> Outcome,
) -> Command {
    Command { form: Form { name, arity, flags: WRITE | BLOCKING | of, keys }, run: Run::Block(run, timeout) }
}

/// Keys of those that have them before the timeout.
fn keys<'b>(args: &Arguments<'b>) -> impl Iterator<Item = &'b [u8]> + use<'b> {
    args.from(1).take(args.len() - 2)
}

fn blpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop(c, args, lists::End::Left)
}

fn brpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop(c, args, lists::End::Right)
}

/// False if the key has become something else while the client waits: that is no error then, and it waits on, as with Redis.
fn fits(c: &Context<'_>, key: &[u8], kind: Kind) -> Outcome<bool> {
    match c.head(key, kind) {
        Err(Stop::Error(text)) if c.looks.waited && text == WRONG_TYPE => {
            c.looks.mismatched.set(true);
            Ok(false)
        }
        other => other.map(|_| true),
    }
}

/// Keys of another type are left out only by a client that has waited: before, the order of the keys decides whether they are looked at.
fn fitting<'b>(c: &Context<'_>, keys: Vec<&'b [u8]>, kind: Kind) -> Outcome<Vec<&'b [u8]>> {
    if !c.looks.waited {
        return Ok(keys);
    }
    let mut fitting = Vec::new();
    for key in keys {
        if fits(c, key, kind)? {
            fitting.push(key);
        }
    }
    Ok(fitting)
}

fn pop(c: &mut Context<'_>, args: &Arguments<'_>, end: lists::End) -> Outcome {
    for key in fitting(c, keys(args).collect(), Kind::List)? {
        if let Some(value) = lists::pop(c, key, end, 1)?.pop() {
            c.reply.array(2);
            c.reply.bulk(key);
            c.reply.bulk(&value);
            return Ok(());
        }
    }
    c.reply.null_array();
    Ok(())
}

fn blmove(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let ends = lists::End::of(args.get(3)).zip(lists::End::of(args.get(4)));
    let (from, to) = ends.ok_or(SYNTAX)?;
    transfer(c, (args.get(1), from), (args.get(2), to))
}

fn transfer(c: &mut Context<'_>, from: (&[u8], lists::End), to: (&[u8], lists::End)) -> Outcome {
    let value = if fits(c, from.0, Kind::List)? { lists::transfer(c, from, to)? } else { None };
    c.reply.maybe(value.as_deref());
    Ok(())
}

fn brpoplpush(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    transfer(c, (args.get(1), lists::End::Right), (args.get(2), lists::End::Left))
}

fn blmpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let Popped { keys, end, count } = popped(args, 2, lists::End::of)?;
    let keys = fitting(c, keys, Kind::List)?;
    if !lists::pop_first(c, &keys, end, count)? {
        c.reply.null_array();
    }
    Ok(())
}

fn bzpopmin(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop_sorted(c, args, sorted::End::Min)
}

fn bzpopmax(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop_sorted(c, args, sorted::End::Max)
}

fn pop_sorted(c: &mut Context<'_>, args: &Arguments<'_>, end: sorted::End) -> Outcome {
    for key in fitting(c, keys(args).collect(), Kind::Sorted)? {
        if let Some((member, score)) = sorted::pop(c, key, end, 1)?.pop() {
            c.reply.array(3);
            c.reply.bulk(key);
            c.reply.bulk(&member);
            c.reply.double(score);
            return Ok(());
        }
    }
    c.reply.null_array();
    Ok(())
}

fn bzmpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let Popped { keys, end, count } = popped(args, 2, sorted::End::of)?;
    let keys = fitting(c, keys, Kind::Sorted)?;
    if !sorted::pop_first(c, &keys, end, count)? {
        c.reply.null_array();
    }
    Ok(())
}
