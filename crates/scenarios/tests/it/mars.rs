//! The record store: every rule, with what notices that it is left out.

use crash::Config;
use eaw::mars::Mars;
use scenarios::{InArray as Options, RecordOp as Op, RecordWrite as Write, Recorded};

use super::missed;

/// All records come to slots of another size, until blocks are left whose slots are all free.
fn moving() -> Recorded<Mars> {
    let all = |len| (0..4).map(|key| Write::Update(key, len)).collect();
    Recorded::<Mars>::script([70, 100, 0, 100].map(|len| (0, Op::Commit(all(len)))).to_vec())
}

/// What is left is given up, or not committed yet, while others look for room of that size.
fn leaving() -> Recorded<Mars> {
    let replace = |key| vec![Write::Replace(key, 40), Write::Replace(key, 40)];
    let ops = (0..3).flat_map(|_| [(0, Op::Abort(replace(0))), (1, Op::Commit(replace(1)))]);
    Recorded::<Mars>::script(ops.collect())
}

fn racing() -> Recorded<Mars> {
    let write = || vec![Write::Update(0, 10), Write::Update(1, 10)];
    Recorded::<Mars>::script((0..3).flat_map(|_| [(0, Op::Commit(write())), (1, Op::Commit(write()))]).collect())
}

/// Records go to slots past the log, or through the log to slots of the same size.
fn placing() -> Recorded<Mars> {
    let ops =
        [50, 70, 30, 60, 50, 30, 70].map(|len| (0, Op::Commit(vec![Write::Update(0, len), Write::Update(1, len)])));
    Recorded::<Mars>::script(ops.to_vec()).adjust(placed)
}

fn placed(options: Options) -> Options {
    options.store(|store| store.place_min(60))
}

fn workloads() -> Vec<missed::Workload<Recorded<Mars>>> {
    let config = |seed| Config::seeded(seed).budget(3_000).point_budget(100);
    let mut all = vec![
        ("moving", moving(), config(1)),
        ("leaving", leaving(), config(2).schedules(24)),
        ("racing", racing(), config(3).schedules(24)),
        ("placing", placing(), config(4)),
    ];
    all.extend((6..9).map(|seed| ("alone", Recorded::<Mars>::new("mars", 1), config(seed))));
    all.extend((14..17).map(|seed| ("two", Recorded::<Mars>::new("mars-2", 2), config(seed).schedules(8))));
    all
}

/// A rule of the store, or one of the array that placing needs.
type Rule = missed::Without<&'static str, Options>;

macro_rules! rules {
    ($($of:ident: $($step:ident),*;)*) => {
        const RULES: &[Rule] = &[$($(
            (stringify!($step), |options| options.$of(|open| open.without(steps::$of::Step::$step))),
        )*)*];
    };
}

/// Steps by what has them.
mod steps {
    pub use eaw::{array, mars as store};
}

rules! {
    store: Elsewhere, BlockFirst, ClearSlots, ClearLeft, LeftLater, LocksToEnd;
    array: PlacedFirst, LogFirst;
}

pub fn each_step_is_missed_when_it_is_left_out() {
    missed::each_step(&workloads(), RULES, Recorded::<Mars>::adjust, &["deadlock", "panicked"]);
}
