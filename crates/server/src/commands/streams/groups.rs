//! Groups of a stream, their consumers, and what these have not acknowledged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::super::{Context, Outcome};
use crate::data::Head;
use crate::data::streams::{Consumer, GROUP, GROUPS, Group, Id, NAME_AT, Pending, damaged};

/// How many entries up to one there have been is not known.
pub(super) const UNKNOWN: i64 = -1;

fn fits(c: &Context<'_>, name: &[u8]) -> bool {
    name.len() + NAME_AT <= c.shared.engine.key_max()
}

/// Looked at before anything is written: an error has written nothing.
pub(super) fn check(c: &Context<'_>, name: &[u8]) -> Outcome {
    if fits(c, name) { Ok(()) } else { Err("ERR the name of a group or a consumer is too long".into()) }
}

fn number(c: &Context<'_>, key: &[u8]) -> Outcome<Option<u64>> {
    let Some(value) = c.tx.get(key)? else { return Ok(None) };
    Ok(Some(u64::from_be_bytes(value.try_into().map_err(|_| damaged("a number"))?)))
}

// ---- groups -----------------------------------------------------------------------------------------------------

pub(super) fn group(c: &Context<'_>, head: &Head, name: &[u8]) -> Outcome<Option<Group>> {
    if !fits(c, name) {
        return Ok(None);
    }
    let Some(value) = c.tx.get(&head.group(name))? else { return Ok(None) };
    Ok(Some(Group::read(value).ok_or_else(|| damaged("a group"))?))
}

pub(super) fn save(c: &mut Context<'_>, head: &Head, name: &[u8], group: &Group) -> Outcome {
    Ok(c.tx.put(&head.group(name), &group.write(), None)?)
}

/// A group of a name that there is not yet.
pub(super) fn create(c: &mut Context<'_>, head: &Head, name: &[u8], last: Id, read: i64) -> Outcome {
    check(c, name)?;
    let counter = head.element(&[&[GROUPS]]);
    let number = number(c, &counter)?.unwrap_or(0) + 1;
    c.tx.put(&counter, &number.to_be_bytes(), None)?;
    save(c, head, name, &Group { number, last, read, consumers: 0 })
}

/// All of them with their names, in order of these.
pub(super) fn all(c: &Context<'_>, head: &Head) -> Outcome<Vec<(Vec<u8>, Group)>> {
    let name_at = head.group(b"").len();
    let pairs = c.pairs(head.elements(&[&[GROUP]]))?;
    let read = |(key, value): (Vec<u8>, Vec<u8>)| {
        let group = Group::read(&value).ok_or_else(|| damaged("a group"))?;
        Ok((key.get(name_at..).unwrap_or_default().to_vec(), group))
    };
    pairs.into_iter().map(read).collect()
}

// ---- how far a group has come -----------------------------------------------------------------------------------

/// A stream as a whole.
pub(super) struct Whole(pub(super) Head);

impl Whole {
    /// Whether one may have been deleted from among those from `from` on.
    fn has_gaps(&self, from: Id) -> bool {
        let Head { count, marks, .. } = self.0;
        count > 0 && marks.deleted != Id::MIN && marks.first <= marks.deleted && from <= marks.deleted
    }

    /// How many entries there have been up to one.
    fn before(&self, id: Id) -> i64 {
        let Head { count, marks, .. } = self.0;
        let added = marks.added as i64;
        if added == 0 || count == 0 && id <= marks.last || id == marks.last {
            return added;
        }
        let has_no_gaps = marks.deleted == Id::MIN || marks.deleted < marks.first;
        let begins = added.wrapping_sub(count as i64);
        match id.cmp(&marks.first) {
            _ if id > marks.last || !has_no_gaps => UNKNOWN,
            std::cmp::Ordering::Less => begins,
            std::cmp::Ordering::Equal => begins.wrapping_add(1),
            std::cmp::Ordering::Greater => UNKNOWN,
        }
    }

    /// The group is sent an entry.
    pub(super) fn send(&self, group: &mut Group, id: Id) {
        if id <= group.last {
            return;
        }
        if group.read != UNKNOWN && !self.has_gaps(id) {
            group.read = group.read.wrapping_add(1);
        } else if self.0.marks.added > 0 {
            group.read = self.before(id);
        }
        group.last = id;
    }

    /// How many entries are yet to be sent to a group; none if that is not known.
    pub(super) fn lag(&self, group: &Group) -> Option<i64> {
        let added = self.0.marks.added as i64;
        if added == 0 {
            return Some(0);
        }
        let known = group.read != UNKNOWN && !self.has_gaps(group.last);
        let read = if known { group.read } else { self.before(group.last) };
        (known || read != UNKNOWN).then(|| added.wrapping_sub(read))
    }
}

// ---- consumers --------------------------------------------------------------------------------------------------

/// Which number the consumer of that name has, if there is one.
pub(super) fn number_of(c: &Context<'_>, head: &Head, group: &Group, name: &[u8]) -> Outcome<Option<u64>> {
    if fits(c, name) { number(c, &[&group.names(head), name].concat()) } else { Ok(None) }
}

/// The consumer of that number, which there is.
pub(super) fn numbered(c: &Context<'_>, head: &Head, group: &Group, number: u64) -> Outcome<Consumer> {
    let value = c.tx.get(&group.consumer(head, number))?;
    value.and_then(|value| Consumer::read(number, value)).ok_or_else(|| damaged("a consumer"))
}

pub(super) fn save_consumer(c: &mut Context<'_>, head: &Head, group: &Group, consumer: &Consumer) -> Outcome {
    Ok(c.tx.put(&group.consumer(head, consumer.number), &consumer.write(), None)?)
}

/// A consumer of a name that there is not yet; the caller saves it. `of` is the group and its name.
pub(super) fn new_consumer(
    c: &mut Context<'_>,
    head: &Head,
    of: (&[u8], &mut Group),
    name: &[u8],
) -> Outcome<Consumer> {
    check(c, name)?;
    let (group_name, group) = of;
    group.consumers += 1;
    let number = group.consumers;
    c.tx.put(&[&group.names(head), name].concat(), &number.to_be_bytes(), None)?;
    save(c, head, group_name, group)?;
    Ok(Consumer { number, seen: c.now, pending: 0, name: name.to_vec() })
}

/// All of a group, in order of their names.
pub(super) fn consumers(c: &Context<'_>, head: &Head, group: &Group) -> Outcome<Vec<Consumer>> {
    let mut numbers = Vec::new();
    c.scan(Keys::prefix(&group.names(head)), &mut |_, value| {
        numbers.push(value.try_into().map(u64::from_be_bytes));
        ControlFlow::Continue(())
    })?;
    let numbered = |number: Result<u64, _>| numbered(c, head, group, number.map_err(|_| damaged("a number"))?);
    numbers.into_iter().map(numbered).collect()
}

// ---- what is pending --------------------------------------------------------------------------------------------

/// What a group was sent and has not acknowledged, and whose it is: changed here, and written by [`save`](Self::save).
pub(super) struct Desk {
    head: Head,
    pub(super) group: Group,
    /// Consumers that were looked up, by their numbers: those in the store are older, and are not read again.
    known: BTreeMap<u64, Consumer>,
}

impl Desk {
    pub(super) fn new(head: &Head, group: Group) -> Self {
        Self { head: *head, group, known: BTreeMap::new() }
    }

    pub(super) fn pending(&self, c: &Context<'_>, id: Id) -> Outcome<Option<Pending>> {
        let Some(value) = c.tx.get(&self.group.pending(&self.head, id))? else { return Ok(None) };
        Ok(Some(Pending::read(value).ok_or_else(|| damaged("what is pending"))?))
    }

    pub(super) fn consumer(&mut self, c: &Context<'_>, number: u64) -> Outcome<&mut Consumer> {
        Ok(match self.known.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(numbered(c, &self.head, &self.group, number)?),
        })
    }

    /// The consumer of a name, which is made if there is none, is seen now; and which it is. `group_name` is the group's.
    pub(super) fn see(&mut self, c: &mut Context<'_>, group_name: &[u8], name: &[u8]) -> Outcome<u64> {
        let now = c.now;
        if let Some(number) = number_of(c, &self.head, &self.group, name)? {
            self.consumer(c, number)?.seen = now;
            return Ok(number);
        }
        let made = new_consumer(c, &self.head, (group_name, &mut self.group), name)?;
        let number = made.number;
        self.known.insert(number, made);
        Ok(number)
    }

    /// An entry is with a consumer from now on, whichever one has had it.
    pub(super) fn give(&mut self, c: &mut Context<'_>, id: Id, before: Option<Pending>, now: Pending) -> Outcome {
        c.tx.put(&self.group.pending(&self.head, id), &now.write(), None)?;
        if before.is_some_and(|before| before.consumer == now.consumer) {
            return Ok(());
        }
        if let Some(before) = before {
            self.leave(c, id, before.consumer)?;
        }
        c.tx.put(&self.group.with(&self.head, now.consumer, id), &[], None)?;
        self.consumer(c, now.consumer)?.pending += 1;
        Ok(())
    }

    /// An entry is pending no more.
    pub(super) fn take(&mut self, c: &mut Context<'_>, id: Id, pending: Pending) -> Outcome {
        c.tx.delete(&self.group.pending(&self.head, id))?;
        self.leave(c, id, pending.consumer)
    }

    fn leave(&mut self, c: &mut Context<'_>, id: Id, number: u64) -> Outcome {
        c.tx.delete(&self.group.with(&self.head, number, id))?;
        let consumer = self.consumer(c, number)?;
        consumer.pending = consumer.pending.saturating_sub(1);
        Ok(())
    }

    /// Ids that are pending, from one up to another, so many at most, all for 0; of one consumer if there is one.
    pub(super) fn ids(&self, c: &Context<'_>, of: Option<u64>, (from, to): (Id, Id), most: u64) -> Outcome<Vec<Id>> {
        if from > to {
            return Ok(Vec::new());
        }
        let key = |id: Id| match of {
            Some(consumer) => self.group.with(&self.head, consumer, id),
            None => self.group.pending(&self.head, id),
        };
        let keys = Keys { from: Bound::Included(key(from)), to: Bound::Included(key(to)), reverse: false };
        let mut ids = Vec::new();
        c.scan(keys, &mut |key, _| {
            ids.extend(Id::last_of(key));
            if ids.len() as u64 == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(ids)
    }

    /// The first or the last that is pending.
    pub(super) fn edge(&self, c: &Context<'_>, last: bool) -> Outcome<Option<Id>> {
        let (from, to) = (self.group.pending(&self.head, Id::MIN), self.group.pending(&self.head, Id::MAX));
        let keys = Keys { from: Bound::Included(from), to: Bound::Included(to), reverse: last };
        let mut edge = None;
        c.scan(keys, &mut |key, _| {
            edge = Id::last_of(key);
            ControlFlow::Break(())
        })?;
        Ok(edge)
    }

    /// Writes what has become of the consumers.
    pub(super) fn save(self, c: &mut Context<'_>) -> Outcome {
        for consumer in self.known.values() {
            save_consumer(c, &self.head, &self.group, consumer)?;
        }
        Ok(())
    }
}
