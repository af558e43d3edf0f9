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

fn workloads() -> Vec<missed::Workload<Recorded<Aries>>> {
    let config = |seed| Config::seeded(seed).budget(3_000).point_budget(100);
    let mut all = vec![
        ("stealing", stealing(), config(1)),
        ("checkpoints", checkpoints(), config(2).schedules(24)),
        ("reusing", reusing(), config(3).schedules(48)),
    ];
    let wide = Config::seeded(6).budget(30_000).point_budget(60).nested_budget(16);
    all.push(("two, wide", Recorded::new("aries-2", 2), wide));
    all.extend((6..9).map(|seed| ("alone", Recorded::new("aries", 1), config(seed))));
    all.extend((14..17).map(|seed| ("two", Recorded::new("aries-2", 2), config(seed).schedules(8))));
    all
}

missed::steps! {
    CommitForce, LogFirst, Double, SettleBatch, Compensations, NestedOver, Undo, KeepActive, KeepDirty, CheckpointFirst,
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
