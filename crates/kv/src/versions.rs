//! Versions of keys: where they are, what leads to them, and which of them a reader sees.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pmem::Pool;

use crate::Step;
use crate::error::{Error, Result};
use crate::index::{Found, Index, Leaf, Spot, Stretch};
use crate::isolation::Concurrency;
use crate::isolation::active::Pin;
use crate::media::checksum;
use crate::media::header::{self, GRAIN};
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::media::word::Word;
use crate::medium::Medium;
use crate::raw;
use crate::raw::Claim;
use crate::space::Space;
use crate::writers::writer::{State, Writers};

/// Keys that are prefetched at once.
pub(crate) const AHEAD: usize = 32;

/// All versions of all keys. Its parts keep their own invariants; here is what takes several of them: to read.
pub(crate) struct Versions {
    pub(crate) medium: Medium,
    pub(crate) concurrency: Concurrency,
    pub(crate) index: Index,
    pub(crate) writers: Writers,
    pub(crate) space: Space,
    /// What is read is held against its checksum.
    verifies: bool,
    /// Whether some key may expire: see `upkeep::sweep`.
    expiring: AtomicBool,
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

impl Versions {
    pub(crate) fn new(
        medium: Medium,
        concurrency: Concurrency,
        index: Index,
        writers: Writers,
        space: Space,
        verifies: bool,
    ) -> Self {
        // The first sweep finds out.
        Self { medium, concurrency, index, writers, space, verifies, expiring: true.into() }
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        self.medium.pool()
    }

    /// Whether a test leaves this step out.
    #[inline]
    pub(crate) fn skips(&self, step: Step) -> bool {
        self.medium.skips(step)
    }

    #[inline]
    pub(crate) fn verifies(&self) -> bool {
        self.verifies
    }

    /// Takes a transaction slot: from now on nothing that can be reached is freed.
    #[inline]
    pub(crate) fn pin(&self) -> Result<Pin<'_>> {
        self.concurrency.active.pin()
    }

    /// The last commit timestamp given out.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.concurrency.active.now()
    }

    /// There is something that will expire.
    #[inline]
    pub(crate) fn note_expiring(&self) {
        if !self.expiring.load(Relaxed) {
            self.expiring.store(true, Relaxed);
        }
    }

    /// Whether there was since the last call.
    pub(crate) fn take_expiring(&self) -> bool {
        self.expiring.swap(false, SeqCst)
    }

    /// How many leaves there are, for the reserve, which keeps room for their nodes.
    pub(crate) fn note_leaves(&self) {
        self.space.reserve.note_leaves(self.index.leaf_count());
    }

    // ---- a key ------------------------------------------------------------------------------------------------

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
                Found::Absent if guess.is_some() && !self.skips(Step::LookTwice) => {}
                Found::Absent if self.verifies && !self.verify_alike(pin, spot, hash)? => {}
                Found::Absent => return Ok(Seen { spot, slot: 0, word: Word::NONE, record: None }),
                Found::Moved => {}
            }
        }
    }

    /// Whether the newest version of `key` is one that this transaction may supersede, and which that is. The caller has the key's lock.
    #[inline]
    pub(crate) fn newest<'p>(
        &'p self,
        pin: &'p Pin<'_>,
        key: &[u8],
        hash: u64,
        likely: Option<Spot>,
    ) -> Result<Seen<'p>> {
        let guess = likely.map(|spot| Ok::<_, Error>((spot, self.index.find_in(spot, key, hash, pin)?))).transpose()?;
        let (spot, found) = match guess {
            Some((spot, Found::Here(slot, word))) => (spot, Some((slot, word))),
            // It may have been another key with this hash.
            _ => self.index.find(pin, key, hash)?,
        };
        let (slot, word) = found.unwrap_or((0, Word::NONE));
        let record = found.map(|_| Record::at(Claim::Pinned, pin, self.pool(), word.offset())).transpose()?;
        Ok(Seen { spot, slot, word, record })
    }

    /// Asks for what keys need, step by step for all of them: where their leaves are, which is noted; which slots, which records.
    pub(crate) fn prefetch(&self, pin: &Pin<'_>, keys: &[&[u8]], mut note: impl FnMut(u64, Spot)) {
        let mut spots = [(0, Spot { leaf: 0, layout: 0 }); AHEAD];
        // Keys that are asked for together often stand together: then two comparisons replace the search.
        let mut last: Option<Stretch<'_>> = None;
        for (key, found) in keys.iter().zip(&mut spots) {
            let hash = crate::media::key::hash(key);
            let stretch = match last {
                Some(last) if last.has(key) => last,
                _ => {
                    let next = self.index.locate(pin, key);
                    self.index.leaf(next.spot).prefetch_head();
                    next
                }
            };
            *found = (hash, stretch.spot);
            last = Some(stretch);
            self.concurrency.prefetch(hash);
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

    /// The record at an offset that the index or another record leads to; verified, if reads are to be.
    #[inline]
    pub(crate) fn record<'p>(&'p self, pin: &'p Pin<'_>, offset: u64) -> Result<Record<'p>> {
        let record = Record::at(Claim::Pinned, pin, self.pool(), offset)?;
        if self.verifies {
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
            Some(Use::Log { writer, sequence, .. }) => record
                .is_checksummed(self.medium.key(), crate::media::checksum::location(record.offset, writer, sequence)),
            _ => false,
        };
        if checksummed {
            Ok(())
        } else {
            Err(crate::media::record::damaged(record.offset, "it does not match its checksum"))
        }
    }

    /// Waits for writers that may be about to publish versions in this leaf that a snapshot at `limit` must show: those that have a smaller timestamp, or do
    /// not know it yet. With `hash`, only for those of such a key.
    ///
    /// No writer is waited for up to `published`. Else: a writer announces itself at the leaf and then asks for its timestamp, so
    /// one with a timestamp up to `limit` is seen here, or has published.
    #[inline]
    pub(crate) fn await_pending(&self, leaf: &Leaf, limit: u64, own: Option<usize>, hash: Option<u64>) {
        let own = own.map_or(0, |own| 1 << own);
        let pending = leaf.pending.load(SeqCst) & !own;
        if pending != 0 && limit > self.concurrency.active.published() {
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
                    State::Preparing(ts) => ts <= limit && !self.skips(Step::AwaitPreparing),
                };
                // A writer that does not hold the key's lock does not write the key, or has published it.
                !concerns
                    || !hash
                        .is_none_or(|hash| self.concurrency.owner(hash).is_some_and(|tx_slot| writer.is_of(tx_slot)))
            });
        }
    }

    // ---- a log ------------------------------------------------------------------------------------------------

    /// Visits the records of a segment, as far as they are whole.
    pub(crate) fn walk<'a>(
        &'a self,
        number: u32,
        writer: usize,
        sequence: u32,
        mut visit: impl FnMut(Record<'a>) -> ControlFlow<()>,
    ) -> Result<u64> {
        let base = self.space.offset(number);
        let mut at = 0;
        let mut skipped = 0;
        let limit = self.space.run(number) * self.space.segment_bytes;
        while at + header::HEADER <= self.space.segment_bytes {
            let Some(record) = self.whole(Claim::Checkpointing, base + at, limit - at, writer, sequence) else {
                skipped += GRAIN;
                at += GRAIN;
                continue;
            };
            if visit(record).is_break() {
                break;
            }
            at += record.space();
        }
        Ok(skipped)
    }

    /// The record at an offset of a log in use with `room` bytes, if it is whole.
    pub(crate) fn whole(
        &self,
        claim: Claim,
        offset: u64,
        room: u64,
        writer: usize,
        sequence: u32,
    ) -> Option<Record<'_>> {
        let head = raw::bytes(claim, self, self.pool(), offset, header::HEADER).ok()?;
        let header = pmem::view::<header::Header>(head)?;
        if header.checksum == 0 || !header.is_sound() || header.len() > room {
            return None;
        }
        let record = Record::at(claim, self, self.pool(), offset).ok()?;
        record.is_checksummed(self.medium.key(), checksum::location(offset, writer, sequence)).then_some(record)
    }
}
