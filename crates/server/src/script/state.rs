//! What an interpreter's functions know of the script that runs, and what ends it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use mlua::Lua;

use crate::clock::Watch;
use crate::scripts::{End, Long};

/// Bytes of an interpreter with all that a script makes.
pub(super) const MEMORY: usize = 64 << 20;
/// Bytes that may be made without a look at that bound.
const SMALL: usize = 64 << 10;
/// Bytes of a value besides its own.
pub(super) const VALUE: usize = 64;
/// Bytes that the scripts of one transaction may write, publish and answer.
pub(super) const PASSED: usize = 256 << 20;
/// Pieces between two looks at the clock.
const STEPS: u32 = 64;
/// Nanoseconds that one may wait for others without being one that runs long.
const WAITED: u64 = 2_000_000_000;
/// What the chunk of the sandbox is called.
pub(super) const OWN: &str = "=[cairn]";

/// Why a script ends that does not want to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    TooLong,
    /// It runs long, and is to end.
    By(End),
    /// The transaction cannot go on.
    Transaction,
}

/// Makes values of so many bytes. Few are made without a bound to the interpreter's memory: where an allocation may fail, each is a call of its own that catches
/// this, and costs several times as much. What is too much is found by the script's next allocation.
pub(super) fn make<T>(lua: &Lua, bytes: usize, make: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
    if bytes > SMALL {
        return make();
    }
    lua.set_memory_limit(0)?;
    let made = make();
    lua.set_memory_limit(MEMORY)?;
    made
}

/// What a script is run with.
pub(super) struct Terms {
    pub(super) began: Watch,
    pub(super) budget: u64,
    pub(super) long: Option<Arc<Long>>,
    pub(super) random: u64,
    /// What scripts before it in the transaction have passed on, and how long they have waited.
    pub(super) passed: usize,
    pub(super) waited: u64,
}

/// What the functions of an interpreter know of the script that runs.
pub(super) struct State {
    pub(super) began: Cell<Option<Watch>>,
    /// Nanoseconds that it may take.
    budget: Cell<u64>,
    long: RefCell<Option<Arc<Long>>>,
    pub(super) ended: Cell<Option<Ended>>,
    /// What `redis.setresp` says.
    pub(super) three: Cell<bool>,
    /// `drand48`, as Redis has it.
    random: Cell<u64>,
    /// Bytes that the transaction's scripts have outside of the interpreter for as long as it lasts.
    pub(super) passed: Cell<usize>,
    /// Nanoseconds of it that it waited for others, on a thread that serves no connections.
    pub(super) waited: Cell<u64>,
    /// Steps since the last look at the clock.
    steps: Cell<u32>,
}

impl State {
    /// Nothing runs.
    pub(super) fn new() -> Self {
        Self {
            began: Cell::new(None),
            budget: Cell::new(0),
            long: RefCell::new(None),
            ended: Cell::new(None),
            three: Cell::new(false),
            random: Cell::new(0),
            passed: Cell::new(0),
            waited: Cell::new(0),
            steps: Cell::new(0),
        }
    }

    /// From now on the clock runs.
    pub(super) fn begin(&self, terms: Terms) {
        self.began.set(Some(terms.began));
        self.budget.set(terms.budget);
        *self.long.borrow_mut() = terms.long;
        self.ended.set(None);
        self.three.set(false);
        self.random.set(terms.random);
        self.passed.set(terms.passed);
        self.waited.set(terms.waited);
    }

    /// It has run.
    pub(super) fn end(&self) {
        self.began.set(None);
        *self.long.borrow_mut() = None;
    }

    /// Whether the script may go on: an error that it cannot catch if not.
    pub(super) fn go_on(&self) -> mlua::Result<()> {
        if self.ended.get().is_none() {
            if let Some(end) = self.long.borrow().as_ref().and_then(|long| long.end()) {
                self.ended.set(Some(Ended::By(end)));
            } else if self.began.get().is_some_and(|began| self.spent(began) > self.budget.get()) {
                self.ended.set(Some(Ended::TooLong));
            }
        }
        self.check()
    }

    /// So many nanoseconds more are none of its time.
    pub(super) fn has_waited(&self, nanos: u64) {
        self.waited.set(self.waited.get() + nanos);
        if self.long.borrow().is_some() {
            self.budget.set(self.budget.get().saturating_add(nanos));
        }
    }

    /// What counts: of one that runs long all of it, so that it ends.
    fn spent(&self, began: Watch) -> u64 {
        let waited = if self.long.borrow().is_some() { 0 } else { self.waited.get().min(WAITED) };
        began.nanos().saturating_sub(waited)
    }

    /// The same, now and then: for each piece of what may be long.
    pub(super) fn step(&self) -> mlua::Result<()> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() < STEPS {
            return Ok(());
        }
        self.steps.set(0);
        self.go_on()
    }

    /// So many bytes are about to leave the interpreter until the transaction has ended; none that it may not have are copied.
    pub(super) fn pass(&self, bytes: usize) -> Result<(), &'static str> {
        let passed = self.passed.get().saturating_add(bytes);
        if passed > PASSED {
            return Err(
                "not enough memory: what scripts of one transaction write, publish and answer is more than 256 MiB",
            );
        }
        self.passed.set(passed);
        Ok(())
    }

    /// Whether it has ended.
    pub(super) fn check(&self) -> mlua::Result<()> {
        if self.ended.get().is_none() { Ok(()) } else { Err(mlua::Error::runtime("the script is ended")) }
    }

    /// From 0 on, and less than 1.
    pub(super) fn random(&self) -> f64 {
        let next = self.random.get().wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & 0xFFFF_FFFF_FFFF;
        self.random.set(next);
        let most = i32::MAX as u64;
        ((next >> 17) % most) as f64 / most as f64
    }

    pub(super) fn seed(&self, seed: i32) {
        self.random.set(u64::from(seed as u32) << 16 | 0x330E);
    }
}
