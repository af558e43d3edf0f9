//! Sets.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::flag::{FAST, READ, SET, WRITE};
use super::names::{
    NEGATIVE, all, answer_each, at_least, check, draw, draw_different, held, limited, prefetch, put, random, scan,
    take, walk,
};
use super::{Command, Context, KeysAt, MANY, ONE, Outcome, SYNTAX, data};
use crate::context::AHEAD;
use crate::data::{Head, Kind};
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[
    data("sadd", -3, WRITE | FAST | SET, ONE, sadd),
    data("scard", 2, READ | FAST | SET, ONE, scard),
    data("sdiff", -2, READ | SET, MANY, sdiff),
    data("sdiffstore", -3, WRITE | SET, MANY, sdiffstore),
    data("sinter", -2, READ | SET, MANY, sinter),
    data("sintercard", -3, READ | SET, KeysAt::Counted(1), sintercard),
    data("sinterstore", -3, WRITE | SET, MANY, sinterstore),
    data("sismember", 3, READ | FAST | SET, ONE, sismember),
    data("smembers", 2, READ | SET, ONE, smembers),
    data("smismember", -3, READ | FAST | SET, ONE, smismember),
    data("smove", 4, WRITE | FAST | SET, KeysAt::Range(1, 2, 1), smove),
    data("spop", -2, WRITE | FAST | SET, ONE, spop),
    data("srandmember", -2, READ | SET, ONE, srandmember),
    data("srem", -3, WRITE | FAST | SET, ONE, srem),
    data("sscan", -3, READ | SET, ONE, sscan),
    data("sunion", -2, READ | SET, MANY, sunion),
    data("sunionstore", -3, WRITE | SET, MANY, sunionstore),
];

fn sadd(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut head = c.head_or_new(args.get(1), Kind::Set)?;
    check(c, args.from(2))?;
    let mut new = 0;
    let members: Vec<_> = args.from(2).collect();
    for some in members.chunks(AHEAD) {
        prefetch(c, &head, some);
        for member in some {
            new += i64::from(put(c, &mut head, member, &[])?);
        }
    }
    if new > 0 {
        c.save(args.get(1), &head)?;
    }
    c.reply.int(new);
    Ok(())
}

fn srem(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut gone = 0;
    if let Some(mut head) = c.head(args.get(1), Kind::Set)? {
        for member in args.from(2) {
            gone += i64::from(take(c, &mut head, member)?);
        }
        if gone > 0 {
            c.save(args.get(1), &head)?;
        }
    }
    c.reply.int(gone);
    Ok(())
}

fn smove(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (from, to, member) = (args.get(1), args.get(2), args.get(3));
    let Some(mut source) = c.head(from, Kind::Set)? else {
        c.reply.int(0);
        return Ok(());
    };
    let mut target = c.head_or_new(to, Kind::Set)?;
    let there = has(c, Some(&source), member)?;
    if there && from != to {
        take(c, &mut source, member)?;
        c.save(from, &source)?;
        // A target that has it already is as it was, for clients that watch it too.
        if put(c, &mut target, member, &[])? {
            c.save(to, &target)?;
        }
    }
    c.reply.int(there.into());
    Ok(())
}

fn has(c: &Context<'_>, head: Option<&Head>, member: &[u8]) -> Outcome<bool> {
    match head {
        Some(head) => Ok(held(c, head, member)?.is_some()),
        None => Ok(false),
    }
}

fn sismember(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let head = c.head(args.get(1), Kind::Set)?;
    let there = has(c, head.as_ref(), args.get(2))?;
    c.reply.int(there.into());
    Ok(())
}

fn smismember(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_each(c, args, Kind::Set, |reply, held| reply.int(held.is_some().into()))
}

fn scard(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let count = c.head(args.get(1), Kind::Set)?.map_or(0, |head| head.count);
    c.reply.int(count as i64);
    Ok(())
}

fn smembers(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let heads = [c.head(args.get(1), Kind::Set)?];
    let members = union(c, &heads)?;
    answer(c, &members);
    Ok(())
}

fn answer(c: &mut Context<'_>, members: &[Vec<u8>]) {
    c.reply.set(members.len());
    members.iter().for_each(|member| c.reply.bulk(member));
}

fn srandmember(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    random(c, args, Kind::Set, None)
}

fn spop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let key = args.get(1);
    let count = match args.len() {
        2 => None,
        3 => Some(at_least(args.get(2), 0, NEGATIVE)?),
        _ => return Err(SYNTAX.into()),
    };
    let Some(mut head) = c.head(key, Kind::Set)? else {
        if count.is_some() {
            c.reply.set(0)
        } else {
            c.reply.null()
        }
        return Ok(());
    };
    let drawn = match count {
        Some(count) => draw_different(c, &head, count)?,
        None => vec![draw(c, &head)?],
    };
    if drawn.len() as u64 == head.count {
        c.remove(key)?;
    } else if !drawn.is_empty() {
        for (member, _) in &drawn {
            take(c, &mut head, member)?;
        }
        c.save(key, &head)?;
    }
    if count.is_some() {
        c.reply.set(drawn.len());
    }
    drawn.iter().for_each(|(member, _)| c.reply.bulk(member));
    Ok(())
}

fn sscan(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    scan(c, args, Kind::Set, None)
}

// ---- several sets ---------------------------------------------------------------------------------------------

type Heads = [Option<Head>];

/// All sets of a request from an argument on; each must be a set, or nothing.
fn heads<'b>(c: &Context<'_>, keys: impl Iterator<Item = &'b [u8]>) -> Outcome<Vec<Option<Head>>> {
    keys.map(|key| c.head(key, Kind::Set)).collect()
}

/// Members of all of them: at most `most`.
fn intersection(c: &Context<'_>, heads: &Heads, most: u64) -> Outcome<Vec<Vec<u8>>> {
    let Some(mut heads) = heads.iter().copied().collect::<Option<Vec<_>>>() else { return Ok(Vec::new()) };
    // The smallest is gone through, and its members are looked up in the others.
    heads.sort_unstable_by_key(|head| head.count);
    let Some((smallest, others)) = heads.split_first() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    walk(c, smallest, &mut |member, _| {
        for other in others {
            if !has(c, Some(other), member)? {
                return Ok(ControlFlow::Continue(()));
            }
        }
        found.push(member.to_vec());
        Ok(if found.len() as u64 == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Members of any of them.
fn union(c: &Context<'_>, heads: &Heads) -> Outcome<Vec<Vec<u8>>> {
    if let [Some(only)] = heads {
        return Ok(all(c, only)?.into_iter().map(|(member, _)| member).collect());
    }
    let mut found = BTreeSet::new();
    for head in heads.iter().flatten() {
        found.extend(all(c, head)?.into_iter().map(|(member, _)| member));
    }
    Ok(found.into_iter().collect())
}

/// Members of the first one and of no other.
fn difference(c: &Context<'_>, heads: &Heads) -> Outcome<Vec<Vec<u8>>> {
    let Some((Some(first), others)) = heads.split_first() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    walk(c, first, &mut |member, _| {
        for other in others {
            if has(c, other.as_ref(), member)? {
                return Ok(ControlFlow::Continue(()));
            }
        }
        found.push(member.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

type Operation = fn(&Context<'_>, &Heads) -> Outcome<Vec<Vec<u8>>>;

fn combine(c: &mut Context<'_>, args: &Arguments<'_>, operation: Operation) -> Outcome {
    let heads = heads(c, args.from(1))?;
    let members = operation(c, &heads)?;
    answer(c, &members);
    Ok(())
}

/// The same, into the first key.
fn store(c: &mut Context<'_>, args: &Arguments<'_>, operation: Operation) -> Outcome {
    let heads = heads(c, args.from(2))?;
    let members = operation(c, &heads)?;
    c.remove(args.get(1))?;
    if !members.is_empty() {
        let mut head = c.head_or_new(args.get(1), Kind::Set)?;
        for member in &members {
            put(c, &mut head, member, &[])?;
        }
        c.save(args.get(1), &head)?;
    }
    c.reply.int(members.len() as i64);
    Ok(())
}

fn whole_intersection(c: &Context<'_>, heads: &Heads) -> Outcome<Vec<Vec<u8>>> {
    intersection(c, heads, u64::MAX)
}

fn sinter(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    combine(c, args, whole_intersection)
}

fn sunion(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    combine(c, args, union)
}

fn sdiff(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    combine(c, args, difference)
}

fn sinterstore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    store(c, args, whole_intersection)
}

fn sunionstore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    store(c, args, union)
}

fn sdiffstore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    store(c, args, difference)
}

fn sintercard(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let count = at_least(args.get(1), 1, "ERR numkeys should be greater than 0")?;
    let count = usize::try_from(count).ok().filter(|count| *count <= args.len() - 2);
    let count = count.ok_or("ERR Number of keys can't be greater than number of args")?;
    let limit = limited(args, count)?;
    let heads = heads(c, args.from(2).take(count))?;
    let found = intersection(c, &heads, if limit == 0 { u64::MAX } else { limit })?;
    c.reply.int(found.len() as i64);
    Ok(())
}
