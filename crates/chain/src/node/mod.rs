//! A replica that runs: the state machine, its medium, and the threads that drive both.
//!
//! Events are taken under one lock, by the thread that has them; a transaction's are answered at once. What they command goes into a list, which one thread at a time
//! carries out on the medium, in order: all that is in it, then one barrier for all of it ([`Node::pump`]).

mod core;
mod engine;
mod ticket;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Condvar;
use pmem::sync::Mutex;

use self::core::{Core, Work};
pub use self::ticket::Ticket;
pub use self::transaction::NodeTx;
use crate::failpoints::Failpoints;
use crate::image::{Image, check, check_copy};
use crate::{
    Body, Command, Event, Found, Medium, Message, Mode, Moment, Object, Progress, Record, Replica, ReplicaId, Result,
    Stage, View, ViewId,
};

/// Where what a replica says and asks goes.
pub trait Outside: Send + Sync {
    /// To another replica; it may be lost.
    fn send(&self, message: Message);

    /// [`Command::FetchView`], [`Command::Propose`] or [`Command::AwaitLeases`], to be answered by an event.
    fn ask(&self, command: Command);
}

/// A chain of one has no other replica to talk to.
#[derive(Debug)]
struct NoOutside;

impl Outside for NoOutside {
    fn send(&self, _: Message) {}

    fn ask(&self, _: Command) {}
}

/// A replica's process.
pub struct Node {
    core: Mutex<Core>,
    medium: Mutex<Medium>,
    image: Arc<Mutex<Image>>,
    outside: Arc<dyn Outside>,
    /// Something is to be carried out, or it ends.
    work: Condvar,
    ends: AtomicBool,
    capacity: u64,
    queue_max: u64,
    record_max: u64,
    /// The thread that commits drives.
    alone: bool,
    /// In place of the machine's clock.
    fixed: Option<AtomicU64>,
    timeout: Duration,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Node {
    /// A chain of one, without threads: the thread that commits carries out what is to be done.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn alone(medium: Medium, found: Found) -> Result<Self> {
        let id = found.id;
        let fixed = Some(AtomicU64::new(1));
        let node = Self { alone: true, fixed, ..Self::new(medium, found, Arc::new(NoOutside), Failpoints::default()) };
        node.pump(false);
        let view = View { id: ViewId(1), members: vec![id], f: 0, mode: Mode::Values };
        for event in [Event::View(view), Event::Lease { id, until: Moment(u64::MAX) }, Event::LeasesEnded(ViewId(1))] {
            node.event(event)?;
            node.pump(false);
        }
        node.check_runs()?;
        Ok(node)
    }

    /// A member, or one to be. [`Node::drive`] is to be run by a thread.
    pub fn start(medium: Medium, found: Found, outside: Arc<dyn Outside>) -> Self {
        Self::new(medium, found, outside, Failpoints::default())
    }

    fn new(medium: Medium, found: Found, outside: Arc<dyn Outside>, failpoints: Failpoints) -> Self {
        let image = Arc::clone(medium.image());
        let capacity = image.lock().capacity();
        let (queue_max, record_max, queued) = (medium.queue_max(), medium.record_max(), medium.queued());
        let (replica, commands) = Replica::start_without(found, failpoints);
        Self {
            core: Mutex::new(Core::new(replica, commands, queued, failpoints)),
            medium: Mutex::new(medium),
            image,
            outside,
            work: Condvar::new(),
            ends: AtomicBool::new(false),
            capacity,
            queue_max,
            record_max,
            alone: false,
            fixed: None,
            timeout: Duration::from_secs(10),
        }
    }

    /// How long a commit waits for the tail's word. Ten seconds if nothing is said.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    // ---- what happens -----------------------------------------------------------------------------------------

    /// Something has happened outside.
    ///
    /// # Errors
    /// [`Error::Stopped`](crate::Error::Stopped).
    pub fn event(&self, event: Event) -> Result<()> {
        let mut core = self.core.lock();
        core.check_runs()?;
        core.step(self.now(), event);
        self.work.notify_one();
        Ok(())
    }

    /// A message has come. One that this replica cannot take now is as good as lost; it is sent again.
    ///
    /// # Errors
    /// [`Error::Record`](crate::Error::Record) of one that no member can have sent; as [`event`](Self::event).
    pub fn deliver(&self, message: Message) -> Result<()> {
        let bytes = match &message.body {
            Body::Records(records) => {
                records.iter().try_for_each(|record| check(&record.bytes, self.capacity))?;
                if records.iter().any(|record| self.size(record) > self.record_max) {
                    return Err(crate::Error::Record { why: "it is longer than this queue takes" });
                }
                records.iter().map(|record| self.size(record)).sum()
            }
            Body::Part { image, .. } => {
                check_copy(image, self.capacity)?;
                0
            }
            _ => 0,
        };
        if bytes > 0 && !self.core.lock().has_room(bytes, self.queue_max) {
            return Ok(());
        }
        self.event(Event::Message(message))
    }

    /// Bytes of the longest message that a replica of this size takes or sends: a part of the heap, or records that fit into its queue.
    #[cfg(feature = "process")]
    pub(crate) fn message_max(&self) -> usize {
        (2 * self.capacity.min(crate::image::PART) + 2 * self.queue_max) as usize + (1 << 20)
    }

    /// What a record takes in the queue, at most.
    fn size(&self, record: &Record) -> u64 {
        core::queue_bytes(&record.entry, record.bytes.len() as u64)
    }

    fn now(&self) -> Moment {
        self.fixed.as_ref().map_or_else(crate::clock::now, |fixed| Moment(fixed.load(Relaxed)))
    }

    // ---- what is done -----------------------------------------------------------------------------------------

    /// Carries out what there is to do, until [`end`](Self::end), and lets the replica say again at each `tick` what may be lost.
    pub fn drive(&self, tick: Duration) {
        let mut next = crate::clock::now().0;
        while !self.ends.load(Relaxed) {
            let now = crate::clock::now().0;
            let ticks = now >= next;
            if ticks {
                next = now + tick.as_nanos() as u64;
                drop(self.event(Event::Tick)); // it has stopped, and says so to every caller
            }
            self.pump(ticks);
            let mut core = self.core.lock();
            if core.work.is_empty() && !self.ends.load(Relaxed) {
                let left = Duration::from_nanos(next.saturating_sub(crate::clock::now().0));
                self.work.wait_for(&mut core, left.min(tick));
            }
        }
    }

    /// Has [`drive`](Self::drive) return, and every thread that waits.
    pub fn end(&self) {
        self.ends.store(true, Relaxed);
        self.core.lock().stop("it was told to");
        self.work.notify_all();
    }

    /// Carries out all there is to do. `tick`: what was noted becomes persistent though no barrier was asked for.
    pub(crate) fn pump(&self, tick: bool) {
        let mut medium = self.medium.lock();
        let mut tick = tick;
        while self.batch(&mut medium, tick) {
            tick = false;
        }
    }

    /// Carries out what is to be done now, with one barrier at most. False: nothing was, or it has stopped.
    fn batch(&self, medium: &mut Medium, tick: bool) -> bool {
        let batch = self.core.lock().take_work();
        let (bytes, mut epoch, idle) = (batch.bytes(), batch.epoch, batch.work.is_empty());
        let mut events = Vec::new();
        let mut each = batch.work.into_iter();
        let done = each.try_for_each(|work| self.carry_out(medium, work, &mut epoch, &mut events)).and_then(|()| {
            if medium.wants_barrier() || tick && medium.has_note() {
                events.extend(medium.barrier()?);
            }
            Ok(())
        });
        let mut core = self.core.lock();
        if let Err(error) = done {
            tracing::error!(%error, "the replica stops");
            core.stop(&error.to_string());
            return false;
        }
        let nothing = idle && events.is_empty();
        core.happened(self.now(), epoch, bytes, medium.queued(), events) && !nothing
    }

    fn carry_out(&self, medium: &mut Medium, work: Work, epoch: &mut u64, events: &mut Vec<Event>) -> Result<()> {
        match work {
            Work::Commit(entry, bytes) => medium.commit(entry, bytes)?,
            Work::Command(Command::Send(message)) => self.outside.send(message),
            Work::Command(Command::Ship { to, view, first, last }) => {
                // What is not there was retired meanwhile: all have it.
                if let Ok(records) = medium.records(first..=last) {
                    self.outside.send(Message { view, from: medium.id(), to, body: Body::Records(records) });
                }
            }
            Work::Command(Command::ShipPart { to, view, part, through }) => {
                let (image, last) = medium.part(part)?;
                let body = Body::Part { through, part, last, image };
                self.outside.send(Message { view, from: medium.id(), to, body });
            }
            Work::Command(command) if command.is_to_medium() => {
                if matches!(command, Command::Void(_)) {
                    // What happened before it is of a copy that is none.
                    *epoch += 1;
                    events.clear();
                }
                events.extend(medium.carry_out(command)?);
            }
            Work::Command(command) => self.outside.ask(command),
        }
        Ok(())
    }

    fn check_runs(&self) -> Result<()> {
        self.core.lock().check_runs()
    }

    // ---- what it is -------------------------------------------------------------------------------------------

    /// What this replica knows.
    #[must_use]
    pub fn status(&self) -> Status {
        let core = self.core.lock();
        let view = core.replica.serves().cloned();
        let replica = &core.replica;
        Status {
            id: replica.id(),
            stage: replica.stage(),
            view,
            progress: replica.progress(),
            has_lease: replica.holds_lease(self.now()),
            reads: replica.answers_reads(self.now()),
            joiner: replica.joiner(),
            stopped: core.stopped.clone(),
        }
    }

    /// The heap's bytes, which are the same on every replica that has executed the same records.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn heap(&self) -> Result<Vec<u8>> {
        self.medium.lock().heap()
    }

    /// Objects of the blocks that are live, and their lengths.
    #[must_use]
    pub fn blocks(&self) -> Vec<(Object, u64)> {
        self.medium.lock().blocks()
    }

    /// What its medium has cost.
    #[must_use]
    pub fn stats(&self) -> pmem::Stats {
        self.medium.lock().stats()
    }

    /// Closes the medium: no thread may drive it any more.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn close(self) -> Result<()> {
        let Self { core, medium, image, .. } = self;
        drop((core, image));
        medium.into_inner().close()
    }
}

/// What a replica knows.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whose copy it is.
    pub id: ReplicaId,
    /// What it is doing.
    pub stage: Stage,
    /// The view, if it is a member that serves.
    pub view: Option<View>,
    /// How far it is.
    pub progress: Progress,
    /// It has one now; a head with a lease admits transactions.
    pub has_lease: bool,
    /// It answers readers now: the head, or the tail.
    pub reads: bool,
    /// At the tail: the replica that joins behind it.
    pub joiner: Option<ReplicaId>,
    /// Why it does nothing any more.
    pub stopped: Option<String>,
}

impl Status {
    /// True at the head.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.head() == Some(self.id))
    }

    /// True at the tail; of a chain of one that is the head, too.
    #[must_use]
    pub fn is_tail(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.tail() == Some(self.id))
    }
}

#[cfg(test)]
impl Node {
    /// Without a rule, and by a clock of the test's.
    pub(crate) fn start_without(
        medium: Medium,
        found: Found,
        outside: Arc<dyn Outside>,
        failpoints: Failpoints,
    ) -> Self {
        Self { fixed: Some(AtomicU64::new(1)), ..Self::new(medium, found, outside, failpoints) }
    }

    pub(crate) fn set_now(&self, now: Moment) {
        self.fixed.as_ref().unwrap().store(now.0, Relaxed);
    }

    /// A part of [`pump`](Self::pump): through the next barrier.
    pub(crate) fn pump_once(&self) {
        self.batch(&mut self.medium.lock(), false);
    }

    /// The image, as a joiner gets it.
    pub(crate) fn copy(&self) -> Vec<u8> {
        self.image.lock().copy(0).unwrap().0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.core.lock().work.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tx::{Engine as _, Isolation::Strict, Transaction as _, Typed as _};

    use super::*;

    /// What it had read leads nowhere in the copy that there is now: that is no damage.
    #[test]
    fn a_transaction_of_a_copy_that_was_voided_says_that_this_is_not_the_head() {
        let path = tempfile::tempdir().unwrap();
        let path = path.path().join("r");
        let id = ReplicaId { machine: 1, incarnation: 0 };
        Medium::create(&path, id, true, crate::Sizes { capacity: 1 << 20, queue: 1 << 20 }).unwrap();
        let (medium, found) = Medium::open(&path).unwrap();
        let node = Node::alone(medium, found).unwrap();
        let at = node.transact(Strict, |tx| tx.alloc(&7u64)).unwrap();

        let seen = node.begin(Strict).unwrap();
        assert_eq!(seen.read(seen.root_cell()).unwrap(), &[0, 0]);
        let other = ReplicaId { machine: 2, incarnation: 0 };
        let without = View { id: ViewId(2), members: vec![other], f: 1, mode: Mode::Values };
        node.event(Event::View(without)).unwrap();
        node.pump(false);
        let error = seen.read(at).unwrap_err();
        assert!(error.to_string().contains("it is not the head"), "{error}");
    }
}
