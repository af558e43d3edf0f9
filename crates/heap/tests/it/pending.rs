//! A slot writes an object again that it has pending, and another transaction comes in between.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use heap::{Heap, Options, Policy};
use pmem::sync::{Scheduler, set_scheduler};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Error, Isolation, Transaction, Typed};

use crate::support::{ATOMIC, Object, memory, quiet, with_objects};

/// At the switch point of this number another thread is told to act, and waited for.
struct At {
    point: usize,
    seen: AtomicUsize,
    tell: Mutex<(Sender<()>, Receiver<()>)>,
}

impl Scheduler for At {
    fn switch(&self) {
        if self.seen.fetch_add(1, SeqCst) == self.point {
            let tell = self.tell.lock().unwrap();
            tell.0.send(()).unwrap();
            tell.1.recv().unwrap();
        }
    }

    fn blocked(&self) {
        panic!("nobody else holds a lock");
    }
}

fn commit(heap: &Heap, object: PPtr<Object>, value: u64) {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        *tx.write(object)? = [value; 8];
        Ok(())
    })
    .unwrap();
}

fn value(heap: &Heap, object: PPtr<Object>) -> Object {
    *heap.begin(Isolation::Strict).unwrap().read(object).unwrap()
}

/// What the slot does with an object that it has pending.
type Again = fn(&mut heap::Tx<'_>, PPtr<Object>) -> tx::Result<()>;

/// Commits 2 to an object, does `again` to it while a reader arrives at a switch point, and takes that back; then writes 3. Returns whether the reader was in the way,
/// and nothing when the operation has fewer switch points.
fn interrupted(options: &Options, point: usize, again: Again) -> Option<bool> {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, options, 1);
    let object = objects[0];
    commit(&heap, object, 2);
    let (tell, told) = channel();
    let (answer, answered) = channel();
    let at = Arc::new(At { point, seen: AtomicUsize::new(0), tell: Mutex::new((tell, answered)) });
    let (leave, left) = channel();
    let conflict = std::thread::scope(|scope| {
        let heap = &heap;
        // What is moved into it ends with it: no thread waits for one that has panicked.
        let reader = scope.spawn(move || {
            if told.recv().is_err() {
                return;
            }
            let tx = heap.begin(Isolation::Strict).unwrap();
            match tx.read(object) {
                Ok(words) => assert_eq!(*words, [2; 8]),
                Err(Error::Conflict { .. }) => {} // too late: the writer has it
                Err(e) => panic!("{e}"),
            }
            answer.send(()).unwrap();
            left.recv().unwrap();
        });
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        set_scheduler(Some(at.clone()));
        let done = again(&mut tx, object);
        set_scheduler(None);
        tx.abort().unwrap();
        let reached = at.seen.load(SeqCst) > point;
        if reached {
            leave.send(()).unwrap();
        } else {
            *at.tell.lock().unwrap() = (channel().0, channel().1);
        }
        reader.join().unwrap();
        match done {
            _ if !reached => None,
            Ok(()) => Some(false),
            Err(Error::Conflict { .. }) => Some(true),
            Err(e) => panic!("{e}"),
        }
    })?;
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    *tx.write(object).unwrap() = [3; 8];
    // As a process that is killed here leaves it.
    std::fs::copy(dir.path().join("p"), dir.path().join("killed")).unwrap();
    tx.abort().unwrap();
    assert_eq!(value(&heap, object), [2; 8], "{} at {point}: the abort put back something else", heap.policy());
    heap.close().unwrap();
    for path in ["p", "killed"] {
        let heap = Heap::open(dir.path().join(path), options).unwrap();
        assert_eq!(value(&heap, object), [2; 8], "{} at {point}, {path}: a commit is lost", heap.policy());
    }
    Some(conflict)
}

/// Allocates, and at a switch point another thread frees what was there before; nothing when the allocation has fewer.
fn freed_twice(options: &Options, point: usize) -> Option<()> {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, options, 1);
    let before = objects[0];
    heap.transact(Isolation::Strict, |tx| tx.free(before)).unwrap();
    heap.apply_pending().unwrap();
    let (tell, told) = channel();
    let (answer, answered) = channel();
    let at = Arc::new(At { point, seen: AtomicUsize::new(0), tell: Mutex::new((tell, answered)) });
    let made = std::thread::scope(|scope| {
        let heap = &heap;
        scope.spawn(move || {
            if told.recv().is_ok() {
                let mut tx = heap.begin(Isolation::Strict).unwrap();
                let freed = tx.free(before);
                answer.send(()).unwrap();
                match freed {
                    Ok(()) => tx.commit().unwrap(),
                    Err(_) => tx.abort().unwrap(),
                }
                assert!(freed.is_err(), "{} at {point}: an object was freed twice", heap.policy());
            }
        });
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        set_scheduler(Some(at.clone()));
        let made = tx.alloc(&[7u64; 8]);
        set_scheduler(None);
        *at.tell.lock().unwrap() = (channel().0, channel().1);
        tx.commit().map(|()| made)
    });
    if let Ok(Ok(made)) = made {
        assert_eq!(value(&heap, made), [7; 8]);
    }
    heap.close().unwrap();
    (at.seen.load(SeqCst) > point).then_some(())
}

/// A new object is locked before a pointer to what was there before leads to it.
#[test]
fn a_pointer_from_before_does_not_lead_to_a_new_object() {
    for policy in [Policy::None, Policy::InPlace, Policy::InPlacePartial, Policy::Undo] {
        let options = quiet(policy, DomainChoice::Emulated).bytes(256 << 10).slots(2);
        let points = (0..).map_while(|point| freed_twice(&options, point)).count();
        assert!(points > 1, "{policy}: {points}");
    }
}

/// The tests above fail without the steps that they are about.
#[test]
fn without_these_steps_a_commit_is_lost_and_an_object_freed_twice() {
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).bytes(256 << 10).slots(2);
    let owed = options.clone().leave_out(heap::Step::OwedStays);
    let lost = || (0..).map_while(|point| interrupted(&owed, point, |tx, object| tx.free(object))).count();
    assert!(std::panic::catch_unwind(lost).is_err(), "no commit was lost");
    let locked = options.leave_out(heap::Step::LockedFirst);
    let twice = || (0..).map_while(|point| freed_twice(&locked, point)).count();
    assert!(std::panic::catch_unwind(twice).is_err(), "no object was freed twice");
}

fn at_every_point(again: Again) {
    for policy in ATOMIC {
        // With a checksum over the bytes, and without.
        for checksum_max in [2048, 0] {
            let options = quiet(policy, DomainChoice::Emulated).bytes(256 << 10).slots(2).checksum_max(checksum_max);
            let met = (0..).map_while(|point| interrupted(&options, point, again)).filter(|conflict| *conflict).count();
            assert!(met > 0, "{policy}: no reader was ever in the way");
        }
    }
}

#[test]
fn a_reader_in_the_way_of_a_free_costs_no_commit() {
    at_every_point(|tx, object| tx.free(object));
}

#[test]
fn a_reader_in_the_way_of_a_write_costs_no_commit() {
    at_every_point(|tx, object| tx.write(object).map(|words| words[0] = 9));
}
