//! The write-ahead log and its pages: every rule, with what notices that it is left out.

use crash::Config;
use eaw::aries::{Aries, Options, Step};
use scenarios::{RecordOp as Op, RecordWrite as Write, Recorded};

use super::missed;

fn update() -> Vec<Write> {
    vec![Write::Update(0, 10), Write::Update(1, 70)]
}

/// Pages are written while their changes are not committed, and those are given up, or not.
fn stealing() -> Recorded<Aries> {
    let nested = |commits| Op::Nested(update(), vec![Write::Update(2, 30)], commits);
    let ops = [nested(false), Op::Commit(update()), Op::Clean, Op::Rollback(update(), update(), vec![]), nested(true)];
    Recorded::script(ops.map(|op| (0, op)).to_vec())
}

/// Others are in the middle of it when there is a checkpoint.
fn checkpoints() -> Recorded<Aries> {
    let long = || Op::Commit((0..4).flat_map(|key| [Write::Update(key, 40), Write::Replace(key, 90)]).collect());
    let ops = (0..3).flat_map(|_| [(0, long()), (1, Op::Checkpoint), (1, Op::Clean), (1, Op::Checkpoint)]);
    Recorded::script(ops.collect())
}

/// What one has rolled back, and not committed yet, is another one's room.
fn reusing() -> Recorded<Aries> {
    let replace = |key| vec![Write::Replace(key, 40)];
    let ops = (0..4).flat_map(|_| [(0, Op::Rollback(vec![], replace(0), update())), (1, Op::Commit(replace(3)))]);
    Recorded::script(ops.collect())
}

/// Pages go to the medium while others make checkpoints, and want frames.
fn cleaning() -> Recorded<Aries> {
    let long = |first: u64| Op::Commit((0..4).map(|key| Write::Replace((first + key) % 4, 90)).collect());
    let ops = (0..3).flat_map(|n| [(0, long(n)), (1, Op::Clean), (2, Op::Checkpoint), (0, long(n + 2))]);
    Recorded::script(ops.collect())
}

fn workloads() -> Vec<missed::Workload<Recorded<Aries>>> {
    let config = |seed| Config::seeded(seed).budget(3_000).point_budget(100);
    // A thread stands still in the middle while others come to their ends.
    let cleaned = Config::seeded(4).budget(40_000).point_budget(12).nested_budget(2).schedules(800).stretch(40);
    let mut all = vec![
        ("stealing", stealing(), config(1)),
        ("checkpoints", checkpoints(), config(2).schedules(24)),
        ("reusing", reusing(), config(3).schedules(48)),
        ("cleaning", cleaning(), cleaned),
    ];
    let wide = Config::seeded(6).budget(30_000).point_budget(60).nested_budget(16);
    all.push(("two, wide", Recorded::new("aries-2", 2), wide));
    all.extend((6..9).map(|seed| ("alone", Recorded::new("aries", 1), config(seed))));
    all.extend((14..17).map(|seed| ("two", Recorded::new("aries-2", 2), config(seed).schedules(8))));
    all
}

missed::steps! {
    CommitForce, LogFirst, Double, FlushBatch, Compensations, NestedOver, Undo, KeepActive, KeepDirty, CleanAlone, PinWritten, CheckpointFirst,
}

pub fn each_step_is_missed_when_it_is_left_out() {
    missed::each_step(&workloads(), STEPS, Recorded::<Aries>::adjust, &["deadlock", "panicked"]);
}

const REDUNDANT: &[missed::Redundant] = &[];
const UNREACHED: &[missed::Redundant] = &[];

pub fn every_barrier_is_missed_when_it_is_gone() {
    let sources =
        missed::Sources { of: "eaw/src/aries", whole: "eaw/src/aries", redundant: REDUNDANT, unreached: UNREACHED };
    missed::each_barrier(&workloads(), &sources);
}

/// A page that is on its way to the medium does not lose its frame to a thread that asked a moment before. Many short schedules: both have to stand still at one place each.
pub fn who_takes_a_frame_asks_again() {
    let long = |first: u64| Op::Commit((0..4).map(|key| Write::Update((first + key) % 4, 90)).collect());
    let ops = (0..16).flat_map(|n| [(0, long(n)), (1, Op::Clean)]);
    let workload = Recorded::<Aries>::script(ops.collect());
    let config = Config::seeded(4).budget(3000).point_budget(1).nested_budget(1).depth(1).schedules(3000).stretch(4);
    let report = crash::run(workload.clone(), &config);
    assert!(report.violation().is_none(), "{report}");
    let report = crash::run(workload.adjust(|options| options.without(Step::AskAgain)), &config.shrink(false));
    assert!(report.violation().is_some(), "{report}");
}
