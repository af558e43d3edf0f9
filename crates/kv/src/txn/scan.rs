//! Ranges of a transaction: what it has written itself is among what is committed.

use tx::Isolation;

use crate::error::Result;
use crate::raw::Claim;
use crate::scan::{Range, Scanner};
use crate::txn::transaction::Transaction;
use crate::writers::work::Scanned;

impl<'s> Transaction<'s> {
    /// Pairs of a range of keys, in order.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Options::new().create(dir.path().join("s"))?;
    /// # for key in ["user:1", "user:2", "zebra"] { store.put(key.as_bytes(), b"")?; }
    /// use kv::{Isolation, Keys};
    /// let tx = store.begin(Isolation::Serializable)?;
    /// for pair in tx.scan(Keys::prefix(b"user:").reverse()) {
    ///     let (key, value) = pair?;
    ///     println!("{}: {}", key.escape_ascii(), value.len());
    /// }
    /// assert_eq!(tx.scan(Keys::prefix(b"user:")).count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn scan(&self, range: Range) -> Scan<'_> {
        let mut work = self.work.borrow_mut();
        let mut own = if work.writes.is_empty() { Vec::new() } else { work.sorted(&range) };
        if !range.reverse {
            own.reverse();
        }
        drop(work);
        let limit = if self.locks_reads() {
            let at = self.scanned_at.get().unwrap_or_else(|| self.core.versions.concurrency.active.stable());
            self.scanned_at.set(Some(at));
            at
        } else {
            self.pin.snapshot
        };
        let scanner = self.scanner(limit, range.clone());
        let (waiting, expires, last) = (None, None, None);
        Scan { tx: self, scanner, own, waiting, range, found: Vec::new(), last, expires, ended: false, begun: false }
    }

    fn scanner(&self, limit: u64, range: Range) -> Scanner<'_> {
        Scanner::new(&self.core.versions, &self.core.maintenance.background, &self.pin, limit, &self.now, None, range)
    }

    /// All records of its snapshot, in order, with everything that is in them; for one that has written nothing.
    pub(crate) fn records(&self) -> Scanner<'_> {
        self.scanner(self.pin.snapshot, Range::all()).verified()
    }

    /// Removes all keys of a range; returns how many had a value. It has a record for each: a full store has room for those of a thirty-second of it, so take out some
    /// at a time there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_range(&mut self, range: Range) -> Result<u64> {
        let keys = self.scan(range).map(|pair| Ok(pair?.0.to_vec())).collect::<Result<Vec<_>>>()?;
        for key in &keys {
            self.delete(key)?;
        }
        Ok(keys.len() as u64)
    }
}

/// A pair of a scan: key and value.
pub type Pair<'t> = (&'t [u8], &'t [u8]);

/// Pairs of a range, in order: see [`Transaction::scan`].
pub struct Scan<'t> {
    tx: &'t Transaction<'t>,
    scanner: Scanner<'t>,
    /// Own writes in the range, the next one last.
    own: Vec<usize>,
    /// A record that comes behind an own write.
    waiting: Option<crate::media::record::Record<'t>>,
    range: Range,
    /// Timestamps of what was found, for validation.
    found: Vec<u64>,
    last: Option<Vec<u8>>,
    /// Of the pair returned last.
    expires: Option<u64>,
    ended: bool,
    begun: bool,
}

impl<'t> Iterator for Scan<'t> {
    type Item = Result<Pair<'t>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        self.begun = true;
        match self.step().map_err(|error| self.tx.fail(error)) {
            Ok(Some(pair)) => {
                if self.tx.level > Isolation::Snapshot {
                    let last = self.last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(pair.0);
                }
                Some(Ok(pair))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }
}

impl<'t> Scan<'t> {
    /// When the pair that was returned last expires, in milliseconds of Unix time.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Pair<'t>>> {
        self.tx.check()?;
        if self.own.is_empty() && self.waiting.is_none() {
            let Some(record) = self.scanner.next()? else { return Ok(None) };
            if self.tx.level > Isolation::Snapshot {
                self.found.push(record.header.ts);
            }
            self.expires = record.expires();
            return Ok(Some((record.key(), record.value())));
        }
        self.step_among_own()
    }

    fn step_among_own(&mut self) -> Result<Option<Pair<'t>>> {
        loop {
            if self.waiting.is_none() {
                self.waiting = self.scanner.next()?;
            }
            let work = self.tx.work.borrow();
            let own = self.own.last().map(|at| (*at, work.key(&work.writes[*at])));
            let order = match (self.waiting, own) {
                (None, None) => return Ok(None),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(record), Some((_, key))) if self.range.reverse => key.cmp(record.key()),
                (Some(record), Some((_, key))) => record.key().cmp(key),
            };
            if order.is_le() {
                let Some(record) = self.waiting.take() else { continue };
                if self.tx.level > Isolation::Snapshot {
                    self.found.push(record.header.ts);
                }
                if order.is_lt() {
                    self.expires = record.expires();
                    return Ok(Some((record.key(), record.value())));
                }
            }
            // An own write, which stands for the record if there was one.
            let Some((at, key)) = own else { continue };
            self.own.pop();
            if let Some(value) = self.tx.own_value(&work, at) {
                self.expires = work.expires(&work.writes[at]);
                return Ok(Some((crate::raw::kept(Claim::Own, self.tx, key), value)));
            }
        }
    }

    /// What was looked at, to be looked at again when the transaction commits.
    fn record(&mut self) {
        if self.tx.level == Isolation::Snapshot || !self.begun {
            return;
        }
        let mut range = std::mem::replace(&mut self.range, Range::all());
        if !self.ended {
            let Some(last) = self.last.take() else { return };
            if range.reverse {
                range.from = std::ops::Bound::Included(last);
            } else {
                range.to = std::ops::Bound::Included(last);
            }
        }
        let mut work = self.tx.work.borrow_mut();
        let from = work.scanned.len() as u32;
        work.scanned.append(&mut self.found);
        let found = from..work.scanned.len() as u32;
        work.scans.push(Scanned { range, found });
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.record();
    }
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({:?})", self.range)
    }
}
