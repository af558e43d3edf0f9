//! Records go to the replicas as they are forced: a force claims what is complete and posts it to every replica, under one lock, so that each replica gets records in their order; it
//! flushes the leader's own image meanwhile; and waits. Any number of forces are under way at once.
//!
//! Costs of a force: one barrier here and one on each replica, however many records and forces share it; one message each way. Over TCP, of one thread, with `n` replicas that
//! all have to have it: here `n` system calls to send, `n` to receive, about one to wait; on each replica one of each.

use std::time::Duration;

use pmem::Pool;

use super::at::At;
use super::candidate::Link;
use super::group::Until;
use super::leading::{FlushOrder, Leading, Posting};
use crate::Lsn;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::raw::{self, Claim};
use crate::wait::Wait;
use crate::window::Claimed;

impl Leading {
    /// Claims what is complete and sends it to the replicas. False if nothing was.
    pub(crate) fn post(&self, image: &Image) -> Result<bool> {
        let mut posting = self.posting.lock();
        let Some(claimed) = image.window.claim() else { return Ok(false) };
        if self.order == FlushOrder::Before {
            flush(image, &claimed)?;
        }
        let Posting { links, end } = &mut *posting;
        self.reap(links);
        let mut lost = Vec::new();
        for (peer, link) in links.iter_mut().enumerate() {
            let Some(sending) = link else { continue };
            if let Err(error) = self.send(image, sending, &claimed)? {
                lost.push((peer, error.to_string()));
                *link = None;
            }
        }
        if let Some((offset, len)) = image.window.ranges(&claimed).last() {
            *end = At { lsn: claimed.to() + 1, position: self.position_behind(end.position, offset + len), ..*end };
        }
        let mut group = self.group.lock();
        group.posted(claimed.clone(), (self.clock)());
        if self.order == FlushOrder::Before {
            let _: Option<Claimed> = group.take_local(); // it was flushed already, and all before it by the threads that claimed them
            self.advance(image, &mut group, |group| group.local(&claimed));
        }
        for (peer, why) in lost {
            self.given_up(&mut group, peer, why);
        }
        Ok(true)
    }

    /// The first position behind `position` whose offset in the pool ends there.
    fn position_behind(&self, position: u64, end: u64) -> u64 {
        let last = end - 1 - self.base;
        let (here, there) = (position / self.segment_bytes, last / self.segment_bytes);
        let on = (there + self.segments - here % self.segments) % self.segments;
        (here + on) * self.segment_bytes + last % self.segment_bytes + 1
    }

    /// Writes a batch into a replica's window, piece by piece: a piece is a run of whole records.
    fn send(&self, image: &Image, link: &mut Link, claimed: &Claimed) -> Result<fabric::Result<()>> {
        for (offset, len) in image.window.ranges(claimed) {
            let mut from = offset;
            while from < offset + len {
                let at = from - self.base;
                let rest = self.segment_bytes - at % self.segment_bytes;
                let piece = rest.min(offset + len - from);
                let bytes = raw::bytes(Claim::Kept, image, &image.pool, from, piece)?;
                // Records are whole words long.
                if let Err(error) = link.sender.write_imm(at, bytes, (piece / 8) as u32) {
                    return Ok(Err(error));
                }
                from += piece;
            }
        }
        Ok(link.sender.flush())
    }

    /// Flushes into the own image what was posted and no thread flushes yet: one barrier.
    pub(crate) fn flush_own(&self, image: &Image) -> Result<()> {
        let Some(claimed) = self.group.lock().take_local() else { return Ok(()) };
        flush(image, &claimed)?;
        self.advance(image, &mut self.group.lock(), |group| group.local(&claimed));
        Ok(())
    }

    // ---- force ------------------------------------------------------------------------------------------------

    /// Everything through `lsn` is on a write quorum of the replicas when this returns.
    pub(crate) fn force(&self, image: &Image, lsn: u64, timeout: Duration) -> Result<()> {
        self.force_until(image, lsn, timeout, Until::Committed)
    }

    /// Everything through `lsn` is in the leader's own image when this returns, and on its way to the others; false if that is none of the replicas. One barrier, which is that of the force
    /// that waits for the others.
    pub(crate) fn force_own(&self, image: &Image, lsn: u64, timeout: Duration) -> Result<bool> {
        if self.own.is_none() {
            return Ok(false);
        }
        self.force_until(image, lsn, timeout, Until::Own).map(|()| true)
    }

    /// Through which record the leader's own image has all; none if it is none of the replicas.
    #[cfg(test)]
    pub(crate) fn own_through(&self, image: &Image) -> Option<u64> {
        self.own.map(|_| self.there_through(image, Until::Own))
    }

    /// Through which record it is there, whatever is missing of those behind it.
    fn there_through(&self, image: &Image, until: fn(u64) -> Until) -> u64 {
        let committed = image.advance(None);
        match until(0) {
            Until::Own(_) => self.group.lock().own_through(committed),
            _ => committed,
        }
    }

    fn force_until(&self, image: &Image, lsn: u64, timeout: Duration, until: fn(u64) -> Until) -> Result<()> {
        let started = (self.clock)();
        let mut pause = Wait::new(&image.waiting);
        loop {
            let there = self.there_through(image, until);
            if there >= lsn {
                return Ok(());
            }
            self.check()?;
            image.pool.check_usable()?;
            self.post(image)?;
            let posted = self.group.lock().last_posted().map_or(0, |last| last.min(lsn));
            if self.order == FlushOrder::After && matches!(until(0), Until::Committed(_)) {
                while !self.wait(image, Until::Remote(posted)) {}
            }
            self.flush_own(image)?;
            if posted > there {
                self.wait(image, until(posted));
                continue;
            }
            if image.window.is_held(there + 1) && self.there_through(image, until) == there {
                let waited = Duration::from_micros((self.clock)().saturating_sub(started));
                if waited > timeout {
                    return Err(Error::Stalled { lsn: Lsn(there + 1), waited });
                }
                let is_there = || image.window.forced() > there || !image.window.is_held(there + 1);
                // Until its holder completes it; how long that took, is asked above.
                let _: std::result::Result<(), Duration> = pause.once(timeout, is_there);
            }
        }
    }

    /// Waits until nothing is under way. The caller holds the posting, so that nothing new is.
    pub(super) fn rest(&self, image: &Image, pump: &mut dyn FnMut()) -> Result<()> {
        let since = (self.clock)();
        loop {
            self.check()?;
            self.flush_own(image)?;
            let mut group = self.group.lock();
            if group.is_idle() {
                return Ok(());
            }
            if (self.clock)().saturating_sub(since) > self.timeout.as_micros() as u64 {
                for late in group.late(u64::MAX) {
                    self.given_up(&mut group, late, format!("it has not acknowledged for {:?}", self.timeout));
                }
            }
            drop(group);
            pump();
        }
    }
}

/// Flushes records in the leader's own image.
fn flush(image: &Image, claimed: &Claimed) -> Result<()> {
    let pool: &Pool = &image.pool;
    for (offset, len) in image.window.ranges(claimed) {
        pool.flush(offset, len)?;
    }
    pool.drain()?;
    Ok(())
}
