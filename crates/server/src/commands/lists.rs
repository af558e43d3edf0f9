//! Lists. The places of a list's elements follow each other from `Head::first` on, without gaps.

use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::flag::{FAST, LIST, READ, WRITE};
use super::names::{NEGATIVE, Popped, at_least, missing, popped};
use super::{Command, Context, KeysAt, NO_KEY, ONE, Outcome, SYNTAX, Stop, data, int, is};
use crate::data::{Head, Kind};
use crate::request::Arguments;

const TWO: KeysAt = KeysAt::Range(1, 2, 1);

pub(super) const COMMANDS: &[Command] = &[
    data("lindex", 3, READ | LIST, ONE, lindex),
    data("linsert", 5, WRITE | LIST, ONE, linsert),
    data("llen", 2, READ | FAST | LIST, ONE, llen),
    data("lmove", 5, WRITE | LIST, TWO, lmove),
    data("lmpop", -4, WRITE | LIST, KeysAt::Counted(1), lmpop),
    data("lpop", -2, WRITE | FAST | LIST, ONE, lpop),
    data("lpos", -3, READ | LIST, ONE, lpos),
    data("lpush", -3, WRITE | FAST | LIST, ONE, lpush),
    data("lpushx", -3, WRITE | FAST | LIST, ONE, lpushx),
    data("lrange", 4, READ | LIST, ONE, lrange),
    data("lrem", 4, WRITE | LIST, ONE, lrem),
    data("lset", 4, WRITE | LIST, ONE, lset),
    data("ltrim", 4, WRITE | LIST, ONE, ltrim),
    data("rpop", -2, WRITE | FAST | LIST, ONE, rpop),
    data("rpoplpush", 3, WRITE | LIST, TWO, rpoplpush),
    data("rpush", -3, WRITE | FAST | LIST, ONE, rpush),
    data("rpushx", -3, WRITE | FAST | LIST, ONE, rpushx),
];

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        match word {
            word if is(word, "LEFT") => Some(Self::Left),
            word if is(word, "RIGHT") => Some(Self::Right),
            _ => None,
        }
    }
}

/// The key in the store of the element at an index; may be one before the first, or behind the last.
fn element(head: &Head, index: u64) -> Vec<u8> {
    head.element(&[&head.first.wrapping_add(index).to_be_bytes()])
}

/// Elements `from..to`.
fn elements(head: &Head, from: u64, to: u64) -> Keys {
    Keys { from: Bound::Included(element(head, from)), to: Bound::Excluded(element(head, to)), reverse: false }
}

fn at(c: &Context<'_>, head: &Head, index: u64) -> Outcome<Vec<u8>> {
    Ok(c.tx.get(&element(head, index))?.ok_or_else(missing)?.to_vec())
}

/// Copies of elements `from..to`.
pub(super) fn copies(c: &Context<'_>, head: &Head, from: u64, to: u64) -> Outcome<Vec<Vec<u8>>> {
    let mut values = Vec::new();
    if from < to {
        c.passes(to - from)?;
        c.scan(elements(head, from, to), &mut |_, value| {
            values.push(value.to_vec());
            ControlFlow::Continue(())
        })?;
        if values.len() as u64 != to - from {
            return Err(missing());
        }
    }
    Ok(values)
}

/// The caller saves the head.
pub(super) fn push_one(c: &mut Context<'_>, head: &mut Head, end: End, value: &[u8]) -> Outcome {
    if end == End::Left {
        head.first = head.first.wrapping_sub(1);
    }
    head.count += 1;
    let index = if end == End::Left { 0 } else { head.count - 1 };
    Ok(c.tx.put(&element(head, index), value, None)?)
}

/// Removes an element from a list that has some. The caller saves the head.
fn pop_one(c: &mut Context<'_>, head: &mut Head, end: End) -> Outcome<Vec<u8>> {
    let index = if end == End::Left { 0 } else { head.count.saturating_sub(1) };
    let value = at(c, head, index)?;
    c.tx.delete(&element(head, index))?;
    if end == End::Left {
        head.first = head.first.wrapping_add(1);
    }
    head.count -= 1;
    Ok(value)
}

// ---- both ends ------------------------------------------------------------------------------------------------

fn lpush(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    push(c, args, End::Left, true)
}

fn rpush(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    push(c, args, End::Right, true)
}

fn lpushx(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    push(c, args, End::Left, false)
}

fn rpushx(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    push(c, args, End::Right, false)
}

fn push(c: &mut Context<'_>, args: &Arguments<'_>, end: End, anew: bool) -> Outcome {
    let mut head = c.head_or_new(args.get(1), Kind::List)?;
    if head.count == 0 && !anew {
        c.reply.int(0);
        return Ok(());
    }
    for value in args.from(2) {
        push_one(c, &mut head, end, value)?;
    }
    c.save(args.get(1), &head)?;
    c.reply.int(head.count as i64);
    Ok(())
}

/// Removes and returns elements from one end, as many as there are.
pub(super) fn pop(c: &mut Context<'_>, key: &[u8], end: End, count: u64) -> Outcome<Vec<Vec<u8>>> {
    let Some(mut head) = c.head(key, Kind::List)? else { return Ok(Vec::new()) };
    if count >= head.count {
        let mut values = copies(c, &head, 0, head.count)?;
        if end == End::Right {
            values.reverse();
        }
        c.remove(key)?;
        return Ok(values);
    }
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(pop_one(c, &mut head, end)?);
    }
    if count > 0 {
        c.save(key, &head)?;
    }
    Ok(values)
}

/// Moves an element from one end to another, of another list or the same one; none if there is none.
pub(super) fn transfer(
    c: &mut Context<'_>,
    (from, from_end): (&[u8], End),
    (to, to_end): (&[u8], End),
) -> Outcome<Option<Vec<u8>>> {
    let Some(mut source) = c.head(from, Kind::List)? else { return Ok(None) };
    let mut target = c.head_or_new(to, Kind::List)?;
    let value = pop_one(c, &mut source, from_end)?;
    if from == to {
        // One head: the list may be empty in between, and stays when it expires.
        push_one(c, &mut source, to_end, &value)?;
        c.save(from, &source)?;
        return Ok(Some(value));
    }
    push_one(c, &mut target, to_end, &value)?;
    c.save(from, &source)?;
    c.save(to, &target)?;
    Ok(Some(value))
}

fn lpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop_command(c, args, End::Left, "lpop")
}

fn rpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop_command(c, args, End::Right, "rpop")
}

fn pop_command(c: &mut Context<'_>, args: &Arguments<'_>, end: End, command: &str) -> Outcome {
    if args.len() > 3 {
        return Err(Stop::Error(format!("ERR wrong number of arguments for '{command}' command")));
    }
    let counted = args.len() == 3;
    let count = if counted { at_least(args.get(2), 0, NEGATIVE)? } else { 1 };
    if c.head(args.get(1), Kind::List)?.is_none() {
        if counted {
            c.reply.null_array()
        } else {
            c.reply.null()
        }
        return Ok(());
    }
    let values = pop(c, args.get(1), end, count)?;
    if counted {
        c.reply.array(values.len());
    }
    values.iter().for_each(|value| c.reply.bulk(value));
    Ok(())
}

fn lmpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let Popped { keys, end, count } = popped(args, 1, End::of)?;
    if !pop_first(c, &keys, end, count)? {
        c.reply.null_array();
    }
    Ok(())
}

/// Pops from the first list that is there, and answers with its key and the elements; false, and no answer, if none is.
pub(super) fn pop_first(c: &mut Context<'_>, keys: &[&[u8]], end: End, count: u64) -> Outcome<bool> {
    for key in keys {
        let values = pop(c, key, end, count)?;
        if !values.is_empty() {
            c.reply.array(2);
            c.reply.bulk(key);
            c.reply.array(values.len());
            values.iter().for_each(|value| c.reply.bulk(value));
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmove(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let from_end = End::of(args.get(3)).ok_or(SYNTAX)?;
    let to_end = End::of(args.get(4)).ok_or(SYNTAX)?;
    let value = transfer(c, (args.get(1), from_end), (args.get(2), to_end))?;
    c.reply.maybe(value.as_deref());
    Ok(())
}

fn rpoplpush(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let value = transfer(c, (args.get(1), End::Right), (args.get(2), End::Left))?;
    c.reply.maybe(value.as_deref());
    Ok(())
}

// ---- by index -------------------------------------------------------------------------------------------------

/// An index of a list, counted from the end if negative; none outside of it.
fn index(text: &[u8], count: u64) -> Outcome<Option<u64>> {
    let index = int(text)?;
    let index = if index < 0 { index.saturating_add(count as i64) } else { index };
    Ok(u64::try_from(index).ok().filter(|index| *index < count))
}

/// What two indexes, the last one included, mean as `from..to`; empty if `from >= to`.
pub(super) fn part(from: i64, to: i64, count: u64) -> (u64, u64) {
    let absolute = |index: i64| if index < 0 { index.saturating_add(count as i64) } else { index };
    (absolute(from).max(0) as u64, absolute(to).saturating_add(1).clamp(0, count as i64) as u64)
}

fn llen(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let count = c.head(args.get(1), Kind::List)?.map_or(0, |head| head.count);
    c.reply.int(count as i64);
    Ok(())
}

fn lindex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut value = None;
    if let Some(head) = c.head(args.get(1), Kind::List)?
        && let Some(index) = index(args.get(2), head.count)?
    {
        value = Some(at(c, &head, index)?);
    }
    c.reply.maybe(value.as_deref());
    Ok(())
}

fn lrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (from, to) = (int(args.get(2))?, int(args.get(3))?);
    let Some(head) = c.head(args.get(1), Kind::List)? else {
        c.reply.array(0);
        return Ok(());
    };
    let (from, to) = part(from, to, head.count);
    let mut left = to.saturating_sub(from);
    c.reply.array(left as usize);
    if left == 0 {
        return Ok(());
    }
    c.passes(left)?;
    let Context { tx, reply, .. } = c;
    tx.scan(elements(&head, from, to), &mut |_, value| {
        left = left.wrapping_sub(1);
        reply.bulk(value);
        ControlFlow::Continue(())
    })?;
    if left == 0 { Ok(()) } else { Err(missing()) }
}

fn lset(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let head = c.head(args.get(1), Kind::List)?.ok_or(NO_KEY)?;
    let index = index(args.get(2), head.count)?.ok_or("ERR index out of range")?;
    c.tx.put(&element(&head, index), args.get(3), None)?;
    c.save(args.get(1), &head)?;
    c.reply.ok();
    Ok(())
}

fn linsert(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let behind = match args.get(2) {
        word if is(word, "BEFORE") => 0,
        word if is(word, "AFTER") => 1,
        _ => return Err(SYNTAX.into()),
    };
    let Some(mut head) = c.head(args.get(1), Kind::List)? else {
        c.reply.int(0);
        return Ok(());
    };
    let pivot = args.get(3);
    let (mut looked, mut found) = (0, None);
    c.scan(elements(&head, 0, head.count), &mut |_, value| {
        if value == pivot {
            found = Some(looked);
            return ControlFlow::Break(());
        }
        looked += 1;
        ControlFlow::Continue(())
    })?;
    let Some(found) = found else {
        c.reply.int(-1);
        return Ok(());
    };
    let index = found + behind;
    // The shorter side makes room.
    if index < head.count / 2 {
        let shifted = copies(c, &head, 0, index)?;
        head.first = head.first.wrapping_sub(1);
        write(c, &head, 0, &shifted)?;
    } else {
        let shifted = copies(c, &head, index, head.count)?;
        write(c, &head, index + 1, &shifted)?;
    }
    c.tx.put(&element(&head, index), args.get(4), None)?;
    head.count += 1;
    c.save(args.get(1), &head)?;
    c.reply.int(head.count as i64);
    Ok(())
}

fn write(c: &mut Context<'_>, head: &Head, from: u64, values: &[Vec<u8>]) -> Outcome {
    for (index, value) in (from..).zip(values) {
        c.tx.put(&element(head, index), value, None)?;
    }
    Ok(())
}

fn delete(c: &mut Context<'_>, head: &Head, from: u64, to: u64) -> Outcome {
    for index in from..to {
        c.tx.delete(&element(head, index))?;
    }
    Ok(())
}

fn ltrim(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (from, to) = (int(args.get(2))?, int(args.get(3))?);
    c.reply.ok();
    let Some(mut head) = c.head(args.get(1), Kind::List)? else { return Ok(()) };
    let (from, to) = part(from, to, head.count);
    if from >= to {
        c.remove(args.get(1))?;
        return Ok(());
    }
    if to - from == head.count {
        return Ok(());
    }
    delete(c, &head, 0, from)?;
    delete(c, &head, to, head.count)?;
    head.first = head.first.wrapping_add(from);
    head.count = to - from;
    c.save(args.get(1), &head)
}

// ---- by value -------------------------------------------------------------------------------------------------

/// Indexes of elements that equal `value`, from either end: at most `most` of them, among the first `looked_at`.
fn find(c: &Context<'_>, head: &Head, value: &[u8], end: End, most: u64, looked_at: u64) -> Outcome<Vec<u64>> {
    let (mut looked, mut found) = (0, Vec::new());
    let range = Keys { reverse: end == End::Right, ..elements(head, 0, head.count) };
    c.scan(range, &mut |_, held| {
        if held == value {
            found.push(if end == End::Left { looked } else { head.count - 1 - looked });
        }
        looked += 1;
        if looked == looked_at || found.len() as u64 == most {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn lrem(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, count) = (args.get(1), int(args.get(2))?);
    let Some(mut head) = c.head(key, Kind::List)? else {
        c.reply.int(0);
        return Ok(());
    };
    let (end, most) = if count < 0 { (End::Right, count.unsigned_abs()) } else { (End::Left, count as u64) };
    let most = if most == 0 { u64::MAX } else { most };
    let mut gone = find(c, &head, args.get(3), end, most, u64::MAX)?;
    gone.sort_unstable();
    c.reply.int(gone.len() as i64);
    let (Some(first), Some(last)) = (gone.first().copied(), gone.last().copied()) else { return Ok(()) };
    if gone.len() as u64 == head.count {
        c.remove(key)?;
        return Ok(());
    }
    let kept = |from: u64, values: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        (from..).zip(values).filter(|(index, _)| gone.binary_search(index).is_err()).map(|(_, value)| value).collect()
    };
    let removed = gone.len() as u64;
    // What is on the shorter side closes the gaps.
    if last < head.count - first {
        let values = kept(0, copies(c, &head, 0, last + 1)?);
        delete(c, &head, 0, removed)?;
        head.first = head.first.wrapping_add(removed);
        write(c, &head, 0, &values)?;
    } else {
        let values = kept(first, copies(c, &head, first, head.count)?);
        write(c, &head, first, &values)?;
        delete(c, &head, head.count - removed, head.count)?;
    }
    head.count -= removed;
    c.save(key, &head)
}

const NO_RANK: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
                       start from the end of the list";
const RANK_RANGE: &str = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

fn lpos(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (mut rank, mut count, mut looked_at) = (1, None, 0);
    let mut at = 3;
    while at < args.len() {
        let value = args.get(at + 1);
        match args.get(at) {
            _ if at + 1 == args.len() => return Err(SYNTAX.into()),
            o if is(o, "RANK") => match int(value)? {
                0 => return Err(NO_RANK.into()),
                i64::MIN => return Err(RANK_RANGE.into()),
                number => rank = number,
            },
            o if is(o, "COUNT") => count = Some(at_least(value, 0, "ERR COUNT can't be negative")?),
            o if is(o, "MAXLEN") => looked_at = at_least(value, 0, "ERR MAXLEN can't be negative")?,
            _ => return Err(SYNTAX.into()),
        }
        at += 2;
    }
    let (end, passed) = (if rank < 0 { End::Right } else { End::Left }, rank.unsigned_abs() - 1);
    let unlimited = |number: u64| if number == 0 { u64::MAX } else { number };
    let most = unlimited(count.unwrap_or(1)).saturating_add(passed);
    let mut found = match c.head(args.get(1), Kind::List)? {
        Some(head) => find(c, &head, args.get(2), end, most, unlimited(looked_at))?,
        None => Vec::new(),
    };
    found.drain(..found.len().min(usize::try_from(passed).unwrap_or(usize::MAX)));
    match (count, found.first()) {
        (Some(_), _) => {
            c.reply.array(found.len());
            found.iter().for_each(|index| c.reply.int(*index as i64));
        }
        (None, Some(index)) => c.reply.int(*index as i64),
        (None, None) => c.reply.null(),
    }
    Ok(())
}
