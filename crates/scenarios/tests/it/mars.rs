//! The record store: every rule, with what notices that it is left out.

use crash::Config;
use eaw::mars::{Mars as Options, Step};
use scenarios::{RecordOp as Op, RecordWrite as Write, Recorded};

use super::missed;

/// All records come to slots of another size, until blocks are left whose slots are all free.
fn moving() -> Recorded<Options> {
    let all = |len| (0..4).map(|key| Write::Update(key, len)).collect();
    Recorded::<Options>::script([70, 100, 0, 100].map(|len| (0, Op::Commit(all(len)))).to_vec())
}

/// What is left is given up, or not committed yet, while others look for room of that size.
fn leaving() -> Recorded<Options> {
    let replace = |key| vec![Write::Replace(key, 40), Write::Replace(key, 40)];
    let ops = (0..3).flat_map(|_| [(0, Op::Abort(replace(0))), (1, Op::Commit(replace(1)))]);
    Recorded::<Options>::script(ops.collect())
}

fn racing() -> Recorded<Options> {
    let write = || vec![Write::Update(0, 10), Write::Update(1, 10)];
    Recorded::<Options>::script((0..3).flat_map(|_| [(0, Op::Commit(write())), (1, Op::Commit(write()))]).collect())
}

fn workloads() -> Vec<missed::Workload<Recorded<Options>>> {
    let config = |seed| Config::seeded(seed).budget(3_000).point_budget(100);
    let mut all = vec![
        ("moving", moving(), config(1)),
        ("leaving", leaving(), config(2).schedules(24)),
        ("racing", racing(), config(3).schedules(24)),
    ];
    all.extend((6..9).map(|seed| ("alone", Recorded::<Options>::new("mars", 1), config(seed))));
    all.extend((14..17).map(|seed| ("two", Recorded::<Options>::new("mars-2", 2), config(seed).schedules(8))));
    all
}

missed::steps! { BlockFirst, ClearSlots, ClearLeft, LeftLater, LocksToEnd, }

pub fn each_step_is_missed_when_it_is_left_out() {
    missed::each_step(&workloads(), STEPS, Recorded::<Options>::adjust, &["deadlock", "panicked"]);
}
