//! What is under the one lock: the state machine, what is to be done, and which threads wait for what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ticket::{Lost, Ticket};
use crate::failpoints::{Failpoints, Step};
use crate::{Command, Entry, Error, Event, Moment, Object, ReadId, Refusal, Replica, Result, TransactionId, ViewId};

/// For the medium, or the outside.
#[derive(Debug)]
pub(crate) enum Work {
    Command(Command),
    /// Of a transaction of this head.
    Commit(Entry, Vec<u8>),
}

/// What was said at once to an event of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No(Refusal),
}

impl Work {
    fn queue_bytes(&self) -> u64 {
        match self {
            Self::Commit(entry, bytes) => queue_bytes(entry, bytes.len() as u64),
            Self::Command(Command::Append(record)) => queue_bytes(&record.entry, record.bytes.len() as u64),
            Self::Command(_) => 0,
        }
    }
}

impl Batch {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[derive(Debug)]
struct Running {
    thread: usize,
    /// Locked at the head, read at the tail.
    objects: BTreeSet<u64>,
    at_tail: Option<AtTail>,
}

/// A transaction at the tail locks nothing, so that no record waits for it: a record that writes what it has read overtakes it, and it is run again.
#[derive(Debug)]
struct AtTail {
    /// In which it began.
    view: ViewId,
    overtaken: bool,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) replica: Replica,
    pub(crate) work: VecDeque<Work>,
    pub(crate) stopped: Option<String>,
    /// How often the copy was voided: what the medium says of an earlier one is no event.
    epoch: u64,
    next: u64,
    running: BTreeMap<TransactionId, Running>,
    /// What a transaction has written, while it draws its number.
    writing: Option<(Vec<u8>, Ticket)>,
    tickets: BTreeMap<u64, Ticket>,
    /// The blocks are those of all records so far, and this head's alone to give.
    allocates_in: Option<ViewId>,
    answer: Option<Answer>,
    /// Bytes of records in the medium's queue, and of those on their way there.
    queued: u64,
    on_the_way: u64,
    failpoints: Failpoints,
}

/// What is to be done, and what is needed to say later that it is.
pub(crate) struct Batch {
    pub(crate) work: VecDeque<Work>,
    /// Of which copy what happens by it is.
    pub(crate) epoch: u64,
    bytes: u64,
}

/// What a record takes in the queue, at most.
pub(crate) fn queue_bytes(entry: &Entry, bytes: u64) -> u64 {
    256 + 8 * entry.objects.len() as u64 + bytes
}

impl Core {
    pub(crate) fn new(replica: Replica, commands: Vec<Command>, queued: u64, failpoints: Failpoints) -> Self {
        Self {
            replica,
            epoch: commands.iter().filter(|command| matches!(command, Command::Void(_))).count() as u64,
            work: commands.into_iter().map(Work::Command).collect(),
            stopped: None,
            next: 0,
            running: BTreeMap::new(),
            writing: None,
            tickets: BTreeMap::new(),
            allocates_in: None,
            answer: None,
            queued,
            on_the_way: 0,
            failpoints,
        }
    }

    pub(crate) fn check_runs(&self) -> Result<()> {
        match &self.stopped {
            Some(why) => Err(Error::Stopped { why: why.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn stop(&mut self, why: &str) {
        self.stopped.get_or_insert_with(|| why.to_owned());
        self.work.clear();
        self.lose(|_| Lost::Stopped(why.to_owned()));
    }

    fn lose(&mut self, why: impl Fn(u64) -> Lost) {
        for (n, ticket) in std::mem::take(&mut self.tickets) {
            ticket.tell(Err(why(n)));
        }
    }

    pub(crate) fn take_work(&mut self) -> Batch {
        let voids = self.work.iter().filter(|work| matches!(work, Work::Command(Command::Void(_)))).count() as u64;
        let work = std::mem::take(&mut self.work);
        Batch { bytes: work.iter().map(Work::queue_bytes).sum(), work, epoch: self.epoch - voids }
    }

    /// What happened by a batch of so many bytes of records. False: it has stopped.
    pub(crate) fn happened(&mut self, now: Moment, epoch: u64, bytes: u64, queued: u64, events: Vec<Event>) -> bool {
        if self.stopped.is_some() {
            return false;
        }
        (self.on_the_way, self.queued) = (self.on_the_way - bytes, queued);
        for event in events {
            if epoch == self.epoch {
                self.step(now, event);
            }
        }
        true
    }

    /// So many bytes of records fit into a queue that takes `max`.
    pub(crate) fn has_room(&self, bytes: u64, max: u64) -> bool {
        self.queued + self.on_the_way + bytes <= max
    }

    fn push(&mut self, work: Work) {
        self.on_the_way += work.queue_bytes();
        self.work.push_back(work);
    }

    pub(crate) fn step(&mut self, now: Moment, event: Event) -> Option<Answer> {
        self.answer = None;
        for command in self.replica.step(now, event) {
            self.sort(command);
        }
        let progress = self.replica.progress();
        if progress.executed == progress.last {
            let head = self.replica.serves().filter(|view| view.head() == Some(self.replica.id()));
            self.allocates_in = head.map(|view| view.id).or(self.allocates_in);
        }
        self.answer
    }

    fn sort(&mut self, command: Command) {
        match command {
            Command::Locked(_) | Command::Read(_) | Command::Answer(_) => self.answer = Some(Answer::Yes),
            Command::Refused(_, why) | Command::RefusedRead(_, why) => self.answer = Some(Answer::No(why)),
            Command::Commit(_, entry) => {
                if let Some((bytes, ticket)) = self.writing.take() {
                    self.tickets.insert(entry.number.n, ticket);
                    self.push(Work::Commit(entry, bytes));
                }
                self.answer = Some(Answer::Yes);
            }
            Command::Acknowledged(through) => {
                let rest = self.tickets.split_off(&(through + 1));
                std::mem::replace(&mut self.tickets, rest).into_values().for_each(|ticket| ticket.tell(Ok(())));
            }
            Command::Void(id) => {
                self.epoch += 1;
                self.allocates_in = None;
                self.lose(Lost::Removed);
                self.push(Work::Command(Command::Void(id)));
            }
            Command::Execute(n) => {
                self.overtake(n);
                self.push(Work::Command(Command::Execute(n)));
            }
            command => self.push(Work::Command(command)),
        }
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    pub(crate) fn begin(&mut self, thread: usize) -> TransactionId {
        self.next += 1;
        let transaction = TransactionId(self.next);
        let id = self.replica.id();
        let tail = self.replica.serves().filter(|view| view.tail() == Some(id) && view.head() != Some(id));
        let at_tail = tail.map(|view| AtTail { view: view.id, overtaken: false });
        self.running.insert(transaction, Running { thread, objects: BTreeSet::new(), at_tail });
        transaction
    }

    pub(crate) fn is_at_tail(&self, transaction: TransactionId) -> bool {
        self.running.get(&transaction).is_some_and(|running| running.at_tail.is_some())
    }

    /// The view in which blocks may be given to transactions.
    pub(crate) fn allocates_in(&self) -> Option<ViewId> {
        let view = self.replica.serves().map(|view| view.id);
        self.allocates_in.filter(|_| view == self.allocates_in)
    }

    /// Of which copy the blocks are.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn lock(&mut self, now: Moment, of: TransactionId, object: u64, write: bool) -> tx::Result<()> {
        self.check_runs()?;
        if self.is_at_tail(of) {
            return if write { Err(Error::NotHead.into()) } else { self.see(now, of, object) };
        }
        let (reads, writes) = if write { (vec![], vec![Object(object)]) } else { (vec![Object(object)], vec![]) };
        match self.step(now, Event::Lock { transaction: of, slot: 0, reads, writes }) {
            Some(Answer::Yes) => {
                if let Some(running) = self.running.get_mut(&of) {
                    running.objects.insert(object);
                }
                Ok(())
            }
            Some(Answer::No(Refusal::Pending)) if self.is_own(of, object) => {
                Err(tx::Error::OwnConflict { offset: object })
            }
            Some(Answer::No(why)) => Err(crate::error::refused(why, object)),
            None => Err(crate::error::refused(Refusal::NotHere, object)),
        }
    }

    /// Another transaction of its thread has the object.
    fn is_own(&self, of: TransactionId, object: u64) -> bool {
        let thread = self.running.get(&of).map(|running| running.thread);
        self.running
            .iter()
            .any(|(id, other)| *id != of && Some(other.thread) == thread && other.objects.contains(&object))
    }

    pub(crate) fn abort(&mut self, now: Moment, transaction: TransactionId) {
        if self.running.remove(&transaction).is_some() {
            self.step(now, Event::Abort(transaction));
        }
    }

    /// Draws its number: it is committed, unless there is an error.
    pub(crate) fn commit(&mut self, now: Moment, transaction: TransactionId, bytes: Vec<u8>) -> Result<Ticket> {
        self.check_runs()?;
        let ticket = Ticket::default();
        self.writing = Some((bytes, ticket.clone()));
        let answer = self.step(now, Event::Commit(transaction));
        self.writing = None;
        match answer {
            Some(Answer::Yes) => {
                self.running.remove(&transaction);
                Ok(ticket)
            }
            _ => Err(Error::NotHead),
        }
    }

    // ---- reads ------------------------------------------------------------------------------------------------

    /// At the tail: from now on until [`check_seen`](Self::check_seen) a record that writes the object is noticed. It is copied in between.
    fn see(&mut self, now: Moment, of: TransactionId, object: u64) -> tx::Result<()> {
        self.check_seen(of, object)?;
        self.read(now, vec![Object(object)]).map_err(|why| crate::error::refused(why, object))?;
        if let Some(running) = self.running.get_mut(&of) {
            running.objects.insert(object);
        }
        Ok(())
    }

    /// Record `n` is about to be executed: no transaction sees what was before it together with what is behind it.
    fn overtake(&mut self, n: u64) {
        let objects = self.replica.objects_of(n);
        for running in self.running.values_mut() {
            if let Some(at_tail) = &mut running.at_tail {
                at_tail.overtaken |= objects.iter().any(|object| running.objects.contains(&object.0));
            }
        }
    }

    /// All that a transaction at the tail has read is as it is now. At the head locks see to that.
    pub(crate) fn check_seen(&self, of: TransactionId, offset: u64) -> tx::Result<()> {
        let Some(at_tail) = self.running.get(&of).and_then(|running| running.at_tail.as_ref()) else { return Ok(()) };
        // In another view it may be the head, whose transactions are executed in another way.
        let is_same = self.replica.serves().is_some_and(|view| view.id == at_tail.view);
        let overtaken = at_tail.overtaken && !self.failpoints.skips(Step::ReadOneMoment);
        if is_same && !overtaken { Ok(()) } else { Err(tx::Error::Conflict { offset }) }
    }

    /// What a transaction on this copy has read is so, as clients may see it: the lease still holds.
    pub(crate) fn has_read(
        &mut self,
        now: Moment,
        of: TransactionId,
        epoch: u64,
        objects: Vec<Object>,
    ) -> tx::Result<()> {
        self.check_runs()?;
        let offset = objects.first().map_or(0, |object| object.0);
        // The next copy of this machine may be the tail's.
        if self.epoch != epoch && !self.failpoints.skips(Step::ReadOneCopy) {
            return Err(Error::NotHead.into());
        }
        self.check_seen(of, offset)?;
        if self.failpoints.skips(Step::LeaseAfterReading) {
            return Ok(());
        }
        self.read(now, objects).map_err(|why| crate::error::refused(why, offset))
    }

    /// Both events of a read, with nothing in between: what is read was copied before, or is noticed if it changes.
    fn read(&mut self, now: Moment, objects: Vec<Object>) -> Result<(), Refusal> {
        self.next += 1;
        let read = ReadId(self.next);
        let begun = self.step(now, Event::Read { read, objects });
        let answer = if begun == Some(Answer::Yes) { self.step(now, Event::HasRead(read)) } else { begun };
        match answer {
            Some(Answer::Yes) => Ok(()),
            Some(Answer::No(why)) => Err(why),
            None => Err(Refusal::NotHere),
        }
    }
}
