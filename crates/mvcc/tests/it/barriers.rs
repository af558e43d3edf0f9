//! What each operation costs in barriers, and what goes to the medium.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use mvcc::{Mvcc, Options, Step};
use pmem::sync::{Scheduler, set_scheduler};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Isolation, Transaction, Typed};

type Object = [u64; 8];

fn store(dir: &tempfile::TempDir) -> (Mvcc, Vec<PPtr<Object>>) {
    store_with(dir, |options| options)
}

fn store_with(dir: &tempfile::TempDir, adjust: fn(Options) -> Options) -> (Mvcc, Vec<PPtr<Object>>) {
    let options =
        Options::new().bytes(1 << 20).background(false).pool(pmem::Options::new().domain(DomainChoice::Emulated));
    let store = Mvcc::create(dir.path().join("s"), &adjust(options)).unwrap();
    let made =
        store.transact(Isolation::Strict, |tx| (0..8).map(|_| tx.alloc(&[0; 8])).collect::<tx::Result<Vec<_>>>());
    store.write_back().unwrap();
    (store, made.unwrap())
}

fn counted(store: &Mvcc, work: impl FnOnce()) -> pmem::Stats {
    let before = store.pool().stats();
    work();
    store.pool().stats() - before
}

#[test]
fn a_commit_has_one_barrier_and_everything_else_none() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, objects) = store(&dir);
    for level in Isolation::ALL {
        let word = || {
            let word = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
                tx.write(objects[0])?[3] += 1;
                Ok(())
            };
            store.transact(level, word).unwrap();
        };
        let stats = counted(&store, word);
        assert_eq!(
            (stats.drains, stats.flushed_lines, stats.nt_bytes),
            (1, 0, 128),
            "a line is logged in two, {level}"
        );
        let small = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            *tx.write(objects[1].cast::<u64>())? += 1;
            Ok(())
        };
        let stats = counted(&store, || store.transact(level, small).unwrap());
        assert_eq!((stats.drains, stats.flushed_lines, stats.nt_bytes), (1, 0, 64), "a word in one, {level}");
        let all = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            objects.iter().try_for_each(|&object| {
                tx.write(object)?[0] += 1;
                Ok(())
            })
        };
        assert_eq!(counted(&store, || store.transact(level, all).unwrap()).drains, 1, "eight objects, {level}");
        let made = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            let object = tx.alloc(&[1u64; 8])?;
            tx.free(objects[7])?;
            tx.free(object)
        };
        let mut tx = store.begin(level).unwrap();
        let stats = counted(&store, || made(&mut tx).unwrap());
        assert_eq!((stats.drains, stats.flushed_lines, stats.nt_bytes), (0, 0, 0), "nothing before the commit");
        assert_eq!(counted(&store, || tx.abort().unwrap()).drains, 0, "an abort");
        let read = |tx: &mut mvcc::Tx<'_>| -> tx::Result<u64> { Ok(tx.read(objects[0])?[3]) };
        assert_eq!(counted(&store, || assert!(store.transact(level, read).unwrap() > 0)).drains, 0, "a reader");
        let snapshot = store.snapshot();
        assert_eq!(counted(&store, || assert!(snapshot.read(objects[0]).unwrap()[3] > 0)).drains, 0, "a snapshot");
    }
    let make = || assert!(!store.transact(Isolation::Snapshot, |tx| tx.alloc(&[1u64; 8])).unwrap().is_null());
    let made = counted(&store, make);
    assert_eq!(
        (made.drains, made.flushed_lines, made.nt_bytes),
        (1, 1, 128),
        "the object itself, and a record of two lines"
    );
    store.close().unwrap();
}

/// A hot object is written back once, however often it was changed.
#[test]
fn many_changes_are_written_back_once() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, objects) = store(&dir);
    let logged = store.stats().logged;
    for _ in 0..100 {
        let hot = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            *tx.write(objects[0].cast::<u64>())? += 1;
            Ok(())
        };
        store.transact(Isolation::Snapshot, hot).unwrap();
    }
    assert_eq!((store.stats().versions, store.stats().longest_chain), (100, 100));
    let stats = counted(&store, || assert!(store.write_back().unwrap()));
    // K twice, the master, W twice.
    assert_eq!(stats.drains, 5);
    let stats = store.stats();
    assert_eq!((stats.written_back, stats.objects_back), (64, 1), "one line");
    assert_eq!((stats.published, stats.longest_chain), (100, 0), "of a hundred versions");
    assert_eq!(stats.logged - logged, 6400, "a line each");
    assert_eq!(counted(&store, || assert!(store.write_back().unwrap())).drains, 0, "nothing is left");
    assert_eq!(store.stats().headers, 0);
    store.close().unwrap();
}

/// Nothing that others read is stored while a reader reads: it changes no lock, no version, no clock; what it has is its own transaction slot.
#[test]
fn a_reader_holds_up_write_back_and_nothing_else() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, objects) = store(&dir);
    let bump = || {
        let bump = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            tx.write(objects[0])?[0] += 1;
            Ok(())
        };
        store.transact(Isolation::Serializable, bump).unwrap();
    };
    let reader = store.begin(Isolation::Serializable).unwrap();
    assert_eq!(reader.read(objects[0]).unwrap()[0], 0);
    std::thread::scope(|scope| scope.spawn(bump).join().unwrap());
    assert!(!store.write_back().unwrap(), "the reader may be looking at the master");
    assert_eq!(reader.read(objects[0]).unwrap()[0], 0);
    reader.commit().unwrap();
    assert!(store.write_back().unwrap());
    let snapshot = store.snapshot();
    bump();
    assert!(store.write_back().unwrap(), "a snapshot is in nobody's way");
    assert_eq!(snapshot.read(objects[0]).unwrap()[0], 1);
    assert_eq!(store.begin(Isolation::Snapshot).unwrap().read(objects[0]).unwrap()[0], 2);
}

/// Ten thousand changes beside a snapshot leave one version of each object for it.
#[test]
fn a_snapshot_keeps_one_version_of_each_object() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, objects) = store(&dir);
    let snapshot = store.snapshot();
    for round in 0..2000 {
        let all = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            objects.iter().try_for_each(|&object| {
                tx.write(object)?[0] = round;
                Ok(())
            })
        };
        store.transact(Isolation::Snapshot, all).unwrap();
        if round % 100 == 0 {
            assert!(store.write_back().unwrap());
            assert_eq!(store.stats().versions, objects.len() as u64, "round {round}");
        }
    }
    assert!(objects.iter().all(|&object| snapshot.read(object).unwrap()[0] == 0));
    drop(snapshot);
    store.write_back().unwrap();
    assert_eq!((store.stats().versions, store.stats().headers), (0, 0));
}

/// A block that was freed is handed out again when no thread can be looking at it, and not before.
#[test]
fn a_freed_block_waits_for_those_who_may_look() {
    assert!(is_handed_out_late(|options| options));
    assert!(!is_handed_out_late(|options| options.without(Step::ReleaseLate)), "or this shows nothing");
}

fn is_handed_out_late(adjust: fn(Options) -> Options) -> bool {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, objects) = store_with(&dir, adjust);
    let [first, second] = [objects[0], objects[1]];
    let older = store.begin(Isolation::Snapshot).unwrap();
    store.transact(Isolation::Snapshot, |tx| tx.free(first)).unwrap();
    assert!(!store.write_back().unwrap(), "the pass has collected, and waits for the older one");
    let newer = store.begin(Isolation::Snapshot).unwrap();
    older.commit().unwrap();
    assert!(store.write_back().unwrap());
    let made = store.transact(Isolation::Snapshot, |tx| tx.alloc(&[1u64; 8])).unwrap();
    newer.commit().unwrap(); // it began before the block went out of use
    if made == first {
        return false;
    }
    store.transact(Isolation::Snapshot, |tx| tx.free(second)).unwrap();
    store.write_back().unwrap();
    let make = || store.transact(Isolation::Snapshot, |tx| tx.alloc(&[1u64; 8])).unwrap();
    let made = [make(), make()];
    assert!(made.contains(&first) && made.contains(&second), "{made:?}");
    store.close().unwrap();
    true
}

/// At the switch point of this number, of this thread, something else is done.
struct At<F> {
    point: usize,
    seen: AtomicUsize,
    act: F,
}

impl<F: Fn() + Send + Sync> Scheduler for At<F> {
    fn switch(&self) {
        if self.seen.fetch_add(1, SeqCst) == self.point {
            (self.act)();
        }
    }

    fn blocked(&self) {
        panic!("nobody else holds a lock");
    }
}

/// A pass goes through while a transaction takes back what it has locked: wherever it meets that, the object's header does not stay.
#[test]
fn a_header_that_was_locked_when_a_pass_came_by_is_given_up_later() {
    let mut acted = 0;
    for point in 0..8 {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (store, objects) = store(&dir);
        let store = Arc::new(store);
        let older = store.begin(Isolation::Snapshot).unwrap();
        let bump = |tx: &mut mvcc::Tx<'_>| tx.write(objects[0]).map(|object| object[0] = 7);
        store.transact(Isolation::Snapshot, bump).unwrap();
        assert!(!store.write_back().unwrap(), "the pass has collected, and waits for the older one");
        let mut newer = store.begin(Isolation::Snapshot).unwrap();
        newer.write(objects[0]).unwrap()[0] = 8;
        older.commit().unwrap();
        let other = Arc::clone(&store);
        let at = Arc::new(At { point, seen: AtomicUsize::new(0), act: move || _ = other.write_back().unwrap() });
        set_scheduler(Some(at.clone()));
        newer.abort().unwrap();
        set_scheduler(None);
        acted += usize::from(at.seen.load(SeqCst) > point);
        drop(at);
        store.write_back().unwrap();
        assert_eq!((store.stats().headers, store.stats().versions), (0, 0), "at point {point}");
        assert_eq!(store.snapshot().read(objects[0]).unwrap()[0], 7);
    }
    assert!(acted > 1, "{acted} points");
}
