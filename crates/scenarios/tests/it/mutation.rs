//! Each flush and each drain of `pmem` is left out in turn, by source line; some scenario must notice. What no scenario misses must stand in
//! `REDUNDANT` with a reason, and in `docs/barriers.md`.

use super::missed;
use crash::{Config, FaultKind, Model};
use scenarios::Named;

/// Source lines whose barrier no model here misses, and why they stay.
const REDUNDANT: &[missed::Redundant] = &[(
    "pool.rs",
    "return inner.mapping.drain(here())",
    "closed as it was found: what a program stored in its own region without a drain is persistent behind every close",
)];

const UNREACHED: &[missed::Redundant] =
    &[("objects/session.rs", "objects.pool.drain()", "the ring of the objects is full: no workload comes to that")];

/// From cheap to thorough: what the workload needs, then what recovery needs.
fn configs(named: &Named) -> Vec<Config> {
    let shallow = |seed| Config::seeded(seed).depth(1).budget(20_000).point_budget(400);
    let deep = |seed| Config::seeded(seed).depth(2).budget(30_000).point_budget(40).nested_budget(80);
    let file = Model::File { sector: 512 };
    let mut configs = vec![
        shallow(1),
        shallow(2).model(file),
        deep(3),
        deep(4),
        deep(5).model(file),
        shallow(6),
        deep(7),
        shallow(9).model(file),
        shallow(10).model(file),
    ];
    if named.name == "ring" {
        configs.extend((11..17).map(|seed| deep(seed).point_budget(80).nested_budget(200).budget(60_000)));
    }
    if named.name == "header" {
        // A mirrored update is acknowledged when both copies are persistent: what a fault of the medium finds out.
        let kinds = vec![FaultKind::Flip, FaultKind::Poison];
        configs.push(shallow(8).point_budget(40).faults(60).fault_kinds(kinds));
    }
    // Recovery does not rely on flushes that no thread waited for.
    configs.into_iter().map(|c| c.flushed_outlives(false).kills_at_flushes(0).shrink(false)).collect()
}

pub(crate) fn every_barrier_is_missed_when_it_is_gone() {
    // Those of `chain`, `heap`, `kv` and `log` have tests of their own, and structures have none.
    let others = ["chain", "heap", "hash", "btree", "list", "bst", "treap", "graph", "kv", "log", "mvcc"];
    let named = scenarios::ALL.iter().filter(|named| !others.iter().any(|other| named.name.starts_with(other)));
    let workloads: Vec<missed::Workload<&Named>> =
        named.flat_map(|named| configs(named).into_iter().map(move |config| (named.name, named, config))).collect();
    let sources = missed::Sources { of: "pmem/src", whole: "pmem/src", redundant: REDUNDANT, unreached: UNREACHED };
    missed::each_barrier_of(&workloads, |named, config| named.run(config), &sources);
}
