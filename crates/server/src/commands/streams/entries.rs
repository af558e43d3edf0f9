//! Entries of a stream.

use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::super::{Context, Outcome};
use crate::data::Head;
use crate::data::streams::{Id, damaged, decode};
use crate::reply::Reply;

/// Both included; none if there are no such entries.
fn keys(head: &Head, (from, to): (Id, Id), reverse: bool) -> Option<Keys> {
    let (from, to) = (from.max(head.marks.first), to.min(head.marks.last));
    let keys = || Keys { from: Bound::Included(head.entry(from)), to: Bound::Included(head.entry(to)), reverse };
    (head.count > 0 && from <= to).then(keys)
}

/// Ids of a range, so many at most; all for 0.
pub(super) fn ids(c: &Context<'_>, head: &Head, range: (Id, Id), most: u64, reverse: bool) -> Outcome<Vec<Id>> {
    let (mut ids, mut bad) = (Vec::new(), false);
    if let Some(keys) = keys(head, range, reverse) {
        c.scan(keys, &mut |key, _| {
            match Id::last_of(key) {
                Some(id) => ids.push(id),
                None => bad = true,
            }
            if bad || ids.len() as u64 == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    if bad { Err(damaged("an entry")) } else { Ok(ids) }
}

/// The last entry; none if there are no entries.
pub(super) fn last(c: &Context<'_>, head: &Head) -> Outcome<Option<Id>> {
    Ok(ids(c, head, (Id::MIN, Id::MAX), 1, true)?.pop())
}

/// Says in the head of which entry is the first, where those up to one are gone.
pub(super) fn begin_behind(c: &Context<'_>, head: &mut Head, id: Id) -> Outcome {
    let behind = (id.next().unwrap_or(Id::MAX), Id::MAX);
    head.marks.first = ids(c, head, behind, 1, false)?.pop().unwrap_or(Id::MIN);
    Ok(())
}

/// An entry: its id, and its fields and values. False if it is damaged.
#[must_use]
pub(super) fn answer(reply: &mut Reply, id: Id, value: &[u8]) -> bool {
    let Some(words) = decode(value) else { return false };
    reply.array(2);
    reply.bulk(id.to_string().as_bytes());
    reply.array(words.len());
    words.iter().for_each(|word| reply.bulk(word));
    true
}

/// Answers with the entry, if it is there.
pub(super) fn answer_one(c: &mut Context<'_>, head: &Head, id: Id) -> Outcome<bool> {
    let Some(value) = c.tx.get(&head.entry(id))? else { return Ok(false) };
    if answer(c.reply, id, value) { Ok(true) } else { Err(damaged("an entry")) }
}

/// Answers with the entries of a range, so many at most, all for 0; and returns their ids.
pub(super) fn list(c: &mut Context<'_>, head: &Head, range: (Id, Id), most: u64, reverse: bool) -> Outcome<Vec<Id>> {
    let (mut ids, mut bad) = (Vec::new(), false);
    let Context { tx, reply, .. } = c;
    let mark = reply.len();
    if let Some(keys) = keys(head, range, reverse) {
        tx.scan(keys, &mut |key, value| {
            match Id::last_of(key) {
                Some(id) if answer(reply, id, value) => ids.push(id),
                _ => bad = true,
            }
            // What is too much is refused by the code that runs the command.
            let ends = bad || ids.len() as u64 == most || reply.is_full();
            if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    if bad {
        return Err(damaged("an entry"));
    }
    counted(reply, mark, ids.len());
    Ok(ids)
}

/// Puts the head of an array of so many in front of what was written since.
pub(super) fn counted(reply: &mut Reply, mark: usize, len: usize) {
    headed(reply, mark, |reply| reply.array(len));
}

pub(super) fn headed(reply: &mut Reply, mark: usize, head: impl FnOnce(&mut Reply)) {
    let written = reply.split_off(mark);
    head(reply);
    reply.raw(&written);
}

/// Whether there is such an entry.
pub(super) fn is_there(c: &Context<'_>, head: &Head, id: Id) -> Outcome<bool> {
    Ok(c.tx.get(&head.entry(id))?.is_some())
}
