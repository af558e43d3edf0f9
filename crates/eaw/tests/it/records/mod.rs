//! Stores of records: what each kind of them has to do.

mod conformance;
mod damage;
mod model;
mod processes;
mod threads;

use std::path::Path;

use eaw::mars::{Mars, Options};
use eaw::records::Records;

use super::{members, options};

/// A kind of store, in a folder.
trait Kind: Records {
    fn create(dir: &Path) -> Self;
    fn open(dir: &Path) -> Self;
    /// As a crash of the process would leave it.
    fn abandon(self);
}

impl Kind for Mars {
    fn create(dir: &Path) -> Self {
        let array = options().stripe_bytes(4096).create(&members(dir)).expect("works");
        // Small, so that it grows, and blocks come to other sizes of slots.
        Options::new().block_bytes(16 << 10).segment_bytes(64 << 10).create(array).expect("works")
    }

    fn open(dir: &Path) -> Self {
        let store = Self::open(options().open(&members(dir)).expect("works")).expect("works");
        assert!(store.array().recovered().lost.is_empty() && store.damaged().is_empty());
        store
    }

    fn abandon(self) {
        Self::abandon(self);
    }
}
