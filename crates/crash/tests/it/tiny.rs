//! Small structures right on the simulated memory, each with switches that break it.

use std::sync::Arc;

use crash::{Ack, Config, Error, History, Report, Rng, Scenario, Sim, Violation};

pub type Step = dyn Fn(&Arc<Sim>, u64, &Ack<u64>) -> Result<(), Error> + Send + Sync;
pub type Check = dyn Fn(&Arc<Sim>, &History<u64>) -> Result<Vec<u64>, Violation> + Send + Sync;

/// A scenario of one page (or more) on one thread.
pub struct Tiny {
    pub len: u64,
    pub capacity: u64,
    pub ops: Vec<u64>,
    pub step: Box<Step>,
    pub check: Box<Check>,
}

pub fn tiny(
    ops: impl IntoIterator<Item = u64>,
    step: impl Fn(&Arc<Sim>, u64, &Ack<u64>) -> Result<(), Error> + Send + Sync + 'static,
    check: impl Fn(&Arc<Sim>, &History<u64>) -> Result<Vec<u64>, Violation> + Send + Sync + 'static,
) -> Tiny {
    let ops = ops.into_iter().collect();
    Tiny { len: 4096, capacity: 16 * 1024, ops, step: Box::new(step), check: Box::new(check) }
}

impl Scenario for Tiny {
    type Op = u64;
    type Effect = u64;
    type State = Vec<u64>;
    type Live = Arc<Sim>;

    fn name(&self) -> &str {
        "tiny"
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        Ok(sim.set_len(self.len)?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Arc<Sim>, Error> {
        Ok(Arc::clone(sim))
    }

    fn ops(&self, _rng: &mut Rng) -> Vec<(usize, u64)> {
        self.ops.iter().map(|&op| (0, op)).collect()
    }

    fn step(&self, sim: &Arc<Sim>, _thread: usize, op: &u64, ack: &Ack<u64>) -> Result<(), Error> {
        (self.step)(sim, *op, ack)
    }

    fn finish(&self, _sim: Arc<Sim>) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u64>) -> Result<Vec<u64>, Violation> {
        (self.check)(sim, history)
    }
}

pub fn read(sim: &Sim, offset: u64) -> Result<u64, Violation> {
    sim.load(offset).map_err(Violation::detected)
}

/// Reads a word and makes sure of it: it may stand in a cache only, left there by a process that was killed.
pub fn read_persistent(sim: &Sim, offset: u64) -> Result<u64, Violation> {
    let value = read(sim, offset)?;
    sim.flush(offset, 8);
    sim.drain().map_err(Violation::detected)?;
    Ok(value)
}

pub fn config() -> Config {
    Config::seeded(42)
}

/// For checks that only look, where the images themselves are in question.
pub fn observing() -> Config {
    config().kills(false)
}

/// Asserts a violation whose message contains this text, and returns it.
#[track_caller]
pub fn found<'r>(report: &'r Report, text: &str) -> &'r Violation {
    let violation = report.violation().unwrap_or_else(|| panic!("nothing found, expected '{text}':\n{report}"));
    assert!(violation.message.contains(text), "expected '{text}':\n{report}");
    violation
}

/// How the log is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    NoSlotFlush,
    NoSlotDrain,
    NoCountFlush,
    NoCountDrain,
    CountFirst,
    ExtraDrain,
}

const COUNT: u64 = 0;

fn slot(at: u64) -> u64 {
    64 + at * 64
}

/// Appends: slot, drain, count, drain.
pub fn append(sim: &Sim, value: u64, bug: Bug) -> Result<(), Error> {
    let count = sim.load(COUNT)?;
    if bug == Bug::CountFirst {
        sim.store(COUNT, count + 1)?;
        sim.flush(COUNT, 8);
        sim.drain()?;
    }
    sim.store(slot(count), value)?;
    sim.store(slot(count) + 8, !value)?;
    if bug != Bug::NoSlotFlush {
        sim.flush(slot(count), 16);
    }
    if bug != Bug::NoSlotDrain {
        sim.drain()?;
    }
    if bug == Bug::ExtraDrain {
        sim.drain()?;
    }
    if bug != Bug::CountFirst {
        sim.store(COUNT, count + 1)?;
        if bug != Bug::NoCountFlush {
            sim.flush(COUNT, 8);
        }
        if bug != Bug::NoCountDrain {
            sim.drain()?;
        }
    }
    Ok(())
}

pub fn log_check(sim: &Arc<Sim>, history: &History<u64>) -> Result<Vec<u64>, Violation> {
    let count = read_persistent(sim, COUNT)?;
    let mut values = Vec::new();
    for at in 0..count {
        let value = read(sim, slot(at))?;
        if read(sim, slot(at) + 8)? != !value {
            return Err(Violation::new(format!("record {at} is torn")));
        }
        values.push(value);
    }
    history.check_prefix(&values)?;
    Ok(values)
}

pub fn log(bug: Bug) -> Tiny {
    tiny(
        [11, 22, 33],
        move |sim, value, ack| {
            let ticket = ack.begin(value);
            append(sim, value, bug)?;
            ack.commit(ticket);
            Ok(())
        },
        log_check,
    )
}
