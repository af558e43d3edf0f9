//! Hashes.

use std::ops::ControlFlow;

use super::flag::{FAST, HASH, READ, WRITE};
use super::names::{answer_each, check, each, held, missing, prefetch, put, random, scan, take};
use super::{Command, Context, ONE, Outcome, Stop, data, decimal, float, int};
use crate::context::AHEAD;
use crate::data::Kind;
use crate::reply::Reply;
use crate::request::{Arguments, number};

pub(super) const COMMANDS: &[Command] = &[
    data("hdel", -3, WRITE | FAST | HASH, ONE, hdel),
    data("hexists", 3, READ | FAST | HASH, ONE, hexists),
    data("hget", 3, READ | FAST | HASH, ONE, hget),
    data("hgetall", 2, READ | HASH, ONE, hgetall),
    data("hincrby", 4, WRITE | FAST | HASH, ONE, hincrby),
    data("hincrbyfloat", 4, WRITE | FAST | HASH, ONE, hincrbyfloat),
    data("hkeys", 2, READ | HASH, ONE, hkeys),
    data("hlen", 2, READ | FAST | HASH, ONE, hlen),
    data("hmget", -3, READ | FAST | HASH, ONE, hmget),
    data("hmset", -4, WRITE | FAST | HASH, ONE, hmset),
    data("hrandfield", -2, READ | HASH, ONE, hrandfield),
    data("hscan", -3, READ | HASH, ONE, hscan),
    data("hset", -4, WRITE | FAST | HASH, ONE, hset),
    data("hsetnx", 4, WRITE | FAST | HASH, ONE, hsetnx),
    data("hstrlen", 3, READ | FAST | HASH, ONE, hstrlen),
    data("hvals", 2, READ | HASH, ONE, hvals),
];

fn hset(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let new = set(c, args, "hset")?;
    c.reply.int(new);
    Ok(())
}

fn hmset(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    set(c, args, "hmset")?;
    c.reply.ok();
    Ok(())
}

/// Sets fields; says how many are new.
fn set(c: &mut Context<'_>, args: &Arguments<'_>, command: &str) -> Outcome<i64> {
    if !args.len().is_multiple_of(2) {
        return Err(Stop::Error(format!("ERR wrong number of arguments for '{command}' command")));
    }
    let mut head = c.head_or_new(args.get(1), Kind::Hash)?;
    check(c, args.from(2).step_by(2))?;
    let mut new = 0;
    let pairs: Vec<_> = (2..args.len()).step_by(2).map(|at| (args.get(at), args.get(at + 1))).collect();
    for some in pairs.chunks(AHEAD) {
        prefetch(c, &head, &some.iter().map(|(field, _)| *field).collect::<Vec<_>>());
        for (field, value) in some {
            new += i64::from(put(c, &mut head, field, value)?);
        }
    }
    c.save(args.get(1), &head)?;
    Ok(new)
}

fn hsetnx(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut head = c.head_or_new(args.get(1), Kind::Hash)?;
    check(c, args.from(2).take(1))?;
    let new = held(c, &head, args.get(2))?.is_none();
    if new {
        put(c, &mut head, args.get(2), args.get(3))?;
        c.save(args.get(1), &head)?;
    }
    c.reply.int(new.into());
    Ok(())
}

fn hdel(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut gone = 0;
    if let Some(mut head) = c.head(args.get(1), Kind::Hash)? {
        for field in args.from(2) {
            gone += i64::from(take(c, &mut head, field)?);
        }
        if gone > 0 {
            c.save(args.get(1), &head)?;
        }
    }
    c.reply.int(gone);
    Ok(())
}

// ---- numbers --------------------------------------------------------------------------------------------------

fn hincrby(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (field, by) = (args.get(2), int(args.get(3))?);
    let mut head = c.head_or_new(args.get(1), Kind::Hash)?;
    check(c, [field].into_iter())?;
    let old = held(c, &head, field)?.map_or(Some(0), number).ok_or("ERR hash value is not an integer")?;
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    put(c, &mut head, field, new.to_string().as_bytes())?;
    c.save(args.get(1), &head)?;
    c.reply.int(new);
    Ok(())
}

fn hincrbyfloat(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (field, by) = (args.get(2), args.get(3));
    if !float(by)?.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let mut head = c.head_or_new(args.get(1), Kind::Hash)?;
    check(c, [field].into_iter())?;
    let old = held(c, &head, field)?.unwrap_or(b"0");
    let new = decimal::sum(old, by, "ERR hash value is not a float")?;
    put(c, &mut head, field, new.as_bytes())?;
    c.save(args.get(1), &head)?;
    c.reply.bulk(new.as_bytes());
    Ok(())
}

// ---- one field, or some ---------------------------------------------------------------------------------------

fn hget(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    hold(c, args, |reply, value| reply.maybe(value))
}

fn hexists(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    hold(c, args, |reply, value| reply.int(value.is_some().into()))
}

fn hstrlen(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    hold(c, args, |reply, value| reply.int(value.map_or(0, <[u8]>::len) as i64))
}

/// Answers with what a field has.
fn hold(c: &mut Context<'_>, args: &Arguments<'_>, answer: fn(&mut Reply, Option<&[u8]>)) -> Outcome {
    let value = match c.head(args.get(1), Kind::Hash)? {
        None => None,
        Some(head) => held(c, &head, args.get(2))?.map(<[u8]>::to_vec),
    };
    answer(c.reply, value.as_deref());
    Ok(())
}

fn hmget(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_each(c, args, Kind::Hash, Reply::maybe)
}

fn hlen(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let count = c.head(args.get(1), Kind::Hash)?.map_or(0, |head| head.count);
    c.reply.int(count as i64);
    Ok(())
}

// ---- all of them ----------------------------------------------------------------------------------------------

fn hgetall(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Reply::map, true, true)
}

fn hkeys(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Reply::array, true, false)
}

fn hvals(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Reply::array, false, true)
}

fn list(c: &mut Context<'_>, args: &Arguments<'_>, begin: fn(&mut Reply, usize), names: bool, values: bool) -> Outcome {
    let Some(head) = c.head(args.get(1), Kind::Hash)? else {
        begin(c.reply, 0);
        return Ok(());
    };
    let mut reply = std::mem::take(c.reply);
    begin(&mut reply, head.count as usize);
    let mut found = 0;
    let listed = each(c, &head, 0, &mut |name, value| {
        found += 1;
        if names {
            reply.bulk(name);
        }
        if values {
            reply.bulk(value);
        }
        ControlFlow::Continue(())
    });
    *c.reply = reply;
    listed?;
    if found == head.count { Ok(()) } else { Err(missing()) }
}

fn hrandfield(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    random(c, args, Kind::Hash, Some(("WITHVALUES", |reply, value| reply.bulk(value))))
}

fn hscan(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    scan(c, args, Kind::Hash, Some(|reply, value| reply.bulk(value)))
}
