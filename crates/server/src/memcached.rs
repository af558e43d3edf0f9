//! memcached's text and meta protocols, on the strings of database 0, which Redis' clients see, too.
//!
//! ```text
//!   request     bytes → requests, by their lines (line, words, flags)
//!   job         requests of a connection → one transaction, of the executor's
//!   text, meta  a request → its answer
//!   connection  a socket
//! ```
//!
//! Answers are those of memcached 1.6.18, but for these:
//! * Every write is durable when it is answered, and nothing is evicted.
//! * A version (`gets`, `cas`, flags `c` and `C`) is that of the commit that set the key, so touching an item changes it, and winning to recache one.
//! * Last access and slabs are not tracked: `h`, `l` and `u` are taken and not answered, and `me` leaves out what it cannot know.
//! * `decr` never pads a number with spaces, and one that becomes longer keeps its marks and the moment that `T` sets.
//! * A key that is too long fails its own request only, and not those that were sent before it.
//! * `b` in an answer says how the key was asked for, not how it was stored.
//! * A line has no control characters, and 2 KiB at most (1 MiB with the keys of a `get`).
//! * `flush_all` is for now, not for later. It leaves Redis' collections; one of them is not found by what reads, in the way of what changes
//!   (`SERVER_ERROR`), and replaced by `set`.
//! * `stats` says what is counted. Commands about slabs, LRU, watchers and shutdown are unknown.

mod base64;
mod connection;
mod flags;
mod job;
mod line;
mod meta;
mod request;
mod stats;
mod text;
mod words;

use crate::context::Context;
use crate::data::chunks::Found;
use crate::data::{Item, STALE, WON, is_string};
use crate::engine;
use crate::outcome::{Outcome, Stop};

pub(crate) use connection::serve;
use flags::{Meta, Mode};
use line::Verb;
use request::Request;

/// Bytes of a key.
const KEY_MAX: usize = 250;
/// Moments up to this number of seconds are counted from now.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// What is said to be the version of memcached.
const VERSION: &str = concat!("1.6.18-cairn-", env!("CARGO_PKG_VERSION"));

const ERROR: &str = "ERROR";
const BAD_LINE: &str = "CLIENT_ERROR bad command line format";
const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
const COLLECTION: &str = "SERVER_ERROR the key holds a collection of Redis";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

/// The circumstances of a request, and what is counted of it.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Its transaction may write. A read that finds it must says that it met a conflict, to be run again in one that may.
    writable: bool,
    hits: u64,
    misses: u64,
}

impl Turn {
    fn saw(&mut self, hit: bool) {
        if hit { self.hits += 1 } else { self.misses += 1 }
    }
}

/// Runs one request.
fn run(c: &mut Context<'_>, request: &Request<'_>, turn: &mut Turn) -> Outcome {
    match request.verb {
        Verb::Get | Verb::Gets | Verb::Gat => text::get(c, request, turn),
        Verb::Touches => text::touches(c, request),
        Verb::Store(mode) => text::store(c, request, mode),
        Verb::Incr | Verb::Decr => text::arithmetic(c, request),
        Verb::Delete => text::delete(c, request),
        Verb::Touch => text::touch(c, request),
        Verb::FlushAll => text::flush_all(c, request),
        Verb::Stats => stats::stats(c, request),
        Verb::Version => answer(c, &format!("VERSION {VERSION}")),
        Verb::Verbosity => answer(c, "OK"),
        Verb::MetaGet => meta::get(c, request, turn),
        Verb::MetaSet => meta::set(c, request),
        Verb::MetaDelete => meta::delete(c, request),
        Verb::MetaArithmetic => meta::arithmetic(c, request),
        Verb::MetaDebug => meta::debug(c, request),
        Verb::MetaNoop => answer(c, "MN"),
        Verb::TooLarge => too_large(c, request),
        Verb::Refused(text) => answer(c, text),
    }
}

fn answer(c: &mut Context<'_>, text: &str) -> Outcome {
    c.reply.raw(text.as_bytes());
    c.reply.raw(b"\r\n");
    Ok(())
}

/// A write that could not be: at least no client is to find what was there before and take it for what was written.
fn too_large(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    match request.word(0) {
        b"set" => drop(remove_item(c, request.word(1))?),
        b"ms" => drop(remove_item(c, &Meta::parse(Meta::of_set(request.words()))?.key)?),
        _ => {}
    }
    answer(c, TOO_LARGE)
}

/// When an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Never,
    /// In milliseconds of Unix time.
    At(u64),
    /// It has.
    Gone,
}

impl Expiry {
    /// What a request means with `exptime`.
    fn of(exptime: i64, now: u64) -> Self {
        match exptime {
            0 => Self::Never,
            ..0 => Self::Gone,
            1..=RELATIVE_MAX => Self::At(now + 1000 * exptime as u64),
            _ => Some(1000 * (exptime as u64).min(u64::MAX / 1000)).filter(|at| *at > now).map_or(Self::Gone, Self::At),
        }
    }

    fn stored(at: Option<u64>) -> Self {
        at.map_or(Self::Never, Self::At)
    }

    /// Seconds until then.
    fn remaining(self, now: u64) -> i64 {
        match self {
            Self::Never => -1,
            Self::At(at) => at.saturating_sub(now).div_ceil(1000) as i64,
            Self::Gone => 0,
        }
    }
}

/// An item as it is in the store, and a copy of its bytes.
struct Held {
    flags: u32,
    marks: u8,
    bytes: Vec<u8>,
}

/// What is to be changed. An error if it is a collection.
fn held(c: &Context<'_>, key: &[u8]) -> Outcome<Option<Held>> {
    let Some(value) = c.tx.get(&c.key(key))? else { return Ok(None) };
    let found = Found::read(value)?.ok_or(COLLECTION)?;
    Ok(Some(Held { flags: found.flags, marks: found.marks, bytes: found.text.bytes(&*c.tx)?.into_owned() }))
}

fn expiry(c: &Context<'_>, key: &[u8]) -> Outcome<Expiry> {
    Ok(Expiry::stored(c.tx.expires(&c.key(key))?))
}

fn put(c: &mut Context<'_>, key: &[u8], item: &Item<'_>, expiry: Expiry) -> Outcome {
    match expiry {
        Expiry::Never => c.put_item(key, item, None),
        Expiry::At(at) => c.put_item(key, item, Some(at)),
        Expiry::Gone => c.remove(key).map(drop),
    }
}

/// Whether there is an item.
fn is_item(c: &Context<'_>, key: &[u8]) -> Outcome<bool> {
    Ok(c.tx.get(&c.key(key))?.is_some_and(is_string))
}

fn remove_item(c: &mut Context<'_>, key: &[u8]) -> Outcome<bool> {
    Ok(is_item(c, key)? && c.remove(key)?)
}

/// Whether the item's version is `cas`. One that this transaction has written has none yet: no client can have seen it.
fn is_version(c: &Context<'_>, key: &[u8], cas: u64) -> Outcome<bool> {
    Ok(c.tx.version(&c.key(key))? == Some(cas))
}

// ---- storing --------------------------------------------------------------------------------------------------

/// What is to be stored.
struct Store<'b> {
    mode: Mode,
    key: &'b [u8],
    flags: u32,
    data: &'b [u8],
    exptime: i64,
    /// Only if it has this version; any, if it is 0 and the mode not [`Mode::Cas`].
    cas: u64,
    /// If it has a later one, it is stored all the same, as stale.
    invalidate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Yes,
    No,
    Exists,
    NotFound,
}

impl Store<'_> {
    fn run(&self, c: &mut Context<'_>) -> Outcome<Stored> {
        let until = Expiry::of(self.exptime, c.now);
        let item = Item { flags: self.flags, marks: 0, bytes: self.data };
        if self.mode == Mode::Set {
            put(c, self.key, &item, until)?;
            return Ok(Stored::Yes);
        }
        if matches!(self.mode, Mode::Append | Mode::Prepend) {
            return self.extend(c);
        }
        let there = match c.tx.get(&c.key(self.key))? {
            None => None,
            Some(value) => Some(Found::read(value)?.ok_or(COLLECTION)?.marks),
        };
        match (self.mode, there) {
            (Mode::Add, None) | (Mode::Replace, Some(_)) => put(c, self.key, &item, until)?,
            (Mode::Cas, None) => return Ok(Stored::NotFound),
            (Mode::Cas, Some(marks)) => {
                let version = c.tx.version(&c.key(self.key))?;
                if version == Some(self.cas) {
                    put(c, self.key, &item, until)?;
                } else if self.invalidate && self.cas != 0 && version.is_none_or(|version| self.cas < version) {
                    let until = expiry(c, self.key)?;
                    put(c, self.key, &Item { marks: marks & WON | STALE, ..item }, until)?;
                } else {
                    return Ok(Stored::Exists);
                }
            }
            _ => return Ok(Stored::No),
        }
        Ok(Stored::Yes)
    }

    fn extend(&self, c: &mut Context<'_>) -> Outcome<Stored> {
        let Some(value) = c.tx.get(&c.key(self.key))? else { return Ok(Stored::No) };
        let Found { flags, text, .. } = Found::read(value)?.ok_or(COLLECTION)?;
        if self.cas != 0 && !is_version(c, self.key, self.cas)? {
            return Ok(Stored::Exists);
        }
        let (before, len) = (text.len(), text.len() + self.data.len());
        if len > c.shared.settings().item {
            return Ok(Stored::No);
        }
        if self.mode == Mode::Append && !c.is_whole(len) {
            c.write_at(self.key, before, self.data)?;
            return Ok(Stored::Yes);
        }
        let held = text.bytes(&*c.tx)?;
        let bytes = if self.mode == Mode::Append { [&held, self.data].concat() } else { [self.data, &held].concat() };
        let until = expiry(c, self.key)?;
        put(c, self.key, &Item { flags, marks: 0, bytes: &bytes }, until)?;
        Ok(Stored::Yes)
    }
}

/// The number in an item: there may be spaces before it, and anything behind one, or a zero byte, that follows.
fn counter(bytes: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let from = bytes.iter().position(|byte| !is_space(byte))?;
    words::number(bytes[from..].split(|byte| is_space(byte) || *byte == 0).next()?)
}

fn change(number: u64, by: u64, up: bool) -> u64 {
    if up { number.wrapping_add(by) } else { number.saturating_sub(by) }
}

/// To be run again in a transaction that may write.
fn must_write() -> Stop {
    Stop::Engine(engine::Error::Conflict("a read that must write".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_relative_up_to_a_month() {
        let now = 1_000_000_000_000;
        assert_eq!(Expiry::of(0, now), Expiry::Never);
        assert_eq!((Expiry::of(-1, now), Expiry::of(RELATIVE_MAX + 1, now)), (Expiry::Gone, Expiry::Gone));
        assert_eq!(Expiry::of(RELATIVE_MAX, now), Expiry::At(now + 2_592_000_000));
        assert_eq!(Expiry::of(1_000_000_001, now), Expiry::At(now + 1000));
        assert_eq!(Expiry::of(i64::MAX, now), Expiry::At(u64::MAX / 1000 * 1000));
        assert_eq!(Expiry::At(now + 1).remaining(now), 1);
    }

    #[test]
    fn numbers_are_read_as_memcached_does() {
        for (bytes, number) in [
            (&b"12"[..], Some(12)),
            (b" 12 x", Some(12)),
            (b"12\0x", Some(12)),
            (b"+1", Some(1)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-1", None),
            (b"1x", None),
            (b"", None),
            (b"  ", None),
        ] {
            assert_eq!(counter(bytes), number, "{}", bytes.escape_ascii());
        }
        assert_eq!((change(u64::MAX, 2, true), change(1, 2, false)), (1, 0));
    }
}
