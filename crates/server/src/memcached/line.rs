//! Lines of memcached's protocols: what a command is, whether its words are as they should be, and what belongs to it.

use std::ops::Range;

use super::flags::{Meta, Mode};
use super::words::{number, words};
use super::{BAD_LINE, ERROR, KEY_MAX};

/// Words that a meta command may have.
const WORDS_MAX: usize = 19;

const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
const BAD_FLAGS: &str = "CLIENT_ERROR invalid or duplicate flag";

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Gets,
    /// `get`, and then `touch`.
    Gat,
    /// `touch` of many keys, without a reply: with a `Gets` it is `gats`.
    Touches,
    Store(Mode),
    Incr,
    Decr,
    Delete,
    Touch,
    FlushAll,
    Stats,
    Version,
    Verbosity,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaArithmetic,
    MetaDebug,
    MetaNoop,
    /// To store more than an item may have.
    TooLarge,
    /// Nothing: that is the answer.
    Refused(&'static str),
}

/// What a line is.
pub(super) enum Parsed {
    /// A request without data, and whether it is quiet.
    Plain(Verb, bool),
    /// Two requests.
    Gats([Verb; 2]),
    /// Data of so many bytes belong to it.
    Block(Verb, bool, usize),
    /// So many bytes follow that are to be forgotten.
    Swallow(Verb, bool, usize),
    Quit,
}

fn refused(text: &'static str, quiet: bool) -> Parsed {
    Parsed::Plain(Verb::Refused(text), quiet)
}

pub(super) fn parse(line: &[u8], item_max: usize) -> Parsed {
    // A key has none, and an answer that repeats one could be taken for another.
    if line.iter().any(u8::is_ascii_control) {
        return refused(BAD_LINE, false);
    }
    let count = words(line).count();
    let command = words(line).next().unwrap_or_default();
    // It may be a key, too.
    let quiet = words(line).last() == Some(b"noreply") && (command != b"delete" || count > 2);
    let plain = |verb, counts: Range<usize>| match counts.contains(&count) {
        true => check(verb, line, count, quiet),
        false => refused(ERROR, false),
    };
    match command {
        b"get" | b"bget" => plain(Verb::Get, 2..usize::MAX),
        b"gets" => plain(Verb::Gets, 2..usize::MAX),
        b"gat" => plain(Verb::Gat, 2..usize::MAX),
        b"gats" => plain(Verb::Touches, 2..usize::MAX),
        b"set" => store(Mode::Set, line, count, quiet, item_max),
        b"add" => store(Mode::Add, line, count, quiet, item_max),
        b"replace" => store(Mode::Replace, line, count, quiet, item_max),
        b"append" => store(Mode::Append, line, count, quiet, item_max),
        b"prepend" => store(Mode::Prepend, line, count, quiet, item_max),
        b"cas" => store(Mode::Cas, line, count, quiet, item_max),
        b"incr" => plain(Verb::Incr, 3..5),
        b"decr" => plain(Verb::Decr, 3..5),
        b"delete" => plain(Verb::Delete, 2..5),
        b"touch" => plain(Verb::Touch, 3..5),
        b"flush_all" => plain(Verb::FlushAll, 1..4),
        b"stats" => Parsed::Plain(Verb::Stats, false),
        b"version" => Parsed::Plain(Verb::Version, false),
        b"verbosity" => plain(Verb::Verbosity, 2..4),
        b"quit" => Parsed::Quit,
        b"mg" => meta(Verb::MetaGet, line, count),
        b"ms" => meta_set(line, count, item_max),
        b"md" => meta(Verb::MetaDelete, line, count),
        b"ma" => meta(Verb::MetaArithmetic, line, count),
        b"me" => meta_debug(line, count),
        b"mn" => Parsed::Plain(Verb::MetaNoop, false),
        _ => refused(ERROR, false),
    }
}

/// A command without data whose words are as many as they should be.
fn check(verb: Verb, line: &[u8], count: usize, quiet: bool) -> Parsed {
    let word = |at| words(line).nth(at).unwrap_or_default();
    let moment = || number::<i64>(word(if matches!(verb, Verb::Gat | Verb::Touches) { 1 } else { 2 }));
    let gets = matches!(verb, Verb::Get | Verb::Gets | Verb::Gat | Verb::Touches);
    if matches!(verb, Verb::Gat | Verb::Touches) && moment().is_none() {
        return refused(BAD_EXPTIME, false);
    }
    let short = || word(1).len() <= KEY_MAX;
    let wrong = match verb {
        Verb::Get | Verb::Gets => words(line).skip(1).any(|key| key.len() > KEY_MAX).then_some(BAD_LINE),
        Verb::Gat | Verb::Touches => words(line).skip(2).any(|key| key.len() > KEY_MAX).then_some(BAD_LINE),
        Verb::Delete if !delete_fits(word(2), count, quiet) => Some(BAD_DELETE),
        Verb::Touch | Verb::Incr | Verb::Decr | Verb::Delete if !short() => Some(BAD_LINE),
        Verb::Touch => moment().is_none().then_some(BAD_EXPTIME),
        Verb::Incr | Verb::Decr => number::<u64>(word(2)).is_none().then_some(BAD_DELTA),
        Verb::Verbosity => number::<u32>(word(1)).is_none().then_some(BAD_LINE),
        Verb::FlushAll if count > 1 + usize::from(quiet) => number::<i32>(word(1)).is_none().then_some(BAD_EXPTIME),
        _ => None,
    };
    if let Some(wrong) = wrong {
        return refused(wrong, quiet && !gets);
    }
    match verb {
        // What is gone at once has to be read before; else its version is the one after.
        Verb::Touches if moment().is_some_and(|at| at < 0) => Parsed::Gats([Verb::Gets, Verb::Touches]),
        Verb::Touches => Parsed::Gats([Verb::Touches, Verb::Gets]),
        _ => Parsed::Plain(verb, quiet && !gets),
    }
}

/// A time was once an argument, and may still be given as 0.
fn delete_fits(second: &[u8], count: usize, quiet: bool) -> bool {
    match count {
        2 => true,
        3 => second == b"0" || quiet,
        _ => second == b"0" && quiet,
    }
}

fn store(mode: Mode, line: &[u8], count: usize, quiet: bool, item_max: usize) -> Parsed {
    let least = if mode == Mode::Cas { 6 } else { 5 };
    if count < least || count > least + 1 {
        return refused(ERROR, false);
    }
    let word = |at| words(line).nth(at).unwrap_or_default();
    let numbers = number::<u32>(word(2)).is_some() && number::<i64>(word(3)).is_some();
    let version = mode != Mode::Cas || number::<u64>(word(5)).is_some();
    match block_len(word(4)).filter(|_| word(1).len() <= KEY_MAX && numbers && version) {
        None => refused(BAD_LINE, quiet),
        Some(len) if len > item_max => Parsed::Swallow(Verb::TooLarge, quiet, len + 2),
        Some(len) => Parsed::Block(Verb::Store(mode), quiet, len),
    }
}

fn block_len(word: &[u8]) -> Option<usize> {
    number::<i32>(word).filter(|len| *len <= i32::MAX - 2)?.try_into().ok()
}

/// What is wrong with a meta command before its flags.
fn meta_head(line: &[u8], count: usize, too_many: &'static str) -> Result<(), &'static str> {
    match count {
        0 | 1 => Err(ERROR),
        _ if words(line).nth(1).is_some_and(|key| key.len() > KEY_MAX) => Err(BAD_LINE),
        _ if count > WORDS_MAX => Err(too_many),
        _ => Ok(()),
    }
}

fn meta(verb: Verb, line: &[u8], count: usize) -> Parsed {
    let get = verb == Verb::MetaGet;
    let too_many = if get { "CLIENT_ERROR options flags are too long" } else { "CLIENT_ERROR options flags too long" };
    let checked = meta_head(line, count, too_many).and_then(|()| {
        let meta = Meta::parse(words(line).skip(1)).map_err(|wrong| if get { wrong } else { BAD_FLAGS })?;
        meta.check_opaque()?;
        if verb == Verb::MetaArithmetic { meta.is_increment().map(drop) } else { Ok(()) }
    });
    checked.map_or_else(|wrong| refused(wrong, false), |()| Parsed::Plain(verb, false))
}

fn meta_set(line: &[u8], count: usize, item_max: usize) -> Parsed {
    if let Err(wrong) = meta_head(line, count, "CLIENT_ERROR options flags too long") {
        return refused(wrong, false);
    }
    let Some(len) = words(line).nth(2).and_then(block_len) else { return refused(BAD_LINE, false) };
    let checked = Meta::parse(Meta::of_set(words(line))).and_then(|meta| {
        meta.mode()?;
        meta.check_opaque()
    });
    match checked {
        Err(wrong) => Parsed::Swallow(Verb::Refused(wrong), false, len + 2),
        Ok(()) if len > item_max => Parsed::Swallow(Verb::TooLarge, false, len + 2),
        Ok(()) => Parsed::Block(Verb::MetaSet, false, len),
    }
}

fn meta_debug(line: &[u8], count: usize) -> Parsed {
    let key = words(line).nth(1).filter(|key| key.len() <= KEY_MAX);
    let only_key = words(line).nth(2) != Some(b"b");
    let known = key.is_some_and(|key| only_key || super::base64::decode(key).is_some());
    if count < 2 || !known { refused(BAD_LINE, false) } else { Parsed::Plain(Verb::MetaDebug, false) }
}
