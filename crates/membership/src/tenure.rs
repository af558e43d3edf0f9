//! What is held, as seen from any thread: a clock is looked at, nothing is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::Moment;
use crate::{Error, Result, Why};

/// Whether a leadership is still held: to be cloned to every thread that acts in its name.
#[derive(Clone, Debug)]
pub struct Tenure(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    term: u64,
    /// Held before this moment of the clock; 0 when it is over.
    held_until_ns: AtomicU64,
    why: Mutex<Option<Why>>,
    /// What the last attempt to keep it met, if it met something.
    failure: Mutex<Option<String>>,
    ended: Condvar,
}

impl Tenure {
    pub(crate) fn new(term: u64, held_until: Moment) -> Self {
        let held_until_ns = AtomicU64::new(held_until.ns());
        let (why, failure, ended) = (Mutex::new(None), Mutex::new(None), Condvar::new());
        Self(Arc::new(Shared { term, held_until_ns, why, failure, ended }))
    }

    /// The fencing number: higher than that of every leadership before.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// Whether no other leader can have been elected yet. Once false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held_at(Moment::now)
    }

    /// 0 when it is over.
    pub(crate) fn held_until_ns(&self) -> u64 {
        self.0.held_until_ns.load(Ordering::Acquire)
    }

    /// The clock is looked at last: whatever happens in between makes it later.
    fn is_held_at(&self, clock: impl FnOnce() -> Moment) -> bool {
        let until = self.0.held_until_ns.load(Ordering::Acquire);
        if until == 0 {
            return false;
        }
        if clock().ns() < until {
            return true;
        }
        // A renewal that is being confirmed right now comes too late: false has been said. If it was confirmed before, look again.
        match self.0.held_until_ns.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.end(Why::Expired);
                false
            }
            Err(later) => later != 0 && self.is_held(),
        }
    }

    /// Nothing while it is held.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn check(&self) -> Result<()> {
        if self.is_held() { Ok(()) } else { Err(Error::Lost { term: self.0.term, why: self.why(), said: self.said() }) }
    }

    /// Why it is over, in words, with what the last attempt to keep it met; nothing while it is held.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        (!self.is_held()).then(|| self.said())
    }

    fn said(&self) -> String {
        match (self.why(), &*self.0.failure.lock()) {
            (Why::Resigned, _) | (_, None) => self.why().to_string(),
            (why, Some(failure)) => format!("{why}: {failure}"),
        }
    }

    /// An attempt to keep it has failed so.
    pub(crate) fn failed(&self, failure: String) {
        *self.0.failure.lock() = Some(failure);
    }

    /// It is kept.
    pub(crate) fn went_well(&self) {
        *self.0.failure.lock() = None;
    }

    /// Waits until it is no longer held.
    pub fn lost(&self) -> Why {
        loop {
            if let Some(why) = self.lost_within(Duration::from_secs(3600)) {
                return why;
            }
        }
    }

    /// Waits until it is no longer held, at most so long. Needs no answer from etcd, nor any other thread.
    pub fn lost_within(&self, limit: Duration) -> Option<Why> {
        let end = Moment::now() + limit;
        loop {
            if !self.is_held() {
                return Some(self.why());
            }
            let now = Moment::now();
            if now >= end {
                return None;
            }
            let until = Moment::from_ns(self.0.held_until_ns.load(Ordering::Acquire));
            let mut why = self.0.why.lock();
            if why.is_none() {
                self.0.ended.wait_for(&mut why, now.until(until.min(end)));
            }
        }
    }

    /// It is over; the first thread to say so is right.
    pub(crate) fn end(&self, why: Why) {
        // The reason comes first: a thread that sees the word has one.
        self.0.why.lock().get_or_insert(why);
        self.0.held_until_ns.store(0, Ordering::Release);
        self.0.ended.notify_all();
    }

    /// False if a caller has been told already that it is over.
    pub(crate) fn extend(&self, until: Moment) -> bool {
        let known = self.0.held_until_ns.load(Ordering::Acquire);
        known != 0
            && self.0.held_until_ns.compare_exchange(known, until.ns(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Only a thread that finds by the clock that it is over says so before there is a reason.
    fn why(&self) -> Why {
        *self.0.why.lock().get_or_insert(Why::Expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Moment {
        Moment::from_ns(ns)
    }

    #[test]
    fn it_is_held_until_its_moment() {
        let tenure = Tenure::new(7, at(100));
        assert!(tenure.is_held_at(|| at(99)));
        assert!(!tenure.is_held_at(|| at(100)));
        assert_eq!(tenure.why(), Why::Expired);
    }

    #[test]
    fn an_extension_counts() {
        let tenure = Tenure::new(7, at(100));
        assert!(tenure.extend(at(200)));
        assert!(tenure.is_held_at(|| at(199)));
    }

    #[test]
    fn once_false_it_stays_false() {
        let tenure = Tenure::new(7, at(100));
        assert!(!tenure.is_held_at(|| at(100)));
        assert!(!tenure.extend(at(200)));
        assert!(!tenure.is_held_at(|| at(50)));
        tenure.end(Why::Gone);
        assert_eq!(tenure.why(), Why::Expired, "the first reason stays");
    }

    #[test]
    fn a_clock_that_is_read_during_an_extension_decides_nothing() {
        let tenure = Tenure::new(7, Moment::now() + Duration::from_secs(1000));
        let later = Moment::now() + Duration::from_secs(2000);
        assert!(tenure.is_held_at(|| {
            assert!(tenure.extend(later));
            Moment::now() + Duration::from_secs(1500)
        }));
    }

    #[test]
    fn who_waits_is_told() {
        let tenure = Tenure::new(7, Moment::now() + Duration::from_secs(1000));
        assert_eq!(tenure.lost_within(Duration::ZERO), None);
        assert!(tenure.check().is_ok());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| tenure.lost());
            tenure.end(Why::Gone);
            assert_eq!(waiting.join().unwrap(), Why::Gone);
        });
        assert!(matches!(tenure.check(), Err(Error::Lost { term: 7, why: Why::Gone, .. })));
    }

    #[test]
    fn what_was_met_last_is_said_when_it_is_over() {
        let tenure = Tenure::new(7, Moment::now() + Duration::from_secs(1000));
        tenure.failed("earlier".to_owned());
        tenure.went_well();
        assert_eq!(tenure.reason(), None);
        tenure.failed("permission denied".to_owned());
        assert_eq!(tenure.reason(), None);
        tenure.end(Why::Expired);
        assert_eq!(tenure.reason().unwrap(), "its lease could not be kept alive in time: permission denied");
        let error = tenure.check().unwrap_err().to_string();
        assert!(error.contains("(its lease could not be kept alive in time: permission denied)"), "{error}");
        let resigned = Tenure::new(7, Moment::now() + Duration::from_secs(1000));
        resigned.failed("earlier".to_owned());
        resigned.end(Why::Resigned);
        assert_eq!(resigned.reason().unwrap(), "it was given up");
    }

    #[test]
    fn who_waits_is_told_by_the_clock_alone() {
        let tenure = Tenure::new(7, Moment::now() + Duration::from_millis(20));
        assert_eq!(tenure.lost(), Why::Expired);
    }
}
