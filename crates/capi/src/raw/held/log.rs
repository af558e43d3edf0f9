//! What borrows from a log: reservations and iterators.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use log::{Iter, Lsn, Reservation};
use parking_lot::Mutex;

use super::Held;
use crate::failure::Result;
use crate::handles::{Kept, Slots};
use crate::log_side::OpenLog;
use crate::types::log::{cairn_iter, cairn_reservation};

/// A record's place, and the log it is in.
pub(in crate::raw) type HeldReservation = Held<Reservation<'static>, OpenLog>;
/// A reader, and the log it reads.
pub(in crate::raw) type HeldIter = Held<Iter<'static>, OpenLog>;

impl HeldReservation {
    pub(in crate::raw) fn new(log: &Arc<OpenLog>, len: usize) -> Result<Self> {
        let reservation = log.log.reserve(len)?;
        // SAFETY: what it borrows is on the heap behind `owner`, which is dropped after it. Nothing takes it out with this lifetime: it is completed or dropped in here.
        let reservation = unsafe { std::mem::transmute::<Reservation<'_>, Reservation<'static>>(reservation) };
        Ok(Self { borrower: Mutex::new(reservation), owner: Arc::clone(log) })
    }

    pub(in crate::raw) fn complete(self) -> Result<Lsn> {
        Ok(self.borrower.into_inner().complete()?)
    }
}

impl HeldIter {
    pub(in crate::raw) fn new(log: &Arc<OpenLog>, from: Lsn) -> Self {
        let iter = log.log.iter_from(from);
        // SAFETY: as for a reservation; records that it shows borrow from it.
        let iter = unsafe { std::mem::transmute::<Iter<'_>, Iter<'static>>(iter) };
        Self { borrower: Mutex::new(iter), owner: Arc::clone(log) }
    }
}

static RESERVATIONS: Slots<HeldReservation> = Slots::new();
static ITERATORS: Slots<HeldIter> = Slots::new();

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
    use crate::code::cairn_code::{CAIRN_BUSY, CAIRN_CLOSED, CAIRN_POISONED};
    use crate::handles::{give, take, with};

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
