//! Objects: publications take effect as a whole, in order, and are there again after any open.

use std::collections::BTreeMap;

use pmem::{ACTIONS_MAX, Action, Error, HeapOptions, Objects, ObjectsOptions, Options, PPtr, Persist, Tail};
use proptest::prelude::*;

use crate::support::{Ram, fails};

fn small() -> ObjectsOptions {
    ObjectsOptions { heap_bytes: 64 << 10, log_bytes: 4 << 10, heap: HeapOptions::chunk_bytes(4096).unwrap() }
}

#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
struct Table {
    slots: [PPtr<u8>; 16],
    lens: [u64; 16],
}

#[derive(Clone, Debug)]
enum Op {
    /// Put objects of these lengths into these slots, in one publication.
    Put(Vec<(usize, u64)>),
    Clear(usize),
    /// End of the process: nothing is closed.
    Restart,
    /// Everything is closed.
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => proptest::collection::vec((0usize..16, 0u64..3000), 1..5).prop_map(Op::Put),
        3 => (0usize..16).prop_map(Op::Clear),
        1 => Just(Op::Restart),
        1 => Just(Op::Close),
    ]
}

fn fill(n: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| (n * 31 + i) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn table_shows_what_was_published(ops in proptest::collection::vec(op(), 1..80)) {
        let ram = Ram::new(4 << 20);
        let mut pool = Options::new().size(64 << 10).create_on(ram.clone()).unwrap();
        let mut objects = Objects::create(&pool, small()).unwrap();
        let table = objects.reserve_value(&Table { slots: [PPtr::NULL; 16], lens: [0; 16] }).unwrap();
        let root = table.ptr::<Table>();
        objects.lock().publish(&mut [Action::Alloc(table), Action::root(root)]).unwrap();
        let word = |n: usize| PPtr::<u64>::new(root.tag(), root.offset() + 8 * n as u64);
        let (mut model, mut n) = (BTreeMap::<usize, (u64, u64)>::new(), 0);
        for op in ops {
            match op {
                Op::Put(puts) => {
                    let mut actions = Vec::new();
                    let mut next = model.clone();
                    let mut session = objects.lock();
                    let old = *session.get(root).unwrap();
                    for (slot, len) in puts {
                        if next.get(&slot) != model.get(&slot) {
                            continue; // once in a publication
                        }
                        n += 1;
                        let mut block = objects.reserve(len, 8).unwrap();
                        block.bytes_mut().unwrap().copy_from_slice(&fill(n, len));
                        actions.push(Action::Set(word(slot), block.ptr::<u8>().raw()));
                        actions.push(Action::Set(word(16 + slot), len));
                        actions.push(Action::Alloc(block));
                        if !old.slots[slot].is_null() {
                            actions.push(Action::Free(old.slots[slot].cast()));
                        }
                        next.insert(slot, (n, len));
                    }
                    session.publish(&mut actions).unwrap();
                    model = next;
                }
                Op::Clear(slot) => {
                    let mut session = objects.lock();
                    let ptr = session.get(root).unwrap().slots[slot];
                    let result = session.publish(&mut [Action::Free(ptr.cast()), Action::Set(word(slot), 0)]);
                    prop_assert_eq!(result.is_ok(), model.remove(&slot).is_some());
                }
                Op::Restart | Op::Close => {
                    if let Op::Close = op {
                        objects.close().unwrap();
                        pool.close().unwrap();
                    } else {
                        drop((objects, pool));
                    }
                    pool = Options::new().open_on(ram.clone()).unwrap();
                    objects = Objects::open(&pool).unwrap();
                    prop_assert_eq!(objects.tail(), Tail::Clean);
                }
            }
            let session = objects.lock();
            prop_assert_eq!(session.root::<Table>().unwrap(), root);
            let table = *session.get(root).unwrap();
            for slot in 0..16 {
                match model.get(&slot) {
                    Some(&(n, len)) => {
                        prop_assert_eq!(table.lens[slot], len);
                        prop_assert_eq!(session.bytes(table.slots[slot], len).unwrap(), &fill(n, len)[..]);
                    }
                    None => prop_assert!(table.slots[slot].is_null()),
                }
            }
        }
        // No leak: what is live is the table and what it names.
        let usage = objects.heap().live_blocks(|_, _| Ok(())).unwrap();
        prop_assert_eq!(usage.live_blocks, model.len() as u64 + 1);
        prop_assert_eq!(objects.heap().outstanding(), 0);
    }
}

#[test]
fn publication_has_limits_and_a_refused_one_changes_nothing() {
    let pool = Options::new().size(64 << 10).create_on(Ram::new(4 << 20)).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let block = objects.reserve_value(&7u64).unwrap();
    let ptr = block.ptr::<u64>();
    let mut session = objects.lock();
    session.publish(&mut [Action::Alloc(block), Action::root(ptr)]).unwrap();
    let sets = |n: usize| (0..n).map(|_| Action::Set(ptr, 8)).collect::<Vec<_>>();
    let error = fails(session.publish(&mut sets(ACTIONS_MAX + 1)), &["actions in a publication: 1025"]);
    assert!(matches!(error, Error::Limit { .. }));
    // More than the ring holds at all.
    let error = fails(session.publish(&mut sets(ACTIONS_MAX)), &["the ring holds"]);
    assert!(matches!(error, Error::RingFull { .. }));
    let odd = PPtr::<u64>::new(pool.tag(), ptr.offset() + 1);
    let mut actions = [Action::Set(ptr, 8), Action::Set(odd.cast(), 9)];
    assert!(matches!(session.publish(&mut actions), Err(Error::BadPointer { .. } | Error::Unaligned { .. })));
    assert_eq!(*session.get(ptr).unwrap(), 7);
    // One that fills the ring nearly, again and again.
    for n in 0..20 {
        let mut large = sets(120);
        large.push(Action::Set(ptr, n));
        session.publish(&mut large).unwrap();
        assert_eq!(*session.get(ptr).unwrap(), n);
    }
}

#[test]
fn root_has_a_type() {
    let ram = Ram::new(4 << 20);
    let pool = Options::new().size(64 << 10).create_on(ram.clone()).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    assert!(objects.lock().root::<u64>().unwrap().is_null(), "none yet");
    let block = objects.reserve_value(&[7u64, 8]).unwrap();
    let ptr = block.ptr::<[u64; 2]>();
    objects.lock().publish(&mut [Action::Alloc(block), Action::root(ptr)]).unwrap();
    let error = fails(objects.lock().root::<[i64; 2]>(), &["root type", "[i64; 2]"]);
    assert!(matches!(error, Error::WrongLayout { what: "root type", .. }));
    drop((objects, pool));
    let pool = Options::new().open_on(ram).unwrap();
    let objects = Objects::open(&pool).unwrap();
    let session = objects.lock();
    assert_eq!(session.get(session.root::<[u64; 2]>().unwrap()).unwrap(), &[7, 8]);
}

#[test]
fn new_objects_end_cleanly() {
    let ram = Ram::new(4 << 20);
    let pool = Options::new().size(64 << 10).create_on(ram.clone()).unwrap();
    Objects::create(&pool, small()).unwrap().close().unwrap();
    pool.close().unwrap();
    let pool = Options::new().open_on(ram).unwrap();
    assert_eq!(Objects::open(&pool).unwrap().tail(), Tail::Clean, "a ring never written to has no torn record");
}

/// Without `Objects::close` there are publications to carry out, which a read-only open cannot do.
#[test]
fn read_only_objects_need_a_clean_close() {
    let dir = crate::support::memory();
    let path = dir.path().join("pool");
    let pool = crate::support::emulated(1 << 20).create(&path).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let block = objects.reserve_value(&7u64).unwrap();
    let ptr = block.ptr::<u64>();
    objects.lock().publish(&mut [Action::Alloc(block), Action::root(ptr)]).unwrap();
    drop(objects);
    pool.close().unwrap();
    let pool = Options::new().open_read_only(&path).unwrap();
    assert!(matches!(Objects::open(&pool), Err(Error::NeedsRecovery { .. })));
    drop(pool);
    let pool = crate::support::emulated(0).open(&path).unwrap();
    Objects::open(&pool).unwrap().close().unwrap();
    pool.close().unwrap();
    let pool = Options::new().open_read_only(&path).unwrap();
    let objects = Objects::open(&pool).unwrap();
    assert_eq!(*objects.lock().get(ptr).unwrap(), 7);
    let block = objects.reserve(8, 8).map(|mut block| block.bytes_mut().map(drop));
    assert!(matches!(block, Ok(Err(Error::ReadOnly))));
    objects.close().unwrap();
    pool.close().unwrap();
}

/// The heap is last in the pool or not: what limits it is the space there is. Small steps where it is short would use the directory up.
#[test]
fn heap_grows_until_there_is_no_space() {
    for behind in [false, true] {
        let ram = Ram::new(16 << 20);
        let pool = Options::new().size(64 << 10).create_on(ram.clone()).unwrap();
        let objects = Objects::create(&pool, small()).unwrap();
        if behind {
            pool.add_region("behind", 4096).unwrap();
        }
        let mut reserved = Vec::new();
        let error = loop {
            match objects.reserve(1000, 8) {
                Ok(block) => reserved.push(block),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Reserve { .. }), "not the directory: {error}");
        let entries = pool.info().regions.len();
        println!("{} blocks of 1 KiB in 16 MiB, {entries} extents", reserved.len());
        assert!(reserved.len() > 14 << 10, "{} blocks", reserved.len());
        assert!(entries <= 40, "{entries}");
    }
}

/// A pool may be closed without its objects, or after their close has failed: the ring has what was acknowledged.
fn publish_then_close_the_pool_alone(sim: &std::sync::Arc<crash::Sim>, forget: bool) -> pmem::Result<u64> {
    let pool = Options::new().open_on(sim.clone())?;
    let objects = Objects::open(&pool)?;
    for n in 1..=2u64 {
        let block = objects.reserve_value(&n)?;
        let root = block.ptr::<u64>();
        objects.lock().publish(&mut [Action::Alloc(block), Action::root(root)])?;
    }
    if forget {
        std::mem::forget(objects.reserve(16, 8)?);
        fails(objects.close(), &["1 reserved blocks of heap", "still in use"]);
    } else {
        drop(objects);
    }
    pool.close()?;
    Ok(2)
}

#[test]
fn pool_closed_without_its_objects_loses_nothing() {
    use crash::{Config, Violation, explore};
    for forget in [false, true] {
        let report = explore(Config::seeded(1).budget(20_000).depth(1))
            .setup(|sim| {
                let pool = Options::new().size(16 << 10).create_on(sim.clone())?;
                let heap = HeapOptions::chunk_bytes(4096)?;
                Objects::create(&pool, ObjectsOptions { heap_bytes: 12 << 10, log_bytes: 4 << 10, heap })?;
                Ok(())
            })
            .workload(move |sim, ack| {
                let ticket = ack.begin(2);
                publish_then_close_the_pool_alone(sim, forget)?;
                ack.commit(ticket);
                Ok(())
            })
            .check(|sim, history| {
                let pool = Options::new().open_on(sim.clone()).map_err(Violation::detected)?;
                let objects = Objects::open(&pool).map_err(Violation::detected)?;
                let session = objects.lock();
                let root = session.root::<u64>().map_err(Violation::detected)?;
                let found = if root.is_null() { 0 } else { *session.get(root).map_err(Violation::detected)? };
                let usage = objects.heap().live_blocks(|_, _| Ok(())).map_err(Violation::detected)?;
                let least = history.acknowledged.last().copied().unwrap_or(0);
                if found < least || usage.live_blocks != found || objects.heap().outstanding() != 0 {
                    return Err(Violation::new(format!("{found} found, {least} acknowledged, {usage:?}")));
                }
                Ok(found)
            })
            .run();
        report.expect_clean();
        println!("forget {forget}: {} states", report.states);
    }
}
