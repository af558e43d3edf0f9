//! Each flush and each drain of `heap` is left out in turn, by source line; some workload must notice. What no workload misses must stand in
//! `REDUNDANT` with a reason, and in `docs/barriers.md`.

use super::missed;
use crash::{Config, Model};
use heap::Policy;
use scenarios::heap::{CELLS, Cells, Edit, End, Op};

/// Source lines whose barrier no model here misses, and why they stay.
const REDUNDANT: &[missed::Redundant] = &[
    (
        "recovery/in_place.rs",
        "set_mark(zone, Mark::Clean)",
        "a zone that stays dirty on media costs the next recovery time",
    ),
    (
        "recovery/in_place.rs",
        "core.zones.set_mark(zone, mark)",
        "the mark of a closed heap was damaged; one that stays so is repaired by the next open, or restored from an equal backup",
    ),
    ("zones.rs", "set_mark(zone, mark)", "the same"),
    ("zones.rs", "set_mark(zone, Mark::Clean)", "the same"),
    ("zones.rs", "set_mark(zone, Mark::Summed)", "of a backup that is made anew: the same"),
    ("zones.rs", "if summed", "the same"),
    ("zones.rs", "set_sums(zone, &sums)", "checksums tell which copy is wrong where a medium went bad"),
    ("zones.rs", "the checksums, before a mark vouches for them", "the same"),
    ("scrub.rs", "", "the same"),
    (
        "recovery/copies.rs",
        "before the records are gone that tell of changes of it",
        "needed when a record that no barrier covered has arrived, and its copy's proof has not, and recovery is cut short behind the records' retirement: no workload gets there",
    ),
    (
        "zones.rs",
        "before the state says that there is a backup",
        "the state's cell, which a start has read, has a barrier before it changes, of its own accord",
    ),
    (
        "recovery/copies.rs",
        "core.pool.drain()?; // before",
        "the cell that voids the copies has a barrier before it changes, of its own accord",
    ),
];

const UNREACHED: &[missed::Redundant] = &[
    ("assemble.rs", "pool.drain()", "a heap is made: no crash point"),
    ("commit.rs", "// the blocks, too", "a transaction of the policy `none` that allocates: nothing is promised of it"),
    ("log.rs", "let persisted = ground.pool.drain()?;", "for its callers, by whose lines it is counted"),
];

type Workload = missed::Workload<Cells>;

fn w(cell: usize) -> Edit {
    Edit::whole(cell)
}

fn script(policy: Policy, ops: Vec<Op>) -> Cells {
    Cells::script(policy, ops.into_iter().map(|op| (0, op)).collect()).batch(1)
}

fn threads(policy: Policy, ops: Vec<(usize, Op)>) -> Cells {
    Cells::script(policy, ops).batch(1).dirty_zones(1)
}

/// From cheap to thorough.
fn workloads() -> Vec<Workload> {
    let shallow = |seed| Config::seeded(seed).depth(1).budget(4_000).point_budget(300);
    let deep = |seed| Config::seeded(seed).depth(2).budget(5_000).point_budget(60).nested_budget(40);
    let file = Model::File { sector: 512 };
    let node = Edit::Node;
    let comb = || Edit::Comb(CELLS.len() - 1);
    let each = |policy| {
        vec![
            Op::commit(vec![w(1), w(4), node(0, 116)]),
            Op::abort(vec![w(1), w(3)]),
            Op::commit(vec![w(1), Edit::Unlink(0)]),
            Op::commit_in(1, vec![w(1), node(3, 116)]),
            Op::Close(Some(policy)),
            Op::commit(vec![w(2)]),
        ]
    };
    let long = vec![Op::commit(vec![comb()]), Op::abort(vec![comb(), w(4)]), Op::commit(vec![w(4), comb()])];
    let undo_long = vec![
        Op::Change(0, vec![comb(), w(4)], true, End::Commit),
        Op::Change(0, vec![comb(), w(5)], true, End::Abort),
        Op::commit(vec![w(5), w(5)]),
    ];
    let switch = vec![
        Op::commit(vec![w(1)]),
        Op::Restart(Some(Policy::Undo)),
        Op::commit(vec![w(1), w(3)]),
        Op::Restart(Some(Policy::InPlace)),
        Op::commit(vec![w(2), w(0)]),
    ];
    let scrub = vec![Op::commit(vec![w(1)]), Op::Scrub, Op::commit(vec![w(2)]), Op::Scrub];
    let grow = vec![Op::commit(vec![w(1)]), Op::Grow, Op::commit(vec![node(0, 5000), node(1, 5000), w(3)])];
    let zone = vec![(0, Op::commit(vec![w(0)])), (1, Op::abort(vec![w(1)])), (0, Op::commit(vec![w(0)]))];
    let mut all: Vec<Workload> = Vec::new();
    let mut add = |name, cells: &Cells, configs: &[Config]| {
        // Recovery does not rely on flushes that no thread waited for.
        let strict = |config: &Config| config.clone().flushed_outlives(false).shrink(false);
        all.extend(configs.iter().map(|config| (name, cells.clone(), strict(config))));
    };
    let partial = ("partial", Policy::InPlacePartial);
    for (name, policy) in [("in place", Policy::InPlace), ("undo", Policy::Undo), partial, ("eaw", Policy::Eaw)] {
        add(name, &script(policy, each(policy)), &[shallow(1), shallow(2).model(file), deep(3), deep(4).model(file)]);
    }
    // Copies, and what is carried out, ride on later commits.
    let later = [vec![w(1), node(0, 116)], vec![w(2)], vec![w(2)], vec![w(2)]];
    let later = script(Policy::InPlace, later.map(Op::commit).into());
    let intents = script(Policy::InPlace, each(Policy::InPlace)).intents();
    add("intents", &intents, &[shallow(1), deep(2)]);
    let one = script(Policy::InPlace, vec![Op::commit(vec![w(3)])]).intents();
    let nested = Config::seeded(2).budget(20_000).point_budget(100).nested_budget(200);
    add("intents, recovered", &one, &[nested.clone().model(file), nested.clone().model(Model::Lines)]);
    add("in place, riding", &later, &[shallow(1), shallow(2).model(file)]);
    let later =
        [vec![w(3), node(0, 116)], vec![Edit::Refill(0)], vec![Edit::Unlink(0)], vec![w(2)], vec![node(3, 116)]];
    let later = script(Policy::InPlacePartial, later.map(Op::commit).into());
    add("partial, riding", &later, &[shallow(1), shallow(2).model(file)]);
    let turns = [vec![w(3)], vec![w(1)], vec![w(2)], vec![w(3), w(0)]].map(Op::commit);
    add("partial, little room", &script(Policy::InPlacePartial, turns.into()).copies(144), &[shallow(1), deep(2)]);
    let far = || Edit::Words(5, 40, 6, None); // not in the line of the copy's header
    let declared =
        vec![(0, Op::Declare(vec![far()])), (1, Op::commit(vec![far()])), (1, Op::commit(vec![far(), w(0)]))];
    add(
        "partial, declared",
        &threads(Policy::InPlacePartial, declared),
        &[shallow(1).schedules(60).budget(24_000).point_budget(60)],
    );
    // Overwritten unseen; applied by later commits.
    let put = [vec![Edit::Put(5), w(0)], vec![w(2)], vec![Edit::Put(5), w(4)], vec![w(2)], vec![w(2)]].map(Op::commit);
    for (name, policy) in [("in place, put", Policy::InPlace), ("partial, put", Policy::InPlacePartial)] {
        let puts = script(policy, put.to_vec()).dirty_zones(1);
        add(name, &puts, &[shallow(1), shallow(2).model(file)]);
        add(name, &puts.checksum_max(0), &[shallow(1)]);
    }
    let eaw = [vec![w(3), node(0, 200)], vec![Edit::Refill(0)], vec![Edit::Unlink(0)], vec![w(2)], vec![node(3, 116)]];
    let eaw = script(Policy::Eaw, eaw.map(Op::commit).into());
    add("eaw, riding", &eaw, &[shallow(1), shallow(2).model(file)]);
    add("eaw, two barriers", &eaw.checksum_max(0), &[shallow(1), deep(2)]);
    add("eaw, long", &script(Policy::Eaw, long.clone()), &[shallow(1), deep(2)]);
    // Crashes inside of recovery.
    let both = script(Policy::InPlacePartial, vec![Op::Change(0, vec![w(0), far()], true, End::Commit)]);
    let killed = Config::seeded(1).budget(12_000).point_budget(200).nested_budget(60);
    let new = script(Policy::Eaw, vec![Op::commit(vec![node(0, 200), w(3)])]);
    add("eaw, recovered", &new, &[killed.clone(), nested.clone().model(file), nested.clone().model(Model::Lines)]);
    add("partial, recovered", &both, &[killed.clone(), nested.clone().model(file), nested.model(Model::Lines)]);
    // Room is made while intents wait to be carried out.
    let full = vec![
        Op::commit(vec![node(0, 16)]),
        Op::commit(vec![node(1, 16), Edit::Unlink(0)]),
        Op::abort(vec![Edit::Unlink(1)]),
    ];
    add("undo, room", &script(Policy::Undo, full.clone()).batch(8), &[shallow(1), shallow(2).model(file)]);
    let full = [full[..2].to_vec(), vec![Op::Change(0, vec![comb(), w(4)], true, End::Commit)]].concat();
    add("undo, more room", &script(Policy::Undo, full).batch(8), &[shallow(1), shallow(2).model(file)]);
    // Without atomicity a crash may leave half an allocation.
    let none = script(Policy::None, vec![Op::commit(vec![w(1), w(4)]), Op::commit(vec![w(1)])]);
    add("none", &none, &[shallow(1), shallow(2).model(file)]);
    let none = script(Policy::None, vec![Op::commit(vec![Edit::Put(5), w(4)]), Op::commit(vec![w(1)])]);
    add("none, put", &none, &[shallow(1), shallow(2).model(file)]);
    add("killed", &script(Policy::InPlace, vec![Op::commit(vec![w(3)])]), &[killed]);
    let unchecksummed = script(Policy::InPlace, each(Policy::InPlace)).checksum_max(0);
    add("in place, two barriers", &unchecksummed, &[shallow(1), deep(2)]);
    add("in place, long", &script(Policy::InPlace, long.clone()).checksum_max(4096), &[shallow(1), deep(2)]);
    add("in place, long and unchecksummed", &script(Policy::InPlace, long).checksum_max(0), &[shallow(1), deep(2)]);
    add("undo, long", &script(Policy::Undo, undo_long), &[shallow(1), deep(2)]);
    add("switch", &script(Policy::InPlace, switch), &[shallow(1), deep(2)]);
    add("scrub", &script(Policy::InPlace, scrub), &[shallow(1), deep(2)]);
    add("grow", &script(Policy::InPlace, grow), &[shallow(1), deep(2)]);
    add("zone", &threads(Policy::InPlace, zone), &[shallow(1).schedules(40).budget(20_000).point_budget(60)]);
    let partial = ("partial, at random", Policy::InPlacePartial);
    let eaw = ("eaw, at random", Policy::Eaw);
    for (name, policy) in [("in place, at random", Policy::InPlace), ("undo, at random", Policy::Undo), partial, eaw] {
        add(name, &Cells::new(name, policy, 1), &[deep(11), deep(12), deep(13)]);
        add(name, &Cells::new(name, policy, 2), &[deep(14), deep(15)]);
    }
    all.sort_by_key(|(_, _, config)| config.depth);
    all
}

pub(crate) fn every_barrier_of_the_heap_is_missed_when_it_is_gone() {
    let sources = missed::Sources { of: "heap/src", whole: "heap/src", redundant: REDUNDANT, unreached: UNREACHED };
    missed::each_barrier(&workloads(), &sources);
}
