//! Sorted sets. Each member lies in order of members' places, with its score, and in order of scores.

use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::decimal::score as parse;
use super::flag::{FAST, READ, SORTED, WRITE};
use super::names::{self, NEGATIVE, Popped, answer_each, at_least, check, held, missing, popped, prefetch, slot};
use super::{Command, Context, KeysAt, ONE, Outcome, SYNTAX, Stop, data, is};
use crate::context::AHEAD;
use crate::data::{Head, Kind, SMALL_SORTED};
use crate::reply::Reply;
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[
    data("zadd", -4, WRITE | FAST | SORTED, ONE, zadd),
    data("zcard", 2, READ | FAST | SORTED, ONE, zcard),
    data("zincrby", 4, WRITE | FAST | SORTED, ONE, zincrby),
    data("zmpop", -4, WRITE | SORTED, KeysAt::Counted(1), zmpop),
    data("zmscore", -3, READ | FAST | SORTED, ONE, zmscore),
    data("zpopmax", -2, WRITE | FAST | SORTED, ONE, zpopmax),
    data("zpopmin", -2, WRITE | FAST | SORTED, ONE, zpopmin),
    data("zrandmember", -2, READ | SORTED, ONE, zrandmember),
    data("zrank", -3, READ | FAST | SORTED, ONE, zrank),
    data("zrem", -3, WRITE | FAST | SORTED, ONE, zrem),
    data("zrevrank", -3, READ | FAST | SORTED, ONE, zrevrank),
    data("zscan", -3, READ | SORTED, ONE, zscan),
    data("zscore", 3, READ | FAST | SORTED, ONE, zscore),
];

/// A member and its score.
pub(super) type Scored = (Vec<u8>, f64);

/// What keys of elements go on with that lie in order of scores.
const BY_SCORE: &[u8] = &[1];
/// Bytes of such a key before its member.
const MEMBER_AT: usize = 1 + 8 + 1 + 8;

/// What stands with such a key whose score is a negative zero: the key is that of zero, since both are equal.
const NEGATIVE_ZERO: &[u8] = b"-";

/// Eight bytes whose order is that of numbers; those of zero for a negative zero.
pub(super) fn ordered(score: f64) -> u64 {
    exact(score + 0.0)
}

/// The same, and a negative zero has bytes of its own.
fn exact(score: f64) -> u64 {
    let bits = score.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The score of eight such bytes.
pub(super) fn score(bytes: &[u8]) -> f64 {
    let bits = bytes.try_into().map_or(0, u64::from_be_bytes);
    f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits })
}

/// The key of a member among the scores; what is before all members of that score if it is empty.
pub(super) fn among_scores(head: &Head, score: f64, member: &[u8]) -> Vec<u8> {
    head.element(&[BY_SCORE, &ordered(score).to_be_bytes(), member])
}

/// All members in order of scores.
pub(super) fn by_score(head: &Head) -> Keys {
    head.elements(&[BY_SCORE])
}

/// Visits members and scores of a range of those in order of scores.
pub(super) fn each(c: &Context<'_>, range: Keys, visit: &mut dyn FnMut(&[u8], f64) -> ControlFlow<()>) -> Outcome {
    if let (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) =
        (&range.from, &range.to)
        && from > to
    {
        return Ok(());
    }
    Ok(c.scan(range, &mut |key, sign| {
        let (head, member) = key.split_at(MEMBER_AT.min(key.len()));
        let score = score(head.get(MEMBER_AT - 8..).unwrap_or_default());
        visit(member, if sign == NEGATIVE_ZERO { -score } else { score })
    })?)
}

pub(super) fn score_of(c: &Context<'_>, head: Option<&Head>, member: &[u8]) -> Outcome<Option<f64>> {
    match head {
        Some(head) => Ok(held(c, head, member)?.map(score)),
        None => Ok(None),
    }
}

/// Whether a sorted set that has such members at once keeps the signs of zeros.
pub(super) fn keeps_signs<'m>(members: impl ExactSizeIterator<Item = &'m Vec<u8>>) -> bool {
    members.len() as u64 > SMALL_SORTED.0 || members.into_iter().any(|member| member.len() > SMALL_SORTED.1)
}

/// Sets a member's score, where it has had `old`. The caller saves the head.
pub(super) fn set(c: &mut Context<'_>, head: &mut Head, member: &[u8], score: f64, old: Option<f64>) -> Outcome {
    if old.is_none() && (head.count >= SMALL_SORTED.0 || member.len() > SMALL_SORTED.1) {
        head.keep_signs();
    }
    let score = if head.keeps_signs() { score } else { score + 0.0 };
    set_exactly(c, head, member, score, old)
}

/// The same, and zero has its sign whatever the set is like.
pub(super) fn set_exactly(
    c: &mut Context<'_>,
    head: &mut Head,
    member: &[u8],
    score: f64,
    old: Option<f64>,
) -> Outcome {
    match old {
        Some(old) => drop(c.tx.delete(&among_scores(head, old, member))?),
        None => head.count += 1,
    }
    let slot = slot(c, head, member);
    c.tx.put(&slot, &exact(score).to_be_bytes(), None)?;
    let sign = if score == 0.0 && score.is_sign_negative() { NEGATIVE_ZERO } else { &[] };
    Ok(c.tx.put(&among_scores(head, score, member), sign, None)?)
}

/// Removes members, all of which are there, and saves the head.
pub(super) fn remove(c: &mut Context<'_>, key: &[u8], mut head: Head, members: &[Scored]) -> Outcome {
    if members.len() as u64 == head.count {
        c.remove(key)?;
        return Ok(());
    }
    for (member, score) in members {
        let slot = slot(c, &head, member);
        c.tx.delete(&slot)?;
        c.tx.delete(&among_scores(&head, *score, member))?;
    }
    head.count = head.count.checked_sub(members.len() as u64).ok_or_else(missing)?;
    if members.is_empty() { Ok(()) } else { c.save(key, &head) }
}

// ---- writing --------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    /// Counts those that were changed, too.
    changed: bool,
    increment: bool,
}

/// The options of `ZADD`, and where they end.
fn options(args: &Arguments<'_>) -> Outcome<(Options, usize)> {
    let (mut o, mut at) = (Options::default(), 2);
    while at < args.len() {
        match args.get(at) {
            word if is(word, "NX") => o.only_new = true,
            word if is(word, "XX") => o.only_old = true,
            word if is(word, "GT") => o.only_greater = true,
            word if is(word, "LT") => o.only_less = true,
            word if is(word, "CH") => o.changed = true,
            word if is(word, "INCR") => o.increment = true,
            _ => break,
        }
        at += 1;
    }
    let left = args.len() - at;
    if left == 0 || !left.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if o.only_new && o.only_old {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if o.only_new && (o.only_greater || o.only_less) || o.only_greater && o.only_less {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if o.increment && left > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    Ok((o, at))
}

fn zadd(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (options, at) = options(args)?;
    let scores = args.from(at).step_by(2).map(parse).collect::<Outcome<Vec<_>>>()?;
    add(c, args.get(1), &scores, args.from(at + 1).step_by(2).collect(), options)
}

/// `GEOADD`: only members that are new, or that are there, and whether those that were changed are counted.
pub(super) fn add_scored(
    c: &mut Context<'_>,
    key: &[u8],
    scores: &[f64],
    members: Vec<&[u8]>,
    (only_new, only_old, changed): (bool, bool, bool),
) -> Outcome {
    add(c, key, scores, members, Options { only_new, only_old, changed, ..Options::default() })
}

fn zincrby(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let options = Options { increment: true, ..Options::default() };
    add(c, args.get(1), &[parse(args.get(2))?], vec![args.get(3)], options)
}

fn add(c: &mut Context<'_>, key: &[u8], scores: &[f64], members: Vec<&[u8]>, o: Options) -> Outcome {
    let mut head = c.head_or_new(key, Kind::Sorted)?;
    check(c, members.iter().copied())?;
    let (mut new, mut changed, mut result) = (0, 0, None);
    for (at, (member, score)) in members.iter().zip(scores).enumerate() {
        if at.is_multiple_of(AHEAD) {
            prefetch(c, &head, &members[at..members.len().min(at + AHEAD)]);
        }
        let old = score_of(c, Some(&head), member)?;
        let score = old.filter(|_| o.increment).map_or(*score, |old| score + old);
        let refused = match old {
            None => o.only_old,
            Some(_) if o.only_new => true,
            // There is only one then, so nothing was written before.
            Some(_) if score.is_nan() => return Err("ERR resulting score is not a number (NaN)".into()),
            Some(old) => o.only_greater && score <= old || o.only_less && score >= old,
        };
        if refused {
            continue;
        }
        result = Some(score);
        if old != Some(score) {
            set(c, &mut head, member, score, old)?;
            if old.is_some() { changed += 1 } else { new += 1 }
        }
    }
    if new + changed > 0 {
        c.save(key, &head)?;
    }
    match result {
        _ if !o.increment => c.reply.int(new + if o.changed { changed } else { 0 }),
        Some(score) => c.reply.double(score),
        None => c.reply.null(),
    }
    Ok(())
}

fn zrem(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let mut gone: Vec<Scored> = Vec::new();
    if let Some(head) = c.head(args.get(1), Kind::Sorted)? {
        let mut members: Vec<&[u8]> = args.from(2).collect();
        members.sort_unstable();
        members.dedup();
        for member in members {
            gone.extend(score_of(c, Some(&head), member)?.map(|score| (member.to_vec(), score)));
        }
        remove(c, args.get(1), head, &gone)?;
    }
    c.reply.int(gone.len() as i64);
    Ok(())
}

// ---- popping --------------------------------------------------------------------------------------------------

/// Which of them goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Min,
    Max,
}

impl End {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        match word {
            word if is(word, "MIN") => Some(Self::Min),
            word if is(word, "MAX") => Some(Self::Max),
            _ => None,
        }
    }
}

/// Removes and returns members from one end, as many as there are.
pub(super) fn pop(c: &mut Context<'_>, key: &[u8], end: End, count: u64) -> Outcome<Vec<(Vec<u8>, f64)>> {
    let Some(head) = c.head(key, Kind::Sorted)? else { return Ok(Vec::new()) };
    let mut popped = Vec::new();
    if count > 0 {
        each(c, Keys { reverse: end == End::Max, ..by_score(&head) }, &mut |member, score| {
            popped.push((member.to_vec(), score));
            if popped.len() as u64 == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        remove(c, key, head, &popped)?;
    }
    Ok(popped)
}

fn zpopmin(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop_command(c, args, End::Min)
}

fn zpopmax(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    pop_command(c, args, End::Max)
}

fn pop_command(c: &mut Context<'_>, args: &Arguments<'_>, end: End) -> Outcome {
    let count = match args.len() {
        2 => None,
        3 => Some(at_least(args.get(2), 0, NEGATIVE)?),
        _ => return Err(SYNTAX.into()),
    };
    let popped = pop(c, args.get(1), end, count.unwrap_or(1))?;
    match (count, popped.first()) {
        // The one without a number is not in an array of its own.
        (None, Some((member, score))) => {
            c.reply.array(2);
            c.reply.bulk(member);
            c.reply.double(*score);
        }
        _ => answer(c.reply, &popped, true),
    }
    Ok(())
}

fn zmpop(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let Popped { keys, end, count } = popped(args, 1, End::of)?;
    if !pop_first(c, &keys, end, count)? {
        c.reply.null_array();
    }
    Ok(())
}

/// Pops from the first sorted set that is there, and answers with its key and the members; false, and no answer, if none is.
pub(super) fn pop_first(c: &mut Context<'_>, keys: &[&[u8]], end: End, count: u64) -> Outcome<bool> {
    for key in keys {
        let popped = pop(c, key, end, count)?;
        if !popped.is_empty() {
            c.reply.array(2);
            c.reply.bulk(key);
            c.reply.array(popped.len());
            for (member, score) in &popped {
                c.reply.array(2);
                c.reply.bulk(member);
                c.reply.double(*score);
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// Members, with their scores: in arrays of two for version 3, one after another for version 2.
pub(super) fn answer(reply: &mut Reply, members: &[Scored], scores: bool) {
    let wide = if scores && !reply.three { 2 } else { 1 };
    reply.array(members.len() * wide);
    for (member, score) in members {
        if scores && reply.three {
            reply.array(2);
        }
        reply.bulk(member);
        if scores {
            reply.double(*score);
        }
    }
}

// ---- reading --------------------------------------------------------------------------------------------------

fn zcard(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let count = c.head(args.get(1), Kind::Sorted)?.map_or(0, |head| head.count);
    c.reply.int(count as i64);
    Ok(())
}

fn zscore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let head = c.head(args.get(1), Kind::Sorted)?;
    let score = score_of(c, head.as_ref(), args.get(2))?;
    c.reply.maybe_double(score);
    Ok(())
}

fn zmscore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answer_each(c, args, Kind::Sorted, |reply, held| reply.maybe_double(held.map(score)))
}

fn zrank(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    rank(c, args, "zrank", false)
}

fn zrevrank(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    rank(c, args, "zrevrank", true)
}

/// Counts the members before it one by one: numbers kept in the store for this would be written by every change.
fn rank(c: &mut Context<'_>, args: &Arguments<'_>, command: &str, reverse: bool) -> Outcome {
    let with_score = match args.len() {
        3 => false,
        4 if is(args.get(3), "WITHSCORE") => true,
        4 => return Err(SYNTAX.into()),
        _ => return Err(Stop::Error(format!("ERR wrong number of arguments for '{command}' command"))),
    };
    let (head, member) = (c.head(args.get(1), Kind::Sorted)?, args.get(2));
    let (Some(head), Some(score)) = (&head, score_of(c, head.as_ref(), member)?) else {
        if with_score {
            c.reply.null_array()
        } else {
            c.reply.null()
        }
        return Ok(());
    };
    let here = among_scores(head, score, member);
    let all = by_score(head);
    let before = if reverse { Keys { from: Bound::Excluded(here), ..all } } else { all.until(&here) };
    let mut rank = 0;
    each(c, before, &mut |_, _| {
        rank += 1;
        ControlFlow::Continue(())
    })?;
    if with_score {
        c.reply.array(2);
    }
    c.reply.int(rank);
    if with_score {
        c.reply.double(score);
    }
    Ok(())
}

fn zrandmember(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    names::random(c, args, Kind::Sorted, Some(("WITHSCORES", |reply, held| reply.double(score(held)))))
}

fn zscan(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    names::scan(c, args, Kind::Sorted, Some(|reply, held| reply.bulk(crate::reply::double(score(held)).as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_scores_are_in_order() {
        let numbers = [f64::NEG_INFINITY, f64::MIN, -1.5, -f64::MIN_POSITIVE, 0.0, 5e-324, 1.0, 1e300, f64::INFINITY];
        assert!(numbers.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert!(numbers.iter().all(|number| score(&ordered(*number).to_be_bytes()).to_bits() == number.to_bits()));
        assert_eq!(ordered(-0.0), ordered(0.0));
        assert_eq!(score(&exact(-0.0).to_be_bytes()).to_bits(), (-0.0_f64).to_bits());
    }
}
