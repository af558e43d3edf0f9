//! The note of what is to go, as long as not all of it has gone.
//!
//! ```text
//!   META, "flush"    numbers of databases that are to be empty, a byte each
//!   META, "remove"   runs of keys
//!   META, "remove", number (4)     the same, from where the one before ends
//!   META, "spare"    kind (1)       0 nothing, 1 as "flush", 2 as "remove"
//!                    length (4)     big-endian
//!                    bytes          the note, and whatever is behind it
//! ```
//!
//! Runs are noted as [`run`](super::run) says. A store that changes its values in place keeps the spare one: a full one has no room for a new note, however short,
//! and none is needed to overwrite it.

use std::ops::ControlFlow;

use tx::Keys;

use super::run::{Run, decode};
use super::{RECORD, is_no_room, runs_of};
use crate::data::META;
use crate::engine::{Engine, Error, Result, Tx};

/// What a note is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Flush = 1,
    Remove = 2,
}

/// Bytes before a note in the spare one's place.
const HEAD: usize = 5;
/// Bytes of one record of a note: a full store may have room for many that has none for a long one.
const PIECE: usize = 32 << 10;
/// Bytes of its key.
const PIECE_NAME: u64 = 11;
/// Least bytes that are worth keeping.
const LEAST: usize = 256;

fn name(kind: Kind) -> Vec<u8> {
    let name = match kind {
        Kind::Flush => &b"flush"[..],
        Kind::Remove => b"remove",
    };
    [&[META], name].concat()
}

/// Where each piece of it goes.
fn pieces(kind: Kind, note: &[u8]) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    note.chunks(PIECE).enumerate().map(move |(number, piece)| {
        let mut key = name(kind);
        if number > 0 {
            key.extend_from_slice(&(number as u32).to_be_bytes());
        }
        (key, piece)
    })
}

/// Bytes that its records take.
pub(super) fn cost(note: &[u8]) -> u64 {
    let records = note.len().div_ceil(PIECE).max(1);
    (RECORD.1 + PIECE_NAME) * records as u64 + note.len() as u64
}

fn spare_name() -> Vec<u8> {
    [&[META], &b"spare"[..]].concat()
}

fn damaged() -> Error {
    Error::Damaged(
        "the note of what is to be removed is not sound; run `cairn check`, then restore from a copy".to_owned(),
    )
}

/// What is there to be overwritten.
struct Spare<'v> {
    len: usize,
    note: Option<(Kind, &'v [u8])>,
}

fn spare(tx: &dyn Tx) -> Result<Option<Spare<'_>>> {
    let Some(value) = tx.get(&spare_name())? else { return Ok(None) };
    let (head, rest) = value.split_first_chunk::<HEAD>().ok_or_else(damaged)?;
    let [kind, len @ ..] = *head;
    let kind = match kind {
        0 => return Ok(Some(Spare { len: value.len(), note: None })),
        1 => Kind::Flush,
        2 => Kind::Remove,
        _ => return Err(damaged()),
    };
    let note = rest.get(..u32::from_be_bytes(len) as usize).ok_or_else(damaged)?;
    Ok(Some(Spare { len: value.len(), note: Some((kind, note)) }))
}

/// Whether a note needs no room: it goes to the spare place.
pub(super) fn is_in_place(tx: &dyn Tx, note: &[u8]) -> Result<bool> {
    Ok(spare(tx)?.is_some_and(|spare| HEAD + note.len() <= spare.len))
}

pub(super) fn put(tx: &mut dyn Tx, kind: Kind, note: &[u8]) -> Result<()> {
    match spare(tx)? {
        Some(Spare { len, .. }) if HEAD + note.len() <= len => put_spare(tx, kind as u8, note, len),
        _ => pieces(kind, note).try_for_each(|(key, piece)| tx.put(&key, piece, None)),
    }
}

/// It keeps its length, and so its place.
fn put_spare(tx: &mut dyn Tx, kind: u8, note: &[u8], len: usize) -> Result<()> {
    let mut value = Vec::with_capacity(len);
    value.push(kind);
    value.extend_from_slice(&(note.len() as u32).to_be_bytes());
    value.extend_from_slice(note);
    value.resize(len, 0);
    tx.put(&spare_name(), &value, None)
}

/// The records of a note, and what they say together.
fn gather(tx: &dyn Tx, kind: Kind) -> Result<(Vec<Vec<u8>>, Vec<u8>)> {
    let (mut keys, mut note) = (Vec::new(), Vec::new());
    tx.scan(Keys::prefix(&name(kind)), &mut |key, piece| {
        keys.push(key.to_vec());
        note.extend_from_slice(piece);
        ControlFlow::Continue(())
    })?;
    Ok((keys, note))
}

/// All that was noted is done.
pub(super) fn clear(tx: &mut dyn Tx) -> Result<()> {
    for kind in [Kind::Flush, Kind::Remove] {
        gather(tx, kind)?.0.iter().try_for_each(|key| tx.delete(key).map(drop))?;
    }
    match spare(tx)? {
        Some(Spare { len, note: Some(_) }) => put_spare(tx, 0, &[], len),
        _ => Ok(()),
    }
}

/// What notes say, in order; none if there is no note.
pub(super) fn read(engine: &dyn Engine) -> Result<Option<Vec<Run>>> {
    let mut noted: Vec<(Kind, Vec<u8>)> = Vec::new();
    engine.read(&mut |tx| {
        noted.clear();
        for kind in [Kind::Flush, Kind::Remove] {
            let (keys, note) = gather(tx, kind)?;
            noted.extend((!keys.is_empty()).then_some((kind, note)));
        }
        if let Some((kind, note)) = spare(tx)?.and_then(|spare| spare.note) {
            noted.push((kind, note.to_vec()));
        }
        Ok(())
    })?;
    if noted.is_empty() {
        return Ok(None);
    }
    let mut runs: Vec<Run> = Vec::new();
    for (kind, note) in noted {
        runs.extend(match kind {
            Kind::Flush => runs_of(&note),
            Kind::Remove => decode(&note).ok_or_else(damaged)?,
        });
    }
    runs.sort_by(|a, b| a.from.cmp(&b.from));
    // What goes with all of its database goes with that.
    runs.dedup_by(|next, run| run.to.is_none() && next.from.starts_with(&run.from));
    Ok(Some(runs))
}

/// Sees to it that the spare place is there, and large enough, as far as the store has room for it. No note is in it.
pub(crate) fn keep_spare(engine: &dyn Engine) {
    if let Err(error) = try_to_keep_spare(engine) {
        tracing::warn!(
            "there is no room to keep some free for large removals; when the store is full they may be refused: {error}"
        );
    }
}

fn try_to_keep_spare(engine: &dyn Engine) -> Result<()> {
    let wanted = engine.spare_bytes();
    if wanted == 0 {
        return Ok(());
    }
    let mut has = 0;
    engine.read(&mut |tx| {
        has = spare(tx)?.map_or(0, |spare| spare.len);
        Ok(())
    })?;
    let mut bytes = wanted.max(LEAST);
    while has < bytes.div_ceil(2) {
        match engine.write(&mut |tx| put_spare(tx, 0, &[], bytes)) {
            Err(error) if is_no_room(&error) && bytes / 2 >= LEAST => bytes /= 2,
            Err(error) if is_no_room(&error) && has > 0 => return Ok(()),
            other => return other,
        }
    }
    Ok(())
}
