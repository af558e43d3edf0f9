//! Each flush and each drain of `pmem` is left out in turn, by source line; some scenario must notice. What nobody misses must stand in
//! `REDUNDANT` with a reason, and in `docs/barriers.md`.

use std::collections::BTreeMap;

use crash::{Barrier, Config, FaultKind, Model};
use scenarios::Named;

/// Source lines whose barrier no model here misses, and why they stay.
const REDUNDANT: &[(&str, &str)] = &[];

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
    configs.into_iter().map(|c| c.shrink(false)).collect()
}

fn source_line(barrier: &Barrier) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&barrier.file);
    let text = std::fs::read_to_string(path).expect("source");
    text.lines().nth(barrier.line as usize - 1).expect("line").trim().to_owned()
}

#[test]
fn every_barrier_is_missed_when_it_is_gone() {
    let mut reached: BTreeMap<Barrier, Vec<&Named>> = BTreeMap::new();
    // Those of `heap` and `log` have tests of their own, and structures have none.
    for named in
        scenarios::ALL.iter().filter(|n| !["heap", "hash", "btree", "log"].iter().any(|own| n.name.starts_with(own)))
    {
        for config in configs(named) {
            let report = named.run(&config);
            assert!(report.violation().is_none(), "{}: {report}", named.name);
            for barrier in report.barriers {
                let by = reached.entry(barrier).or_default();
                if !by.iter().any(|n| n.name == named.name) {
                    by.push(named);
                }
            }
        }
    }
    let mut missed_by_nobody = Vec::new();
    for (barrier, by) in reached.iter().filter(|(b, _)| b.file.contains("pmem/src")) {
        let killer = by.iter().flat_map(|named| configs(named).into_iter().map(move |c| (named, c))).find_map(
            |(named, config)| {
                let report = named.run(&config.clone().mute(barrier.clone()));
                report.violation().map(|v| format!("{} (seed {}): {}", named.name, config.seed, v.message))
            },
        );
        let line = source_line(barrier);
        println!("{barrier}: {line}: {}", killer.as_deref().unwrap_or("NOBODY"));
        if killer.is_none() && !REDUNDANT.iter().any(|(text, _)| line.contains(text)) {
            missed_by_nobody.push(format!("{barrier}: {line}"));
        }
    }
    assert!(missed_by_nobody.is_empty(), "left out, and nobody noticed:\n{}", missed_by_nobody.join("\n"));
}
