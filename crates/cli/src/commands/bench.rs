//! `cairn bench`.

mod kv;
mod log;
mod replicate;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench::engines::{Structure, environment};
use bench::experiments::{Alloc, Dependent, Overwrite, Set, SmallBank, Structures, Tpcc, WorstCase, YcsbRun};
use bench::limits::Limits;
use bench::workload::Trace;
use bench::{Contest, Plan, Row, Watch};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Outcome, open_output};
use crate::args::{self, Bench, Compare, Output, Rounds};
use crate::failure::Failure;
use crate::output::say;

pub fn run(experiment: &Bench) -> Outcome {
    match experiment {
        Bench::Limits(args) => limits(args),
        Bench::TxOverwrite(args) => overwrite(args),
        Bench::TxAlloc(args) => alloc(args),
        Bench::Ycsb(args) => ycsb(args),
        Bench::Dependent(args) => dependent(args),
        Bench::WorstCase(args) => worst_case(args),
        Bench::Structures(args) => structures(args),
        Bench::Tpcc(args) => tpcc(args),
        Bench::SmallBank(args) => smallbank(args),
        Bench::LogAppend(args) => log::append(args),
        Bench::LogReplicate(args) => replicate::replicate(args),
        Bench::LogTakeover(args) => replicate::takeover(args),
        Bench::RocksdbWal(args) => replicate::rocksdb_wal(args),
        Bench::Kv(args) => kv::run(args),
        Bench::Midas(args) => kv::midas(args),
        Bench::KvOpen(args) => kv::open(args),
        Bench::KvSpace(args) => kv::space(args),
        Bench::Server(args) => served(args),
        Bench::Figures(args) => log::figures(args),
    }
}

/// A copy of a log, in a process that a measurement has started.
pub fn replica() -> Outcome {
    bench::replicas::serve()?;
    Ok(ExitCode::SUCCESS)
}

fn limits(args: &args::Limits) -> Outcome {
    let plan = if args.quick { Plan::quick() } else { Plan::full() };
    let mut limits = Limits::here(plan);
    if !args.dir.is_empty() {
        limits.dirs.clone_from(&args.dir);
    }
    limits.domain = args.media.domain;
    limits.latency = args.media.nvm_latency;

    // A file that cannot be written is told before the measurement, not after.
    let mut json = open_output(args.json.as_deref())?;
    let rows = limits.measure()?;
    if let Some((path, out)) = &mut json {
        bench::write_json(&rows, out).map_err(|error| Failure::file("write", path, &error))?;
    }
    if args.json.as_deref() != Some("-".as_ref()) {
        say!("{}", bench::table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn served(args: &args::ServedBench) -> Outcome {
    let mut what = bench::experiments::Served { idle: args.idle, value_bytes: args.value_bytes, ..Default::default() };
    what.cairn = std::env::current_exe().map_err(|error| Failure::file("find", Path::new("cairn"), &error))?;
    if let Some(dir) = &args.run.dir {
        what.dir.clone_from(dir);
    }
    if args.run.output.quick {
        (what.requests, what.keys) = (20_000, 1_000);
    }
    what.requests = args.requests.unwrap_or(what.requests);
    what.keys = args.keys.unwrap_or(what.keys);
    (what.memcached, what.clients) = (args.memcached, args.clients);
    choose(&mut what.tests, &args.test);
    choose(&mut what.connections, &args.connections);
    choose(&mut what.pipeline, &args.pipeline);
    choose(&mut what.threads, &args.threads);
    let plan = plan(&args.run.output, &args.run.rounds);
    measured_as(print, &args.run.output, |watch| what.measure(&plan, watch))
}

fn overwrite(args: &args::Overwrite) -> Outcome {
    let quick = args.compare.run.output.quick;
    let mut what = Overwrite::default();
    if quick {
        (what.bytes, what.sets) = (vec![64, 1024], vec![Set::Hot]);
    }
    choose(&mut what.objects, &args.objects);
    choose(&mut what.bytes, &args.bytes);
    choose(&mut what.sets, &args.set);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn alloc(args: &args::Alloc) -> Outcome {
    let mut what = Alloc::default();
    if args.compare.run.output.quick {
        what.bytes = vec![128];
    }
    choose(&mut what.bytes, &args.bytes);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn ycsb(args: &args::Ycsb) -> Outcome {
    let mut what = YcsbRun {
        key_bytes: args.key_bytes,
        value_bytes: args.value_bytes,
        distribution: args.distribution,
        ..YcsbRun::default()
    };
    if args.compare.run.output.quick {
        what.keys = QUICK_KEYS;
    }
    what.keys = args.keys.unwrap_or(what.keys);
    if let Some(path) = &args.trace {
        what.trace = Some((path.display().to_string(), Trace::read(path)?));
        what.structures = vec![Structure::BTree];
    }
    choose(&mut what.workloads, &args.workload);
    choose(&mut what.structures, &args.structure);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn dependent(args: &args::Dependent) -> Outcome {
    let mut what = Dependent::default();
    if args.compare.run.output.quick {
        what.keys = QUICK_KEYS;
    }
    what.keys = args.keys.unwrap_or(what.keys);
    choose(&mut what.structures, &args.structure);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn worst_case(args: &args::WorstCase) -> Outcome {
    let mut what = WorstCase::default();
    if args.compare.run.output.quick {
        what.bytes = vec![64, 1024];
    }
    choose(&mut what.bytes, &args.bytes);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn structures(args: &args::Structures) -> Outcome {
    let mut what = Structures { value_bytes: args.value_bytes, degree: args.degree, ..Structures::default() };
    if args.compare.run.output.quick {
        what.keys = QUICK_KEYS;
    }
    what.keys = args.keys.unwrap_or(what.keys);
    what.list_keys = args.list_keys.unwrap_or(what.list_keys);
    choose(&mut what.shapes, &args.structure);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn tpcc(args: &args::Tpcc) -> Outcome {
    let mut what = Tpcc { mixes: args.mix.clone(), declare: args.declare.clone(), ..Tpcc::default() };
    if args.compare.run.output.quick {
        (what.scale.customers, what.scale.items) = (60, 1_000);
    }
    choose(&mut what.structures, &args.structure);
    let scale = &mut what.scale;
    for (to, asked) in [
        (&mut scale.warehouses, args.warehouses),
        (&mut scale.customers, args.customers),
        (&mut scale.items, args.items),
    ] {
        // More than there are numbers is refused by the experiment, or by the lack of space.
        *to = asked.map_or(*to, |asked| u32::try_from(asked).unwrap_or(u32::MAX));
    }
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

fn smallbank(args: &args::SmallBank) -> Outcome {
    let mut what = SmallBank::default();
    if args.compare.run.output.quick {
        what.bank.customers = 1_000;
    }
    what.bank.customers = args.customers.unwrap_or(what.bank.customers);
    (what.bank.hot, what.bank.hot_percent) = (args.hot, args.hot_percent);
    choose(&mut what.structures, &args.structure);
    compare(&args.compare, |contest, watch| what.measure(contest, watch))
}

const QUICK_KEYS: u64 = 5_000;

/// What was asked for instead of the default, if anything was.
fn choose<T: Clone>(default: &mut Vec<T>, asked: &[T]) {
    if !asked.is_empty() {
        *default = asked.to_vec();
    }
}

/// What all comparisons have in common: who, where, and what becomes of the rows.
fn compare(args: &Compare, measure: impl FnOnce(&Contest, &dyn Watch) -> bench::Result<Vec<Row>>) -> Outcome {
    let mut contest = Contest::here(plan(&args.run.output, &args.run.rounds));
    contest.who = args.engine.iter().chain(&args.peer).copied().collect();
    contest.threads.clone_from(&args.threads);
    (contest.baseline, contest.seed) = (args.baseline, args.seed);
    if let Some(dir) = &args.run.dir {
        contest.dir.clone_from(dir);
    }
    must_take_part(args.baseline, &contest.who, "--engine")?;
    restart_with(contest.who.iter().map(|who| environment(*who, &contest.dir)))?;
    measured(&args.run.output, |watch| measure(&contest, watch))
}

fn plan(output: &Output, asked: &Rounds) -> Plan {
    let mut plan = if output.quick { Plan::quick() } else { Plan::full() };
    plan.rounds = asked.rounds.unwrap_or(plan.rounds);
    plan.batch_time = asked.round_ms.map_or(plan.batch_time, Duration::from_millis);
    plan
}

/// `ours` is the option that names those that are no peers.
fn must_take_part<T: PartialEq + Display>(baseline: Option<T>, who: &[T], ours: &str) -> Result<(), Failure> {
    match baseline {
        Some(stranger) if !who.contains(&stranger) => Err(Failure::new(
            format!("--baseline {stranger}: it does not take part"),
            format!("name it with {ours} or --peer too"),
        )),
        _ => Ok(()),
    }
}

/// Measures, and puts the rows where they are asked for; people get what `show` makes of them.
fn measured_as(
    show: impl FnOnce(&[Row]) -> Result<(), Failure>,
    output: &Output,
    measure: impl FnOnce(&dyn Watch) -> bench::Result<Vec<Row>>,
) -> Outcome {
    // A file that cannot be written is told before the measurement, not after.
    let json = output.json.as_deref();
    let mut out = open_output(json)?;
    let bar = Bar::new();
    let rows = measure(&bar)?;
    bar.0.finish_and_clear();
    if let Some((path, out)) = &mut out {
        bench::write_json(&rows, out).map_err(|error| Failure::file("write", path, &error))?;
    }
    let quiet = json == Some("-".as_ref());
    if !quiet {
        show(&rows)?;
    }
    if let Some(dir) = &output.plot {
        for path in bench::plot::plot(&rows, dir)? {
            if !quiet {
                say!("{}", path.display())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measured(output: &Output, measure: impl FnOnce(&dyn Watch) -> bench::Result<Vec<Row>>) -> Outcome {
    measured_as(print, output, measure)
}

fn print(rows: &[Row]) -> Result<(), Failure> {
    say!("{}", bench::comparison(rows))?;
    print_place(rows)?;
    Ok(())
}

/// What the numbers are worth: how data was made durable, and by which machine.
fn print_place(rows: &[Row]) -> Result<(), Failure> {
    let mut said: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let Some(domain) = row.domain.as_deref().filter(|_| row.missing.is_none()) else { continue };
        if !said.contains(&(&row.engine, domain)) {
            said.push((&row.engine, domain));
        }
    }
    let said: Vec<String> = said.iter().map(|(engine, domain)| format!("{engine} {domain}")).collect();
    if !said.is_empty() {
        say!("persistence domain: {}", said.join(", "))?;
    }
    if let Some(medium) = rows.iter().find_map(|row| row.medium.as_deref()) {
        let nobody = "; what is there does not outlive a loss of power, whichever engine wrote it: compared is the work that durability asks for";
        say!("files on {medium}{}", if bench::lasts(medium) { "" } else { nobody })?;
    }
    if let Some(row) = rows.iter().find(|row| row.missing.is_none()) {
        let rounds = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
        say!("machine: {}; {rounds} rounds", row.machine)?;
    }
    Ok(())
}

/// Some peers read the environment before `main`, or once for all: begins again with what they need to flush cache lines where our pools do.
fn restart_with(
    needed: impl Iterator<Item = bench::Result<Option<(&'static str, &'static str)>>>,
) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt as _;
    for needed in needed {
        if let Some((name, value)) = needed? {
            let own = std::env::current_exe().unwrap_or_else(|_| Path::new("/proc/self/exe").to_owned());
            let error = std::process::Command::new(own).args(std::env::args_os().skip(1)).env(name, value).exec();
            return Err(Failure::new(
                format!("starting again failed: {error}"),
                format!("set {name}={value} yourself"),
            ));
        }
    }
    Ok(())
}

/// Progress on the terminal, if there is one.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} rounds, {eta} left") {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Watch for Bar {
    fn begin(&self, what: &str, steps: u64) {
        self.0.set_message(what.to_owned());
        self.0.set_length(steps);
        self.0.tick();
    }

    fn step(&self) {
        self.0.inc(1);
    }
}
