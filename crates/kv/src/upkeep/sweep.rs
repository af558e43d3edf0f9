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

    /// Looks at some leaves of a store. Returns how many keys went.
    pub(crate) fn step(&mut self, core: &Core) -> Result<u64> {
        let versions = &core.versions;
        let mut next = match self.from.take() {
            Some(from) => from,
            // Nothing that expires was there the last time, and nothing came.
            None if !versions.take_expiring() => return Ok(0),
            None => Vec::new(),
        };
        // A writer that does not see that it is not noted any more has published before this looks.
        fence(SeqCst);
        let now = Now::default();
        let (mut expired, mut words) = (Vec::new(), Vec::new());
        for _ in 0..LEAVES {
            let pin = versions.concurrency.active.pin_for_sweep().inspect_err(|_| versions.note_expiring())?;
            let stretch = versions.index.locate(&pin, &next);
            if !versions.index.leaf(stretch.spot).words(stretch.spot.layout, &mut words) {
                continue; // it has just been split
            }
            for word in words.iter().filter(|word| word.expires()) {
                versions.note_expiring();
                // What cannot be read is left to `check`, and must not keep others.
                if let Ok(record) = Record::at(Claim::Pinned, &pin, versions.pool(), word.offset())
                    && !record.is_live(&now)
                {
                    expired.push(record.key().to_vec());
                }
            }
            match stretch.to {
                Some(to) => next = to.to_vec(),
                None => {
                    drop(pin); // its transaction slot is for those who remove
                    return remove_expired(core, &expired);
                }
            }
        }
        self.from = Some(next);
        remove_expired(core, &expired)
    }
}

fn remove_expired(core: &Core, keys: &[Vec<u8>]) -> Result<u64> {
    let mut removed = 0;
    // A transaction writes it, or it is corrupt.
    let left_alone = |error: &Error| error.is_conflict() || matches!(error, Error::Damaged { .. });
    for some in keys.chunks(KEYS) {
        removed += match remove_unless_live(core, some) {
            Err(error) if left_alone(&error) => some.chunks(1).try_fold(0, |sum, one| {
                let removed = remove_unless_live(core, one);
                removed.or_else(|error| if left_alone(&error) { Ok(0) } else { Err(error) }).map(|n| sum + n)
            })?,
            other => other?,
        };
    }
    crate::stats::add(&core.counters.swept, removed);
    Ok(removed)
}

/// First updater wins, so that what expired as of the snapshot is still the newest when it is deleted.
fn remove_unless_live(core: &Core, keys: &[Vec<u8>]) -> Result<u64> {
    let pin = core.versions.concurrency.active.pin_for_sweep()?;
    let mode = Mode { upkeep: true, ..Mode::default() };
    let mut tx = Transaction::begin_on(core, pin, Isolation::Snapshot, mode);
    for key in keys {
        if tx.get(key)?.is_none() {
            tx.delete(key)?;
        }
    }
    let removed = tx.writes();
    tx.finish()?;
    Ok(removed as u64)
}
