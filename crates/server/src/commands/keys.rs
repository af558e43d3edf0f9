//! Keys, whatever is behind them.

use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::flag::{DANGEROUS, FAST, KEYSPACE, READ, WRITE};
use super::{Command, Context, KeysAt, MANY, NO_KEY, ONE, Outcome, SYNTAX, Stop, data, int, is};
use crate::data::{DATABASES, GARBAGE, Head, Kind, all, stored};
use crate::engine::{Error, Result, Tx};
use crate::glob;
use crate::outcome::naming;
use crate::request::Arguments;

const TWO: KeysAt = KeysAt::Range(1, 2, 1);

pub(super) const COMMANDS: &[Command] = &[
    data("copy", -3, WRITE | KEYSPACE, TWO, copy),
    data("dbsize", 1, READ | FAST | KEYSPACE, KeysAt::None, dbsize),
    data("del", -2, WRITE | KEYSPACE, MANY, del),
    data("exists", -2, READ | FAST | KEYSPACE, MANY, exists),
    data("expire", -3, WRITE | FAST | KEYSPACE, ONE, expire),
    data("expireat", -3, WRITE | FAST | KEYSPACE, ONE, expireat),
    data("expiretime", 2, READ | FAST | KEYSPACE, ONE, expiretime),
    data("flushall", -1, WRITE | DANGEROUS | KEYSPACE, KeysAt::None, flushall),
    data("flushdb", -1, WRITE | DANGEROUS | KEYSPACE, KeysAt::None, flushdb),
    data("keys", 2, READ | DANGEROUS | KEYSPACE, KeysAt::None, keys),
    data("move", 3, WRITE | FAST | KEYSPACE, ONE, move_key),
    data("persist", 2, WRITE | FAST | KEYSPACE, ONE, persist),
    data("pexpire", -3, WRITE | FAST | KEYSPACE, ONE, pexpire),
    data("pexpireat", -3, WRITE | FAST | KEYSPACE, ONE, pexpireat),
    data("pexpiretime", 2, READ | FAST | KEYSPACE, ONE, pexpiretime),
    data("pttl", 2, READ | FAST | KEYSPACE, ONE, pttl),
    data("randomkey", 1, READ | KEYSPACE, KeysAt::None, randomkey),
    data("rename", 3, WRITE | KEYSPACE, TWO, rename),
    data("renamenx", 3, WRITE | FAST | KEYSPACE, TWO, renamenx),
    data("scan", -2, READ | KEYSPACE, KeysAt::None, scan),
    data("touch", -2, READ | FAST | KEYSPACE, MANY, exists),
    data("ttl", 2, READ | FAST | KEYSPACE, ONE, ttl),
    data("type", 2, READ | FAST | KEYSPACE, ONE, type_of),
    data("unlink", -2, WRITE | FAST | KEYSPACE, MANY, del),
];

fn del(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut gone = 0;
    for key in args.from(1) {
        gone += i64::from(c.remove(key)?);
    }
    c.reply.int(gone);
    Ok(())
}

fn exists(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut there = 0;
    for key in args.from(1) {
        there += i64::from(c.tx.get(&c.key(key))?.is_some());
    }
    c.reply.int(there);
    Ok(())
}

fn type_of(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let kind = c.tx.get(&c.key(args.get(1)))?.map(Kind::of);
    c.reply.simple(kind.map_or("none", Kind::name));
    Ok(())
}

fn rename(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (from, to) = (c.key(args.get(1)), c.key(args.get(2)));
    c.tx.get(&from)?.ok_or(NO_KEY)?;
    c.take_over(&from, &to)?;
    c.reply.ok();
    Ok(())
}

fn renamenx(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (from, to) = (c.key(args.get(1)), c.key(args.get(2)));
    c.tx.get(&from)?.ok_or(NO_KEY)?;
    let free = c.tx.get(&to)?.is_none();
    if free {
        c.take_over(&from, &to)?;
    }
    c.reply.int(free.into());
    Ok(())
}

/// The number by which a client knows a database.
pub(super) fn number_of_database(text: &[u8]) -> Outcome<u8> {
    let number = int(text)?;
    if i32::try_from(number).is_err() {
        return Err("ERR value is out of range, value must between -2147483648 and 2147483647".into());
    }
    Ok(u8::try_from(number).ok().filter(|number| *number < DATABASES).ok_or("ERR DB index is out of range")?)
}

/// The database of the store to which such a number leads.
fn database(c: &Context<'_>, text: &[u8]) -> Outcome<u8> {
    Ok(c.looks.databases.of(number_of_database(text)?))
}

fn move_key(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let db = database(c, args.get(2))?;
    if db == c.db {
        return Err("ERR source and destination objects are the same".into());
    }
    let (from, to) = (c.key(args.get(1)), stored(db, args.get(1)));
    let moved = c.tx.get(&from)?.is_some() && c.tx.get(&to)?.is_none();
    if moved {
        c.take_over(&from, &to)?;
    }
    c.reply.int(moved.into());
    Ok(())
}

fn copy(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (mut replace, mut db, mut at) = (false, c.db, 3);
    while at < args.len() {
        match args.get(at) {
            o if is(o, "REPLACE") => replace = true,
            o if is(o, "DB") && at + 1 < args.len() => {
                at += 1;
                db = database(c, args.get(at))?;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if db == c.db && args.get(1) == args.get(2) {
        return Err("ERR source and destination objects are the same".into());
    }
    let (from, to) = (c.key(args.get(1)), stored(db, args.get(2)));
    let copied = c.tx.get(&from)?.is_some() && (replace || c.tx.get(&to)?.is_none());
    if copied {
        c.duplicate(&from, &to)?;
    }
    c.reply.int(copied.into());
    Ok(())
}

// ---- expiry ---------------------------------------------------------------------------------------------------

fn expire(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    set_expiry(c, args, "expire", 1000, true)
}

fn pexpire(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    set_expiry(c, args, "pexpire", 1, true)
}

fn expireat(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    set_expiry(c, args, "expireat", 1000, false)
}

fn pexpireat(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    set_expiry(c, args, "pexpireat", 1, false)
}

fn set_expiry(c: &mut Context<'_>, args: &Arguments<'_>, name: &str, unit: i64, from_now: bool) -> Outcome {
    let from = if from_now { c.now as i64 } else { 0 };
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in args.from(3) {
        match option {
            o if is(o, "NX") => nx = true,
            o if is(o, "XX") => xx = true,
            o if is(o, "GT") => gt = true,
            o if is(o, "LT") => lt = true,
            o => return Err(naming("ERR Unsupported option %", &[o])),
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let amount = int(args.get(2))?;
    let at = amount.checked_mul(unit).and_then(|by| by.checked_add(from));
    let Some(at) = at else { return Err(Stop::Error(format!("ERR invalid expire time in '{name}' command"))) };
    let key = args.get(1);
    let stored = c.key(key);
    if c.tx.get(&stored)?.is_none() {
        c.reply.int(0);
        return Ok(());
    }
    let before = c.tx.expires(&stored)?.map(|at| at as i64);
    // One that stays counts as one that expires after all others.
    let refused = nx && before.is_some()
        || xx && before.is_none()
        || gt && before.is_none_or(|before| at <= before)
        || lt && before.is_some_and(|before| at >= before);
    if refused {
        c.reply.int(0);
        return Ok(());
    }
    if at <= c.now as i64 {
        c.remove(key)?;
    } else {
        c.set_expiry(&stored, Some(at as u64))?;
    }
    c.reply.int(1);
    Ok(())
}

fn persist(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let key = c.key(args.get(1));
    let was_to = c.tx.expires(&key)?.is_some();
    if was_to {
        c.set_expiry(&key, None)?;
    }
    c.reply.int(was_to.into());
    Ok(())
}

fn ttl(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_expiry(c, args, |at, now| (at.saturating_sub(now) + 500) / 1000)
}

fn pttl(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_expiry(c, args, u64::saturating_sub)
}

fn expiretime(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_expiry(c, args, |at, _| (at + 500) / 1000)
}

fn pexpiretime(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_expiry(c, args, |at, _| at)
}

fn answer_expiry(c: &mut Context<'_>, args: &Arguments<'_>, of: fn(u64, u64) -> u64) -> Outcome {
    let key = c.key(args.get(1));
    let there = c.tx.get(&key)?.is_some();
    let answer = match c.tx.expires(&key)? {
        Some(at) => of(at, c.now) as i64,
        None if there => -1,
        None => -2,
    };
    c.reply.int(answer);
    Ok(())
}

// ---- all of them ----------------------------------------------------------------------------------------------

/// Counts them one by one: a number kept in one place would be written by every insert.
fn dbsize(c: &mut Context<'_>, _: &Arguments<'_>) -> Outcome {
    let mut count = 0;
    c.scan(all(c.db, &[]), &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    c.reply.int(count);
    Ok(())
}

fn flushdb(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    flush_all(c, args, &[c.db])
}

fn flushall(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    flush_all(c, args, &(0..DATABASES).collect::<Vec<_>>())
}

/// From here on keys go in steps.
const AT_ONCE: usize = 4096;

fn flush_all(c: &mut Context<'_>, args: &Arguments<'_>, dbs: &[u8]) -> Outcome {
    match args.len() {
        1 => {}
        2 if is(args.get(1), "SYNC") || is(args.get(1), "ASYNC") => {}
        _ => return Err(SYNTAX.into()),
    }
    let mut keys = Vec::new();
    for db in dbs {
        c.scan(all(*db, &[]), &mut |key, value| {
            keys.push((key.to_vec(), Head::read(value)));
            ControlFlow::Continue(())
        })?;
    }
    if keys.len() > AT_ONCE && !c.looks.whole {
        return Err(Error::Flush(dbs.to_vec()).into());
    }
    remove_all(c.tx, keys)?;
    c.reply.ok();
    Ok(())
}

/// Removes keys with what they have. Elements are swept later, of short collections too: to find them one by one would take a scan for each.
fn remove_all(tx: &mut dyn Tx, keys: Vec<(Vec<u8>, Option<Head>)>) -> Result<()> {
    for (key, head) in keys {
        if let Some(head) = head {
            tx.put(&[&[GARBAGE], &head.id.to_be_bytes()[..]].concat(), &[], None)?;
        }
        tx.delete(&key)?;
    }
    Ok(())
}

fn keys(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let pattern = args.get(1);
    let mut found = Vec::new();
    c.scan(all(c.db, glob::literal(pattern)), &mut |key, _| {
        if glob::matches(pattern, &key[1..]) {
            found.push(key[1..].to_vec());
        }
        ControlFlow::Continue(())
    })?;
    c.reply.array(found.len());
    found.iter().for_each(|key| c.reply.bulk(key));
    Ok(())
}

/// The first key of a range.
fn first(c: &Context<'_>, range: Keys) -> Outcome<Option<Vec<u8>>> {
    let mut first = None;
    c.scan(range, &mut |key, _| {
        first = Some(key[1..].to_vec());
        ControlFlow::Break(())
    })?;
    Ok(first)
}

/// Of so many keys each is exactly as likely as the others.
const FEW: usize = 64;
/// Of more, so many are drawn, each with a likelihood that is known; one of them is taken, with weights that make up for it.
const DRAWN: usize = 8;

fn randomkey(c: &mut Context<'_>, _: &Arguments<'_>) -> Outcome {
    let mut keys = Vec::new();
    c.scan(all(c.db, &[]), &mut |key, _| {
        keys.push((key[1..].to_vec(), 1.0));
        if keys.len() > FEW { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if keys.len() > FEW {
        let low = keys.swap_remove(0).0;
        keys.clear();
        for _ in 0..DRAWN {
            keys.push(draw(c, low.clone())?);
        }
    }
    // Uniform in [0, 1).
    let fraction = (c.shared.random() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut left = fraction * keys.iter().map(|drawn| drawn.1).sum::<f64>();
    let taken = keys.iter().find(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    match taken.or(keys.last()) {
        Some((key, _)) => c.reply.bulk(key),
        None => c.reply.null(),
    }
    Ok(())
}

/// A key, drawn byte by byte among those that there are, and the inverse of its likelihood. `low` is the first of all keys.
fn draw(c: &Context<'_>, mut low: Vec<u8>) -> Outcome<(Vec<u8>, f64)> {
    let (mut prefix, mut weight) = (Vec::new(), 1.0);
    loop {
        let Some(high) = first(c, all(c.db, &prefix).reverse())? else { return Ok((low, weight)) };
        let common = low.iter().zip(&high).take_while(|(a, b)| a == b).count();
        // What comes next in a key: nothing, or a byte.
        let next = |key: &[u8]| key.get(common).map_or(0, |byte| 1 + u64::from(*byte));
        let (mut least, most) = (next(&low), next(&high));
        if least == most {
            return Ok((low, weight));
        }
        // One that ends here is a choice of its own, however far from it the first byte lies.
        let ends = u64::from(least == 0);
        let mut found = low.clone();
        if ends == 1 {
            let behind = Keys { from: Bound::Excluded(stored(c.db, &low)), ..all(c.db, &low) };
            found = first(c, behind)?.unwrap_or(high);
            least = next(&found);
        }
        let choices = most - least + 1 + ends;
        let drawn = c.shared.random() % choices;
        if drawn < ends {
            return Ok((low, weight * choices as f64));
        }
        let value = least + drawn - ends;
        prefix = low[..common].to_vec();
        let mut passed = 1;
        if value > least {
            let at = stored(c.db, &[&prefix[..], &[(value - 1) as u8]].concat());
            let whole = all(c.db, &prefix);
            let before = Keys { to: Bound::Excluded(at.clone()), ..whole.clone() }.reverse();
            let Some(there) = first(c, Keys { from: Bound::Included(at), ..whole })? else { return Ok((low, weight)) };
            // It is drawn for each value since the one before it.
            passed = next(&there) - first(c, before)?.map_or(least, |key| next(&key));
            found = there;
        }
        weight *= choices as f64 / passed.max(1) as f64;
        prefix.push((next(&found) - 1) as u8);
        low = found;
    }
}

/// What `SCAN`, `HSCAN` and their like ask for.
pub(super) struct Scanned<'b> {
    pub(super) cursor: u64,
    pub(super) pattern: &'b [u8],
    pub(super) count: usize,
    pub(super) kind: Option<&'b [u8]>,
    /// `HSCAN`'s NOVALUES.
    pub(super) names_only: bool,
}

/// Reads cursor and options, which begin at `at`.
pub(super) fn scanned<'b>(args: &Arguments<'b>, at: usize) -> Outcome<Scanned<'b>> {
    let cursor = std::str::from_utf8(args.get(at)).ok().and_then(|text| match text.strip_prefix('-') {
        Some(rest) => rest.parse::<u64>().ok().filter(|_| !rest.starts_with('+')).map(u64::wrapping_neg), // as `strtoul`
        None => text.parse().ok(),
    });
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let mut asked = Scanned { cursor, pattern: b"*", count: 10, kind: None, names_only: false };
    let mut at = at + 1;
    while at < args.len() {
        let value = args.get(at + 1);
        match args.get(at) {
            o if is(o, "NOVALUES") => {
                asked.names_only = true;
                at += 1;
                continue;
            }
            _ if at + 1 == args.len() => return Err(SYNTAX.into()),
            o if is(o, "MATCH") => asked.pattern = value,
            o if is(o, "COUNT") => {
                asked.count = usize::try_from(int(value)?).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            o if is(o, "TYPE") => asked.kind = Some(value),
            _ => return Err(SYNTAX.into()),
        }
        at += 2;
    }
    Ok(asked)
}

fn scan(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let asked = scanned(args, 1)?;
    let mut range = all(c.db, glob::literal(asked.pattern));
    // Behind the last key that was looked at. A cursor that is kept no longer begins again: a key may come twice, and none is left out.
    if let Some(last) = c.shared.cursors.last(asked.cursor) {
        range.from = Bound::Excluded(stored(c.db, &last));
    }
    let (mut found, mut looked, mut last) = (Vec::new(), 0, None);
    c.scan(range, &mut |key, value| {
        looked += 1;
        let key = &key[1..];
        if glob::matches(asked.pattern, key) && asked.kind.is_none_or(|kind| is(kind, Kind::of(value).name())) {
            found.push(key.to_vec());
        }
        if looked < asked.count {
            return ControlFlow::Continue(());
        }
        last = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    let next = last.map_or(0, |last| c.shared.cursors.keep(&last));
    c.reply.array(2);
    c.reply.bulk(next.to_string().as_bytes());
    c.reply.array(found.len());
    found.iter().for_each(|key| c.reply.bulk(key));
    Ok(())
}
