//! Each rule of the protocol by itself: what one replica does in the situation that the rule is about, and that it does otherwise without the rule. What comes of that is for
//! `simulate` to show. Those about readers at the tail once more (`nodes`) as a transaction of a node meets them.

mod head;
mod nodes;
mod reads;
mod records;
mod starts;
mod views;

use std::collections::VecDeque;

use crate::failpoints::{Failpoints, Step};
use crate::{
    Barrier, Body, Command, Entry, Event, Found, Message, Mode, Moment, Number, Object, Record, Replica, ReplicaId,
    TransactionId, View, ViewId,
};

pub(super) const A: ReplicaId = ReplicaId { machine: 0, incarnation: 0 };
pub(super) const B: ReplicaId = ReplicaId { machine: 1, incarnation: 0 };
pub(super) const C: ReplicaId = ReplicaId { machine: 2, incarnation: 0 };
/// Joins.
pub(super) const J: ReplicaId = ReplicaId { machine: 3, incarnation: 1 };
pub(super) const X: Object = Object(1);
pub(super) const Y: Object = Object(2);
pub(super) const LEASE: Moment = Moment(1000);

pub(super) fn view(id: u64, members: &[ReplicaId]) -> View {
    View { id: ViewId(id), members: members.to_vec(), f: 3, mode: Mode::Values }
}

pub(super) fn entry(n: u64, object: Object) -> Entry {
    Entry { number: Number { view: ViewId(1), n }, objects: vec![object] }
}

pub(super) fn record(n: u64, object: Object) -> Record {
    Record { entry: entry(n, object), bytes: vec![n as u8] }
}

/// The scenario comes out right, and does not without the rule.
#[track_caller]
pub(super) fn rule(step: Step, scenario: impl Fn(Failpoints) -> bool) {
    assert!(scenario(Failpoints(None)), "{step:?} is not kept");
    assert!(!scenario(Failpoints(Some(step))), "without {step:?} nothing is different");
}

/// One replica, and what it waits for.
pub(super) struct Bench {
    replica: Replica,
    now: Moment,
    barriers: VecDeque<Barrier>,
    executions: VecDeque<u64>,
    view: ViewId,
}

impl Bench {
    pub(super) fn start(found: Found, failpoints: Failpoints) -> Self {
        let (replica, commands) = Replica::start_without(found, failpoints);
        let mut bench =
            Self { replica, now: Moment(1), barriers: VecDeque::new(), executions: VecDeque::new(), view: ViewId(0) };
        bench.note(&commands);
        bench
    }

    /// A member of the chain A, B, C that serves, with a lease, and nothing in its queue.
    pub(super) fn member(id: ReplicaId, failpoints: Failpoints) -> Self {
        Self::member_of(id, &view(1, &[A, B, C]), failpoints)
    }

    pub(super) fn member_of(id: ReplicaId, view: &View, failpoints: Failpoints) -> Self {
        let mut bench = Self::start(Found::new(id), failpoints);
        bench.install(view);
        bench.barrier();
        bench.step(Event::Recovered);
        bench.run();
        bench.step(Event::Lease { id, until: LEASE });
        bench.step(Event::LeasesEnded(view.id));
        bench
    }

    pub(super) fn install(&mut self, view: &View) -> Vec<Command> {
        self.view = view.id;
        self.step(Event::View(view.clone()))
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Command> {
        let commands = self.replica.step(self.now, event);
        self.note(&commands);
        commands
    }

    fn note(&mut self, commands: &[Command]) {
        for command in commands {
            match command {
                Command::Persist(barrier) => self.barriers.push_back(*barrier),
                Command::Execute(n) => self.executions.push_back(*n),
                _ => {}
            }
        }
    }

    pub(super) fn hear(&mut self, from: ReplicaId, body: Body) -> Vec<Command> {
        let (view, to) = (self.view, self.replica.id());
        self.step(Event::Message(Message { view, from, to, body }))
    }

    /// The oldest barrier is over.
    pub(super) fn barrier(&mut self) -> Vec<Command> {
        let barrier = self.barriers.pop_front().unwrap();
        self.step(Event::Persisted(barrier))
    }

    pub(super) fn execution(&mut self) -> Vec<Command> {
        let n = self.executions.pop_front().unwrap();
        self.step(Event::Executed(n))
    }

    /// All barriers are over, and executions, and what they lead to.
    pub(super) fn run(&mut self) -> Vec<Command> {
        let mut all = Vec::new();
        loop {
            if !self.barriers.is_empty() {
                all.extend(self.barrier());
            } else if !self.executions.is_empty() {
                all.extend(self.execution());
            } else {
                return all;
            }
        }
    }

    pub(super) fn lease_ends(&mut self) {
        self.now = LEASE;
    }

    // ---- at the head ------------------------------------------------------------------------------------------

    /// True if it may go on.
    pub(super) fn lock(&mut self, transaction: u64, slot: u32, reads: &[Object], writes: &[Object]) -> bool {
        let transaction = TransactionId(transaction);
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        let commands = self.step(Event::Lock { transaction, slot, reads, writes });
        commands.contains(&Command::Locked(transaction))
    }

    pub(super) fn commit(&mut self, transaction: u64, n: u64) -> Vec<Command> {
        self.step(Event::Commit(TransactionId(transaction)));
        self.step(Event::Committed(n))
    }
}

pub(super) fn ships(commands: &[Command], n: u64) -> bool {
    commands.iter().any(|command| matches!(command, Command::Ship { first, last, .. } if (*first..=*last).contains(&n)))
}

pub(super) fn says(commands: &[Command], wanted: &Body) -> bool {
    commands.iter().any(|command| matches!(command, Command::Send(message) if message.body == *wanted))
}

pub(super) fn retires(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Retire(_)))
}

pub(super) fn appends(commands: &[Command]) -> usize {
    commands.iter().filter(|command| matches!(command, Command::Append(_))).count()
}

pub(super) fn proposes(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Propose(_)))
}
