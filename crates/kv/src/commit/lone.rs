//! A put by itself, in memory: one key, nothing read, no image of what is written and no lists. The record is checksummed, and leaves for the medium, from the caller's bytes.
//!
//! The order of things is that of [`commit`](crate::commit): the key's lock, the announcement at the leaf, the timestamp, the record, the barrier, the index. But what must come from
//! memory is asked for before the first locked instruction, which would wait for it; and the version that goes is known by its word alone until the value is on its way: only then
//! its record is looked at, which may still be coming. If it is of another key after all, nothing has happened: the line with the checksum goes last.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use pmem::LINE;
use pmem::sync::switch_point;

use crate::Step;
use crate::commit::publish::is_published;
use crate::error::{Error, Result};
use crate::index::{Leaf, Spot};
use crate::isolation::Concurrency;
use crate::isolation::active::Pin;
use crate::isolation::locks::Tried;
use crate::media::checksum;
use crate::media::header::{self, GRAIN, HEADER, Header};
use crate::media::key::{self, RECORDS};
use crate::media::record::Record;
use crate::media::word::Word;
use crate::raw::{self, Claim};
use crate::time::Now;
use crate::versions::Versions;
use crate::writers::writer::{Log, Run, Writer};

/// Lines that are put together on the stack: header, key, and what of the value is on a line with them.
const HEAD: usize = 4 * LINE as usize;
/// Longest key and value that go this way.
const KEY: usize = HEAD - HEADER as usize;
const VALUE: usize = 64 << 10;
/// What of a value stands behind the head is checksummed while it leaves, from this length on.
const ONE_PASS: usize = 1 << 10;

/// The lock of a key, as long as this lives.
struct KeyLock<'a> {
    concurrency: &'a Concurrency,
    pin: &'a Pin<'a>,
    hash: u64,
}

impl Drop for KeyLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.concurrency.unlock(self.hash, self.pin);
    }
}

/// A writer that prepares, as long as this lives, and says so at the leaf.
struct Announced<'a> {
    writer: &'a Writer,
    leaf: &'a Leaf,
    bit: u64,
}

impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        self.writer.done();
        self.leaf.retreat(self.bit);
        self.writer.wake();
    }
}

/// Stores that are on their way to where a record goes, and that are not waited for if the put gives up. The next holder of the log stores at this location: not
/// before they have got there.
struct Streaming;

impl Drop for Streaming {
    #[cold]
    fn drop(&mut self) {
        fence(SeqCst);
    }
}

/// What is put.
struct Put<'a> {
    key: &'a [u8],
    value: &'a [u8],
    hash: u64,
    spot: Spot,
    /// Where it goes.
    run: Run,
    writer: usize,
}

/// What came of it.
pub(crate) struct Done {
    /// The key had a value.
    pub(crate) had: bool,
    /// Bytes written that are worth telling.
    pub(crate) told: Option<u64>,
}

/// Sets the key's value, and says if it had one; none if this is no put to be made this way, and then nothing has happened.
#[inline]
pub(crate) fn put(versions: &Versions, key: &[u8], value: &[u8]) -> Result<Option<Done>> {
    // The types of a table are written where that is told.
    if key.starts_with(RECORDS) || key.len() > KEY || value.len() > VALUE || versions.space.check_key(key).is_err() {
        return Ok(None);
    }
    let hash = key::hash(key);
    versions.concurrency.prefetch(hash);
    let pin = versions.pin()?;
    let spot = versions.index.spot(&pin, key);
    let leaf = versions.index.leaf(spot);
    leaf.prefetch_head();
    let (had, told) = {
        let (number, mut log) = versions.writers.claim();
        // The previous holder of the log may have failed: what it stored is in doubt, and stays as it is.
        versions.pool().check_usable()?;
        let space = (HEADER + (key.len() + value.len()) as u64).next_multiple_of(GRAIN);
        let Some(run) = log.next_run(space) else { return Ok(None) };
        if let Some(word) = leaf.likely(hash) {
            versions.index.prefetch_key(word);
        }
        if versions.concurrency.try_lock(hash, &pin) != Tried::Taken {
            return Ok(None);
        }
        let _lock = KeyLock { concurrency: &versions.concurrency, pin: &pin, hash };
        let put = Put { key, value, hash, spot, run, writer: number };
        let Some(had) = put_locked(versions, &pin, &put, &mut log)? else { return Ok(None) };
        (had, log.tell(&versions.space))
    };
    Ok(Some(Done { had, told }))
}

#[inline]
fn put_locked(versions: &Versions, pin: &Pin<'_>, put: &Put<'_>, log: &mut Log) -> Result<Option<bool>> {
    let (writer, leaf) = (versions.writers.get(put.writer), versions.index.leaf(put.spot));
    writer.prepare(pin);
    let bit = 1 << put.writer;
    if !versions.skips(Step::Announce) {
        leaf.pending.fetch_or(bit, SeqCst);
    }
    // Behind the announcement: a leaf that is split from here on passes it on.
    let _announced = Announced { writer, leaf, bit };
    if leaf.layout_now() != put.spot.layout {
        return Ok(None);
    }
    switch_point();
    let ts = versions.concurrency.active.tick();
    switch_point();
    writer.prepared(ts);
    // Behind the key's lock: if this is a version of the key, it stays the newest one.
    let Some(old) = leaf.only(put.spot.layout, put.hash) else { return Ok(None) };
    let Some(had) = write_alone(versions, pin, put, ts, old, log)? else { return Ok(None) };
    writer.count();
    Ok(Some(had))
}

/// Everything from the record to the index; none if `old` is of another key.
#[inline]
fn write_alone(
    versions: &Versions,
    pin: &Pin<'_>,
    put: &Put<'_>,
    ts: u64,
    old: Word,
    log: &mut Log,
) -> Result<Option<bool>> {
    crate::failpoints::before_barrier();
    let mut header = Header::new(put.key, put.value, header::FIRST);
    header.ts = ts;
    header.prev = if old.is_none() { 0 } else { old.offset() };
    header.generation = versions.medium.generation();
    header.link = log.link();
    let key_end = HEADER as usize + put.key.len();
    let (front, rest) = put.value.split_at((key_end.next_multiple_of(LINE as usize) - key_end).min(put.value.len()));
    let mut head = [0; HEAD];
    let head = &mut head[..key_end + front.len()];
    head[HEADER as usize..key_end].copy_from_slice(put.key);
    head[key_end..].copy_from_slice(front);
    head[..HEADER as usize].copy_from_slice(pmem::bytes_of(&header));
    let location = checksum::location(put.run.offset, put.writer, put.run.sequence);
    let (at, behind) = (put.run.offset, put.run.offset + head.len() as u64);
    let streaming = Streaming;
    let one_pass = rest.len() >= ONE_PASS && !versions.skips(Step::ChecksumAll) && !versions.skips(Step::ChecksumLast);
    let checksum = if one_pass {
        let covered = checksum::checksummed(head);
        checksum::bound(
            raw::store_checksumming(Claim::Writer, versions.pool(), versions.medium.key(), behind, covered, rest)?,
            location,
        )
    } else if versions.skips(Step::ChecksumAll) {
        checksum::checksum_parts(versions.medium.key(), &head[..HEADER as usize], &[], location)
    } else {
        checksum::checksum_parts(versions.medium.key(), head, rest, location)
    };
    head[..8].copy_from_slice(&checksum.to_le_bytes());
    if versions.skips(Step::ChecksumLast) {
        raw::store(Claim::Writer, versions.pool(), at, head)?;
    }
    if !one_pass && !rest.is_empty() {
        raw::store(Claim::Writer, versions.pool(), behind, rest)?;
    }
    let mut had = false;
    if !old.is_none() {
        let before = Record::at(Claim::Pinned, pin, versions.pool(), old.offset())?;
        if before.key() != put.key && !versions.skips(Step::CompareKeys) {
            return Ok(None);
        }
        had = before.is_live(&Now::default());
    }
    log.follow(versions.pool(), versions.medium.key(), 1)?;
    raw::store(Claim::Writer, versions.pool(), at, head)?;
    if !versions.skips(Step::CommitBarrier) {
        versions.pool().drain().map_err(|source| Error::InDoubt { source })?;
    }
    std::mem::forget(streaming); // the drain has waited for them
    log.advance(&versions.space, std::slice::from_ref(&put.run), put.run.len, checksum::link(checksum));
    log.is_durable();
    let word = Word::new(put.run.offset, put.run.len as u64, put.hash, &header);
    versions.index.set(pin, put.key, put.hash, old, word, put.spot)?;
    is_published(versions, put.run.segment, word, old, log);
    Ok(Some(had))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isolation, Options, Store};

    fn store() -> (tempfile::TempDir, Store) {
        store_of(4096)
    }

    fn store_of(segment: u64) -> (tempfile::TempDir, Store) {
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let store = Options::new()
            .segment_bytes(segment)
            .background(false)
            .pool(pool)
            .create(dir.path().join("store"))
            .unwrap();
        (dir, store)
    }

    #[test]
    fn it_is_for_who_has_room_and_a_key_that_nobody_has() {
        let (_dir, store) = store();
        let core = &store.core;
        // Without a segment there is more to do.
        assert_eq!(core.put_alone(b"key", b"1").unwrap(), None);
        assert!(!store.put(b"key", b"1").unwrap());
        assert_eq!(core.put_alone(b"key", b"2").unwrap(), Some(true));
        assert_eq!(core.put_alone(b"other", b"").unwrap(), Some(false));
        assert_eq!(core.put_alone(&[7; KEY], &[8; 300]).unwrap(), Some(false));
        assert_eq!(core.put_alone(&[7; KEY + 1], b"").unwrap(), None);
        assert_eq!(core.put_alone(b"key", &[7; 4096]).unwrap(), None);
        let mut tx = store.begin(Isolation::Snapshot).unwrap();
        tx.put(b"key", b"3").unwrap();
        assert_eq!(core.put_alone(b"key", b"4").unwrap(), None);
        drop(tx);
        assert_eq!(core.put_alone(b"key", b"").unwrap(), Some(true));
        assert!(store.delete(b"key").unwrap());
        assert_eq!(core.put_alone(b"key", b"5").unwrap(), Some(false));
        assert_eq!(store.get(b"key").unwrap().unwrap(), b"5");
        assert_eq!(store.get(&[7; KEY]).unwrap().unwrap(), [8; 300]);
        assert_eq!((store.stats().entries, store.stats().commits), (3, 7));
    }

    /// Values that are checksummed while they leave: around the length from which on they are, the blocks of the checksum, and lines.
    #[test]
    fn long_values_are_checksummed_as_those_of_a_transaction() {
        let (dir, store) = store_of(1 << 20);
        store.put(b"first", b"").unwrap();
        let lens = (900..1300).step_by(13).chain((1980..2120).step_by(7)).chain([4000, 4096, 4097, 65_535, VALUE]);
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = lens
            .enumerate()
            .map(|(n, len)| (vec![n as u8; 1 + n * 31 % KEY], (0..len).map(|at| (at * 7 + n) as u8).collect()))
            .collect();
        for (key, value) in &pairs {
            assert_eq!(store.core.put_alone(key, value).unwrap(), Some(false), "{} bytes", value.len());
        }
        store.abandon();
        let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let store = Options::new().background(false).verify(true).pool(pool).open(dir.path().join("store")).unwrap();
        assert!(pairs.iter().all(|(key, value)| store.get(key).unwrap().as_ref() == Some(value)));
        assert!(store.check(|_| ()).unwrap().is_sound());
    }

    /// Each length, so that header, key, and value end before, on and behind lines; read by recovery after a crash.
    #[test]
    fn it_writes_the_record_that_a_transaction_writes() {
        let (dir, store) = store();
        store.put(b"first", b"").unwrap();
        let mut alone = 0;
        let value = |n: usize| -> Vec<u8> { (0..n * 5 % 700).map(|at| (at * 7 + n) as u8).collect() };
        let keys = || (1..=KEY).map(|n| (0..n).map(|at| (at * n) as u8).collect::<Vec<u8>>());
        for (n, key) in keys().enumerate() {
            match store.core.put_alone(&key, &value(n)).unwrap() {
                Some(_) => alone += 1,
                None => drop(store.put(&key, &value(n))),
            }
        }
        // The others begin a segment.
        assert!(alone > KEY * 3 / 4, "{alone} of {KEY}");
        store.abandon();
        let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let store = Options::new().background(false).verify(true).pool(pool).open(dir.path().join("store")).unwrap();
        assert!(keys().enumerate().all(|(n, key)| store.get(&key).unwrap() == Some(value(n))));
        assert!(store.check(|_| ()).unwrap().is_sound());
    }
}
