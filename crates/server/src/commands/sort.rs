//! Elements in an order: their own, or that of what other keys say of them.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::flag::{DANGEROUS, LIST, READ, SET, SORTED, WRITE};
use super::lists::{self, End};
use super::{Command, Context, KeysAt, ONE, Outcome, WRONG_TYPE, data, float, names, sorted};
use crate::data::chunks::Text;
use crate::data::{Head, Kind};
use crate::form::sort::Options;
use crate::request::Arguments;

pub(super) const COMMANDS: &[Command] = &[
    data("sort", -2, WRITE | SET | SORTED | LIST | DANGEROUS, KeysAt::Behind(2, &["STORE"]), sort),
    data("sort_ro", -2, READ | SET | SORTED | LIST | DANGEROUS, ONE, sort_ro),
];

/// All elements: of a list in their order, of a sorted set in that of scores.
fn elements(c: &Context<'_>, key: &[u8]) -> Outcome<(Kind, Vec<Vec<u8>>)> {
    let value = c.tx.get(&c.key(key))?;
    c.looks.at(value.is_some());
    let Some(value) = value else { return Ok((Kind::List, Vec::new())) };
    let head = Head::read(value).ok_or(WRONG_TYPE)?;
    let mut found = Vec::new();
    match head.kind {
        Kind::List => found = lists::copies(c, &head, 0, head.count)?,
        Kind::Set => names::walk(c, &head, &mut |member, _| {
            found.push(member.to_vec());
            Ok(ControlFlow::Continue(()))
        })?,
        Kind::Sorted => sorted::each(c, sorted::by_score(&head), &mut |member, _| {
            found.push(member.to_vec());
            ControlFlow::Continue(())
        })?,
        _ => return Err(WRONG_TYPE.into()),
    }
    Ok((head.kind, found))
}

/// What a pattern leads to for an element: `#` is itself, `->` stands between a hash and its field.
fn led_to(c: &Context<'_>, pattern: &[u8], element: &[u8]) -> Outcome<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = behind.windows(2).position(|two| two == b"->").filter(|at| at + 2 < behind.len());
    let (behind, field) = match arrow {
        Some(at) => (&behind[..at], Some(&behind[at + 2..])),
        None => (behind, None),
    };
    let value = c.tx.get(&c.key(&[before, element, behind].concat()))?;
    c.looks.at(value.is_some());
    Ok(match (value, field) {
        (None, _) => None,
        (Some(value), None) => match Text::read(value)? {
            Some(text) => Some(text.bytes(&*c.tx)?.into_owned()),
            None => None,
        },
        (Some(value), Some(field)) => match Head::read(value).filter(|head| head.kind == Kind::Hash) {
            Some(head) => names::held(c, &head, field)?.map(<[u8]>::to_vec),
            None => None,
        },
    })
}

/// A number as C reads it: up to a zero byte; nothing is zero, spaces alone and what is too large are none.
fn weight(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    let number = float(text).ok()?;
    (number.is_finite() || text.to_ascii_lowercase().windows(3).any(|word| word == b"inf")).then_some(number)
}

fn sort(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let options = Options::parse(args, true)?;
    run(c, args.get(1), &options)
}

fn sort_ro(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let options = Options::parse(args, false)?;
    run(c, args.get(1), &options)
}

fn run(c: &mut Context<'_>, key: &[u8], options: &Options<'_>) -> Outcome {
    let (kind, mut elements) = elements(c, key)?;
    // Each is compared some twenty times, and each pattern is a look at the store.
    let patterns = options.get.len() + usize::from(options.by.is_some());
    c.passes((elements.len() * (1 + 2 * patterns)) as u64)?;
    // A set has no order: what is to stay, or a script sees, gets one.
    let anyhow = options.is_as_is() && kind == Kind::Set && (options.store.is_some() || c.looks.scripted);
    if !options.is_as_is() || anyhow {
        let (by, alpha) = (options.by.filter(|_| !anyhow), options.alpha || anyhow);
        elements = ordered(c, elements, by, alpha, options.reverse)?;
    } else if options.reverse && kind != Kind::Set {
        elements.reverse();
    }
    let mut values = Vec::new();
    for element in &elements[options.range(elements.len())] {
        if options.get.is_empty() {
            values.push(Some(element.clone()));
        }
        for pattern in &options.get {
            values.push(led_to(c, pattern, element)?);
        }
    }
    let Some(to) = options.store else {
        c.reply.array(values.len());
        values.iter().for_each(|value| c.reply.maybe(value.as_deref()));
        return Ok(());
    };
    c.remove(to)?;
    if !values.is_empty() {
        let mut head = c.new_head(Kind::List)?;
        for value in &values {
            lists::push_one(c, &mut head, End::Right, value.as_deref().unwrap_or_default())?;
        }
        c.save(to, &head)?;
    }
    c.reply.int(values.len() as i64);
    Ok(())
}

/// By themselves, or by what a pattern leads to; as bytes or as numbers.
fn ordered(
    c: &Context<'_>,
    elements: Vec<Vec<u8>>,
    by: Option<&[u8]>,
    alpha: bool,
    reverse: bool,
) -> Outcome<Vec<Vec<u8>>> {
    let turned = |order: Ordering| if reverse { order.reverse() } else { order };
    let mut keyed = Vec::with_capacity(elements.len());
    for element in elements {
        let key = match by {
            Some(pattern) => led_to(c, pattern, &element)?,
            None => Some(element.clone()),
        };
        keyed.push((key, element));
    }
    if alpha {
        keyed.sort_by(|(a, _), (b, _)| turned(a.cmp(b))); // what leads nowhere comes first
        return Ok(keyed.into_iter().map(|(_, element)| element).collect());
    }
    let wrong = "ERR One or more scores can't be converted into double";
    let weighed =
        keyed.into_iter().map(|(key, element)| Ok((key.map_or(Some(0.0), |key| weight(&key)).ok_or(wrong)?, element)));
    let mut weighed: Vec<(f64, Vec<u8>)> = weighed.collect::<Outcome<_>>()?;
    weighed.sort_by(|(a, one), (b, other)| {
        turned(a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| one.cmp(other)))
    });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}
