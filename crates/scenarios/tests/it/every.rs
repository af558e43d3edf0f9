//! Generated workloads are clean.

use super::{clean, in_parallel};
use crash::{Config, Model};

fn names() -> Vec<&'static scenarios::Named> {
    scenarios::ALL.iter().filter(|named| named.name.contains("-every")).collect()
}

/// Many workloads, a little of each; the command explores more of them.
#[test]
fn generated_workloads_are_clean() {
    let all = names();
    assert_eq!(all.len(), 8);
    in_parallel(all.len(), |at| {
        let config = Config::seeded(41).budget(1_500).schedules(10).point_budget(20).nested_budget(16);
        clean(all[at], &config.nested_share(30));
    });
}

#[test]
fn generated_workloads_are_clean_on_files_and_by_lines() {
    let all = names();
    in_parallel(all.len(), |at| {
        for (seed, model) in [(42, Model::Lines), (43, Model::File { sector: 512 })] {
            let config = Config::seeded(seed).budget(400).schedules(5).point_budget(20).nested_budget(16);
            clean(all[at], &config.model(model).nested_share(30));
        }
    });
}
