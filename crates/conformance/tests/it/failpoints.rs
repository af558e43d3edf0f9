//! Every check of the suite has been seen to fail: each fault below is noticed by the checks beside it, and no check is without one.

use conformance::failpoints::{Noticed, each_check_notices_something, each_fault_is_noticed};
use conformance::{Concurrency, Subject, checks, run_group};
use tx::{Bug, Isolation};

use crate::broken::Broken;
use crate::fault::Fault::{self, *};

#[derive(Clone, Copy)]
struct Faulty(Fault);

impl Subject for Faulty {
    type Engine = Broken;

    fn fresh(&self) -> Broken {
        Broken::new(self.0)
    }

    fn concurrency(&self) -> Concurrency {
        if self.0 == Serial { Concurrency::Locks } else { Concurrency::Versions }
    }

    fn levels(&self) -> &'static [Isolation] {
        if self.0 == Serial { &[Isolation::Strict] } else { &Isolation::ALL }
    }

    fn waits(&self) -> bool {
        self.0 == Serial
    }

    fn atomic(&self) -> bool {
        !matches!(self.0, NoRollback | NoRollbackUnsaid)
    }
}

/// What is noticed, and where.
const NOTICED: &[Noticed<Fault>] = &[
    (
        Of(Bug::DirtyWrite),
        &[
            "isolation/g0",
            "isolation/g1a",
            "isolation/g1a_overwritten",
            "isolation/g1b",
            "isolation/g1c",
            "isolation/observed_transaction_vanishes",
            "visibility/not_before_the_commit",
            "own/write_read",
            "endings/forgotten",
            "schedules/histories",
        ],
    ),
    (
        Of(Bug::ReadCommitted),
        &[
            "isolation/g_single",
            "isolation/g_single_writing",
            "atomicity/nobody_sees_half",
            "random/snapshot",
            "schedules/transfers",
            "schedules/handoff",
        ],
    ),
    (
        Of(Bug::LostUpdate),
        &[
            "isolation/g0",
            "isolation/lost_update",
            "isolation/lost_update_later",
            "alloc/free_against_write",
            "own/write_write",
            "own/free_write",
            "retry/counter",
            "retry/transfers",
            "retry/calls",
            "random/snapshot",
            "schedules/counter",
            "schedules/transfers",
            "schedules/histories",
        ],
    ),
    (Of(Bug::TornCommit), &["atomicity/nobody_sees_half", "schedules/transfers", "schedules/histories"]),
    (
        Of(Bug::Stale),
        &[
            "isolation/stale_read",
            "isolation/stale_read_by_hearsay",
            "isolation/one_after_the_other",
            "random/strict",
            "schedules/histories",
        ],
    ),
    (
        Of(Bug::Unvalidated),
        &[
            "isolation/write_skew",
            "isolation/write_skew_of_three",
            "isolation/read_only_anomaly",
            "random/serializable",
            "schedules/histories",
        ],
    ),
    (
        AbortCommits,
        &[
            "atomicity/nothing",
            "endings/abort",
            "endings/error_in_transact",
            "nesting/ends_with_the_outer_one",
            "errors/ignored_in_transact",
            "errors/the_callers_own",
            "errors/refusal",
            "errors/conflict_in_disguise",
            "intend/then_aborted",
            "root/unset_by_an_abort",
            "size/large_objects_roll_back",
            "size/many_objects_roll_back",
            "schedules/aborts",
        ],
    ),
    (DropCommits, &["endings/dropped", "endings/panic_in_transact", "endings/panic_with_a_transaction"]),
    (AllocsStay, &["atomicity/nothing", "alloc/alloc_then_abort", "alloc/space_comes_back_after_aborts"]),
    (FreesStay, &["alloc/free_then_abort", "size/many_objects_roll_back"]),
    (RootStays, &["atomicity/nothing", "root/unset_by_an_abort"]),
    (
        CommitForgetsLast,
        &["atomicity/everything", "visibility/after_the_commit", "nesting/joins", "own/read_write", "own/apart"],
    ),
    (CommitForgetsLastOfMany, &["size/many_objects"]),
    (CommitForgetsTail, &["size/large_objects"]),
    (CommitForgetsRoot, &["root/set_and_found", "root/of_another_type"]),
    (DoomedCommits, &["errors/every_error_dooms", "nesting/failure_dooms"]),
    (DoomedSaysYes, &["errors/every_error_dooms", "alloc/freed_by_an_earlier_one", "errors/the_first_is_kept"]),
    (DoomHidden, &["errors/every_error_dooms", "nesting/doomed_runs_nothing", "forged/unaligned"]),
    (DoomReplaced, &["errors/the_first_is_kept"]),
    (
        SetDoomIgnored,
        &[
            "nesting/failure_dooms",
            "nesting/failure_dooms_a_reader",
            "nesting/doomed_runs_nothing",
            "endings/panic_in_nested",
            "errors/refusal",
            "errors/conflict_in_disguise",
            "forged/unaligned",
        ],
    ),
    (DoomForgetsConflict, &["retry/attempts", "retry/deadline", "errors/conflict_in_disguise"]),
    (OwnIsConflict, &["own/write_write", "own/free_write", "own/transact_in_transact"]),
    (OneAtATime, &["own/apart"]),
    (
        NoOverlap,
        &[
            "isolation/different_objects",
            "isolation/readers_share",
            "isolation/readers_do_not_stop_writers",
            "isolation/writers_do_not_stop_readers",
            "own/apart",
        ],
    ),
    (LevelTooLow, &["isolation/levels"]),
    (SerializableIsSnapshot, &["isolation/write_skew", "isolation/read_only_anomaly", "random/serializable"]),
    (SlotsLeak, &["endings/readers_end_anyhow", "endings/ending_often"]),
    (LocksStay, &["endings/abort", "endings/dropped", "endings/panic_in_transact", "intend/then_aborted"]),
    (OwnWritesHidden, &["visibility/own_changes", "nesting/joins"]),
    (Smear, &["visibility/parts_of_objects", "intend/then_written"]),
    (Rereads, &["isolation/fuzzy_read", "isolation/g_single"]),
    (RereadsHalf, &["isolation/long_fork"]),
    (AllocDirty, &["alloc/zeroed"]),
    (AllocCrooked, &["alloc/aligned"]),
    (AllocAbsurd, &["alloc/too_much", "errors/every_error_dooms"]),
    (RoomLies, &["alloc/apart"]),
    (
        FreeIgnored,
        &[
            "alloc/freed_in_this_transaction",
            "alloc/freed_by_an_earlier_one",
            "alloc/alloc_and_free_together",
            "alloc/space_comes_back",
            "atomicity/everything",
        ],
    ),
    (FreeAnything, &["forged/frees_of_what_is_none", "forged/null"]),
    (TagIgnored, &["forged/of_another_pool"]),
    (NullIsRoot, &["forged/null"]),
    (EndIgnored, &["forged/over_the_end"]),
    (InnerRefused, &["forged/inside_an_object", "visibility/parts_of_objects"]),
    (StrayIsRoot, &["forged/metadata", "forged/at_random"]),
    (ManyReversed, &["many/each_its_own", "many/of_any_length"]),
    (ManyOverlap, &["many/overlap"]),
    (IntendClears, &["intend/then_not"]),
    (IntendUnchecked, &["intend/checked"]),
    (PutsLate, &["puts/among_others"]),
    (PutsStay, &["puts/then_aborted"]),
    (PutUnchecked, &["puts/checked"]),
    (NoRollbackUnsaid, &["atomicity/no_rollback_is_said"]),
];

/// Only unsafe code can change bytes behind a shared reference.
const NEEDS_UNSAFE: &[&str] = &["visibility/what_was_handed_out_stays", "alloc/free_against_read"];

#[test]
fn every_fault_is_noticed() {
    each_fault_is_noticed(NOTICED, Faulty, checks);
}

#[test]
fn every_check_notices_something() {
    each_check_notices_something(NOTICED, NEEDS_UNSAFE, &checks::<Faulty>());
}

/// Scripts do not hang when a step waits for another actor.
#[test]
fn an_engine_that_waits_passes() {
    for group in ["isolation", "retry", "random"] {
        run_group(Faulty(Serial), group);
    }
}

// An engine without rollback passes what is asked of one.
// ---- savepoints and nested top actions ------------------------------------------------------------------------------

struct Wrong(Bug);

impl Subject for Wrong {
    type Engine = tx::Reference;

    fn fresh(&self) -> tx::Reference {
        tx::Reference::with_bug(self.0)
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency::Versions
    }
}

const PARTS: &[Noticed<Bug>] = &[
    (
        Bug::NoWayBack,
        &[
            "savepoints/back_to_what_was_written",
            "savepoints/back_to_what_was_there",
            "savepoints/allocations_go",
            "savepoints/frees_come_back",
            "savepoints/new_objects_are_as_then",
            "savepoints/a_savepoint_serves_again",
            "savepoints/parts_of_objects",
            "savepoints/any_order",
        ],
    ),
    (Bug::AnySavepoint, &["savepoints/of_another_transaction", "savepoints/those_behind_are_gone"]),
    (Bug::StaysDoomed, &["savepoints/errors_are_lifted"]),
    (Bug::SeenGoes, &["savepoints/what_was_seen_stays_seen"]),
    (
        Bug::NoAction,
        &[
            "nested_top/it_stays",
            "nested_top/what_is_written_around_is_out_of_bounds",
            "nested_top/what_fails_has_not_happened",
            "nested_top/its_objects_are_there",
            "nested_top/one_in_another",
            "nested_top/savepoints_inside_and_around",
            "nested_top/a_panic_dooms",
            "nested_top/others_see_it_at_once",
        ],
    ),
    (Bug::Unseen, &["nested_top/the_rest_stays_apart", "nested_top/what_is_read_around_may_be_written"]),
];

/// They ask something of engines that lock.
const OF_LOCKS: &[&str] = &[
    "savepoints/conflicts_are_lifted_a_few_times",
    "savepoints/what_was_used_stays_locked",
    "nested_top/another_transaction_of_the_thread",
];

#[test]
fn each_fault_of_parts_is_noticed() {
    each_fault_is_noticed(PARTS, Wrong, conformance::parts);
    each_check_notices_something(PARTS, OF_LOCKS, &conformance::parts::<Wrong>());
}

conformance::engine!(no_rollback, Faulty(NoRollback));
