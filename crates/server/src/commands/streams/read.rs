//! `XREAD` and `XREADGROUP`; `connection::blocking` waits.

use super::super::{Context, NOT_INT, Outcome, SYNTAX, Stop, WRONG_TYPE, int, is};
use super::entries;
use super::groups::{self, Desk, Whole};
use super::ids::strict;
use crate::data::streams::{Group, Id, Pending, damaged};
use crate::data::{Head, Kind, stored};
use crate::form::shown;
use crate::outcome::naming;
use crate::request::{Arguments, number};

/// Entries of a stream that a client is told that has waited for them, and has not said how many.
const AFTER_A_WAIT: u64 = 1000;

/// What is asked for.
#[derive(Default)]
struct Asked<'b> {
    blocks: bool,
    count: u64,
    /// The group, and the consumer.
    group: Option<(&'b [u8], &'b [u8])>,
    no_ack: bool,
    streams: Vec<(&'b [u8], &'b [u8])>,
}

fn asked<'b>(c: &Context<'_>, args: &Arguments<'b>, of_group: bool) -> Outcome<Asked<'b>> {
    let only = |option: &str| {
        format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.").into()
    };
    let (mut asked, mut at, mut found) = (Asked::default(), 1, false);
    while at < args.len() && !found {
        let (word, more) = (args.get(at), args.len() - at - 1);
        if is(word, "BLOCK") && more > 0 {
            if c.looks.scripted {
                let name = shown(args.get(0));
                return Err(format!("ERR {name} command is not allowed with BLOCK option from scripts").into());
            }
            at += 1;
            let ms = number(args.get(at)).ok_or("ERR timeout is not an integer or out of range")?;
            if ms < 0 {
                return Err("ERR timeout is negative".into());
            }
            asked.blocks = true;
        } else if is(word, "COUNT") && more > 0 {
            at += 1;
            asked.count = int(args.get(at)).map_err(|_| NOT_INT)?.max(0) as u64;
        } else if is(word, "STREAMS") && more > 0 {
            if !more.is_multiple_of(2) {
                let why = "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.";
                return Err(why.into());
            }
            let half = more / 2;
            asked.streams = args.from(at + 1).take(half).zip(args.from(at + 1 + half)).collect();
            found = true;
        } else if is(word, "GROUP") && more >= 2 {
            if !of_group {
                return Err(only("GROUP"));
            }
            asked.group = Some((args.get(at + 1), args.get(at + 2)));
            at += 2;
        } else if is(word, "NOACK") {
            if !of_group {
                return Err(only("NOACK"));
            }
            asked.no_ack = true;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if !found {
        return Err(SYNTAX.into());
    }
    if of_group && asked.group.is_none() {
        return Err("ERR Missing GROUP option for XREADGROUP".into());
    }
    if c.looks.waited && asked.count == 0 {
        asked.count = AFTER_A_WAIT;
    }
    Ok(asked)
}

/// The stream at a key. To a client that has waited, a key that has become something else has none.
fn stream(c: &mut Context<'_>, key: &[u8]) -> Outcome<Option<Head>> {
    let head = match c.head(key, Kind::Stream) {
        Err(Stop::Error(text)) if c.looks.waited && text == WRONG_TYPE => None,
        other => other?,
    };
    if let Some(at) = head.and_then(|head| head.expires()) {
        let ends = &mut c.looks.since.ends;
        *ends = Some(ends.map_or(at, |other| other.min(at)));
    }
    Ok(head)
}

/// Whether there is an entry behind an id.
fn is_newer(c: &Context<'_>, head: &Head, id: Id) -> Outcome<bool> {
    Ok(head.marks.last > id && entries::last(c, head)?.is_some_and(|last| last > id))
}

/// Behind all streams that had something, if any.
fn end(c: &mut Context<'_>, mark: usize, count: usize) {
    if count == 0 {
        return c.reply.null_array();
    }
    entries::headed(c.reply, mark, |reply| if reply.three { reply.map(count) } else { reply.array(count) });
}

/// In front of the entries of a stream.
fn begin(c: &mut Context<'_>, key: &[u8]) {
    if !c.reply.three {
        c.reply.array(2);
    }
    c.reply.bulk(key);
}

// ---- for oneself ------------------------------------------------------------------------------------------------

pub(super) fn xread(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let asked = asked(c, args, false)?;
    c.looks.since.begin();
    // Kept: a look that meets a conflict is followed by another.
    let known = if c.looks.waited { c.looks.since.ids.clone() } else { Vec::new() };
    let mut wanted = Vec::with_capacity(asked.streams.len());
    for (at, (key, text)) in asked.streams.iter().enumerate() {
        let head = stream(c, key)?;
        let behind = match *text {
            b"$" => known.get(at).copied().unwrap_or_else(|| head.map_or(Id::MIN, |head| head.marks.last)),
            b">" => {
                let why = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.";
                return Err(why.into());
            }
            text => strict(text, 0)?,
        };
        wanted.push((*key, head, behind));
    }
    let (mark, mut count) = (c.reply.len(), 0);
    for (key, head, behind) in &wanted {
        let Some(head) = head else { continue };
        if !is_newer(c, head, *behind)? {
            continue;
        }
        count += 1;
        begin(c, key);
        let from = behind.next().unwrap_or(Id::MAX);
        entries::list(c, head, (from, Id::MAX), asked.count, false)?;
    }
    if asked.blocks {
        c.looks.since.ids = wanted.iter().map(|(_, _, behind)| *behind).collect();
    }
    end(c, mark, count);
    Ok(())
}

// ---- for a group ------------------------------------------------------------------------------------------------

/// A stream, its group, and behind what a consumer wants to read of what it has; none for what is new.
type Wanted<'b> = (&'b [u8], Head, Group, Option<Id>);

pub(super) fn xreadgroup(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let asked = asked(c, args, true)?;
    let Some((group_name, name)) = asked.group else { return Err(SYNTAX.into()) };
    c.looks.since.begin();
    let mut wanted: Vec<Wanted<'_>> = Vec::with_capacity(asked.streams.len());
    for (key, text) in &asked.streams {
        let (head, group) = stream_of_group(c, key, group_name)?;
        let behind = match *text {
            b"$" => {
                return Err("ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.".into());
            }
            b">" => None,
            text => Some(strict(text, 0)?).filter(|id| *id != Id::MAX),
        };
        wanted.push((key, head, group, behind));
    }
    let (mark, mut count) = (c.reply.len(), 0);
    for (key, head, _, behind) in wanted {
        // The same stream may be asked for twice.
        let group = groups::group(c, &head, group_name)?.ok_or_else(|| damaged("a group"))?;
        let is_news = match behind {
            Some(_) => true,
            None => is_for_it(c, key, &head, &group, group_name)?,
        };
        if !is_news {
            continue;
        }
        count += 1;
        begin(c, key);
        let to = To { head, group, group_name, name, count: asked.count };
        match behind {
            Some(behind) => to.repeat(c, behind)?,
            None => to.send(c, asked.no_ack)?,
        }
    }
    end(c, mark, count);
    Ok(())
}

/// Whether there is something that the group was not sent, and no reader that waits longer is to get it.
fn is_for_it(c: &mut Context<'_>, key: &[u8], head: &Head, group: &Group, name: &[u8]) -> Outcome<bool> {
    let (key, last) = (stored(c.looks.databases.number_of(c.db), key), head.marks.last);
    let is_there = is_newer(c, head, group.last)?;
    if !is_there {
        c.looks.since.seen.push((key, last));
        return Ok(false);
    }
    Ok(c.looks.since.number.is_none_or(|number| c.shared.readers.goes_first(&key, number, name, last)))
}

fn stream_of_group(c: &mut Context<'_>, key: &[u8], name: &[u8]) -> Outcome<(Head, Group)> {
    let waited = c.looks.waited;
    let head = stream(c, key)?;
    let group = match &head {
        Some(head) => groups::group(c, head, name)?,
        None => None,
    };
    let none = || match head {
        None if waited => "UNBLOCKED the stream key no longer exists".into(),
        Some(_) if waited => "NOGROUP the consumer group this client was blocked on no longer exists".into(),
        _ => naming("NOGROUP No such key '%' or consumer group '%' in XREADGROUP with GROUP option", &[key, name]),
    };
    head.zip(group).ok_or_else(none)
}

/// A consumer that reads from a stream.
struct To<'b> {
    head: Head,
    group: Group,
    group_name: &'b [u8],
    name: &'b [u8],
    count: u64,
}

impl To<'_> {
    /// What no consumer of the group was sent.
    fn send(self, c: &mut Context<'_>, no_ack: bool) -> Outcome {
        let mut desk = Desk::new(&self.head, self.group);
        let number = desk.see(c, self.group_name, self.name)?;
        let whole = Whole(self.head);
        let from = desk.group.last.next().unwrap_or(Id::MAX);
        let ids = entries::list(c, &self.head, (from, Id::MAX), self.count, false)?;
        ids.iter().for_each(|id| whole.send(&mut desk.group, *id));
        groups::save(c, &self.head, self.group_name, &desk.group)?;
        for id in ids.iter().filter(|_| !no_ack) {
            // It may have been sent before, and XGROUP SETID has put the group back.
            let before = desk.pending(c, *id)?;
            desk.give(c, *id, before, Pending { consumer: number, delivered: c.now, deliveries: 1 })?;
        }
        desk.save(c)
    }

    /// What the consumer was sent, and has not acknowledged.
    fn repeat(self, c: &mut Context<'_>, behind: Id) -> Outcome {
        let mut desk = Desk::new(&self.head, self.group);
        let number = desk.see(c, self.group_name, self.name)?;
        let from = behind.next().unwrap_or(Id::MAX);
        let ids = desk.ids(c, Some(number), (from, Id::MAX), self.count)?;
        c.reply.array(ids.len());
        for id in ids {
            if entries::answer_one(c, &self.head, id)? {
                let before = desk.pending(c, id)?.ok_or_else(|| damaged("what is pending"))?;
                let deliveries = before.deliveries.wrapping_add(1);
                desk.give(c, id, Some(before), Pending { delivered: c.now, deliveries, ..before })?;
            } else {
                c.reply.array(2);
                c.reply.bulk(id.to_string().as_bytes());
                c.reply.null_array();
            }
        }
        desk.save(c)
    }
}
