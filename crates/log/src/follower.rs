//! Reading a log in another process, while it is written: through the file, without a lock, unseen by the writer.
//!
//! A record stands where the one before it ends, or at the start of the next segment, and proves itself; so nothing is asked of the writer. The superline is
//! read when the next record is not there: the log may have grown, been reclaimed, closed, or opened again.
//!
//! | seen | what is durable by it |
//! |---|---|
//! | a whole record | everything through the watermark it carries, and all but the last [`SLOTS`](crate::window::SLOTS) before it |
//! | the superline: closed | everything before its tail |
//! | the superline: its head | everything before the head |
//! | the watermark | everything through it |
//! | the superline: its epoch | the records of lower epochs read after it: the writer that raised it had made them so |
//!
//! A writer that opens a log after a crash may throw its end away. What was read ahead under an older epoch, and is not known to be durable, is then read
//! again. That the epoch is risen is known before any record under it is taken.

mod view;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use pmem::Observer;

use self::view::{Chunk, View};
use crate::Lsn;
use crate::at::At;
use crate::error::{Error, Result};
use crate::front::NAME;
use crate::record::{Header, Kind, RECORD_HEADER};
use crate::stats::Stats;
use crate::superline::Superline;
use crate::window::SLOTS;

/// No thread can wake a follower: the writer is another process, knows of no readers, and stores to a mapping, of which the file system tells no reader.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(10);

/// Reads a log that another process writes, or that is not written: each record once, in order, when it is durable.
///
/// The writer does not wait for it: what is discarded before it was read is [`Error::Overtaken`], and reading can [go on](Self::from) behind.
/// A record is known to be durable when a later one says so, or, if none comes, when the writer has been [idle](crate::Options::idle) for 100 ms.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("orders");
/// use std::time::Duration;
/// let log = cairn_log::Options::new().bytes(1 << 20).create(&path)?;
/// log.append(b"17 apples")?;
///
/// let mut follower = cairn_log::Follower::open(&path)?; // most often in another process
/// let found = follower.wait(Duration::from_secs(60))?;
/// assert_eq!(found, Some((cairn_log::Lsn::new(1), b"17 apples".to_vec())));
/// assert_eq!(follower.next()?, None); // for now
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Follower {
    observer: Observer,
    name: String,
    view: View,
    eager: bool,
    /// No record before is given.
    from: u64,
    /// The record to read next, behind those read ahead.
    at: At,
    ahead: VecDeque<Ahead>,
    /// Through here durable, by what was seen.
    durable: u64,
    chunk: Chunk,
    /// The record that was last sought further on.
    searched: u64,
}

/// A whole record that may not be durable.
#[derive(Debug)]
struct Ahead {
    at: At,
    epoch: u32,
    /// To be given; the caller has it, or does not want it, if there is none.
    payload: Option<Vec<u8>>,
}

impl Follower {
    /// Follows the log in a pool of its own, from its oldest record on.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::NewerVersion`], [`Error::BadSuperline`]; those of [`Observer::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(path, NAME)
    }

    /// Follows the log in a region of the pool at `path`.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`pmem::Error::NoRegion`].
    pub fn open_in(path: impl AsRef<Path>, region: &str) -> Result<Self> {
        let mut observer = Observer::open(path)?;
        let view = View::look(&mut observer, region)?;
        Ok(Self {
            at: view.head(),
            durable: view.durable(),
            chunk: Chunk::new(),
            observer,
            name: region.to_owned(),
            view,
            eager: false,
            from: 0,
            ahead: VecDeque::new(),
            searched: 0,
        })
    }

    /// Gives whole records at once, durable or not. When the writer is started again after a crash, those that were not known to be durable are read again, and
    /// given again: what is there now, under the same numbers.
    #[must_use]
    pub fn eager(self) -> Self {
        Self { eager: true, ..self }
    }

    /// Goes on with record `lsn`, or the first of the program behind it. Further back, the log is read from its head; further on, all before is read and not given.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if it was discarded, and the superline says so already.
    pub fn from(&mut self, lsn: Lsn) -> Result<()> {
        self.refresh()?;
        let head = self.view.head();
        let wanted = lsn.0.max(1);
        if wanted < head.lsn {
            return Err(Error::Overtaken { wanted: Lsn(wanted), head: Lsn(head.lsn) });
        }
        // What `skip_lost` passed over may be there by now.
        let has_gap = self.ahead.back().is_some_and(|last| last.at.lsn + 1 < self.at.lsn);
        if wanted < self.position().0 || has_gap && wanted < self.at.lsn || self.at.lsn < head.lsn {
            self.ahead.clear();
            self.go(head);
        }
        self.from = wanted;
        while self.ahead.front().is_some_and(|a| a.at.lsn < wanted) {
            self.ahead.pop_front();
        }
        Ok(())
    }

    /// The next record, if there is one that is durable.
    ///
    /// # Errors
    /// [`Error::Overtaken`]; [`Error::Lost`] if the log says that there was one, and it is not whole; those of [`Observer::read_at`].
    #[expect(clippy::should_implement_trait, reason = "after None there may be more")]
    pub fn next(&mut self) -> Result<Option<(Lsn, Vec<u8>)>> {
        loop {
            while let Some(first) = self.ahead.front().filter(|a| self.is_durable(a)) {
                let lsn = first.at.lsn;
                if let Some(payload) = self.ahead.pop_front().and_then(|a| a.payload) {
                    return Ok(Some((Lsn(lsn), payload)));
                }
            }
            if self.eager
                && let Some(last) = self.ahead.back_mut()
                && let Some(payload) = last.payload.take()
            {
                return Ok(Some((Lsn(last.at.lsn), payload)));
            }
            if !self.read_on()? {
                return Ok(None);
            }
        }
    }

    /// As [`next`](Self::next); waits for about this long, looking again every now and then.
    ///
    /// # Errors
    /// As [`next`](Self::next). A record that is damaged while the log goes on behind it is found to be [`Error::Lost`] here only.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<(Lsn, Vec<u8>)>> {
        let (mut nap, mut waited) = (NAP_MIN, Duration::ZERO);
        loop {
            if let Some(found) = self.next()? {
                return Ok(Some(found));
            }
            if waited >= timeout {
                self.check_lost()?;
                return Ok(None);
            }
            let now = nap.min(timeout - waited);
            std::thread::sleep(now);
            waited += now;
            nap = (nap * 2).min(NAP_MAX);
        }
    }

    /// The number of the next record to be given, or sought.
    #[must_use]
    pub fn position(&self) -> Lsn {
        let mut ungiven = self.ahead.iter().filter(|a| a.payload.is_some());
        Lsn(ungiven.next().map_or(self.at.lsn, |a| a.at.lsn).max(self.from))
    }

    /// The oldest record there is, or the one to come, when the superline was last read.
    #[must_use]
    pub fn head(&self) -> Lsn {
        Lsn(self.view.superline.head_lsn)
    }

    /// Whole records that are read and not given, as nothing says that they are durable.
    #[must_use]
    pub fn ahead(&self) -> usize {
        self.ahead.iter().filter(|a| a.payload.is_some()).count()
    }

    /// What the superline said, and how far this has read: `next` is the record it looks for, and `live_bytes` end there. It knows of no reclaims.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let superline = &self.view.superline;
        Stats {
            head: self.head(),
            next: Lsn(self.at.lsn),
            forced: Lsn(self.durable),
            live_bytes: self.at.position.saturating_sub(superline.head_position),
            capacity: self.view.circle.segments() * superline.segment_bytes,
            segment_bytes: superline.segment_bytes,
            growths: superline.growth_count,
            reclaims: 0,
            epoch: superline.epoch,
        }
    }

    /// True if the log was closed when its superline was last read: no process writes it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.view.superline.closed == 1
    }

    /// Seeks the next whole record behind the one that is not there, and goes on with that; `None` if there is none. For what is left of a damaged log: whether
    /// what was between had been durable, nothing says.
    ///
    /// # Errors
    /// Those of [`Observer::read_at`].
    pub fn skip_lost(&mut self) -> Result<Option<Lsn>> {
        self.refresh()?;
        let Superline { closed, tail_lsn, .. } = self.view.superline;
        let found = self.search(true, |h| closed == 0 || h.lsn < tail_lsn)?;
        let Some((position, header)) = found else { return Ok(None) };
        self.go(At { lsn: header.lsn, position, epoch: header.epoch });
        Ok(Some(Lsn(header.lsn)))
    }

    // ---- reading ----------------------------------------------------------------------------------------------

    fn is_durable(&self, ahead: &Ahead) -> bool {
        ahead.at.lsn <= self.durable || ahead.epoch < self.view.superline.epoch
    }

    fn go(&mut self, to: At) {
        self.at = to;
        self.chunk.forget();
        self.searched = 0;
    }

    /// Takes one more record, or learns that one read ahead is durable; false if nothing has changed.
    fn read_on(&mut self) -> Result<bool> {
        loop {
            let (before, marked) = (self.view.superline, self.view.marked);
            let found = self.find()?;
            let is_behind_the_end = before.closed == 1 && self.at.lsn >= before.tail_lsn;
            let outran = found.as_ref().is_some_and(|(header, _)| header.epoch > before.epoch);
            if let Some((header, payload)) = found
                && !outran
                && !is_behind_the_end
            {
                let at = self.at;
                let position = self.chunk.taken + header.space(self.chunk.taken);
                self.at = At { lsn: header.lsn + 1, position, epoch: header.epoch };
                self.durable = self.durable.max(header.forced()).max(header.lsn.saturating_sub(SLOTS));
                self.ahead.push_back(Ahead { at, epoch: header.epoch, payload });
                return Ok(true);
            }
            let wanted = self.at;
            self.refresh()?;
            if self.ahead.front().is_some_and(|a| self.is_durable(a)) {
                return Ok(true);
            }
            if self.at.lsn < self.view.superline.head_lsn {
                // Nothing is read ahead: what is before the head is durable. No caller asks for what is skipped.
                let (wanted, head) = (self.position(), self.head());
                if wanted < head {
                    return Err(Error::Overtaken { wanted, head });
                }
                self.go(self.view.head());
                continue;
            }
            if self.view.superline != before || self.at != wanted {
                continue; // it is another log now: where it ends, grows, or began
            }
            let superline = &self.view.superline;
            if superline.closed == 1 && self.at.lsn < superline.tail_lsn {
                // The superline is the same before and after: no process has written meanwhile.
                return Err(self.lost(superline.tail_lsn - 1));
            }
            if self.at.lsn <= marked {
                // The watermark said so before the record was looked for, and of a closed log before the superline was read.
                return Err(self.lost(marked));
            }
            if outran {
                // Its epoch was in the superline before it was written: both copies have gone back.
                return Err(self.lost(self.at.lsn));
            }
            return Ok(false);
        }
    }

    fn lost(&self, through: u64) -> Error {
        let offset = self.view.candidates(self.at.position).next().map_or(0, |at| self.view.locate(at));
        Error::Lost { lsn: Lsn(self.at.lsn), offset, through: Lsn(through) }
    }

    /// The record that is sought, if it is whole. Where it stands is `chunk.taken`.
    fn find(&mut self) -> Result<Option<(Header, Option<Vec<u8>>)>> {
        for at in self.view.candidates(self.at.position) {
            // What was read before may be old: then it is read again.
            for old in [true, false] {
                if old && !self.chunk.holds(at, RECORD_HEADER) {
                    continue;
                }
                if !old {
                    self.chunk.read(&self.observer, &self.view, at, RECORD_HEADER)?;
                }
                if let Some(found) = self.take(at)? {
                    return Ok(Some(found));
                }
            }
        }
        self.chunk.forget();
        Ok(None)
    }

    /// As [`find`](Self::find), at one position, by a header that was read.
    fn take(&mut self, at: u64) -> Result<Option<(Header, Option<Vec<u8>>)>> {
        let Some(there) = self.chunk.get(at, RECORD_HEADER).first_chunk().copied() else { return Ok(None) };
        let header = Header::decode(&there, self.at.lsn);
        let Some(header) = header.filter(|h| h.lsn == self.at.lsn && h.epoch >= self.at.epoch) else { return Ok(None) };
        let len = RECORD_HEADER + u64::from(header.len);
        if len > self.view.rest(at) {
            return Ok(None);
        }
        if !self.chunk.holds(at, len) {
            self.chunk.read(&self.observer, &self.view, at, len)?;
        }
        let Some((again, payload)) = self.chunk.get(at, len).split_at_checked(there.len()) else { return Ok(None) };
        if again != there || !header.verifies(&self.view.key, &there, payload) {
            return Ok(None);
        }
        let given = header.kind == Kind::Data && header.lsn >= self.from;
        let payload = given.then(|| payload.to_vec());
        self.chunk.taken = at;
        Ok(Some((header, payload)))
    }

    /// Reads the superline again, and the header of the pool if the log has grown.
    fn refresh(&mut self) -> Result<()> {
        let view = View::look(&mut self.observer, &self.name)?;
        if view.superline.id != self.view.superline.id {
            let offset = view.extents[0].0;
            let why = "it is another log than before";
            return Err(Error::NotALog { region: self.name.clone(), offset, why });
        }
        if view.superline.epoch != self.view.superline.epoch {
            let kept = self.ahead.iter().take_while(|&a| self.is_durable(a)).count();
            if let Some(first) = self.ahead.get(kept) {
                let at = first.at;
                self.ahead.truncate(kept);
                self.go(at);
            }
        }
        if view.superline != self.view.superline {
            self.chunk.forget();
            self.searched = 0;
        }
        self.view = view;
        self.durable = self.durable.max(self.view.durable());
        if self.at.lsn == self.view.superline.head_lsn {
            self.at.epoch = self.at.epoch.max(self.view.superline.head_epoch);
        }
        Ok(())
    }

    /// Whether a later record says that the one that is sought had been durable. Once for each record.
    fn check_lost(&mut self) -> Result<()> {
        let wanted = self.at.lsn;
        if self.searched == wanted {
            return Ok(());
        }
        let found = self.search(false, |h| h.forced() >= wanted)?;
        self.searched = wanted;
        let Some((_, header)) = found else { return Ok(()) };
        // It may have come while the later one was sought.
        if self.read_on()? || self.at.lsn != wanted { Ok(()) } else { Err(self.lost(header.forced())) }
    }

    /// The first `good` whole record behind the one that is sought: in the rest of this segment, in the next, and at the start of each further one, where
    /// a record always stands; or `everywhere`.
    fn search(&mut self, everywhere: bool, good: impl Fn(&Header) -> bool) -> Result<Option<(u64, Header)>> {
        let (bytes, segments) = (self.view.superline.segment_bytes, self.view.circle.segments());
        let here = self.at.position / bytes;
        let head = self.view.superline.head_position / bytes;
        self.chunk.forget();
        for segment in here..=here.saturating_add(segments) {
            // Its space may hold an earlier one.
            if self.view.circle.previous(segment).is_some_and(|p| p >= head) {
                continue;
            }
            let start = self.at.position.max(segment * bytes);
            let all = everywhere || segment <= here + 1;
            let end = if all { (segment + 1) * bytes - RECORD_HEADER + 1 } else { start + 8 };
            let read = if all { self.view.rest(start) } else { RECORD_HEADER };
            self.chunk.read(&self.observer, &self.view, start, read)?;
            for at in (start..end).step_by(8) {
                if let Some(header) = self.whole(at)?.filter(&good) {
                    return Ok(Some((at, header)));
                }
            }
        }
        Ok(None)
    }

    /// The record at a position whose header was read, if it is whole and behind the one that is sought.
    fn whole(&mut self, at: u64) -> Result<Option<Header>> {
        let Some(there) = self.chunk.get(at, RECORD_HEADER).first_chunk().copied() else { return Ok(None) };
        let epochs = self.at.epoch..=self.view.superline.epoch;
        let header = Header::decode(&there, self.at.lsn).filter(|h| h.lsn > self.at.lsn && epochs.contains(&h.epoch));
        let Some(header) = header else { return Ok(None) };
        let len = RECORD_HEADER + u64::from(header.len);
        if len > self.view.rest(at) {
            return Ok(None);
        }
        if !self.chunk.holds(at, len) {
            self.chunk.read(&self.observer, &self.view, at, len)?;
        }
        let payload = self.chunk.get(at, len).get(there.len()..).unwrap_or_default();
        Ok(header.verifies(&self.view.key, &there, payload).then_some(header))
    }
}
