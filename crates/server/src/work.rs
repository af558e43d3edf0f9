//! Work: requests of a connection that are one transaction; and how much of it may wait or run long at one time.

use std::any::Any;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::engine::{Error, Result, Stage, Tx};
use crate::scripts::Long;

/// Requests of one connection.
pub(crate) trait Work: Any + Send {
    /// Runs them, from the first one again. May stop early, but not before the first.
    fn attempt(&mut self, tx: &mut dyn Tx) -> Result<()>;

    /// Whether any of them writes.
    fn writes(&self) -> bool;

    /// Whether it may change something: not so of one that writes only so that nothing changes beside it.
    fn changes(&self) -> bool {
        self.writes()
    }

    /// Whether it asks for versions, which what others have written in the same transaction has not.
    fn is_alone(&self) -> bool;

    /// Bytes of the requests.
    fn bytes(&self) -> usize;

    /// From now on it is the first request only; false if it was so before.
    fn narrow(&mut self) -> bool;

    /// Whether it is one request, or one transaction.
    fn is_one(&self) -> bool;

    /// Of which kind it is where it has to wait.
    fn class(&self) -> Class {
        Class::Data
    }

    /// It takes longer than it may on a thread that serves others: it is to be run again where it may, from its beginning. What it is told of a failure is nothing.
    fn leaves(&self) -> bool {
        false
    }

    /// It takes longer than a thread has that serves others, or has to wait, and is to be run again on one that does not: its last attempt has ended with [`Error::TooLong`], or it was [put off](Self::put_off).
    fn is_heavy(&self) -> bool {
        false
    }

    /// It was put off because it had to wait: how long it takes is not known.
    fn waits(&self) -> bool {
        false
    }

    /// It is to be run elsewhere: it is as if it had not been run.
    fn put_off(&mut self, why: PutOff) {
        let _ = why;
    }

    /// It is inside the gate, for which it has waited so many nanoseconds: these are no part of its time, and what asked others to leave before was not about it.
    fn has_entered(&mut self, waited: u64) {
        let _ = waited;
    }

    /// It was run to its end on a thread that serves no connections: what is left to do and may take long.
    fn ended_apart(&mut self) {}

    /// It may take as long as this says; as at first, if it says nothing.
    fn stay(&mut self, long: Option<Arc<Long>>) {
        let _ = long;
    }

    /// Whether that was said.
    fn is_long(&self) -> bool {
        false
    }

    /// At which stage of the commit its client has its answer; none if that waits for the commit.
    fn settles_for(&self) -> Option<Stage> {
        None
    }

    /// The commit has come there: the client has its answer. Of work that is in doubt behind that, or fails, the client learns by the end of its connection.
    fn answer_early(&mut self) {}

    /// What it asked for with [`Error::Flush`] was done.
    fn flushed(&mut self) {}

    /// The barrier behind the last attempt failed, and what it wrote may be durable or not: the answer to each request that was in it. None is run again.
    fn end_in_doubt(&mut self, error: &Error);

    /// The transaction failed: that is the answer.
    fn fail(&mut self, error: &Error);
}

/// Why work is to be run on a thread that serves no connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutOff {
    TakesLong,
    /// Nothing is known of how long it takes.
    Waits,
}

const DATA: usize = 256;
const SCRIPTS: usize = 16;
const LONG: usize = 8;

/// Of which kind work is where it has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Data,
    Script,
    Flush,
}

/// Places, for all threads that serve.
///
/// | class | what | at one time |
/// |---|---|---|
/// | [`Class::Data`] | commands that met conflicts, take long, or wait for the gate | [`DATA`] |
/// | [`Class::Script`] | scripts that met conflicts, or wait for the gate: each may take an interpreter's memory | [`SCRIPTS`] |
/// | heavy | scripts that take too long for a thread that serves others, until they run long, or have to wait | [`LONG`] |
/// | long | scripts that run long, until they have to wait: as much memory, and others may wait for them | [`LONG`] |
/// | long, waiting | the same, that have met what another one holds | [`LONG`] |
/// | [`Class::Flush`] | what removes everything, in steps, and asks those that run long to end | as many as there are |
///
/// Who waits for another transaction has no place of those that only run: what it waits for may need one to come to its end, and others have nothing to do with it.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) data: Semaphore,
    pub(crate) scripts: Semaphore,
    pub(crate) heavy_scripts: Semaphore,
    pub(crate) long: Semaphore,
    pub(crate) long_waiting: Semaphore,
}

impl Default for Elsewhere {
    fn default() -> Self {
        Self {
            data: Semaphore::new(DATA),
            scripts: Semaphore::new(SCRIPTS),
            heavy_scripts: Semaphore::new(LONG),
            long: Semaphore::new(LONG),
            long_waiting: Semaphore::new(LONG),
        }
    }
}
