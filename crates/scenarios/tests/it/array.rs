//! The array: every rule, with what notices that it is left out.

use crash::{Config, Model};
use eaw::array::{Options, Step};
use scenarios::{ArrayOp as Op, Arrayed};

use super::missed;

/// Transactions over both members, whose parts meet at the same bytes.
fn crossing() -> Arrayed {
    let all = || vec![(10, 40), (70, 40)];
    Arrayed::script(vec![
        (0, Op::Write(all())),
        (0, Op::Write(vec![(20, 20), (80, 20)])),
        (0, Op::Write(all())),
        (0, Op::Edit(all())),
    ])
}

/// Both threads write the same places, of which each is on one member.
fn racing() -> Arrayed {
    let ops = (0..3).flat_map(|_| [(0, Op::Write(vec![(0, 30), (64, 30)])), (1, Op::Write(vec![(0, 30), (64, 30)]))]);
    Arrayed::script(ops.collect())
}

/// Each reads what it has written, while the other one's is on its way.
fn looking() -> Arrayed {
    let ops = (0..6).flat_map(|_| [(0, Op::Own(vec![])), (1, Op::Own(vec![]))]);
    Arrayed::script(ops.collect())
}

/// One thread writes what is on the first member only; one writes a word on each, and is durable first; one reads both words.
fn overtaking() -> Arrayed {
    let half = || (0, Op::Write(vec![(0, 8)]));
    Arrayed::script((0..3).flat_map(|_| [half(), (1, Op::Pair), (2, Op::Look), (2, Op::Look)]).collect())
}

/// A process ends between the checksums of two members; what follows has other numbers.
fn halved() -> Arrayed {
    let both = || vec![(0, 8), (64, 8)];
    Arrayed::script(vec![
        (0, Op::Write(both())),
        (0, Op::InPart(both())),
        (0, Op::Write(both())),
        (0, Op::InPart(both())),
        (0, Op::Write(vec![(8, 8)])),
    ])
}

/// One thread writes what is on one member only, again and again, and the other member has an older part.
fn lopsided() -> Arrayed {
    let mut ops = vec![(0, Op::Write(vec![(0, 8), (64, 8)]))];
    ops.extend((0..7).map(|_| (0, Op::Write(vec![(0, 8)]))));
    ops.push((0, Op::Write(vec![(64, 8)])));
    Arrayed::script(ops)
}

/// What is committed is read before it is in the files, and the mark moves.
fn staying() -> Vec<(usize, Op)> {
    (0..8).flat_map(|_| [(0, Op::Own(vec![(0, 8), (64, 8)])), (0, Op::Write(vec![(4, 8)]))]).collect()
}

fn workloads() -> Vec<missed::Workload<Arrayed>> {
    let config = |seed| Config::seeded(seed).budget(5_000).point_budget(300);
    let mut all = vec![
        ("crossing", crossing(), config(1).budget(20_000).point_budget(600)),
        ("lopsided", lopsided(), config(2)),
        ("racing", racing(), config(3).schedules(24)),
        ("looking", looking(), Config::seeded(3).budget(3_000).point_budget(2).nested_budget(1).schedules(1_000)),
        ("overtaking", overtaking(), Config::seeded(4).budget(3_000).point_budget(2).nested_budget(1).schedules(1_000)),
        (
            "torn",
            Arrayed::script(vec![(0, Op::Write(vec![(0, 8)]))]),
            config(1).budget(20_000).point_budget(100).nested_budget(100),
        ),
        ("halved", halved(), config(3).budget(20_000).point_budget(600)),
        ("large", crossing().adjust(|options| options.checksum_max(0)), config(4)),
        ("alone, lines", Arrayed::new("array", 1), config(5).model(Model::Lines)),
    ];
    all.extend((6..9).map(|seed| ("alone", Arrayed::new("array", 1), config(seed))));
    let whole = |options: Options| options.whole_writes(true);
    all.extend((31..34).map(|seed| {
        let config = config(seed).model(Model::File { sector: 512 });
        ("whole", Arrayed::new("array-whole", 1).adjust(whole), config)
    }));
    let spilling = |options: Options| options.draft_max(48);
    all.extend((6..9).map(|seed| ("alone, in the log", Arrayed::new("array", 1).adjust(spilling), config(seed))));
    all.extend((14..17).map(|seed| ("two", Arrayed::new("array-2", 2), config(seed).schedules(8))));
    let late = Arrayed::as_on_files;
    all.push(("late", Arrayed::script(staying()).adjust(late), config(41)));
    all.push(("late, crossing", crossing().adjust(late), config(42).model(Model::Lines)));
    all.push(("late, racing", racing().adjust(late), config(43).schedules(24)));
    all.push((
        "late, overtaking",
        overtaking().adjust(late),
        Config::seeded(4).budget(3_000).point_budget(2).nested_budget(1).schedules(1_000),
    ));
    all.extend((44..46).map(|seed| ("alone, late", Arrayed::new("array-late", 1).adjust(late), config(seed))));
    all.extend(
        (46..48).map(|seed| ("two, late", Arrayed::new("array-late-2", 2).adjust(late), config(seed).schedules(8))),
    );
    all.extend((22..23).map(|seed| {
        ("alone, large", Arrayed::new("array", 1).adjust(|options| options.checksum_max(0)), config(seed))
    }));
    all
}

// Those that take longest first. `MarkTwice` is for damaged media: in the tests of the crate.
missed::steps! {
    LogFirst, Whole, ReadLate, EraseTorn, NumbersAbove, WaitApplied, RetireInOrder, CommitBarrier, ApplyLate, EveryPart, VerifyMeta, VerifyData,
    DataFirst, InOrder, PersistRead, ApplyFirst, WashFirst,
}

#[test]
fn each_step_of_the_array_is_missed_when_it_is_left_out() {
    missed::each_step(&workloads(), STEPS, Arrayed::adjust, &["deadlock", "panicked"]);
}

/// Together they are `Step::PersistRead`, which is missed.
const REDUNDANT: &[missed::Redundant] = &[
    (
        "recovery.rs",
        "self.table.flush(u64::from(read.line.tid) * self.stride, LINE)?;",
        "alone, missed by no workload here",
    ),
    ("recovery.rs", "area.flush(0, *used)?;", "flushed before the line that leads here, by the process that died"),
    ("recovery.rs", "self.table.flush(at, len)?;", "the same"),
    ("recovery.rs", "area.flush(at, entry.len.into())?;", "the same"),
];

const UNREACHED: &[missed::Redundant] = &[("recovery.rs", "pool.drain()", "for its callers, whose lines count")];

#[test]
fn every_barrier_of_the_array_is_missed_when_it_is_gone() {
    let sources =
        missed::Sources { of: "eaw/src/array", whole: "eaw/src/array", redundant: REDUNDANT, unreached: UNREACHED };
    missed::each_barrier(&workloads(), &sources);
}
