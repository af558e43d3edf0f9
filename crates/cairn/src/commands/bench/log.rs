//! `cairn bench log-append` and `cairn bench figures`.

use std::process::ExitCode;
use std::time::Duration;

use bench::experiments::LogAppend;
use bench::figures::{Setting, chosen};
use bench::log_sides::Appender;
use bench::{Plan, Row};

use super::{Bar, choose, measured, print_place, restart_with};
use crate::args;
use crate::commands::{Outcome, open_output};
use crate::failure::Failure;

pub fn append(args: &args::LogAppend) -> Outcome {
    let mut what = LogAppend::here(if args.quick { Plan::quick() } else { Plan::full() });
    if args.quick {
        (what.bytes, what.threads) = (vec![64, 1024], vec![1, 2]);
    }
    choose(&mut what.bytes, &args.bytes);
    choose(&mut what.threads, &args.threads);
    let ours = args.policy.iter().copied().map(Appender::Log);
    what.who = [Appender::Bare].into_iter().chain(ours).chain(args.peer.iter().copied()).collect();
    (what.baseline, what.room) = (args.baseline, args.room);
    if let Some(dir) = &args.dir {
        what.dir.clone_from(dir);
    }
    what.plan.rounds = args.rounds.unwrap_or(what.plan.rounds);
    what.plan.batch_time = args.round_ms.map_or(what.plan.batch_time, Duration::from_millis);
    if let Some(stranger) = args.baseline.filter(|who| !what.who.contains(who)) {
        return Err(Failure::new(
            format!("--baseline {stranger}: it does not take part"),
            "name it with --policy or --peer too",
        ));
    }
    restart_with(what.who.iter().map(|who| who.environment(&what.dir)))?;
    measured(args.json.as_deref(), args.plot.as_deref(), |watch| what.measure(watch))
}

pub fn figures(args: &args::Figures) -> Outcome {
    let figures = chosen(&args.paper, args.figure.as_deref())?;
    let mut setting = Setting::here(args.quick);
    if let Some(dir) = &args.dir {
        setting.dir.clone_from(dir);
    }
    restart_with(Appender::OTHERS.iter().map(|who| who.environment(&setting.dir)))?;
    let quiet = args.json.as_deref() == Some("-".as_ref());
    let mut json = open_output(args.json.as_deref())?;
    let mut rows: Vec<Row> = Vec::new();
    for figure in figures {
        let bar = Bar::new();
        let shown = figure.measure(&setting, &bar)?;
        bar.0.finish_and_clear();
        if !quiet {
            println!("{} {}: {}", args.paper, figure.number, figure.title);
            println!("paper: {}\n{}\n", figure.claim, shown.text);
        }
        rows.extend(shown.rows);
    }
    if !quiet && !rows.is_empty() {
        print_place(&rows);
    }
    if let Some((path, out)) = &mut json {
        bench::write_json(&rows, out).map_err(|error| Failure::file("write", path, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}
