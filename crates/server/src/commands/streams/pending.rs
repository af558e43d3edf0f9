//! `XACK` and `XPENDING`.

use super::super::{Context, Outcome, SYNTAX, int, is};
use super::groups::{self, Desk};
use super::ids::{bounds, strict_all};
use crate::data::streams::{Group, Id, damaged};
use crate::data::{Head, Kind};
use crate::outcome::naming;
use crate::request::Arguments;

/// Ids that are looked at together where few of them may be asked for.
const TOGETHER: u64 = 256;

/// The stream and the group; an error if there is none.
pub(super) fn there(c: &Context<'_>, key: &[u8], name: &[u8]) -> Outcome<(Head, Group)> {
    let head = c.head(key, Kind::Stream)?;
    let group = match &head {
        Some(head) => groups::group(c, head, name)?,
        None => None,
    };
    let none = || naming("NOGROUP No such key '%' or consumer group '%'", &[key, name]);
    head.zip(group).ok_or_else(none)
}

pub(super) fn xack(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (head, mut gone) = (c.head(args.get(1), Kind::Stream)?, 0);
    if let Some(head) = &head
        && let Some(group) = groups::group(c, head, args.get(2))?
    {
        let mut desk = Desk::new(head, group);
        for id in strict_all(args.from(3))? {
            if let Some(pending) = desk.pending(c, id)? {
                desk.take(c, id, pending)?;
                gone += 1;
            }
        }
        desk.save(c)?;
    }
    c.reply.int(gone);
    Ok(())
}

/// What `XPENDING` asks for beside a summary.
struct Asked<'b> {
    idle: i64,
    range: (Id, Id),
    count: u64,
    consumer: Option<&'b [u8]>,
}

fn asked<'b>(args: &Arguments<'b>) -> Outcome<Option<Asked<'b>>> {
    if args.len() == 3 {
        return Ok(None);
    }
    if !(6..=9).contains(&args.len()) {
        return Err(SYNTAX.into());
    }
    let (mut idle, mut at) = (0, 3);
    if is(args.get(3), "IDLE") {
        idle = int(args.get(4))?;
        if args.len() < 8 {
            return Err(SYNTAX.into());
        }
        at = 5;
    }
    let count = int(args.get(at + 2))?.max(0) as u64;
    let range = bounds(args.get(at), args.get(at + 1))?;
    let consumer = (at + 3 < args.len()).then(|| args.get(at + 3));
    Ok(Some(Asked { idle, range, count, consumer }))
}

pub(super) fn xpending(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let asked = asked(args)?;
    let (head, group) = there(c, args.get(1), args.get(2))?;
    let desk = Desk::new(&head, group);
    match asked {
        Some(asked) => list(c, &head, desk, &asked),
        None => summary(c, &head, &desk),
    }
}

fn summary(c: &mut Context<'_>, head: &Head, desk: &Desk) -> Outcome {
    let mut consumers = groups::consumers(c, head, &desk.group)?;
    consumers.retain(|consumer| consumer.pending > 0);
    let total: u64 = consumers.iter().map(|consumer| consumer.pending).sum();
    let ends = desk.edge(c, false)?.zip(desk.edge(c, true)?);
    c.reply.array(4);
    c.reply.int(total as i64);
    let Some((first, last)) = ends.filter(|_| total > 0) else {
        c.reply.null();
        c.reply.null();
        c.reply.null_array();
        return Ok(());
    };
    c.reply.bulk(first.to_string().as_bytes());
    c.reply.bulk(last.to_string().as_bytes());
    c.reply.array(consumers.len());
    for consumer in &consumers {
        c.reply.array(2);
        c.reply.bulk(&consumer.name);
        c.reply.bulk(consumer.pending.to_string().as_bytes());
    }
    Ok(())
}

fn list(c: &mut Context<'_>, head: &Head, mut desk: Desk, asked: &Asked<'_>) -> Outcome {
    let of = match asked.consumer {
        None => None,
        Some(name) => match groups::number_of(c, head, &desk.group, name)? {
            Some(number) => Some(number),
            None => {
                c.reply.array(0);
                return Ok(());
            }
        },
    };
    let (mut found, mut from, to) = (Vec::new(), Some(asked.range.0), asked.range.1);
    while let Some(start) = from.filter(|_| (found.len() as u64) < asked.count) {
        let ids = desk.ids(c, of, (start, to), TOGETHER)?;
        from = ids.last().filter(|_| ids.len() as u64 == TOGETHER).and_then(|last| last.next());
        for id in ids {
            let pending = desk.pending(c, id)?.ok_or_else(|| damaged("what is pending"))?;
            let idle = (c.now as i64).saturating_sub(pending.delivered as i64);
            if (asked.idle == 0 || idle >= asked.idle) && (found.len() as u64) < asked.count {
                found.push((id, pending, idle));
            }
        }
    }
    c.reply.array(found.len());
    for (id, pending, idle) in found {
        c.reply.array(4);
        c.reply.bulk(id.to_string().as_bytes());
        let name = desk.consumer(c, pending.consumer)?.name.clone();
        c.reply.bulk(&name);
        c.reply.int(idle.max(0));
        c.reply.int(pending.deliveries as i64);
    }
    Ok(())
}
