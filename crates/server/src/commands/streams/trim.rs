//! `XADD` and `XTRIM`: which id, and what is to go.

use super::super::{Context, Outcome, SYNTAX, int, is};
use super::entries;
use super::ids::{partial, strict};
use crate::data::Head;
use crate::data::streams::Id;
use crate::request::Arguments;

/// Entries that go together where `~` leaves it to the server: as many as Redis has in one of its nodes.
const TOGETHER: u64 = 100;
/// Entries that go at most where `~` stands and `LIMIT` does not.
const LIMIT: u64 = 100 * TOGETHER;

/// The id of what is to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Any,
    /// At this millisecond.
    At(u64),
    This(Id),
}

/// What is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    Most(u64),
    From(Id),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    stays: Stays,
    /// Hundreds only, if it is about that.
    about: bool,
    /// Entries that go at most; 0 for all.
    limit: u64,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) trim: Option<Trim>,
    pub(super) id: Wanted,
    /// No stream is made.
    pub(super) only_old: bool,
    /// Where the id stands.
    pub(super) at: usize,
}

/// Reads the arguments behind the key: those of `XADD` up to its id.
pub(super) fn asked(args: &Arguments<'_>, adds: bool) -> Outcome<Asked> {
    let (mut stays, mut about, mut limit): (_, _, Option<u64>) = (None, false, None);
    let mut asked = Asked { trim: None, id: Wanted::Any, only_old: false, at: args.len() };
    let mut at = 2;
    while at < args.len() {
        let (word, more) = (args.get(at), args.len() - at - 1);
        if adds && word == b"*" {
            asked.at = at;
            break;
        }
        let by_id = is(word, "MINID");
        if more > 0 && (by_id || is(word, "MAXLEN")) {
            if stays.is_some() {
                let why = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
                return Err(why.into());
            }
            let sign = more > 1 && matches!(args.get(at + 1), b"~" | b"=");
            about = sign && args.get(at + 1) == b"~";
            at += if sign { 2 } else { 1 };
            stays = Some(if by_id { Stays::From(strict(args.get(at), 0)?) } else { Stays::Most(most(args.get(at))?) });
        } else if more > 0 && is(word, "LIMIT") {
            at += 1;
            let number = int(args.get(at))?;
            limit = Some(u64::try_from(number).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
        } else if adds && is(word, "NOMKSTREAM") {
            asked.only_old = true;
        } else if adds {
            asked.id = match partial(word)? {
                (ms, Some(seq)) => Wanted::This(Id { ms, seq }),
                (ms, None) => Wanted::At(ms),
            };
            asked.at = at;
            break;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    if limit.is_some_and(|limit| limit > 0) && stays.is_none() {
        return Err("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy".into());
    }
    if !adds && stays.is_none() {
        return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
    }
    if limit.is_some() && !about {
        return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
    }
    let limit = limit.unwrap_or(if about { LIMIT } else { 0 });
    asked.trim = stays.map(|stays| Trim { stays, about, limit });
    Ok(asked)
}

fn most(text: &[u8]) -> Outcome<u64> {
    Ok(u64::try_from(int(text)?).map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
}

/// Removes the oldest entries, and tells how many. The caller saves the head.
pub(super) fn trim(c: &mut Context<'_>, head: &mut Head, trim: Trim) -> Outcome<u64> {
    let limit = if trim.limit > 0 { trim.limit } else { u64::MAX };
    let (to, most) = match trim.stays {
        Stays::Most(count) => (Some(Id::MAX), head.count.saturating_sub(count).min(limit)),
        Stays::From(id) => (id.previous(), head.count.min(limit)),
    };
    let Some(to) = to.filter(|_| most > 0) else { return Ok(0) };
    let mut ids = entries::ids(c, head, (Id::MIN, to), most, false)?;
    // All of them go together as well.
    if trim.about && (ids.len() as u64) < head.count {
        ids.truncate(ids.len() - ids.len() % TOGETHER as usize);
    }
    for id in &ids {
        c.tx.delete(&head.entry(*id))?;
    }
    head.count = head.count.saturating_sub(ids.len() as u64);
    if let Some(last) = ids.last() {
        entries::begin_behind(c, head, *last)?;
    }
    Ok(ids.len() as u64)
}
