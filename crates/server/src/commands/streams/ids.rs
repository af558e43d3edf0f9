//! Ids as clients write them.

use super::super::Outcome;
use crate::data::streams::Id;
use crate::request::number;

const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";
/// Bytes of an id.
const MOST: usize = 127;

/// A number without a sign, as `strtoull` reads it where it is not written in the usual way.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(usual) = number(text) {
        return u64::try_from(usual).ok();
    }
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

/// What C takes for the text.
fn cut(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    &text[..end]
}

/// `ms-seq`, or `ms` with `missing` for what is not said; the second part is left out if it is `*`, which only some commands take.
fn parts(text: &[u8], missing: u64) -> Option<(u64, Option<u64>)> {
    if text.len() > MOST {
        return None;
    }
    let text = cut(text);
    let Some(dash) = text.iter().position(|byte| *byte == b'-') else { return Some((unsigned(text)?, Some(missing))) };
    let (ms, seq) = (unsigned(&text[..dash])?, &text[dash + 1..]);
    if seq == b"*" { Some((ms, None)) } else { Some((ms, Some(unsigned(seq)?))) }
}

/// An id, but for `-` and `+`.
pub(super) fn strict(text: &[u8], missing: u64) -> Outcome<Id> {
    match parts(text, missing) {
        Some((ms, Some(seq))) => Ok(Id { ms, seq }),
        _ => Err(INVALID.into()),
    }
}

/// All of them, or none.
pub(super) fn strict_all<'b>(texts: impl Iterator<Item = &'b [u8]>) -> Outcome<Vec<Id>> {
    texts.map(|text| strict(text, 0)).collect()
}

/// An id of which the second part may be `*`: none then.
pub(super) fn partial(text: &[u8]) -> Outcome<(u64, Option<u64>)> {
    Ok(parts(text, 0).ok_or(INVALID)?)
}

/// An id; `-` and `+` are the lowest and the highest.
pub(super) fn any(text: &[u8], missing: u64) -> Outcome<Id> {
    match cut(text) {
        b"-" if text.len() <= MOST => Ok(Id::MIN),
        b"+" if text.len() <= MOST => Ok(Id::MAX),
        _ => strict(text, missing),
    }
}

/// Where an interval begins; `(` leaves out the id itself.
pub(super) fn start(text: &[u8]) -> Outcome<Id> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            Ok(strict(rest, 0)?.next().ok_or("ERR invalid start ID for the interval")?)
        }
        _ => any(text, 0),
    }
}

fn end(text: &[u8]) -> Outcome<Id> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            Ok(strict(rest, u64::MAX)?.previous().ok_or("ERR invalid end ID for the interval")?)
        }
        _ => any(text, u64::MAX),
    }
}

/// Both ends of an interval.
pub(super) fn bounds(first: &[u8], last: &[u8]) -> Outcome<(Id, Id)> {
    Ok((start(first)?, end(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> Option<Id> {
        Some(Id { ms, seq })
    }

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        for (text, expected) in [
            ("1-2", id(1, 2)),
            ("5", id(5, 9)),
            ("18446744073709551615-18446744073709551615", Some(Id::MAX)),
            ("007- 8", id(7, 8)),
            ("+1-+2", id(1, 2)),
            ("1--02", id(1, 2_u64.wrapping_neg())),
            ("1-2\0x", id(1, 2)),
        ] {
            assert_eq!(strict(text.as_bytes(), 9).ok(), expected, "{text}");
        }
        let long = format!("{}1", "0".repeat(127));
        for text in ["", "-", "+", "x", "1-", "-1", "1--2", "1-2-3", "18446744073709551616", "1-*", "1 -2", &long] {
            assert!(strict(text.as_bytes(), 9).is_err(), "{text}");
        }
        assert!(matches!(partial(b"7-*"), Ok((7, None))) && matches!(partial(b"7"), Ok((7, Some(0)))));
    }

    #[test]
    fn intervals_may_leave_out_their_ends() {
        let bounds = |first: &str, last: &str| bounds(first.as_bytes(), last.as_bytes()).ok();
        assert_eq!(bounds("-", "+"), Some((Id::MIN, Id::MAX)));
        assert_eq!(bounds("1", "2"), id(1, 0).zip(id(2, u64::MAX)));
        assert_eq!(bounds("(1", "(2"), id(1, 1).zip(id(2, u64::MAX - 1)));
        assert_eq!(bounds("(1-18446744073709551615", "(2-0"), id(2, 0).zip(id(1, u64::MAX)));
        for (first, last) in
            [("(+", "+"), ("-", "(-"), ("(", "+"), ("(18446744073709551615-18446744073709551615", "+"), ("-", "(0-0")]
        {
            assert_eq!(bounds(first, last), None, "{first} {last}");
        }
    }
}
