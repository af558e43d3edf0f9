//! Removes what has expired and was not overwritten, some at a time.
//!
//! A pass goes through all keys. It costs a bounded number of them per call, and begins only if something may expire.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;

use tx::Keys;

use super::Tree;
use crate::engine::Result;

/// Keys that a call looks at.
const LOOKS: usize = 1024;
/// Keys that one transaction removes: its record fits into the log.
const AT_ONCE: usize = 64;

/// Where the pass is that is under way.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last key looked at; none between two passes.
    last: Option<Vec<u8>>,
}

/// Looks at the next keys; true if some were removed.
pub(super) fn some(tree: &Tree, now: u64) -> Result<bool> {
    let mut progress = tree.sweep.lock();
    // A transaction that sets something that expires says so again, and so does the pass that finds it.
    if progress.last.is_none() && !tree.expiring.swap(false, Relaxed) {
        return Ok(false);
    }
    let from = progress.last.take().map_or(Bound::Unbounded, Bound::Excluded);
    let keys = Keys { from, ..Keys::all() };
    let (mut gone, mut last, mut left) = (Vec::new(), None, LOOKS);
    let looked = tree.transact(false, &mut |tx| {
        (last, left) = (None, LOOKS);
        gone.clear();
        tx.scan_stored(&keys, &mut |key, stored| {
            if stored.expires != 0 {
                tree.expiring.store(true, Relaxed);
            }
            if !stored.is_live(now) {
                gone.push(key.to_vec());
            }
            left -= 1;
            if left > 0 {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        })
    });
    if looked.is_err() {
        tree.expiring.store(true, Relaxed); // what was not looked at may expire
    }
    looked?;
    for some in gone.chunks(AT_ONCE) {
        tree.transact(true, &mut |tx| {
            for key in some {
                // It may have been set again.
                if tx.stored(key)?.is_some_and(|stored| !stored.is_live(now)) {
                    tx.remove(key)?;
                }
            }
            Ok(())
        })?;
    }
    progress.last = last;
    Ok(!gone.is_empty())
}
