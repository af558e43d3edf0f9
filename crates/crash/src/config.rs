//! What to explore, how much of it, and on which model of the media.

use std::panic::Location;

use serde::{Deserialize, Serialize};

/// How memory tears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Model {
    /// Every 8-byte word reaches the media on its own: covers weakly ordered processors and remote writes.
    #[default]
    Words,
    /// x86: the stores to one 64-byte line reach it in program order.
    Lines,
    /// An ordinary file: flushes do nothing, a drain is a sync and covers all threads, growth can be lost.
    File {
        /// Bytes written as one, 512 or 4096: corner cases are taken by sector. Words tear nevertheless.
        sector: u32,
    },
}

impl Model {
    /// Bytes of the group that corner cases keep together.
    pub(crate) fn group_bytes(self) -> u64 {
        match self {
            Model::Words => 8,
            Model::Lines => 64,
            Model::File { sector } => u64::from(sector.max(8)),
        }
    }
}

/// What happens at a crash point, or is muted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Lines start their way to the media.
    Flush,
    /// The barrier; a sync in the file model.
    Drain,
    /// Bytes reach the media in one piece.
    Whole,
    /// The file changes its length.
    SetLen,
    /// Nothing: the program, or a recovery, ended here.
    End,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Flush => "flush",
            Kind::Drain => "drain",
            Kind::Whole => "whole write",
            Kind::SetLen => "set_len",
            Kind::End => "end",
        })
    }
}

/// The call site of a flush or a drain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Barrier {
    /// Source file.
    pub file: String,
    /// Line in it.
    pub line: u32,
    /// Column in it.
    pub column: u32,
    /// A flush or a drain.
    pub kind: Kind,
}

impl Barrier {
    pub(crate) fn new(kind: Kind, site: &Location<'_>) -> Self {
        Self { file: site.file().to_owned(), line: site.line(), column: site.column(), kind }
    }

    pub(crate) fn is(&self, kind: Kind, site: &Location<'_>) -> bool {
        self.kind == kind && self.line == site.line() && self.column == site.column() && self.file == site.file()
    }
}

impl std::fmt::Display for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}:{}:{}", self.kind, self.file, self.line, self.column)
    }
}

/// A fault of the medium itself, planted in data that recovery reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// One bit is wrong.
    Flip,
    /// A line cannot be read.
    Poison,
    /// A line shows what it held earlier: the last write of it never happened.
    Stuck,
    /// A page of 4 KiB shows what it held at an earlier barrier: no write of it since then happened.
    Page,
}

/// A plain description of an exploration. The same configuration explores the same states.
///
/// ```
/// let config = crash::Config::seeded(7).budget(200_000).depth(2).model(crash::Model::Lines);
/// assert_eq!(config.seed, 7);
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Config {
    /// Everything random follows from it.
    pub seed: u64,
    /// How memory tears.
    pub model: Model,
    /// Images recovered at most, over all crash points and nested ones.
    pub budget: u64,
    /// Images recovered at most at one crash point.
    pub point_budget: u64,
    /// Images recovered at most at one crash point inside a recovery.
    pub nested_budget: u64,
    /// 1 crashes the program, 2 also its recovery, and so on.
    pub depth: usize,
    /// Of a hundred images at a crash point of the program, those at most that crashes inside its recoveries leave.
    pub nested_share: u64,
    /// Flushes are crash points too, not drains alone.
    pub at_flushes: bool,
    /// Workloads and, with several threads, schedules: each with a seed of its own.
    pub schedules: u64,
    /// In every other schedule a thread runs on for so many events, on average, while others stand where they are;
    /// otherwise, and with 1, the one that runs is drawn at each event.
    pub stretch: u64,
    /// Medium faults planted at each crash point.
    pub faults: u32,
    /// Kinds of medium faults to choose from.
    pub fault_kinds: Vec<FaultKind>,
    /// This drain of the program (the first is 1) fails with `EIO`.
    pub fail_drain: Option<u64>,
    /// The file cannot grow beyond this many bytes.
    pub disk_full: Option<u64>,
    /// The exploration ends with the first violation.
    pub stop_at_first: bool,
    /// A violation is shrunk to the fewest operations that still show it.
    pub shrink: bool,
    /// A recovered pool, recovered again, must show the same state.
    pub stable: bool,
    /// An image is not recovered again where the same bytes were recovered and held against the same promises before.
    pub skip_known: bool,
    /// At each crash point the process is also killed while the power stays, and fails later.
    pub kills: bool,
    /// The process is also killed in front of each flush, with what it has not flushed yet in the caches: 1 kills the program so, 2 also its recovery; 0 neither.
    pub kills_at_flushes: usize,
    /// What was flushed and not waited for outlives a kill.
    pub flushed_outlives: bool,
    /// After so many seconds the exploration ends with the next crash point.
    pub seconds: Option<u64>,
    /// Milliseconds after which a thread that is not heard of counts as waiting for one that waits for its turn.
    pub silence_ms: u64,
    /// Flushes and drains that are left out.
    pub muted: Vec<Barrier>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $type) -> Self { self.$name = $name; self })*
    };
}

impl Config {
    /// Words, depth 2, 200,000 images, crash points at drains, kills at flushes of the program, too.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            model: Model::Words,
            budget: 200_000,
            point_budget: 4_096,
            nested_budget: 128,
            depth: 2,
            nested_share: 100,
            at_flushes: false,
            schedules: 1,
            stretch: 1,
            faults: 0,
            fault_kinds: vec![FaultKind::Flip, FaultKind::Poison, FaultKind::Stuck],
            fail_drain: None,
            disk_full: None,
            stop_at_first: true,
            shrink: true,
            stable: true,
            skip_known: true,
            kills: true,
            kills_at_flushes: 1,
            flushed_outlives: true,
            seconds: None,
            silence_ms: 10_000,
            muted: Vec::new(),
        }
    }

    setters! {
        /// How memory tears.
        model: Model,
        /// Images recovered at most, in all.
        budget: u64,
        /// Images recovered at most at one crash point.
        point_budget: u64,
        /// Images recovered at most at one crash point inside a recovery.
        nested_budget: u64,
        /// 1 crashes the program, 2 also its recovery.
        depth: usize,
        /// How many images in a hundred crashes inside recoveries may have: the fewer, the more of the program itself is seen.
        nested_share: u64,
        /// Whether flushes are crash points too.
        at_flushes: bool,
        /// How many workloads or schedules.
        schedules: u64,
        /// How long a thread runs on in every other schedule.
        stretch: u64,
        /// Medium faults planted at each crash point.
        faults: u32,
        /// Kinds of medium faults to choose from.
        fault_kinds: Vec<FaultKind>,
        /// Whether the first violation ends the exploration.
        stop_at_first: bool,
        /// Whether a violation is shrunk.
        shrink: bool,
        /// Whether a recovered pool must show the same state when recovered again.
        stable: bool,
        /// Whether an image known from elsewhere is left out; it changes the speed alone, as long as a check follows from the image, the history
        /// and its [`Witness`](crate::Witness).
        skip_known: bool,
        /// Whether the process is killed too, at each crash point, with everything it stored still in the caches.
        kills: bool,
        /// To which depth the process is killed in front of flushes, too. What a drain waits for has been flushed, and a kill does not take that back.
        kills_at_flushes: usize,
        /// Whether what was flushed and not waited for outlives a kill, as it does on every processor known. Without, recovery may rely on less.
        flushed_outlives: bool,
        /// How long a thread may be silent before a lock that the scheduler cannot see is suspected.
        silence_ms: u64,
    }

    /// Ends the exploration at the first crash point after so many seconds. What it covers then depends on the machine.
    #[must_use]
    pub fn seconds(mut self, seconds: u64) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// Lets the `n`-th drain of the program fail (the first is 1).
    #[must_use]
    pub fn fail_drain(mut self, n: u64) -> Self {
        self.fail_drain = Some(n);
        self
    }

    /// Lets the disk be full at this length of the file.
    #[must_use]
    pub fn disk_full(mut self, bytes: u64) -> Self {
        self.disk_full = Some(bytes);
        self
    }

    /// Leaves this flush or drain out, in the program and in recovery.
    #[must_use]
    pub fn mute(mut self, barrier: Barrier) -> Self {
        self.muted.push(barrier);
        self
    }
}
