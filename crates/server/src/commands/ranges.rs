//! Ranges of sorted sets: by rank, by score, by member among those of one score.

use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::decimal::score as parse;
use super::flag::{FAST, READ, SORTED, WRITE};
use super::lists::part;
use super::sorted::{Scored, among_scores, answer, by_score, each, ordered, remove, set};
use super::{Command, Context, KeysAt, ONE, Outcome, SYNTAX, data, int, is};
use crate::data::{Head, Kind, SMALL_SORTED};
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[
    data("zcount", 4, READ | FAST | SORTED, ONE, zcount),
    data("zlexcount", 4, READ | FAST | SORTED, ONE, zlexcount),
    data("zrange", -4, READ | SORTED, ONE, zrange),
    data("zrangebylex", -4, READ | SORTED, ONE, zrangebylex),
    data("zrangebyscore", -4, READ | SORTED, ONE, zrangebyscore),
    data("zrangestore", -5, WRITE | SORTED, KeysAt::Range(1, 2, 1), zrangestore),
    data("zremrangebylex", 4, WRITE | SORTED, ONE, zremrangebylex),
    data("zremrangebyrank", 4, WRITE | SORTED, ONE, zremrangebyrank),
    data("zremrangebyscore", 4, WRITE | SORTED, ONE, zremrangebyscore),
    data("zrevrange", -4, READ | SORTED, ONE, zrevrange),
    data("zrevrangebylex", -4, READ | SORTED, ONE, zrevrangebylex),
    data("zrevrangebyscore", -4, READ | SORTED, ONE, zrevrangebyscore),
];

/// By what a range is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A bound of members of one score.
#[derive(Clone, Copy)]
enum Member<'b> {
    Least,
    Greatest,
    Included(&'b [u8]),
    Excluded(&'b [u8]),
}

impl Member<'_> {
    /// Whether what begins here has the member.
    fn begins_for(self, member: &[u8]) -> bool {
        match self {
            Self::Least => true,
            Self::Greatest => false,
            Self::Included(bound) => bound <= member,
            Self::Excluded(bound) => bound < member,
        }
    }

    /// Whether what ends here has the member.
    fn ends_for(self, member: &[u8]) -> bool {
        match self {
            Self::Least => false,
            Self::Greatest => true,
            Self::Included(bound) => member <= bound,
            Self::Excluded(bound) => member < bound,
        }
    }
}

/// A range as it was asked for.
#[derive(Clone, Copy)]
enum Range<'b> {
    /// The last one is included; from the end if negative.
    Rank(i64, i64),
    Score(Bound<f64>, Bound<f64>),
    Member(Member<'b>, Member<'b>),
}

fn range<'b>(by: By, min: &'b [u8], max: &'b [u8]) -> Outcome<Range<'b>> {
    Ok(match by {
        By::Rank => Range::Rank(int(min)?, int(max)?),
        By::Score => Range::Score(score_bound(min)?, score_bound(max)?),
        By::Member => Range::Member(member_bound(min)?, member_bound(max)?),
    })
}

fn score_bound(text: &[u8]) -> Outcome<Bound<f64>> {
    let number = |text: &[u8]| parse(text).map_err(|_| "ERR min or max is not a float");
    Ok(match text {
        [b'(', rest @ ..] => Bound::Excluded(number(rest)?),
        all => Bound::Included(number(all)?),
    })
}

fn member_bound(text: &[u8]) -> Outcome<Member<'_>> {
    Ok(match text {
        b"-" => Member::Least,
        b"+" => Member::Greatest,
        [b'[', rest @ ..] => Member::Included(rest),
        [b'(', rest @ ..] => Member::Excluded(rest),
        _ => return Err("ERR min or max not valid string range item".into()),
    })
}

/// What of a range is wanted.
#[derive(Clone, Copy)]
struct Window {
    reverse: bool,
    /// Members that are passed by; all of them if negative.
    offset: i64,
    /// Members at most; any number if negative.
    limit: i64,
}

const ALL: Window = Window { reverse: false, offset: 0, limit: -1 };

/// Keys of a range of scores.
pub(super) fn score_keys(head: &Head, min: Bound<f64>, max: Bound<f64>) -> Keys {
    // All members of a score lie before the first possible one of the next number.
    let behind = |score: f64| {
        let next = ordered(score) + 1;
        head.element(&[&[1], &next.to_be_bytes()])
    };
    let all = by_score(head);
    let from = match min {
        Bound::Included(score) => Bound::Included(among_scores(head, score, &[])),
        Bound::Excluded(score) => Bound::Included(behind(score)),
        Bound::Unbounded => all.from,
    };
    let to = match max {
        Bound::Included(score) => Bound::Excluded(behind(score)),
        Bound::Excluded(score) => Bound::Excluded(among_scores(head, score, &[])),
        Bound::Unbounded => all.to,
    };
    Keys { from, to, reverse: false }
}

/// Keys of a range of members, which have one score, that of the first one. None if they have several: their order is not that of the members then.
fn member_keys(c: &Context<'_>, head: &Head, min: Member<'_>, max: Member<'_>) -> Outcome<Option<Keys>> {
    let end = |keys: Keys| -> Outcome<f64> {
        let mut end = 0.0;
        each(c, keys, &mut |_, score| {
            end = score;
            ControlFlow::Break(())
        })?;
        Ok(end)
    };
    let all = by_score(head);
    let (score, last) = (end(all.clone())?, end(all.clone().reverse())?);
    if score != last {
        return Ok(None);
    }
    // Nothing lies between these two.
    let nothing = Keys {
        from: all.from.clone(),
        to: Bound::Excluded(among_scores(head, f64::NEG_INFINITY, &[])),
        reverse: false,
    };
    let from = match min {
        Member::Least => all.from,
        Member::Included(member) => Bound::Included(among_scores(head, score, member)),
        Member::Excluded(member) => Bound::Excluded(among_scores(head, score, member)),
        Member::Greatest => return Ok(Some(nothing)),
    };
    let to = match max {
        Member::Greatest => all.to,
        Member::Included(member) => Bound::Included(among_scores(head, score, member)),
        Member::Excluded(member) => Bound::Excluded(among_scores(head, score, member)),
        Member::Least => return Ok(Some(nothing)),
    };
    Ok(Some(Keys { from, to, reverse: false }))
}

/// Which members of several scores a range of members is: Redis says of small sets, what of large ones is not specified. In the order of scores, from the first that is not below the
/// lower bound to the one in front of the first that is above the upper one, backwards the other way round; none if the last is below the lower bound, or the first above the upper one.
struct Mixed<'b> {
    min: Member<'b>,
    max: Member<'b>,
    reverse: bool,
    begun: bool,
}

impl<'b> Mixed<'b> {
    fn of(c: &Context<'_>, head: &Head, (min, max): (Member<'b>, Member<'b>), reverse: bool) -> Outcome<Option<Self>> {
        let (mut any, all) = (true, by_score(head));
        each(c, all.clone(), &mut |first, _| {
            any &= max.ends_for(first);
            ControlFlow::Break(())
        })?;
        each(c, all.reverse(), &mut |last, _| {
            any &= min.begins_for(last);
            ControlFlow::Break(())
        })?;
        Ok(any.then_some(Self { min, max, reverse, begun: false }))
    }

    /// Whether the next member is one; none if it is behind the last one.
    fn has(&mut self, member: &[u8]) -> Option<bool> {
        let (above, below) = (self.min.begins_for(member), self.max.ends_for(member));
        let (begins, goes_on) = if self.reverse { (below, above) } else { (above, below) };
        if !self.begun && !begins {
            return Some(false);
        }
        self.begun = true;
        goes_on.then_some(true)
    }
}

/// Visits the members of a range in their order.
fn visit(
    c: &Context<'_>,
    head: &Head,
    range: Range<'_>,
    window: Window,
    visit: &mut dyn FnMut(&[u8], f64) -> ControlFlow<()>,
) -> Outcome {
    let mut mixed = None;
    let (keys, mut pass, mut left) = match range {
        Range::Rank(from, to) => {
            let (from, to) = part(from, to, head.count);
            (by_score(head), from, to.saturating_sub(from))
        }
        Range::Score(min, max) => (score_keys(head, min, max), window.offset as u64, window.limit as u64),
        Range::Member(min, max) => {
            let keys = match member_keys(c, head, min, max)? {
                Some(keys) => keys,
                None => {
                    mixed = Mixed::of(c, head, (min, max), window.reverse)?;
                    if mixed.is_none() {
                        return Ok(());
                    }
                    by_score(head)
                }
            };
            (keys, window.offset as u64, window.limit as u64)
        }
    };
    if left == 0 || window.offset < 0 {
        return Ok(());
    }
    each(c, Keys { reverse: window.reverse, ..keys }, &mut |member, score| {
        match mixed.as_mut().map_or(Some(true), |mixed| mixed.has(member)) {
            Some(true) => {}
            Some(false) => return ControlFlow::Continue(()),
            None => return ControlFlow::Break(()),
        }
        if pass > 0 {
            pass -= 1;
            return ControlFlow::Continue(());
        }
        left -= 1;
        if visit(member, score).is_break() || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

fn members(c: &Context<'_>, head: &Head, range: Range<'_>, window: Window) -> Outcome<Vec<Scored>> {
    // What is nearer to the end is reached from there.
    if let Range::Rank(from, to) = range {
        let (from, to) = part(from, to, head.count);
        if from < to && head.count - to < from {
            let count = head.count as i64;
            let turned = Range::Rank(count - to as i64, count - 1 - from as i64);
            let mut found = copies(c, head, turned, Window { reverse: !window.reverse, ..window })?;
            found.reverse();
            return Ok(found);
        }
    }
    copies(c, head, range, window)
}

fn copies(c: &Context<'_>, head: &Head, range: Range<'_>, window: Window) -> Outcome<Vec<Scored>> {
    let mut found = Vec::new();
    visit(c, head, range, window, &mut |member, score| {
        found.push((member.to_vec(), score));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

// ---- ZRANGE and its like --------------------------------------------------------------------------------------

/// Which form of the command it is: none where options say it.
#[derive(Clone, Copy)]
struct Form {
    /// The argument with the key.
    key_at: usize,
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

struct Asked<'b> {
    range: Range<'b>,
    window: Window,
    scores: bool,
}

fn asked<'b>(args: &Arguments<'b>, form: Form) -> Outcome<Asked<'b>> {
    let (mut by, mut reverse, mut scores, mut limit) = (form.by, form.reverse, false, (0, -1));
    let mut at = form.key_at + 3;
    while at < args.len() {
        match args.get(at) {
            o if !form.stores && is(o, "WITHSCORES") => scores = true,
            o if is(o, "LIMIT") && at + 2 < args.len() => {
                limit = (int(args.get(at + 1))?, int(args.get(at + 2))?);
                at += 2;
            }
            o if form.reverse.is_none() && is(o, "REV") => reverse = Some(true),
            o if by.is_none() && is(o, "BYLEX") => by = Some(By::Member),
            o if by.is_none() && is(o, "BYSCORE") => by = Some(By::Score),
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
    if limit.1 != -1 && by == By::Rank {
        return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into());
    }
    if scores && by == By::Member {
        return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
    }
    let (first, second) = (args.get(form.key_at + 1), args.get(form.key_at + 2));
    let (min, max) = if reverse && by != By::Rank { (second, first) } else { (first, second) };
    // A range of ranks is one place after another whatever offset was given with it.
    let offset = if by == By::Rank { 0 } else { limit.0 };
    Ok(Asked { range: range(by, min, max)?, window: Window { reverse, offset, limit: limit.1 }, scores })
}

fn list(c: &mut Context<'_>, args: &Arguments<'_>, by: Option<By>, reverse: Option<bool>) -> Outcome {
    let Asked { range, window, scores } = asked(args, Form { key_at: 1, by, reverse, stores: false })?;
    let found = match c.head(args.get(1), Kind::Sorted)? {
        Some(head) => members(c, &head, range, window)?,
        None => Vec::new(),
    };
    answer(c.reply, &found, scores);
    Ok(())
}

fn zrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, None, None)
}

fn zrevrange(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Some(By::Rank), Some(true))
}

fn zrangebyscore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Some(By::Score), Some(false))
}

fn zrevrangebyscore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Some(By::Score), Some(true))
}

fn zrangebylex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Some(By::Member), Some(false))
}

fn zrevrangebylex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    list(c, args, Some(By::Member), Some(true))
}

fn zrangestore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let Asked { range, window, .. } = asked(args, Form { key_at: 2, by: None, reverse: None, stores: true })?;
    let found = match c.head(args.get(2), Kind::Sorted)? {
        Some(head) => members(c, &head, range, window)?,
        None => Vec::new(),
    };
    // As in Redis: of ranks it is known before how many there are.
    let keeps_signs = matches!(range, Range::Rank(..)) && found.len() as u64 > SMALL_SORTED.0;
    store(c, args.get(1), &found, keeps_signs)?;
    c.reply.int(found.len() as i64);
    Ok(())
}

/// A new sorted set at a key, whatever it has had; none if there are no members. Zeros have their signs from the beginning, or as [`set`] has it.
pub(super) fn store(c: &mut Context<'_>, key: &[u8], members: &[Scored], keeps_signs: bool) -> Outcome {
    c.remove(key)?;
    if members.is_empty() {
        return Ok(());
    }
    let mut head = c.head_or_new(key, Kind::Sorted)?;
    if keeps_signs {
        head.keep_signs();
    }
    for (member, score) in members {
        set(c, &mut head, member, *score, None)?;
    }
    c.save(key, &head)
}

// ---- counting and removing ------------------------------------------------------------------------------------

fn zcount(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    count(c, args, By::Score)
}

fn zlexcount(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    count(c, args, By::Member)
}

fn count(c: &mut Context<'_>, args: &Arguments<'_>, by: By) -> Outcome {
    let range = range(by, args.get(2), args.get(3))?;
    let mut count = 0;
    if let Some(head) = c.head(args.get(1), Kind::Sorted)? {
        visit(c, &head, range, ALL, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
    }
    c.reply.int(count);
    Ok(())
}

fn zremrangebyrank(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    remove_range(c, args, By::Rank)
}

fn zremrangebyscore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    remove_range(c, args, By::Score)
}

fn zremrangebylex(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    remove_range(c, args, By::Member)
}

fn remove_range(c: &mut Context<'_>, args: &Arguments<'_>, by: By) -> Outcome {
    let range = range(by, args.get(2), args.get(3))?;
    let mut gone = 0;
    if let Some(head) = c.head(args.get(1), Kind::Sorted)? {
        let found = members(c, &head, range, ALL)?;
        gone = found.len() as i64;
        remove(c, args.get(1), head, &found)?;
    }
    c.reply.int(gone);
    Ok(())
}
