//! A stream as a whole, as Redis' files have it, and back.

use super::super::{Context, Outcome};
use super::entries;
use super::groups::{self, Desk};
use crate::data::Head;
use crate::data::streams::{Id, Pending, damaged, decode, encode};
use crate::rdb::{self, Stream};

/// Copies of all that a stream has.
pub(crate) fn dumped(c: &Context<'_>, head: &Head) -> Outcome<Stream> {
    let marks = head.marks;
    let mut stream = Stream { last: marks.last, deleted: marks.deleted, added: marks.added, ..Stream::default() };
    for id in entries::ids(c, head, (Id::MIN, Id::MAX), 0, false)? {
        let value = c.tx.get(&head.entry(id))?.and_then(decode).ok_or_else(|| damaged("an entry"))?;
        stream.entries.push((id, value.into_iter().map(<[u8]>::to_vec).collect()));
    }
    for (name, group) in groups::all(c, head)? {
        let mut dumped = rdb::Group { name, last: group.last, read: group.read, consumers: Vec::new() };
        let consumers = groups::consumers(c, head, &group)?;
        let desk = Desk::new(head, group);
        for consumer in consumers {
            let mut pending = Vec::new();
            for id in desk.ids(c, Some(consumer.number), (Id::MIN, Id::MAX), 0)? {
                let found = desk.pending(c, id)?.ok_or_else(|| damaged("what a consumer has"))?;
                pending.push(rdb::Pending { id, delivered: found.delivered, deliveries: found.deliveries });
            }
            dumped.consumers.push(rdb::Consumer { name: consumer.name, seen: consumer.seen, pending });
        }
        stream.groups.push(dumped);
    }
    Ok(stream)
}

/// Refuses what the store has no room for.
pub(crate) fn check_dumped(c: &Context<'_>, stream: &Stream) -> Outcome {
    for group in &stream.groups {
        groups::check(c, &group.name)?;
        group.consumers.iter().try_for_each(|consumer| groups::check(c, &consumer.name))?;
    }
    let max = c.shared.engine.value_max();
    let bytes = |entry: &[Vec<u8>]| entry.iter().map(|word| word.len() + 5).sum::<usize>();
    if stream.entries.iter().any(|(_, entry)| bytes(entry) > max) {
        return Err("ERR Elements are too large to be stored".into());
    }
    Ok(())
}

/// Puts all of it into a new stream. The caller saves the head.
pub(crate) fn restore(c: &mut Context<'_>, head: &mut Head, stream: Stream) -> Outcome {
    head.count = stream.entries.len() as u64;
    head.marks.first = stream.entries.first().map_or(Id::MIN, |(id, _)| *id);
    (head.marks.last, head.marks.deleted, head.marks.added) = (stream.last, stream.deleted, stream.added);
    for (id, entry) in &stream.entries {
        let value = encode(entry.iter().map(Vec::as_slice));
        c.looks.write(value.len())?;
        c.tx.put(&head.entry(*id), &value, None)?;
    }
    for dumped in stream.groups {
        groups::create(c, head, &dumped.name, dumped.last, dumped.read)?;
        let mut group = groups::group(c, head, &dumped.name)?.ok_or_else(|| damaged("a group"))?;
        for one in dumped.consumers {
            let mut consumer = groups::new_consumer(c, head, (&dumped.name, &mut group), &one.name)?;
            (consumer.seen, consumer.pending) = (one.seen, one.pending.len() as u64);
            for rdb::Pending { id, delivered, deliveries } in one.pending {
                let pending = Pending { consumer: consumer.number, delivered, deliveries };
                c.tx.put(&group.pending(head, id), &pending.write(), None)?;
                c.tx.put(&group.with(head, consumer.number, id), &[], None)?;
            }
            groups::save_consumer(c, head, &group, &consumer)?;
        }
    }
    Ok(())
}
