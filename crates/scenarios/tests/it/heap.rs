//! The heap, explored: at random, and by the histories that were counter-examples to earlier drafts of its protocol. For each step of the
//! protocol that one of these shows, it is also shown that it fails without that step.

mod eaw;

use crash::{Config, Model};
use heap::{Options, Policy, Step};
use scenarios::heap::{CELLS, Cells, Edit, End, Op, Then};

// ---- at random ------------------------------------------------------------------------------------------------------

fn clean(name: &str, config: Config) {
    let named = scenarios::ALL.iter().find(|n| n.name == name).expect("built in");
    let report = named.run(&config);
    println!("{name}: {report}");
    assert!(report.violation().is_none(), "{name}: {report}");
}

/// Few images a crash point, so that every one is reached; crashes in recovery, too.
fn explore(name: &str) {
    for seed in 1..3 {
        clean(name, Config::seeded(seed).budget(4_000).point_budget(60).nested_budget(24));
    }
    clean(name, Config::seeded(7).budget(3_000).point_budget(250).depth(1));
    clean(name, Config::seeded(8).budget(3_000).point_budget(60).nested_budget(24).model(Model::Lines));
    clean(name, Config::seeded(9).budget(3_000).point_budget(60).nested_budget(24).model(Model::File { sector: 512 }));
}

macro_rules! explored {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            explore($name);
        }
    )*};
}

explored! {
    in_place: "heap-inplace";
    in_place_with_two_threads: "heap-inplace-2";
    intents: "heap-intents";
    intents_with_two_threads: "heap-intents-2";
    partial: "heap-partial";
    partial_with_two_threads: "heap-partial-2";
    undo: "heap-undo";
    undo_with_two_threads: "heap-undo-2";
    editable: "heap-eaw";
    editable_with_two_threads: "heap-eaw-2";
    none: "heap-none";
}

// ---- by name --------------------------------------------------------------------------------------------------------

/// Explores it as it is, and without the step: the first must be clean, the second must not.
fn shows(cells: &Cells, without: fn(Options) -> Options, configs: &[Config]) {
    let mut found = None;
    for config in configs {
        let report = crash::run(cells.clone(), config);
        assert!(report.violation().is_none(), "{report}");
        assert!(report.points > 0);
        if found.is_none() {
            let faulty = crash::run(cells.clone().adjust(without), &config.clone().shrink(false));
            found = Some(faulty).filter(|r| r.violation().is_some());
        }
    }
    let found = found.expect("left out, and nobody noticed");
    let message = &found.violation().expect("found").message;
    println!("{message}");
    assert!(!message.contains("deadlock") && !message.contains("panicked"), "{found}");
}

fn shallow() -> [Config; 1] {
    [Config::seeded(1).budget(12_000).point_budget(2_000).depth(1)]
}

fn deep() -> [Config; 1] {
    [Config::seeded(1).budget(12_000).point_budget(200).nested_budget(60)]
}

fn schedules(many: u64) -> [Config; 1] {
    [Config::seeded(1).budget(400 * many).point_budget(60).depth(1).schedules(many)]
}

fn cells(policy: Policy, ops: Vec<Op>) -> Cells {
    Cells::script(policy, ops.into_iter().map(|op| (0, op)).collect()).batch(1)
}

fn w(cell: usize) -> Edit {
    Edit::whole(cell)
}

/// Bytes that come back by chance.
fn v(cell: usize, value: u64) -> Edit {
    Edit::Words(cell, 0, CELLS[cell], Some(value))
}

const IN_PLACE: Policy = Policy::InPlace;

/// The record of slot 0 is applied, and retired nowhere on media; slot 1 changes the object, then happens to write the old bytes again,
/// and its transaction is torn.
#[test]
fn aba() {
    let ops = vec![
        Op::commit(vec![v(3, 1)]),
        Op::commit(vec![w(1)]),
        Op::commit_in(1, vec![v(3, 2)]),
        Op::commit_in(1, vec![v(3, 1), w(0)]),
    ];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::UnlockLate), &shallow());
}

/// The same behind an abort that took a rewritten object back.
#[test]
fn aba_behind_an_abort() {
    let ops = vec![
        Op::commit(vec![v(3, 1)]),
        Op::abort(vec![w(3)]),
        Op::commit_in(1, vec![v(3, 2)]),
        Op::commit_in(1, vec![v(3, 1), w(0)]),
    ];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::AbortApplies), &shallow());
}

/// A record without a data checksum goes forward whatever main holds: it must be gone before a transaction changes that.
#[test]
fn two_barriers_and_an_unretired_record() {
    let others = vec![Op::commit(vec![w(3)]), Op::commit_in(1, vec![w(3), w(0)])];
    let other = cells(IN_PLACE, others).checksum_max(0);
    shows(&other, |o| o.leave_out(Step::ApplyRetires), &shallow());
    let own = cells(IN_PLACE, vec![Op::commit(vec![w(3)]), Op::commit(vec![w(3), w(0)])]).checksum_max(0);
    shows(&own, |o| o.leave_out(Step::Stabilise), &shallow());
}

#[test]
fn a_mark_before_its_barrier() {
    let one = cells(IN_PLACE, vec![Op::commit(vec![w(3)])]);
    shows(&one, |o| o.leave_out(Step::ZoneBarrier), &shallow());
}

/// Two threads write into one zone: the second must not see the first one's mark before it is on media.
#[test]
fn a_mark_seen_set_before_its_barrier() {
    let ops = vec![(0, Op::commit(vec![w(1)])), (1, Op::commit(vec![w(2)]))];
    let two = Cells::script(IN_PLACE, ops);
    shows(&two, |o| o.leave_out(Step::ZoneSeenLate), &schedules(120));
}

/// A transaction is in a zone; another one makes cleaning due.
#[test]
fn a_mark_cleared_under_a_writer() {
    let ops = vec![Op::Around(vec![w(1)], vec![vec![w(0)]], vec![], End::Commit)];
    shows(&cells(IN_PLACE, ops).dirty_zones(1), |o| o.leave_out(Step::ZoneActive), &shallow());
}

/// One thread takes a transaction back, another one cleans the zone.
#[test]
fn an_abort_in_cache_when_its_zone_is_cleaned() {
    let ops = vec![
        (0, Op::commit(vec![w(0)])),
        (1, Op::abort(vec![w(1)])),
        (0, Op::commit(vec![w(0)])),
        (0, Op::commit(vec![w(0)])),
    ];
    let two = Cells::script(IN_PLACE, ops).dirty_zones(1).batch(1);
    shows(&two, |o| o.leave_out(Step::AbortBarrier), &schedules(60));
}

/// A block that was used before is used again, and its owner writes a part of it only.
#[test]
fn the_unwritten_rest_of_a_new_block() {
    let ops = vec![
        Op::commit(vec![Edit::Node(0, 116)]),
        Op::commit(vec![Edit::Unlink(0)]),
        Op::Apply,
        Op::commit(vec![Edit::Bare(0, 116)]),
    ];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::WholeBlock), &shallow());
}

/// A freed block is handed out again, by another slot, while the record that freed it can still come up.
#[test]
fn a_block_handed_out_before_its_free_is_retired() {
    // The block's new owner goes on until its own record is retired.
    let others = vec![vec![Edit::Node(3, 116)], vec![w(2)], vec![w(2)], vec![w(2)], vec![w(2)]];
    let own = vec![vec![Edit::Node(0, 116)], vec![Edit::Unlink(0)], vec![w(1)]].into_iter().map(Op::commit);
    let ops = own.chain(others.into_iter().map(|edits| Op::commit_in(1, edits))).collect();
    shows(&cells(IN_PLACE, ops).dirty_zones(16), |o| o.leave_out(Step::ReleaseLate), &shallow());
}

/// The free list is rebuilt from a bitmap: blocks of unretired records are taken.
#[test]
fn a_block_reused_through_a_rebuilt_free_list() {
    let ops = vec![Op::commit(vec![Edit::Node(0, 116)]), Op::Restart(None), Op::commit(vec![Edit::Node(3, 116)])];
    for policy in [Policy::InPlace, Policy::Undo] {
        shows(&cells(policy, ops.clone()), |o| o.leave_out(Step::RecoverIntents), &shallow());
    }
}

#[test]
fn a_policy_switch_with_a_stale_backup() {
    let ops = vec![
        Op::Restart(Some(Policy::Undo)),
        Op::commit(vec![w(1)]),
        Op::Restart(Some(IN_PLACE)),
        Op::commit(vec![w(2), w(0)]),
    ];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::Rebuild), &shallow());
}

/// A torn record, a whole one written behind it after recovery, and further crashes: the probes of the check write over the torn one.
#[test]
fn a_whole_record_behind_a_torn_one() {
    for policy in [Policy::InPlace, Policy::Undo, Policy::Eaw] {
        let ops = vec![Op::commit(vec![w(1), w(4)]), Op::Restart(None), Op::commit(vec![w(1), w(3)])];
        let report = crash::run(cells(policy, ops), &deep()[0]);
        assert!(report.violation().is_none(), "{report}");
    }
}

// ---- the other steps ------------------------------------------------------------------------------------------------

#[test]
fn a_pending_object_is_stable_before_it_is_written_again() {
    let ops = vec![Op::commit(vec![w(3)]), Op::commit(vec![w(3), w(0)])];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::Stabilise), &shallow());
}

#[test]
fn the_backup_follows_behind_the_barrier() {
    let ops = vec![Op::commit(vec![w(1), w(3)])];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::CopyLate), &shallow());
}

#[test]
fn intents_are_carried_out_behind_the_barrier() {
    let ops = vec![Op::commit(vec![Edit::Node(1, 116)])];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::ApplyLate), &shallow());
}

#[test]
fn a_record_is_retired_behind_its_copies() {
    // In one zone: the mark of another one has a barrier of its own.
    let ops = vec![Op::commit(vec![w(1)]), Op::commit(vec![w(2)]), Op::commit(vec![w(2)])];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::RetireLate), &shallow());
}

#[test]
fn data_are_checksummed_or_have_their_own_barrier() {
    let unchecksummed = cells(IN_PLACE, vec![Op::commit(vec![w(1), w(3)])]).checksum_max(0);
    shows(&unchecksummed, |o| o.leave_out(Step::DataChecksum), &shallow());
    let checksummed = cells(IN_PLACE, vec![Op::commit(vec![w(1), w(3)])]);
    shows(&checksummed, |o| o.leave_out(Step::VerifyChecksum), &shallow());
}

/// A long record lies among the objects, where restoring a zone would change it.
#[test]
fn records_are_retired_before_main_changes() {
    let ops = vec![Op::commit(vec![Edit::Node(1, 1000)]), Op::commit(vec![Edit::Comb(5)])];
    let spilled = cells(IN_PLACE, ops).checksum_max(4096);
    shows(&spilled, |o| o.leave_out(Step::RetireFirst), &deep());
}

/// A process is killed: what its records vouch for is in a cache alone. The backup must not change before that is on media.
#[test]
fn main_is_on_media_before_recovery_changes_the_backup() {
    let ops = vec![Op::commit(vec![w(3)])];
    // What it had flushed is on media whatever comes, and main is flushed first: recovery does not rely on that.
    let config = deep().map(|config| config.flushed_outlives(false));
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::MainFirst), &config);
}

/// A process is killed while it takes a transaction back: main is right in a cache alone.
#[test]
fn recovery_writes_out_what_it_finds_equal() {
    let ops = vec![Op::commit(vec![w(0)]), Op::abort(vec![w(1)]), Op::commit(vec![w(3)])];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::FlushEqual), &deep());
}

/// The slot writes a short object again while the earlier record is not applied: only that record knows what the object held.
#[test]
fn what_a_record_carries_reaches_the_backup_from_there() {
    let again = vec![Op::commit(vec![w(1)]), Op::commit(vec![w(1), w(0)])];
    shows(&cells(IN_PLACE, again), |o| o.leave_out(Step::RecoverCarried), &shallow());
    // Another slot wants what the same record wrote, and applies it.
    let applied = vec![Op::commit(vec![w(1), w(0)]), Op::Around(vec![w(1)], vec![vec![w(0)]], vec![], End::Commit)];
    shows(&cells(IN_PLACE, applied), |o| o.leave_out(Step::CarriedImage), &shallow());
}

/// Cleaned, a zone counts as equal to its backup.
#[test]
fn what_a_record_carries_reaches_main_before_its_zone_is_clean() {
    let ops = vec![Op::commit(vec![w(1)]), Op::commit(vec![w(0)]), Op::commit(vec![w(0)])];
    shows(&cells(IN_PLACE, ops).dirty_zones(1), |o| o.leave_out(Step::CarriedMain), &shallow());
}

/// The slot takes back a transaction that has written over what an earlier record carries.
#[test]
fn an_abort_goes_back_to_what_the_last_record_carries() {
    let ops = vec![Op::commit(vec![w(1)]), Op::abort(vec![w(1)]), Op::commit(vec![w(0)])];
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::AbortCopies), &shallow());
}

/// The drain of a commit fails; another thread wants what the same slot committed before, and applies it.
#[test]
fn what_a_failed_drain_left_in_doubt_is_not_applied() {
    let ops = vec![
        (0, Op::commit(vec![w(0)])),
        (0, Op::commit(vec![w(3)])),
        (1, Op::commit(vec![w(1)])),
        (1, Op::commit(vec![w(0)])),
    ];
    let two = Cells::script(IN_PLACE, ops);
    let config =
        Config::seeded(1).budget(1_500).point_budget(20).depth(1).schedules(12).model(Model::File { sector: 512 });
    let explore = |cells: &Cells| crash::run_failing_drains(cells.clone(), &config.clone().shrink(false), 20);
    for report in explore(&two) {
        assert!(report.violation().is_none(), "{report}");
    }
    let faulty = explore(&two.clone().adjust(|o| o.leave_out(Step::DoubtStays)));
    assert!(faulty.iter().any(|r| r.violation().is_some()), "left out, and nobody noticed");
}

/// The second record is applied, and does not verify once its long object is written again: the first one's bytes are older than the backup's.
#[test]
fn carried_bytes_before_a_record_that_does_not_verify() {
    let ops = vec![Op::commit(vec![w(1)]), Op::commit(vec![w(1), w(4)]), Op::commit(vec![w(4)])];
    let configs = [shallow(), deep()].concat();
    shows(&cells(IN_PLACE, ops), |o| o.leave_out(Step::CarriedFirst), &configs);
}

// ---- bytes that are overwritten unseen ------------------------------------------------------------------------------

fn put_then(then: Then) -> Vec<Op> {
    vec![Op::commit(vec![Edit::PutThen(5, 40, 4, then), w(0)])]
}

#[test]
fn what_is_staged_is_in_main_before_it_is_read() {
    for policy in [IN_PLACE, PARTIAL] {
        shows(&cells(policy, put_then(Then::Read)), |o| o.leave_out(Step::StagedSeen), &shallow());
    }
}

#[test]
fn what_is_staged_is_in_main_before_it_is_changed() {
    for policy in [IN_PLACE, PARTIAL] {
        shows(&cells(policy, put_then(Then::Change)), |o| o.leave_out(Step::StagedFirst), &shallow());
    }
}

#[test]
fn what_is_staged_has_the_last_word_over_what_was_changed_before() {
    for policy in [IN_PLACE, PARTIAL] {
        let report = crash::run(cells(policy, put_then(Then::Before)), &shallow()[0]);
        assert!(report.violation().is_none(), "{report}");
    }
}

/// The record checksums them as one range: the pointer in front of the words, changed before, and the words.
#[test]
fn what_is_staged_is_in_main_before_it_is_joined_with_other_writes() {
    let ops = vec![Op::commit(vec![Edit::Node(5, 116), Edit::Put(5)])];
    for policy in [IN_PLACE, PARTIAL] {
        let checksummed = cells(policy, ops.clone()).checksum_max(4096);
        shows(&checksummed, |o| o.leave_out(Step::StagedJoined), &shallow());
    }
}

#[test]
fn what_is_staged_is_stored_in_front_of_the_barrier() {
    let ops = vec![Op::commit(vec![Edit::Put(5), w(0)])];
    for policy in [IN_PLACE, PARTIAL] {
        shows(&cells(policy, ops.clone()), |o| o.leave_out(Step::StagedInTime), &shallow());
    }
    // With so much beside that there are two barriers: it is in front of the first one.
    let ops = vec![Op::commit(vec![w(4), Edit::Put(5)]), Op::commit(vec![w(4), w(0)])];
    let report = crash::run(cells(IN_PLACE, ops).checksum_max(0), &shallow()[0]);
    assert!(report.violation().is_none(), "{report}");
}

/// An abort copies what was committed before; until it has applied that, another thread does, and copies it again.
#[test]
fn a_staged_image_is_copied_once() {
    let put = || Op::commit(vec![Edit::Put(5), w(1)]);
    let ops = vec![(0, put()), (0, Op::abort(vec![w(1)])), (1, Op::commit(vec![Edit::Words(5, 0, 60, None), w(0)]))];
    let two = Cells::script(IN_PLACE, ops).batch(8).checksum_max(4096);
    shows(&two, |o| o.leave_out(Step::StagedOnce), &schedules(100));
}

/// What a transaction has read is durable when it is: so no transaction reads what another one has written before that is.
#[test]
fn what_was_written_stays_locked_to_the_barrier() {
    let ops = vec![(0, Op::commit(vec![Edit::Put(5)])), (1, Op::commit(vec![Edit::Look(5), w(0)]))];
    let two = Cells::script(IN_PLACE, ops).batch(1);
    shows(&two, |o| o.leave_out(Step::WritersStay), &schedules(40));
}

/// What is only read is given up in front of the barrier. Then another thread writes it, and may be durable first.
#[test]
fn what_was_read_is_given_up_early() {
    for policy in [IN_PLACE, PARTIAL, Policy::Undo, Policy::Eaw] {
        let ops = vec![
            (0, Op::commit(vec![Edit::Look(3), w(0)])),
            (1, Op::commit(vec![w(3)])),
            (0, Op::commit(vec![Edit::Look(0), w(3)])),
            (1, Op::commit(vec![Edit::Look(3), w(0)])),
        ];
        let report = crash::run(Cells::script(policy, ops).batch(1), &schedules(15)[0]);
        assert!(report.violation().is_none(), "{report}");
    }
}

// ---- intents of objects ---------------------------------------------------------------------------------------------

#[test]
fn an_intent_is_on_media_before_its_object_is_written() {
    let one = cells(IN_PLACE, vec![Op::commit(vec![w(3)])]).intents();
    shows(&one, |o| o.leave_out(Step::IntentBarrier), &shallow());
}

#[test]
fn what_is_open_is_marked_before_its_intent_is_retired() {
    let ops = vec![Op::commit(vec![w(3)])];
    shows(&cells(IN_PLACE, ops).intents(), |o| o.leave_out(Step::OpenMarked), &shallow());
}

// ---- a partial backup -----------------------------------------------------------------------------------------------

const PARTIAL: Policy = Policy::InPlacePartial;

#[test]
fn a_copy_is_on_media_before_its_object_is_written() {
    let one = cells(PARTIAL, vec![Op::commit(vec![w(3)])]);
    shows(&one, |o| o.leave_out(Step::CopyBarrier), &shallow());
}

#[test]
fn a_torn_copy_does_not_count() {
    let one = cells(PARTIAL, vec![Op::commit(vec![w(3)])]);
    shows(&one, |o| o.leave_out(Step::CopyChecksum), &shallow());
}

/// One thread makes the copy and writes nothing; another one writes, applies to the copy, and writes again.
#[test]
fn a_copy_is_sure_before_another_applies_into_it() {
    let far = || Edit::Words(5, 40, 6, None); // not in the line of the copy's header
    let ops = vec![(0, Op::Declare(vec![far()])), (1, Op::commit(vec![far()])), (1, Op::commit(vec![far(), w(0)]))];
    let two = Cells::script(PARTIAL, ops).batch(1);
    shows(&two, |o| o.leave_out(Step::SureLate), &schedules(60));
}

/// What is applied later would go to a place that is another object's by then.
#[test]
fn the_copy_of_a_pending_object_stays() {
    let ops = vec![Op::commit_in(1, vec![w(3)]), Op::commit(vec![w(1)]), Op::Apply, Op::commit(vec![w(1), w(0)])];
    shows(&cells(PARTIAL, ops).batch(8).copies(112), |o| o.leave_out(Step::PendingStays), &shallow());
}

#[test]
fn the_space_of_a_copy_is_used_again_behind_a_barrier() {
    let ops = vec![Op::commit(vec![w(3)]), Op::Apply, Op::commit(vec![w(1)]), Op::Apply];
    shows(&cells(PARTIAL, ops).copies(112), |o| o.leave_out(Step::GivenUpFirst), &shallow());
}

/// The block is a new object's by then, which has no copy.
#[test]
fn the_copy_of_a_freed_object_is_given_up() {
    let ops = vec![
        Op::commit(vec![Edit::Node(0, 116)]),
        Op::Apply,
        Op::commit(vec![Edit::Refill(0)]),
        Op::commit(vec![Edit::Unlink(0)]),
        Op::Apply,
        Op::commit(vec![Edit::Node(3, 116)]),
        Op::Apply,
    ];
    shows(&cells(PARTIAL, ops), |o| o.leave_out(Step::FreedGivenUp), &shallow());
}

#[test]
fn what_a_record_carries_of_a_new_object_goes_to_main() {
    let ops = vec![Op::commit(vec![Edit::Node(0, 16)])];
    shows(&cells(PARTIAL, ops), |o| o.leave_out(Step::CarriedNew), &shallow());
}

#[test]
fn copies_of_an_earlier_opening_are_void() {
    let ops = vec![Op::commit(vec![w(3)]), Op::Close(None), Op::commit(vec![w(1), w(0)]), Op::commit(vec![w(3)])];
    shows(&cells(PARTIAL, ops), |o| o.leave_out(Step::Epoch), &deep());
}
