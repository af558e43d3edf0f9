//! What handles of logs stand for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use log::{Iter, Log, Recovered, Reservation};

use crate::code::cairn_code::CAIRN_BUSY;
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, give, take};
use crate::raw::held::Held;
use crate::raw::log::{cairn_iter, cairn_log, cairn_reservation};

/// An open log. What was opened from it has it, too.
pub(crate) struct OpenLog {
    pub(crate) log: Log,
    /// What opening it found; nothing of a new one.
    pub(crate) found: Option<Recovered>,
    poisoned: AtomicBool,
}

/// A record's place, and the log it is in.
pub(crate) type HeldReservation = Held<Reservation<'static>, OpenLog>;
/// A reader, and the log it reads.
pub(crate) type HeldIter = Held<Iter<'static>, OpenLog>;

impl OpenLog {
    /// A handle for a log that was just opened.
    pub(crate) fn give(log: Log, found: Option<Recovered>) -> Result<*mut cairn_log> {
        give(Arc::new(Self { log, found, poisoned: AtomicBool::new(false) }))
    }

    /// Closes the log, and with it the handle, unless something of it is still open.
    pub(crate) fn close(handle: *const cairn_log) -> Result<()> {
        let open = take(handle, |open: &mut Arc<Self>| {
            let in_use = "a reservation or iterator of the log is open; complete, discard or close it first";
            Arc::get_mut(open).map(|_| ()).ok_or_else(|| Failure::new(CAIRN_BUSY, in_use))
        })?;
        match Arc::into_inner(open) {
            Some(open) if !open.poisoned.load(Relaxed) => {
                if let Err(forked @ pmem::Error::Forked) = open.log.pool().check_usable() {
                    return Err(forked.into()); // it is the parent's to close
                }
                Ok(open.log.close()?)
            }
            Some(open) => {
                open.log.abandon(); // the next open recovers it
                Err(Failure::poisoned())
            }
            None => Err(Failure::poisoned()),
        }
    }
}

static LOGS: Slots<Arc<OpenLog>> = Slots::new();
static RESERVATIONS: Slots<HeldReservation> = Slots::new();
static ITERATORS: Slots<HeldIter> = Slots::new();

impl Kept for Arc<OpenLog> {
    type C = cairn_log;
    const KIND: u64 = 0;
    const NAME: &'static str = "log";

    fn slots() -> &'static Slots<Self> {
        &LOGS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.poisoned
    }
}

impl Kept for HeldReservation {
    type C = cairn_reservation;
    const KIND: u64 = 1;
    const NAME: &'static str = "reservation";

    fn slots() -> &'static Slots<Self> {
        &RESERVATIONS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.owner().poisoned
    }
}

impl Kept for HeldIter {
    type C = cairn_iter;
    const KIND: u64 = 2;
    const NAME: &'static str = "iterator";

    fn slots() -> &'static Slots<Self> {
        &ITERATORS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.owner().poisoned
    }
}

#[cfg(test)]
mod tests {
    use log::Options;

    use super::*;
    use crate::code::cairn_code::{CAIRN_CLOSED, CAIRN_POISONED};
    use crate::handles::with;

    fn bug<T: Kept>(handle: *const T::C) {
        let panicked = with(handle, |_: &T| -> Result<()> { panic!("planted") });
        assert_eq!(panicked.map_err(|failure| failure.code), Err(CAIRN_POISONED));
    }

    /// After a panic nothing of the log works but ending it; what was durable is there at the next open.
    #[test]
    fn a_log_that_met_a_bug_can_be_closed_and_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let options = Options::new().bytes(1 << 20);
        let handle = OpenLog::give(options.create(&path).unwrap(), None).unwrap();
        with(handle, |open: &Arc<OpenLog>| Ok(open.log.append(b"durable")?)).unwrap();
        let place = give(with(handle, |open: &Arc<OpenLog>| HeldReservation::new(open, 8)).unwrap()).unwrap();

        bug::<HeldReservation>(place);
        let appended = with(handle, |open: &Arc<OpenLog>| Ok(open.log.append(b"more")?));
        assert_eq!(appended.map_err(|failure| failure.code), Err(CAIRN_POISONED));
        assert_eq!(OpenLog::close(handle).map_err(|failure| failure.code), Err(CAIRN_BUSY));
        drop(take(place, |_: &mut HeldReservation| Ok(())).unwrap());
        assert_eq!(OpenLog::close(handle).map_err(|failure| failure.code), Err(CAIRN_POISONED));
        assert_eq!(OpenLog::close(handle).map_err(|failure| failure.code), Err(CAIRN_CLOSED));

        let (log, found) = options.open(&path).unwrap();
        assert_eq!((found.records, found.was_closed), (1, false));
        log.close().unwrap();
    }
}
