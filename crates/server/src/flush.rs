//! `FLUSHALL` and `FLUSHDB` of many keys: in steps, each of them durable, while no other client looks.
//!
//! One transaction has a record for each key that it deletes, and a store that is full may have no room for all of them at once. The first step leaves a note of
//! what is to go, and the last one removes it: a server that finds the note when it starts goes on where the last one stopped. So whoever looks sees all, or none.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::data::{GARBAGE, Head, META, all};
use crate::engine::{Engine, Error, Result, Tx};
use crate::shared::Shared;

/// From here on keys go in steps.
pub(crate) const AT_ONCE: usize = 4096;
/// Keys of a step.
const STEP: usize = 1024;
/// Counts: a thread has one, so that threads rarely share one.
const COUNTS: usize = 32;
/// In place of a count: nobody may enter.
const CLOSED: usize = usize::MAX;

/// What all transactions of clients pass.
#[derive(Debug)]
pub(crate) struct Gate {
    inside: Box<[Count]>,
    /// Held by who closes it.
    one: Mutex<()>,
    closing: AtomicBool,
    /// Steps have failed in the midst of it: what is seen is neither all nor nothing.
    unfinished: AtomicBool,
    /// Somebody has left, or it was opened.
    changed: (Mutex<()>, Condvar),
}

/// How many are inside.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

/// Held by one who is inside.
pub(crate) struct Inside<'g> {
    gate: &'g Gate,
    at: usize,
}

/// Nobody else is inside.
pub(crate) struct Closed<'g> {
    gate: &'g Gate,
    _one: MutexGuard<'g, ()>,
}

impl Default for Gate {
    fn default() -> Self {
        let inside = (0..COUNTS).map(|_| Count::default()).collect();
        Self {
            inside,
            one: Mutex::default(),
            closing: false.into(),
            unfinished: false.into(),
            changed: (Mutex::default(), Condvar::new()),
        }
    }
}

impl Gate {
    /// Waits while it is closed. A thread that has somebody inside lets others in: it is closed only when they have left.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let at = pmem::thread_number() % COUNTS;
        let count = &self.inside[at].0;
        let more = |count: usize| (count != CLOSED).then(|| count + 1);
        while count.fetch_update(SeqCst, SeqCst, more).is_err() {
            let mut changed = self.changed.0.lock();
            if count.load(SeqCst) == CLOSED {
                self.changed.1.wait(&mut changed);
            }
        }
        Inside { gate: self, at }
    }

    /// Waits until everybody has left.
    pub(crate) fn close(&self) -> Closed<'_> {
        let one = self.one.lock();
        self.closing.store(true, SeqCst);
        for Count(count) in &self.inside {
            while count.compare_exchange(0, CLOSED, SeqCst, SeqCst).is_err() {
                let mut changed = self.changed.0.lock();
                if count.load(SeqCst) != 0 {
                    self.changed.1.wait(&mut changed);
                }
            }
        }
        Closed { gate: self, _one: one }
    }

    fn is_unfinished(&self) -> bool {
        self.unfinished.load(Relaxed)
    }

    fn tell(&self) {
        drop(self.changed.0.lock()); // whoever has looked and not yet slept does now
        self.changed.1.notify_all();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let last = self.gate.inside[self.at].0.fetch_sub(1, SeqCst) == 1;
        if last && self.gate.closing.load(SeqCst) {
            self.gate.tell();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.inside.iter().for_each(|Count(count)| count.store(0, SeqCst));
        self.gate.closing.store(false, SeqCst);
        self.gate.tell();
    }
}

impl Closed<'_> {
    /// Whoever comes next ends what was begun.
    pub(crate) fn leave_unfinished(&self) {
        self.gate.unfinished.store(true, SeqCst);
    }
}

impl Shared {
    /// Inside the gate, where nothing is seen in parts.
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        let inside = self.gate.enter();
        if self.gate.is_unfinished() {
            // Not ended here: this thread may serve somebody who is inside.
            let why = "a removal in steps has failed half way, and is ended before anything else is done; try again, or see the server's log";
            return Err(Error::Other(why.to_owned()));
        }
        Ok(inside)
    }

    /// Ends what was left unfinished. The caller's thread has nobody inside the gate.
    pub(crate) fn end_unfinished(&self) -> Result<()> {
        if !self.gate.is_unfinished() {
            return Ok(());
        }
        let closed = self.gate.close();
        finish(&*self.engine)?;
        closed.gate.unfinished.store(false, SeqCst);
        Ok(())
    }
}

fn note() -> Vec<u8> {
    [&[META], &b"flush"[..]].concat()
}

/// Removes all keys of these databases. The caller is not inside the gate.
pub(crate) fn in_steps(shared: &Shared, databases: &[u8]) -> Result<()> {
    let closed = shared.gate.close();
    steps(&*shared.engine, databases).inspect_err(|_| closed.leave_unfinished())
}

/// Goes on where a server has stopped.
pub(crate) fn finish(engine: &dyn Engine) -> Result<()> {
    let mut left = None;
    engine.read(&mut |tx| {
        left = tx.get(&note())?.map(<[u8]>::to_vec);
        Ok(())
    })?;
    left.map_or(Ok(()), |databases| steps(engine, &databases))?;
    crate::remove::finish(engine)
}

fn steps(engine: &dyn Engine, databases: &[u8]) -> Result<()> {
    let mut done = false;
    while !done {
        engine.write(&mut |tx| {
            done = step(tx, databases)?;
            Ok(())
        })?;
    }
    Ok(())
}

/// True if nothing is left.
fn step(tx: &mut dyn Tx, databases: &[u8]) -> Result<bool> {
    let mut keys = Vec::new();
    for database in databases {
        tx.scan(all(*database, &[]), &mut |key, value| {
            keys.push((key.to_vec(), Head::read(value)));
            if keys.len() < STEP { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if keys.len() == STEP {
            break;
        }
    }
    let done = keys.len() < STEP;
    remove(tx, keys)?;
    if done {
        tx.delete(&note())?;
    } else if tx.get(&note())?.is_none() {
        tx.put(&note(), databases, None)?;
    }
    Ok(done)
}

/// Removes keys. Elements are swept later, of short collections too: to find them one by one would take a scan for each.
pub(crate) fn remove(tx: &mut dyn Tx, keys: Vec<(Vec<u8>, Option<Head>)>) -> Result<()> {
    for (key, head) in keys {
        if let Some(head) = head {
            tx.put(&[&[GARBAGE], &head.id.to_be_bytes()[..]].concat(), &[], None)?;
        }
        tx.delete(&key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let (gate, open, both) = (Gate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..2000 {
                        let _inside = gate.enter();
                        let _again = gate.enter();
                        open.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        open.fetch_sub(1, SeqCst);
                    }
                });
            }
            threads.spawn(|| {
                for _ in 0..200 {
                    let _closed = gate.close();
                    both.fetch_add(open.load(SeqCst), SeqCst);
                }
            });
        });
        assert_eq!(both.load(SeqCst), 0);
    }
}
