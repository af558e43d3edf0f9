//! A bank on three machines, of which one after the other is killed, and what that has cost: no transfer that was acknowledged.
//!
//! | module | what is in it |
//! |---|---|
//! | `machines` | an etcd, and three processes of `cairn chain serve` |
//! | `bank` | transfers, each of which follows from its client and number, so what all accounts must have follows from how many were acknowledged |
//! | `clients` | threads that ask until there is an answer |

mod bank;
mod clients;
mod machines;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use self::bank::ACCOUNTS;
use self::clients::{Asker, Load};
use self::machines::{MACHINES, Machines};
use crate::now_ns;

/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(2);
/// Anything that has not come about by then never does.
const MOST: Duration = Duration::from_secs(60);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The command `cairn`.
    pub cairn: PathBuf,
    /// Where files go; in memory if nothing is said.
    pub dir: Option<PathBuf>,
    /// How long clients work, kills not counted.
    pub seconds: Duration,
    /// How often machines are killed.
    pub kills: u32,
    /// Clients at a time.
    pub clients: u64,
    /// Seconds of a member's lease.
    pub ttl: u64,
    /// Plants a fault that must be found: a reply before the commit.
    pub early: bool,
}

/// Why it did not come to an end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is missing, or does not start.
    #[error("{program} cannot be run: {why}; install it (tools/setup.sh)")]
    Program {
        /// Which.
        program: String,
        /// What was seen.
        why: String,
    },
    /// A machine ended that was not killed.
    #[error("machine {machine} has ended by itself: {said}; see what it says, and run the demonstration again")]
    Ended {
        /// Which.
        machine: usize,
        /// On its standard error, last.
        said: String,
    },
    /// A file.
    #[error("{what}: {error}; give a directory with --dir that has room")]
    Io {
        /// What was done.
        what: String,
        /// Why not.
        error: std::io::Error,
    },
    /// It was told to.
    #[error("it was interrupted; nothing was decided")]
    Interrupted,
}

/// Which machines are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The first of the chain.
    Head,
    /// The one between.
    Middle,
    /// The last.
    Tail,
    /// Every one, at the same time.
    All,
}

/// A kill, and how long no request was answered that was asked after it.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// What was killed.
    pub victim: Victim,
    /// Until then.
    pub outage: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// In their order.
    pub kills: Vec<Kill>,
    /// Transfers that were acknowledged.
    pub acknowledged: u64,
    /// Requests that were asked again, and had the same reply.
    pub repeated: u64,
    /// Looks at all accounts at once, at the machine that leads and at the tail, which had all the money.
    pub sums: u64,
    /// Machines whose copy was held against what was acknowledged.
    pub copies: usize,
    /// What must not be.
    pub violations: Vec<String>,
    /// How long clients worked.
    pub worked: Duration,
    /// Where the files are, and what machines said, if there is something to look for.
    pub kept: Option<PathBuf>,
}

/// Runs it. `tell` is told what is going on; `stop` ends it before.
///
/// # Errors
/// It cannot be run to its end. What must not be is no error, but in the summary.
pub fn run(demo: &Demo, stop: &AtomicBool, tell: &mut dyn FnMut(&str)) -> Result<Summary, Error> {
    let machines = Machines::new(demo)?;
    tell("an etcd runs, and three machines start");
    let mut run = Run { demo, machines, stop, tell, summary: Summary::default() };
    (0..MACHINES).try_for_each(|at| run.machines.start(at))?;
    let mut teller = Asker::new(run.machines.addresses());
    let opened = teller.open_accounts(&mut || stop.load(Relaxed));
    if let Err(why) = opened {
        run.machines.check_running()?;
        return if run.is_stopped() { Err(Error::Interrupted) } else { Err(run.machines.not_up(&why)) };
    }
    run.await_members(MACHINES)?;
    let load = Load::new(demo.clients, run.machines.addresses());
    let worked = std::thread::scope(|threads| {
        load.start(threads);
        let outcome = run.work(&load);
        load.stop();
        outcome
    });
    worked?;
    run.judge(&load)?;
    let is_wrong = !run.summary.violations.is_empty();
    run.machines.keep_if(is_wrong);
    run.summary.kept = is_wrong.then(|| run.machines.path().to_owned());
    Ok(run.summary)
}

struct Run<'r> {
    demo: &'r Demo,
    machines: Machines,
    stop: &'r AtomicBool,
    tell: &'r mut dyn FnMut(&str),
    summary: Summary,
}

impl Run<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Kills, between which clients work.
    fn work(&mut self, load: &Load) -> Result<(), Error> {
        let begun = now_ns();
        let pause = self.demo.seconds / (self.demo.kills + 1);
        self.rest(pause)?;
        for at in 0..self.demo.kills {
            let victim = [Victim::Head, Victim::Middle, Victim::Tail, Victim::All][at as usize % 4];
            let outage = self.kill(victim, load)?;
            (self.tell)(&format!(
                "kill {} of {}: {victim}, and after {:.2} s the next answer; {} transfers so far",
                at + 1,
                self.demo.kills,
                outage.as_secs_f64(),
                load.acknowledged()
            ));
            self.summary.kills.push(Kill { victim, outage });
            self.rest(pause)?;
            if load.is_wrong() {
                break; // it is found: nothing is proved by more
            }
        }
        self.summary.worked = Duration::from_nanos(now_ns() - begun);
        Ok(())
    }

    /// Kills, waits for an answer to a request that was asked later, and starts again what was killed.
    fn kill(&mut self, victim: Victim, load: &Load) -> Result<Duration, Error> {
        let order = self.await_members(MACHINES)?;
        let at = match victim {
            Victim::Head => vec![order[0]],
            Victim::Middle => vec![order[1]],
            Victim::Tail => vec![order[2]],
            Victim::All => order.clone(),
        };
        at.iter().for_each(|at| self.machines.kill(*at));
        let killed = now_ns();
        if victim == Victim::All {
            at.iter().try_for_each(|at| self.machines.start(*at))?;
        }
        self.until("a request is answered again", || load.latest() > killed || load.is_wrong())?;
        let outage = Duration::from_nanos(now_ns() - killed);
        if victim != Victim::All {
            at.iter().try_for_each(|at| self.machines.start(*at))?;
        }
        self.await_members(MACHINES)?;
        Ok(outage)
    }

    /// Until the chain has so many members; which machines, head first.
    fn await_members(&mut self, count: usize) -> Result<Vec<usize>, Error> {
        let (asker, mut found) = (Asker::new(self.machines.addresses()), Vec::new());
        self.until("all machines are members", || {
            found = asker.members().unwrap_or_default();
            found.len() == count
        })?;
        Ok(found)
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Error> {
        let end = now_ns() + MOST.as_nanos() as u64;
        loop {
            if is_so() {
                return Ok(());
            }
            if self.is_stopped() {
                return Err(Error::Interrupted);
            }
            self.machines.check_running()?;
            if now_ns() > end {
                return Err(self.machines.not_up(what));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn rest(&self, pause: Duration) -> Result<(), Error> {
        let end = now_ns() + pause.as_nanos() as u64;
        while now_ns() < end {
            if self.is_stopped() {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(LOOK.min(pause));
        }
        Ok(())
    }

    /// Each machine leads in turn, and has what was acknowledged.
    fn judge(&mut self, load: &Load) -> Result<(), Error> {
        let summary = &mut self.summary;
        (summary.acknowledged, summary.repeated, summary.sums) = (load.acknowledged(), load.repeated(), load.sums());
        summary.violations.extend(load.violations());
        if !summary.violations.is_empty() {
            return Ok(()); // clients have stopped in the middle of requests
        }
        let expected = bank::after(&load.done());
        for left in (1..=MACHINES).rev() {
            let order = self.await_members(left)?;
            (self.tell)(&format!("machine {} leads: its copy is held against what was acknowledged", order[0] + 1));
            let mut asker = Asker::new(self.machines.addresses());
            // The tail would answer, too, from another copy.
            asker.go_to(order[0]);
            let found = asker.balances(ACCOUNTS, &mut || self.stop.load(Relaxed));
            match found {
                Ok(found) => self.summary.violations.extend(bank::differences(order[0] + 1, &expected, &found)),
                Err(why) if self.is_stopped() => return Err(self.machines.not_up(&why)),
                Err(why) => self.summary.violations.push(format!("machine {}: {why}", order[0] + 1)),
            }
            self.summary.copies += 1;
            if left > 1 {
                self.machines.end(order[0])?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "head",
            Self::Middle => "middle",
            Self::Tail => "tail",
            Self::All => "all three",
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {:>5} {:>15} {:>15}", "killed", "times", "median outage", "longest")?;
        for victim in [Victim::Head, Victim::Middle, Victim::Tail, Victim::All] {
            let mut outages: Vec<Duration> =
                self.kills.iter().filter(|kill| kill.victim == victim).map(|kill| kill.outage).collect();
            outages.sort_unstable();
            if let (Some(median), Some(longest)) = (outages.get(outages.len() / 2), outages.last()) {
                let seconds = |outage: &Duration| format!("{:.2} s", outage.as_secs_f64());
                let (median, longest) = (seconds(median), seconds(longest));
                writeln!(f, "{:<10} {:>5} {median:>15} {longest:>15}", victim.to_string(), outages.len())?;
            }
        }
        let found = self.violations.len();
        writeln!(
            f,
            "{} transfers acknowledged in {:.0} s, {} asked again with the same reply, {} sums with all the money",
            self.acknowledged,
            self.worked.as_secs_f64(),
            self.repeated,
            self.sums
        )?;
        match found {
            0 => write!(f, "lost: 0; each of {} copies has what was acknowledged", self.copies),
            _ => write!(f, "{found} violations"),
        }
    }
}
