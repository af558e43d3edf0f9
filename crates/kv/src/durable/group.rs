//! Group commit: transactions that are ready at the same time go to one log, as one, with one barrier.
//!
//! For media where a barrier is a sync: that takes longer than all the rest, and writes pages, so what commits together should stand together.
//!
//! ```text
//!   join       a position in the queue and a timestamp, under one lock: the queue is in order of timestamps
//!   validate   each for itself
//!   ready      whoever is first in the queue and ready leads: takes all from there that are ready, writes them to the log of writer 0, drains
//!   publish    each for itself
//! ```
//!
//! On media a group is one transaction, so a crash takes all of it, or nothing; no member was told before. The log is in order of timestamps, as those of
//! single writers are. One group at a time is on its way, and the next one gathers behind it. No member waits for one behind it: validation waits
//! for smaller timestamps only, and the leader for none. A member behind does wait, while a long range is validated, too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::Thread;

use pmem::sync::{Mutex, wait_point};

use crate::error::{Error, Result};
use crate::isolation::Concurrency;
use crate::isolation::order::Position;
use crate::writers::work::Work;
use crate::writers::writer::Run;

/// Bytes of a group, unless one transaction has more.
const MOST: usize = 1 << 20;

/// Those who are about to commit.
#[derive(Default)]
pub(crate) struct Group(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// A member leads, or was told to.
    led: bool,
}

struct Entry {
    ts: u64,
    ticket: Arc<Ticket>,
    stage: Stage,
}

#[expect(clippy::large_enum_variant, reason = "most are ready, and a box would be one more allocation")]
enum Stage {
    Validating,
    Ready(Work),
    Gone,
}

/// What one who waits is told.
struct Ticket {
    state: AtomicU8,
    thread: Thread,
    outcome: Mutex<Option<(Work, Result<Written>)>>,
}

const WAIT: u8 = 0;
const LEAD: u8 = 1;
const DONE: u8 = 2;

/// Where a transaction is, as part of its group.
pub(crate) struct Written {
    pub(crate) runs: Arc<[Run]>,
    /// Where in the group's image its own begins.
    pub(crate) base: usize,
}

/// One of those that go together.
pub(crate) struct Member {
    pub(crate) ts: u64,
    pub(crate) work: Work,
    ticket: Arc<Ticket>,
}

/// A position in the queue. Dropping it leaves.
pub(crate) struct Joined<'g> {
    group: &'g Group,
    ts: u64,
    ticket: Arc<Ticket>,
    stays: bool,
}

impl Group {
    /// A position in the queue, with a timestamp.
    pub(crate) fn join<'g>(&'g self, concurrency: &'g Concurrency) -> (Joined<'g>, Position<'g>) {
        let ticket = Arc::new(Ticket { state: WAIT.into(), thread: std::thread::current(), outcome: Mutex::new(None) });
        let mut queue = self.0.lock();
        let position = concurrency.join();
        let ts = position.ts;
        queue.entries.push_back(Entry { ts, ticket: ticket.clone(), stage: Stage::Validating });
        (Joined { group: self, ts, ticket, stays: false }, position)
    }

    /// Those that are ready, from the first one on. The caller leads.
    pub(crate) fn take(&self) -> Vec<Member> {
        let mut queue = self.0.lock();
        let (mut members, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = queue.entries.pop_front() {
            match entry.stage {
                Stage::Gone => {}
                Stage::Ready(work) if members.is_empty() || bytes + work.image.len() <= MOST => {
                    bytes += work.image.len();
                    members.push(Member { ts: entry.ts, work, ticket: entry.ticket });
                }
                stage => {
                    queue.entries.push_front(Entry { stage, ..entry });
                    break;
                }
            }
        }
        members
    }

    /// These go later. The caller leads, so no member has come before them.
    pub(crate) fn put_back(&self, members: Vec<Member>) {
        let mut queue = self.0.lock();
        for Member { ts, work, ticket } in members.into_iter().rev() {
            queue.entries.push_front(Entry { ts, ticket, stage: Stage::Ready(work) });
        }
    }

    /// The leader is done: the next one goes on before anybody else is told.
    pub(crate) fn pass_on(&self) {
        let mut queue = self.0.lock();
        queue.led = false;
        queue.call();
    }
}

impl Queue {
    /// Has the first one lead, if it is ready and none does.
    fn call(&mut self) {
        while matches!(self.entries.front(), Some(Entry { stage: Stage::Gone, .. })) {
            self.entries.pop_front();
        }
        if self.led {
            return;
        }
        if let Some(Entry { ticket, stage: Stage::Ready(_), .. }) = self.entries.front() {
            self.led = true;
            ticket.tell(LEAD);
        }
    }

    fn set(&mut self, ts: u64, stage: Stage) {
        let at = self.entries.partition_point(|entry| entry.ts < ts);
        if let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.ts == ts) {
            entry.stage = stage;
        }
        self.call();
    }
}

impl Joined<'_> {
    /// Waits until the transaction is written, by this thread or another; `lead` does it for a group. Gives the lists back.
    pub(crate) fn write(mut self, work: &mut Work, lead: impl FnOnce()) -> Result<Written> {
        self.stays = true;
        self.group.0.lock().set(self.ts, Stage::Ready(std::mem::take(work)));
        if self.ticket.wait(WAIT) == LEAD {
            lead();
            self.ticket.wait(LEAD);
        }
        let outcome = self.ticket.outcome.lock().take();
        let (back, result) = outcome.unwrap_or_else(|| unreachable!("who is done was told what became of it"));
        *work = back;
        result
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.group.0.lock().set(self.ts, Stage::Gone);
        }
    }
}

impl Ticket {
    fn tell(&self, state: u8) {
        self.state.store(state, Release);
        self.thread.unpark();
    }

    /// Waits while the state is `present`; returns the next one.
    fn wait(&self, present: u8) -> u8 {
        loop {
            let state = self.state.load(Acquire);
            if state != present {
                return state;
            }
            if !wait_point() {
                std::thread::park();
            }
        }
    }
}

impl Member {
    /// Tells what became of it.
    pub(crate) fn end(self, result: Result<Written>) {
        *self.ticket.outcome.lock() = Some((self.work, result));
        self.ticket.tell(DONE);
    }
}

/// The same for each of a group: the first one gets the reason itself.
pub(crate) fn in_doubt(reason: &mut Option<Error>) -> Error {
    reason.take().unwrap_or(Error::InDoubt { source: pmem::Error::Poisoned })
}
