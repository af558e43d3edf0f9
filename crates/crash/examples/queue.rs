//! # Tutorial: your own persistent queue, and the crash that breaks it
//!
//! `cargo run -p crash --example queue` shows everything told here.
//!
//! **The structure.** A queue of orders lives in a region of a pool: two numbers, `HEAD` and `TAIL`, and a ring of slots, one cache
//! line each. A push stores the order into the slot at the tail and then moves the tail; a pop moves the head. Numbers only grow; their
//! remainder is the slot. One word is what the media writes atomically, so moving the tail *is* the commit.
//!
//! **The bug.** [`Push::OneBarrier`] stores the order, moves the tail, flushes both and drains once: one barrier instead
//! of two, and all tests pass. They pass because no test loses power.
//!
//! **The promise.** To explore it, say what the queue does ([`Scenario::step`]) and what it promises: [`Ack::begin`] before the first
//! store of an operation, [`Ack::commit`] when it is durable. Then say what must hold after a crash ([`Scenario::check`]): what was
//! acknowledged is there, and what was in doubt is there whole or not at all. That is all; there are no assertions
//! about flushes.
//!
//! **What the explorer says.**
//!
//! ```text
//! violation: the queue holds [Order { customer: 7, item: 43, amount: 0 }], expected [] or [Order { customer: 7, item: 43, amount: 5 }]
//!   crash point 4: drain at crates/crash/examples/queue.rs:108:27
//!       by push at ./crates/crash/examples/queue.rs:108:27
//!       by step at ./crates/crash/examples/queue.rs:196:43
//!     lost word at 8336 (0x2090): 0x0 instead of 0x5, flushed but not drained
//!   operations up to there:
//!     0: thread 0: Push(Order { customer: 7, item: 43, amount: 5 })
//!   (shrunk from 20 operations)
//! ```
//!
//! Of twenty operations one is enough: a push. When the power failed in its drain, the tail had arrived and a word of the slot had not.
//! Flushed lines reach the media in any order until a drain has returned; nothing held the tail back.
//!
//! **The fix.** [`Push::TwoBarriers`] drains between the slot and the tail. The explorer now finds nothing, says that it saw
//! *every* crash state (`is_complete`), and [`crash::mutate`] shows that no barrier can be left out again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crash::{Ack, Config, Error, History, Report, Rng, Scenario, Sim, Violation};
use pmem::{Area, Options, Persist, Pool};

/// What is queued. `Persist` proves that its bytes mean the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(C)]
pub struct Order {
    /// The customer's number.
    pub customer: u64,
    /// What.
    pub item: u64,
    /// How many.
    pub amount: u64,
}

const HEAD: u64 = 0;
const TAIL: u64 = 64;
const SLOTS: u64 = 128;
const SLOT_BYTES: u64 = 64;
const SLOT_COUNT: u64 = 16;
const REGION_BYTES: u64 = 4096;
const POOL_BYTES: u64 = 64 * 1024;

/// How a push becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// Slot and tail behind one barrier: the planted bug.
    OneBarrier,
    /// The slot is persistent before the tail names it.
    TwoBarriers,
}

/// A persistent queue in a region of a pool.
pub struct Queue {
    area: Area,
    how: Push,
}

impl Queue {
    /// Makes an empty queue in a pool.
    pub fn create(pool: &Pool) -> pmem::Result<()> {
        pool.add_region("queue", REGION_BYTES).map(drop) // new regions are zero: an empty queue
    }

    /// Opens the queue of a pool. The two numbers say it all, but a process that was killed may have left them in a cache only: they are
    /// made persistent before any caller acts on them.
    pub fn open(pool: &Pool, how: Push) -> pmem::Result<Self> {
        let area = pool.region("queue")?.into_area()?;
        area.persist(HEAD, SLOTS)?;
        Ok(Self { area, how })
    }

    fn word(&self, at: u64) -> pmem::Result<u64> {
        self.area.get::<u64>(at).copied()
    }

    fn slot(number: u64) -> u64 {
        SLOTS + number % SLOT_COUNT * SLOT_BYTES
    }

    /// Appends an order; false if the queue is full.
    pub fn push(&mut self, order: &Order) -> pmem::Result<bool> {
        let (head, tail) = (self.word(HEAD)?, self.word(TAIL)?);
        if tail - head == SLOT_COUNT {
            return Ok(false);
        }
        self.area.put(Self::slot(tail), order)?;
        self.area.flush(Self::slot(tail), SLOT_BYTES)?;
        match self.how {
            Push::OneBarrier => {
                self.area.put(TAIL, &(tail + 1))?;
                self.area.flush(TAIL, 8)?;
                self.area.drain()?;
            }
            Push::TwoBarriers => {
                self.area.drain()?;
                self.area.publish(TAIL, tail + 1)?;
            }
        }
        Ok(true)
    }

    /// Takes the oldest order.
    pub fn pop(&mut self) -> pmem::Result<Option<Order>> {
        let (head, tail) = (self.word(HEAD)?, self.word(TAIL)?);
        if head == tail {
            return Ok(None);
        }
        let order = *self.area.get(Self::slot(head))?;
        self.area.publish(HEAD, head + 1)?;
        Ok(Some(order))
    }

    /// Everything in the queue, oldest first.
    pub fn orders(&self) -> pmem::Result<Vec<Order>> {
        (self.word(HEAD)?..self.word(TAIL)?).map(|number| self.area.get(Self::slot(number)).copied()).collect()
    }
}

/// What the explorer does with a queue, and what the queue promises.
pub struct QueueScenario {
    /// Broken or not.
    pub how: Push,
}

/// An operation, and at the same time its promise.
#[derive(Clone, Debug)]
pub enum Op {
    /// Append.
    Push(Order),
    /// Take the oldest.
    Pop,
}

impl Op {
    /// What the operation does to a plain queue: the model to compare with.
    fn apply(&self, model: &mut VecDeque<Order>) {
        match self {
            Op::Push(order) if model.len() < SLOT_COUNT as usize => model.push_back(*order),
            Op::Push(_) => {}
            Op::Pop => drop(model.pop_front()),
        }
    }
}

impl Scenario for QueueScenario {
    type Op = Op;
    type Effect = Op;
    type State = Vec<Order>;
    type Live = (Pool, Mutex<Queue>);

    fn name(&self) -> &str {
        "queue"
    }

    fn capacity(&self) -> u64 {
        POOL_BYTES
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(32 * 1024).create_on(Arc::clone(sim) as _)?;
        Queue::create(&pool)?;
        Ok(pool.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Self::Live, Error> {
        let pool = Options::new().open_on(Arc::clone(sim) as _)?;
        let queue = Queue::open(&pool, self.how)?;
        Ok((pool, Mutex::new(queue)))
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let mut order = || Order { customer: rng.below(9) + 1, item: rng.below(90) + 1, amount: rng.below(9) + 1 };
        (0..20).map(|i| (0, if i % 3 == 2 { Op::Pop } else { Op::Push(order()) })).collect()
    }

    fn step(&self, (_, queue): &Self::Live, _thread: usize, op: &Op, ack: &Ack<Op>) -> Result<(), Error> {
        let mut queue = queue.lock().map_err(|_| "a thread panicked with the queue in its hands")?;
        let ticket = ack.begin(op.clone());
        match op {
            Op::Push(order) => drop(queue.push(order)?),
            Op::Pop => drop(queue.pop()?),
        }
        ack.commit(ticket);
        Ok(())
    }

    fn finish(&self, (pool, queue): Self::Live) -> Result<(), Error> {
        drop(queue);
        Ok(pool.close()?)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Op>) -> Result<Vec<Order>, Violation> {
        let open = || {
            let pool = Options::new().open_on(Arc::clone(sim) as _)?;
            Queue::open(&pool, self.how)?.orders()
        };
        let found = open().map_err(Violation::detected)?;
        let mut expected = VecDeque::new();
        history.acknowledged.iter().for_each(|op| op.apply(&mut expected));
        let mut with_doubt = expected.clone();
        history.in_doubt.iter().for_each(|op| op.apply(&mut with_doubt));
        if expected == found || with_doubt == found {
            return Ok(found);
        }
        let expected = Vec::from(expected);
        Err(Violation::new(format!("the queue holds {found:?}, expected {expected:?} or {:?}", Vec::from(with_doubt))))
    }
}

/// Explores the queue with this kind of push.
pub fn explore(how: Push) -> Report {
    crash::run(QueueScenario { how }, &Config::seeded(1))
}

#[allow(dead_code)] // The test suite includes this file as a module.
fn main() {
    println!("-- one barrier: the planted bug --\n{}\n", explore(Push::OneBarrier));
    println!("-- two barriers: the fix --\n{}\n", explore(Push::TwoBarriers));
    let needed = crash::mutate(QueueScenario { how: Push::TwoBarriers }, &Config::seeded(1).budget(20_000));
    println!("-- which barriers are needed? --\n{needed}");
}
