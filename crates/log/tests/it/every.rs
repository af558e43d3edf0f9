//! Every operation beside every other: all public operations of a log, drawn by three threads in one order that a seed gives, against a model of what was
//! acknowledged. A process that is killed is a copy of its file. `CAIRN_EVERY` sets how many rounds there are.

mod model;
mod operations;
mod outside;
mod replicas;
mod thread;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use log::{Error, Log, Options, Step};
use pmem::DomainChoice;

use self::model::{State, World};
use self::operations::{KINDS, Kind, Met};
use self::outside::Outside;
use self::thread::Thread;
use crate::basics::records;
use crate::support::Rng;
use crate::turns::take_turns;

const THREADS: usize = 3;
/// Operations of a thread between an open and a close.
const OPERATIONS: u64 = 14;

fn drawn(rng: &mut Rng) -> (Options, u32) {
    let frequency = [1, 1, 1, 2, 5][rng.below(5) as usize];
    let segment = [512, 1024][rng.below(2) as usize];
    let domain = [DomainChoice::Emulated, DomainChoice::Emulated, DomainChoice::File][rng.below(3) as usize];
    let options = Options::new().bytes(segment * (4 + rng.below(5))).segment_bytes(segment).idle(None);
    let options = options.frequency(frequency).watermark_every([1, 16][rng.below(2) as usize]);
    let options = options.stream_from([40, 1500][rng.below(2) as usize]);
    let options = options.pool(pmem::Options::new().domain(domain));
    (if rng.below(4) == 0 { options.format_1() } else { options }, frequency)
}

/// What each thread draws from: all, a part, or a pair that has not met.
fn swarm(rng: &mut Rng, missing: &[(Kind, Kind)]) -> Vec<Vec<Kind>> {
    let all: Vec<Kind> = KINDS.iter().copied().filter(|kind| !kind.is_alone()).collect();
    let some = |rng: &mut Rng, of: u64| {
        let some: Vec<Kind> = all.iter().copied().filter(|_| rng.below(of) == 0).collect();
        // Without records there is little to meet.
        if some.is_empty() { all.clone() } else { [some, vec![Kind::Append, Kind::TruncateTo]].concat() }
    };
    if missing.is_empty() {
        return (0..THREADS)
            .map(|_| {
                let of = 1 + rng.below(4);
                some(rng, of)
            })
            .collect();
    }
    let (a, b) = missing[rng.below(missing.len() as u64) as usize];
    let ordinary = |kind: Kind| if kind.is_alone() { Kind::Append } else { kind };
    vec![vec![ordinary(a)], vec![ordinary(b)], some(rng, 4)]
}

/// How the log is closed and opened again.
struct Turn {
    forget: bool,
    end: Kind,
    read_only: bool,
}

impl Turn {
    fn drawn(rng: &mut Rng, missing: &[(Kind, Kind)]) -> Self {
        let wanted = |kind: Kind| missing.iter().any(|(a, b)| *a == kind || *b == kind);
        let ends = [Kind::Close, Kind::DropLog, Kind::Abandon];
        let wanted_ends: Vec<Kind> = ends.into_iter().filter(|end| wanted(*end)).collect();
        let ends = if wanted_ends.is_empty() { &ends[..] } else { &wanted_ends[..] };
        let end = ends[rng.below(ends.len() as u64) as usize];
        let read_only = rng.below(2) == 0;
        Self { forget: rng.below(4) == 0 && !(read_only && wanted(Kind::OpenReadOnly)), end, read_only }
    }

    /// What it does, as thread 0.
    fn run(&self, outside: &Outside, log: Log) -> Log {
        let as_one = |kind: Kind, f: &mut dyn FnMut()| {
            outside.world().begins(0, kind);
            pmem::sync::switch_point();
            f();
            pmem::sync::switch_point();
            outside.world().ends(0, kind);
        };
        let mut forgotten = None;
        if self.forget {
            as_one(Kind::Forget, &mut || {
                let (number, _) = outside.world().model.begin(8, State::Open);
                if let Ok(record) = log.reserve(8) {
                    outside.world().model.is_at(number, record.lsn().get());
                    forgotten = Some(record.lsn());
                    std::mem::forget(record);
                }
            });
        }
        let mut log = Some(log);
        as_one(self.end, &mut || match (self.end, log.take().unwrap()) {
            (Kind::Close, log) => match (log.close(), forgotten) {
                (Ok(()), None) => {}
                (Err(Error::Unfinished { lsn }), Some(at)) => assert_eq!(lsn, at),
                (closed, _) => panic!("{closed:?}, forgotten: {forgotten:?}"),
            },
            (Kind::DropLog, log) => drop(log),
            (_, log) => log.abandon(),
        });
        let is_clean = forgotten.is_none() && self.end != Kind::Abandon;
        if self.read_only {
            as_one(Kind::OpenReadOnly, &mut || match outside.options().open_read_only(outside.path()) {
                Ok((log, found)) => {
                    assert!(is_clean && found.was_closed);
                    let refused = log.append(b"x");
                    assert!(matches!(refused, Err(Error::Pool(pmem::Error::ReadOnly))), "{refused:?}");
                    let all = records(&log);
                    outside.world().model.check_opened(found.head.get(), found.next.get(), &all, "a closed log");
                    log.close().unwrap();
                }
                Err(Error::Pool(pmem::Error::NeedsRecovery { .. })) if !is_clean => {}
                Err(error) => panic!("{error}"),
            });
        }
        as_one(Kind::Open, &mut || {
            let (opened, found) = outside.options().open(outside.path()).unwrap();
            assert_eq!(found.was_closed, is_clean);
            let all = records(&opened);
            assert_eq!(found.records, all.len() as u64);
            let mut world = outside.world();
            if is_clean {
                let needed = world.model.needed(); // at least: `truncate_all` may have found more
                assert!(found.head.get() >= needed, "a closed log begins at {}, {needed} is needed", found.head);
            }
            world.model.goes_on(found.head.get(), found.next.get(), &all);
            log = Some(opened);
        });
        log.unwrap()
    }
}

/// Only the caller has the log: all that is there is there.
fn agree(outside: &Outside, log: &Log, rng: &mut Rng) {
    let mut world = outside.world();
    let durable = log.forced().get();
    world.model.is_durable(durable);
    world.model.check_opened(log.stats().head.get(), durable + 1, &records(log), "an open log");
    if rng.below(8) == 0 {
        let next = log.stats().next.get();
        world.model.discards_all();
        log.truncate_all().unwrap();
        world.model.discarded_all(next, next);
        world.model.is_durable(next - 1);
        drop(world);
        let most = log.payload_max();
        let (number, payload) = outside.world().model.begin(most as usize, State::Doubt);
        let lsn = log.append(&payload).expect("where nothing is needed there is room");
        let mut world = outside.world();
        world.model.is_at(number, lsn.get());
        world.model.set(number, State::There);
    }
}

/// One log: three times three threads, with a clean or unclean end behind each.
fn round(seed: u64, met: Met, missing: &[(Kind, Kind)], adjust: fn(Options) -> Options) -> Met {
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (options, frequency) = drawn(&mut rng);
    let options = adjust(options);
    let path = dir.path().join("log");
    let mut log = options.create(&path).unwrap();
    let outside = Outside::new(World::new(met, THREADS), path, options, frequency);
    outside.is_of(&log);
    outside.world().model.head = 1;
    for _ in 0..3 {
        let threads = swarm(&mut rng, missing).into_iter().enumerate().map(|(number, kinds)| {
            let thread = Thread::new(number, &log, &outside, kinds, Rng(rng.word()));
            Box::new(move || thread.run(OPERATIONS)) as Box<dyn FnOnce() + Send>
        });
        let threads = threads.collect();
        take_turns(rng.word(), threads);
        agree(&outside, &log, &mut rng);
        log = turn(&outside, log, &mut rng, missing);
    }
    log.close().unwrap();
    outside.all_is_followed();
    outside.into_world().met
}

/// Closes and opens the log, beside two threads that have its file alone.
fn turn(outside: &Outside, log: Log, rng: &mut Rng, missing: &[(Kind, Kind)]) -> Log {
    outside.world().turns();
    let turn = Turn::drawn(rng, missing);
    let beside = |rng: &mut Rng| -> Vec<Kind> {
        let all: Vec<Kind> = KINDS.iter().copied().filter(|kind| kind.is_outside()).collect();
        let of = |pair: &(Kind, Kind)| pair.0.is_outside() && pair.1.is_alone();
        let wanted: Vec<Kind> = missing.iter().filter(|pair| of(pair)).map(|pair| pair.0).collect();
        if wanted.is_empty() || rng.below(2) == 0 { all } else { wanted }
    };
    let slot = Mutex::new(Some(log));
    let (opened, turn) = (&slot, &turn);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(move || {
        let log = opened.lock().unwrap().take().unwrap();
        let log = turn.run(outside, log);
        *opened.lock().unwrap() = Some(log);
    })];
    for number in 1..THREADS {
        let (kinds, mut rng) = (beside(rng), Rng(rng.word()));
        threads.push(Box::new(move || {
            for _ in 0..5 {
                let kind = kinds[rng.below(kinds.len() as u64) as usize];
                outside.once(number, kind, &mut rng);
            }
        }));
    }
    take_turns(rng.word(), threads);
    outside.world().turned();
    slot.into_inner().unwrap().unwrap()
}

/// In the gate; behind them as many again as it takes until all have met, but not more than this.
const ROUNDS: u64 = 120;
const ROUNDS_MORE: u64 = 2000;

#[test]
fn every_operation_beside_every_other() {
    let rounds = std::env::var("CAIRN_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let mut met = Met::new();
    for seed in 0..rounds + ROUNDS_MORE {
        // Behind the rounds that draw from everything.
        let missing = if seed < rounds { Vec::new() } else { met.missing() };
        if seed >= rounds && missing.is_empty() {
            println!("all pairs have met behind {seed} rounds");
            break;
        }
        let before = std::mem::replace(&mut met, Met::new());
        met = match catch_unwind(AssertUnwindSafe(|| round(seed, before, &missing, |options| options))) {
            Ok(met) => met,
            Err(panic) => {
                eprintln!("seed {seed}, behind those before it");
                resume_unwind(panic)
            }
        };
    }
    let missing = met.missing();
    assert!(missing.is_empty(), "{} pairs of operations did not meet on one log: {missing:?}", missing.len());
}

/// The seed of the first round that fails, if one does.
fn fails(seeds: std::ops::Range<u64>, adjust: fn(Options) -> Options) -> Option<u64> {
    seeds.into_iter().find(|&seed| catch_unwind(|| drop(round(seed, Met::new(), &[], adjust))).is_err())
}

/// Steps whose absence a kill or a reader shows, without a power failure.
#[test]
fn steps_left_out_are_found() {
    type Without = fn(Options) -> Options;
    let steps: [(Step, Without); 3] = [
        (Step::InOrder, |options| options.without(Step::InOrder)),
        (Step::HeadFirst, |options| options.without(Step::HeadFirst)),
        (Step::GrowFirst, |options| options.without(Step::GrowFirst)),
    ];
    for (step, without) in steps {
        let found = fails(0..2000, without);
        println!("{step:?}: seed {found:?}");
        assert!(found.is_some(), "{step:?} left out, and nobody noticed");
    }
}
