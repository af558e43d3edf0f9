//! One replica of the chain: a state machine without clock, network, medium or heap.

mod head;
mod joining;
mod reading;
mod records;
mod start;
mod views;

use std::collections::{BTreeMap, VecDeque};

use crate::failpoints::{Failpoints, Step};
use crate::locks::Locks;
use crate::queue::Queue;
use crate::{Barrier, Body, Command, Event, Found, Message, Moment, Object, ReadId, ReplicaId, View, ViewId};

/// A record is taken while fewer than this many are not retired. A queue on a medium needs room for twice as many: as many again may be retired here, and the note of it not be persistent yet.
pub const QUEUE_MAX: usize = if cfg!(test) { 24 } else { 1024 };
/// Transactions at the head that run or are in flight: it locks nothing for another one.
pub const IN_FLIGHT_MAX: usize = if cfg!(test) { 8 } else { 256 };
/// Records of one message.
const SHIP_MAX: u64 = if cfg!(test) { 3 } else { 32 };

/// What a replica is doing, for callers that look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It does not know the view yet; or it is no member, and waits for the tail's word whether it may become one.
    Starting,
    /// It carries out what it has found.
    Recovering,
    /// It is a member.
    Serving,
    /// It gives up a copy that counts no more.
    Voiding,
    /// It has no copy, and asks to be let in.
    Void,
    /// It gets an image, or has one that becomes persistent.
    Restoring,
    /// Its copy is whole; it catches up.
    Joining,
}

/// What a replica is doing.
#[derive(Debug)]
enum Status {
    /// It asks for the view; if it is not a member, the tail, whether it may become one.
    Starting(Vec<crate::Entry>),
    /// What it has found becomes what the heap is.
    Recovering,
    /// It is a member.
    Serving,
    /// It notes that its copy is nothing, then erases it.
    Voiding,
    /// It asks to be let in.
    Void,
    /// It gets parts of an image from this tail, and all records behind the first part.
    Copying { source: ReplicaId, parts: u32, all: bool, needed: u64 },
    /// It has an image, which becomes persistent.
    Restoring { source: ReplicaId },
    /// Its copy is whole, and not one of the chain's; it takes records from this tail.
    Joining { source: ReplicaId },
}

/// What is persistent behind a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covers {
    Effects,
    Appended(u64),
    Skip(u64),
    Applied(u64),
    Retired(u64),
    Found,
    VoidNote,
    Erased,
    Restored,
    Whole,
}

/// One that joins, at the tail.
#[derive(Debug)]
struct Join {
    id: ReplicaId,
    /// It gets all records behind this one: the first part of its image has their effects; none: it was sent no part yet.
    first: Option<u64>,
    /// It has said that it is whole.
    whole: bool,
    /// It has all records through here, persistently, as it said.
    records: u64,
    /// ... and these take no room there any more.
    retired: u64,
    /// It waits for this part.
    wanted: Option<u32>,
    /// It has those before this one.
    parts: u32,
    /// This one was sent last, and so many ticks ago.
    sent: (u32, u32),
    /// Ticks since it was heard of first, or has said that it has more.
    quiet: u32,
}

#[derive(Debug)]
struct Reading {
    view: ViewId,
    at_head: bool,
    objects: Vec<Object>,
}

/// A replica. [`step`](Self::step) takes an event and says what is to be done.
#[derive(Debug)]
pub struct Replica {
    id: ReplicaId,
    now: Moment,
    status: Status,
    /// The newest that is known.
    view: Option<View>,
    queue: Queue,
    /// Forwarded, or in the hands of those behind, through here.
    sent: u64,
    /// This number was asked for when a later one came.
    asked: u64,
    /// The record that is being executed.
    executing: Option<u64>,
    next_barrier: u64,
    /// With each, through where the effects are written before it.
    barriers: VecDeque<(Barrier, Covers, u64)>,
    lease: Moment,
    /// Leases of members of earlier views have ended.
    leases_ended: bool,
    /// What was proposed by this tail, and may be carried out.
    proposed: Option<ViewId>,
    join: Option<Join>,
    /// Of each machine, the incarnation that does not join in this view any more, nor do earlier ones.
    refused: BTreeMap<u32, u32>,
    reads: BTreeMap<ReadId, Reading>,
    /// A tail reads when it has executed through here.
    read_from: u64,

    // ---- head
    locks: Locks,
    /// Applying, and applied, through here.
    applying: u64,
    applied: u64,
    retiring: u64,

    failpoints: Failpoints,
    out: Vec<Command>,
}

impl Replica {
    /// A process starts on what it has found; what is to be done first.
    #[must_use]
    pub fn start(found: Found) -> (Self, Vec<Command>) {
        Self::start_without(found, Failpoints::default())
    }

    pub(crate) fn start_without(found: Found, failpoints: Failpoints) -> (Self, Vec<Command>) {
        let (retired, has_entries) = (found.retired, !found.entries.is_empty());
        let mut replica = Self {
            id: found.id,
            now: Moment(0),
            status: Status::Starting(found.entries),
            view: None,
            queue: Queue::new(retired),
            sent: retired,
            asked: 0,
            executing: None,
            next_barrier: 0,
            barriers: VecDeque::new(),
            lease: Moment(0),
            leases_ended: false,
            proposed: None,
            join: None,
            refused: BTreeMap::new(),
            reads: BTreeMap::new(),
            read_from: 0,
            locks: Locks::new(failpoints),
            applying: retired,
            applied: retired,
            retiring: retired,
            failpoints,
            out: Vec::new(),
        };
        let half = found.retired > 0 || has_entries;
        if found.whole {
            replica.out.push(Command::FetchView);
        } else if half && !failpoints.skips(Step::VoidHalf) {
            replica.void(); // its records are none of the next copy's
        } else {
            replica.erase();
        }
        let commands = std::mem::take(&mut replica.out);
        (replica, commands)
    }

    /// Takes an event; what is to be done, in order. `now` is when it is taken, by the machine's own clock.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Command> {
        self.now = self.now.max(now);
        match event {
            Event::Tick => self.tick(),
            Event::Message(message) => self.message(message),
            Event::Persisted(barrier) => self.persisted(barrier),
            Event::Executed(n) => self.executed(n),
            Event::View(view) => self.seen(view),
            Event::Proposed { proposal, view } => {
                if self.proposed.is_some_and(|base| base.0 + 1 == proposal.0) {
                    self.proposed = None;
                }
                self.seen(view);
            }
            Event::Lease { id, until } if id == self.id => self.lease = self.lease.max(until),
            Event::Lease { .. } => {}
            Event::Lapsed(id) => self.lapsed(id),
            Event::LeasesEnded(view) => {
                if self.view.as_ref().is_some_and(|known| known.id == view) {
                    self.leases_ended = true;
                }
            }
            Event::Lock { transaction, slot, reads, writes } => self.lock(transaction, slot, &reads, &writes),
            Event::Abort(transaction) => self.locks.abort(transaction),
            Event::Commit(transaction) => self.commit(transaction),
            Event::Committed(n) => self.queue.set_persistent(n),
            Event::CommitFailed(n) => self.commit_failed(n),
            Event::Read { read, objects } => self.read(read, objects),
            Event::HasRead(read) => self.has_read(read),
            Event::Recovered => self.has_recovered(),
        }
        self.advance();
        std::mem::take(&mut self.out)
    }

    /// Whose copy it is.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// The newest view it knows, if it is a member that serves.
    #[must_use]
    pub fn serves(&self) -> Option<&View> {
        self.view.as_ref().filter(|_| matches!(self.status, Status::Serving))
    }

    /// What it is doing.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.status {
            Status::Starting(_) => Stage::Starting,
            Status::Recovering => Stage::Recovering,
            Status::Serving => Stage::Serving,
            Status::Voiding => Stage::Voiding,
            Status::Void => Stage::Void,
            Status::Copying { .. } | Status::Restoring { .. } => Stage::Restoring,
            Status::Joining { .. } => Stage::Joining,
        }
    }

    /// At the tail: the replica that joins behind it.
    #[must_use]
    pub fn joiner(&self) -> Option<ReplicaId> {
        self.join.as_ref().map(|join| join.id)
    }

    /// True if its lease holds at this moment of its machine's clock: only then it is read from.
    #[must_use]
    pub fn holds_lease(&self, now: Moment) -> bool {
        now < self.lease
    }

    /// What a record of the queue writes.
    pub(crate) fn objects_of(&self, n: u64) -> &[Object] {
        self.queue.entry(n).map_or(&[], |entry| &entry.objects)
    }

    /// Through which number records are in the queue, executed, acknowledged, and retired.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let queue = &self.queue;
        Progress {
            last: queue.last(),
            executed: queue.executed(),
            acknowledged: queue.acknowledged,
            retired: queue.retired(),
        }
    }

    /// Whatever can be done is done: each part looks at the state alone, so that nothing depends on which event came last.
    fn advance(&mut self) {
        match self.status {
            Status::Serving | Status::Joining { .. } => {}
            Status::Copying { .. } => return self.advance_copy(),
            _ => return,
        }
        self.forward();
        // A part of an image finds a moment between two records, even if the next one is ready.
        self.acknowledge();
        self.ship_part();
        self.execute();
        self.acknowledge();
        self.apply();
        self.retire();
    }

    fn tick(&mut self) {
        match &self.status {
            Status::Starting(_) | Status::Void => {
                self.out.push(Command::FetchView);
                self.ask_to_join();
            }
            Status::Joining { .. } => {
                self.out.push(Command::FetchView);
                self.say_have();
            }
            Status::Serving => {
                self.say_again();
                self.watch_joiner();
            }
            Status::Copying { .. } => {
                self.out.push(Command::FetchView);
                self.say_copied();
            }
            Status::Recovering | Status::Voiding | Status::Restoring { .. } => {}
        }
    }

    fn message(&mut self, message: Message) {
        let Some(view) = self.view.as_ref().map(|view| view.id) else { return };
        if message.to != self.id {
            return;
        }
        if message.view != view && !self.failpoints.skips(Step::RefuseOldViews) {
            if message.view > view {
                self.out.push(Command::FetchView);
            }
            return;
        }
        let Message { from, body, .. } = message;
        match body {
            Body::Records(records) => self.take(from, records),
            Body::Have(through) => self.heard_have(from, through),
            Body::Acknowledged(through) => self.heard_acknowledged(from, through),
            Body::CleanUp(through) => self.heard_clean_up(from, through),
            Body::Join => self.heard_join(from),
            Body::Restarted => self.refuse(from),
            Body::Refused => self.is_refused(from),
            Body::Part { through, part, last, image } => self.take_part(from, (part, last), through, image),
            Body::Copied { part, through, retired } => self.heard_copied(from, part, through, retired),
        }
    }

    fn persisted(&mut self, barrier: Barrier) {
        while let Some((_, covers, executed)) = self.barriers.pop_front_if(|(first, ..)| *first <= barrier) {
            self.queue.flushed = self.queue.flushed.max(executed);
            match covers {
                Covers::Effects => {}
                Covers::Appended(n) => self.appended(n),
                Covers::Skip(n) => self.queue.set_persistent(n),
                Covers::Applied(n) => self.applied = self.applied.max(n),
                Covers::Retired(n) => self.retired(n),
                Covers::Found => self.redo(),
                Covers::VoidNote => self.erase(),
                Covers::Erased => self.status = Status::Void,
                Covers::Restored => self.restored(),
                Covers::Whole => self.is_whole(),
            }
        }
    }

    fn persist(&mut self, covers: Covers) {
        let barrier = Barrier(self.next_barrier);
        self.next_barrier += 1;
        self.barriers.push_back((barrier, covers, self.queue.executed()));
        self.out.push(Command::Persist(barrier));
    }

    fn send(&mut self, to: ReplicaId, body: Body) {
        let Some(view) = self.view.as_ref().map(|view| view.id) else { return };
        self.out.push(Command::Send(Message { view, from: self.id, to, body }));
    }

    // ---- roles ------------------------------------------------------------------------------------------------

    fn is_head(&self) -> bool {
        self.serves().is_some_and(|view| view.head() == Some(self.id))
    }

    fn is_tail(&self) -> bool {
        self.serves().is_some_and(|view| view.tail() == Some(self.id))
    }

    fn predecessor(&self) -> Option<ReplicaId> {
        self.serves().and_then(|view| view.predecessor(self.id))
    }

    fn successor(&self) -> Option<ReplicaId> {
        self.serves().and_then(|view| view.successor(self.id))
    }

    fn has_lease(&self) -> bool {
        self.now < self.lease
    }
}

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// In the queue.
    pub last: u64,
    /// In the heap.
    pub executed: u64,
    /// On every member, as far as is known here.
    pub acknowledged: u64,
    /// Out of the queue.
    pub retired: u64,
}
