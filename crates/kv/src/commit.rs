//! Commit: one barrier.
//!
//! 1. The writer says that it prepares, at each leaf it will change, and only then asks for its timestamp.
//! 2. What was read is looked at again, as of that timestamp.
//! 3. The records get the timestamp and their checksums, go to the log, and are drained: **the one barrier**.
//! 4. The index is led to the new versions; what they supersede waits until nobody can reach it.
//!
//! Two that validate each other's reads at once: each has announced itself before it has a timestamp, so the one with the larger timestamp sees the other
//! and waits for its outcome. Waiting goes to smaller timestamps only.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use pmem::sync::{OwnMutex, OwnMutexGuard, switch_point};

use crate::Step;
use crate::core::Core;
use crate::durable::group::{self, Member, Written};
use crate::durable::leading::{Replicated, is_in_doubt};
use crate::error::{ConflictWith, Error, Key, Result};
use crate::index::{Found, Spot};
use crate::isolation::active::Pin;
use crate::isolation::order::Place;
use crate::media::checksum;
use crate::media::header::{self, TOMBSTONE};
use crate::media::record::Record;
use crate::media::word::Word;
use crate::raw::{self, Claim};
use crate::scan::Scanner;
use crate::space::need::Need;
use crate::threads::wait::Wait;
use crate::time::Now;
use crate::writers::work::{Known, Read, Work};
use crate::writers::writer::{Dead, Log, Run, Tombstone, Writer};

/// How often a change is tried in a store that is full, with a checkpoint each time. What one checkpoint has moved is free behind the next but one.
const TRIES: u32 = 8;
/// The same of one that takes out more than it puts in, as long as something is moved or freed in between.
const TRIES_URGENT: u32 = 1024;
/// The same of one that puts in as much.
const TRIES_REPLACE: u32 = 32;
/// ... in vain, of one that waits for others' snapshots each time.
const VAIN_REPLACE: u32 = 16;
/// Behind so many, with a checkpoint each, nothing counts as live any more that is not, but for who still reads it.
const TRIES_TO_FREE: u32 = 16;
/// How often it looks for the end of those who could reach what was moved, each time it was tried in vain: about 100 ms.
const LOOKS: u32 = 310;
/// How often a replicated commit is tried while its log is full.
const TRIMS: u32 = 8;

/// What somebody has tried in a store that is full.
#[derive(Default)]
pub(crate) struct Tried {
    tries: u32,
    in_vain: u32,
    /// What was moved by then, and how many segments were free.
    last: (u64, u64),
}

/// How a transaction commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'n> {
    /// What was read must not have changed.
    pub(crate) validate: bool,
    /// Its time, for what expires.
    pub(crate) now: &'n Now,
    /// It is committed already, by whoever leads.
    pub(crate) follows: bool,
}

impl Core {
    /// Commits; returns the timestamp. The caller has the locks of all that is written, and gives them back.
    #[inline]
    pub(crate) fn commit(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>) -> Result<u64> {
        self.pool.check_usable()?;
        work.compact();
        if let Some(shared) = self.writers.grouped() {
            return self.commit_grouped(pin, work, terms, shared);
        }
        if self.replicated.is_some() && !terms.follows {
            return self.commit_replicated(pin, work, terms);
        }
        self.commit_alone(pin, work, terms)
    }

    /// As [`commit`](Self::commit), when the log has room.
    fn commit_replicated(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>) -> Result<u64> {
        let leading = self.leading()?;
        leading.check()?;
        if leading.is_filled() {
            self.trim(leading, false)?;
        }
        let mut tries = 0;
        loop {
            match self.commit_alone(pin, work, terms) {
                Err(Error::LogFull { .. }) if tries < TRIMS => {
                    tries += 1;
                    self.trim(leading, true)?;
                }
                other => return other,
            }
        }
    }

    #[inline]
    fn commit_alone(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>) -> Result<u64> {
        if self.bound.is_on() {
            self.bound.admit(|| self.force())?;
        }
        let (number, mut log) = self.find_room(pin, work)?;
        let writer = self.writers.get(number);
        writer.prepare(pin);
        self.announce(pin, work, 1 << number);
        switch_point();
        let place = self.active.is_ordered().then(|| self.order.join(&self.active));
        let ts = place.as_ref().map_or_else(|| self.active.tick(), |place| place.ts);
        switch_point();
        writer.prepared(ts);
        let result = match self.validate(pin, work, number, ts, terms) {
            Ok(()) => self.write(work, number, &mut log, ts, place.as_ref()).and_then(|()| {
                let runs = std::mem::take(&mut work.runs);
                let published = self.publish(pin, work, &runs, 0, &mut log);
                work.runs = runs;
                published
            }),
            Err(error) => {
                self.turned_back();
                Err(error)
            }
        };
        if result.is_ok() {
            writer.count();
        }
        self.end(writer, work, 1 << number, place.as_ref());
        result?;
        let written = log.tell(&self.space);
        drop(log);
        if let Some(place) = place {
            place.settle();
        }
        if let Some(bytes) = written {
            self.account(bytes);
        }
        Ok(ts)
    }

    /// A log, with places in it for what is written.
    #[inline]
    fn find_room(&self, pin: &Pin<'_>, work: &mut Work) -> Result<(usize, OwnMutexGuard<'_, Log>)> {
        let (number, mut log) = self.writers.claim();
        match self.place(work, &mut log) {
            Ok(()) => Ok((number, log)),
            Err(error) => {
                drop(log);
                self.make_room(pin, work, error).inspect_err(|_| self.turned_back())
            }
        }
    }

    #[inline]
    fn place(&self, work: &mut Work, log: &mut Log) -> Result<()> {
        let mut runs = std::mem::take(&mut work.runs);
        let records = work.writes.iter().map(|write| (write.at, write.len));
        let placed = log.place(&self.space, records, || self.need(work), &mut runs);
        work.runs = runs;
        placed
    }

    /// The store is full: others may have begun segments with room, and a checkpoint frees what nobody needs.
    #[cold]
    fn make_room(&self, pin: &Pin<'_>, work: &mut Work, error: Error) -> Result<(usize, OwnMutexGuard<'_, Log>)> {
        let bytes: u64 = work.writes.iter().map(|write| write.len as u64).sum();
        let Some(need) = error.refused() else { return Err(error) };
        for (number, writer) in self.writers.all.iter().enumerate() {
            // Who takes data out waits for one that is in use, rather than have one more begun. He has none himself, and no timestamp that others wait for.
            let log = if need == Need::Urgent { Some(writer.log.lock()) } else { writer.log.try_lock() };
            if let Some(mut log) = log.filter(|log| log.has_room(&self.space, bytes, need)) {
                self.place(work, &mut log)?;
                return Ok((number, log));
            }
        }
        if self.is_hopeless(pin, need) {
            return Err(error);
        }
        self.checkpoint()?;
        let (number, mut log) = self.writers.claim();
        self.place(work, &mut log)?;
        Ok((number, log))
    }

    /// Whether a checkpoint made now would be in vain, or in the way of somebody who has a turn: what this snapshot sees would not be freed.
    fn is_hopeless(&self, pin: &Pin<'_>, need: Need) -> bool {
        self.is_cramped(Some(pin), need) || need != Need::Urgent && self.turn.try_lock().is_none()
    }

    /// Whether nobody has committed or gone since all was freed that could be. That a put was tried in vain says nothing about deletions, for which more is moved.
    fn is_cramped(&self, own: Option<&Pin<'_>>, need: Need) -> bool {
        let now = Some((self.active.now(), self.active.oldest_but(own)));
        self.cramped.lock()[rank(need)..].contains(&now)
    }

    /// Says whether to try again what was refused with `error`, which is returned if not. It is as long as the store is full and that gains anything: what one checkpoint has moved
    /// is free behind the next but one, unless somebody active could still reach it; so whoever tries must not be. Records of so many `bytes` find no room by that if they
    /// would not beside all that is live. One at a time, and the others wait without a snapshot; not while they try, since that may be a caller's code.
    #[cold]
    pub(crate) fn full_again(&self, tried: &mut Tried, error: Error, bytes: u64) -> Result<()> {
        let Some(need) = error.refused() else { return Err(error) };
        if self.is_cramped(None, need) {
            return Err(self.named(error));
        }
        let deletes = need == Need::Urgent;
        if tried.in_vain > 0 {
            match need {
                Need::Urgent => self.await_oldest(),
                // What they have overwritten is free as soon as nobody reads it. That was long ago for who has waited before.
                Need::Replace if self.active.oldest_snapshot() != Some(self.lasting.load(Relaxed)) => {
                    self.await_oldest()
                }
                _ => {}
            }
        }
        let before = self.rescues.load(Relaxed);
        let _turn = self.turn.lock();
        // What another one has moved meanwhile is for all.
        let is_done = self.rescues.load(Relaxed) != before;
        let now = (self.counters.moved.load(Relaxed), self.space.usage().free);
        let gained = now != tried.last;
        tried.in_vain = if gained { 0 } else { tried.in_vain + 1 };
        tried.last = now;
        tried.tries += 1;
        let hopeless = tried.tries > TRIES_TO_FREE && !self.space.could_hold(bytes);
        let most = if deletes { TRIES_URGENT } else { TRIES_REPLACE };
        let vain = if need == Need::Replace { VAIN_REPLACE } else { TRIES };
        let goes_on = tried.tries < most && tried.in_vain < vain && !hopeless;
        if goes_on && deletes && !is_done {
            self.rescues.fetch_add(1, Relaxed);
            // The background thread need not.
            self.space.take_urgent();
            // The checkpoint made when it was refused has moved nothing that it had locked.
            if let Err(error) = self.rescue() {
                tracing::debug!(%error, "a checkpoint failed while somebody takes data out of a full store");
            }
        }
        // One that is too long says nothing about others that delete.
        if !(goes_on || hopeless && deletes) {
            self.cramped.lock()[rank(need)] = Some((self.active.now(), self.active.oldest_but(None)));
        }
        if goes_on {
            return Ok(());
        }
        if let Some(snapshot) = self.active.oldest_snapshot() {
            self.lasting.store(snapshot, Relaxed);
        }
        Err(self.named(error))
    }

    /// With the snapshot that is in the way, if one is.
    fn named(&self, mut error: Error) -> Error {
        if let Error::Full { snapshot, .. } = &mut error
            && self.space.held.load(Relaxed) >= self.space.segment_bytes
        {
            *snapshot = self.active.oldest_snapshot().map(Into::into);
        }
        error
    }

    /// What was moved is not freed while whoever is active could still reach it: he may be about to end, and not on a processor.
    fn await_oldest(&self) {
        let oldest = || self.active.census().1;
        let (was, mut wait) = (oldest(), Wait::new());
        let mut looks = 0;
        while was.is_some() && oldest() == was && looks < LOOKS {
            wait.for_as_long_as(Duration::from_millis(1));
            looks += 1;
        }
    }

    /// Nothing of it is or will be in the log.
    fn turned_back(&self) {
        if self.bound.is_on() {
            self.bound.give_up();
        }
    }

    /// Tells readers of the leaves that are about to change.
    #[inline]
    fn announce(&self, pin: &Pin<'_>, work: &mut Work, bit: u64) {
        if self.failpoints.skips(Step::Announce) {
            return;
        }
        for at in 0..work.writes.len() {
            loop {
                let spot = work.writes[at].spot;
                let leaf = self.index.leaf(spot);
                leaf.pending.fetch_or(bit, SeqCst);
                // A leaf that was split meanwhile has passed the bit on, or was split before: then the key is elsewhere.
                if leaf.layout_now() == spot.layout {
                    break;
                }
                let key = work.key(&work.writes[at]);
                let spot = self.index.spot(pin, key);
                work.writes[at].spot = spot;
            }
        }
    }

    /// Nothing more of it will be published.
    #[inline]
    fn end(&self, writer: &Writer, work: &Work, bit: u64, place: Option<&Place<'_>>) {
        if let Some(place) = place {
            place.publish();
        }
        writer.done();
        self.retreat(work, bit);
        writer.wake();
    }

    /// No reader needs to wait any more. A bit that is left in a leaf that took keys over is harmless: its writer is asked, and says.
    #[inline]
    fn retreat(&self, work: &Work, bit: u64) {
        for write in &work.writes {
            self.index.leaf(write.spot).retreat(bit);
        }
    }

    // ---- validation -------------------------------------------------------------------------------------------

    #[inline]
    fn validate(&self, pin: &Pin<'_>, work: &Work, own: usize, ts: u64, terms: Terms<'_>) -> Result<()> {
        if !terms.validate || self.failpoints.skips(Step::Validate) {
            return Ok(());
        }
        for read in &work.reads {
            if !self.is_unchanged(read, own) {
                self.validate_read(pin, work, read, own, ts)?;
            }
        }
        self.validate_scans(pin, work, Some(own), ts, terms.now)
    }

    /// The quick look: the index has what it had, and nobody is about to change the leaf.
    #[inline]
    fn is_unchanged(&self, read: &Read, own: usize) -> bool {
        let leaf = self.index.leaf(read.spot);
        // A version that was old when it was read is not what the index leads to.
        let newest = read.ts != 0 && read.record == read.word.offset();
        newest && leaf.pending.load(SeqCst) & !(1 << own) == 0 && leaf.holds(read.spot.layout, read.slot, read.word)
    }

    #[cold]
    fn validate_read(&self, pin: &Pin<'_>, work: &Work, read: &Read, own: usize, ts: u64) -> Result<()> {
        let key = if read.record == 0 {
            &work.missed[read.missed.start as usize..read.missed.end as usize]
        } else {
            Record::at(Claim::Pinned, pin, &self.pool, read.record)?.key()
        };
        let seen = self.read(pin, key, read.hash, ts, Some(own), None)?;
        let found = seen.record.map_or(0, |record| record.header.ts);
        // A tombstone may have been dropped, or not yet been there to be seen: to be absent is all that counts, if nobody put something in between.
        let same = found == read.ts || (read.ts == 0 && found <= pin.snapshot);
        if same {
            Ok(())
        } else {
            Err(Error::Conflict { key: Key(key.to_vec()), with: ConflictWith::Committed(found.into()) })
        }
    }

    /// Whether ranges, read again as of `ts`, are what they were.
    pub(crate) fn validate_scans(
        &self,
        pin: &Pin<'_>,
        work: &Work,
        own: Option<usize>,
        ts: u64,
        now: &Now,
    ) -> Result<()> {
        if self.failpoints.skips(Step::ValidateScans) {
            return Ok(());
        }
        for scan in &work.scans {
            let mut expected = work.scanned[scan.found.start as usize..scan.found.end as usize].iter();
            let mut scanner = Scanner::new(self, pin, ts, now, own, scan.range.clone());
            loop {
                let found = scanner.next()?;
                let expected = expected.next();
                if found.map(|record| record.header.ts) != expected.copied() {
                    let key = found.map_or_else(Vec::new, |record| record.key().to_vec());
                    let with = found.map_or(ts, |record| record.header.ts);
                    return Err(Error::Conflict { key: Key(key), with: ConflictWith::Committed(with.into()) });
                }
                if expected.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    // ---- the barrier ------------------------------------------------------------------------------------------

    #[inline]
    fn write(&self, work: &mut Work, number: usize, log: &mut Log, ts: u64, place: Option<&Place<'_>>) -> Result<()> {
        let runs = std::mem::take(&mut work.runs);
        let written = self.write_at(work, &runs, number, log, ts, place);
        work.runs = runs;
        written
    }

    /// The commit's number; durable in the log, if that is where it is to be. The caller holds its own log. Whoever comes before by his timestamp has his number.
    fn draw(&self, work: &Work, place: Option<&Place<'_>>) -> Result<u64> {
        crate::failpoints::before_barrier();
        let in_order = !self.failpoints.skips(Step::NumbersInOrder);
        if let Some(place) = place.filter(|_| in_order) {
            place.turn();
        }
        let drawn = || {
            if let Some(place) = place {
                place.is_numbered();
            }
        };
        match self.replicated.as_ref().and_then(Replicated::leading) {
            None => {
                let number = self.bound.draw();
                drawn();
                Ok(number)
            }
            Some(leading) => leading.append(&self.bound, work, self.failpoints, drawn).inspect_err(|error| {
                if !is_in_doubt(error) {
                    self.turned_back();
                }
            }),
        }
    }

    #[inline]
    fn write_at(
        &self,
        work: &mut Work,
        runs: &[Run],
        number: usize,
        log: &mut Log,
        ts: u64,
        place: Option<&Place<'_>>,
    ) -> Result<()> {
        let order = if self.bound.is_on() { (self.draw(work, place)?, self.watermark()) } else { (0, 0) };
        let known = Known { ts, generation: self.generation, link: Some(log.link), behind: 0, number: order };
        let link = self.checksum(work, runs, 0, number, &known);
        if self.bound.is_on() {
            log.number_drawn = order.0;
            self.store_unforced(work, runs, log)?;
            log.link = link;
            self.advance(runs, work.image.len(), log);
        } else {
            self.drain_into(&work.image, runs, link, log, 1)?;
        }
        Ok(())
    }

    /// Finishes the records of a transaction that will be in these runs of an image, from `base` on; returns what the next one in the log keeps of its first checksum.
    #[inline]
    pub(crate) fn checksum(&self, work: &mut Work, runs: &[Run], base: usize, number: usize, known: &Known) -> u16 {
        let (mut run, mut link) = (0, None);
        work.finish(known, |bytes, write| {
            let at = base + write.at;
            while at >= runs[run].image + runs[run].len {
                run += 1;
            }
            let place = checksum::place(runs[run].offset + (at - runs[run].image) as u64, number, runs[run].sequence);
            let covered = if self.failpoints.skips(Step::ChecksumAll) { header::HEADER as usize } else { bytes.len() };
            let checksum = checksum::checksum(&self.key, &bytes[..covered], place);
            link.get_or_insert(checksum::link(checksum));
            checksum
        });
        link.unwrap_or_default()
    }

    /// Writes the image, of so many commits, and drains.
    #[inline]
    fn drain_into(&self, image: &[u8], runs: &[Run], link: u16, log: &mut Log, commits: u32) -> Result<()> {
        // Whoever had the log before may have failed here: what he stored is in doubt, and stays as it is.
        self.pool.check_usable()?;
        crate::failpoints::before_barrier();
        log.follow(&self.pool, &self.key, commits)?;
        for run in runs {
            raw::store(Claim::Writer, &self.pool, run.offset, &image[run.image..run.image + run.len])?;
        }
        log.name_segments(&self.space)?;
        if !self.failpoints.skips(Step::CommitBarrier) {
            self.pool.drain().map_err(|source| Error::InDoubt { source })?;
            log.unnamed.clear();
        }
        log.link = link;
        self.advance(runs, image.len(), log);
        log.is_durable();
        Ok(())
    }

    #[inline]
    fn advance(&self, runs: &[Run], bytes: usize, log: &mut Log) {
        if let Some(last) = runs.last() {
            log.advance(&self.space, *last, bytes as u64);
        }
    }

    /// Leaves the records in the cache, for whoever forces.
    fn store_unforced(&self, work: &Work, runs: &[Run], log: &mut Log) -> Result<()> {
        for run in runs {
            raw::copy(Claim::Writer, &self.pool, run.offset, &work.image[run.image..run.image + run.len])?;
            log.unforced.push(*run);
        }
        if let Some(watermark) = &mut log.watermark {
            watermark.count(1);
        }
        Ok(())
    }

    // ---- visible ----------------------------------------------------------------------------------------------

    /// Leads the index to the records, which are in these runs of an image, from `base` on.
    #[inline]
    fn publish(&self, pin: &Pin<'_>, work: &Work, runs: &[Run], base: usize, log: &mut Log) -> Result<()> {
        let mut runs = runs.iter();
        let mut run = *runs.next().unwrap_or_else(|| unreachable!("a transaction that writes has records"));
        for write in &work.writes {
            let at = base + write.at;
            while at >= run.image + run.len {
                run = *runs.next().unwrap_or_else(|| unreachable!("each record has a place"));
            }
            let header = work.header(write.at);
            let tombstone = header.has(TOMBSTONE);
            let word = Word::new(run.offset + (at - run.image) as u64, write.len as u64, write.hash, &header);
            self.index.set(pin, work.key(write), write.hash, write.old, word, write.spot)?;
            if word.expires() {
                fence(SeqCst);
                self.note_expiring();
            }
            let unlinked = self.is_published(run.segment, word, write.old, log);
            if tombstone && self.failpoints.skips(Step::KeepTombstones) {
                self.index.remove(pin, work.key(write), write.hash, word)?;
            } else if tombstone {
                log.tombstones.push(Tombstone { key: work.key(write).into(), word, ts: header.ts, unlinked });
            }
        }
        Ok(())
    }

    /// The index leads to `word` instead of `old`; returns a reading of the clock behind that.
    #[inline]
    pub(crate) fn is_published(&self, segment: u32, word: Word, old: Word, log: &mut Log) -> u64 {
        self.space.add_live(segment, word.space());
        switch_point();
        let unlinked = self.active.now();
        if self.failpoints.skips(Step::RetireBeforeFree) {
            self.free_at_once(old);
        } else if !old.is_none() {
            log.dead.push(Dead { word: old, unlinked });
        }
        unlinked
    }

    // ---- groups -----------------------------------------------------------------------------------------------

    fn commit_grouped(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>, shared: &OwnMutex<Log>) -> Result<u64> {
        let first = self.commit_in_group(pin, work, terms, shared);
        match first {
            Err(ref error) if error.refused().is_some_and(|need| !self.is_hopeless(pin, need)) => {}
            other => return other,
        }
        self.checkpoint()?;
        self.commit_in_group(pin, work, terms, shared)
    }

    /// As [`commit`](Self::commit), with the barrier, and the log, of a group.
    fn commit_in_group(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>, shared: &OwnMutex<Log>) -> Result<u64> {
        // Its own log is for what it supersedes. It is held until the index leads to all of this: whoever takes the mark of the shared log first, and then locks
        // this one, finds in the index what is before the mark.
        let (number, mut log) = self.writers.claim();
        let writer = self.writers.get(number);
        writer.prepare(pin);
        self.announce(pin, work, 1 << number);
        switch_point();
        let (joined, place) = self.group.join(&self.order, &self.active);
        let ts = place.ts;
        switch_point();
        writer.prepared(ts);
        let mut told = None;
        let result = self
            .validate(pin, work, number, ts, terms)
            .and_then(|()| joined.write(work, || told = self.lead(shared)))
            .and_then(|written| self.publish(pin, work, &written.runs, written.base, &mut log));
        if result.is_ok() {
            writer.count();
        }
        self.end(writer, work, 1 << number, Some(&place));
        drop(log);
        if result.is_ok() {
            place.settle();
        }
        if let Some(bytes) = told {
            self.account(bytes);
        }
        result.map(|()| ts)
    }

    /// Writes for all who are ready; returns bytes that are worth telling.
    fn lead(&self, shared: &OwnMutex<Log>) -> Option<u64> {
        let mut members = self.group.take();
        let mut log = shared.lock();
        let mut written = self.write_group(&mut members, &mut log);
        if members.len() > 1 && !matches!(written, Ok(_) | Err(Error::InDoubt { .. })) {
            // Nothing was stored: each gets its own answer.
            self.group.put_back(members.split_off(1));
            written = self.write_group(&mut members, &mut log);
        }
        let told = log.tell(&self.space);
        drop(log);
        self.group.pass_on();
        let mut base = 0;
        let (runs, mut reason) = match written {
            Ok(runs) => (Some(runs), None),
            Err(error) => (None, Some(error)),
        };
        for member in members {
            let len = member.work.image.len();
            member.end(match &runs {
                Some(runs) => Ok(Written { runs: runs.clone(), base }),
                None => Err(group::in_doubt(&mut reason)),
            });
            base += len;
        }
        told
    }

    fn write_group(&self, members: &mut [Member], log: &mut Log) -> Result<Arc<[Run]>> {
        let need = || members.iter().map(|member| self.need(&member.work)).max().unwrap_or(Need::Data);
        let bases = members.iter().scan(0, |end, member| {
            let base = *end;
            *end += member.work.image.len();
            Some(base)
        });
        let bases: Vec<usize> = bases.collect();
        let records = members.iter().zip(&bases);
        let records = records.flat_map(|(m, base)| m.work.writes.iter().map(move |write| (base + write.at, write.len)));
        let mut runs = Vec::new();
        log.place(&self.space, records, need, &mut runs)?;
        let mut behind: usize = members.iter().map(|member| member.work.writes.len()).sum();
        let (mut joined, mut link) = (Vec::new(), log.link);
        if members.len() > 1 {
            joined.reserve_exact(members.iter().map(|member| member.work.image.len()).sum());
        }
        let alone = members.len() == 1;
        for (at, (member, base)) in members.iter_mut().zip(&bases).enumerate() {
            behind -= member.work.writes.len();
            let before = (at == 0).then_some(log.link);
            let known = Known { ts: member.ts, generation: self.generation, link: before, behind, number: (0, 0) };
            let checksummed = self.checksum(&mut member.work, &runs, *base, 0, &known);
            if at == 0 {
                link = checksummed;
            }
            if !alone {
                joined.extend_from_slice(&member.work.image);
            }
        }
        let image = if alone { &members[0].work.image } else { &joined };
        self.drain_into(image, &runs, link, log, members.len() as u32)?;
        Ok(runs.into())
    }

    /// What a transaction needs room for. Asked when a segment is taken, so it looks how many leaves there are.
    #[cold]
    fn need(&self, work: &Work) -> Need {
        self.note_leaves();
        let need = need(work);
        match self.replicated.as_ref().filter(|replicated| replicated.leading().is_none()) {
            Some(following) if following.is_cornered() => Need::Rescue,
            Some(_) if need != Need::Urgent => Need::Repeat,
            _ => need,
        }
    }

    /// What must not be done.
    #[cold]
    fn free_at_once(&self, old: Word) {
        let Some(number) = self.space.number(old.offset()).filter(|_| !old.is_none()) else { return };
        self.space.sub_live(old);
        if self.space.live(number) == 0
            && !self.writers.all.iter().any(|w| w.log.try_lock().is_none_or(|l| l.segment() == Some(number)))
        {
            self.space.give_back(number);
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
    ) -> Result<crate::core::Seen<'p>> {
        let guess = likely.map(|spot| Ok::<_, Error>((spot, self.index.find_in(spot, key, hash, pin)?))).transpose()?;
        let (spot, found) = match guess {
            Some((spot, Found::Here(slot, word))) => (spot, Some((slot, word))),
            // It may have been another key with this hash.
            _ => self.index.find(pin, key, hash)?,
        };
        let (slot, word) = found.unwrap_or((0, Word::NONE));
        let record = found.map(|_| Record::at(Claim::Pinned, pin, &self.pool, word.offset())).transpose()?;
        Ok(crate::core::Seen { spot, slot, word, record })
    }
}

/// Of those who are refused, the ones for whom less is done first.
fn rank(need: Need) -> usize {
    match need {
        Need::Urgent => 2,
        Need::Replace => 1,
        _ => 0,
    }
}

/// What a transaction needs room for: by what it puts in, against what it takes out.
fn need(work: &Work) -> Need {
    let (mut puts, mut deleted, mut replaced) = (0, 0, 0);
    for write in &work.writes {
        let deletes = work.header(write.at).has(TOMBSTONE);
        if !deletes {
            puts += write.len as u64;
        }
        match write.old {
            old if old.is_none() || old.is_tombstone() => {}
            old if deletes => deleted += old.space_at_least(),
            old => replaced += old.space(),
        }
    }
    // Tombstones go by themselves, with the next checkpoints.
    match puts {
        0 => Need::Urgent,
        puts if puts < deleted + replaced && deleted > 0 => Need::Urgent,
        puts if puts <= replaced => Need::Replace,
        _ => Need::Data,
    }
}
