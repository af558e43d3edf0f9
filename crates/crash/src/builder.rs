//! The short way: an exploration made of three closures.

use std::fmt::Debug;
use std::sync::Arc;

use crate::config::Config;
use crate::oracle::{Ack, History};
use crate::report::Report;
use crate::rng::Rng;
use crate::run::run;
use crate::scenario::{Error, Scenario};
use crate::sim::Sim;
use crate::violation::Violation;

/// Bytes of the simulated file, unless said otherwise.
const CAPACITY: u64 = 256 * 1024;

/// An exploration being described, see [`explore`].
pub struct Explore<A, W, C> {
    config: Config,
    capacity: u64,
    setup: A,
    workload: W,
    check: C,
}

/// Begins an exploration of closures; the example of the crate shows one.
#[must_use]
pub fn explore(config: Config) -> Explore<(), (), ()> {
    Explore { config, capacity: CAPACITY, setup: (), workload: (), check: () }
}

impl<A, W, C> Explore<A, W, C> {
    /// Bytes of the simulated file at most: 256 KiB unless given. Small is fast.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }
}

impl<W, C> Explore<(), W, C> {
    /// Makes what the workload starts from. Not explored.
    #[must_use]
    pub fn setup<A>(self, setup: A) -> Explore<A, W, C>
    where
        A: Fn(&Arc<Sim>) -> Result<(), Error> + Send + Sync + 'static,
    {
        let Self { config, capacity, workload, check, .. } = self;
        Explore { config, capacity, setup, workload, check }
    }
}

impl<A, C> Explore<A, (), C> {
    /// The program: opens what setup made, and acknowledges what is durable.
    #[must_use]
    pub fn workload<E, W>(self, workload: W) -> Explore<A, W, C>
    where
        W: Fn(&Arc<Sim>, &Ack<E>) -> Result<(), Error> + Send + Sync + 'static,
    {
        let Self { config, capacity, setup, check, .. } = self;
        Explore { config, capacity, setup, workload, check }
    }
}

impl<A, W> Explore<A, W, ()> {
    /// Opens what a crash left and holds it against the history; returns what it saw.
    #[must_use]
    pub fn check<E, T, C>(self, check: C) -> Explore<A, W, C>
    where
        C: Fn(&Arc<Sim>, &History<E>) -> Result<T, Violation> + Send + Sync + 'static,
    {
        let Self { config, capacity, setup, workload, .. } = self;
        Explore { config, capacity, setup, workload, check }
    }
}

impl<A, W, C> Explore<A, W, C> {
    /// Explores.
    pub fn run<E, T>(self) -> Report
    where
        A: Fn(&Arc<Sim>) -> Result<(), Error> + Send + Sync + 'static,
        W: Fn(&Arc<Sim>, &Ack<E>) -> Result<(), Error> + Send + Sync + 'static,
        C: Fn(&Arc<Sim>, &History<E>) -> Result<T, Violation> + Send + Sync + 'static,
        E: Clone + Debug + Send + Sync + 'static,
        T: PartialEq + Debug + Send + 'static,
    {
        let Self { config, capacity, setup, workload, check } = self;
        let (setup, workload, check) = (Box::new(setup), Box::new(workload), Box::new(check));
        run(Closures { capacity, setup, workload, check }, &config)
    }
}

type Setup = dyn Fn(&Arc<Sim>) -> Result<(), Error> + Send + Sync;
type Workload<E> = dyn Fn(&Arc<Sim>, &Ack<E>) -> Result<(), Error> + Send + Sync;
type Check<E, T> = dyn Fn(&Arc<Sim>, &History<E>) -> Result<T, Violation> + Send + Sync;

struct Closures<E, T> {
    capacity: u64,
    setup: Box<Setup>,
    workload: Box<Workload<E>>,
    check: Box<Check<E, T>>,
}

impl<E: Clone + Debug + Send + Sync + 'static, T: PartialEq + Debug + Send + 'static> Scenario for Closures<E, T> {
    type Op = ();
    type Effect = E;
    type State = T;
    type Live = Arc<Sim>;

    fn name(&self) -> &str {
        "closures"
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        (self.setup)(sim)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Arc<Sim>, Error> {
        Ok(Arc::clone(sim))
    }

    fn ops(&self, _rng: &mut Rng) -> Vec<(usize, ())> {
        vec![(0, ())]
    }

    fn step(&self, live: &Arc<Sim>, _thread: usize, (): &(), ack: &Ack<E>) -> Result<(), Error> {
        (self.workload)(live, ack)
    }

    fn finish(&self, _live: Arc<Sim>) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<E>) -> Result<T, Violation> {
        (self.check)(sim, history)
    }
}
