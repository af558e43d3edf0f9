//! What is explored: a program, what it promises, and how a recovered state is judged.

use std::fmt::Debug;
use std::sync::Arc;

use crate::oracle::{Ack, History};
use crate::rng::Rng;
use crate::sim::Sim;
use crate::violation::Violation;

/// Anything that went wrong in a program.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A program on simulated memory, with its promises.
///
/// An exploration runs `setup`, then `start`, the steps of `ops` (each thread's in order, under the seeded scheduler when there
/// are several), and `finish`. From `start` on, the power fails at every crash point, and `check` runs on the images left.
pub trait Scenario: Send + Sync + 'static {
    /// One operation of the workload.
    type Op: Clone + Debug + Send + Sync;
    /// What an operation promises, see [`Ack`].
    type Effect: Clone + Debug + Send + Sync;
    /// What a check has seen: a pool recovered twice must show the same.
    type State: PartialEq + Debug + Send;
    /// What the threads share: an open pool and what is on it.
    type Live: Send + Sync;

    /// For reports.
    fn name(&self) -> &str;

    /// Bytes of the simulated file at most. Small is fast.
    fn capacity(&self) -> u64;

    /// Makes the pool. Not explored.
    ///
    /// # Errors
    /// Any; the exploration cannot begin.
    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error>;

    /// Opens it. Explored from here on.
    ///
    /// # Errors
    /// Any; reported as a violation.
    fn start(&self, sim: &Arc<Sim>) -> Result<Self::Live, Error>;

    /// The workload of this seed: thread and operation.
    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Self::Op)>;

    /// Runs one operation.
    ///
    /// # Errors
    /// Any; reported as a violation, unless the device was made to fail: then the workload ends there.
    fn step(&self, live: &Self::Live, thread: usize, op: &Self::Op, ack: &Ack<Self::Effect>) -> Result<(), Error>;

    /// Ends the program, for example with a clean close. Explored too.
    ///
    /// # Errors
    /// As [`step`](Scenario::step).
    fn finish(&self, live: Self::Live) -> Result<(), Error>;

    /// Opens what a crash left, recovers it, and holds it against the history. Must not change what it observes, and must not depend on
    /// anything else: the same bytes are not judged twice. What it knows of the check around it, it keeps in a [`Witness`](crate::Witness).
    ///
    /// # Errors
    /// [`Violation::new`] for broken promises, [`Violation::detected`] for an error of recovery.
    fn check(&self, sim: &Arc<Sim>, history: &History<Self::Effect>) -> Result<Self::State, Violation>;
}
