//! Every operation beside every other: all public operations of a heap and its transactions, drawn by three threads on a few shared objects, in one order that a seed
//! gives, against a model in memory. A process that is killed is a copy of its file. `CAIRN_EVERY` sets how many rounds there are.

mod endings;
mod model;
mod operations;
mod thread;
mod whole;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use heap::{Heap, Intents, Options, Policy};
use pmem::{DomainChoice, Error as PoolError, HeapOptions};
use tx::Error;

use self::model::{Met, Model, World};
use self::operations::Kind;
use self::thread::{Mode, Own, Swarm, THREADS, Thread};
use self::whole::{contents, difference};
use crate::raw::Memory;
use crate::support::{ATOMIC as POLICIES, Rng, memory};
use crate::turns::take_turns;

fn drawn(rng: &mut Rng) -> Options {
    let blocks = HeapOptions::chunk_bytes(4096).unwrap();
    let options = Options::new().blocks(blocks).bytes(blocks.region_bytes(16)).slots(4).coordinator(false);
    let options = options.pool(pmem::Options::new().domain(DomainChoice::Emulated)).zone_bytes(4096).alpha(0.2);
    let options = options.log_bytes(2048 << rng.below(3)).batch([1, 2, 16][rng.below(3) as usize]);
    let options = options.checksum_max([0, 256, 2048][rng.below(3) as usize]);
    let options = options.recovery_budget(4096 * [2, 100][rng.below(2) as usize]);
    options.intents([Intents::Zones, Intents::Objects][rng.below(2) as usize])
}

/// Where the heap of a round lies.
enum Home {
    File(PathBuf),
    Memory(Arc<Memory>),
}

impl Home {
    fn create(&self, options: &Options) -> Heap {
        match self {
            Home::File(path) => Heap::create(path, options).unwrap(),
            Home::Memory(memory) => {
                let pool = pmem::Options::new().size(64 << 10).create_on(Arc::clone(memory) as Arc<_>).unwrap();
                Heap::create_in(&pool, options).unwrap()
            }
        }
    }

    fn open(&self, options: &Options) -> Heap {
        match self {
            Home::File(path) => Heap::open(path, options).unwrap(),
            Home::Memory(memory) => {
                let pool = pmem::Options::new().open_on(Arc::clone(memory) as Arc<_>).unwrap();
                Heap::open_in(&pool, options).unwrap()
            }
        }
    }
}

/// From this seed on rounds are out of the ordinary.
const OTHERS: u64 = 1 << 32;

/// Three times three threads on one heap, with an end in between: clean, or not.
fn round(seed: u64, met: Met, adjust: fn(Options) -> Options) -> Met {
    let (mut rng, mut more) = (Rng(seed), Rng(!seed));
    let dir = memory();
    let mut options = adjust(drawn(&mut rng));
    let mut policy = POLICIES[rng.below(4) as usize];
    let objects = [1, 1, 2, 3][rng.below(4) as usize];
    let mode = match seed.checked_sub(OTHERS).map(|seed| seed % 3) {
        None => Mode::Ordinary,
        Some(0) => Mode::NoRollback,
        Some(1) => Mode::Full,
        Some(_) => Mode::FailingDrain,
    };
    let mut home = Home::File(dir.path().join("p"));
    match mode {
        Mode::Ordinary => {}
        Mode::NoRollback => policy = Policy::None,
        Mode::Full => options = options.max_bytes(80 << 10),
        Mode::FailingDrain => home = Home::Memory(Memory::new(16 << 20)),
    }
    let mut heap = home.create(&options.clone().policy(policy));
    let none = BTreeMap::new;
    let open = [none(), none(), none()];
    let world = World { model: Model::default(), open, last: none(), met, files: 0, failed: false };
    let world = Mutex::new(world);
    for _ in 0..3 {
        let thread = |number| {
            let (heap, world, options) = (&heap, &world, &options);
            let (dir, mut rng, more) = (dir.path(), Rng(rng.word()), Rng(more.word()));
            let swarm = Swarm::drawn(&mut rng, objects);
            Thread { number, heap, world, dir, options, swarm, rng, own: Own::default(), mode, more }
        };
        let threads: Vec<_> = (0..THREADS).map(thread).collect();
        let run = |mut thread: Thread<'_>| {
            for _ in 0..12 {
                if thread.world().failed {
                    return;
                }
                match thread.rng.below(thread.swarm.whole) {
                    0 => thread.whole(),
                    _ => thread.transaction(),
                }
            }
        };
        let threads = threads.into_iter().map(|thread| Box::new(move || run(thread)) as Box<dyn FnOnce() + Send>);
        if let Home::Memory(memory) = &home {
            memory.fail_after(more.below(40));
        }
        take_turns(seed, threads.collect());
        let mut after = world.lock().unwrap();
        let (kind, options) = match rng.below(2) {
            0 => (Kind::Reopen, options.clone()),
            _ => (Kind::Change, options.clone().policy(POLICIES[rng.below(4) as usize])),
        };
        if let Home::Memory(memory) = &home
            && heap.pool().drain().is_err()
        {
            after.whole(Kind::Reopen);
            let closed = heap.close();
            assert!(matches!(closed, Err(Error::Pool(PoolError::Poisoned))), "closed after a failed drain: {closed:?}");
            memory.fail_after(u64::MAX);
            heap = home.open(&options);
            let (found, allowed) = (contents(&heap), after.model.after_a_crash());
            assert!(allowed.contains(&found), "a failed drain leaves {}", difference(&found, &allowed));
            after.model.adopt(&found);
            after.failed = false;
            continue;
        }
        if let Home::Memory(memory) = &home {
            memory.fail_after(u64::MAX);
        }
        let expected = after.model.live();
        let found = contents(&heap);
        assert_eq!(found, expected, "{}", difference(&found, std::slice::from_ref(&expected)));
        after.whole(kind);
        heap.close().unwrap();
        heap = home.open(&options);
        let found = contents(&heap);
        assert_eq!(found, expected, "reopened: {}", difference(&found, std::slice::from_ref(&expected)));
    }
    world.into_inner().unwrap().met
}

fn rounds() -> u64 {
    std::env::var("CAIRN_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

/// The seed of the first round that fails, if one does.
fn fails(seeds: std::ops::Range<u64>, adjust: fn(Options) -> Options) -> Option<u64> {
    seeds.into_iter().find(|&seed| catch_unwind(|| drop(round(seed, Met::new(), adjust))).is_err())
}

#[test]
fn every_operation_beside_every_other() {
    let mut met = Met::new();
    let others = OTHERS..OTHERS + rounds() / 5;
    for seed in (0..rounds()).chain(others) {
        met = match catch_unwind(AssertUnwindSafe(|| round(seed, std::mem::replace(&mut met, Met::new()), |o| o))) {
            Ok(met) => met,
            Err(panic) => {
                eprintln!("seed {seed}");
                resume_unwind(panic)
            }
        };
    }
    let missing = met.missing();
    let (first, all) = (&missing[..missing.len().min(20)], missing.len());
    assert!(missing.is_empty(), "{all} pairs of operations did not meet on one object: {first:?}");
}

/// Steps that something else has to come in between for are missed when they are left out.
#[test]
fn steps_left_out_are_found() {
    // Where to look first: a round that finds it. Behind a change of what is drawn the search finds another one.
    type Without = fn(Options) -> Options;
    let steps: [(&str, u64, Without); 2] = [
        ("OwedStays", 2211, |options| options.leave_out(heap::Step::OwedStays)),
        ("LockedFirst", 126, |options| options.leave_out(heap::Step::LockedFirst)),
    ];
    for (step, known, without) in steps {
        let found = fails(known..known + 1, without).or_else(|| fails(0..20_000, without));
        println!("{step}: seed {found:?}");
        assert!(found.is_some(), "{step} left out, and nobody noticed");
    }
}
