//! What is drawn from: the public operations of the log, and which of them can meet.

use std::collections::BTreeSet;
use std::path::Path;

macro_rules! kinds {
    ($($kind:ident)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($kind),* }
        pub const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}

kinds! {
    FollowerOpen FollowerNext FollowerWait FollowerFrom FollowerSkip FollowerLook Kill Convert
    Refused Append TooLong Reserve Fill Complete GiveUp Force ForceNow Post Forced Window Iter IterFrom Next Position
    Discard TruncateTo TruncateAll Reclaim Grow Idle Look Leads Remove
    Close DropLog Abandon Forget OpenReadOnly Open
}

impl Kind {
    /// Needs the file alone, so that it can meet what opens and closes the log.
    pub fn is_outside(self) -> bool {
        self <= Kind::Convert
    }

    /// Has the log to itself: nothing that borrows the handle can be under way.
    pub fn is_alone(self) -> bool {
        self >= Kind::Close
    }

    pub fn bit(self) -> u64 {
        1 << self as u64
    }
}

pub fn in_set(set: u64) -> impl Iterator<Item = Kind> {
    KINDS.iter().copied().filter(move |kind| set & kind.bit() != 0)
}

/// Every public function, and what draws it.
const OPERATIONS: &[(&str, Kind)] = &[
    ("Log::create", Kind::Open),
    ("Log::open", Kind::Open),
    ("Log::open_or_create", Kind::Open),
    ("Log::recovery", Kind::Look),
    ("Log::append", Kind::Append),
    ("Log::reserve", Kind::Reserve),
    ("Log::force", Kind::Force),
    ("Log::force_now", Kind::ForceNow),
    ("Log::force_own", Kind::ForceNow),
    ("Log::post", Kind::Post),
    ("Log::forced", Kind::Forced),
    ("Log::vulnerability_window", Kind::Window),
    ("Log::iter", Kind::Iter),
    ("Log::iter_from", Kind::IterFrom),
    ("Log::discard", Kind::Discard),
    ("Log::truncate_to", Kind::TruncateTo),
    ("Log::truncate_all", Kind::TruncateAll),
    ("Log::reclaim", Kind::Reclaim),
    ("Log::reclaim_later", Kind::Reclaim),
    ("Log::grow", Kind::Grow),
    ("Log::idle", Kind::Idle),
    ("Log::replicas", Kind::Look),
    ("Log::members", Kind::Look),
    ("Log::addresses", Kind::Look),
    ("Log::own_replica", Kind::Look),
    ("Log::id", Kind::Look),
    ("Log::wire_versions", Kind::Look),
    ("Log::payload_max", Kind::TooLong),
    ("Log::stats", Kind::Look),
    ("Log::pool", Kind::Look),
    ("Log::fence", Kind::Leads),
    ("Log::check_leading", Kind::Leads),
    ("Log::lead_for", Kind::Leads),
    ("Log::remove", Kind::Remove),
    ("Log::expect_at", Kind::Leads),
    ("Log::close", Kind::Close),
    ("Log::abandon", Kind::Abandon),
    ("Reservation::lsn", Kind::Reserve),
    ("Reservation::copy", Kind::Fill),
    ("Reservation::complete", Kind::Complete),
    ("Iter::next", Kind::Next),
    ("Iter::position", Kind::Position),
    ("Follower::open", Kind::FollowerOpen),
    ("Follower::open_in", Kind::FollowerOpen),
    ("Follower::eager", Kind::FollowerOpen),
    ("Follower::from", Kind::FollowerFrom),
    ("Follower::next", Kind::FollowerNext),
    ("Follower::wait", Kind::FollowerWait),
    ("Follower::skip_lost", Kind::FollowerSkip),
    ("Follower::position", Kind::FollowerLook),
    ("Follower::head", Kind::FollowerLook),
    ("Follower::ahead", Kind::FollowerLook),
    ("Follower::stats", Kind::FollowerLook),
    ("Follower::is_closed", Kind::FollowerLook),
    ("Options::create", Kind::Open),
    ("Options::create_in", Kind::Open),
    ("Options::open", Kind::Open),
    ("Options::open_or_create", Kind::Open),
    ("Options::open_in", Kind::Open),
    ("Options::open_read_only", Kind::OpenReadOnly),
    ("Options::convert", Kind::Convert),
];

/// Says how a log is made or opened; part of what `Open` draws, or (`when_full`, `within`, `stall_timeout`) about time, which does not pass here.
const OPTIONS: &[&str] = &[
    "Options::new",
    "Options::bytes",
    "Options::segment_bytes",
    "Options::frequency",
    "Options::threads",
    "Options::within",
    "Options::idle",
    "Options::when_full",
    "Options::stall_timeout",
    "Options::pool",
    "Options::without",
    "Options::watermark_every",
    "Options::stream_from",
    "Options::format_1",
    "Lsn::new",
    "Lsn::get",
    "Error::kind",
    "Error::advice",
    // What `Options::open_read_only`, `Follower::open`, `next` and `wait` do, by other names.
    "Log::open_read_only",
    "Log::follow",
    "Following::until_idle",
];

/// Of logs with replicas: see `replicas`, and for how they are opened, `replicated`.
pub const REPLICATED: &[&str] = &[
    "Log::join",
    "Options::create_replicated",
    "Options::open_replicated",
    "Replica::serve",
    "Replica::serve_with",
    "Replica::serve_read",
    "Replica::address",
    "Replica::status",
    "Replica::read",
    "Replica::release",
    "Replica::is_awaited",
    "Replica::news",
    "Replica::await_news",
    "Replica::wake",
    "Replica::wait",
    "Replica::stop",
    "Cursor::position",
    "Replicas::new",
    "Replicas::local",
    "Replicas::at",
    "Replicas::write_quorum",
    "Replicas::trust",
    "Replicas::order",
    "Replicas::timeout",
    "Replicas::open_timeout",
    "Replicas::elected",
    "Replicas::accept_doubt",
    "Replicas::lost",
    "Replicas::make_again",
    "check_replica",
    "look",
];

#[test]
fn the_list_of_operations_is_complete() {
    let mut found = BTreeSet::new();
    in_the_sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    let listed = OPERATIONS.iter().map(|(name, _)| *name).chain(OPTIONS.iter().chain(REPLICATED).copied());
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(listed, found, "an operation without a place in the lists, or one that is gone");
}

/// The public functions, by their types.
fn in_the_sources(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "sim") {
            in_the_sources(&path, found);
        }
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let mut of = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some(rest) = line.strip_prefix("impl") {
                let rest = rest.trim_start_matches("<'a>").trim_start();
                of = rest.split(['<', ' ']).next().unwrap().to_owned();
            }
            let Some(function) = line.trim_start().strip_prefix("pub fn ") else { continue };
            let function = function.split(['(', '<']).next().unwrap();
            match line.starts_with(' ') {
                true => found.insert(format!("{of}::{function}")),
                false => found.insert(function.to_owned()),
            };
        }
    }
}

/// Which kinds met each other.
pub struct Met(Vec<u64>);

impl Met {
    pub fn new() -> Self {
        Self(vec![0; KINDS.len()])
    }

    pub fn note(&mut self, kind: Kind, others: u64) {
        self.0[kind as usize] |= others;
        in_set(others).for_each(|other| self.0[other as usize] |= kind.bit());
    }

    pub fn has(&self, a: Kind, b: Kind) -> bool {
        self.0[a as usize] & b.bit() != 0
    }

    /// Pairs that never met.
    pub fn missing(&self) -> Vec<(Kind, Kind)> {
        let pairs = KINDS.iter().flat_map(|&a| KINDS.iter().map(move |&b| (a, b)));
        pairs.filter(|&(a, b)| a <= b && !self.has(a, b)).collect()
    }
}
