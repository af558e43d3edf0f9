//! What hashes, sets and sorted sets have in common: elements with names (fields, members), which lie in order of their places.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::keys::scanned;
use super::{Context, Outcome, SYNTAX, Stop, int, is};
use crate::context::AHEAD;
use crate::data::{ELEMENT_HEAD, Head, Kind, name_hash};
use crate::engine::{Error, Visit};
use crate::glob;
use crate::reply::Reply;
use crate::request::{Arguments, number};

/// A name, and what is held under it.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// Collections so small are gone through to draw elements: each is as likely as the others.
const SMALL: u64 = 64;
/// Elements that are passed by, at most, behind a random place in a larger one: so that none is much likelier than others because of the gap before it.
const PASSED: u64 = 32;
/// Elements that are copied to draw several of them.
const COPIED: u64 = 1024;
/// Elements that are copied at a time while all are gone through.
const AT_A_TIME: usize = 128;
/// Bytes of a reply with elements that were drawn again and again.
const DRAWN_MAX: usize = 256 << 20;
/// Bytes of an empty string in a reply.
const BULK: u64 = 6;

const OUT_OF_RANGE: &str = "ERR value is out of range";
pub(super) const NEGATIVE: &str = "ERR value is out of range, must be positive";

/// What an element's key goes on with before its place.
fn before(head: &Head) -> &'static [u8] {
    if head.kind == Kind::Sorted { &[0] } else { &[] }
}

/// The key in the store of the element of that name.
pub(super) fn slot(c: &Context<'_>, head: &Head, name: &[u8]) -> Vec<u8> {
    head.element(&[before(head), &name_hash(c.shared.seed, name), name])
}

fn fits(c: &Context<'_>, name: &[u8]) -> bool {
    name.len() + ELEMENT_HEAD <= c.shared.engine.key_max()
}

/// Refuses names that the store has no room for.
pub(super) fn check<'b>(c: &Context<'_>, mut names: impl Iterator<Item = &'b [u8]>) -> Outcome {
    if names.all(|name| fits(c, name)) { Ok(()) } else { Err("ERR field or member is too long".into()) }
}

/// As [`Context::prefetch`], for names.
pub(super) fn prefetch(c: &Context<'_>, head: &Head, names: &[&[u8]]) {
    if names.len() > 1 {
        let slots: Vec<_> = names.iter().filter(|name| fits(c, name)).map(|name| slot(c, head, name)).collect();
        c.tx.prefetch(&slots.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
}

/// Answers a list with what is held under each of the names behind the key, in their order.
pub(super) fn answer_each(
    c: &mut Context<'_>,
    args: &Arguments<'_>,
    kind: Kind,
    answer: impl Fn(&mut Reply, Option<&[u8]>),
) -> Outcome {
    let head = c.head(args.get(1), kind)?;
    let mut reply = std::mem::take(c.reply);
    reply.array(args.len() - 2);
    let names: Vec<_> = args.from(2).collect();
    let answered = names.chunks(AHEAD).try_for_each(|some| match &head {
        Some(head) => each_held(c, head, some, |held| answer(&mut reply, held)),
        None => {
            some.iter().for_each(|_| answer(&mut reply, None));
            Ok(())
        }
    });
    *c.reply = reply;
    answered
}

fn each_held(c: &Context<'_>, head: &Head, names: &[&[u8]], mut tell: impl FnMut(Option<&[u8]>)) -> Outcome {
    let slots: Vec<_> = names.iter().map(|name| fits(c, name).then(|| slot(c, head, name))).collect();
    if names.len() > 1 {
        c.tx.prefetch(&slots.iter().flatten().map(Vec::as_slice).collect::<Vec<_>>());
    }
    for slot in slots {
        tell(match slot {
            Some(slot) => c.tx.get(&slot)?,
            None => None,
        });
    }
    Ok(())
}

/// What is held under a name.
pub(super) fn held<'c>(c: &'c Context<'_>, head: &Head, name: &[u8]) -> Outcome<Option<&'c [u8]>> {
    if fits(c, name) { Ok(c.tx.get(&slot(c, head, name))?) } else { Ok(None) }
}

/// Sets what is held under a name; true if it is new. The caller saves the head.
pub(super) fn put(c: &mut Context<'_>, head: &mut Head, name: &[u8], value: &[u8]) -> Outcome<bool> {
    let slot = slot(c, head, name);
    let new = c.tx.get(&slot)?.is_none();
    head.count += u64::from(new);
    if new || head.kind != Kind::Set {
        c.tx.put(&slot, value, None)?;
    }
    Ok(new)
}

/// Removes a name of a hash or a set; true if it was there. The caller saves the head.
pub(super) fn take(c: &mut Context<'_>, head: &mut Head, name: &[u8]) -> Outcome<bool> {
    let there = fits(c, name) && c.tx.delete(&slot(c, head, name))?;
    head.count -= u64::from(there);
    Ok(there)
}

/// Visits names and what is held under them, from a place on.
pub(super) fn each(c: &Context<'_>, head: &Head, from: u64, visit: Visit<'_>) -> Outcome {
    let before = before(head);
    let from = head.element(&[before, &from.to_be_bytes()]);
    let name_at = from.len();
    let range = Keys { from: Bound::Included(from), ..head.elements(&[before]) };
    Ok(c.scan(range, &mut |key, value| visit(key.get(name_at..).unwrap_or_default(), value))?)
}

/// Called with names and what is held under them; says whether to go on.
pub(super) type Walk<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Outcome<ControlFlow<()>>;

/// Visits all names, a few at a time: `visit` may read from the store, too.
pub(super) fn walk(c: &Context<'_>, head: &Head, visit: Walk<'_>) -> Outcome {
    let mut from = Some(0);
    while let Some(start) = from.take() {
        let (mut some, mut last) = (Vec::new(), 0);
        each(c, head, start, &mut |name, held| {
            let hash = u64::from_be_bytes(name_hash(c.shared.seed, name));
            if some.len() >= AT_A_TIME && hash != last {
                from = Some(hash);
                return ControlFlow::Break(());
            }
            last = hash;
            some.push((name.to_vec(), held.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (name, held) in &some {
            if visit(name, held)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Copies of all names and what is held under them.
pub(super) fn all(c: &Context<'_>, head: &Head) -> Outcome<Vec<Pair>> {
    c.passes(head.count)?;
    let mut all = Vec::new();
    each(c, head, 0, &mut |name, value| {
        all.push((name.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// There is less in the store than a head says.
pub(super) fn missing() -> Stop {
    Stop::Engine(Error::Damaged("a collection has fewer elements than it says: check the store".to_owned()))
}

// ---- drawing --------------------------------------------------------------------------------------------------

/// Any element.
pub(super) fn draw(c: &Context<'_>, head: &Head) -> Outcome<Pair> {
    let small = head.count <= SMALL;
    let from = if small { 0 } else { c.shared.random() };
    let mut pass = c.shared.random() % if small { head.count.max(1) } else { PASSED };
    // Behind the last one comes the first one.
    for from in [from, 0] {
        let mut drawn = None;
        each(c, head, from, &mut |name, value| {
            if pass > 0 {
                pass -= 1;
                return ControlFlow::Continue(());
            }
            drawn = Some((name.to_vec(), value.to_vec()));
            ControlFlow::Break(())
        })?;
        if let Some(drawn) = drawn {
            return Ok(drawn);
        }
    }
    Err(missing())
}

/// So many different elements, or all of them if there are not more.
pub(super) fn draw_different(c: &Context<'_>, head: &Head, count: u64) -> Outcome<Vec<Pair>> {
    if head.count > COPIED && count < head.count / 4 {
        let mut drawn = BTreeMap::new();
        // At most a quarter is drawn, so each is new more often than not; unless many share a place, and those behind the first few of them are never drawn.
        for _ in 0..count.saturating_mul(4) + 64 {
            if drawn.len() as u64 == count {
                return Ok(drawn.into_iter().collect());
            }
            drawn.extend([draw(c, head)?]);
        }
    }
    let mut all = all(c, head)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(all.len());
    if count < all.len() {
        for at in 0..count {
            let other = at + (c.shared.random() % (all.len() - at) as u64) as usize;
            all.swap(at, other);
        }
        all.truncate(count);
    }
    Ok(all)
}

/// Whether so many elements fit into no reply, though each is the shortest; `with` more than its name.
fn is_too_much(count: u64, shortest: usize, with: bool) -> bool {
    // Type, length and two ends of lines; what comes with a name takes as much.
    let each = shortest as u64 + if with { 2 * BULK } else { BULK };
    count.saturating_mul(each) > DRAWN_MAX as u64
}

/// So many elements, each drawn from all of them.
fn draw_again(c: &mut Context<'_>, head: &Head, count: u64, with: bool, answer: &dyn Fn(&mut Reply, &Pair)) -> Outcome {
    if is_too_much(count, 0, with) {
        return Err(OUT_OF_RANGE.into());
    }
    let copied = if head.count <= count.max(COPIED) { all(c, head)? } else { Vec::new() };
    let shortest = copied.iter().map(|(name, _)| name.len()).min().unwrap_or(0);
    if is_too_much(count, shortest, with) {
        return Err(OUT_OF_RANGE.into());
    }
    for _ in 0..count {
        if copied.is_empty() {
            let drawn = draw(c, head)?;
            answer(c.reply, &drawn);
        } else {
            let at = (c.shared.random() % copied.len() as u64) as usize;
            answer(c.reply, &copied[at]);
        }
        if c.reply.len() > DRAWN_MAX {
            return Err(OUT_OF_RANGE.into());
        }
    }
    Ok(())
}

/// Writes what an element has besides its name.
pub(super) type Write = fn(&mut Reply, &[u8]);

/// `HRANDFIELD`, `SRANDMEMBER`, `ZRANDMEMBER`. `with` is the option that asks for more than names.
pub(super) fn random(c: &mut Context<'_>, args: &Arguments<'_>, kind: Kind, with: Option<(&str, Write)>) -> Outcome {
    if with.is_none() && args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let key = args.get(1);
    if args.len() == 2 {
        match c.head(key, kind)? {
            None => c.reply.null(),
            Some(head) => {
                let (name, _) = draw(c, &head)?;
                c.reply.bulk(&name);
            }
        }
        return Ok(());
    }
    let count = int(args.get(2))?;
    if count == i64::MIN {
        let most = i64::MAX;
        return Err(Stop::Error(format!("ERR value is out of range, value must between -{most} and {most}")));
    }
    let write = match with {
        Some((option, write)) if args.len() == 4 && is(args.get(3), option) => Some(write),
        _ if args.len() == 3 => None,
        _ => return Err(SYNTAX.into()),
    };
    if write.is_some() && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE.into());
    }
    let Some(head) = c.head(key, kind)? else {
        c.reply.array(0);
        return Ok(());
    };
    let answer = |reply: &mut Reply, (name, held): &Pair| {
        if write.is_some() && reply.three {
            reply.array(2);
        }
        reply.bulk(name);
        if let Some(write) = write {
            write(reply, held);
        }
    };
    let wide = if write.is_some() && !c.reply.three { 2 } else { 1 };
    if count < 0 {
        let count = count.unsigned_abs();
        c.reply.array((count as usize).saturating_mul(wide));
        return draw_again(c, &head, count, write.is_some(), &answer);
    }
    let drawn = draw_different(c, &head, count as u64)?;
    c.reply.array(drawn.len() * wide);
    drawn.iter().for_each(|pair| answer(c.reply, pair));
    Ok(())
}

// ---- scans ----------------------------------------------------------------------------------------------------

/// `HSCAN`, `SSCAN`, `ZSCAN`. The cursor is the place of the next element, so the server need not keep it, and an element that stays is found by every
/// scan: its place does. Those of one place, which are few, come together.
pub(super) fn scan(c: &mut Context<'_>, args: &Arguments<'_>, kind: Kind, write: Option<Write>) -> Outcome {
    let asked = scanned(args, 2)?;
    if asked.kind.is_some() || asked.names_only && kind != Kind::Hash {
        return Err(SYNTAX.into());
    }
    let (mut found, mut looked, mut last, mut next) = (Vec::new(), 0, 0, 0);
    if let Some(head) = c.head(args.get(1), kind)? {
        each(c, &head, asked.cursor, &mut |name, held| {
            let hash = u64::from_be_bytes(name_hash(c.shared.seed, name));
            if looked >= asked.count && hash != last {
                next = hash;
                return ControlFlow::Break(());
            }
            looked += 1;
            last = hash;
            if glob::matches(asked.pattern, name) {
                found.push((name.to_vec(), held.to_vec()));
            }
            ControlFlow::Continue(())
        })?;
    }
    let write = write.filter(|_| !asked.names_only);
    c.reply.array(2);
    c.reply.bulk(next.to_string().as_bytes());
    c.reply.array(found.len() * if write.is_some() { 2 } else { 1 });
    for (name, held) in &found {
        c.reply.bulk(name);
        if let Some(write) = write {
            write(c.reply, held);
        }
    }
    Ok(())
}

// ---- arguments ------------------------------------------------------------------------------------------------

/// A number not below `least`; `otherwise` says what is wrong with anything else.
pub(super) fn at_least(text: &[u8], least: i64, otherwise: &str) -> Outcome<u64> {
    Ok(number(text).filter(|number| *number >= least).ok_or(otherwise)? as u64)
}

/// `SINTERCARD` and `ZINTERCARD`: how many keys, which begin behind their number, and the limit, 0 for none.
pub(super) fn limited(args: &Arguments<'_>, keys: usize) -> Outcome<u64> {
    let (mut limit, mut at) = (0, 2 + keys);
    while at < args.len() {
        if !is(args.get(at), "LIMIT") || at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        limit = at_least(args.get(at + 1), 0, "ERR LIMIT can't be negative")?;
        at += 2;
    }
    Ok(limit)
}

/// What `LMPOP` and `ZMPOP` ask for.
pub(super) struct Popped<'b, W> {
    pub(super) keys: Vec<&'b [u8]>,
    pub(super) end: W,
    pub(super) count: u64,
}

/// Reads the arguments from the number of keys on; `end` understands which end is meant.
pub(super) fn popped<'b, W>(
    args: &Arguments<'b>,
    at: usize,
    end: impl FnOnce(&[u8]) -> Option<W>,
) -> Outcome<Popped<'b, W>> {
    let keys = at_least(args.get(at), 1, "ERR numkeys should be greater than 0")?;
    let end_at = usize::try_from(keys).ok().and_then(|keys| (at + 1).checked_add(keys));
    let end_at = end_at.filter(|end_at| *end_at < args.len()).ok_or(SYNTAX)?;
    let end = end(args.get(end_at)).ok_or(SYNTAX)?;
    let count = match args.len() - end_at {
        1 => 1,
        more if more >= 3 && is(args.get(end_at + 1), "COUNT") => {
            let count = at_least(args.get(end_at + 2), 1, "ERR count should be greater than 0")?;
            if more > 3 {
                return Err(SYNTAX.into());
            }
            count
        }
        _ => return Err(SYNTAX.into()),
    };
    Ok(Popped { keys: args.from(at + 1).take(end_at - at - 1).collect(), end, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_into_no_reply_is_known_by_its_count() {
        for (count, shortest, with) in [(1e8 as u64, 0, false), (3e7 as u64, 0, true), (1 << 20, 251, false)] {
            assert!(is_too_much(count, shortest, with), "{count}");
        }
        assert!(is_too_much(i64::MAX as u64, usize::MAX / 2, true));
        // As it is in a reply.
        let mut reply = Reply::new();
        reply.bulk(b"");
        assert_eq!(reply.len() as u64, BULK);
        assert!(!is_too_much(DRAWN_MAX as u64 / BULK, 0, false) && is_too_much(DRAWN_MAX as u64 / BULK + 1, 0, false));
    }
}
