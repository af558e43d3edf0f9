//! The key-value store, explored; and for each step of its protocol that media can miss it is shown that exploring fails without it.

use super::missed;
use crash::{Config, FaultKind, Model};
use kv::{Options, Step};
use scenarios::{ALIKE, StoreOp as Op, Stored};

fn alone(ops: Vec<Op>) -> Stored {
    Stored::script(ops.into_iter().map(|op| (0, op)).collect())
}

fn shallow(seed: u64) -> Config {
    Config::seeded(seed).depth(1).budget(6_000).point_budget(300)
}

fn deep(seed: u64) -> Config {
    Config::seeded(seed).budget(6_000).point_budget(60).nested_budget(30)
}

/// Deep inside recoveries.
fn thorough(seed: u64) -> Config {
    Config::seeded(seed).budget(40_000).point_budget(300).nested_budget(150)
}

fn file(config: Config) -> Config {
    config.model(Model::File { sector: 512 })
}

fn put(key: u8, len: usize) -> Op {
    Op::Write(vec![(key, Some(len))])
}

fn delete(key: u8) -> Op {
    Op::Write(vec![(key, None)])
}

type Workload = missed::Workload<Stored>;

/// From cheap to thorough.
fn workloads() -> Vec<Workload> {
    use Op::{Ahead, Backup, Checkpoint, Close, Hold, Put, Restart, Write};
    let mut all: Vec<Workload> = Vec::new();
    let mut add = |name, stored: &Stored, configs: &[Config]| {
        all.extend(configs.iter().map(|config| (name, stored.clone(), config.clone().shrink(false))));
    };
    let few = alone(vec![put(1, 20), Write(vec![(1, Some(30)), (2, Some(100)), (3, Some(5))]), delete(2), put(1, 0)]);
    add("few", &few, &[shallow(1), file(shallow(2)), deep(3), file(deep(4))]);
    add(
        "torn",
        &alone(vec![put(1, 10), Write(vec![(1, Some(90)), (2, Some(90)), (3, Some(90))])]),
        &[shallow(1), deep(2), file(deep(3)), thorough(4)],
    );
    let checkpointed = alone(vec![
        put(1, 20),
        Checkpoint,
        put(1, 30),
        delete(2),
        Checkpoint,
        Write(vec![(1, None), (4, Some(9))]),
        Checkpoint,
        Checkpoint,
    ]);
    add("checkpointed", &checkpointed, &[shallow(1), file(shallow(2)), deep(3)]);
    let laps = |last: Vec<Op>| {
        let mut ops = vec![put(5, 50)];
        for at in 0..8 {
            ops.extend([put(at % 3, 1500), put(3, 1500), Checkpoint]);
        }
        alone([ops, last].concat())
    };
    add("laps", &laps(vec![put(1, 300), delete(3), put(2, 10)]), &[shallow(1), file(shallow(2)), deep(3)]);
    add("laps, restarted", &laps(vec![Restart, put(1, 300), Checkpoint, Restart, put(2, 10)]), &[shallow(1), deep(3)]);
    add(
        "large",
        &alone(vec![put(1, 9000), put(2, 100), put(1, 5000), Checkpoint, Checkpoint, put(1, 10)]),
        &[shallow(1), deep(2)],
    );
    add(
        "restarts",
        &alone(vec![put(1, 20), Restart, put(1, 30), put(2, 5), Restart, delete(1), Close, put(3, 9)]),
        &[shallow(1), file(shallow(2)), deep(3)],
    );
    add(
        "held",
        &alone(vec![
            put(1, 900),
            put(2, 900),
            Hold(vec![
                put(1, 1200),
                put(2, 1200),
                Checkpoint,
                Checkpoint,
                put(1, 1300),
                put(2, 1300),
                Checkpoint,
                put(1, 1000),
                put(2, 1000),
                Checkpoint,
                put(3, 1500),
                put(1, 100),
            ]),
        ]),
        &[shallow(1), deep(2)],
    );
    // The file grows before a thread asks, by the threads that ask, and while others commit.
    let mut growing = vec![(0, put(0, 1500))];
    for at in 1..6 {
        growing.extend([(0, put(at, 3000)), (1, Ahead), (0, put(at, 20)), (1, put(6, 3000))]);
    }
    growing.extend([(1, Checkpoint), (0, put(1, 9)), (1, Checkpoint), (1, Checkpoint)]);
    add("growing", &Stored::script(growing), &[shallow(1).schedules(4).point_budget(40), deep(2).schedules(2)]);
    let threads = |ops: Vec<(usize, Op)>| Stored::script(ops);
    // Puts by themselves, behind the first, which begins the log: on a line and on several, new keys, and one that looks like another.
    let by_itself = alone(vec![
        Put(1, 20),
        Put(2, 5),
        Put(1, 200),
        Put(ALIKE[0], 100),
        Put(ALIKE[1], 150),
        delete(2),
        Put(2, 9),
        Checkpoint,
        Put(ALIKE[1], 0),
        Put(1, 70),
    ]);
    add("by itself", &by_itself, &[shallow(1), file(shallow(2)), deep(3)]);
    add(
        "by themselves",
        &threads(vec![
            (0, Put(1, 20)),
            (1, Put(2, 300)),
            (0, Put(1, 9)),
            (1, Put(2, 40)),
            (0, Checkpoint),
            (1, Put(2, 100)),
            (0, Put(1, 8)),
        ]),
        &[shallow(1).schedules(10).point_budget(40), deep(2).schedules(3)],
    );
    // A tombstone of one writer, and what it deletes in the log of another.
    add(
        "two writers",
        &threads(vec![
            (0, put(1, 20)),
            (1, delete(1)),
            (0, put(2, 30)),
            (1, Checkpoint),
            (0, put(1, 9)),
            (1, delete(1)),
            (0, Checkpoint),
            (1, Checkpoint),
        ]),
        &[shallow(1).schedules(30).budget(30_000).point_budget(60), deep(2).schedules(6)],
    );
    add(
        "one key",
        &threads(vec![
            (0, put(1, 20)),
            (1, put(1, 30)),
            (0, put(1, 9)),
            (1, put(1, 40)),
            (0, put(1, 8)),
            (1, delete(1)),
        ]),
        &[shallow(1).schedules(30).budget(30_000).point_budget(60)],
    );
    add(
        "two checkpoint",
        &threads(vec![
            (0, put(1, 1500)),
            (1, put(2, 1500)),
            (0, Checkpoint),
            (1, put(1, 1400)),
            (0, put(2, 1300)),
            (1, Checkpoint),
            (1, put(3, 10)),
        ]),
        &[shallow(1).schedules(30).budget(30_000).point_budget(60), deep(2).schedules(6)],
    );
    add(
        "backup",
        &threads(vec![
            (0, put(1, 1500)),
            (1, put(2, 30)),
            (1, Backup),
            (0, Write(vec![(1, Some(9)), (2, None)])),
            (0, Checkpoint),
            (1, Backup),
            (0, put(1, 1400)),
            (0, Checkpoint),
        ]),
        &[shallow(1).schedules(6).point_budget(20)],
    );
    add("unmade", &alone(vec![put(1, 20), Checkpoint, put(1, 30)]).unmade(), &[shallow(1), file(shallow(2)), deep(3)]);
    // More keys than a leaf has room for; then few enough for one leaf again.
    let many = |keys: std::ops::Range<u8>, len| Write(keys.map(|n| (n, len)).collect());
    add(
        "leaves",
        &alone(vec![
            many(10..80, Some(2)),
            Checkpoint,
            many(20..75, None),
            Checkpoint,
            put(15, 9),
            Checkpoint,
            Checkpoint,
            put(30, 5),
            Checkpoint,
        ]),
        &[shallow(1).point_budget(40), file(shallow(2)).point_budget(20), deep(3).point_budget(20)],
    );
    add(
        "long fences",
        &alone(vec![
            many(100..170, Some(2)),
            Checkpoint,
            many(110..165, None),
            Checkpoint,
            put(105, 9),
            Checkpoint,
            Checkpoint,
            put(130, 5),
        ]),
        &[shallow(1).point_budget(40), deep(2).point_budget(20)],
    );
    // One leads, the others wait for it or for the next group.
    add(
        "grouped",
        &threads(vec![
            (0, put(1, 20)),
            (1, put(2, 30)),
            (2, Write(vec![(3, Some(9)), (4, Some(100))])),
            (0, delete(2)),
            (1, put(1, 1500)),
            (2, put(2, 8)),
        ])
        .grouped(),
        &[
            shallow(1).schedules(10).point_budget(30),
            file(shallow(2)).schedules(3).point_budget(30),
            deep(3).schedules(2),
        ],
    );
    add("random, grouped", &Stored::new("kv-grouped", 3).grouped(), &[deep(13).schedules(3)]);
    let bounded = |ops: Vec<Op>| alone(ops).bounded(3);
    add(
        "bounded",
        &bounded(vec![
            put(1, 20),
            Write(vec![(1, Some(30)), (2, Some(100))]),
            delete(2),
            put(1, 0),
            put(3, 60),
            put(1, 4),
            put(2, 9),
        ]),
        &[shallow(1), file(shallow(2)), deep(3), deep(4), thorough(5), thorough(6)],
    );
    add(
        "bounded, checkpointed",
        &bounded(vec![
            put(1, 20),
            put(2, 30),
            Checkpoint,
            put(1, 1500),
            put(2, 1500),
            put(3, 1500),
            Restart,
            put(1, 7),
            Checkpoint,
            put(2, 2),
        ]),
        &[shallow(1), deep(3), deep(4)],
    );
    add(
        "bounded, two writers",
        &threads(vec![
            (0, put(1, 20)),
            (1, put(2, 30)),
            (0, put(3, 9)),
            (1, put(4, 8)),
            (0, put(1, 7)),
            (1, put(2, 60)),
            (0, put(3, 5)),
            (1, put(4, 4)),
        ])
        .bounded(3),
        &[
            shallow(1).schedules(30).budget(30_000).point_budget(60),
            deep(2).schedules(8).budget(20_000),
            Config::seeded(3).schedules(12).budget(60_000).point_budget(200).nested_budget(100).shrink(false),
        ],
    );
    // What is moved, by a writer that has commits at risk.
    let mut moving = vec![put(5, 50)];
    (0..8).for_each(|at| moving.extend([put(at % 3, 1500), put(3, 1500), Checkpoint]));
    moving.extend([put(1, 30), put(2, 5), Checkpoint, put(3, 9)]);
    add("bounded, laps", &bounded(moving), &[shallow(1), deep(3)]);
    // The thread that makes a checkpoint names in leaves what the other has committed and not made durable.
    add(
        "bounded, checkpointed by another",
        &threads(vec![
            (0, put(1, 20)),
            (0, put(2, 30)),
            (1, put(3, 9)),
            (1, Checkpoint),
            (0, put(1, 1500)),
            (0, put(2, 1500)),
            (1, Checkpoint),
            (1, put(4, 7)),
        ])
        .bounded(3),
        &[shallow(1).schedules(20).budget(20_000).point_budget(60), deep(2).schedules(8).budget(20_000)],
    );
    for seed in 11..14 {
        add("random, bounded", &Stored::new("kv-bounded", 1).bounded(3), &[deep(seed)]);
        add("random", &Stored::new("kv", 1), &[deep(seed)]);
        add("random, two threads", &Stored::new("kv-2", 2), &[deep(seed)]);
    }
    all
}

missed::steps! {
    CompareKeys, ChecksumAll, VerifyChecksum, WholeTransactions, CommitBarrier, CheckpointBarrier, ForceFirst, MarksFirst, RetireBeforeFree, AwaitReaders, KeepTombstones,
    GreaterOnly, RestoreClock, PersistRead, CopyNodes, Generations, FreshSegments, Prefix, EraseDropped, HonestWatermark,
}

pub(crate) fn each_step_is_missed_when_it_is_left_out() {
    // Watermarks are for lost pages, which no model here has; their stores only make more crash states.
    let without = |stored: Stored, options| stored.watermark_every(16).adjust(options);
    missed::each_step(&workloads(), STEPS, without, &["deadlock"]);
}

/// The last transaction of a log, if it is damaged, cannot be told from a torn one; if it cannot be read, it can.
#[test]
fn a_place_of_a_log_that_cannot_be_read_is_not_its_end() {
    let few = alone(vec![put(1, 20), Op::Write(vec![(1, Some(30)), (2, Some(100)), (3, Some(5))]), put(1, 0)]);
    let config = shallow(5).point_budget(20).faults(60).fault_kinds(vec![FaultKind::Poison]);
    let report = crash::run(few, &config);
    assert!(report.violation().is_none(), "{report}");
    assert!(report.points > 0);
}

/// The disk is full at some point: what was acknowledged is there, and a crash after it is like any other.
#[test]
fn a_full_disk() {
    let ops = (0..14).flat_map(|at| [put(at % 4, 1500), put(4, 700), Op::Checkpoint]).collect();
    for (seed, kib) in [(1, 72), (2, 96), (3, 128)] {
        let config = Config::seeded(seed).depth(1).budget(8_000).point_budget(40).disk_full(kib << 10);
        let report = crash::run(alone([vec![delete(9)], Vec::clone(&ops)].concat()), &config);
        assert!(report.violation().is_none(), "{kib} KiB: {report}");
        assert!(report.points > 0);
    }
}

/// Source lines whose barrier no model here misses, and why they stay.
const REDUNDANT: &[missed::Redundant] = &[
    (
        "watermark.rs",
        "raw::store(Claim::Writer, pool, self.offset",
        "an older watermark says less: only where a page is lost, too, anything comes of that, and no model here loses pages",
    ),
    (
        "prefix.rs",
        "self.versions.pool().flush(record.offset, WORD)?;",
        "to leave the erasing out altogether is missed (`EraseDropped`); a crash that brings back just this line, after the number was drawn again, is not reached",
    ),
    ("create.rs", "cell.clear()?;", "the first checkpoint is written there next, and has a barrier of its own"),
    (
        "maintenance/checkpoint.rs",
        "another thread may make it",
        "a checkpoint that fails for want of room, and one of another thread behind it: no workload has both",
    ),
];

/// Each flush and each drain of `kv` is left out in turn, by source line; some workload must notice.
pub(crate) fn every_barrier_of_the_store_is_missed_when_it_is_gone() {
    let sources = missed::Sources { of: "kv/src", whole: "kv/src", redundant: REDUNDANT, unreached: &[] };
    missed::each_barrier(&workloads(), &sources);
}
