//! The meta commands.

use xxhash_rust::xxh3::xxh3_64;

use super::flags::Meta;
use super::request::Request;
use super::text::set_expiry;
use super::{
    COLLECTION, Expiry, NOT_NUMERIC, Store, Stored, Turn, base64, change, counter, expiry, held, is_version,
    must_write, put,
};
use crate::context::Context;
use crate::data::chunks::{Found, Text};
use crate::data::{Item, STALE, WON};
use crate::outcome::Outcome;

impl<'b> Meta<'b> {
    fn of(request: &Request<'b>) -> Outcome<Self> {
        Ok(Self::parse(request.words().skip(1))?)
    }

    /// An answer that has nothing of an item.
    fn answer(&self, c: &mut Context<'_>, code: &str) -> Outcome {
        let mut head = code.as_bytes().to_vec();
        self.flags.iter().for_each(|flag| self.repeat(flag, &mut head));
        c.reply.raw(&head);
        c.reply.raw(b"\r\n");
        Ok(())
    }
}

// ---- versions after a commit ----------------------------------------------------------------------------------

/// Stands where a version belongs that is not known before the commit. No other line has a byte like this.
const PENDING: u8 = 0;

/// The version of what a key has, or what [`complete`] finds it by.
fn version(c: &Context<'_>, key: &[u8]) -> Outcome<Vec<u8>> {
    let stored = c.key(key);
    let Some(value) = c.tx.get(&stored)? else { return Ok(b"0".to_vec()) };
    Ok(match c.tx.version(&stored)? {
        Some(version) => version.to_string().into_bytes(),
        None => [&[PENDING], &xxh3_64(value).to_be_bytes()[..]].concat(),
    })
}

/// Whether a version is missing in the answer to one request, which [`tells versions`](Request::tells_versions).
pub(super) fn is_pending(request: &Request<'_>, answer: &[u8]) -> bool {
    request.word(0).starts_with(b"m") && pending(answer).is_some()
}

fn pending_at(answer: &[u8]) -> Option<usize> {
    // Before the end of the line; what follows may be anything.
    answer.iter().position(|byte| matches!(*byte, PENDING | b'\n')).filter(|at| answer[*at] == PENDING)
}

/// The hash of the value whose version is missing.
fn pending(answer: &[u8]) -> Option<[u8; 8]> {
    answer.get(pending_at(answer)? + 1..)?.first_chunk().copied()
}

/// Writes `answer` with the version that was missing, in a transaction behind that of the write. If another client has put something else there in between,
/// it is none that the client may take for its own: 0, which no item has.
pub(super) fn complete(c: &mut Context<'_>, request: &Request<'_>, answer: &[u8]) -> Outcome {
    let meta = if request.word(0) == b"ms" { Meta::parse(Meta::of_set(request.words()))? } else { Meta::of(request)? };
    let stored = c.key(&meta.key);
    let hash = c.tx.get(&stored)?.map(|value| xxh3_64(value).to_be_bytes());
    let version = if hash.is_some_and(|hash| pending(answer) == Some(hash)) { c.tx.version(&stored)? } else { None };
    c.reply.raw(&with_version(answer, version.unwrap_or(0)));
    Ok(())
}

/// An answer with the version that was missing.
pub(super) fn with_version(answer: &[u8], version: u64) -> Vec<u8> {
    match pending_at(answer) {
        Some(at) => [&answer[..at], version.to_string().as_bytes(), &answer[at + 9..]].concat(),
        None => answer.to_vec(),
    }
}

// ---- mg -------------------------------------------------------------------------------------------------------

/// What an item is, and what an `mg` makes of it.
struct Seen {
    expires: Expiry,
    marks: u8,
    created: bool,
    won: bool,
    touched: bool,
}

pub(super) fn get(c: &mut Context<'_>, request: &Request<'_>, turn: &mut Turn) -> Outcome {
    let meta = Meta::of(request)?;
    let stored = c.key(&meta.key);
    let value = c.tx.get(&stored)?;
    let found = value.map(Found::read).transpose()?.flatten();
    turn.saw(found.is_some());
    if found.is_none() && (value.is_some() || meta.vivify.is_none()) {
        if value.is_some() && meta.vivify.is_some() {
            return Err(COLLECTION.into());
        }
        return if meta.has(b'q') { Ok(()) } else { meta.answer(c, "EN") };
    }
    let created = found.is_none();
    let item = found.unwrap_or(Found { flags: 0, marks: 0, text: Text::Whole(b"") });
    let expires = Expiry::stored(if meta.has(b't') || request.writes() || item.marks != 0 {
        c.tx.expires(&stored)?
    } else {
        None
    });
    let mut seen = Seen { expires, marks: item.marks, created, won: false, touched: false };
    let mut head = if meta.has(b'v') { format!("VA {}", item.text.len()) } else { "HD".to_owned() }.into_bytes();
    let cas_at = meta.describe(&item, &mut seen, c.now, &mut head);
    if seen.won {
        seen.marks |= WON;
    }
    let writes = seen.created || seen.touched || seen.marks != item.marks;
    if writes && !turn.writable {
        return Err(must_write());
    }
    head.extend_from_slice(b"\r\n");
    if meta.has(b'v') {
        item.text.append_to(&*c.tx, &mut head)?;
        head.extend_from_slice(b"\r\n");
    }
    if writes && !seen.created && seen.marks == item.marks {
        set_expiry(c, &meta.key, seen.expires)?;
    } else if writes {
        let bytes = item.text.bytes(&*c.tx)?.into_owned();
        let item = Item { flags: item.flags, marks: seen.marks, bytes: &bytes };
        put(c, &meta.key, &item, seen.expires)?;
    }
    finish(c, &meta, head, cas_at)
}

/// Sends an answer, whose version belongs at a place in it.
fn finish(c: &mut Context<'_>, meta: &Meta<'_>, answer: Vec<u8>, cas_at: Option<usize>) -> Outcome {
    let (before, after) = answer.split_at(cas_at.unwrap_or(answer.len()));
    c.reply.raw(before);
    if cas_at.is_some() {
        let version = version(c, &meta.key)?;
        c.reply.raw(&version);
    }
    c.reply.raw(after);
    Ok(())
}

impl Meta<'_> {
    /// Does what the flags of an `mg` say in their order, and writes what they ask for; the version's place is given back.
    fn describe(&self, item: &Found<'_>, seen: &mut Seen, now: u64, head: &mut Vec<u8>) -> Option<usize> {
        let mut cas_at = None;
        for flag in &self.flags {
            match flag[0] {
                b'T' => {
                    seen.expires = Expiry::of(self.touch.unwrap_or(0), now);
                    seen.touched = true;
                }
                b'N' if seen.created => {
                    seen.expires = Expiry::of(self.vivify.unwrap_or(0), now);
                    seen.won = true;
                }
                b'R' if seen.marks & WON == 0 && !seen.created => {
                    let soon = Expiry::of(self.recache.unwrap_or(0), now);
                    seen.won |= matches!((seen.expires, soon), (Expiry::At(at), Expiry::At(soon)) if at < soon);
                }
                b's' => head.extend_from_slice(format!(" s{}", item.text.len()).as_bytes()),
                b't' => head.extend_from_slice(format!(" t{}", seen.expires.remaining(now)).as_bytes()),
                b'f' => head.extend_from_slice(format!(" f{}", item.flags).as_bytes()),
                b'c' => {
                    head.extend_from_slice(b" c");
                    cas_at = Some(head.len());
                }
                _ => self.repeat(flag, head),
            }
        }
        if seen.marks & WON != 0 {
            head.extend_from_slice(b" Z");
        }
        if seen.marks & STALE != 0 {
            head.extend_from_slice(b" X");
            seen.won |= seen.marks & WON == 0;
        }
        if seen.won {
            head.extend_from_slice(b" W");
        }
        cas_at
    }
}

// ---- ms, md, ma, me -------------------------------------------------------------------------------------------

pub(super) fn set(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let meta = Meta::parse(Meta::of_set(request.words()))?;
    let store = Store {
        mode: meta.mode()?,
        key: &meta.key,
        flags: meta.client_flags,
        data: request.data,
        exptime: meta.touch.unwrap_or(0),
        cas: meta.cas.unwrap_or(0),
        invalidate: meta.has(b'I'),
    };
    let stored = store.run(c)?;
    let code = match stored {
        Stored::Yes if meta.has(b'q') => return Ok(()),
        Stored::Yes => "HD",
        Stored::No => "NS",
        Stored::Exists => "EX",
        Stored::NotFound => "NF",
    };
    let mut answer = code.as_bytes().to_vec();
    let mut cas_at = None;
    for flag in &meta.flags {
        if flag[0] != b'c' {
            meta.repeat(flag, &mut answer);
            continue;
        }
        answer.extend_from_slice(b" c");
        if stored == Stored::Yes {
            cas_at = Some(answer.len());
        } else {
            answer.push(b'0');
        }
    }
    answer.extend_from_slice(b"\r\n");
    finish(c, &meta, answer, cas_at)
}

pub(super) fn delete(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let meta = Meta::of(request)?;
    if c.tx.get(&c.key(&meta.key))?.is_none() {
        return meta.answer(c, "NF");
    }
    if let Some(cas) = meta.cas
        && !is_version(c, &meta.key, cas)?
    {
        return meta.answer(c, "EX");
    }
    if meta.has(b'I') {
        let Some(held) = held(c, &meta.key)? else { return meta.answer(c, "NF") };
        let until = match meta.touch {
            Some(exptime) => Expiry::of(exptime, c.now),
            None => expiry(c, &meta.key)?,
        };
        put(c, &meta.key, &Item { flags: held.flags, marks: STALE, bytes: &held.bytes }, until)?;
    } else {
        c.remove(&meta.key)?;
    }
    if meta.has(b'q') { Ok(()) } else { meta.answer(c, "HD") }
}

pub(super) fn arithmetic(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let meta = Meta::of(request)?;
    let up = meta.is_increment()?;
    let (held, created) = match held(c, &meta.key)? {
        Some(held) => (held, false),
        None if meta.vivify.is_none() => return meta.answer(c, "NF"),
        None => (super::Held { flags: 0, marks: 0, bytes: Vec::new() }, true),
    };
    let number = if created {
        meta.initial
    } else {
        if held.bytes.is_empty() {
            return Err(NOT_NUMERIC.into());
        }
        if let Some(cas) = meta.cas.filter(|cas| *cas != 0)
            && !is_version(c, &meta.key, cas)?
        {
            return meta.answer(c, "EX");
        }
        change(counter(&held.bytes).ok_or(NOT_NUMERIC)?, meta.delta, up)
    };
    let number = number.to_string();
    let mut answer = if meta.has(b'v') { format!("VA {}", number.len()) } else { "HD".to_owned() }.into_bytes();
    let mut until = if created { Expiry::Never } else { expiry(c, &meta.key)? };
    let mut cas_at = None;
    for flag in &meta.flags {
        match flag[0] {
            b'T' => until = Expiry::of(meta.touch.unwrap_or(0), c.now),
            b'N' if created => until = Expiry::of(meta.vivify.unwrap_or(0), c.now),
            b't' => answer.extend_from_slice(format!(" t{}", until.remaining(c.now)).as_bytes()),
            b'c' => {
                answer.extend_from_slice(b" c");
                cas_at = Some(answer.len());
            }
            _ => meta.repeat(flag, &mut answer),
        }
    }
    answer.extend_from_slice(b"\r\n");
    if meta.has(b'v') {
        answer.extend_from_slice(number.as_bytes());
        answer.extend_from_slice(b"\r\n");
    }
    put(c, &meta.key, &Item { flags: held.flags, marks: held.marks, bytes: number.as_bytes() }, until)?;
    // Of what was made there is always an answer.
    if meta.has(b'q') && !created { Ok(()) } else { finish(c, &meta, answer, cas_at) }
}

/// What is known of an item.
pub(super) fn debug(c: &mut Context<'_>, request: &Request<'_>) -> Outcome {
    let (key, binary) = (request.word(1), request.word(2) == b"b");
    let decoded = if binary { base64::decode(key).unwrap_or_default() } else { key.to_vec() };
    let stored = c.key(&decoded);
    let Some(item) = c.tx.get(&stored)?.map(Found::read).transpose()?.flatten() else { return super::answer(c, "EN") };
    let size = item.text.len();
    let expires = Expiry::stored(c.tx.expires(&stored)?).remaining(c.now);
    let cas = c.tx.version(&stored)?.unwrap_or(0);
    c.reply.raw(b"ME ");
    c.reply.raw(key);
    c.reply.raw(format!(" exp={expires} cas={cas} size={size}\r\n").as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_completed_in_their_first_line_only() {
        let hash = 7_u64.to_be_bytes();
        let answer = [&b"HD k\x01 c\0"[..], &hash, b" t5\r\n"].concat();
        assert_eq!(pending(&answer), Some(hash));
        assert_eq!(with_version(&answer, 12), b"HD k\x01 c12 t5\r\n");
        let whole = b"VA 9 c3\r\n\0\0\0\0\0\0\0\0\0\r\n";
        assert_eq!((pending(whole), with_version(whole, 12)), (None, whole.to_vec()));
        assert_eq!(pending(b""), None);
    }
}
