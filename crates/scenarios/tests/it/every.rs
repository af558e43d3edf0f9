//! Generated workloads are clean.

use super::{clean, in_parallel};
use crash::{Config, Model};
use scenarios::{EveryKv, KvAct, KvKind, KvOp};

fn names() -> Vec<&'static scenarios::Named> {
    scenarios::ALL.iter().filter(|named| named.name.contains("-every")).collect()
}

/// Many workloads, a little of each; the command explores more of them.
#[test]
fn generated_workloads_are_clean() {
    let all = names();
    assert_eq!(all.len(), 10);
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

/// A transaction begins a segment, and turns back: the store is closed, opened again, and goes on in that segment. What the table says of it is durable by then.
#[test]
fn a_segment_begun_in_vain_is_named_by_the_close() {
    use KvKind::{Commit, Expires, Put, Scan, StorePutUntil, TransactAt};
    let act = |kind, keys, len, choice| KvAct { kind, keys, len, choice };
    let ops = vec![
        (1, act(StorePutUntil, (1, 1), 700, 0)),
        (1, act(StorePutUntil, (0, 3), 8, 1)),
        (1, act(StorePutUntil, (1, 2), 1500, 1)),
        (0, act(Scan, (1, 3), 700, 2)), // serializable or strict: it reads what another one then changes
        (0, act(Expires, (0, 1), 60, 0)),
        (0, act(Put, (1, 2), 1500, 0)),
        (0, act(TransactAt, (0, 3), 8, 1)),
        (0, act(Commit, (2, 3), 8, 0)),
    ];
    for ops in [vec![KvOp::Together(ops.clone())], vec![KvOp::Together(ops), KvOp::Reopen(true, false)]] {
        let config = Config::seeded(7).depth(1).budget(2_000).point_budget(40).shrink(false);
        let report = crash::run(EveryKv::script(0, ops), &config);
        assert!(report.violation().is_none(), "{report}");
        assert!(report.points > 5, "{report}");
    }
}
