//! What a command on data has, and how it reads and changes what [`data`](crate::data) describes.

mod strings;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::SeqCst;

use tx::Keys;

use crate::data::chunks::Long;
use crate::data::{GARBAGE, Head, Key, Kind, PARTS, notes};
use crate::databases::DatabaseMap;
use crate::engine::{self, Error, Result, Tx, Visit};
use crate::events::Told;
use crate::failpoints::Step;
use crate::meter::{LONG, PAIR, READ_BYTE, Spent, WRITE_BYTE};
use crate::outcome::{Outcome, WRONG_TYPE};
use crate::readers::Since;
use crate::reply::Reply;
use crate::shared::Shared;

/// Elements that are removed with their collection; of a longer one they are swept later.
const AT_ONCE: u64 = 64;

/// Keys that the store is asked for at once, before they are looked up one by one.
pub(crate) const AHEAD: usize = 32;

/// What a command on data has.
pub(crate) struct Context<'c> {
    pub(crate) tx: &'c mut dyn Tx,
    pub(crate) reply: &'c mut Reply,
    /// The database of the store, whatever clients call it.
    pub(crate) db: u8,
    /// Milliseconds of Unix time.
    pub(crate) now: u64,
    pub(crate) shared: &'c Shared,
    /// Looks at keys that were there, and at those that were not.
    pub(crate) looks: Looks,
}

/// What an attempt has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    hits: Cell<u64>,
    misses: Cell<u64>,
    written: Cell<u64>,
    /// What its requests have asked of the store.
    pub(crate) spent: Spent,
    /// Bytes of strings it may write; 0 for no limit.
    most: u64,
    /// It stands between `MULTI` and `EXEC`.
    pub(crate) whole: bool,
    /// It waits for an element, and has looked before.
    pub(crate) waited: bool,
    /// A key that it waits for has become of another type.
    pub(crate) mismatched: Cell<bool>,
    /// Where the databases of clients are: as at the beginning, but for what this attempt has changed.
    pub(crate) databases: DatabaseMap,
    /// Its thread serves no connections.
    pub(crate) apart: bool,
    /// It is a command of a script.
    pub(crate) scripted: bool,
    /// What a reader of streams waits for.
    pub(crate) since: Since,
    /// What is to be told of it when it is committed.
    pub(crate) told: Told,
}

impl Looks {
    pub(crate) fn new(most: u64, databases: DatabaseMap) -> Self {
        Self { most, databases, ..Self::default() }
    }

    /// [`Context::takes`], of one whose parts are lent out.
    fn takes(&self, nanos: u64) -> Result<()> {
        if nanos > LONG && !self.apart { Err(Error::TooLong) } else { Ok(()) }
    }

    /// [`Context::reads`], of such a one.
    pub(crate) fn reads(&self, bytes: usize) -> Result<()> {
        self.takes(READ_BYTE.saturating_mul(bytes as u64))
    }

    /// A key was there, or was not: what `keyspace_hits` and `keyspace_misses` count.
    pub(crate) fn at(&self, there: bool) {
        let which = if there { &self.hits } else { &self.misses };
        which.set(which.get() + 1);
    }

    /// So many bytes are about to be written: a short request may write a long string.
    pub(crate) fn write(&self, bytes: usize) -> engine::Result<()> {
        self.written.set(self.written.get() + bytes as u64);
        if self.most > 0 && self.written.get() > self.most {
            return Err(engine::Error::Limit(format!(
                "the transaction writes more than {} bytes; write less at once",
                self.most
            )));
        }
        Ok(())
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
}

impl Context<'_> {
    pub(crate) fn key(&self, key: &[u8]) -> Key {
        Key::new(self.db, key)
    }

    /// Asks the store ahead for keys that are about to be looked up one by one, [`AHEAD`] of them, so that their cache misses overlap.
    pub(crate) fn prefetch(&self, keys: &[&[u8]]) {
        if keys.len() > 1 {
            let keys: Vec<_> = keys.iter().map(|key| self.key(key)).collect();
            self.tx.prefetch(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
        }
    }

    // ---- time ---------------------------------------------------------------------------------------------------

    /// It is about to take so long. On a thread that serves others it is given up if that is much, and run again on one that does not.
    pub(crate) fn takes(&self, nanos: u64) -> Result<()> {
        self.looks.takes(nanos)
    }

    /// It is about to pass by so many pairs, or to change them.
    pub(crate) fn passes(&self, pairs: u64) -> Result<()> {
        self.takes(pairs.saturating_mul(PAIR))
    }

    /// It is about to read so many bytes of a string. The transaction [counts](crate::meter) what is asked of it; a command that is known to take too long need not begin.
    pub(crate) fn reads(&self, bytes: usize) -> Result<()> {
        self.looks.reads(bytes)
    }

    /// It is about to write so many.
    pub(crate) fn writes(&self, bytes: usize) -> Result<()> {
        self.takes(WRITE_BYTE.saturating_mul(bytes as u64))
    }

    /// Pairs in order of keys.
    pub(crate) fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.tx.scan(keys, visit)
    }

    // ---- any value ----------------------------------------------------------------------------------------------

    /// Removes a key with all that belongs to it; true if it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Outcome<bool> {
        self.remove_stored(&self.key(key))
    }

    /// The same, of a key as it is in the store.
    fn remove_stored(&mut self, key: &[u8]) -> Outcome<bool> {
        self.overwrite(key, |tx| tx.delete(key))
    }

    /// Sets when a key that is there expires, `None` for never. `key` is as it is in the store.
    pub(crate) fn set_expiry(&mut self, key: &[u8], expires: Option<u64>) -> Outcome {
        let Some(value) = self.tx.get(key)? else { return Ok(()) };
        let mut value = value.to_vec();
        if let Some(head) = Head::read(&value) {
            let head = self.expiring(key, head, expires)?;
            head.write_over(&mut value);
        }
        Ok(self.tx.put(key, &value, expires)?)
    }

    /// Moves a value to another key, both as they are in the store. What that one had is gone.
    pub(crate) fn take_over(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        let Some(value) = self.tx.get(from)?.map(<[u8]>::to_vec) else { return Ok(()) };
        let expires = self.tx.expires(from)?;
        if from == to {
            return Ok(());
        }
        if let Some(head) = Head::read(&value).filter(|_| !self.shared.failpoints.skips(Step::NoteMoves)) {
            notes::write(self.tx, to, &head)?;
        }
        self.tx.delete(from)?;
        self.overwrite(to, |tx| tx.put(to, &value, expires))
    }

    /// The same value at another key, both as they are in the store. What that one had is gone.
    pub(crate) fn duplicate(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        let Some(mut value) = self.tx.get(from)?.map(<[u8]>::to_vec) else { return Ok(()) };
        let expires = self.tx.expires(from)?;
        self.looks.write(value.len())?;
        if let Some(long) = Long::read(&value)? {
            self.writes(long.len())?;
            let copy = self.copy_long(&long)?;
            notes::write(self.tx, to, &copy.head)?;
            value = copy.write();
        } else if let Some(head) = Head::read(&value) {
            self.passes(head.count)?;
            let mut copy = head;
            copy.id = self.shared.ids.next()?;
            for (element, held) in self.pairs(head.elements(&[]))? {
                self.looks.write(held.len())?;
                self.tx.put(&copy.element(&[&element[9..]]), &held, None)?;
            }
            for (part, _) in self.pairs(Keys::prefix(&[&[PARTS], &head.id.to_be_bytes()[..]].concat()))? {
                self.abandon_part(&copy, &part[9..])?;
            }
            notes::write(self.tx, to, &copy)?;
            value = copy.write().to_vec();
        }
        self.overwrite(to, |tx| tx.put(to, &value, expires))
    }

    /// Sets or deletes a key, as it is in the store, by `change`, whatever it has had.
    fn overwrite<T>(&mut self, key: &[u8], change: impl FnOnce(&mut dyn Tx) -> Result<T>) -> Outcome<T> {
        let plain = !self.shared.collections.load(SeqCst);
        self.disown(key)?;
        let done = change(&mut *self.tx)?;
        // No transaction had said that there are collections; the first may have been made, and here, in between. From now on the key is held, or a
        // transaction that comes in between is a conflict.
        if plain && self.shared.collections.load(SeqCst) && !self.shared.failpoints.skips(Step::LookAgain) {
            return Err(Error::Again.into());
        }
        Ok(done)
    }

    /// The elements of what a key has lose their owner. The caller sets or deletes the key.
    fn disown(&mut self, key: &[u8]) -> Outcome {
        // A transaction that makes the first collection says so before it commits. One that overwrites a key looks before and after.
        if !self.shared.collections.load(SeqCst) {
            return Ok(());
        }
        let Some(value) = self.tx.get(key)? else { return Ok(()) };
        let Some(head) = Head::read(value) else { return Ok(()) };
        // A scan would read the chunks. Of a head that contradicts itself the reaper finds them.
        let long = if head.kind == Kind::String { Long::read(value).ok().flatten() } else { None };
        let gone = match long {
            _ if head.count > AT_ONCE => false,
            Some(long) => self.remove_chunks(&long, 0).map(|()| true)?,
            None if head.kind == Kind::String => false,
            None => self.remove_few(head.elements(&[]))?,
        };
        if gone { Ok(()) } else { self.abandon(&head) }
    }

    /// Deletes what is there, unless that is much: then it deletes nothing, and says so.
    fn remove_few(&mut self, keys: Keys) -> Outcome<bool> {
        // A sorted set has two for each element; a stream's count is not of all that it has.
        let (mut few, most) = (Vec::new(), 2 * AT_ONCE as usize);
        self.tx.scan(keys, &mut |key, _| {
            few.push(key.to_vec());
            if few.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if few.len() > most {
            return Ok(false);
        }
        for key in &few {
            self.tx.delete(key)?;
        }
        Ok(true)
    }

    /// Deletes what a head that stays has under `part`, or leaves it to the reaper. What stands there is never used again.
    pub(crate) fn remove_part(&mut self, head: &Head, part: &[u8]) -> Outcome {
        if self.remove_few(head.elements(&[part]))? { Ok(()) } else { self.abandon_part(head, part) }
    }

    fn abandon_part(&mut self, head: &Head, part: &[u8]) -> Outcome {
        Ok(self.tx.put(&[&[PARTS], &head.id.to_be_bytes()[..], part].concat(), &[], None)?)
    }

    /// The elements of a head that goes are for the reaper.
    pub(crate) fn abandon(&mut self, head: &Head) -> Outcome {
        if self.shared.failpoints.skips(Step::Abandoned) {
            return Ok(());
        }
        Ok(self.tx.put(&[&[GARBAGE], &head.id.to_be_bytes()[..]].concat(), &[], None)?)
    }

    /// The head of what is at a key, as it is in the store, which expires then, or stays. The caller writes it.
    fn expiring(&mut self, key: &[u8], head: Head, expires: Option<u64>) -> Outcome<Head> {
        if head.expires() != expires && !self.shared.failpoints.skips(Step::NoteMoves) {
            notes::remove(self.tx, &head)?;
        }
        let head = head.expiring(expires);
        notes::write(self.tx, key, &head)?;
        Ok(head)
    }

    // ---- collections --------------------------------------------------------------------------------------------

    /// The collection at a key. `WRONGTYPE` if it is of another kind.
    pub(crate) fn head(&self, key: &[u8], kind: Kind) -> Outcome<Option<Head>> {
        let value = self.tx.get(&self.key(key))?;
        self.looks.at(value.is_some());
        let Some(value) = value else { return Ok(None) };
        match Head::read(value) {
            Some(head) if head.kind == kind => Ok(Some(head)),
            _ => Err(WRONG_TYPE.into()),
        }
    }

    /// The same, or a new one, which is there once it is [saved](Self::save).
    pub(crate) fn head_or_new(&self, key: &[u8], kind: Kind) -> Outcome<Head> {
        self.head(key, kind)?.map_or_else(|| self.new_head(kind), Ok)
    }

    /// The head of a collection that is there once it is [saved](Self::save).
    pub(crate) fn new_head(&self, kind: Kind) -> Outcome<Head> {
        self.shared.collections.store(true, SeqCst);
        Ok(Head::new(kind, self.shared.ids.next()?))
    }

    /// Writes the head after any change; one without elements is no more, unless it is a stream's.
    pub(crate) fn save(&mut self, key: &[u8], head: &Head) -> Outcome {
        let key = self.key(key);
        if head.count == 0 && head.kind != Kind::Stream {
            self.tx.delete(&key)?;
            return Ok(());
        }
        Ok(self.tx.put(&key, &head.write(), head.expires())?)
    }

    /// Copies of all pairs of a range.
    pub(crate) fn pairs(&self, keys: Keys) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut pairs = Vec::new();
        self.scan(keys, &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(pairs)
    }
}
