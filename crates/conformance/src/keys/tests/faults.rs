//! Stores that are broken on purpose: each is noticed, and each check has noticed one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tx::Isolation;

use super::super::fault::Fault::{self, *};
use super::super::{Memory, Plan, Subject, checks, record};
use crate::failpoints::{Noticed, each_check_notices_something, each_fault_is_noticed};
use crate::history::Phenomenon;
use crate::shuttle::explore;

struct Broken(Fault);

impl Subject for Broken {
    type Store = Memory;

    fn fresh(&self) -> Memory {
        Memory::with_fault(self.0)
    }

    fn transactions(&self) -> usize {
        8000
    }

    fn skews(&self) -> bool {
        true
    }

    fn schedules(&self) -> usize {
        100
    }
}

/// What notices what.
const NOTICED: &[Noticed<Fault>] = &[
    (
        InPlace,
        &[
            "basics/model",
            "basics/aborted",
            "hermitage/g1a",
            "hermitage/g1b",
            "hermitage/g1c",
            "hermitage/otv",
            "hermitage/otv_begun_later",
            "hermitage/p4",
            "hermitage/g_single",
            "histories/snapshot",
        ],
    ),
    (
        DirtyRead,
        &["hermitage/g1a", "hermitage/g1b", "hermitage/g1c", "phantoms/scans_agree_with_a_model", "histories/mixed"],
    ),
    (
        ReadCommitted,
        &[
            "hermitage/g1b",
            "hermitage/pmp_read",
            "hermitage/g_single",
            "hermitage/g_single_dependencies",
            "hermitage/g2_two_edges",
            "phantoms/scans_agree_with_a_model",
            "histories/snapshot",
            "histories/serializable",
            "histories/strict",
            "histories/mixed",
            "schedules/random",
        ],
    ),
    (ScanNow, &["hermitage/otv", "hermitage/pmp_read", "histories/snapshot", "schedules/random"]),
    (
        LostUpdate,
        &[
            "hermitage/p4",
            "hermitage/p4_delete",
            "hermitage/g_single_write_1",
            "hermitage/g_single_write_2",
            "phantoms/scans_agree_with_a_model",
            "histories/snapshot",
            "schedules/random",
            "schedules/two_inserters",
        ],
    ),
    (LostInsert, &["hermitage/p4_insert", "histories/strict", "schedules/random", "schedules/two_inserters"]),
    (
        Unvalidated,
        &[
            "hermitage/g1c",
            "hermitage/g2_item",
            "hermitage/g2",
            "hermitage/g2_two_edges",
            "phantoms/no_more_than",
            "phantoms/one_of_two",
            "predicates/keys_deleted_since",
            "histories/serializable",
            "histories/strict",
            "histories/mixed",
            "schedules/random",
            "schedules/two_validators",
            "schedules/two_phantoms",
        ],
    ),
    (
        RangeUnvalidated,
        &[
            "hermitage/g2",
            "predicates/empty_ranges",
            "predicates/between",
            "predicates/prefixes",
            "predicates/open_ends",
            "predicates/up_to_where_it_stopped",
            "predicates/beside_own_inserts",
            "predicates/in_a_large_range",
            "predicates/after_splits",
            "predicates/after_merges",
            "phantoms/no_more_than",
            "histories/serializable",
            "schedules/two_phantoms",
        ],
    ),
    (
        EdgesUnvalidated,
        &[
            "predicates/before_the_first",
            "predicates/after_the_last",
            "predicates/empty_ranges",
            "phantoms/no_more_than",
        ],
    ),
    (ReverseUnvalidated, &["predicates/backwards", "phantoms/no_more_than", "histories/strict"]),
    (
        AbsentUnvalidated,
        &[
            "predicates/absent_keys",
            "predicates/absent_keys_deleted_before",
            "phantoms/one_of_two",
            "schedules/two_validators",
        ],
    ),
    (
        DeleteUnvalidated,
        &["predicates/keys_deleted_since", "predicates/found_keys_deleted_since", "histories/serializable"],
    ),
    (
        Stale,
        &["hermitage/acknowledged", "histories/snapshot", "histories/strict", "histories/mixed", "schedules/random"],
    ),
    (TornCommit, &["phantoms/scans_agree_with_a_model", "histories/snapshot", "histories/strict", "schedules/random"]),
    (
        ValidatedEarly,
        &[
            "histories/snapshot",
            "histories/serializable",
            "schedules/random",
            "schedules/two_validators",
            "schedules/two_phantoms",
            "schedules/two_inserters",
        ],
    ),
    (InstalledLate, &["phantoms/scans_agree_with_a_model", "histories/snapshot", "schedules/random"]),
    (PassedOver, &["hermitage/g2_item_read_late", "predicates/absent_keys", "histories/serializable"]),
    (DeleteLost, &["basics/model", "hermitage/pmp_write", "histories/snapshot", "schedules/random"]),
    (AbortKeeps, &["basics/model", "basics/aborted", "hermitage/g0", "hermitage/g1a", "histories/mixed"]),
    (InsertUnseen, &["hermitage/acknowledged", "phantoms/scans_agree_with_a_model", "histories/snapshot"]),
    (NeverReverse, &["basics/model", "basics/bounds", "basics/stopped_scans", "histories/mixed"]),
    (EndIncluded, &["basics/model", "basics/bounds", "phantoms/scans_agree_with_a_model", "histories/mixed"]),
    (OwnUnseen, &["basics/model", "predicates/beside_own_inserts", "histories/mixed"]),
    (OwnDeletedSeen, &["basics/model", "histories/mixed"]),
    (AlwaysThere, &["basics/model", "histories/mixed"]),
    (Cut, &["basics/model", "histories/mixed"]),
    (Undoomed, &["hermitage/g_single"]),
    (TooStrict, &["hermitage/g2_item", "hermitage/g2", "predicates/absent_keys"]),
];

fn every_fault_is_noticed() {
    each_fault_is_noticed(NOTICED, Broken, checks);
}

#[test]
fn every_check_notices_something() {
    each_check_notices_something(NOTICED, &[], &checks::<Broken>());
}

/// Histories call the faults by one of their names, the first of which they use, too.
fn phenomena_have_their_names() {
    use Isolation::{Serializable, Snapshot, Strict};
    use Phenomenon::{AbortedRead, G2, GNonadjacent, GSingle, IntermediateRead, Internal, UnknownValue};
    for (fault, level, names) in [
        (DirtyRead, Strict, &[AbortedRead, IntermediateRead, Internal][..]),
        (AbortKeeps, Snapshot, &[AbortedRead]),
        (LostUpdate, Snapshot, &[Phenomenon::LostUpdate, IntermediateRead]),
        // What was overwritten unseen may have been read before.
        (LostInsert, Serializable, &[Phenomenon::LostUpdate, G2, IntermediateRead, Phenomenon::Stale]),
        (TornCommit, Snapshot, &[GSingle, Phenomenon::LostUpdate, GNonadjacent, IntermediateRead, Phenomenon::Stale]),
        // What was not there is told by a marker that was read later.
        (ReadCommitted, Snapshot, &[GSingle]),
        (Unvalidated, Serializable, &[G2, Phenomenon::Stale]),
        (RangeUnvalidated, Serializable, &[G2, Phenomenon::Stale]),
        (EdgesUnvalidated, Serializable, &[G2, Phenomenon::Stale]),
        (ReverseUnvalidated, Serializable, &[G2, Phenomenon::Stale]),
        (AbsentUnvalidated, Serializable, &[G2, Phenomenon::Stale]),
        (DeleteUnvalidated, Serializable, &[G2, Phenomenon::Stale]),
        (Fault::Stale, Strict, &[Phenomenon::Stale, UnknownValue]),
        (Cut, Strict, &[UnknownValue]),
        (OwnUnseen, Strict, &[Internal]),
    ] {
        let (round, found) = (AtomicU64::new(0), Arc::new(Mutex::new(Vec::new())));
        let out = found.clone();
        // Played, not run: which name a history gets depends on the order of its threads.
        explore(1, 300, move || {
            let (levels, seed) = (vec![(level, level)], round.fetch_add(1, Relaxed));
            let (threads, transactions, keys, real_time, scheduled) = (4, 60, 6, true, true);
            let plan = Plan { threads, transactions, keys, levels, real_time, scheduled, seed };
            let checked = record::<Broken>(&Memory::with_fault(fault), &plan).0.check();
            out.lock().expect("the phenomena").extend(checked.err().map(|anomaly| anomaly.phenomenon));
        });
        let found = found.lock().expect("the phenomena").clone();
        assert!(found.contains(&names[0]) && found.iter().all(|name| names.contains(name)), "{fault:?}: {found:?}");
    }
}

/// Left to `make test-deep`: these test the instrument.
mod deep {
    #[test]
    fn every_fault_is_noticed() {
        super::every_fault_is_noticed();
    }

    #[test]
    fn phenomena_have_their_names() {
        super::phenomena_have_their_names();
    }
}
