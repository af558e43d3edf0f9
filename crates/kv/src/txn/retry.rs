//! Until it commits: the answer to contention.
//!
//! The first attempt is optimistic. One that met a conflict queues, and is tried again with locks on everything it reads and writes, in the order it comes to them, and waits
//! for those it does not get: the winner first, then this one. By its age it tells younger ones to give way, so there is no circle, and no transaction is lost to
//! retries. A thread that keeps meeting conflicts begins with locks.

use std::cell::Cell;

use tx::{Backoff, Isolation, RetryPolicy};

use crate::core::Core;
use crate::error::{ConflictWith, Error, Key, Result};
use crate::media::key;
use crate::txn::transaction::{Mode, Transaction};

thread_local! {
    /// How often this thread's first attempts met conflicts lately, out of 1024.
    static HEAT: Cell<u32> = const { Cell::new(0) };
}

/// From here on the first attempt takes locks, too.
const HOT: u32 = 512;
/// Attempts with locks that may fail before there are pauses: they can only because of ranges, or because an older transaction came.
const PROMPT: u32 = 8;

/// Attempts that wait for one holder until the timeout passes: the holder may be of the same thread, and then that would go on forever.
const IN_VAIN: u32 = 2;

/// Runs `f` until it commits; with locks from the first attempt on where conflicts are many.
pub(crate) fn transact<'s, R, E>(
    core: &'s Core,
    isolation: Isolation,
    f: impl FnMut(&mut Transaction<'s>) -> Result<R, E>,
) -> Result<R, E>
where
    E: From<Error>,
{
    retry(core, isolation, HEAT.get() > HOT, f)
}

/// The same; `locking` from the first attempt on.
pub(crate) fn retry<'s, R, E>(
    core: &'s Core,
    isolation: Isolation,
    locking: bool,
    mut f: impl FnMut(&mut Transaction<'s>) -> Result<R, E>,
) -> Result<R, E>
where
    E: From<Error>,
{
    let hot = locking && HEAT.get() > HOT;
    let age = if locking { core.versions.concurrency.age() } else { 0 };
    let mut mode = Mode { locking, age, ..Mode::default() };
    let mut wanted: Vec<u64> = Vec::new();
    let mut backoff = Backoff::new(RetryPolicy::default());
    let (mut attempts, mut full) = (0, crate::commit::room::Tried::default());
    let mut waited_in_vain = 0;
    loop {
        attempts += 1;
        // A transaction that met conflicts queues; a batch, which reads nothing, only behind one that it met.
        let turn = (mode.locking && (hot || attempts > 1)).then(|| core.queue.enter()).flatten();
        let key = match attempt(core, isolation, mode, &wanted, &mut f) {
            Attempt::Done(result) => {
                cool(locking, attempts);
                return result;
            }
            Attempt::Conflict(key, in_vain) => {
                waited_in_vain += u32::from(in_vain);
                key
            }
            Attempt::Full(error, bytes) => {
                core.committing().full_again(&mut full, error, bytes)?;
                continue;
            }
            Attempt::TooMany(error) if !backoff.wait() => return Err(error.into()),
            Attempt::TooMany(_) => continue,
        };
        drop(turn);
        crate::stats::add(&core.counters.conflicts, 1);
        HEAT.set(HEAT.get() + (1024 - HEAT.get()) / 8);
        if mode.age == 0 {
            mode = Mode { locking: true, age: core.versions.concurrency.age(), ..Mode::default() };
        }
        let lock = key::hash(&key);
        if !key.is_empty() && !wanted.contains(&lock) {
            wanted.push(lock);
            wanted.sort_unstable();
        }
        if waited_in_vain == IN_VAIN || attempts > PROMPT && !backoff.wait() {
            return Err(Error::GaveUp { attempts, key: Key(key) }.into());
        }
    }
}

enum Attempt<T> {
    Done(T),
    /// The key, and whether it was waited for until the timeout passed.
    Conflict(Vec<u8>, bool),
    TooMany(Error),
    /// The store had no room for it; how long it is.
    Full(Error, u64),
}

fn attempt<'s, R, E: From<Error>>(
    core: &'s Core,
    isolation: Isolation,
    mode: Mode,
    wanted: &[u64],
    f: &mut impl FnMut(&mut Transaction<'s>) -> Result<R, E>,
) -> Attempt<Result<R, E>> {
    let mut tx = match Transaction::begin(core, isolation, mode) {
        Ok(tx) => tx,
        Err(error @ Error::TooMany { .. }) => return Attempt::TooMany(error),
        Err(error) => return Attempt::Done(Err(error.into())),
    };
    if !wanted.is_empty()
        && let Err(error) = tx.lock_first(wanted)
    {
        return conflict_or(error);
    }
    let result = f(&mut tx);
    if let Some((key, in_vain)) = tx.conflict() {
        return Attempt::Conflict(key, in_vain);
    }
    match result {
        Err(error) => Attempt::Done(Err(error)),
        Ok(value) => match tx.finish() {
            Ok(_) => Attempt::Done(Ok(value)),
            Err(error @ Error::Full { .. }) => Attempt::Full(error, tx.bytes()),
            Err(error) => conflict_or(error),
        },
    }
}

fn conflict_or<R, E: From<Error>>(error: Error) -> Attempt<Result<R, E>> {
    match error {
        Error::Conflict { key, with } => Attempt::Conflict(key.0, with == ConflictWith::Holder),
        other => Attempt::Done(Err(other.into())),
    }
}

/// A success cools: a little if it took locks, so that now and then an attempt without them finds out.
fn cool(locking: bool, attempts: u32) {
    let heat = HEAT.get();
    if heat > 0 && attempts == 1 {
        HEAT.set(heat - if locking { heat / 256 + 1 } else { heat / 16 + 1 });
    }
}
