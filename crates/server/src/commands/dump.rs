//! Values as bytes, and back.

use std::ops::ControlFlow;

use super::flag::{DANGEROUS, KEYSPACE, READ, WRITE};
use super::lists::{self, End};
use super::{Command, Context, ONE, Outcome, SYNTAX, data, int, is, names, sorted, streams};
use crate::data::chunks::Text;
use crate::data::{Head, Kind};
use crate::engine::Error;
use crate::rdb::{self, Value};
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] =
    &[data("dump", 2, READ | KEYSPACE, ONE, dump), data("restore", -4, WRITE | KEYSPACE | DANGEROUS, ONE, restore)];

const UNKNOWN: &str = "the key has a value of no type that this server knows; next: run `cairn check`, or serve the store with the version that wrote it";

fn dump(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let value = c.tx.get(&c.key(args.get(1)))?;
    c.looks.at(value.is_some());
    let value = match value {
        None => None,
        Some(value) => Some(match (Text::read(value)?, Head::read(value)) {
            (Some(text), _) => {
                c.reads(text.len())?;
                Value::String(text.bytes(&*c.tx)?.into_owned())
            }
            (None, Some(head)) => collection(c, &head)?,
            (None, None) => return Err(Error::Damaged(UNKNOWN.to_owned()).into()),
        }),
    };
    c.reply.maybe(value.map(|value| rdb::payload(&value)).as_deref());
    Ok(())
}

/// Copies of all that a collection has.
fn collection(c: &Context<'_>, head: &Head) -> Outcome<Value> {
    Ok(match head.kind {
        Kind::String => Value::String(Vec::new()),
        Kind::List => Value::List(lists::copies(c, head, 0, head.count)?),
        Kind::Hash => Value::Hash(names::all(c, head)?),
        Kind::Set => Value::Set(names::all(c, head)?.into_iter().map(|(member, _)| member).collect()),
        Kind::Sorted => {
            c.passes(head.count)?;
            let mut members = Vec::new();
            sorted::each(c, sorted::by_score(head), &mut |member, score| {
                members.push((member.to_vec(), score));
                ControlFlow::Continue(())
            })?;
            Value::Sorted(members)
        }
        Kind::Stream => Value::Stream(streams::dumped(c, head)?),
    })
}

/// What a byte of a payload takes, about, in nanoseconds.
const PAYLOAD_BYTE: u64 = 10;

fn restore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    c.takes(PAYLOAD_BYTE.saturating_mul(args.get(3).len() as u64))?;
    let key = args.get(1);
    let (mut replace, mut absolute, mut idle, mut frequency) = (false, false, None, None);
    let mut at = 4;
    while at < args.len() {
        let more = at + 1 < args.len();
        match args.get(at) {
            word if is(word, "REPLACE") => replace = true,
            word if is(word, "ABSTTL") => absolute = true,
            word if is(word, "IDLETIME") && more && frequency.is_none() => {
                idle = Some(int(args.get(at + 1))?);
                at += 1;
            }
            word if is(word, "FREQ") && more && idle.is_none() => {
                frequency = Some(int(args.get(at + 1))?);
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
        if idle.is_some_and(|idle| idle < 0) {
            return Err("ERR Invalid IDLETIME value, must be >= 0".into());
        }
        if frequency.is_some_and(|frequency| !(0..256).contains(&frequency)) {
            return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
        }
        at += 1;
    }
    let stored = c.key(key);
    let there = c.tx.get(&stored)?.is_some();
    if !replace {
        c.looks.at(there);
        if there {
            return Err("BUSYKEY Target key name already exists.".into());
        }
    }
    let ttl = int(args.get(2))?;
    let ttl = u64::try_from(ttl).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let (body, _) = rdb::opened(args.get(3)).ok_or(rdb::WRONG)?;
    let value = Value::of(body, rdb::ROOM).map_err(|error| match error {
        rdb::Error::Large => format!("ERR the payload is {error}"),
        _ => "ERR Bad data format".to_owned(),
    })?;
    check(c, &value)?;
    let expires = match ttl {
        0 => None,
        _ if absolute => Some(ttl),
        _ => Some(ttl.saturating_add(c.now).min(i64::MAX as u64)),
    };
    if replace {
        c.remove(key)?;
    }
    if expires.is_none_or(|at| at > c.now) {
        put(c, key, value)?;
        if expires.is_some() {
            c.set_expiry(&stored, expires)?;
        }
        let (idle, frequency) = (idle.map(i64::unsigned_abs), frequency.and_then(|count| u8::try_from(count).ok()));
        c.shared.evictor.set_use(&stored, idle, frequency, c.now);
    }
    c.reply.ok();
    Ok(())
}

/// Refuses what the store has no room for: afterwards nothing is refused.
fn check(c: &Context<'_>, value: &Value) -> Outcome {
    match value {
        Value::String(_) | Value::List(_) => Ok(()),
        Value::Set(members) => names::check(c, members.iter().map(Vec::as_slice)),
        Value::Sorted(members) => names::check(c, members.iter().map(|(member, _)| member.as_slice())),
        Value::Hash(fields) => names::check(c, fields.iter().map(|(field, _)| field.as_slice())),
        Value::Stream(stream) => streams::check_dumped(c, stream),
    }
}

/// Puts a value where there is none.
fn put(c: &mut Context<'_>, key: &[u8], value: Value) -> Outcome {
    let kind = match value {
        Value::String(bytes) => return c.put_string(key, &bytes, None),
        Value::List(_) => Kind::List,
        Value::Set(_) => Kind::Set,
        Value::Sorted(_) => Kind::Sorted,
        Value::Hash(_) => Kind::Hash,
        Value::Stream(_) => Kind::Stream,
    };
    let mut head = c.new_head(kind)?;
    match value {
        Value::String(_) => {}
        Value::List(elements) => {
            for element in &elements {
                c.looks.write(element.len())?;
                lists::push_one(c, &mut head, End::Right, element)?;
            }
        }
        Value::Set(members) => {
            for member in &members {
                c.looks.write(member.len())?;
                names::put(c, &mut head, member, &[])?;
            }
        }
        Value::Sorted(members) => {
            if sorted::keeps_signs(members.iter().map(|(member, _)| member)) {
                head.keep_signs();
            }
            // What a dump says has its sign: older versions of Redis wrote it for small sets, too.
            for (member, score) in &members {
                c.looks.write(member.len())?;
                sorted::set_exactly(c, &mut head, member, *score, None)?;
            }
        }
        Value::Hash(fields) => {
            for (field, value) in &fields {
                c.looks.write(field.len() + value.len())?;
                names::put(c, &mut head, field, value)?;
            }
        }
        Value::Stream(stream) => streams::restore(c, &mut head, stream)?,
    }
    c.save(key, &head)
}
