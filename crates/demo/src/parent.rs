//! The parent: measures workers, kills them, and holds what they left against what they said.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bench::workload::{Names, Random};

use crate::child::{Death, Flow, Worker};
use crate::config::{Demo, Job, ROUNDS, Task};
use crate::input::Input;
use crate::kept::pool_bytes;
use crate::kind::Kind;
use crate::message::{Message, Round};
use crate::progress::{Progress, grouped};
use crate::summary::{Finding, Outcome, Summary, number};
use crate::value::Values;
use crate::verify::{self, Found};
use crate::witness::{Ledger, State, Wrong};
use crate::{Error, Result, beside, place};

/// Runs the demonstration.
///
/// # Errors
/// It cannot be run to its end. What it finds is in the [`Summary`].
pub fn run(demo: &Demo) -> Result<Summary> {
    demo.check()?;
    let input = Input::of(demo)?;
    let bytes = demo.kinds.iter().map(|kind| pool_bytes(&input, *kind)).sum();
    let place = place::make(demo.dir.as_deref(), bytes)?;
    let interrupted = interruptions();
    let compared = !demo.only_kills && demo.trace.is_none();
    let steps = demo.kinds.len() as u64 * u64::from(1 + ROUNDS) + u64::from(demo.kills);
    let steps = steps + if compared { beside::ROWS } else { 0 };
    let stage = Stage {
        demo,
        values: Values::new(input.longest_value()),
        threads: input.ops(demo.threads(), demo.seed).len(),
        input,
        progress: Progress::new(steps),
        interrupted,
    };
    let beside = match compared {
        true => beside::measure(demo, place.path(), &demo.disk, &stage.progress),
        false => Vec::new(),
    };
    let done = if stage.interrupted.load(Relaxed) { Err(Error::Interrupted) } else { stage.run(place.path()) };
    if stage.interrupted.load(Relaxed) {
        return Err(Error::Interrupted);
    }
    let mut summary = Summary { beside, ..done? };
    if summary.findings().next().is_some() {
        summary.kept = Some(place.keep());
    } else if demo.kills > 0 && summary.outcomes.iter().all(|outcome| outcome.acknowledged == 0) {
        return Err(Error::Nothing);
    }
    Ok(summary)
}

/// True from Ctrl-C on. Workers get it too, and die of it.
fn interruptions() -> Arc<AtomicBool> {
    static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let make = || {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        // Without a handler an interrupted demonstration leaves its pools behind, which is no reason not to begin.
        let _ = ctrlc::set_handler(move || seen.store(true, Relaxed));
        flag
    };
    INTERRUPTED.get_or_init(make).clone()
}

/// What all steps need.
struct Stage<'a> {
    demo: &'a Demo,
    input: Input,
    values: Values,
    /// Threads that have something to do.
    threads: usize,
    progress: Progress,
    interrupted: Arc<AtomicBool>,
}

impl Stage<'_> {
    fn run(&self, dir: &Path) -> Result<Summary> {
        let kinds = &self.demo.kinds;
        let rounds = self.measure(dir)?;
        let mut random = Random::new(self.demo.seed);
        let (mut outcomes, mut domain) = (Vec::new(), None);
        for (at, (kind, rounds)) in (0..).zip(kinds.iter().zip(rounds)) {
            let share = share(self.demo.kills, kinds.len() as u32, at);
            let (outcome, found) = self.kill(&self.job(*kind, dir, Task::Report), rounds, share, &mut random)?;
            outcomes.push(outcome);
            domain = Some(found);
        }
        Ok(Summary {
            beside: Vec::new(),
            outcomes,
            workload: self.input.describe(),
            structure: if self.input.scans() { "B+tree" } else { "hash map" },
            threads: self.threads,
            domain: domain.map_or(String::new(), |domain| domain.to_string()),
            dir: dir.parent().unwrap_or(dir).to_owned(),
            machine: bench::machine::describe(),
            kept: None,
        })
    }

    fn job(&self, kind: Kind, dir: &Path, task: Task) -> Job {
        Job {
            task,
            pool: dir.join(kind.name()),
            kind: kind.name().into(),
            keys: self.demo.keys,
            value_bytes: self.demo.value_bytes,
            threads: self.threads,
            trace: self.demo.trace.clone(),
            seed: self.demo.seed,
            early: self.demo.early,
        }
    }

    fn go_on(&self) -> Result<()> {
        if self.interrupted.load(Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    // ---- undisturbed ------------------------------------------------------------------------------------------------

    /// Rounds of all engines in turn, so that a slow moment of the machine hits each of them.
    fn measure(&self, dir: &Path) -> Result<Vec<Vec<Round>>> {
        let mut workers = Vec::new();
        for kind in &self.demo.kinds {
            self.go_on()?;
            self.progress.say(format!("{kind}: fills {} keys", grouped(self.input.keys())));
            let mut worker = Worker::start(&self.job(*kind, dir, Task::Measure))?;
            match worker.hear()? {
                Some(Message::Ready { .. }) => {}
                other => return Err(worker.unexpected(other)),
            }
            one_round(&mut worker, self.demo.round() / 10)?; // warms up
            self.progress.step(format!("{kind}: filled"));
            workers.push((kind, worker, Vec::new()));
        }
        for turn in 1..=ROUNDS {
            for (kind, worker, rounds) in &mut workers {
                self.go_on()?;
                self.progress.say(format!("{kind}: round {turn} of {ROUNDS}"));
                let round = one_round(worker, self.demo.round())?;
                let rate = round.ops as f64 / (round.ns as f64 / 1e9) / 1e3;
                self.progress.step(format!("{kind}: round {turn} of {ROUNDS}: {} thousand operations/s", number(rate)));
                rounds.push(round);
            }
        }
        let end = |(_, mut worker, rounds): (_, Worker, _)| {
            worker.tell(crate::measured::END)?;
            match worker.hear()? {
                Some(Message::Closed) => worker.end().map(|()| rounds),
                other => Err(worker.unexpected(other)),
            }
        };
        workers.into_iter().map(end).collect()
    }

    // ---- disturbed --------------------------------------------------------------------------------------------------

    /// Kills workers on one pool that many times. Each fourth kill hits a worker that is recovering from the one before.
    fn kill(&self, job: &Job, rounds: Vec<Round>, kills: u32, random: &mut Random) -> Result<(Outcome, pmem::Domain)> {
        let mut found = verify::look(job, &self.input, &self.values)?;
        let domain = found.domain;
        let mut ledger = Ledger::new(&found.states, &found.journal);
        let mut outcome = Outcome::new(job.kind()?, rounds, kills);
        outcome.findings.extend(found.damage.drain(..).map(|what| Finding { kill: 0, what }));
        let (least, most) = self.demo.lives();
        while outcome.kills < kills && outcome.findings.is_empty() {
            self.go_on()?;
            let life = least + (most - least).mul_f64(random.unit());
            self.one_kill(job, Moment::Working, life, &mut outcome, &mut ledger)?;
            if outcome.kills % 4 == 3 && outcome.kills < kills && outcome.findings.is_empty() {
                let usual = outcome.recoveries.iter().max().map_or(least, |ns| Duration::from_nanos(*ns));
                self.one_kill(job, Moment::Recovering, usual.mul_f64(random.unit()), &mut outcome, &mut ledger)?;
            }
            if outcome.findings.is_empty() {
                self.look(job, &mut outcome, &mut ledger);
            }
            self.progress.say(status(&outcome));
        }
        (outcome.acknowledged, outcome.doubts, outcome.made) = (ledger.acknowledged, ledger.doubts, ledger.made);
        Ok((outcome, domain))
    }

    fn one_kill(
        &self,
        job: &Job,
        moment: Moment,
        life: Duration,
        outcome: &mut Outcome,
        ledger: &mut Ledger,
    ) -> Result<()> {
        let worker = Worker::start(job)?;
        let kind = outcome.kind;
        let mut heard = 0_u32;
        let mut recovered = false;
        let death = worker.kill(life, |message| {
            match (message, moment) {
                (Message::Opening, Moment::Recovering) => return Ok(Flow::Kill),
                (Message::Ready { .. }, _) => {
                    recovered = true;
                    if moment == Moment::Working {
                        return Ok(Flow::Kill);
                    }
                }
                (Message::Opening, Moment::Working) => {}
                (Message::Step { thread, done, next }, _) => {
                    let failed = |what| Error::Worker { kind: kind.to_string(), what };
                    ledger.step(thread, done, next).map_err(failed)?;
                    heard += 1;
                    if heard.is_multiple_of(4096) {
                        let so_far = grouped(ledger.acknowledged);
                        self.progress.say(format!("{kind}: working, {so_far} updates acknowledged"));
                    }
                }
                (other, _) => return Err(Error::Worker { kind: kind.to_string(), what: format!("said {other}") }),
            }
            Ok(Flow::Wait)
        })?;
        ledger.ended();
        self.go_on()?;
        match death {
            Death::Killed => {
                outcome.kills += 1;
                outcome.kills_recovering += u32::from(!recovered);
            }
            Death::Failed(what) => outcome.findings.push(Finding { kill: outcome.kills, what }),
        }
        outcome.acknowledged = ledger.acknowledged;
        self.progress.step(status(outcome));
        Ok(())
    }

    /// Recovers and verifies. Whatever fails here is a finding: the pool was sound before it was killed.
    fn look(&self, job: &Job, outcome: &mut Outcome, ledger: &mut Ledger) {
        self.progress.say(format!("{}: recovers and verifies", outcome.kind));
        let kill = outcome.kills;
        match verify::look(job, &self.input, &self.values) {
            Ok(Found { recovery_ns, recovered, states, journal, damage, .. }) => {
                outcome.recoveries.push(recovery_ns);
                outcome.finished += recovered.finished;
                outcome.undone += recovered.undone;
                outcome.findings.extend(damage.into_iter().map(|what| Finding { kill, what }));
                for wrong in ledger.look(&states, &journal) {
                    outcome.lost += wrong.lost();
                    outcome.findings.push(Finding { kill, what: self.describe(wrong) });
                }
            }
            Err(error) => outcome.findings.push(Finding { kill, what: error.to_string() }),
        }
    }

    fn describe(&self, wrong: Wrong) -> String {
        let name = |key| {
            let mut buffer = self.input.buffer();
            format!("key \"{}\"", self.input.name(key, &mut buffer).escape_ascii())
        };
        let version = |State { version, live }| format!("version {version}{}", if live { "" } else { " (deleted)" });
        match wrong {
            Wrong::Lost { key, expected, found } | Wrong::Undead { key, expected, found } => {
                format!("{}: LOST: expected {}, found {}", name(key), version(expected), version(found))
            }
            Wrong::Half { key, expected, found } => format!(
                "{}: expected version {expected}, found {}: HALF a transaction, or one that nobody asked for",
                name(key),
                version(found)
            ),
            Wrong::Journal { thread, acknowledged, found } if found < acknowledged => {
                format!("thread {thread}: LOST: had acknowledged update {acknowledged}, its journal ends with {found}")
            }
            Wrong::Journal { thread, acknowledged, found } => {
                format!(
                    "thread {thread}: had acknowledged update {acknowledged}, its journal ends with {found}, which nobody wrote"
                )
            }
        }
    }
}

/// When a worker is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Working,
    Recovering,
}

fn status(outcome: &Outcome) -> String {
    let Outcome { kind, kills, wanted, acknowledged, lost, .. } = outcome;
    let lost = if *lost == 0 { "none lost".into() } else { format!("{} LOST", grouped(*lost)) };
    format!("{kind}: {kills} of {wanted} kills, {} updates acknowledged, {lost}", grouped(*acknowledged))
}

/// Of `all` kills.
fn share(all: u32, policies: u32, at: u32) -> u32 {
    all / policies + u32::from(at < all % policies)
}

fn one_round(worker: &mut Worker, length: Duration) -> Result<Round> {
    worker.tell(&length.as_millis().to_string())?;
    match worker.hear()? {
        Some(Message::Round(round)) => Ok(round),
        other => Err(worker.unexpected(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_shared_out() {
        let shares = |all, policies| (0..policies).map(|at| share(all, policies, at)).collect::<Vec<_>>();
        assert_eq!(shares(20, 2), [10, 10]);
        assert_eq!(shares(5, 3), [2, 2, 1]);
        assert_eq!(shares(1, 2), [1, 0]);
    }
}
