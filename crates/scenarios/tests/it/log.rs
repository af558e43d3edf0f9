//! The log, explored; and for each step of its protocol it is shown that exploring fails without it.

use std::sync::Mutex;

use super::{in_parallel, missed};
use crash::{Config, FaultKind, Model};
use log::{Options, Step};
use scenarios::{LogOp as Op, Records};

fn alone(ops: Vec<Op>) -> Records {
    Records::script(1, ops.into_iter().map(|op| (0, op)).collect())
}

fn shallow(seed: u64) -> Config {
    Config::seeded(seed).depth(1).budget(8_000).point_budget(600)
}

fn deep(seed: u64) -> Config {
    Config::seeded(seed).budget(12_000).point_budget(120).nested_budget(60)
}

fn file(config: Config) -> Config {
    config.model(Model::File { sector: 512 })
}

fn faults(seed: u64) -> Config {
    Config::seeded(seed)
        .depth(1)
        .budget(8_000)
        .point_budget(40)
        .faults(120)
        .fault_kinds(vec![FaultKind::Flip, FaultKind::Poison])
}

type Workload = missed::Workload<Records>;

/// From cheap to thorough.
fn workloads() -> Vec<Workload> {
    use Op::{Append, Batch, Clean, Close, Grow, Idle, Reclaim, Restart, Skip};
    let mut all: Vec<Workload> = Vec::new();
    let mut add = |name, records: &Records, configs: &[Config]| {
        all.extend(configs.iter().map(|config| (name, records.clone(), config.clone().shrink(false))));
    };
    let few = alone(vec![Append(10), Append(40), Batch(vec![20, 30, 9]), Append(0)]);
    add("few", &few, &[shallow(1), file(shallow(2)), deep(3), file(deep(4)), faults(5)]);
    let laps = |last: Vec<Op>| {
        let mut ops = vec![];
        for _ in 0..4 {
            ops.extend([Append(80), Append(60), Append(90), Clean]);
        }
        alone([ops, last].concat())
    };
    add(
        "laps",
        &laps(vec![Append(80), Batch(vec![30, 50])]),
        &[shallow(1), file(shallow(2)), deep(3), faults(4), faults(5)],
    );
    add("reclaimed", &laps(vec![Reclaim, Append(10), Close, Append(20)]), &[shallow(1), deep(2), faults(3)]);
    add(
        "restarts",
        &alone(vec![Append(10), Restart, Append(30), Restart, Batch(vec![10, 20, 30]), Close, Append(9)]),
        &[shallow(1), file(shallow(2)), deep(3)],
    );
    add("closed", &alone(vec![Append(10), Close, Append(30)]), &[shallow(1), deep(2), faults(3)]);
    add(
        "torn",
        &alone(vec![Append(10), Batch(vec![8, 8, 8, 8]), Batch(vec![8, 8, 8])]),
        &[shallow(1), deep(2), deep(3), deep(4)],
    );
    // What torn records left, at the places of those to come.
    let probes = alone(vec![Append(5), Batch(vec![0, 41, 0, 41])]);
    add("probes", &probes, &[deep(1), Config::seeded(3).budget(20_000).point_budget(200).nested_budget(100)]);
    // Right behind a reclaimed head nothing tells the epoch but the superline: the check puts a record of 64 bytes in the torn one's place.
    add(
        "floor",
        &alone(vec![Batch(vec![32, 8])]),
        &[deep(1), Config::seeded(3).budget(30_000).point_budget(400).nested_budget(100)],
    );
    add(
        "grown",
        &alone(vec![Append(90), Append(90), Append(90), Grow, Append(90), Append(90), Append(90), Append(90), Grow]),
        &[shallow(1), deep(2)],
    );
    add("skipped", &alone(vec![Skip(20), Append(10), Skip(50), Idle, Append(3)]), &[shallow(1), deep(2), faults(3)]);
    let two =
        Records::script(1, vec![(0, Batch(vec![8, 40])), (1, Append(30)), (0, Append(10)), (1, Batch(vec![20, 20]))]);
    add("two threads", &two, &[shallow(1).schedules(20).budget(30_000).point_budget(100), deep(2).schedules(4)]);
    let freq = Records::script(3, (0..9).map(|n| (n % 2, Append(20))).collect());
    add("frequency", &freq, &[shallow(1).schedules(20).budget(30_000).point_budget(100), file(shallow(2)), faults(3)]);
    let appends = Records::script(1, (0..4).map(|n| (n % 2, Append(30))).collect());
    add("appends, two threads", &appends, &[shallow(1).schedules(20).budget(30_000).point_budget(100)]);
    // Those of 80 bytes go past the cache, between others that no thread has forced. The first one fills its line: the second one flushes none of it.
    let long = Records::script(3, [30, 100, 9, 90, 30, 40, 80].map(|len| (0, Append(len))).to_vec());
    add("long, by a frequency", &long, &[shallow(1), deep(2)]);
    for seed in 11..13 {
        add("random", &Records::new("log", 1, 1), &[deep(seed), faults(seed)]);
        add("random, two threads", &Records::new("log-2", 2, 1), &[deep(seed)]);
    }
    all
}

#[test]
fn histories_and_faults() {
    let workloads = workloads();
    let detected = Mutex::new(0);
    in_parallel(workloads.len(), |at| {
        let (name, records, config) = &workloads[at];
        let report = crash::run(records.clone(), config);
        assert!(report.violation().is_none(), "{name}: {report}");
        assert!(report.points > 0, "{name}");
        *detected.lock().expect("no panic") += report.faults_detected;
    });
    assert!(*detected.lock().expect("no panic") > 0, "no fault was ever detected");
}

missed::steps! {
    InOrder, MarkLate, PersistentLate, HonestCell, HeadFirst, HeadTwice, RaiseEpoch, EpochFloor, EraseTorn, Watermark, HonestWatermark,
    HonestMark, VerifyChecksum, GrowFirst, UncleanFirst,
}

pub(crate) fn each_step_is_missed_when_it_is_left_out() {
    missed::each_step(&workloads(), STEPS, Records::adjust, &["deadlock", "panicked"]);
}

/// Source lines whose barrier no model here misses, and why they stay.
const REDUNDANT: &[missed::Redundant] = &[
    ("recovery.rs", "pool.drain()?;", "for followers in other processes, which no model here has"),
    (
        "front.rs",
        "raw::store(Claim::Watermark, pool, self.offset",
        "an older watermark says less: only where a page is lost, too, anything comes of that, and no model here loses pages",
    ),
];

const UNREACHED: &[missed::Redundant] =
    &[("replicate/stored.rs", "", "in the test of replicated logs"), ("replicate/posting.rs", "", "the same")];

/// Each flush and each drain of `log` is left out in turn, by source line; some workload must notice.
#[test]
fn every_barrier_of_the_log_is_missed_when_it_is_gone() {
    let sources = missed::Sources { of: "log/src", whole: "log/src", redundant: REDUNDANT, unreached: UNREACHED };
    missed::each_barrier(&workloads(), &sources);
}
