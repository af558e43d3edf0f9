//! What a thread that waits for several receivers is woken by.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::poll::poll_for;
use crate::{Result, clock};

/// Descriptors of all receivers, at most. Those that have no slot any more are looked at now and then.
const SLOTS: usize = 32;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// By what receivers are woken that one thread waits for; each says so in [`Receiver::watch`](crate::Receiver::watch).
pub struct Watch<'a> {
    slots: [Option<(BorrowedFd<'a>, PollFlags)>; SLOTS],
    /// Whose each slot is: its number among the receivers.
    whose: [usize; SLOTS],
    used: usize,
    receiver: usize,
    limit: Duration,
    spin: Duration,
    ready: Ready,
}

/// Which of the receivers that were waited for may have something, by their numbers in the order they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u64);

impl Ready {
    /// Whether that one may.
    #[must_use]
    pub const fn has(self, receiver: usize) -> bool {
        receiver >= u64::BITS as usize || self.0 >> receiver & 1 == 1
    }

    const fn add(&mut self, receiver: usize) {
        if receiver < u64::BITS as usize {
            self.0 |= 1 << receiver;
        }
    }
}

impl<'a> Watch<'a> {
    /// The first receiver is about to say by what; `limit` is how long they are waited for.
    #[inline]
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            slots: [None; SLOTS],
            whose: [0; SLOTS],
            used: 0,
            receiver: 0,
            limit,
            spin: Duration::ZERO,
            ready: Ready::default(),
        }
    }

    /// That one has said so; the next is about to.
    #[inline]
    pub(crate) const fn next_receiver(&mut self) {
        self.receiver += 1;
    }

    /// There may be something once this can be read; or written, if that is wanted.
    pub fn on(&mut self, what: &'a impl AsFd, also_writable: bool) {
        let flags = if also_writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        match self.slots.get_mut(self.used) {
            Some(slot) => {
                *slot = Some((what.as_fd(), flags));
                self.whose[self.used] = self.receiver;
                self.used += 1;
            }
            None => self.within(POLL_INTERVAL),
        }
    }

    /// There may be something after so long, whatever else is seen; zero if there may be now.
    pub fn within(&mut self, limit: Duration) {
        self.limit = self.limit.min(limit);
        self.ready.add(self.receiver);
    }

    /// A thread that waits looks again and again for so long before it sleeps.
    pub fn spinning(&mut self, spin: Duration) {
        self.spin = self.spin.max(spin);
    }

    /// Sleeps until there may be something.
    pub(crate) fn wait(self) -> Result<Ready> {
        let Self { slots, whose, used, limit, spin, mut ready, .. } = self;
        let Some((first, _)) = slots[0] else {
            poll_for(&mut [], limit)?;
            return Ok(ready);
        };
        // The slots behind those in use are not looked at.
        let mut fds = slots.map(|slot| {
            let (fd, flags) = slot.unwrap_or((first, PollFlags::empty()));
            PollFd::from_borrowed_fd(fd, flags)
        });
        let fds = &mut fds[..used];
        let is_quiet = |fds: &[PollFd<'_>]| fds.iter().all(|fd| fd.revents().is_empty());
        let mut left = limit;
        if !spin.is_zero() && !limit.is_zero() {
            let began = clock::now();
            let spin = spin.min(limit);
            while left > limit - spin {
                poll_for(fds, Duration::ZERO)?;
                left = if is_quiet(fds) { limit.saturating_sub(began.elapsed()) } else { Duration::ZERO };
            }
        }
        if is_quiet(fds) {
            poll_for(fds, left)?;
        }
        let woken = fds.iter().zip(whose).filter(|(fd, _)| !fd.revents().is_empty());
        woken.for_each(|(_, receiver)| ready.add(receiver));
        Ok(ready)
    }
}
