//! Reading the records that are durable, oldest first.

use crate::Lsn;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::raw::{Claim, bytes};
use crate::record::{Header, Kind, RECORD_HEADER};
use crate::space::{Geometry, read_header};

/// A record of the program, where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub lsn: Lsn,
    /// What was appended.
    pub payload: &'a [u8],
}

/// The durable records from some number on, each verified when it is read. What it has not passed yet is not reclaimed meanwhile.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let log = cairn_log::Options::new().bytes(1 << 20).create(dir.path().join("l"))?;
/// log.append(b"debit")?;
/// let mut records = log.iter();
/// while let Some(record) = records.next()? {
///     assert_eq!((record.lsn.get(), record.payload), (1, &b"debit"[..]));
/// }
/// log.append(b"credit")?;
/// assert!(records.next()?.is_some()); // it goes on
/// # Ok(()) }
/// ```
pub struct Iter<'a> {
    image: &'a Image,
    from: u64,
    lsn: u64,
    /// Everything through here was durable when it looked last.
    forced: u64,
    position: u64,
    epoch: u32,
    pinned: u64,
    geometry: Geometry,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(image: &'a Image, from: u64) -> Self {
        let mut space = image.space();
        let from = from.max(space.discarded + 1);
        let (lsn, position, epoch) = space.start_for(from);
        let pinned = position / space.geometry.segment_bytes;
        space.pin(pinned);
        Self { image, from, lsn, forced: 0, position, epoch, pinned, geometry: space.geometry.clone() }
    }

    /// The next record, if one is durable by now.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not verify.
    #[expect(clippy::should_implement_trait, reason = "the record borrows the iterator, which keeps its segment")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        loop {
            let Some((header, offset)) = self.step()? else { return Ok(None) };
            if header.kind == Kind::Data && header.lsn >= self.from {
                let payload =
                    bytes(Claim::Kept, self, &self.image.pool, offset + RECORD_HEADER, u64::from(header.len))?;
                return Ok(Some(Record { lsn: Lsn(header.lsn), payload }));
            }
        }
    }

    /// One record on, of whatever kind.
    fn step(&mut self) -> Result<Option<(Header, u64)>> {
        if self.lsn > self.forced {
            self.forced = self.image.window.forced();
            if self.lsn > self.forced {
                return Ok(None);
            }
        }
        let mut offset = 0;
        // It is durable, so it stands at the one or, if not there, at the other; no thread writes at either. What a writer left behind a torn record has
        // a lower epoch than what took its place.
        for at in self.geometry.candidates(self.position) {
            let segment = at / self.geometry.segment_bytes;
            if segment != self.pinned {
                self.geometry = self.image.space().geometry.clone(); // the log may have grown by it
            }
            offset = self.geometry.locate(at);
            let found = read_header(&self.image.pool, Claim::Kept, offset)?;
            let header = Header::decode(&found, self.lsn).filter(|h| h.lsn == self.lsn && h.epoch >= self.epoch);
            let Some(header) = header.filter(|h| RECORD_HEADER + u64::from(h.len) <= self.geometry.rest(at)) else {
                continue;
            };
            let payload = bytes(Claim::Kept, self, &self.image.pool, offset + RECORD_HEADER, u64::from(header.len))?;
            if header.verifies(&self.image.key, &found, payload) {
                (self.lsn, self.position, self.epoch) = (self.lsn + 1, at + header.space(at), header.epoch);
                self.repin(segment);
                return Ok(Some((header, offset)));
            }
        }
        Err(Error::Lost { lsn: Lsn(self.lsn), offset, through: Lsn(self.forced) })
    }

    fn repin(&mut self, segment: u64) {
        if segment != self.pinned {
            let mut space = self.image.space();
            space.pin(segment);
            space.unpin(self.pinned);
            self.pinned = segment;
            drop(space);
            self.image.made_room();
        }
    }

    /// The number it looks for next.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn(self.lsn)
    }
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        if matches!(self.image.pool.check_usable(), Err(pmem::Error::Forked)) {
            return; // the lock is the parent's, and may be held there
        }
        self.image.space().unpin(self.pinned);
        self.image.made_room();
    }
}
