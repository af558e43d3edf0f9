//! Streams. [`data::streams`](crate::data::streams) says how they lie in the store.

mod claim;
mod dumped;
mod entries;
mod groups;
mod ids;
mod info;
mod pending;
mod read;
mod trim;
mod xgroup;

use super::flag::{BLOCKING, FAST, READ, STREAM, WRITE};
use super::{Command, Context, Form, KeysAt, NO_KEY, ONE, Outcome, Run, SYNTAX, Stop, data, int, is};
use crate::data::streams::{Id, encode};
use crate::data::{Head, Kind};
use crate::outcome::naming;
use crate::request::Arguments;

pub(crate) use self::dumped::{check_dumped, dumped, restore};
use self::ids::{bounds, strict, strict_all};
use self::trim::Wanted;

const SECOND: KeysAt = KeysAt::Range(2, 2, 1);

pub(super) const COMMANDS: &[Command] = &[
    data("xack", -4, WRITE | FAST | STREAM, ONE, pending::xack),
    data("xadd", -5, WRITE | FAST | STREAM, ONE, xadd),
    data("xautoclaim", -6, WRITE | FAST | STREAM, ONE, claim::xautoclaim),
    data("xclaim", -6, WRITE | FAST | STREAM, ONE, claim::xclaim),
    data("xdel", -3, WRITE | FAST | STREAM, ONE, xdel),
    data("xgroup", -2, WRITE | STREAM, SECOND, xgroup::xgroup),
    data("xinfo", -2, READ | STREAM, SECOND, info::xinfo),
    data("xlen", 2, READ | FAST | STREAM, ONE, xlen),
    data("xpending", -3, READ | STREAM, ONE, pending::xpending),
    data("xrange", -4, READ | STREAM, ONE, xrange),
    reads("xread", -4, READ, read::xread),
    reads("xreadgroup", -7, WRITE, read::xreadgroup),
    data("xrevrange", -4, READ | STREAM, ONE, xrevrange),
    data("xsetid", -3, WRITE | FAST | STREAM, ONE, xsetid),
    data("xtrim", -4, WRITE | STREAM, ONE, xtrim),
];

const fn reads(
    name: &'static str,
    arity: i32,
    flags: u32,
    run: fn(&mut Context<'_>, &Arguments<'_>) -> Outcome,
) -> Command {
    Command { form: Form { name, arity, flags: flags | BLOCKING | STREAM, keys: KeysAt::Streams }, run: Run::Read(run) }
}

fn wrong_arity(command: &str) -> Stop {
    Stop::Error(format!("ERR wrong number of arguments for '{command}' command"))
}

fn no_group(key: &[u8], group: &[u8]) -> Stop {
    naming("NOGROUP No such consumer group '%' for key name '%'", &[group, key])
}

// ---- adding -----------------------------------------------------------------------------------------------------

fn xadd(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let asked = trim::asked(args, true)?;
    let (key, fields) = (args.get(1), args.len().saturating_sub(asked.at + 1));
    if fields < 2 || !fields.is_multiple_of(2) {
        return Err(wrong_arity("xadd"));
    }
    if asked.id == Wanted::This(Id::MIN) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let mut head = match c.head(key, Kind::Stream)? {
        Some(head) => head,
        None if asked.only_old => {
            c.reply.null();
            return Ok(());
        }
        None => c.new_head(Kind::Stream)?,
    };
    let id = next_id(c, &head, asked.id)?;
    let value = encode(args.from(asked.at + 1));
    if value.len() > c.shared.engine.value_max() {
        return Err("ERR Elements are too large to be stored".into());
    }
    c.looks.write(value.len())?;
    c.tx.put(&head.entry(id), &value, None)?;
    head.count += 1;
    if head.count == 1 {
        head.marks.first = id;
    }
    (head.marks.last, head.marks.added) = (id, head.marks.added + 1);
    if let Some(trim) = asked.trim {
        trim::trim(c, &mut head, trim)?;
    }
    c.save(key, &head)?;
    c.reply.bulk(id.to_string().as_bytes());
    Ok(())
}

/// The id of what is to be added.
fn next_id(c: &Context<'_>, head: &Head, wanted: Wanted) -> Outcome<Id> {
    const NOT_GREATER: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";
    let last = head.marks.last;
    if last == Id::MAX {
        return Err("ERR The stream has exhausted the last possible ID, unable to add more items".into());
    }
    let id = match wanted {
        // A clock that steps back is waited for by counting.
        Wanted::Any if c.now > last.ms => Some(Id { ms: c.now, seq: 0 }),
        Wanted::Any => last.next(),
        Wanted::At(ms) if ms == last.ms => last.next().filter(|next| next.ms == ms),
        Wanted::At(ms) => Some(Id { ms, seq: 0 }),
        Wanted::This(id) => Some(id),
    };
    Ok(id.filter(|id| *id > last).ok_or(NOT_GREATER)?)
}

// ---- reading ----------------------------------------------------------------------------------------------------

fn xlen(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let count = c.head(args.get(1), Kind::Stream)?.map_or(0, |head| head.count);
    c.reply.int(count as i64);
    Ok(())
}

fn xrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    range(c, args, false)
}

fn xrevrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    range(c, args, true)
}

fn range(c: &mut Context<'_>, args: &Arguments<'_>, reverse: bool) -> Outcome {
    let (first, last) = if reverse { (3, 2) } else { (2, 3) };
    let (from, to) = bounds(args.get(first), args.get(last))?;
    let (mut count, mut at) = (None, 4);
    while at < args.len() {
        if !is(args.get(at), "COUNT") || at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        count = Some(int(args.get(at + 1))?.max(0));
        at += 2;
    }
    match c.head(args.get(1), Kind::Stream)? {
        None => c.reply.array(0),
        Some(_) if count == Some(0) => c.reply.null_array(),
        Some(head) => drop(entries::list(c, &head, (from, to), count.unwrap_or(0) as u64, reverse)?),
    }
    Ok(())
}

// ---- removing ---------------------------------------------------------------------------------------------------

fn xdel(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, mut gone, mut first_gone) = (args.get(1), 0, false);
    if let Some(mut head) = c.head(key, Kind::Stream)? {
        for id in strict_all(args.from(2))? {
            if c.tx.delete(&head.entry(id))? {
                first_gone |= id == head.marks.first;
                head.marks.deleted = head.marks.deleted.max(id);
                gone += 1;
            }
        }
        head.count = head.count.saturating_sub(gone);
        if gone > 0 {
            if first_gone {
                let first = head.marks.first;
                entries::begin_behind(c, &mut head, first)?;
            }
            c.save(key, &head)?;
        }
    }
    c.reply.int(gone as i64);
    Ok(())
}

fn xtrim(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, mut gone) = (args.get(1), 0);
    let asked = trim::asked(args, false)?;
    if let (Some(mut head), Some(trim)) = (c.head(key, Kind::Stream)?, asked.trim) {
        gone = trim::trim(c, &mut head, trim)?;
        if gone > 0 {
            c.save(key, &head)?;
        }
    }
    c.reply.int(gone as i64);
    Ok(())
}

fn xsetid(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, id) = (args.get(1), strict(args.get(2), 0)?);
    let (mut added, mut deleted, mut at) = (None, Id::MIN, 3);
    while at < args.len() {
        let value = args.get(at + 1);
        match args.get(at) {
            _ if at + 1 == args.len() => return Err(SYNTAX.into()),
            o if is(o, "ENTRIESADDED") => {
                let number = u64::try_from(int(value)?).map_err(|_| "ERR entries_added must be positive")?;
                added = Some(number);
            }
            o if is(o, "MAXDELETEDID") => {
                deleted = strict(value, 0)?;
                if id < deleted {
                    let why = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                    return Err(why.into());
                }
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 2;
    }
    let mut head = c.head(key, Kind::Stream)?.ok_or(NO_KEY)?;
    if let Some(top) = entries::last(c, &head)? {
        if id < top {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
        }
        if added.is_some_and(|added| head.count > added) {
            return Err("ERR The entries_added specified in XSETID is smaller than the target stream length".into());
        }
    }
    head.marks.last = id;
    head.marks.added = added.unwrap_or(head.marks.added);
    if deleted != Id::MIN {
        head.marks.deleted = deleted;
    }
    c.save(key, &head)?;
    c.reply.ok();
    Ok(())
}
