//! What the explorer explores of Cairn itself: a scenario for each structure that makes a promise about crashes.
//!
//! `cairn crash` runs these from the command line, the test suite runs them with bounded budgets, `make crash-long` for hours.
//! Each names its invariant in its module.

#![forbid(unsafe_code)]

mod arrayed;
mod cell;
mod chained;
mod checksummed;
mod contents;
mod copied;
pub mod damage;
mod directory;
mod every;
mod faults;
pub mod graph;
mod handed;
mod headed;
pub mod heap;
mod journal;
mod led;
mod objects;
mod opened;
mod recorded;
mod records;
mod resize;
mod store;
pub mod structures;
mod versioned;

pub use self::structures::Pairs;
pub use arrayed::{Arrayed, Op as ArrayOp, Range as ArrayRange};
pub use cell::Cell;
pub use chained::{Chained, Op as ChainOp};
pub use checksummed::Checksummed;
pub use copied::{Copied, Op as CopyOp};
pub use directory::Directory;
pub use every::{
    EveryHeap, EveryKv, EveryLog, HeapAct, HeapKind, HeapOp, KvAct, KvKind, KvOp, LogAct, LogEveryOp, LogKind,
};
pub use graph::Edges;
pub use handed::{Engines, Handed, Op as HandOp};
pub use headed::{Headed, Op as HeadOp};
pub use heap::Cells;
pub use journal::{Journal, Op as JournalOp};
pub use led::{Led, Op as LedOp};
pub use objects::ObjectTable;
pub use recorded::{InArray, Op as RecordOp, Recorded, Store as RecordStore, Write as RecordWrite};
pub use records::{Op as LogOp, Records};
pub use resize::Resize;
pub use store::{ALIKE, Op as StoreOp, Stored};
pub use versioned::{Act as VersionAct, Crossed, CrossedOp, EveryVersion, Kind as VersionKind, Op as VersionOp};

use ::heap::Policy;
use crash::{Config, FaultKind, MutationReport, Report};
use eaw::aries::Aries;
use eaw::mars::Mars;

use self::structures::{Hash, List, Search, Tree};

/// A built-in scenario, by name.
pub struct Named {
    /// What `cairn crash --scenario` calls it.
    pub name: &'static str,
    /// What it holds recovery to.
    pub promise: &'static str,
    run: fn(&Config) -> Report,
    run_failing_drains: fn(&Config, u64) -> Vec<Report>,
    run_full_disks: fn(&Config) -> Vec<Report>,
    mutate: fn(&Config) -> MutationReport,
}

impl Named {
    /// Explores it.
    pub fn run(&self, config: &Config) -> Report {
        (self.run)(config)
    }

    /// Explores it once for each of its drains, which fails: at most `most` times.
    pub fn run_failing_drains(&self, config: &Config, most: u64) -> Vec<Report> {
        (self.run_failing_drains)(config, most)
    }

    /// Explores it on disks of which each is full a little later.
    pub fn run_full_disks(&self, config: &Config) -> Vec<Report> {
        (self.run_full_disks)(config)
    }

    /// So many recoveries of others cost as much as one of this: a caller that gives all of them the same time divides by it.
    pub fn weight(&self) -> u64 {
        if self.name.ends_with("-many") { 4 } else { 1 }
    }

    /// Faults of the medium, one at a time, that lose nothing without a word: an error, or everything that was acknowledged.
    pub fn withstands(&self) -> &'static [FaultKind] {
        faults::withstood(self.name)
    }

    /// Leaves each of its barriers out in turn.
    pub fn mutate(&self, config: &Config) -> MutationReport {
        (self.mutate)(config)
    }
}

macro_rules! named {
    ($($name:literal, $scenario:expr, $promise:literal;)*) => {
        &[$(Named {
            name: $name,
            promise: $promise,
            run: |config| crash::run($scenario, config),
            run_failing_drains: |config, most| crash::run_failing_drains($scenario, config, most),
            run_full_disks: |config| crash::run_full_disks($scenario, config),
            mutate: |config| crash::mutate($scenario, config),
        }),*]
    };
}

/// All built-in scenarios. There is none with the policy `none` and two threads: a conflict halfway leaves half a transaction there, and
/// nothing is promised that could be checked.
pub const ALL: &[Named] = named! {
    "two-slot", Cell, "a cell shows its last acknowledged value, or the one being written";
    "checksummed", Checksummed, "a checksummed record reads back whole or not at all";
    "ring", Journal::default(), "acknowledged records come back in order, retired ones do not, torn ones never";
    "header", Directory, "regions that were added are there, generations only rise, a close is clean or not a close";
    "resize", Resize, "what was stored before a growth or a shrink survives both, and so does what was stored after";
    "objects", ObjectTable::new(1), "every published object is there with its contents, and nothing else is allocated";
    "objects-2", ObjectTable::new(2), "the same with two threads";
    "log", Records::new("log", 1, 1), "forced records come back in order, reclaimed ones do not, torn ones never";
    "log-2", Records::new("log-2", 2, 1), "the same with two threads";
    "log-freq", Records::new("log-freq", 1, 3), "the same, three records to a force: those that were not forced go from the end";
    "log-freq-2", Records::new("log-freq-2", 2, 2), "the same with two threads";
    "log-copy", Copied::new("log-copy"), "a copy of a log keeps its promises, the records it acknowledged and the head; its epoch is that of a leader whose log it has, and names the copies";
    "log-leader", Led::new("log-leader"), "a log on two machines that lose their power together: forced records come back in order, reclaimed ones do not, whichever machine leads next";
    "chain", Chained::new("chain"), "a replica has every record that it has forwarded or acknowledged; its queue over its image is the heap that these leave; a voided copy is none until it is whole";
    "chain-head", Headed::new("chain-head"), "acknowledged transactions of a head are there, others whole or not at all, and no other block";
    "array", Arrayed::new("array", 1).adjust(|options| options.draft_max(48)), "what a transaction wrote is there in all its places or in none, in the order of commits; what was rolled back is nowhere";
    "array-2", Arrayed::new("array-2", 2), "the same with two threads";
    "array-whole", Arrayed::new("array-whole", 1).adjust(|options| options.whole_writes(true)), "the same, of pages that a file takes whole, without a log";
    "array-late", Arrayed::new("array-late", 1).adjust(Arrayed::as_on_files), "as on files: what is durable stays in the log for some commits, and small logs are in one place";
    "array-late-2", Arrayed::new("array-late-2", 2).adjust(Arrayed::as_on_files), "the same with two threads";
    "mars", Recorded::<Mars>::new("mars", 1), "transactions on records are there whole or not at all, in the order of each record; what was rolled back is nowhere; each record is there once";
    "mars-2", Recorded::<Mars>::new("mars-2", 2), "the same with two threads";
    "mars-placed", Recorded::<Mars>::new("mars-placed", 1).adjust(|options| options.store(|store| store.place_min(40))), "the same, longer records go to free slots past the log";
    "mars-placed-2", Recorded::<Mars>::new("mars-placed-2", 2).adjust(|options| options.store(|store| store.place_min(40))), "the same with two threads";
    "aries", Recorded::<Aries>::new("aries", 1), "the same by a write-ahead log and pages";
    "aries-2", Recorded::<Aries>::new("aries-2", 2), "the same with two threads";
    "kv", Stored::new("kv", 1), "acknowledged transactions on keys are there, others whole or not at all; what was deleted stays deleted; snapshots do not change";
    "kv-2", Stored::new("kv-2", 2), "the same with two threads";
    "kv-grouped", Stored::new("kv-grouped", 3).grouped(), "the same with three threads, in groups";
    "kv-bounded", Stored::new("kv-bounded", 1).bounded(3), "the same, three commits at risk: what survives is a prefix";
    "kv-bounded-2", Stored::new("kv-bounded-2", 2).bounded(3), "the same with two threads";
    "log-every", EveryLog::new("log-every", 1), "drawn from every operation, with reservations side by side: forced records come back at their places, reclaimed ones do not";
    "log-every-freq", EveryLog::new("log-every-freq", 3), "the same, three records to a force";
    "kv-every", EveryKv::new("kv-every", 0), "drawn from every operation, with transactions side by side: exactly what was committed is there, each whole, and its space comes back";
    "kv-every-bounded", EveryKv::new("kv-every-bounded", 3), "the same, three commits at risk: what survives is a prefix";
    "heap-every", EveryHeap::new("heap-every", Policy::InPlace), "drawn from every operation, with transactions side by side: exactly the objects that were committed are there, to the byte, and no other block";
    "heap-every-partial", EveryHeap::new("heap-every-partial", Policy::InPlacePartial), "the same, with copies of a few objects only";
    "heap-every-undo", EveryHeap::new("heap-every-undo", Policy::Undo), "the same, rolled back from old bytes in a log";
    "heap-every-eaw", EveryHeap::new("heap-every-eaw", Policy::Eaw), "the same, with new bytes in a log";
    "heap-every-intents", EveryHeap::new("heap-every-intents", Policy::InPlace), "the same, with intents of objects in place of marks of zones";
    "mvcc-every", EveryVersion::new("mvcc-every"), "drawn from every operation, with transactions of all levels and long snapshots side by side: each sees what was committed when it began, and exactly the objects that were committed are there";
    "mvcc-calls", EveryVersion::calling("mvcc-calls"), "the same with procedures, whose calls are logged and run again after a crash: each once, on what it ran on";
    "mvcc-2", Crossed::new("mvcc-2"), "two threads in the middle of each other's commits: no change is lost, what is written together is seen together, and nothing skews";
    "mvcc-handover", Handed::new("mvcc-handover"), "objects that go from a heap to a store with versions and back: one of the two has them, all as acknowledged, the other one nothing";
    "heap-inplace", Cells::new("heap-inplace", Policy::InPlace, 1), "acknowledged transactions are there, others whole or not at all, no block is lost or shared";
    "heap-inplace-2", Cells::new("heap-inplace-2", Policy::InPlace, 2), "the same with two threads";
    "heap-intents", Cells::new("heap-intents", Policy::InPlace, 1).intents(), "the same, with intents of objects in place of marks of zones";
    "heap-intents-2", Cells::new("heap-intents-2", Policy::InPlace, 2).intents(), "the same with two threads";
    "heap-partial", Cells::new("heap-partial", Policy::InPlacePartial, 1), "the same, with copies of a few objects only";
    "heap-partial-2", Cells::new("heap-partial-2", Policy::InPlacePartial, 2), "the same with two threads";
    "heap-undo", Cells::new("heap-undo", Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "heap-undo-2", Cells::new("heap-undo-2", Policy::Undo, 2), "the same with two threads";
    "heap-eaw", Cells::new("heap-eaw", Policy::Eaw, 1), "the same, with new bytes in a log";
    "heap-eaw-2", Cells::new("heap-eaw-2", Policy::Eaw, 2), "the same with two threads";
    "heap-none", Cells::new("heap-none", Policy::None, 1), "every word is as acknowledged, or of a transaction in doubt";
    "hash-inplace", Pairs::new("hash-inplace", Hash { grows: true }, Policy::InPlace, 1), "a hash map that grows: acknowledged changes of keys are there, others whole or not at all; it verifies, leaks nothing, goes on";
    "hash-inplace-2", Pairs::new("hash-inplace-2", Hash { grows: true }, Policy::InPlace, 2), "the same with two threads";
    "hash-partial", Pairs::new("hash-partial", Hash { grows: true }, Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "hash-partial-2", Pairs::new("hash-partial-2", Hash { grows: true }, Policy::InPlacePartial, 2), "the same with two threads";
    "hash-undo", Pairs::new("hash-undo", Hash { grows: true }, Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "hash-undo-2", Pairs::new("hash-undo-2", Hash { grows: true }, Policy::Undo, 2), "the same with two threads";
    "hash-eaw", Pairs::new("hash-eaw", Hash { grows: true }, Policy::Eaw, 1), "the same, with new bytes in a log";
    "hash-eaw-2", Pairs::new("hash-eaw-2", Hash { grows: true }, Policy::Eaw, 2), "the same with two threads";
    "hash-none", Pairs::new("hash-none", Hash { grows: true }, Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
    "hash-many", Pairs::new("hash-many", Hash { grows: true }, Policy::InPlace, 1).many(), "the same with two hundred keys: dozens of buckets, a directory that has doubled";
    "hash-fixed-inplace", Pairs::new("hash-fixed-inplace", Hash { grows: false }, Policy::InPlace, 1), "a hash map of chains: acknowledged changes of keys are there, others whole or not at all; it verifies, leaks nothing, goes on";
    "hash-fixed-inplace-2", Pairs::new("hash-fixed-inplace-2", Hash { grows: false }, Policy::InPlace, 2), "the same with two threads";
    "hash-fixed-partial", Pairs::new("hash-fixed-partial", Hash { grows: false }, Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "hash-fixed-undo", Pairs::new("hash-fixed-undo", Hash { grows: false }, Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "hash-fixed-undo-2", Pairs::new("hash-fixed-undo-2", Hash { grows: false }, Policy::Undo, 2), "the same with two threads";
    "hash-fixed-eaw", Pairs::new("hash-fixed-eaw", Hash { grows: false }, Policy::Eaw, 1), "the same, with new bytes in a log";
    "hash-fixed-eaw-2", Pairs::new("hash-fixed-eaw-2", Hash { grows: false }, Policy::Eaw, 2), "the same with two threads";
    "hash-fixed-none", Pairs::new("hash-fixed-none", Hash { grows: false }, Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
    "btree-inplace", Pairs::new("btree-inplace", Tree, Policy::InPlace, 1), "a B+tree: acknowledged changes of keys are there, others whole or not at all; it verifies, leaks nothing, goes on";
    "btree-inplace-2", Pairs::new("btree-inplace-2", Tree, Policy::InPlace, 2), "the same with two threads";
    "btree-partial", Pairs::new("btree-partial", Tree, Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "btree-partial-2", Pairs::new("btree-partial-2", Tree, Policy::InPlacePartial, 2), "the same with two threads";
    "btree-undo", Pairs::new("btree-undo", Tree, Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "btree-undo-2", Pairs::new("btree-undo-2", Tree, Policy::Undo, 2), "the same with two threads";
    "btree-eaw", Pairs::new("btree-eaw", Tree, Policy::Eaw, 1), "the same, with new bytes in a log";
    "btree-eaw-2", Pairs::new("btree-eaw-2", Tree, Policy::Eaw, 2), "the same with two threads";
    "btree-none", Pairs::new("btree-none", Tree, Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
    "btree-many", Pairs::new("btree-many", Tree, Policy::InPlace, 1).many(), "the same with two hundred keys, on three levels";
    "list-inplace", Pairs::new("list-inplace", List, Policy::InPlace, 1), "a sorted list: acknowledged changes of keys are there, others whole or not at all; it verifies, leaks nothing, goes on";
    "list-inplace-2", Pairs::new("list-inplace-2", List, Policy::InPlace, 2), "the same with two threads";
    "list-partial", Pairs::new("list-partial", List, Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "list-undo", Pairs::new("list-undo", List, Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "list-undo-2", Pairs::new("list-undo-2", List, Policy::Undo, 2), "the same with two threads";
    "list-eaw", Pairs::new("list-eaw", List, Policy::Eaw, 1), "the same, with new bytes in a log";
    "list-eaw-2", Pairs::new("list-eaw-2", List, Policy::Eaw, 2), "the same with two threads";
    "list-none", Pairs::new("list-none", List, Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
    "bst-inplace", Pairs::new("bst-inplace", Search { balanced: false }, Policy::InPlace, 1), "an unbalanced search tree: acknowledged changes of keys are there, others whole or not at all; it verifies, leaks nothing, goes on";
    "bst-inplace-2", Pairs::new("bst-inplace-2", Search { balanced: false }, Policy::InPlace, 2), "the same with two threads";
    "bst-partial", Pairs::new("bst-partial", Search { balanced: false }, Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "bst-undo", Pairs::new("bst-undo", Search { balanced: false }, Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "bst-undo-2", Pairs::new("bst-undo-2", Search { balanced: false }, Policy::Undo, 2), "the same with two threads";
    "bst-eaw", Pairs::new("bst-eaw", Search { balanced: false }, Policy::Eaw, 1), "the same, with new bytes in a log";
    "bst-eaw-2", Pairs::new("bst-eaw-2", Search { balanced: false }, Policy::Eaw, 2), "the same with two threads";
    "bst-none", Pairs::new("bst-none", Search { balanced: false }, Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
    "treap-inplace", Pairs::new("treap-inplace", Search { balanced: true }, Policy::InPlace, 1), "a balanced search tree: acknowledged changes of keys are there, others whole or not at all; it verifies, leaks nothing, goes on";
    "treap-inplace-2", Pairs::new("treap-inplace-2", Search { balanced: true }, Policy::InPlace, 2), "the same with two threads";
    "treap-partial", Pairs::new("treap-partial", Search { balanced: true }, Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "treap-undo", Pairs::new("treap-undo", Search { balanced: true }, Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "treap-undo-2", Pairs::new("treap-undo-2", Search { balanced: true }, Policy::Undo, 2), "the same with two threads";
    "treap-eaw", Pairs::new("treap-eaw", Search { balanced: true }, Policy::Eaw, 1), "the same, with new bytes in a log";
    "treap-eaw-2", Pairs::new("treap-eaw-2", Search { balanced: true }, Policy::Eaw, 2), "the same with two threads";
    "treap-none", Pairs::new("treap-none", Search { balanced: true }, Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
    "graph-inplace", Edges::new("graph-inplace", Policy::InPlace, 1), "a graph: acknowledged changes of nodes and edges are there, others whole or not at all; both ends of an edge agree; it leaks nothing, goes on";
    "graph-inplace-2", Edges::new("graph-inplace-2", Policy::InPlace, 2), "the same with two threads";
    "graph-partial", Edges::new("graph-partial", Policy::InPlacePartial, 1), "the same, with copies of what was written lately";
    "graph-undo", Edges::new("graph-undo", Policy::Undo, 1), "the same, rolled back from old bytes in a log";
    "graph-undo-2", Edges::new("graph-undo-2", Policy::Undo, 2), "the same with two threads";
    "graph-eaw", Edges::new("graph-eaw", Policy::Eaw, 1), "the same, with new bytes in a log";
    "graph-eaw-2", Edges::new("graph-eaw-2", Policy::Eaw, 2), "the same with two threads";
    "graph-none", Edges::new("graph-none", Policy::None, 1), "the same while nothing is in doubt; otherwise every operation comes back";
};
