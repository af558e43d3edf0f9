//! Transactions for connections: at once where a barrier is cheap, many as one where it is a sync, or where other machines must have it, too.
//!
//! ```text
//!   memory   batches of all connections of a thread that have come together are a transaction, committed on the thread that reads and writes their sockets
//!   slow     batches of all connections of a thread, that are there when the one before is durable, become one transaction; the store waits for it, off the thread if that takes long
//! ```
//!
//! A batch that only reads looks at a snapshot, and waits for no other transaction; on a tree in a heap it locks what it reads. One that fails is tried request by request, so each gets its own answer.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Notify, oneshot};

use crate::attempt::{attempt_inside, end_in_doubt, run_at_once};
use crate::beside::{Beside, Written};
use crate::clock::Watch;
use crate::elsewhere;
use crate::engine::{Commit, Error, Result, Stage, Tx};
use crate::failpoints::Step;
use crate::job::Job;
use crate::metrics::Recorder;
use crate::shared::Shared;
use crate::work::{PutOff, Work};

/// Batches that become one transaction.
const MOST: usize = 512;
/// Bytes of their requests.
const BYTES: usize = 1 << 20;
/// Up to here a sync takes less than two hops to another thread and back, and what these cost other threads that want a processor: then this thread waits
/// for it. In nanoseconds.
const SHORT: u64 = 500_000;
/// Nanoseconds behind which no more join such a transaction: scripts, and commands that look at much, may take some milliseconds each.
const TOGETHER: u64 = 1_000_000;
/// So long those that met a conflict together wait for one of them, at least, and as many times as long as a commit took lately.
const BEHIND: Duration = Duration::from_millis(5);
const BEHIND_COMMITS: u64 = 4;
/// Another transaction is to be alone, which lasts as long as those do that have begun.
const ALONE: Duration = Duration::from_millis(1);
/// Attempts that meet conflicts, before it is left to the store, which queues.
const ATTEMPTS: usize = 4;
/// Attempts of what is one transaction for several connections on this thread, before each has its own.
const ATTEMPTS_TOGETHER: usize = 2;

/// Runs work of the connections of a thread.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    recorder: Arc<Recorder>,
    combiner: Option<Rc<Combiner>>,
}

impl Executor {
    /// For this thread, which must run a `LocalSet`.
    pub(crate) fn start(shared: Arc<Shared>, recorder: Arc<Recorder>) -> Self {
        let combiner = shared.engine.is_slow().then(|| Combiner::start(&shared, &recorder));
        Self { shared, recorder, combiner }
    }

    /// Whether all is run at once, on this thread: no connection waits for a commit but its own.
    pub(crate) fn is_immediate(&self) -> bool {
        self.combiner.is_none()
    }

    /// Runs it on this thread until it is durable; or leaves it as it is, if it takes too long for that, or would have to wait.
    pub(crate) fn run_now(&self, work: &mut dyn Work) {
        run_at_once(&self.shared, &self.recorder, work);
    }

    /// Runs the first of these jobs of several connections on this thread, until they are durable, and says how many: as one transaction those that fit into a short time; or one, if that
    /// has failed: then each is `alone` from there on, so that no reply waits for all others. `early` is called with their connections' slots and their replies, if these do not wait. What
    /// takes too long for this thread is left as it is.
    pub(crate) fn run_together(
        &self,
        jobs: &mut [(usize, Job)],
        writes: bool,
        alone: &mut bool,
        early: &mut dyn FnMut(usize, &[u8]),
    ) -> usize {
        if !*alone && let Some(ran) = self.try_together(jobs, writes, early) {
            return ran;
        }
        *alone = true;
        let Some((_, job)) = jobs.first_mut() else { return 0 };
        if job.is_heavy() {
            job.put_off(PutOff::TakesLong);
        } else {
            self.run_now(job);
        }
        1
    }

    fn try_together(
        &self,
        jobs: &mut [(usize, Job)],
        writes: bool,
        early: &mut dyn FnMut(usize, &[u8]),
    ) -> Option<usize> {
        // In a full store each has its own way to its end.
        if jobs.len() < 2 || writes && self.shared.was_full_lately() {
            return None;
        }
        let (shared, recorder) = (&*self.shared, &*self.recorder);
        let began = writes.then(Watch::start);
        let mut ran = 0;
        let inside = shared.try_enter()?;
        let mut run = |tx: &mut dyn Tx| {
            Job::prefetch_all(jobs.iter().map(|(_, job)| job), tx);
            ran = 0;
            let watch = Watch::start();
            for (_, job) in &mut *jobs {
                job.prefetched = true;
                attempt_inside(shared, job, tx, &inside, None)?;
                ran += 1;
                // The replies of these wait for no more behind that.
                if watch.nanos() > TOGETHER {
                    break;
                }
            }
            if shared.failpoints.skips(Step::TogetherFirst) {
                jobs[..ran].iter().for_each(|(at, job)| early(*at, job.parts.reply.bytes()));
            }
            Ok(())
        };
        let mut result = Err(Error::Again);
        for _ in 0..ATTEMPTS_TOGETHER {
            result = if writes { shared.engine.try_write(&mut run) } else { shared.engine.try_read(&mut run) };
            if !matches!(result, Err(Error::Conflict(_))) {
                break;
            }
            recorder.conflicts.add(1);
        }
        recorder.transactions.add(1);
        drop(inside);
        if let (Some(began), Ok(())) = (began, &result) {
            shared.note_commit(recorder, began.nanos());
        }
        if let Err(error @ Error::InDoubt(_)) = &result {
            for (_, job) in &mut jobs[..ran] {
                if job.writes() {
                    end_in_doubt(shared, job, error);
                } else {
                    self.run_now(job);
                }
            }
        }
        matches!(result, Ok(()) | Err(Error::InDoubt(_))).then_some(ran).filter(|ran| *ran > 0)
    }

    /// Runs `work` until it is durable; gives it back with its replies.
    pub(crate) async fn run<W: Work>(&self, work: W) -> W {
        let stops = || *self.shared.stop.borrow();
        let _under_way = if work.changes() { Some(self.shared.pauses.write(stops).await) } else { None };
        match &self.combiner {
            _ if work.is_heavy() => self.run_elsewhere(work).await,
            Some(combiner) if work.writes() => combiner.run(work).await,
            _ => {
                let mut work = work;
                // It may meet conflicts for as long as they run.
                let is_in_the_way = self.shared.scripts.any_long() && self.shared.engine.waits();
                if !is_in_the_way {
                    run_at_once(&self.shared, &self.recorder, &mut work);
                    if !work.leaves() && !work.is_heavy() {
                        return work;
                    }
                }
                self.run_elsewhere(work).await
            }
        }
    }

    async fn run_elsewhere<W: Work>(&self, work: W) -> W {
        given_back(elsewhere::run(&self.shared, &self.recorder, Box::new(work)).await)
    }
}

fn given_back<W: Work>(work: Box<dyn Work>) -> W {
    let back: Box<dyn Any> = work;
    *back.downcast().unwrap_or_else(|_| unreachable!("it is what was given"))
}

/// Makes one transaction of the work of many connections.
struct Combiner {
    shared: Arc<Shared>,
    recorder: Arc<Recorder>,
    queue: RefCell<VecDeque<Waiting>>,
    /// Bytes of requests in one transaction.
    bytes_max: usize,
    /// Something was queued.
    queued: Notify,
    /// How long commits took lately, in nanoseconds.
    lately: Cell<u64>,
}

struct Waiting {
    work: Box<dyn Work>,
    done: oneshot::Sender<Box<dyn Work>>,
    /// In its last attempt it may have seen what others have written in the same transaction: it is not answered before that is committed.
    saw: bool,
}

impl Combiner {
    fn start(shared: &Arc<Shared>, recorder: &Arc<Recorder>) -> Rc<Self> {
        let this = Rc::new(Self {
            shared: shared.clone(),
            recorder: recorder.clone(),
            queue: RefCell::default(),
            bytes_max: BYTES.min(shared.engine.together_max()),
            queued: Notify::new(),
            lately: Cell::new(0),
        });
        tokio::task::spawn_local(this.clone().fly());
        this
    }

    async fn run<W: Work>(&self, work: W) -> W {
        let (done, result) = oneshot::channel();
        self.queue.borrow_mut().push_back(Waiting { work: Box::new(work), done, saw: false });
        self.queued.notify_one();
        given_back(result.await.unwrap_or_else(|_| unreachable!("every work is given back")))
    }

    /// Transaction after transaction, as long as the thread lives.
    async fn fly(self: Rc<Self>) {
        loop {
            if self.queue.borrow().is_empty() {
                self.queued.notified().await;
            }
            // Tasks that are ready to run queue their work first.
            tokio::task::yield_now().await;
            let some = self.take();
            if some.is_empty() {
                continue;
            }
            self.commit(some).await;
        }
    }

    fn take(&self) -> Vec<Waiting> {
        let mut queue = self.queue.borrow_mut();
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some(next) = queue.front() {
            let alone = next.work.is_alone();
            bytes += next.work.bytes();
            if !some.is_empty() && (alone || some.len() == MOST || bytes > self.bytes_max) {
                break;
            }
            some.extend(queue.pop_front());
            if alone {
                break;
            }
        }
        some
    }

    async fn commit(&self, mut some: Vec<Waiting>) {
        if self.shared.engine.waits() && self.shared.scripts.any_long() {
            return some.into_iter().for_each(|one| self.leave(one));
        }
        let early = self.shared.failpoints.skips(Step::DurableFirst);
        let settle = some.iter().any(|one| one.work.settles_for().is_some());
        for _ in 0..ATTEMPTS {
            self.recorder.transactions.add(1);
            let began = Watch::start();
            let Some(inside) = self.shared.try_enter() else {
                return some.into_iter().for_each(|one| self.leave(one));
            };
            let ended = Cell::new(false);
            let brief = some.len() == 1 && some[0].work.is_one() && self.shared.was_full_lately();
            let brief = brief.then_some(&ended);
            let several = some.len() > 1;
            let run = &mut |tx: &mut dyn Tx| {
                let mut written = Written::new();
                some.iter_mut().try_for_each(|one| {
                    if !settle || !several {
                        return attempt_inside(&self.shared, &mut *one.work, tx, &inside, brief);
                    }
                    let mut beside = Beside::new(tx, &written);
                    attempt_inside(&self.shared, &mut *one.work, &mut beside, &inside, brief)?;
                    let (mut own, saw) = beside.end();
                    one.saw = saw;
                    written.append(&mut own);
                    Ok(())
                })
            };
            let (tell, told) = mpsc::unbounded_channel();
            let begun = if settle {
                self.shared.engine.write_told(run, Box::new(move |stage| tell.send(stage).unwrap_or(())))
            } else {
                drop(tell);
                self.shared.engine.write_once(run, self.lately.get() < SHORT && !early)
            };
            let result = match begun {
                Ok(commit) if early => {
                    some.into_iter().for_each(|one| drop(one.done.send(one.work)));
                    return drop(commit.await);
                }
                Ok(commit) => self.until_committed(commit, told, &mut some).await,
                Err(error) => Err(error),
            };
            drop(inside);
            match result {
                Ok(()) => {
                    let took = began.nanos();
                    self.shared.note_commit(&self.recorder, took);
                    self.lately.set(self.lately.get() / 8 * 7 + took / 8);
                    some.into_iter().for_each(|one| drop(one.done.send(one.work)));
                    return;
                }
                Err(error @ Error::InDoubt(_)) => {
                    for mut one in some {
                        end_in_doubt(&self.shared, &mut *one.work, &error);
                        drop(one.done.send(one.work));
                    }
                    return;
                }
                Err(_) if ended.get() => break,
                Err(Error::Conflict(_) | Error::Again) => {
                    self.recorder.conflicts.add(1);
                    if self.shared.engine.waits() {
                        tokio::time::sleep(ALONE).await;
                    }
                }
                Err(_) => break,
            }
        }
        // One by one, and in the store's own queue of those that met conflicts; that keeps a thread waiting, so not this one. Behind one that waits for long no other waits.
        let mut rest = some.into_iter();
        while let Some(one) = rest.next() {
            if one.work.leaves() || one.work.is_heavy() || self.shared.scripts.any_long() {
                self.leave(one);
                continue;
            }
            let (shared, recorder) = (self.shared.clone(), self.recorder.clone());
            let ends = tokio::task::spawn_local(async move {
                let Waiting { work, done, .. } = one;
                drop(done.send(elsewhere::run(&shared, &recorder, work).await));
            });
            let limit = BEHIND.max(Duration::from_nanos(self.lately.get().saturating_mul(BEHIND_COMMITS)));
            if tokio::time::timeout(limit, ends).await.is_err() {
                rest.by_ref().for_each(|one| self.leave(one));
            }
        }
    }

    /// Waits for a commit; clients that settle for less have their answers before, unless they have seen what others have written in it, and while no other machine leads: what they have read may be old then. Their transaction cannot be run again:
    /// whatever becomes of it, what is not committed is in doubt.
    async fn until_committed(
        &self,
        mut commit: Commit,
        mut told: UnboundedReceiver<Stage>,
        some: &mut [Waiting],
    ) -> Result<()> {
        let mut answered = false;
        loop {
            tokio::select! {
                biased;
                result = &mut commit => return result.map_err(|error| match error {
                    Error::InDoubt(_) => error,
                    _ if answered => Error::InDoubt(error.to_string()),
                    _ => error,
                }),
                Some(stage) = told.recv() => {
                    let failpoints = self.shared.failpoints;
                    if self.shared.engine.healthy().is_err() && !failpoints.skips(Step::LeadsEarly) {
                        continue;
                    }
                    let is_enough = |enough| enough <= stage || failpoints.skips(Step::EnoughFirst);
                    let has_enough = |one: &&mut Waiting| one.work.settles_for().is_some_and(is_enough);
                    let may_know = |one: &&mut Waiting| !one.saw || failpoints.skips(Step::OthersUnseen);
                    for one in some.iter_mut().filter(may_know).filter(has_enough) {
                        one.work.answer_early();
                        answered = true;
                    }
                }
            }
        }
    }

    /// No work behind it waits for it, nor for what it waits for: a script that runs long.
    fn leave(&self, Waiting { work, done, .. }: Waiting) {
        let (shared, recorder) = (self.shared.clone(), self.recorder.clone());
        tokio::task::spawn_local(async move {
            drop(done.send(elsewhere::run(&shared, &recorder, work).await));
        });
    }
}
