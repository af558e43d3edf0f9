//! Policy `eaw`: its rules, each clean as it is, and violated without one step.

use super::*;

const EAW: Policy = Policy::Eaw;

/// A new object that is under the record's checksum: longer than what a record carries.
fn large(cell: usize) -> Edit {
    Edit::Node(cell, 200)
}

/// Slot 0 has stored its record's bytes in main, and is applied, but its record is retired nowhere on media; slot 1 writes the same object, and is retired. The first record
/// comes up again.
#[test]
fn a_record_is_gone_before_another_slot_writes_its_objects() {
    let of_one = [v(3, 2), v(3, 3), w(2), w(2), w(2)].map(|edit| Op::commit_in(1, vec![edit]));
    let ops: Vec<Op> = [Op::commit(vec![v(3, 1)]), Op::commit(vec![w(1)])].into_iter().chain(of_one).collect();
    shows(&cells(EAW, ops.clone()), |o| o.leave_out(Step::UnlockLate), &shallow());
    shows(&cells(EAW, ops), |o| o.leave_out(Step::ApplyRetires), &shallow());
}

/// The same behind an abort of a transaction that had the object back: it is pending again.
#[test]
fn an_abort_gives_back_what_it_had_taken() {
    let ops = vec![
        Op::commit(vec![v(3, 1)]),
        Op::abort(vec![w(3)]),
        Op::commit_in(1, vec![v(3, 2)]),
        Op::commit_in(1, vec![w(0)]),
        Op::commit_in(1, vec![w(0)]),
        Op::commit_in(1, vec![w(0)]),
    ];
    shows(&cells(EAW, ops), |o| o.leave_out(Step::AbortApplies), &shallow());
}

#[test]
fn main_changes_behind_the_barrier() {
    let ops = vec![Op::commit(vec![w(1), w(3)])];
    shows(&cells(EAW, ops), |o| o.leave_out(Step::RedoLate), &shallow());
}

#[test]
fn allocation_bits_change_behind_the_barrier() {
    let ops = vec![Op::commit(vec![Edit::Node(1, 116)])];
    shows(&cells(EAW, ops), |o| o.leave_out(Step::ApplyLate), &shallow());
}

#[test]
fn recovery_carries_out_allocations() {
    let ops = vec![Op::commit(vec![Edit::Node(0, 116)]), Op::Restart(None), Op::commit(vec![Edit::Node(3, 116)])];
    shows(&cells(EAW, ops), |o| o.leave_out(Step::RecoverIntents), &shallow());
}

/// What a record says of main is flushed before it is retired: a record's own drain comes one commit too early.
#[test]
fn a_record_is_retired_behind_the_lines_that_it_changed() {
    let ops = [vec![w(1)], vec![w(2)], vec![w(2)], vec![w(2)]].map(Op::commit).to_vec();
    shows(&cells(EAW, ops), |o| o.leave_out(Step::RetireLate), &shallow());
}

#[test]
fn new_objects_are_checksummed_or_have_a_barrier_of_their_own() {
    let ops = vec![Op::commit(vec![large(1), w(3)])];
    shows(&cells(EAW, ops.clone()), |o| o.leave_out(Step::VerifyChecksum), &shallow());
    shows(&cells(EAW, ops).checksum_max(0), |o| o.leave_out(Step::DataChecksum), &shallow());
}

/// The second record writes an object that is under the checksum of the first one: that fails from then on.
#[test]
fn only_the_last_record_of_a_slot_is_held_against_its_checksum() {
    let ops = [vec![w(3)], vec![large(0), w(3)], vec![Edit::Refill(0)]].map(Op::commit).to_vec();
    shows(&cells(EAW, ops).batch(8), |o| o.leave_out(Step::OnlyLast), &shallow());
}

/// A process is killed: what its record vouches for is in a cache alone. Main must not change before that is on media.
#[test]
fn what_a_record_vouches_for_is_on_media_before_recovery_changes_main() {
    let ops = vec![Op::commit(vec![large(0), w(3)])];
    let config = deep().map(|config| config.flushed_outlives(false));
    shows(&cells(EAW, ops), |o| o.leave_out(Step::MainFirst), &config);
}

/// The freed block is another slot's new object, while the record that freed it can still come up.
#[test]
fn a_block_is_handed_out_behind_the_retirement() {
    let others = vec![vec![Edit::Node(3, 116)], vec![w(2)], vec![w(2)], vec![w(2)], vec![w(2)]];
    let own = vec![vec![Edit::Node(0, 116)], vec![Edit::Unlink(0)], vec![w(1)]].into_iter().map(Op::commit);
    let ops = own.chain(others.into_iter().map(|edits| Op::commit_in(1, edits))).collect();
    shows(&cells(EAW, ops), |o| o.leave_out(Step::ReleaseLate), &shallow());
}

/// A transaction sees what it wrote, in whole and in parts, and the last word counts.
#[test]
fn entries_are_edited_and_read() {
    for then in [Then::Read, Then::Change, Then::Before] {
        for edits in [vec![Edit::PutThen(5, 40, 4, then), w(0)], vec![Edit::Comb(5), Edit::PutThen(5, 3, 2, then)]] {
            let ops = vec![Op::commit(edits.clone()), Op::abort(edits), Op::commit(vec![w(5)])];
            let report = crash::run(cells(EAW, ops), &shallow()[0]);
            assert!(report.violation().is_none(), "{report}");
        }
    }
}

/// Larger than the ring, before and behind one that is not.
#[test]
fn a_record_that_has_no_room_in_the_ring() {
    let all = || vec![Edit::Comb(5), w(4), w(3), large(0), large(1)];
    let ops = vec![Op::commit(all()), Op::commit(vec![w(3)]), Op::commit(all()), Op::abort(all())];
    // With a barrier of their own for the new objects, and with a checksum over them in the record that names the block.
    for checksum_max in [256, 4096] {
        for config in [shallow(), deep()].concat() {
            let report = crash::run(cells(EAW, ops.clone()).checksum_max(checksum_max), &config);
            assert!(report.violation().is_none(), "{checksum_max}: {report}");
        }
    }
}
