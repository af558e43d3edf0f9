//! Unions, intersections and differences of sorted sets; sets count as such whose scores are 1.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::decimal::score as parse;
use super::flag::{READ, SORTED, WRITE};
use super::names::{held, limited, walk};
use super::ranges::store;
use super::sorted::{Scored, answer, keeps_signs, ordered, score};
use super::{Command, Context, KeysAt, Outcome, SYNTAX, Stop, WRONG_TYPE, data, int, is};
use crate::data::{Head, Kind};
use crate::request::Arguments;

const KEYS: KeysAt = KeysAt::Counted(1);
const STORED: KeysAt = KeysAt::Stored(2);

pub(super) const COMMANDS: &[Command] = &[
    data("zdiff", -3, READ | SORTED, KEYS, zdiff),
    data("zdiffstore", -4, WRITE | SORTED, STORED, zdiffstore),
    data("zinter", -3, READ | SORTED, KEYS, zinter),
    data("zintercard", -3, READ | SORTED, KEYS, zintercard),
    data("zinterstore", -4, WRITE | SORTED, STORED, zinterstore),
    data("zunion", -3, READ | SORTED, KEYS, zunion),
    data("zunionstore", -4, WRITE | SORTED, STORED, zunionstore),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the scores of one member.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // The infinite ones cancel each other.
            Self::Sum if (a + b).is_nan() => 0.0,
            Self::Sum => a + b,
            // Of two zeros the first one, whatever their signs.
            Self::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Self::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Called with members and what their scores count for; says whether to go on.
type Weighted<'v> = &'v mut dyn FnMut(&[u8], f64) -> Outcome<ControlFlow<()>>;

/// A set of those that are combined.
struct Source {
    head: Option<Head>,
    weight: f64,
}

impl Source {
    fn count(&self) -> u64 {
        self.head.map_or(0, |head| head.count)
    }

    /// No number if an infinite one is multiplied with zero.
    fn weighted(&self, held: &[u8]) -> f64 {
        let sorted = self.head.is_some_and(|head| head.kind == Kind::Sorted);
        self.weight * if sorted { score(held) } else { 1.0 }
    }

    fn score(&self, c: &Context<'_>, member: &[u8]) -> Outcome<Option<f64>> {
        match &self.head {
            Some(head) => Ok(held(c, head, member)?.map(|held| self.weighted(held))),
            None => Ok(None),
        }
    }

    fn each(&self, c: &Context<'_>, visit: Weighted<'_>) -> Outcome {
        match &self.head {
            // Only here is no number zero at once: so has Redis done it, which shows where there is more to add.
            Some(head) => walk(c, head, &mut |member, held| {
                let weighted = self.weighted(held);
                visit(member, if weighted.is_nan() { 0.0 } else { weighted })
            }),
            None => Ok(()),
        }
    }
}

/// The sets whose number is the argument `at`.
fn sources(c: &Context<'_>, args: &Arguments<'_>, at: usize, command: &str) -> Outcome<Vec<Source>> {
    let count = int(args.get(at))?;
    if count < 1 {
        return Err(Stop::Error(format!("ERR at least 1 input key is needed for '{command}' command")));
    }
    let count = usize::try_from(count).ok().filter(|count| *count < args.len() - at).ok_or(SYNTAX)?;
    let keys = args.from(at + 1).take(count);
    keys.map(|key| {
        let head = match c.tx.get(&c.key(key))? {
            None => None,
            Some(value) => {
                Some(Head::read(value).filter(|head| matches!(head.kind, Kind::Set | Kind::Sorted)).ok_or(WRONG_TYPE)?)
            }
        };
        Ok(Source { head, weight: 1.0 })
    })
    .collect()
}

/// The options behind the keys, which end at `at`; whether scores are wanted, too.
fn options(
    args: &Arguments<'_>,
    mut at: usize,
    sources: &mut [Source],
    operation: Operation,
    stores: bool,
) -> Outcome<(Aggregate, bool)> {
    let weighs = operation != Operation::Difference;
    let (mut aggregate, mut scores) = (Aggregate::Sum, false);
    while at < args.len() {
        match args.get(at) {
            o if weighs && is(o, "WEIGHTS") && args.len() - at > sources.len() => {
                for source in sources.iter_mut() {
                    at += 1;
                    source.weight = parse(args.get(at)).map_err(|_| "ERR weight value is not a float")?;
                }
            }
            o if weighs && is(o, "AGGREGATE") && at + 1 < args.len() => {
                at += 1;
                aggregate = match args.get(at) {
                    word if is(word, "SUM") => Aggregate::Sum,
                    word if is(word, "MIN") => Aggregate::Min,
                    word if is(word, "MAX") => Aggregate::Max,
                    _ => return Err(SYNTAX.into()),
                };
            }
            o if !stores && is(o, "WITHSCORES") => scores = true,
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok((aggregate, scores))
}

fn combine(
    c: &Context<'_>,
    mut sources: Vec<Source>,
    operation: Operation,
    aggregate: Aggregate,
    most: u64,
) -> Outcome<Vec<Scored>> {
    let mut found = Vec::new();
    // As in Redis: what a sum is depends on the order. Of an intersection the smallest is gone through, and its members are looked up in the others.
    if operation != Operation::Difference {
        sources.sort_by_key(Source::count);
    }
    match operation {
        Operation::Union => {
            let mut all = BTreeMap::new();
            for source in &sources {
                source.each(c, &mut |member, score| {
                    match all.get_mut(member) {
                        Some(before) => *before = aggregate.of(*before, score),
                        None => drop(all.insert(member.to_vec(), score)),
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            found.extend(all);
        }
        Operation::Intersection => {
            let Some((smallest, others)) = sources.split_first() else { return Ok(found) };
            smallest.each(c, &mut |member, mut score| {
                for other in others {
                    let Some(more) = other.score(c, member)? else { return Ok(ControlFlow::Continue(())) };
                    score = aggregate.of(score, more);
                }
                found.push((member.to_vec(), score));
                Ok(if found.len() as u64 == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Operation::Difference => {
            let Some((first, others)) = sources.split_first() else { return Ok(found) };
            first.each(c, &mut |member, score| {
                for other in others {
                    if other.score(c, member)?.is_some() {
                        return Ok(ControlFlow::Continue(()));
                    }
                }
                found.push((member.to_vec(), score));
                Ok(ControlFlow::Continue(()))
            })?;
        }
    }
    Ok(found)
}

fn answered(c: &mut Context<'_>, args: &Arguments<'_>, operation: Operation, command: &str) -> Outcome {
    let mut sources = sources(c, args, 1, command)?;
    let (aggregate, scores) = options(args, 2 + sources.len(), &mut sources, operation, false)?;
    let mut found = combine(c, sources, operation, aggregate, u64::MAX)?;
    found.sort_unstable_by(|(a, score), (b, other)| ordered(*score).cmp(&ordered(*other)).then_with(|| a.cmp(b)));
    answer(c.reply, &found, scores);
    Ok(())
}

/// The same, into the first key.
fn stored(c: &mut Context<'_>, args: &Arguments<'_>, operation: Operation, command: &str) -> Outcome {
    let mut sources = sources(c, args, 2, command)?;
    let (aggregate, _) = options(args, 3 + sources.len(), &mut sources, operation, true)?;
    let found = combine(c, sources, operation, aggregate, u64::MAX)?;
    let keeps_signs = keeps_signs(found.iter().map(|(member, _)| member));
    store(c, args.get(1), &found, keeps_signs)?;
    c.reply.int(found.len() as i64);
    Ok(())
}

fn zunion(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answered(c, args, Operation::Union, "zunion")
}

fn zinter(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answered(c, args, Operation::Intersection, "zinter")
}

fn zdiff(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    answered(c, args, Operation::Difference, "zdiff")
}

fn zunionstore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    stored(c, args, Operation::Union, "zunionstore")
}

fn zinterstore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    stored(c, args, Operation::Intersection, "zinterstore")
}

fn zdiffstore(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    stored(c, args, Operation::Difference, "zdiffstore")
}

fn zintercard(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let sources = sources(c, args, 1, "zintercard")?;
    let limit = limited(args, sources.len())?;
    let most = if limit == 0 { u64::MAX } else { limit };
    let found = combine(c, sources, Operation::Intersection, Aggregate::Sum, most)?;
    c.reply.int(found.len() as i64);
    Ok(())
}
