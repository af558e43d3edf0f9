//! What a user would decide by: the store, the server and objects in place, beside what would be used instead.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bench::engines::Contestant;
use bench::experiments::kv::KvRun;
use bench::experiments::overwrite::{Overwrite, Set};
use bench::experiments::server::Served;
use bench::kv_sides::{Field, StoreKind};
use bench::workload::Workload;
use bench::{Contest, Plan, Row, Spread};
use heap::Policy;

use crate::config::Demo;
use crate::progress::Progress;

/// One row of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// The operation and where its data lies.
    pub what: String,
    /// What it is compared with.
    pub peer: &'static str,
    /// The two sides, or why there are no numbers.
    pub measured: Result<Measured, String>,
}

/// Operations per second of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Ours.
    pub cairn: f64,
    /// The peer's.
    pub peer: f64,
    /// How many times as fast ours is, round by round.
    pub ratio: Spread,
    /// 99 of 100 operations take at most so many nanoseconds: ours, the peer's.
    pub p99_ns: Option<(f64, f64)>,
}

/// Rounds of each comparison.
pub(crate) const ROUNDS: usize = 5;
/// Bytes of a value in a store.
const VALUE: u32 = 100;
/// Bytes of a large object.
const LARGE: usize = 16 << 10;

/// Rows that [`measure`] gives.
pub(crate) const ROWS: u64 = 8;

impl Beside {
    /// Texts for the columns of the table.
    pub(crate) fn cells(&self) -> [String; 6] {
        let (what, peer) = (self.what.clone(), self.peer.to_owned());
        match &self.measured {
            Ok(Measured { cairn, peer: theirs, ratio: Spread { median, min, max }, p99_ns }) => {
                let p99 = p99_ns.map_or_else(String::new, |(ours, theirs)| format!("{}, {}", time(ours), time(theirs)));
                [what, rate(*cairn), peer, rate(*theirs), format!("{median:.2} ({min:.2}-{max:.2})"), p99]
            }
            Err(why) => [what, "-".into(), peer, "-".into(), why.clone(), String::new()],
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, peer, measured } = self;
        match measured {
            Ok(Measured { ratio, .. }) => write!(f, "{what}: {:.2} times as fast as {peer}", ratio.median),
            Err(why) => write!(f, "{what}: not compared with {peer}: {why}"),
        }
    }
}

/// `1.2 M`, `3.4 k`
fn rate(per_second: f64) -> String {
    match per_second {
        fast if fast >= 1e6 => format!("{:.1} M", fast / 1e6),
        fast if fast >= 1e3 => format!("{:.1} k", fast / 1e3),
        slow => format!("{slow:.0}"),
    }
}

fn time(ns: f64) -> String {
    match ns {
        long if long >= 1e6 => format!("{:.1} ms", long / 1e6),
        short => format!("{:.1} µs", short / 1e3),
    }
}

/// All comparisons; files go to `memory` and to `disk`.
pub(crate) fn measure(demo: &Demo, memory: &Path, disk: &Path, progress: &Progress) -> Vec<Beside> {
    let plan = Plan { rounds: ROUNDS, batch_time: demo.measured / 100 };
    let mut all = Vec::new();
    let mut said = |rows: Vec<Beside>| {
        for row in &rows {
            progress.step(row.to_string());
        }
        all.extend(rows);
    };
    progress.say("store, beside redb".into());
    for threads in [1, 8] {
        let on_disk = Store { workloads: &[Workload::Put], keys: 2000, threads, dir: disk };
        said(on_disk.measure(plan, demo.seed));
    }
    let in_memory =
        Store { workloads: &[Workload::Put, Workload::A, Workload::C], keys: 50_000, threads: 1, dir: memory };
    said(in_memory.measure(plan, demo.seed));
    progress.say("server, beside Redis".into());
    said(vec![server(demo, disk), server(demo, memory)]);
    progress.say("large objects, in place and undo".into());
    said(vec![large_objects(plan, demo.seed, memory)]);
    all
}

struct Store<'a> {
    workloads: &'a [Workload],
    keys: u64,
    threads: usize,
    dir: &'a Path,
}

impl Store<'_> {
    fn measure(&self, plan: Plan, seed: u64) -> Vec<Beside> {
        let redb = StoreKind::Peer(bench::kv_sides::Peer::Redb);
        let field = Field {
            dir: self.dir.to_owned(),
            who: vec![StoreKind::Kv, redb],
            baseline: Some(redb),
            threads: vec![self.threads],
            plan,
            seed,
        };
        let run = KvRun {
            workloads: self.workloads.to_vec(),
            keys: vec![self.keys],
            value_bytes: vec![VALUE],
            ..KvRun::default()
        };
        let rows = run.measure(&field, &()).map_err(|error| error.to_string());
        let row = |workload: &Workload| {
            let rows = rows.as_ref().map_err(Clone::clone);
            let of = |who: &str| {
                rows.clone().map(|rows| {
                    rows.iter().find(|row| row.engine == who && row.params["workload"] == workload.name()).cloned()
                })
            };
            let what = match *workload {
                Workload::Put => format!("put {VALUE} B"),
                Workload::A => "half updates, half reads".to_owned(),
                _ => "reads".to_owned(),
            };
            let threads = if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
            Beside {
                what: format!("store: {what}, {threads}, {}", place(self.dir)),
                peer: "redb",
                measured: sides(of("kv"), of("redb")),
            }
        };
        self.workloads.iter().map(row).collect()
    }
}

/// Where files are: on which file system.
fn place(dir: &Path) -> String {
    bench::machine::medium(dir).unwrap_or_else(|| "an unknown file system".into())
}

fn server(demo: &Demo, dir: &Path) -> Beside {
    let served = Served {
        cairn: demo.cairn.clone(),
        dir: dir.to_owned(),
        tests: vec!["set".into()],
        pipeline: vec![1],
        requests: (demo.measured.as_secs_f64() * 3000.0) as u64,
        keys: 5000,
        ..Served::default()
    };
    let rows = served.measure(&Plan { rounds: ROUNDS, batch_time: Duration::from_nanos(1) }, &());
    let rows = rows.map_err(|error| error.to_string());
    let of = |who: &str| rows.clone().map(|rows| rows.into_iter().find(|row| row.engine == who));
    Beside {
        what: format!("server: SET of 100 B, 50 connections, {}", place(dir)),
        peer: "Redis",
        measured: sides(of("cairn"), of("redis")),
    }
}

fn large_objects(plan: Plan, seed: u64, dir: &Path) -> Beside {
    let [in_place, undo] = [Policy::InPlace, Policy::Undo].map(Contestant::Heap);
    let contest =
        Contest { dir: dir.to_owned(), who: vec![in_place, undo], baseline: Some(undo), threads: vec![1], plan, seed };
    let run = Overwrite { objects: vec![1], bytes: vec![LARGE], sets: vec![Set::Cold] };
    let rows = run.measure(&contest, &()).map_err(|error| error.to_string());
    let of = |who: Contestant| rows.clone().map(|rows| rows.into_iter().find(|row| row.engine == who.name()));
    Beside {
        what: format!("objects: {} KiB in place, {}", LARGE >> 10, place(dir)),
        peer: "undo log",
        measured: sides(of(in_place), of(undo)),
    }
}

/// Both rows, as far as they are there.
fn sides(ours: Result<Option<Row>, String>, theirs: Result<Option<Row>, String>) -> Result<Measured, String> {
    let there = |row: Option<Row>| match row {
        Some(Row { missing: Some(why), .. }) => Err(why),
        Some(row) => Ok(row),
        None => Err("not measured".into()),
    };
    let (ours, theirs) = (there(ours?)?, there(theirs?)?);
    Ok(Measured {
        cairn: ours.ops_per_s,
        peer: theirs.ops_per_s,
        ratio: ours.ratio.ok_or("not measured")?,
        p99_ns: ours.p99_ns.zip(theirs.p99_ns),
    })
}
