//! What has expired goes: no reader sees it any more, and it takes space.
//!
//! The index says which versions expire at all, so that only those are looked at. Each that has is deleted by a transaction like any other, which makes sure that it
//! still is the newest.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use tx::Isolation;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::media::record::Record;
use crate::raw::Claim;
use crate::time::Now;
use crate::txn::transaction::{Mode, Transaction};

/// Leaves looked at in one go: a little more than a megabyte.
const LEAVES: usize = 2048;
/// Keys removed by one transaction.
const KEYS: usize = 256;

/// Where the sweeping of a store stands.
#[derive(Default)]
pub(crate) struct Sweep {
    /// The first key of the next leaf, on the way through.
    from: Option<Vec<u8>>,
}

impl Sweep {
    /// Whether it has come to the end.
    pub(crate) fn is_through(&self) -> bool {
        self.from.is_none()
    }
}

impl Core {
    /// Looks at some leaves; `sweep.from` is none after the last. Returns how many keys went.
    pub(crate) fn sweep(&self, sweep: &mut Sweep) -> Result<u64> {
        let mut next = match sweep.from.take() {
            Some(from) => from,
            // Nothing that expires was there the last time, and nothing came.
            None if !self.versions.take_expiring() => return Ok(0),
            None => Vec::new(),
        };
        // A writer that does not see that it is not noted any more has published before this looks.
        fence(SeqCst);
        let now = Now::default();
        let (mut expired, mut words) = (Vec::new(), Vec::new());
        for _ in 0..LEAVES {
            let pin =
                self.versions.concurrency.active.pin_for_sweep().inspect_err(|_| self.versions.note_expiring())?;
            let stretch = self.versions.index.locate(&pin, &next);
            if !self.versions.index.leaf(stretch.spot).words(stretch.spot.layout, &mut words) {
                continue; // it has just been split
            }
            for word in words.iter().filter(|word| word.expires()) {
                self.versions.note_expiring();
                // What cannot be read is left to `check`, and must not keep others.
                if let Ok(record) = Record::at(Claim::Pinned, &pin, self.versions.pool(), word.offset())
                    && !record.is_live(&now)
                {
                    expired.push(record.key().to_vec());
                }
            }
            match stretch.to {
                Some(to) => next = to.to_vec(),
                None => {
                    drop(pin); // its transaction slot is for those who remove
                    return self.remove_expired(&expired);
                }
            }
        }
        sweep.from = Some(next);
        self.remove_expired(&expired)
    }

    fn remove_expired(&self, keys: &[Vec<u8>]) -> Result<u64> {
        let mut removed = 0;
        // A transaction writes it, or it is corrupt.
        let left_alone = |error: &Error| error.is_conflict() || matches!(error, Error::Damaged { .. });
        for some in keys.chunks(KEYS) {
            removed += match self.remove_unless_live(some) {
                Err(error) if left_alone(&error) => some.chunks(1).try_fold(0, |sum, one| {
                    let removed = self.remove_unless_live(one);
                    removed.or_else(|error| if left_alone(&error) { Ok(0) } else { Err(error) }).map(|n| sum + n)
                })?,
                other => other?,
            };
        }
        crate::stats::add(&self.counters.swept, removed);
        Ok(removed)
    }

    /// First updater wins, so that what expired as of the snapshot is still the newest when it is deleted.
    fn remove_unless_live(&self, keys: &[Vec<u8>]) -> Result<u64> {
        let pin = self.versions.concurrency.active.pin_for_sweep()?;
        let mut tx = Transaction::begin_on(self, pin, Isolation::Snapshot, Mode::default());
        for key in keys {
            if tx.get(key)?.is_none() {
                tx.delete(key)?;
            }
        }
        let removed = tx.writes();
        tx.finish()?;
        Ok(removed as u64)
    }
}
