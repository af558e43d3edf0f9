//! All public operations of a heap and its transactions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// What may meet on an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind { $($kind),* }
        pub(super) const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}

kinds! {
    Bytes Read Rest Room BytesMut PutBytes Write WriteField WriteMany BytesMutMany Intend Nested Back Top Free FreeBytes Replace
    Alloc AllocBytes AllocSlice
    Commit Abort Drop FailedCommit Panic Transact
    Apply Grow Scrub ScrubAll Compare CompareAll LiveBlocks Stats Backup Kill
    Reopen Change
}

impl Kind {
    /// On an object that others know.
    pub(super) fn is_of_object(self) -> bool {
        self <= Kind::Replace
    }

    /// On an object that no other transaction knows yet.
    pub(super) fn is_new(self) -> bool {
        (Kind::Alloc..=Kind::AllocSlice).contains(&self)
    }

    /// Beside no transaction.
    pub(super) fn is_alone(self) -> bool {
        self >= Kind::Reopen
    }
}

/// Every public function of heap and transaction, and what draws it; nothing where it only looks at what never changes.
const OPERATIONS: &[(&str, Option<Kind>)] = &[
    ("Heap::create", Some(Kind::Reopen)),
    ("Heap::create_in", Some(Kind::Reopen)),
    ("Heap::open", Some(Kind::Reopen)),
    ("Heap::open_in", Some(Kind::Reopen)),
    ("Heap::open_or_create", Some(Kind::Reopen)),
    ("Heap::close", Some(Kind::Reopen)),
    ("Heap::pool", None),
    ("Heap::policy", None),
    ("Heap::recovery", None),
    ("Heap::abandon", None),
    ("Heap::cell_is_current", None),
    ("Heap::stats", Some(Kind::Stats)),
    ("Heap::live_blocks", Some(Kind::LiveBlocks)),
    ("Heap::apply_pending", Some(Kind::Apply)),
    ("Heap::apply_idle", Some(Kind::Apply)),
    ("Heap::grow", Some(Kind::Grow)),
    ("Heap::scrub", Some(Kind::Scrub)),
    ("Heap::scrub_all", Some(Kind::ScrubAll)),
    ("Heap::compare", Some(Kind::Compare)),
    ("Heap::compare_all", Some(Kind::CompareAll)),
    ("Heap::backup", Some(Kind::Backup)),
    ("Heap::slots", None),
    ("Heap::log_bytes", None),
    // With the other engine: scenario `mvcc-handover`.
    ("Heap::hand_over", None),
    ("Heap::take_over", None),
    ("Engine::name", None),
    ("Engine::strongest", None),
    ("Engine::queue", Some(Kind::Transact)),
    ("Engine::begin", Some(Kind::Commit)),
    ("Engine::transact", Some(Kind::Transact)),
    ("Engine::transact_with", Some(Kind::Transact)),
    ("Engine::attempt", Some(Kind::Transact)),
    ("Transaction::isolation", None),
    ("Transaction::bytes", Some(Kind::Bytes)),
    ("Transaction::bytes_mut", Some(Kind::BytesMut)),
    ("Transaction::put_bytes", Some(Kind::PutBytes)),
    ("Transaction::bytes_mut_many", Some(Kind::BytesMutMany)),
    ("Transaction::intend", Some(Kind::Intend)),
    ("Transaction::alloc_bytes", Some(Kind::AllocBytes)),
    ("Transaction::free_bytes", Some(Kind::FreeBytes)),
    ("Transaction::room", Some(Kind::Room)),
    ("Transaction::rest", Some(Kind::Rest)),
    ("Transaction::prefetch", None),
    ("Transaction::prefetch_bytes", None),
    ("Transaction::root_cell", None),
    ("Transaction::doom", Some(Kind::FailedCommit)),
    ("Transaction::set_doom", Some(Kind::FailedCommit)),
    ("Transaction::commit", Some(Kind::Commit)),
    ("Transaction::abort", Some(Kind::Abort)),
    ("Engine::call", Some(Kind::Transact)), // it is just that
    ("Savepoints::savepoint", Some(Kind::Back)),
    ("Savepoints::rollback_to", Some(Kind::Back)),
    ("NestedTop::nested_top", Some(Kind::Top)),
    ("Typed::read", Some(Kind::Read)),
    ("Typed::write", Some(Kind::Write)),
    ("Typed::write_many", Some(Kind::WriteMany)),
    ("Typed::write_field", Some(Kind::WriteField)),
    ("Typed::alloc", Some(Kind::Alloc)),
    ("Typed::alloc_slice", Some(Kind::AllocSlice)),
    ("Typed::free", Some(Kind::Free)),
    // The root's cell is an object like others, and these read and write it.
    ("Typed::root", Some(Kind::Read)),
    ("Typed::root_layout", Some(Kind::Read)),
    ("Typed::set_root", Some(Kind::Write)),
    ("Typed::replace", Some(Kind::Replace)),
    ("Typed::nested", Some(Kind::Nested)),
    ("Typed::refuse", Some(Kind::FailedCommit)),
];

/// The public functions that stand in the sources.
fn in_the_sources() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    let mut look = |path: PathBuf, opens: &[(&str, &str)], mark: &str| {
        let mut inside = None;
        for line in std::fs::read_to_string(path).unwrap().lines() {
            if let Some((_, name)) = opens.iter().find(|(open, _)| line.starts_with(open)) {
                inside = Some(*name);
            } else if line == "}" {
                inside = None;
            }
            if let (Some(name), Some(rest)) = (inside, line.strip_prefix(mark)) {
                found.insert(format!("{name}::{}", rest.split(['(', '<']).next().unwrap()));
            }
        }
    };
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => look(path, &[("impl Heap {", "Heap"), ("impl Tx<'_> {", "Tx")], "    pub fn "),
            }
        }
    }
    let tx = root.join("../tx/src");
    let traits = [
        ("pub trait Transaction ", "Transaction"),
        ("pub trait Typed", "Typed"),
        ("pub trait Engine ", "Engine"),
        ("pub trait Savepoints", "Savepoints"),
        ("pub trait NestedTop", "NestedTop"),
    ];
    look(tx.join("transaction.rs"), &traits, "    fn ");
    look(tx.join("engine.rs"), &traits, "    fn ");
    look(tx.join("savepoints.rs"), &traits, "    fn ");
    found
}

#[test]
fn the_list_of_operations_is_complete() {
    let listed: BTreeSet<String> = OPERATIONS.iter().map(|(name, _)| (*name).into()).collect();
    assert_eq!(listed, in_the_sources(), "an operation without a place in `OPERATIONS`, or one that is gone");
}
