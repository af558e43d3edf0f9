//! What all handles of a store share, and how a key is read.

use std::sync::Weak;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmem::sync::CachePadded;
use pmem::{ChecksumKey, Domain, Pool};

use crate::Step;
use crate::checkpoint::settler::Settler;
use crate::durable::leading::{Leading, Replicated};
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::index::{Found, Index, Leaf, Spot};
use crate::isolation::active::{Active, Pin};
use crate::isolation::locks::{Around, Locks};
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::media::word::Word;
use crate::options::Options;
use crate::raw::Claim;
use crate::space::Space;
use crate::writers::writer::{State, Writers};

/// Keys that are prefetched at once.
pub(crate) const AHEAD: usize = 32;

pub(crate) struct Core {
    /// Itself, as its handles share it.
    pub(crate) this: Weak<Self>,
    /// See [`types`](Self::types).
    pub(crate) types: AtomicU64,
    pub(crate) pool: Pool,
    /// See `lone`.
    pub(crate) puts_alone: bool,
    pub(crate) key: ChecksumKey,
    pub(crate) generation: u16,
    pub(crate) options: Options,
    pub(crate) active: Active,
    pub(crate) locks: Locks,
    pub(crate) index: Index,
    pub(crate) writers: Writers,
    pub(crate) group: crate::durable::group::Group,
    pub(crate) order: crate::isolation::order::Order,
    pub(crate) space: Space,
    pub(crate) settler: pmem::sync::Mutex<Settler>,
    pub(crate) bound: crate::durable::bound::Bound,
    /// Of a replicated store.
    pub(crate) replicated: Option<crate::durable::leading::Replicated>,
    pub(crate) failpoints: Failpoints,
    /// What its opening gave up.
    pub(crate) salvaged: crate::salvaged::Salvaged,
    /// Bytes of records written since the store was opened, but for the last few of each log; and at the last checkpoint.
    pub(crate) written: CachePadded<AtomicU64>,
    pub(crate) settled: AtomicU64,
    /// How many more are enough for the next one.
    pub(crate) settle_at: AtomicU64,
    /// The clock, and the oldest reader's, when nothing was left that could be freed: for those who put in, those who overwrite, and those who take out.
    pub(crate) cramped: pmem::sync::Mutex<[Option<(u64, u64)>; 3]>,
    /// A snapshot that those who overwrite have waited for in vain.
    pub(crate) lasting: AtomicU64,
    /// Who was refused room has everything moved while he has this, one at a time, without a snapshot.
    pub(crate) turn: pmem::sync::Mutex<()>,
    /// How often that was done.
    pub(crate) rescues: AtomicU64,
    /// Numbers transactions that wait, oldest first.
    pub(crate) ages: CachePadded<AtomicU64>,
    pub(crate) counters: crate::stats::Counters,
    pub(crate) queue: crate::threads::queue::Queue,
    pub(crate) background: crate::threads::signal::Signal,
    pub(crate) committers: crate::threads::committers::Committers,
    /// The last checkpoint has left something to be freed by the next.
    pub(crate) unfinished: AtomicBool,
    /// Whether some key may expire: see `sweep`.
    pub(crate) expiring: AtomicBool,
}

/// What a reader found about a key.
pub(crate) struct Seen<'p> {
    pub(crate) spot: Spot,
    pub(crate) slot: u8,
    /// The newest version.
    pub(crate) word: Word,
    /// The version of the reader's snapshot; a tombstone, too.
    pub(crate) record: Option<Record<'p>>,
}

impl Core {
    /// The version of `key` that was newest when the clock stood at `limit`. `own` is the writer that commits for the reader; `likely`, where a key with this hash was.
    #[inline]
    pub(crate) fn read<'p>(
        &'p self,
        pin: &'p Pin<'_>,
        key: &[u8],
        hash: u64,
        limit: u64,
        own: Option<usize>,
        likely: Option<Spot>,
    ) -> Result<Seen<'p>> {
        let mut likely = likely;
        loop {
            let guess = likely.take();
            let spot = guess.unwrap_or_else(|| self.index.spot(pin, key));
            let leaf = self.index.leaf(spot);
            self.await_pending(leaf, limit, own, Some(hash));
            match self.index.find_whole(spot, key, hash, pin)? {
                Found::Here(slot, word) => {
                    return Ok(Seen { spot, slot, word, record: self.version(pin, word, limit)? });
                }
                // It may have been another key with this hash.
                Found::Absent if guess.is_some() && !self.failpoints.skips(Step::LookTwice) => {}
                Found::Absent if self.options.verify && !self.verify_alike(pin, spot, hash)? => {}
                Found::Absent => return Ok(Seen { spot, slot: 0, word: Word::NONE, record: None }),
                Found::Moved => {}
            }
        }
    }

    /// Of all stores that this process has opened, this one's number, from 1; in the low bits how often the record of a table's types was written.
    #[inline]
    pub(crate) fn types(&self) -> u64 {
        self.types.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Asks for what keys need, step by step for all of them: where their leaves are, which is noted; which slots, which records.
    pub(crate) fn prefetch(&self, pin: &Pin<'_>, keys: &[&[u8]], mut note: impl FnMut(u64, Spot)) {
        let mut spots = [(0, Spot { leaf: 0, layout: 0 }); AHEAD];
        let all = keys.iter().zip(&mut spots);
        for (key, found) in all {
            let hash = crate::media::key::hash(key);
            *found = (hash, self.index.spot(pin, key));
            self.index.leaf(found.1).prefetch_head();
            self.locks.prefetch(hash);
        }
        let spots = &spots[..keys.len().min(AHEAD)];
        spots.iter().for_each(|(hash, spot)| self.index.leaf(*spot).prefetch_slot(*hash));
        for (hash, spot) in spots {
            note(*hash, *spot);
            if let Some(word) = self.index.leaf(*spot).likely(*hash) {
                self.index.prefetch(word);
            }
        }
    }

    /// The version that was newest when the clock stood at `limit`, from the newest one.
    #[inline]
    pub(crate) fn version<'p>(&'p self, pin: &'p Pin<'_>, newest: Word, limit: u64) -> Result<Option<Record<'p>>> {
        let mut record = self.record(pin, newest.offset())?;
        // A version is kept as long as anybody is active whose snapshot is older than the next one; so where this goes on, there still is one.
        while record.header.ts > limit {
            if record.header.prev == 0 {
                return Ok(None);
            }
            let older = self.record(pin, record.header.prev)?;
            // Older each time, so this ends, whatever the media say.
            if older.header.ts >= record.header.ts || older.key() != record.key() {
                return Err(crate::media::record::damaged(record.offset, "what it calls its last version is none"));
            }
            record = older;
        }
        Ok(Some(record))
    }

    /// The record at a place that the index or another record leads to; verified, if reads are to be.
    #[inline]
    pub(crate) fn record<'p>(&'p self, pin: &'p Pin<'_>, offset: u64) -> Result<Record<'p>> {
        let record = Record::at(Claim::Pinned, pin, &self.pool, offset)?;
        if self.options.verify {
            self.verify(record)?;
        }
        Ok(record)
    }

    /// That those in a leaf which might be of a key with this hash, and say that they are of another one, are right. False if the leaf stands for other keys by now.
    #[cold]
    pub(crate) fn verify_alike(&self, pin: &Pin<'_>, spot: Spot, hash: u64) -> Result<bool> {
        let mut words = Vec::new();
        if !self.index.leaf(spot).words(spot.layout, &mut words) {
            return Ok(false);
        }
        let mut alike = words.into_iter().filter(|word| word.tag() == crate::media::word::tag(hash));
        alike.try_for_each(|word| self.record(pin, word.offset()).map(drop))?;
        Ok(true)
    }

    /// That it is what was written there.
    pub(crate) fn verify(&self, record: Record<'_>) -> Result<()> {
        let segment = self.space.number(record.offset);
        let checksummed = match segment.map(|segment| self.space.used(segment)) {
            Some(Use::Log { writer, sequence, .. }) => {
                record.is_checksummed(&self.key, crate::media::checksum::place(record.offset, writer, sequence))
            }
            _ => false,
        };
        if checksummed {
            Ok(())
        } else {
            Err(crate::media::record::damaged(record.offset, "it does not match its checksum"))
        }
    }

    /// Waits for those that may be about to publish versions in this leaf that a snapshot at `limit` must show: who has a smaller timestamp, or does not know it
    /// yet. With `hash`, only for who writes such a key.
    ///
    /// Nobody is waited for up to what is settled: all of that is published. Else: a writer announces itself at the leaf and then asks for its timestamp, so one with a timestamp up to `limit` is seen here, or has published.
    #[inline]
    pub(crate) fn await_pending(&self, leaf: &Leaf, limit: u64, own: Option<usize>, hash: Option<u64>) {
        let own = own.map_or(0, |own| 1 << own);
        let pending = leaf.pending.load(SeqCst) & !own;
        if pending != 0 && limit > self.active.settled() {
            self.await_writers(pending, limit, hash);
        }
    }

    #[cold]
    fn await_writers(&self, mut pending: u64, limit: u64, hash: Option<u64>) {
        while pending != 0 {
            let number = pending.trailing_zeros() as usize;
            pending &= pending - 1;
            let writer = self.writers.get(number);
            writer.await_that(|| {
                let state = writer.state();
                let concerns = match state {
                    State::Idle => false,
                    State::Unknown => true,
                    State::Preparing(ts) => ts <= limit && !self.failpoints.skips(Step::AwaitPreparing),
                };
                // Whoever does not hold the key's lock does not write it, or has published it.
                !concerns
                    || !hash.is_none_or(|hash| self.locks.owner(hash).is_some_and(|tx_slot| writer.is_of(tx_slot)))
            });
        }
    }

    /// How many leaves there are, for who keeps room for their nodes.
    pub(crate) fn note_leaves(&self) {
        self.space.reserve.note_leaves(self.index.leaf_count());
    }

    /// Who leads, of a replicated store.
    pub(crate) fn leading(&self) -> Result<&Leading> {
        self.replicated.as_ref().and_then(Replicated::leading).ok_or(Error::Follows)
    }

    /// Whether a commit waits for a device, or for the machines that have copies.
    pub(crate) fn waits(&self) -> bool {
        self.replicated.is_some() || self.pool.domain() == Domain::File
    }

    /// Whether it is a replicated store that does not lead.
    pub(crate) fn follows(&self) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.leading().is_none())
    }

    /// Makes every commit that has returned durable. One barrier.
    pub(crate) fn force(&self) -> Result<()> {
        let leading = || self.replicated.as_ref().and_then(Replicated::leading);
        let check = || leading().map_or(Ok(()), Leading::check);
        self.bound.force(&self.pool, &self.key, &self.writers, &self.space, check)
    }

    /// Makes the store durable as far as it is, and lets the log forget that. The caller holds no log of a writer.
    #[cold]
    pub(crate) fn trim(&self, leading: &Leading, is_urgent: bool) -> Result<()> {
        leading.trim(is_urgent, self.failpoints, || self.force().map(|()| self.bound.forced()))
    }

    /// What a record says of what is durable.
    pub(crate) fn watermark(&self) -> u64 {
        if self.failpoints.skips(Step::HonestWatermark) { self.bound.last() } else { self.bound.forced() }
    }
}

impl Around for Core {
    fn active(&self) -> &Active {
        &self.active
    }

    fn age(&self) -> u64 {
        self.ages.fetch_add(1, Relaxed)
    }

    fn check_usable(&self) -> pmem::Result<()> {
        self.pool.check_usable()
    }
}
