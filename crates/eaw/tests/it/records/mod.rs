//! Stores of records: what each kind of them has to do.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod conformance;
mod damage;
mod earlier;
mod full;
mod model;
mod processes;
mod threads;

use std::path::Path;

use eaw::aries::{self, Aries};
use eaw::mars::{Mars, Options};
use eaw::records::Records;

use super::{members, options};

/// Some records are placed past the log, and some are not.
const PLACE_MIN: usize = 1000;

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
        Options::new().block_bytes(16 << 10).segment_bytes(64 << 10).create(array).expect("works").place_min(PLACE_MIN)
    }

    fn open(dir: &Path) -> Self {
        let store = Self::open(options().open(&members(dir)).expect("works")).expect("works");
        assert!(store.array().recovered().lost.is_empty() && store.damaged().is_empty());
        store.place_min(PLACE_MIN)
    }

    fn abandon(self) {
        Self::abandon(self);
    }
}

impl Kind for Aries {
    fn create(dir: &Path) -> Self {
        let options = small().segment_bytes(64 << 10).log_bytes(1 << 20);
        options.create(dir.join("aries")).expect("works")
    }

    fn open(dir: &Path) -> Self {
        let store = small().open(dir.join("aries")).expect("works");
        assert!(store.restarted().damaged.is_empty());
        store
    }

    fn abandon(self) {
        Self::abandon(self);
    }
}

/// Few pages in memory, so that they come and go.
fn small() -> aries::Options {
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    aries::Options::new().page_bytes(16 << 10).buffer_pages(6).pool(pool)
}
