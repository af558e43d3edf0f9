//! `XINFO`.

use super::super::second::second;
use super::super::{Context, NO_KEY, Outcome, int, is};
use super::groups::{self, Desk, UNKNOWN, Whole};
use super::xgroup::{help, syntax};
use super::{entries, no_group};
use crate::data::streams::{Group, Id, damaged};
use crate::data::{Head, Kind};
use crate::request::Arguments;

/// As Redis has it.
const HELP: [&str; 9] = [
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Prints this help.",
];

/// Entries of one of Redis' nodes.
const NODE: u64 = 100;
/// Of each list, if the client does not say how many.
const USUAL: u64 = 10;

pub(super) fn xinfo(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let name = second(args)?;
    if name == "help" {
        return help(c, &HELP);
    }
    let head = c.head(args.get(2), Kind::Stream)?.ok_or(NO_KEY)?;
    match name {
        "consumers" => consumers(c, args, &head),
        "groups" => all_groups(c, &head),
        _ => stream(c, args, &head),
    }
}

fn id(c: &mut Context<'_>, name: &str, id: Id) {
    c.reply.bulk(name.as_bytes());
    c.reply.bulk(id.to_string().as_bytes());
}

fn number(c: &mut Context<'_>, name: &str, number: Option<i64>) {
    c.reply.bulk(name.as_bytes());
    match number {
        Some(number) => c.reply.int(number),
        None => c.reply.null(),
    }
}

fn text(c: &mut Context<'_>, name: &str, text: &[u8]) {
    c.reply.bulk(name.as_bytes());
    c.reply.bulk(text);
}

fn consumers(c: &mut Context<'_>, args: &Arguments<'_>, head: &Head) -> Outcome {
    let Some(group) = groups::group(c, head, args.get(3))? else { return Err(no_group(args.get(2), args.get(3))) };
    let all = groups::consumers(c, head, &group)?;
    c.reply.array(all.len());
    for consumer in all {
        c.reply.map(3);
        text(c, "name", &consumer.name);
        number(c, "pending", Some(consumer.pending as i64));
        number(c, "idle", Some(c.now.saturating_sub(consumer.seen) as i64));
    }
    Ok(())
}

fn all_groups(c: &mut Context<'_>, head: &Head) -> Outcome {
    let (whole, all) = (Whole(*head), groups::all(c, head)?);
    c.reply.array(all.len());
    for (name, group) in all {
        let consumers = groups::consumers(c, head, &group)?;
        let pending: u64 = consumers.iter().map(|consumer| consumer.pending).sum();
        c.reply.map(6);
        text(c, "name", &name);
        number(c, "consumers", Some(consumers.len() as i64));
        number(c, "pending", Some(pending as i64));
        id(c, "last-delivered-id", group.last);
        number(c, "entries-read", Some(group.read).filter(|read| *read != UNKNOWN));
        number(c, "lag", whole.lag(&group));
    }
    Ok(())
}

fn stream(c: &mut Context<'_>, args: &Arguments<'_>, head: &Head) -> Outcome {
    let full = args.len() > 3;
    let mut count = USUAL;
    if full {
        let (counts, is_full) = (args.len() == 6, is(args.get(3), "FULL"));
        if !is_full || !counts && args.len() != 4 || counts && !is(args.get(4), "COUNT") {
            return Err(syntax(args, "XINFO"));
        }
        if counts {
            count = u64::try_from(int(args.get(5))?).unwrap_or(USUAL);
        }
    }
    c.reply.map(if full { 9 } else { 10 });
    number(c, "length", Some(head.count as i64));
    // There is no such tree: what one of Redis' would have, about.
    let nodes = head.count.div_ceil(NODE) as i64;
    number(c, "radix-tree-keys", Some(nodes));
    number(c, "radix-tree-nodes", Some(nodes + 1));
    id(c, "last-generated-id", head.marks.last);
    id(c, "max-deleted-entry-id", head.marks.deleted);
    number(c, "entries-added", Some(head.marks.added as i64));
    id(c, "recorded-first-entry-id", head.marks.first);
    if full {
        c.reply.bulk(b"entries");
        entries::list(c, head, (Id::MIN, Id::MAX), count, false)?;
        return full_groups(c, head, count);
    }
    number(c, "groups", Some(groups::all(c, head)?.len() as i64));
    let last = entries::last(c, head)?;
    for (name, id) in [("first-entry", last.map(|_| head.marks.first)), ("last-entry", last)] {
        c.reply.bulk(name.as_bytes());
        match id {
            Some(id) => drop(entries::answer_one(c, head, id)?),
            None => c.reply.null(),
        }
    }
    Ok(())
}

fn full_groups(c: &mut Context<'_>, head: &Head, count: u64) -> Outcome {
    let (whole, all) = (Whole(*head), groups::all(c, head)?);
    c.reply.bulk(b"groups");
    c.reply.array(all.len());
    for (name, group) in all {
        let consumers = groups::consumers(c, head, &group)?;
        let pending: u64 = consumers.iter().map(|consumer| consumer.pending).sum();
        c.reply.map(7);
        text(c, "name", &name);
        id(c, "last-delivered-id", group.last);
        number(c, "entries-read", Some(group.read).filter(|read| *read != UNKNOWN));
        number(c, "lag", whole.lag(&group));
        number(c, "pel-count", Some(pending as i64));
        c.reply.bulk(b"pending");
        list_pending(c, head, group, None, count)?;
        c.reply.bulk(b"consumers");
        c.reply.array(consumers.len());
        for consumer in consumers {
            c.reply.map(4);
            text(c, "name", &consumer.name);
            number(c, "seen-time", Some(consumer.seen as i64));
            number(c, "pel-count", Some(consumer.pending as i64));
            c.reply.bulk(b"pending");
            list_pending(c, head, group, Some(consumer.number), count)?;
        }
    }
    Ok(())
}

/// What is pending: of a group with whose it is, or of one consumer.
fn list_pending(c: &mut Context<'_>, head: &Head, group: Group, of: Option<u64>, count: u64) -> Outcome {
    let mut desk = Desk::new(head, group);
    let ids = desk.ids(c, of, (Id::MIN, Id::MAX), count)?;
    c.reply.array(ids.len());
    for id in ids {
        let pending = desk.pending(c, id)?.ok_or_else(|| damaged("what is pending"))?;
        c.reply.array(if of.is_some() { 3 } else { 4 });
        c.reply.bulk(id.to_string().as_bytes());
        if of.is_none() {
            let name = desk.consumer(c, pending.consumer)?.name.clone();
            c.reply.bulk(&name);
        }
        c.reply.int(pending.delivered as i64);
        c.reply.int(pending.deliveries as i64);
    }
    Ok(())
}
