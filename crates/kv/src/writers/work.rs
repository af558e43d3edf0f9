//! What a transaction has done so far: in memory, until it commits.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::ops::{Bound, Range};

use crate::index::Spot;
use crate::media::header::{self, HEADER, Header, TOMBSTONE};
use crate::media::word::Word;
use crate::time::Now;
use crate::writers::writer::Run;

/// Writes that are looked through one by one; more have a table.
const FEW: usize = 12;

/// Leaves of keys that are kept.
const SPOTS: usize = 128;

/// How often all writes are looked through for scans, before they are kept in order.
const LOOKS: usize = 8;

/// Keys of a transaction that may have the hash of another one, before the table gets hashes of its own.
const COLLISIONS: u32 = 16;

/// Of this process, never 0.
#[expect(clippy::disallowed_methods, reason = "nobody may know it, and it changes no order that is seen")]
fn seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| std::hash::RandomState::new().build_hasher().finish().max(1))
}

/// The lists of one transaction; kept by the thread for its next.
#[derive(Default)]
pub(crate) struct Work {
    /// Records as they will be on media, one behind the other, but for timestamp and checksum.
    pub(crate) image: Vec<u8>,
    pub(crate) writes: Vec<Write>,
    /// Where in `writes` a hash is, if there are many.
    table: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    /// Keys whose hash another one had; and the seed of the table's own, once these are many, or 0: no client can choose keys that collide there.
    collisions: u32,
    seed: u64,
    /// Where in `writes` keys are, for one that scans again and again; those that came since the last scan are not in it. And how many writes scans have looked through without.
    ordered: BTreeMap<Box<[u8]>, u32>,
    looked: usize,
    /// Bytes of the image that a later write of the same key has replaced.
    replaced: usize,
    pub(crate) reads: Vec<Read>,
    /// Keys that were looked for and not found.
    pub(crate) missed: Vec<u8>,
    pub(crate) scans: Vec<Scanned>,
    /// Leaves of keys that were asked for ahead, each at an index its hash gives: the last one that came has it.
    spots: Vec<(u64, Spot)>,
    /// Timestamps of what scans found.
    pub(crate) scanned: Vec<u64>,
    /// Hashes of the keys whose locks are held.
    pub(crate) locks: Vec<u64>,
    pub(crate) runs: Vec<Run>,
    /// Is told how far its commit has come.
    pub(crate) told: Option<Tell>,
}

/// How far a commit has come that is under way, of a store whose commits wait for a device or for other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It meets no conflict any more, and has its room and its place in the order of commits. It is durable nowhere yet.
    Ordered,
    /// The log on this machine has it, where it survives a loss of power; the write quorum may not have it yet. Not said of a store that is on one machine alone: what is there is committed.
    Here,
}

/// Is called on the thread that commits, and should be brief.
pub(crate) type Tell = Box<dyn Fn(Stage) + Send + Sync>;

/// A key that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) hash: u64,
    /// Its record in the image.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// The version it supersedes.
    pub(crate) old: Word,
    /// Where the index had that, or would have it.
    pub(crate) spot: Spot,
    /// Another write whose key has the same hash, plus one.
    next: u32,
}

/// What is known of a transaction when it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) ts: u64,
    pub(crate) generation: u16,
    /// What its first record keeps of the one before in the log; none if it goes to media behind another one, as a part of it.
    pub(crate) link: Option<u16>,
    /// Records that follow it as a part of it.
    pub(crate) behind: usize,
    /// Of the commit, and through which all were durable; if it has any.
    pub(crate) number: (u64, u64),
}

/// A key that was read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) hash: u64,
    pub(crate) spot: Spot,
    pub(crate) slot: u8,
    /// What the index had.
    pub(crate) word: Word,
    /// The version that was seen, or 0.
    pub(crate) ts: u64,
    /// The record seen, which has the key; if there is none, the key is in `missed`.
    pub(crate) record: u64,
    pub(crate) missed: Range<u32>,
}

/// A range that was read, as far as it was.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    pub(crate) range: tx::Keys,
    /// What was found, in `scanned`.
    pub(crate) found: Range<u32>,
}

impl Work {
    pub(crate) fn clear(&mut self) {
        self.image.clear();
        self.writes.clear();
        if !self.table.is_empty() {
            self.table.clear();
        }
        (self.collisions, self.seed) = (0, 0);
        if self.looked > 0 {
            self.ordered.clear();
            self.looked = 0;
        }
        self.replaced = 0;
        self.reads.clear();
        self.missed.clear();
        self.scans.clear();
        self.scanned.clear();
        self.spots.clear();
        self.told = None;
    }

    /// Its commit has come so far.
    #[inline]
    pub(crate) fn tell(&self, stage: Stage) {
        if let Some(tell) = &self.told {
            // Others wait behind it.
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tell(stage)));
            drop(
                told.inspect_err(|_| tracing::error!("what a commit tells of itself has panicked; the commit goes on")),
            );
        }
    }

    /// Keeps where the leaf of a key with this hash is.
    pub(crate) fn note_spot(&mut self, hash: u64, spot: Spot) {
        self.spots.resize(SPOTS, (0, Spot { leaf: 0, layout: 0 }));
        self.spots[hash as usize % SPOTS] = (hash, spot);
    }

    /// Where that was, if it was asked for ahead.
    #[inline]
    pub(crate) fn likely(&self, hash: u64) -> Option<Spot> {
        self.spots.get(hash as usize % SPOTS).filter(|(of, _)| *of == hash).map(|(_, spot)| *spot)
    }

    /// Bytes of memory its lists have.
    pub(crate) fn capacity(&self) -> usize {
        self.image.capacity()
            + self.writes.capacity() * size_of::<Write>()
            + self.table.capacity() * size_of::<(u64, u32)>()
            + self.reads.capacity() * size_of::<Read>()
            + self.spots.capacity() * size_of::<(u64, Spot)>()
            + self.missed.capacity()
            + self.scans.capacity() * size_of::<Scanned>()
            + self.scanned.capacity() * size_of::<u64>()
            + self.locks.capacity() * size_of::<u64>()
    }

    /// Notes a key that was looked for; where it stands in `missed`.
    pub(crate) fn miss(&mut self, key: &[u8]) -> Range<u32> {
        let from = self.missed.len() as u32;
        self.missed.extend_from_slice(key);
        from..self.missed.len() as u32
    }

    // ---- own writes -------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn header(&self, at: usize) -> Header {
        let bytes = self.image.get(at..at + HEADER as usize).unwrap_or_default();
        pmem::from_bytes::<Header>(bytes).unwrap_or_else(|| Header::new(&[], &[], 0))
    }

    fn set_header(&mut self, at: usize, header: &Header) {
        self.image[at..at + HEADER as usize].copy_from_slice(pmem::bytes_of(header));
    }

    #[inline]
    pub(crate) fn key(&self, write: &Write) -> &[u8] {
        let header = self.header(write.at);
        let from = write.at + header.key_at() as usize;
        &self.image[from..from + header.key_len() as usize]
    }

    /// A record of the image: header, key, value.
    pub(crate) fn image_of(&self, write: &Write) -> (Header, &[u8], &[u8]) {
        let header = self.header(write.at);
        let end = write.at + header.len() as usize;
        (header, self.key(write), &self.image[end - header.value_len as usize..end])
    }

    /// What the key will be: `None` if this deletes it.
    pub(crate) fn value(&self, write: &Write, now: &Now) -> Option<&[u8]> {
        let header = self.header(write.at);
        if header.has(TOMBSTONE) || self.expires(write).is_some_and(|at| at <= now.millis()) {
            return None;
        }
        let end = write.at + header.len() as usize;
        Some(&self.image[end - header.value_len as usize..end])
    }

    pub(crate) fn expires(&self, write: &Write) -> Option<u64> {
        let at = write.at + HEADER as usize;
        let has = self.header(write.at).has(header::EXPIRES);
        has.then(|| u64::from_le_bytes(self.image[at..at + 8].try_into().unwrap_or_default()))
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |at: &usize| self.writes[*at].hash == hash && self.key(&self.writes[*at]) == key;
        if self.writes.len() <= FEW {
            return (0..self.writes.len()).find(is_it);
        }
        let mut at = *self.table.get(&self.spread(hash, || key))? as usize;
        loop {
            if is_it(&at) {
                return Some(at);
            }
            at = (self.writes[at].next as usize).checked_sub(1)?;
        }
    }

    /// A write of a key that was not written before.
    pub(crate) fn push(&mut self, hash: u64, old: Word, spot: Spot, encode: impl FnOnce(&mut Vec<u8>)) {
        let at = self.image.len();
        encode(&mut self.image);
        self.writes.push(Write { hash, at, len: self.image.len() - at, old, spot, next: 0 });
        if self.writes.len() == FEW + 1 {
            (0..self.writes.len()).for_each(|at| self.note(at));
        } else if self.writes.len() > FEW {
            self.note(self.writes.len() - 1);
        }
    }

    fn note(&mut self, at: usize) {
        let write = &self.writes[at];
        let hash = self.spread(write.hash, || self.key(write));
        let before = self.table.insert(hash, at as u32);
        self.writes[at].next = before.map_or(0, |before| before + 1);
        self.collisions += u32::from(before.is_some());
        if self.collisions > COLLISIONS && self.seed == 0 {
            self.seed = seed();
            self.table.clear();
            (0..=at).for_each(|at| self.note(at));
        }
    }

    /// The hash of a key in the table.
    #[inline]
    fn spread<'k>(&self, hash: u64, key: impl FnOnce() -> &'k [u8]) -> u64 {
        if self.seed == 0 { hash } else { xxhash_rust::xxh3::xxh3_64_with_seed(key(), self.seed) }
    }

    /// Another value for a key that was written before.
    pub(crate) fn rewrite(&mut self, at: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        let end = self.image.len();
        encode(&mut self.image);
        let len = self.image.len() - end;
        let old = self.writes[at];
        if old.len == len {
            self.image.copy_within(end.., old.at);
            self.image.truncate(end);
        } else {
            self.replaced += old.len;
            self.writes[at] = Write { at: end, len, ..old };
        }
    }

    /// Puts the records in the order of the writes, with nothing between them.
    pub(crate) fn compact(&mut self) {
        if self.replaced == 0 {
            return;
        }
        let mut image = Vec::with_capacity(self.image.len() - self.replaced);
        for write in &mut self.writes {
            let at = image.len();
            image.extend_from_slice(&self.image[write.at..write.at + write.len]);
            write.at = at;
        }
        self.image = image;
        self.replaced = 0;
    }

    /// Gives each record its timestamp, and what else is known only now; `checksum` gets its bytes and which one it is.
    #[inline]
    pub(crate) fn finish(&mut self, known: &Known, mut checksum: impl FnMut(&[u8], &Write) -> u64) {
        let count = self.writes.len();
        for at in 0..count {
            let write = self.writes[at];
            let mut header = self.header(write.at);
            header.ts = known.ts;
            header.prev = if write.old.is_none() { 0 } else { write.old.offset() };
            header.generation = known.generation;
            header.rest = (known.behind + count - 1 - at) as u32;
            // It may have been finished before, at another position in another group.
            header.key_len_flags &= !(header::FIRST | header::JOINED);
            match known.link {
                Some(link) if at == 0 => {
                    header.key_len_flags |= header::FIRST;
                    header.link = link;
                    if header.has(header::NUMBERED) {
                        let end = write.at + header.key_at() as usize;
                        self.image[end - 16..end - 8].copy_from_slice(&known.number.0.to_le_bytes());
                        self.image[end - 8..end].copy_from_slice(&known.number.1.to_le_bytes());
                    }
                }
                Some(_) => {}
                None => header.key_len_flags |= header::JOINED,
            }
            self.set_header(write.at, &header);
            header.checksum = checksum(&self.image[write.at..write.at + header.len() as usize], &write);
            self.set_header(write.at, &header);
        }
    }

    /// Whether it adds more keys than it removes.
    pub(crate) fn grows(&self) -> bool {
        let (mut new, mut gone) = (0, 0);
        for write in &self.writes {
            let deletes = self.header(write.at).has(TOMBSTONE);
            new += usize::from(write.old.is_none() && !deletes);
            gone += usize::from(deletes && !write.old.is_none());
        }
        new > gone
    }

    /// The writes of keys in a range, in order of the keys.
    pub(crate) fn sorted(&mut self, range: &tx::Keys) -> Vec<usize> {
        if self.ordered.is_empty() && self.looked <= LOOKS * self.writes.len() {
            self.looked += self.writes.len();
            return self.sorted_once(range);
        }
        for at in self.ordered.len()..self.writes.len() {
            let key = self.key(&self.writes[at]).into();
            self.ordered.insert(key, at as u32);
        }
        let (from, to) = (range.from.as_ref().map(Vec::as_slice), range.to.as_ref().map(Vec::as_slice));
        let is_empty = match (from, to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        };
        if is_empty {
            return Vec::new();
        }
        self.ordered.range::<[u8], _>((from, to)).map(|(_, at)| *at as usize).collect()
    }

    fn sorted_once(&self, range: &tx::Keys) -> Vec<usize> {
        let inside = |at: &usize| range.contains(self.key(&self.writes[*at]));
        let mut found: Vec<usize> = (0..self.writes.len()).filter(inside).collect();
        found.sort_unstable_by(|a, b| self.key(&self.writes[*a]).cmp(self.key(&self.writes[*b])));
        found
    }
}

/// What is hashed already.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
