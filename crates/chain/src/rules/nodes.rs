//! Reads at the tail, as transactions of a node on a real medium.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use pmem::PPtr;
use tx::{Engine as _, Isolation::Strict, Transaction as _, Typed as _};

use super::{A, B, C, J, LEASE, rule, view};
use crate::failpoints::{Failpoints, Step};
use crate::image::{ROOT, map_byte, pointer};
use crate::size::SizeCode;
use crate::writes::Writes;
use crate::{
    Body, Command, Entry, Event, Medium, Message, Node, NodeTx, Number, Object, Outside, Record, ReplicaId, Sizes,
    View, ViewId,
};

const SIZES: Sizes = Sizes { capacity: 64 << 10, queue: 64 << 10 };
const NONE: Failpoints = Failpoints(None);

/// Counts what is said and asked.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Outside for Counting {
    fn send(&self, _: Message) {
        self.0.fetch_add(1, SeqCst);
    }

    fn ask(&self, _: Command) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// One member, with two objects; nothing is carried out but what a test says.
struct Member {
    node: Node,
    outside: Arc<Counting>,
    view: Cell<ViewId>,
    _dir: tempfile::TempDir,
}

/// The first two blocks of a heap.
fn objects() -> [u64; 2] {
    let map_end = map_byte(SIZES.capacity);
    let first = map_end.next_multiple_of(4096);
    [first, first + 64]
}

/// Writes both objects, or one.
fn record(n: u64, values: [Option<u64>; 2]) -> Record {
    let (mut writes, mut written) = (Writes::default(), Vec::new());
    for (at, value) in objects().into_iter().zip(values) {
        if let Some(value) = value {
            writes.put(at, &value.to_le_bytes());
            written.push(Object(at));
        }
    }
    Record { entry: Entry { number: Number { view: ViewId(1), n }, objects: written }, bytes: writes.into_bytes() }
}

/// Makes both objects, and lets the root cell lead to them.
fn first_record() -> Record {
    let (mut writes, code) = (Writes::default(), SizeCode::of(64).unwrap().byte());
    let mut root = Vec::new();
    for at in objects() {
        root.extend_from_slice(&pointer::<u64>(at).raw().to_le_bytes());
    }
    writes.put(ROOT, &root);
    for at in objects() {
        writes.put(map_byte(at), &[code]);
        writes.zero(at, 64);
    }
    let objects = [ROOT].into_iter().chain(objects()).map(Object).collect();
    Record { entry: Entry { number: Number { view: ViewId(1), n: 1 }, objects }, bytes: writes.into_bytes() }
}

impl Member {
    /// A member that serves in the view, with a lease, but for the leases of earlier members.
    fn start(id: ReplicaId, view: &View, failpoints: Failpoints) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("r");
        Medium::create(&path, id, true, SIZES).unwrap();
        let (medium, found) = Medium::open(&path).unwrap();
        let outside = Arc::new(Counting::default());
        let node = Node::start_without(medium, found, outside.clone(), failpoints);
        let member = Self { node, outside, view: Cell::new(ViewId(0)), _dir: dir };
        member.node.pump(false);
        member.install(view);
        member.node.pump(false);
        member.event(Event::Lease { id, until: LEASE });
        member
    }

    /// The tail of A, B, C, at work.
    fn tail(failpoints: Failpoints) -> Self {
        let member = Self::start(C, &view(1, &[A, B, C]), failpoints);
        member.event(Event::LeasesEnded(ViewId(1)));
        member.records(B, vec![first_record()]);
        member.node.pump(false);
        member
    }

    /// The middle one.
    fn middle(failpoints: Failpoints) -> Self {
        let member = Self::start(B, &view(1, &[A, B, C]), failpoints);
        member.event(Event::LeasesEnded(ViewId(1)));
        member.records(A, vec![first_record()]);
        member.node.pump(false);
        member
    }

    fn install(&self, view: &View) {
        self.view.set(view.id);
        self.event(Event::View(view.clone()));
    }

    fn event(&self, event: Event) {
        self.node.event(event).unwrap();
    }

    fn hear(&self, from: ReplicaId, body: Body) {
        let to = self.node.status().id;
        self.node.deliver(Message { view: self.view.get(), from, to, body }).unwrap();
    }

    fn records(&self, from: ReplicaId, records: Vec<Record>) {
        self.hear(from, Body::Records(records));
    }

    fn begin(&self) -> NodeTx<'_> {
        self.node.begin(Strict).unwrap()
    }

    fn look(&self, at: usize) -> tx::Result<u64> {
        let tx = self.begin();
        let value = read(&tx, at)?;
        tx.commit()?;
        Ok(value)
    }
}

fn read(tx: &NodeTx<'_>, at: usize) -> tx::Result<u64> {
    tx.read(PPtr::<u64>::from_raw(pointer::<u64>(objects()[at]).raw())).copied()
}

fn is_conflict<T: std::fmt::Debug>(result: tx::Result<T>) -> bool {
    matches!(result, Err(tx::Error::Conflict { .. }))
}

fn is_elsewhere<T: std::fmt::Debug>(result: tx::Result<T>) -> bool {
    let Err(tx::Error::Engine { source, .. }) = result else { return false };
    matches!(source.downcast_ref::<crate::Error>(), Some(crate::Error::NotHead))
}

#[test]
fn a_tail_reads_what_it_has_executed() {
    let tail = Member::tail(NONE);
    assert_eq!(tail.look(0).unwrap(), 0);
    assert!(tail.node.status().reads && tail.node.status().is_tail());
    tail.records(B, vec![record(2, [Some(5), None]), record(3, [None, Some(6)])]);
    tail.node.pump(false);
    let seen = tail.node.transact(Strict, |tx| -> tx::Result<_> {
        let cell = *tx.read(tx.root_cell())?;
        assert_eq!(cell, objects().map(|at| pointer::<u64>(at).raw()));
        Ok((read(tx, 0)?, read(tx, 1)?))
    });
    assert_eq!(seen.unwrap(), (5, 6));
}

/// Without a retry: what it was asked for it never does.
#[test]
fn a_tail_changes_nothing() {
    let tail = Member::tail(NONE);
    let at = PPtr::<u64>::from_raw(pointer::<u64>(objects()[0]).raw());
    let mut tries = 0;
    let changed = tail.node.transact(Strict, |tx| {
        tries += 1;
        *tx.write(at)? += 1;
        Ok(())
    });
    assert!(is_elsewhere::<()>(changed));
    assert!(is_elsewhere(tail.node.transact(Strict, |tx| tx.alloc(&7u64))));
    assert!(is_elsewhere(tail.node.transact(Strict, |tx| tx.free(at))));
    assert_eq!((tries, tail.look(0).unwrap()), (1, 0));
    assert!(tail.node.is_idle());
}

#[test]
fn a_member_in_the_middle_reads_nothing() {
    let middle = Member::middle(NONE);
    assert!(is_elsewhere(middle.look(0)) && !middle.node.status().reads);
    assert!(is_elsewhere(middle.node.transact(Strict, |tx| tx.read(tx.root_cell()).copied())));
}

#[test]
fn a_read_at_the_tail_costs_no_barrier_and_no_message() {
    let tail = Member::tail(NONE);
    let (said, drains) = (tail.outside.0.load(SeqCst), tail.node.stats().drains);
    for _ in 0..100 {
        tail.node.transact(Strict, |tx| -> tx::Result<_> { Ok((read(tx, 0)?, read(tx, 1)?)) }).unwrap();
        assert!(tail.node.is_idle());
        tail.node.pump(false);
    }
    assert_eq!((tail.outside.0.load(SeqCst), tail.node.stats().drains), (said, drains));
}

/// A reader that takes its time does not hold up the chain.
#[test]
fn a_record_does_not_wait_for_readers() {
    let tail = Member::tail(NONE);
    let slow = tail.begin();
    assert_eq!(read(&slow, 0).unwrap(), 0);
    tail.records(B, vec![record(2, [Some(5), None])]);
    tail.node.pump(false);
    assert_eq!(tail.node.status().progress.executed, 2);
    assert_eq!(read(&slow, 0).unwrap(), 0, "what it has seen stays as it was");
    assert!(is_conflict(slow.commit()), "and is not told");
    assert_eq!(tail.look(0).unwrap(), 5);
    // What it has not read does not matter.
    let other = tail.begin();
    assert_eq!(read(&other, 1).unwrap(), 0);
    tail.records(B, vec![record(3, [Some(6), None])]);
    tail.node.pump(false);
    assert_eq!(read(&other, 0).unwrap(), 6);
    other.commit().unwrap();
}

#[test]
fn what_is_read_is_of_one_moment() {
    rule(Step::ReadOneMoment, |failpoints| {
        let tail = Member::tail(failpoints);
        let reader = tail.begin();
        assert_eq!(read(&reader, 0).unwrap(), 0);
        tail.records(B, vec![record(2, [Some(5), Some(5)])]);
        tail.node.pump(false);
        let second = read(&reader, 1);
        let told = second.is_ok() && reader.commit().is_ok();
        is_conflict(second) && !told
    });
}

/// The record is on its way into the heap: its half is not seen.
#[test]
fn a_record_is_seen_whole() {
    rule(Step::BarReaders, |failpoints| {
        let tail = Member::tail(failpoints);
        tail.records(B, vec![record(2, [Some(5), Some(5)])]);
        tail.node.pump_once();
        assert_eq!(tail.node.status().progress.executed, 1);
        let reader = tail.begin();
        let first = read(&reader, 0);
        tail.node.pump(false);
        let told = read(&reader, 1).and_then(|second| reader.commit().map(|()| second));
        is_conflict(first) && told.is_err()
    });
}

#[test]
fn a_lease_that_ends_while_it_is_read_refuses_the_read() {
    rule(Step::LeaseAfterReading, |failpoints| {
        let tail = Member::tail(failpoints);
        let reader = tail.begin();
        assert_eq!(read(&reader, 0).unwrap(), 0);
        tail.node.set_now(LEASE);
        assert!(is_elsewhere(tail.look(0)) && !tail.node.status().reads);
        is_elsewhere(reader.commit())
    });
}

#[test]
fn a_new_tail_reads_when_it_has_executed_what_it_has() {
    rule(Step::ExecuteBeforeReading, |failpoints| {
        let tail = Member::middle(failpoints);
        tail.records(A, vec![record(2, [None, Some(5)]), record(3, [Some(5), None])]);
        tail.install(&view(2, &[A, B]));
        tail.event(Event::LeasesEnded(ViewId(2)));
        let early = tail.look(0);
        tail.node.pump(false);
        is_elsewhere(early) && tail.look(0).unwrap() == 5
    });
}

#[test]
fn a_new_tail_reads_when_earlier_leases_have_ended() {
    rule(Step::AwaitLeases, |failpoints| {
        let tail = Member::middle(failpoints);
        tail.install(&view(2, &[A, B]));
        let early = tail.look(0);
        tail.event(Event::LeasesEnded(ViewId(2)));
        is_elsewhere(early) && tail.look(0).unwrap() == 0
    });
}

/// The new tail may serve already.
#[test]
fn a_tail_that_has_proposed_another_one_reads_nothing() {
    rule(Step::NoReadsDuringProposal, |failpoints| {
        let tail = Member::tail(failpoints);
        let reader = tail.begin();
        assert_eq!(read(&reader, 0).unwrap(), 0);
        tail.hear(J, Body::Join);
        tail.hear(J, Body::Have(1));
        is_elsewhere(reader.commit()) && is_elsewhere(tail.look(0))
    });
}

/// What it has read is of the view that it began in: in the next one this may be the head.
#[test]
fn a_transaction_of_an_earlier_view_is_run_again() {
    let tail = Member::tail(NONE);
    let reader = tail.begin();
    assert_eq!(read(&reader, 0).unwrap(), 0);
    tail.install(&view(2, &[C]));
    tail.event(Event::LeasesEnded(ViewId(2)));
    tail.node.pump(false);
    assert!(is_conflict(reader.commit()));
    assert_eq!(tail.look(0).unwrap(), 0);
}

/// A head is taken out while a transaction of it has read, and its machine comes back as the tail.
#[test]
fn what_a_head_has_read_is_not_told_by_the_tail_that_it_has_become() {
    rule(Step::ReadOneCopy, |failpoints| {
        let image = {
            let other = Member::tail(NONE);
            other.records(B, vec![record(2, [Some(5), None])]);
            other.node.pump(false);
            other.node.copy()
        };
        let machine = Member::start(A, &view(1, &[A, B]), failpoints);
        let reader = machine.begin();
        assert_eq!(reader.read(reader.root_cell()).unwrap(), &[0, 0]);
        machine.install(&view(2, &[B]));
        machine.node.pump(false);
        machine.hear(B, Body::Part { through: 2, part: 0, last: true, image });
        machine.node.pump(false);
        let id = machine.node.status().id;
        assert_eq!((id.machine, id.incarnation), (A.machine, A.incarnation + 1));
        machine.install(&view(3, &[B, id]));
        machine.event(Event::Lease { id, until: LEASE });
        machine.event(Event::LeasesEnded(ViewId(3)));
        machine.node.pump(false);
        assert_eq!(machine.look(0).unwrap(), 5);
        is_elsewhere(reader.commit())
    });
}
