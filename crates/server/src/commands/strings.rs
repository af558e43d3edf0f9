//! Strings, and numbers in them.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::flag::{FAST, READ, STRING, WRITE};
use super::{Command, Context, KeysAt, MANY, NOT_INT, ONE, Outcome, SYNTAX, Stop, WRONG_TYPE, data, int, is};
use crate::context::{AHEAD, Looks};
use crate::data::chunks::Text;
use crate::data::{STRING_MAX, string};
use crate::engine::Tx;
use crate::reply::Reply;
use crate::request::{Arguments, number};

pub(super) const COMMANDS: &[Command] = &[
    data("append", 3, WRITE | FAST | STRING, ONE, append),
    data("decr", 2, WRITE | FAST | STRING, ONE, decr),
    data("decrby", 3, WRITE | FAST | STRING, ONE, decrby),
    data("get", 2, READ | FAST | STRING, ONE, get),
    data("getdel", 2, WRITE | FAST | STRING, ONE, getdel),
    data("getex", -2, WRITE | FAST | STRING, ONE, getex),
    data("getrange", 4, READ | STRING, ONE, getrange),
    data("getset", 3, WRITE | FAST | STRING, ONE, getset),
    data("incr", 2, WRITE | FAST | STRING, ONE, incr),
    data("incrby", 3, WRITE | FAST | STRING, ONE, incrby),
    data("incrbyfloat", 3, WRITE | FAST | STRING, ONE, incrbyfloat),
    data("mget", -2, READ | FAST | STRING, MANY, mget),
    data("mset", -3, WRITE | STRING, KeysAt::Range(1, -1, 2), mset),
    data("msetnx", -3, WRITE | STRING, KeysAt::Range(1, -1, 2), msetnx),
    data("psetex", 4, WRITE | STRING, ONE, psetex),
    data("set", -3, WRITE | STRING, ONE, set),
    data("setex", 4, WRITE | STRING, ONE, setex),
    data("setnx", 3, WRITE | FAST | STRING, ONE, setnx),
    data("setrange", 4, WRITE | STRING, ONE, setrange),
    data("strlen", 2, READ | FAST | STRING, ONE, strlen),
    data("substr", 4, READ | STRING, ONE, getrange),
];

const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

fn get(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let value = c.tx.get(&c.key(args.get(1)))?;
    c.looks.at(value.is_some());
    answer(&*c.tx, c.reply, &c.looks, value)
}

/// A value as the store has it.
fn answer(tx: &dyn Tx, reply: &mut Reply, looks: &Looks, value: Option<&[u8]>) -> Outcome {
    let Some(value) = value else {
        reply.null();
        return Ok(());
    };
    match string(value) {
        Some(bytes) => reply.bulk(bytes),
        None => answer_text(tx, reply, looks, &Text::read(value)?.ok_or(WRONG_TYPE)?)?,
    }
    Ok(())
}

/// A string that may lie in chunks.
fn answer_text(tx: &dyn Tx, reply: &mut Reply, looks: &Looks, text: &Text<'_>) -> Outcome {
    looks.reads(text.len())?;
    Ok(reply.bulk_with(text.len(), |bytes| text.append_to(tx, bytes))?)
}

fn mget(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    c.reply.array(args.len() - 1);
    let keys: Vec<_> = args.from(1).collect();
    for (at, key) in keys.iter().enumerate() {
        if at.is_multiple_of(AHEAD) {
            c.prefetch(&keys[at..keys.len().min(at + AHEAD)]);
        }
        let value = c.tx.get(&c.key(key))?;
        c.looks.at(value.is_some());
        match value.map(Text::read).transpose()?.flatten() {
            Some(Text::Whole(bytes)) => c.reply.bulk(bytes),
            Some(text) => answer_text(&*c.tx, c.reply, &c.looks, &text)?,
            None => c.reply.null(),
        }
    }
    Ok(())
}

/// When a value is to expire.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Never.
    Stays,
    /// As the one before.
    Kept,
    At(u64),
}

/// The moment that `EX`, `PX`, `EXAT` or `PXAT` means.
fn moment(c: &Context<'_>, option: &[u8], text: &[u8], command: &str) -> Outcome<Option<u64>> {
    let (unit, from) = match option {
        o if is(o, "EX") => (1000, c.now),
        o if is(o, "PX") => (1, c.now),
        o if is(o, "EXAT") => (1000, 0),
        o if is(o, "PXAT") => (1, 0),
        _ => return Ok(None),
    };
    let invalid = || Stop::Error(format!("ERR invalid expire time in '{command}' command"));
    let amount = int(text)?;
    if amount <= 0 {
        return Err(invalid());
    }
    let at = amount.checked_mul(unit).and_then(|by| by.checked_add(from as i64)).ok_or_else(invalid)?;
    Ok(Some(at as u64))
}

fn set(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (mut until, mut only_new, mut only_old, mut get) = (Until::Stays, false, false, false);
    let mut at = 3;
    while at < args.len() {
        let option = args.get(at);
        at += 1;
        match option {
            o if is(o, "NX") => only_new = true,
            o if is(o, "XX") => only_old = true,
            o if is(o, "GET") => get = true,
            o if is(o, "KEEPTTL") && until == Until::Stays => until = Until::Kept,
            o if until == Until::Stays && at < args.len() => {
                until = Until::At(moment(c, o, args.get(at), "set")?.ok_or(SYNTAX)?);
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    if only_new && only_old {
        return Err(SYNTAX.into());
    }
    let key = args.get(1);
    if !(only_new || only_old || get) {
        write(c, key, args.get(2), until)?;
        c.reply.ok();
        return Ok(());
    }
    let stored = c.key(key);
    let before = c.tx.get(&stored)?;
    if get {
        answer(&*c.tx, c.reply, &c.looks, before)?;
    }
    let there = before.is_some();
    let wanted = !(there && only_new || !there && only_old);
    if wanted {
        write(c, key, args.get(2), until)?;
    }
    match (get, wanted) {
        (true, _) => {}
        (false, true) => c.reply.ok(),
        (false, false) => c.reply.null(),
    }
    Ok(())
}

fn write(c: &mut Context<'_>, key: &[u8], value: &[u8], until: Until) -> Outcome {
    match until {
        Until::At(at) if at <= c.now => c.remove(key).map(drop),
        Until::At(at) => c.put_string(key, value, Some(at)),
        Until::Stays => c.put_string(key, value, None),
        Until::Kept => {
            let expires = c.tx.expires(&c.key(key))?;
            c.put_string(key, value, expires)
        }
    }
}

fn setnx(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let new = c.tx.get(&c.key(args.get(1)))?.is_none();
    if new {
        c.put_string(args.get(1), args.get(2), None)?;
    }
    c.reply.int(new.into());
    Ok(())
}

fn setex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    until(c, args, b"EX", "setex")
}

fn psetex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    until(c, args, b"PX", "psetex")
}

fn until(c: &mut Context<'_>, args: &Arguments<'_>, unit: &[u8], command: &str) -> Outcome {
    let at = moment(c, unit, args.get(2), command)?.ok_or(SYNTAX)?;
    write(c, args.get(1), args.get(3), Until::At(at))?;
    c.reply.ok();
    Ok(())
}

fn mset(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pairs(args, "mset")?;
    put_pairs(c, args)?;
    c.reply.ok();
    Ok(())
}

fn msetnx(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pairs(args, "msetnx")?;
    for key in args.from(1).step_by(2) {
        if c.tx.get(&c.key(key))?.is_some() {
            c.reply.int(0);
            return Ok(());
        }
    }
    put_pairs(c, args)?;
    c.reply.int(1);
    Ok(())
}

fn pairs(args: &Arguments<'_>, command: &str) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Stop::Error(format!("ERR wrong number of arguments for '{command}' command")));
    }
    Ok(())
}

fn put_pairs(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let keys: Vec<_> = args.from(1).step_by(2).collect();
    for (at, key) in keys.iter().enumerate() {
        if at.is_multiple_of(AHEAD) {
            c.prefetch(&keys[at..keys.len().min(at + AHEAD)]);
        }
        c.put_string(key, args.get(2 * at + 2), None)?;
    }
    Ok(())
}

fn getset(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let key = c.key(args.get(1));
    answer(&*c.tx, c.reply, &c.looks, c.tx.get(&key)?)?;
    c.put_string(args.get(1), args.get(2), None)
}

fn getdel(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let key = c.key(args.get(1));
    let value = c.tx.get(&key)?;
    let there = value.is_some();
    answer(&*c.tx, c.reply, &c.looks, value)?;
    if there {
        c.remove(args.get(1))?;
    }
    Ok(())
}

fn getex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, option) = (args.get(1), args.get(2));
    let until = match args.len() {
        2 => None,
        3 if is(option, "PERSIST") => Some(Until::Stays),
        4 => Some(Until::At(moment(c, option, args.get(3), "getex")?.ok_or(SYNTAX)?)),
        _ => return Err(SYNTAX.into()),
    };
    let stored = c.key(key);
    let value = c.tx.get(&stored)?;
    c.looks.at(value.is_some());
    let there = value.is_some();
    answer(&*c.tx, c.reply, &c.looks, value)?;
    match until.filter(|_| there) {
        Some(Until::At(at)) if at <= c.now => c.remove(key).map(drop),
        Some(Until::At(at)) => c.set_expiry(&stored, Some(at)),
        Some(Until::Stays) if c.tx.expires(&stored)?.is_some() => c.set_expiry(&stored, None),
        Some(Until::Stays | Until::Kept) | None => Ok(()),
    }
}

// ---- parts ----------------------------------------------------------------------------------------------------

fn strlen(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let len = c.text(args.get(1))?.map_or(0, |text| text.len());
    c.reply.int(len as i64);
    Ok(())
}

fn append(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, more) = (args.get(1), args.get(2));
    let text = c.text(key)?.unwrap_or(Text::Whole(&[]));
    let (at, len) = (text.len(), text.len() + more.len());
    if len > STRING_MAX {
        return Err(TOO_LONG.into());
    }
    match text.whole().filter(|_| c.is_whole(len)) {
        Some(bytes) => {
            let value = [bytes, more].concat();
            c.change_string(key, &value)?;
        }
        None => drop(c.write_at(key, at, more)?),
    }
    c.reply.int(len as i64);
    Ok(())
}

fn getrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (from, to) = (int(args.get(2))?, int(args.get(3))?);
    let value = c.tx.get(&c.key(args.get(1)))?;
    let text = match value {
        None => Text::Whole(&[]),
        Some(value) => Text::read(value)?.ok_or(WRONG_TYPE)?,
    };
    let len = text.len() as i64;
    // From the end if negative; what is outside is cut.
    let absolute = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (from, to) = if from < 0 && to < 0 && from > to { (1, 0) } else { (absolute(from), absolute(to).min(len - 1)) };
    let range = if from <= to { from as usize..to as usize + 1 } else { 0..0 };
    c.reads(range.len())?;
    match &text {
        Text::Whole(bytes) => c.reply.bulk(bytes.get(range).unwrap_or_default()),
        Text::Chunked(long) => c.reply.bulk_with(range.len(), |bytes| {
            long.each(&*c.tx, range, &mut |piece| {
                bytes.extend_from_slice(piece);
                ControlFlow::Continue(())
            })
        })?,
    }
    Ok(())
}

fn setrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (key, offset, part) = (args.get(1), int(args.get(2))?, args.get(3));
    let Ok(offset) = usize::try_from(offset) else { return Err("ERR offset is out of range".into()) };
    let text = c.text(key)?.unwrap_or(Text::Whole(&[]));
    if part.is_empty() {
        c.reply.int(text.len() as i64);
        return Ok(());
    }
    let end = offset.checked_add(part.len()).filter(|end| *end <= STRING_MAX).ok_or(TOO_LONG)?;
    let len = text.len().max(end);
    match text.whole().filter(|_| c.is_whole(len)) {
        Some(bytes) => {
            let mut value = bytes.to_vec();
            value.resize(len, 0);
            value[offset..end].copy_from_slice(part);
            c.change_string(key, &value)?;
        }
        None => drop(c.write_at(key, offset, part)?),
    }
    c.reply.int(len as i64);
    Ok(())
}

// ---- numbers --------------------------------------------------------------------------------------------------

fn incr(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    add(c, args.get(1), 1)
}

fn decr(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    add(c, args.get(1), -1)
}

fn incrby(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    add(c, args.get(1), int(args.get(2))?)
}

fn decrby(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let by = int(args.get(2))?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(c, args.get(1), by)
}

/// Bytes of a text that may be a number.
const NUMBER_MAX: usize = 64 << 10;

/// The text of a number, if the key has a string. One that lies in chunks and is too long for a number is not read.
fn numeral<'c>(c: &'c Context<'_>, key: &[u8], not_one: &str) -> Outcome<Option<Cow<'c, [u8]>>> {
    match c.text(key)? {
        Some(Text::Chunked(long)) if long.len() > NUMBER_MAX => Err(not_one.into()),
        text => Ok(text.map(|text| text.bytes(&*c.tx)).transpose()?),
    }
}

fn add(c: &mut Context<'_>, key: &[u8], by: i64) -> Outcome {
    let old = numeral(c, key, NOT_INT)?.map_or(Some(0), |text| number(&text)).ok_or(NOT_INT)?;
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    c.change_string(key, new.to_string().as_bytes())?;
    c.reply.int(new);
    Ok(())
}

fn incrbyfloat(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let old = numeral(c, args.get(1), super::NOT_FLOAT)?.unwrap_or(Cow::Borrowed(b"0"));
    let text = super::decimal::sum(&old, args.get(2), super::NOT_FLOAT)?;
    c.change_string(args.get(1), text.as_bytes())?;
    c.reply.bulk(text.as_bytes());
    Ok(())
}
