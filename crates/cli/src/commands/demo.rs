//! `cairn demo`.

use std::fs::File;
use std::process::ExitCode;

use super::Outcome;
use crate::args;
use crate::failure::Failure;
use crate::output::say;

pub fn run(args: &args::Demo) -> Outcome {
    let demo = ::demo::Demo {
        dir: args.dir.clone(),
        kinds: args.engine.clone(),
        keys: args.keys,
        value_bytes: args.value_bytes,
        kills: args.kills,
        measured: args.seconds,
        threads: args.threads.map(usize::from),
        trace: args.trace.clone(),
        report: args.report.clone(),
        seed: args.seed,
        only_kills: args.only_kills,
        disk: args.disk.clone().unwrap_or_else(|| ::demo::Demo::default().disk),
        cairn: std::env::current_exe().unwrap_or_else(|_| "cairn".into()),
        early: args.plant_early,
    };
    // A report that cannot be written is told before the demonstration, not after; an old one stays until there is a new one.
    let report = File::options().append(true).create(true).open(&demo.report);
    report.map_err(|error| Failure::file("create", &demo.report, &error))?;
    let summary = ::demo::run(&demo)?;
    say!("{summary}")?;
    for (kind, finding) in summary.findings() {
        say!("{kind}, kill {}: {}", finding.kill, finding.what)?;
    }
    summary.write_html(&demo.report)?;
    say!("report: {}", demo.report.display())?;
    Ok(match &summary.kept {
        None => ExitCode::SUCCESS,
        Some(kept) => {
            say!("pools: kept in {}", kept.display())?;
            ExitCode::from(1)
        }
    })
}

/// A process that `run` has started.
pub fn work(args: &args::DemoWorker) -> Outcome {
    // The parent has been told what went wrong.
    Ok(::demo::work(&args.job).map_or(ExitCode::from(2), |()| ExitCode::SUCCESS))
}

impl From<::demo::Error> for Failure {
    fn from(error: ::demo::Error) -> Self {
        match error {
            ::demo::Error::Bench(error) => error.into(),
            ::demo::Error::Io { op, path, source } => Self::file(op, &path, &source),
            other => {
                let message = other.to_string();
                let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see `cairn help demo`"));
                Self::new(what, next)
            }
        }
    }
}
