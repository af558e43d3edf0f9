//! The handle: what programs call.

use std::sync::Arc;
use std::time::Duration;

use pmem::{Background, Pool};

use crate::Lsn;
use crate::at::At;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::iter::Iter;
use crate::raw::{Claim, bytes_mut};
use crate::record::{Kind, RECORD_HEADER};
use crate::recovery::{Recovered, Tail};
use crate::space::Reserved;
use crate::stats::{Stats, VulnerabilityWindow};
#[cfg(feature = "replication")]
use crate::threads::Returning;
use crate::threads::background;
use crate::window::SLOTS;

#[cfg(feature = "replication")]
mod led;

/// An open log. Any number of threads use it at once, by reference.
///
/// Dropped, it is closed as by [`close`](Self::close), whose error is then a warning and not returned. It is left to be recovered at the next open if its
/// thread panics, in a forked child, after a failed sync, behind a reservation that was forgotten, and if it is replicated.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let log = cairn_log::Options::new().bytes(1 << 20).create(dir.path().join("orders"))?;
/// std::thread::scope(|threads| {
///     for _ in 0..2 {
///         threads.spawn(|| log.append(b"one barrier each, in order").unwrap());
///     }
/// });
/// assert_eq!(log.forced().get(), 2);
/// # Ok(()) }
/// ```
pub struct Log {
    core: Arc<Core>,
    background: Option<Background>,
    #[cfg(feature = "replication")]
    ack_thread: Option<Background>,
    #[cfg(feature = "replication")]
    returning: Option<Returning>,
    found: Recovered,
    /// Behind the others: they have let go of the core by then.
    closing: Closing,
}

/// Closes a log whose handle is dropped.
struct Closing(Option<Arc<Core>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(core) = self.0.take() else { return };
        // Where a replicated one ends is for its replicas to say.
        if core.leading.is_some() || !core.image.pool.is_closed_on_drop() {
            return;
        }
        let path = core.image.pool.path().to_owned();
        let Some(core) = Arc::into_inner(core) else { return };
        if let Err(error) = core.close() {
            tracing::warn!(%error, log = %path.display(), "a log that was dropped could not be closed; it is recovered when it is opened");
        }
    }
}

impl Log {
    pub(crate) fn new(core: Core) -> Self {
        let core = Arc::new(core);
        let background = background::start(&core);
        let closing = Closing(Some(Arc::clone(&core)));
        let next = Lsn(core.image.last() + 1);
        let found = Recovered {
            records: 0,
            bytes: 0,
            head: next,
            next,
            tail: Tail::Clean,
            was_closed: true,
            superline_repaired: false,
        };
        Self {
            core,
            background,
            #[cfg(feature = "replication")]
            ack_thread: None,
            #[cfg(feature = "replication")]
            returning: None,
            found,
            closing,
        }
    }

    /// The same, of a log in which this was found.
    pub(crate) fn opened(core: Core, found: Recovered) -> Self {
        Self { found, ..Self::new(core) }
    }

    /// What the open found; of a new log, nothing.
    pub fn recovery(&self) -> &Recovered {
        &self.found
    }

    // ---- write ------------------------------------------------------------------------------------------------

    /// Appends a record and [forces](Self::force) it by the policy: with the default, it is durable when this returns. One barrier.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`], [`Error::Stalled`]; those of a drain.
    #[inline]
    pub fn append(&self, payload: &[u8]) -> Result<Lsn> {
        self.core.append(payload).map(Lsn)
    }

    /// Space in the log for a record of `len` bytes: to be filled by any thread at leisure, and completed. Later records become durable only behind it.
    ///
    /// ```
    /// # fn main() -> cairn_log::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = cairn_log::Options::new().bytes(1 << 20).create(dir.path().join("l"))?;
    /// let mut record = log.reserve(6)?;
    /// record.copy(0, b"cre");
    /// record[3..].copy_from_slice(b"dit"); // it stands in the log already
    /// let lsn = record.complete()?;
    /// log.force(lsn)?; // one barrier, however many records
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`]; [`Error::Stalled`] if too many records before it are not complete.
    pub fn reserve(&self, len: usize) -> Result<Reservation<'_>> {
        let reserved = self.core.reserve(len as u64, false)?;
        let payload =
            bytes_mut(Claim::Reserved, self, &self.core.image.pool, reserved.offset + RECORD_HEADER, len as u64)?;
        Ok(Reservation { image: &self.core.image, reserved, payload, complete: false })
    }

    /// Forces by the policy (Arcadia §4.4): durable through `lsn` when this returns with a frequency of one; else whenever so many records have gathered.
    ///
    /// # Errors
    /// [`Error::Stalled`]; those of a drain; [`Error::Limit`] for a record that was never reserved.
    #[inline]
    pub fn force(&self, lsn: Lsn) -> Result<()> {
        self.check(lsn)?;
        self.core.force(lsn.0)
    }

    /// Everything through `lsn` is durable when this returns, whatever the policy. One barrier, if no other thread has one under way that covers it.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub fn force_now(&self, lsn: Lsn) -> Result<()> {
        self.check(lsn)?;
        self.core.force_through(lsn.0)
    }

    /// Through which record this machine's image has all, if it is one of the replicas.
    #[cfg(test)]
    pub(crate) fn own_through(&self) -> Option<u64> {
        self.core.leading.as_ref()?.own_through(&self.core.image)
    }

    /// Everything through `lsn` is durable on this machine when this returns, where [`force_now`](Self::force_now) waits for a write quorum as well: what is lost with this machine alone is lost.
    /// It is on its way to the other replicas, and a later `force_now` needs no other barrier here. False if this machine's image is none of the replicas: then nothing was waited for.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub fn force_own(&self, lsn: Lsn) -> Result<bool> {
        self.check(lsn)?;
        self.core.force_own(lsn.0)
    }

    #[inline]
    fn check(&self, lsn: Lsn) -> Result<()> {
        let forced = self.core.image.window.forced();
        // Of a record further on a slot says nothing, and of one on its way past the cache neither.
        if lsn.0 <= forced || lsn.0 - forced <= SLOTS && self.core.image.window.state(lsn.0).is_some() {
            return Ok(());
        }
        let last = self.core.image.last();
        if lsn.0 <= last {
            Ok(())
        } else {
            Err(Error::Limit { what: "record to force", found: lsn.0, min: 1, max: last })
        }
    }

    /// Begins a force of everything that is complete, and does not wait for it: on a replicated log the records are on their way to the replicas when this returns, and
    /// several such forces are under way at once. Elsewhere it does nothing: there a force is over as soon as it is begun.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub fn post(&self) -> Result<()> {
        self.post_parts(false)
    }

    /// As [`post`](Self::post), and flushes this machine's own image, too.
    pub(crate) fn post_parts(&self, flushes: bool) -> Result<()> {
        let Some(leading) = &self.core.leading else { return Ok(()) };
        if leading.check().is_err() {
            return Ok(()); // forces say so
        }
        leading.post(&self.core.image)?;
        if flushes { leading.flush_own(&self.core.image) } else { Ok(()) }
    }

    // ---- what is durable --------------------------------------------------------------------------------------

    /// Everything through here is durable.
    pub fn forced(&self) -> Lsn {
        Lsn(self.core.image.window.forced())
    }

    /// What a crash could take now, and at most.
    pub fn vulnerability_window(&self) -> VulnerabilityWindow {
        let last = self.core.image.last();
        let bound = if self.core.options.frequency == 1 { 0 } else { self.core.bound };
        VulnerabilityWindow { bound, now: last - self.core.image.window.forced().min(last) }
    }

    /// The durable records that are not discarded, oldest first.
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(&self.core.image, 0)
    }

    /// The durable records from `lsn` on.
    pub fn iter_from(&self, lsn: Lsn) -> Iter<'_> {
        Iter::new(&self.core.image, lsn.0)
    }

    // ---- space ------------------------------------------------------------------------------------------------

    /// The record is not needed any more. Its space is used again once all before it is discarded too; until then, or until [`reclaim`](Self::reclaim) or
    /// [`close`](Self::close), a crash brings it back. No barrier, nothing is written.
    ///
    /// # Errors
    /// [`Error::NotForced`].
    pub fn discard(&self, lsn: Lsn) -> Result<()> {
        self.discard_range(lsn.0, lsn.0)
    }

    /// No record through `lsn` is needed any more: as [`discard`](Self::discard) of each.
    ///
    /// # Errors
    /// [`Error::NotForced`].
    pub fn truncate_to(&self, lsn: Lsn) -> Result<()> {
        self.discard_range(1, lsn.0)
    }

    fn discard_range(&self, from: u64, to: u64) -> Result<()> {
        let forced = self.core.image.window.forced();
        if to > forced {
            return Err(Error::NotForced { lsn: Lsn(to), forced: Lsn(forced) });
        }
        if to > 0 {
            self.core.image.space().discard(from.max(1), to);
            self.core.image.made_room();
        }
        Ok(())
    }

    /// Forces all there is, discards it, and makes that persistent: none of it ever comes back. Two barriers beyond the force.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub fn truncate_all(&self) -> Result<()> {
        let last = self.core.image.last();
        self.core.force_through(last)?;
        self.discard_range(1, last)?;
        self.reclaim()
    }

    /// Makes persistent what was discarded. Two barriers.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn reclaim(&self) -> Result<()> {
        let mut space = self.core.image.space();
        let head = space.head_exact(&self.core.image.key)?;
        if head.1 != space.superline.head_position || head.0 != space.superline.head_lsn {
            space.set_head(head)?;
            let head = space.superline.head();
            drop(space);
            if let Some(leading) = &self.core.leading {
                leading.post_head(head);
            }
        }
        Ok(())
    }

    /// Says to the other replicas what was discarded, and waits for nothing: where the log begins is made persistent when the space is needed, and all live
    /// replicas have said that they know. So a process that reads a replica and has not [released](crate::Replica::release) what it needs still finds it when
    /// another one leads. Without other replicas as [`reclaim`](Self::reclaim).
    ///
    /// # Errors
    /// As there.
    pub fn reclaim_later(&self) -> Result<()> {
        let Some(leading) = &self.core.leading else { return self.reclaim() };
        let space = self.core.image.space();
        let (lsn, position, epoch) = space.head_exact(&self.core.image.key)?;
        drop(space);
        leading.post_head(At { lsn, position, epoch });
        Ok(())
    }

    /// Makes room for at least `by` more bytes, while others append and read. Returns the capacity. Two barriers, and those of the pool.
    ///
    /// # Errors
    /// [`Error::GrownTooOften`]; [`Error::Replicated`]; those of [`Pool::grow_region`].
    pub fn grow(&self, by: u64) -> Result<u64> {
        if self.core.leading.is_some() {
            let next = "make a larger one, and append its records there";
            return Err(Error::Replicated { what: "grow", next });
        }
        let capacity = self.core.image.space().grow(by)?;
        self.core.image.made_room();
        Ok(capacity)
    }

    // ---- the rest ---------------------------------------------------------------------------------------------

    /// What the log's timekeeper does by itself every so often: says on media that all is durable, unless that stands there. Forces what is complete.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn idle(&self) -> Result<()> {
        self.core.mark(self.core.options.stall_timeout).map(|_| ())
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// An error once this log cannot make anything durable any more: too few replicas are left, or another leader has taken it over. Also when the time is over for which it was
    /// [said](Self::lead_for) that no other process can lead.
    ///
    /// # Errors
    /// [`Error::QuorumLost`], [`Error::Fenced`]; those of the pool.
    pub fn check_leading(&self) -> Result<()> {
        self.core.image.pool.check_usable()?;
        self.core.leading.as_ref().map_or(Ok(()), crate::replicate::Leading::check_leading)
    }

    /// The log's own number, the same on all its replicas.
    pub fn id(&self) -> u64 {
        self.core.image.space().superline.id
    }

    /// Bytes of the longest record that [`append`](Self::append) takes: a segment holds it.
    pub fn payload_max(&self) -> u64 {
        self.core.image.space().geometry.payload_max()
    }

    /// Counts.
    pub fn stats(&self) -> Stats {
        let space = self.core.image.space();
        Stats {
            head: Lsn(space.discarded + 1),
            next: Lsn(space.next_lsn),
            forced: Lsn(self.core.image.window.forced()),
            live_bytes: space.position - space.superline.head_position,
            capacity: space.geometry.circle.segments() * space.geometry.segment_bytes,
            segment_bytes: space.geometry.segment_bytes,
            growths: space.superline.growth_count,
            reclaims: space.reclaims,
            epoch: self.core.image.epoch,
        }
    }

    /// The pool it is in.
    pub fn pool(&self) -> &Pool {
        &self.core.image.pool
    }

    /// Forces all there is and says on media where the log ends: a later open then knows of any damage. Closes the pool too, if this was
    /// its last handle.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if a reservation was forgotten; those of a drain. The log is then recovered at the next open.
    pub fn close(mut self) -> Result<()> {
        drop(self.background.take()); // waits for its thread, which has the core
        if self.core.leading.is_some() {
            self.core.mark(Duration::ZERO)?;
        }
        #[cfg(feature = "replication")]
        {
            self.ack_thread = None; // waits, too
            self.returning = None;
        }
        self.closing.0 = None;
        let core = Arc::into_inner(self.core).ok_or(pmem::Error::InUse { what: "the log".into() })?;
        core.close()
    }

    /// For tests: drops it and leaves the file as a crash would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.image.pool.abandon();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({}, {:?})", self.core.image.pool.path().display(), self.stats())
    }
}

/// Space for one record, its holder's alone. Dropped without [`complete`](Self::complete), it becomes a skipped record; forgotten, it stalls all
/// forces behind it, and the log does not close.
pub struct Reservation<'a> {
    image: &'a Image,
    reserved: Reserved,
    payload: &'a mut [u8],
    complete: bool,
}

impl Reservation<'_> {
    /// The record's number.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.reserved.lsn)
    }

    /// Copies bytes into the record.
    ///
    /// # Panics
    /// If they do not fit, as slices do.
    pub fn copy(&mut self, at: usize, bytes: &[u8]) {
        self.payload[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The record is whole: checksummed, and durable by the next force. No barrier.
    ///
    /// # Errors
    /// [`pmem::Error::Forked`].
    pub fn complete(mut self) -> Result<Lsn> {
        self.finish(Kind::Data)?;
        Ok(self.lsn())
    }

    fn finish(&mut self, kind: Kind) -> Result<()> {
        self.complete = true;
        self.image.complete(self.reserved, kind, self.payload, self.payload.len() as u64).map(|_| ())
    }
}

impl std::ops::Deref for Reservation<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.payload
    }
}

impl std::ops::DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.complete
            && let Err(error) = self.finish(Kind::Skipped)
        {
            // Only in a forked child, where nothing of the log works.
            tracing::warn!(%error, lsn = self.reserved.lsn, "a reservation could not be given up");
        }
    }
}

impl std::fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation({}, {} bytes)", self.reserved.lsn, self.payload.len())
    }
}
