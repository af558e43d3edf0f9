//! The commands of the text protocol.

use std::ops::ControlFlow;

use super::flags::Mode;
use super::line::Verb;
use super::request::Request;
use super::words::number;
use super::{
    Expiry, NOT_NUMERIC, Store, Stored, Turn, answer, change, counter, expiry, held, is_item, put, remove_item,
};
use crate::context::Context;
use crate::data::chunks::Found;
use crate::data::{Item, all, is_string};
use crate::outcome::Outcome;

/// Bytes of an answer: more are asked for in more requests.
const ANSWER_MAX: usize = 64 << 20;
const TOO_MUCH: &str = "SERVER_ERROR out of memory writing get response";
const DELAYED: &str = "SERVER_ERROR flush_all with a delay is not supported";

pub(super) fn get(c: &mut Context<'_>, request: &Request<'_>, turn: &mut Turn) -> Outcome {
    let until = (request.verb == Verb::Gat).then(|| Expiry::of(number(request.word(1)).unwrap_or(0), c.now));
    let from = c.reply.len();
    for key in request.keys() {
        if c.reply.len() - from > ANSWER_MAX {
            // What was touched stays so: that can be said again.
            return Err(TOO_MUCH.into());
        }
        let stored = c.key(key);
        let found = c.tx.get(&stored)?.map(Found::read).transpose()?.flatten();
        turn.saw(found.is_some());
        let Some(found) = found else { continue };
        c.reply.raw(b"VALUE ");
        c.reply.raw(key);
        c.reply.raw(format!(" {} {}", found.flags, found.text.len()).as_bytes());
        if request.verb == Verb::Gets {
            // None only of what is written together with this, which is never asked for.
            c.reply.raw(format!(" {}", c.tx.version(&stored)?.unwrap_or(0)).as_bytes());
        }
        c.reply.raw(b"\r\n");
        c.reply.raw_with(found.text.len(), |bytes| found.text.append_to(&*c.tx, bytes))?;
        c.reply.raw(b"\r\n");
        if let Some(until) = until {
            set_expiry(c, key, until)?;
        }
    }
    answer(c, "END")
}

pub(super) fn set_expiry(c: &mut Context<'_>, key: &[u8], until: Expiry) -> Outcome {
    let stored = c.key(key);
    match until {
        Expiry::Never => c.set_expiry(&stored, None),
        Expiry::At(at) => c.set_expiry(&stored, Some(at)),
        Expiry::Gone => c.remove(key).map(drop),
    }
}

pub(super) fn touches(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let until = Expiry::of(number(request.word(1)).unwrap_or(0), c.now);
    for key in request.keys() {
        if is_item(c, key)? {
            set_expiry(c, key, until)?;
        }
    }
    Ok(())
}

pub(super) fn touch(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let key = request.word(1);
    if !is_item(c, key)? {
        return answer(c, "NOT_FOUND");
    }
    set_expiry(c, key, Expiry::of(number(request.word(2)).unwrap_or(0), c.now))?;
    answer(c, "TOUCHED")
}

pub(super) fn store(c: &mut Context<'_>, request: &Request<'_>, mode: Mode) -> Outcome {
    let store = Store {
        mode,
        key: request.word(1),
        flags: number(request.word(2)).unwrap_or(0),
        data: request.data,
        exptime: number(request.word(3)).unwrap_or(0),
        cas: if mode == Mode::Cas { number(request.word(5)).unwrap_or(0) } else { 0 },
        invalidate: false,
    };
    match store.run(c)? {
        Stored::Yes => answer(c, "STORED"),
        Stored::No => answer(c, "NOT_STORED"),
        Stored::Exists => answer(c, "EXISTS"),
        Stored::NotFound => answer(c, "NOT_FOUND"),
    }
}

pub(super) fn arithmetic(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let key = request.word(1);
    let Some(held) = held(c, key)? else { return answer(c, "NOT_FOUND") };
    let before = counter(&held.bytes).ok_or(NOT_NUMERIC)?;
    let after = change(before, number(request.word(2)).unwrap_or(0), request.verb == Verb::Incr).to_string();
    let until = expiry(c, key)?;
    put(c, key, &Item { flags: held.flags, marks: held.marks, bytes: after.as_bytes() }, until)?;
    answer(c, &after)
}

/// Of whatever the key has: it is free then.
pub(super) fn delete(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let there = c.remove(request.word(1))?;
    answer(c, if there { "DELETED" } else { "NOT_FOUND" })
}

pub(super) fn flush_all(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    if number::<i32>(request.word(1)).is_some_and(|delay| delay > 0) {
        return answer(c, DELAYED);
    }
    let mut keys = Vec::new();
    c.tx.scan(all(c.db, &[]), &mut |key, value| {
        if is_string(value) {
            keys.push(key[1..].to_vec());
        }
        ControlFlow::Continue(())
    })?;
    for key in keys {
        remove_item(c, &key)?;
    }
    answer(c, "OK")
}
