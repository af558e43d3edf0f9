//! What is under the one lock: the state machine, what is to be done, and which threads wait for what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ticket::{Lost, Ticket};
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
    objects: BTreeSet<u64>,
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
    pub(crate) fn new(replica: Replica, commands: Vec<Command>, queued: u64) -> Self {
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
            command => self.push(Work::Command(command)),
        }
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    pub(crate) fn begin(&mut self, thread: usize) -> TransactionId {
        self.next += 1;
        let transaction = TransactionId(self.next);
        self.running.insert(transaction, Running { thread, objects: BTreeSet::new() });
        transaction
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

    /// What a transaction has locked and read was so, as clients may see it: the lease still holds.
    pub(crate) fn has_read(&mut self, now: Moment, objects: Vec<Object>) -> Result<()> {
        self.check_runs()?;
        self.next += 1;
        let read = ReadId(self.next);
        let begun = self.step(now, Event::Read { read, objects });
        let ended = (begun == Some(Answer::Yes)).then(|| self.step(now, Event::HasRead(read)));
        if ended == Some(Some(Answer::Yes)) { Ok(()) } else { Err(Error::NotHead) }
    }
}
