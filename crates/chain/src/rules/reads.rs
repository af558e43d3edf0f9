//! Reads without a round trip.

use super::{A, B, Bench, C, J, X, Y, record, rule, view};
use crate::failpoints::Step;
use crate::{Body, Command, Event, Object, ReadId};

const READ: ReadId = ReadId(1);

impl Bench {
    /// True if it may be read.
    fn read(&mut self, object: Object) -> bool {
        self.step(Event::Read { read: READ, objects: vec![object] }).contains(&Command::Read(READ))
    }

    /// True if what was read may be told.
    fn has_read(&mut self) -> bool {
        self.step(Event::HasRead(READ)).contains(&Command::Answer(READ))
    }
}

#[test]
fn a_lease_that_ends_while_it_is_read_refuses_the_read() {
    for id in [A, C] {
        rule(Step::LeaseAfterReading, |failpoints| {
            let mut replica = Bench::member(id, failpoints);
            assert!(replica.read(X) && replica.has_read());
            assert!(replica.read(X));
            replica.lease_ends();
            !replica.has_read() && !replica.read(X)
        });
    }
}

#[test]
fn the_head_reads_what_is_not_in_flight() {
    rule(Step::CleanReads, |failpoints| {
        let mut a = Bench::member(A, failpoints);
        assert!(a.lock(1, 0, &[], &[X]));
        a.commit(1, 1);
        !a.read(X) && a.read(Y)
    });
}

#[test]
fn a_reader_at_the_head_keeps_writers_out() {
    let mut a = Bench::member(A, crate::failpoints::Failpoints(None));
    assert!(a.read(X));
    assert!(!a.lock(1, 0, &[], &[X]));
    assert!(a.has_read());
    assert!(a.lock(2, 0, &[], &[X]));
}

/// The tail before may have acknowledged what this one has not executed.
#[test]
fn a_new_tail_reads_when_it_has_executed_what_it_has() {
    rule(Step::ExecuteBeforeReading, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        b.hear(A, Body::Records(vec![record(1, Y), record(2, X)]));
        b.barrier();
        b.install(&view(2, &[A, B]));
        b.step(Event::LeasesEnded(crate::ViewId(2)));
        let early = b.read(X);
        b.run();
        !early && b.read(X)
    });
}

/// The tail before may still read, and has not executed what this one shows.
#[test]
fn a_new_tail_reads_when_earlier_leases_have_ended() {
    rule(Step::AwaitLeases, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        b.install(&view(2, &[A, B]));
        let early = b.read(X);
        b.step(Event::LeasesEnded(crate::ViewId(2)));
        !early && b.read(X)
    });
}

#[test]
fn a_record_is_seen_whole() {
    rule(Step::BarReaders, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(B, Body::Records(vec![record(1, X)]));
        c.barrier();
        let half = c.read(X);
        let other = c.read(Y);
        !half && other
    });
    rule(Step::BarReaders, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        assert!(c.read(X));
        c.hear(B, Body::Records(vec![record(1, X)]));
        let meanwhile = c.barrier().contains(&Command::Execute(1));
        !meanwhile && c.step(Event::HasRead(READ)).contains(&Command::Execute(1))
    });
}

/// The new tail may serve already.
#[test]
fn a_tail_that_has_proposed_another_one_reads_nothing() {
    rule(Step::NoReadsDuringProposal, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        assert!(c.read(X));
        c.hear(J, Body::Join);
        c.hear(J, Body::Have(0));
        !c.has_read() && !c.read(X)
    });
}

#[test]
fn a_replica_in_the_middle_reads_nothing() {
    let mut b = Bench::member(B, crate::failpoints::Failpoints(None));
    assert!(!b.read(X));
}

/// A lease is of a copy: not of the one that was there before on the same machine.
#[test]
fn a_lease_of_another_copy_is_none() {
    let mut c = Bench::start(crate::Found::new(C), crate::failpoints::Failpoints(None));
    c.install(&view(1, &[A, B, C]));
    c.barrier();
    c.step(Event::Recovered);
    c.run();
    c.step(Event::LeasesEnded(crate::ViewId(1)));
    c.step(Event::Lease { id: J, until: crate::Moment(1000) });
    assert!(!c.read(X));
    c.step(Event::Lease { id: C, until: crate::Moment(1000) });
    assert!(c.read(X));
}
