//! What the halves of an end share, and how they wait.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags};

use super::desk::Desk;
use super::state::{Met, State};
use crate::access::Enforce;
use crate::answers::Answers;
use crate::poll::poll_for;
use crate::reads::Reads;
use crate::target::Target;
use crate::{Access, Error, Event, Options, Reason, Result, Rights, Watch, Window, clock};

/// A wait is cut into slices: some providers' wake-ups get lost.
const SLICE: Duration = Duration::from_millis(10);
/// Where there is nothing to wait for, as a provider without a descriptor does not tell what arrives: between two looks, at first and at most.
pub(super) const NAP_MIN: Duration = Duration::from_micros(20);
pub(super) const NAP_MAX: Duration = Duration::from_micros(500);
/// A sender that waits looks so often before it naps, until the peer counts as slow. No thread wakes it: it waits for room at the device, whose descriptor, if
/// it has one, is for the thread that polls.
const LOOKS: u32 = 2000;
/// A thread that polls looks for the other connection's news only once in so many times.
const RARELY: u32 = 256;

pub(super) struct Link {
    state: Mutex<State>,
    /// Threads that want the lock; a thread that polls in a circle lets them.
    wanting: AtomicU32,
    pub(super) peer: String,
    pub(super) access: Access,
    timeout: Duration,
    socket: TcpStream,
    wait_fd: Option<OwnedFd>,
}

impl Link {
    pub(super) fn new(met: Met, window: Option<Arc<dyn Window>>, options: &Options, key: u64) -> Result<Arc<Self>> {
        let access = Access::new(options.rights);
        let (peer, socket, wait_fd) = (met.control.peer.clone(), met.control.socket()?, met.device.wait_fd());
        let target = Target { window, access: access.clone() };
        let desk = Desk { target, reads: Reads::default(), answers: Answers::default(), granted: None };
        let state = State::new(met, desk, key);
        let link = Arc::new(Self {
            state: Mutex::new(state),
            wanting: AtomicU32::new(0),
            peer,
            access,
            timeout: options.send_timeout,
            socket,
            wait_fd,
        });
        let weak = Arc::downgrade(&link);
        link.access.enforced_by(weak);
        if options.rights > Rights::None {
            link.lock().grant(options.rights);
        }
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    pub(super) fn closed(&self, reason: Reason) -> Error {
        Error::Closed { peer: self.peer.clone(), reason }
    }

    pub(super) fn over(&self) -> Option<Reason> {
        self.lock().over.clone()
    }

    // ---- sending -------------------------------------------------------------------------------------------

    /// Tries until it is done, or the peer has been slow.
    pub(super) fn until<R>(
        &self,
        mut attempt: impl FnMut(&mut State) -> std::result::Result<Option<R>, Reason>,
    ) -> Result<R> {
        let (mut since, mut moved, mut looks) = (None, 0, 0_u32);
        loop {
            let mut state = self.lock();
            if let Some(reason) = &state.over {
                return Err(self.closed(reason.clone()));
            }
            state.progress();
            match attempt(&mut state) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                // The peer may have said why: the thread that polls will hear it.
                Err(reason) => return Err(self.closed(reason)),
            }
            if let Some((what, _)) = &state.broken {
                return Err(self.closed(Reason::Lost { what: what.clone() }));
            }
            if state.moved != moved {
                (since, moved) = (None, state.moved);
            }
            let now = clock::now();
            let waited = now.duration_since(*since.get_or_insert(now));
            looks += 1;
            let is_slow = waited >= self.timeout;
            if (is_slow || looks.is_multiple_of(RARELY))
                && let Some(reason) = state.last_word()
            {
                state.end(reason.clone());
                return Err(self.closed(reason));
            }
            if is_slow {
                let reason = Reason::Slow { waited };
                state.end(reason.clone());
                return Err(self.closed(reason));
            }
            drop(state);
            if looks < LOOKS { std::hint::spin_loop() } else { std::thread::sleep(NAP_MIN) }
        }
    }

    /// Goodbye, when all before has gone.
    pub(super) fn close(&self) {
        // An error: the connection is over, which is what was asked for.
        let said = self.until(|state| Ok(state.send_bye().then_some(())));
        if said.is_ok() {
            let _ = self.until(|state| Ok(state.device.is_idle().then_some(())));
        }
        self.hang_up();
    }

    /// Goodbye, without waiting.
    pub(super) fn hang_up(&self) {
        self.end(Reason::Here);
    }

    pub(super) fn end(&self, reason: Reason) {
        self.lock().end(reason);
    }

    // ---- receiving -----------------------------------------------------------------------------------------

    /// The next event, or none within `wait`; an error ends the connection.
    pub(super) fn next(&self, wait: Duration, spin: Duration) -> std::result::Result<Option<Event>, Reason> {
        let (mut began, mut nap, mut looks) = (None, NAP_MIN, 0_u32);
        loop {
            // The lock is not a fair one.
            (0..100).take_while(|_| self.wanting.load(Ordering::Relaxed) > 0).for_each(|_| std::hint::spin_loop());
            let mut state = self.state.lock();
            if let Some(reason) = state.over.clone() {
                // What came before the sender ended the connection.
                let left = if reason == Reason::Here { None } else { state.take_rest() };
                return left.map_or(Err(reason), |event| Ok(Some(event)));
            }
            state.progress();
            let event = state.take()?;
            let served = state.serve(event.is_none());
            if event.is_some() {
                return Ok(event);
            }
            if let Err(reason) = served
                && !matches!(reason, Reason::Lost { .. })
            {
                return Err(reason);
            }
            let waited = if wait.is_zero() { Duration::ZERO } else { began.get_or_insert_with(clock::now).elapsed() };
            let is_last = waited >= wait;
            let sleeps = !is_last && waited >= spin;
            let looks_around = is_last || sleeps || looks.is_multiple_of(RARELY) || state.broken.is_some();
            if looks_around && let Some(reason) = state.ending() {
                state.end(reason);
                continue; // with what came before
            }
            looks = looks.wrapping_add(1);
            if is_last {
                return Ok(None);
            }
            let can_wait = sleeps && self.wait_fd.is_some() && state.device.may_wait();
            drop(state);
            if can_wait {
                self.wait_for((wait - waited).min(SLICE));
            } else if sleeps {
                std::thread::sleep(nap.min(wait - waited));
                nap = (nap * 2).min(NAP_MAX);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// What to wait for, with others; false if there is nothing that would wake.
    pub(super) fn watch<'a>(&'a self, watch: &mut Watch<'a>) -> bool {
        let mut state = self.lock();
        state.progress();
        if state.over.is_some() || state.has_arrived() {
            watch.within(Duration::ZERO);
            return true;
        }
        // A device without a descriptor cannot be asked, either.
        let can_wait = self.wait_fd.is_some() && !state.is_ending() && state.device.may_wait();
        drop(state);
        let Some(wait_fd) = self.wait_fd.as_ref().filter(|_| can_wait) else { return false };
        watch.on(wait_fd, false);
        watch.on(&self.socket, false);
        watch.within(SLICE);
        true
    }

    fn wait_for(&self, wait: Duration) {
        let Some(wait_fd) = &self.wait_fd else { return };
        let mut fds = [PollFd::new(wait_fd, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        if poll_for(&mut fds, wait).is_err() || !fds[1].revents().is_empty() {
            // The other connection has news, or has ended and will be ready for ever: the rest of the wait is naps.
            std::thread::sleep(NAP_MIN);
        }
    }
}

impl Enforce for Link {
    fn changed(&self, from: Rights, to: Rights, last: &[u8]) -> bool {
        let mut state = self.lock();
        if to < from {
            return state.revoke(last);
        }
        state.grant(to);
        false
    }
}
