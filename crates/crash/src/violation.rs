//! What the explorer found, told so that it can be understood and repeated.

use std::backtrace::Backtrace;
use std::fmt;

use pmem::sim::Site;
use serde::{Deserialize, Serialize};

use crate::config::{Barrier, Kind};
use crate::decide::LENGTH_UNIT;
use crate::sim::Sim;

/// Lost words printed at most.
const LOST_PRINTED_MAX: usize = 24;
/// Letters of a message, from its beginning, by which two findings are told apart.
const TELLING: usize = 40;
/// Stack frames kept at most.
const FRAMES_MAX: usize = 24;

/// A crash after which something promised is not there, or recovery fails. A check makes it from a message; the
/// explorer adds where and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Violation {
    /// What is wrong.
    pub message: String,
    /// Recovery gave a clear error: what a fault of the medium allows, and a crash does not.
    pub detected: bool,
    /// Where the power failed, or the process was killed: the program's crash point first, then that of its recovery.
    pub trail: Vec<CrashPoint>,
    /// The fault of the medium that was planted.
    pub fault: Option<Box<str>>,
    /// Seed of the exploration.
    pub seed: u64,
    /// Which of its schedules, from 0.
    pub schedule: u64,
    /// The operations up to the crash.
    pub ops: Vec<String>,
    /// How many operations the workload had before it was shrunk.
    pub shrunk_from: Option<u32>,
}

/// One power failure, or one process killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CrashPoint {
    /// The call before whose effect the power failed, with its source line; none at the end of the program.
    pub barrier: Option<Barrier>,
    /// Number of this crash point in its schedule, from 1.
    pub number: u64,
    /// The process was killed and the power stayed: recovery found in the caches all that had been stored.
    #[serde(default)]
    pub killed: bool,
    /// The callers, innermost first.
    pub stack: Vec<String>,
    /// What did not reach the media.
    pub lost: Vec<Lost>,
    /// What recovery read of the open words, in this order: offset, and which of its values it had.
    pub choices: Vec<(u64, u32)>,
}

/// A word that did not reach the media, though the program had stored it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lost {
    /// Offset in the file; `None` stands for the length of the file.
    pub offset: Option<u64>,
    /// What the crash left.
    pub left: u64,
    /// What the program had stored last.
    pub stored: u64,
    /// It was flushed, but not drained; otherwise it was never flushed.
    pub flushed: bool,
}

impl Violation {
    /// Something promised is not there, or something never written is.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// It tells of the same locations: numbers in its message aside.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let locations =
            |v: &Self| v.trail.iter().map(|point| (point.barrier.clone(), point.killed)).collect::<Vec<_>>();
        let text = |v: &Self| v.message.chars().filter(|c| !c.is_ascii_digit()).take(TELLING).collect::<String>();
        locations(self) == locations(other) && text(self) == text(other)
    }

    /// Recovery refused the image with a clear error. Right after a fault of the medium, wrong after a mere crash.
    #[must_use]
    pub fn detected(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), detected: true, ..Self::default() }
    }
}

impl CrashPoint {
    pub(crate) fn new(kind: Kind, site: Option<Site>, number: u64, killed: bool) -> Self {
        let barrier = site.map(|site| Barrier::new(kind, site));
        Self { barrier, number, killed, stack: Vec::new(), lost: Vec::new(), choices: Vec::new() }
    }
}

/// The branches that this recovery took.
pub(crate) fn branches(sim: &Sim) -> Vec<(u64, u32)> {
    let image = sim.image();
    let offset = |unit: u32| {
        let word = image.units.get(unit as usize).and_then(|u| u.words().next());
        word.map_or(u64::MAX, |word| word as u64 * 8)
    };
    sim.choices().iter().map(|choice| (offset(choice.unit), choice.option)).collect()
}

/// What the image that this recovery runs on is missing.
pub(crate) fn lost_words(sim: &Sim) -> Vec<Lost> {
    let image = sim.image();
    let mut lost = Vec::new();
    for choice in sim.choices().iter().filter(|c| c.option != c.newest) {
        if choice.unit == LENGTH_UNIT {
            let (left, stored) = (image.lens[choice.option as usize], image.lens[choice.newest as usize]);
            lost.push(Lost { offset: None, left, stored, flushed: false });
            continue;
        }
        let unit = &image.units[choice.unit as usize];
        let (left, stored) = (image.option(unit, choice.option), image.option(unit, choice.newest));
        for (at, word) in unit.words().enumerate().filter(|&(at, _)| left[at] != stored[at]) {
            let offset = Some(word as u64 * 8);
            lost.push(Lost { offset, left: left[at], stored: stored[at], flushed: unit.flushed });
        }
    }
    lost.sort_by_key(|l| l.offset);
    lost
}

/// The call stack, innermost first, without the frames of the explorer and the standard library.
pub(crate) fn stack() -> Vec<String> {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let here = std::env::current_dir().unwrap_or_default();
    let text = Backtrace::force_capture().to_string();
    let mut frames: Vec<String> = Vec::new();
    let mut symbol = "";
    for line in text.lines().map(str::trim) {
        let Some(location) = line.strip_prefix("at ") else {
            symbol = line.split_once(": ").map_or(line, |(_, symbol)| symbol);
            continue;
        };
        let path = location.strip_prefix("./").map_or_else(|| location.into(), |rest| here.join(rest));
        let foreign =
            path.starts_with("/rustc") || location.contains("/.cargo/registry/") || !location.contains(".rs:");
        if !foreign && !path.to_string_lossy().starts_with(ours) && frames.len() < FRAMES_MAX {
            frames.push(format!("{} at {location}", without_generics(symbol)));
        }
    }
    frames
}

/// `append<Log, alloc::Global>` is `append`: the types say nothing about the crash.
fn without_generics(symbol: &str) -> String {
    let mut depth = 0u32;
    let outside = symbol.chars().filter(|&c| {
        depth = depth.saturating_add(u32::from(c == '<'));
        let keep = depth == 0;
        depth = depth.saturating_sub(u32::from(c == '>'));
        keep
    });
    let name: String = outside.collect();
    if name.is_empty() { symbol.to_owned() } else { name }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

impl CrashPoint {
    /// `after_kill`: recovery went before it with a killed program's stores in the caches, and did not make all of them persistent.
    fn write(&self, f: &mut fmt::Formatter<'_>, after_kill: bool) -> fmt::Result {
        let what = if self.killed { "process killed at crash point" } else { "crash point" };
        match &self.barrier {
            Some(barrier) => writeln!(f, "{what} {}: {barrier}", self.number)?,
            None => writeln!(f, "{what} {}: at the end", self.number)?,
        }
        for frame in &self.stack {
            writeln!(f, "      by {frame}")?;
        }
        if self.killed {
            writeln!(f, "    recovery found in the caches all that had been stored")?;
        } else if self.lost.is_empty() {
            writeln!(f, "    nothing that recovery reads was lost")?;
        }
        for lost in self.lost.iter().take(LOST_PRINTED_MAX) {
            let why = match lost.flushed {
                true => "flushed but not drained",
                false if after_kill => "not flushed since the process was killed",
                false => "never flushed",
            };
            match lost.offset {
                None => writeln!(f, "    lost length: {} instead of {}", lost.left, lost.stored)?,
                Some(offset) => writeln!(
                    f,
                    "    lost word at {offset} ({offset:#x}): {:#x} instead of {:#x}, {why}",
                    lost.left, lost.stored
                )?,
            }
        }
        if self.lost.len() > LOST_PRINTED_MAX {
            writeln!(f, "    and {} more", self.lost.len() - LOST_PRINTED_MAX)?;
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violation: {}", self.message)?;
        if let Some(fault) = &self.fault {
            writeln!(f, "  fault of the medium: {fault}")?;
        }
        for (depth, point) in self.trail.iter().enumerate() {
            let who = match (depth, point.killed) {
                (0, _) => "",
                (_, true) => "then, in recovery, ",
                (_, false) => "then, in recovery, power failed at ",
            };
            let after_kill = depth > 0 && self.trail[depth - 1].killed;
            write!(f, "  {who}")?;
            point.write(f, after_kill)?;
        }
        if !self.ops.is_empty() {
            writeln!(f, "  operations up to there:")?;
            for op in &self.ops {
                writeln!(f, "    {op}")?;
            }
        }
        if let Some(from) = self.shrunk_from {
            writeln!(f, "  (shrunk from {from} operations)")?;
        }
        write!(f, "  seed {}, schedule {}: the same configuration shows it again", self.seed, self.schedule)
    }
}

impl std::error::Error for Violation {}
