//! `cairn bench log-append` and `cairn bench figures`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::Row;
use bench::experiments::LogAppend;
use bench::figures::{Setting, Shown, chosen};
use bench::log_sides::Appender;
use bench::plot::{plot, plot_lines};

use super::{Bar, choose, measured, must_take_part, plan, print_place, restart_with};
use crate::args;
use crate::commands::{Outcome, open_output};
use crate::failure::Failure;
use crate::output::say;

pub fn append(args: &args::LogAppend) -> Outcome {
    let mut what = LogAppend::here(plan(&args.run.output, &args.run.rounds));
    if args.run.output.quick {
        (what.bytes, what.threads) = (vec![64, 1024], vec![1, 2]);
    }
    choose(&mut what.bytes, &args.bytes);
    choose(&mut what.threads, &args.threads);
    let ours = args.policy.iter().copied().map(Appender::Log);
    what.who = [Appender::Bare].into_iter().chain(ours).chain(args.peer.iter().copied()).collect();
    (what.baseline, what.room) = (args.baseline, args.room);
    if let Some(dir) = &args.run.dir {
        what.dir.clone_from(dir);
    }
    must_take_part(args.baseline, &what.who, "--policy")?;
    restart_with(what.who.iter().map(|who| who.environment(&what.dir)))?;
    measured(&args.run.output, |watch| what.measure(watch))
}

/// Its lines, if it has some; else its rows as bars.
fn plotted(number: &str, shown: &Shown, args: &args::Figures, dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let name = format!("{}-{number}", args.paper);
    Ok(match &shown.lines {
        Some(lines) => {
            let path = dir.join(format!("{name}.svg"));
            plot_lines(lines, &path)?;
            vec![path]
        }
        None => plot(&shown.rows, &dir.join(name))?,
    })
}

pub fn figures(args: &args::Figures) -> Outcome {
    let figures = chosen(&args.paper, args.figure.as_deref())?;
    let mut setting = Setting::here(args.output.quick);
    if let Some(dir) = &args.dir {
        setting.dir.clone_from(dir);
    }
    restart_with(Appender::OTHERS.iter().map(|who| who.environment(&setting.dir)))?;
    let quiet = args.output.json.as_deref() == Some("-".as_ref());
    let mut json = open_output(args.output.json.as_deref())?;
    let mut rows: Vec<Row> = Vec::new();
    for figure in figures {
        let bar = Bar::new();
        let shown = figure.measure(&setting, &bar)?;
        bar.0.finish_and_clear();
        if !quiet {
            say!("{} {}: {}", args.paper, figure.number, figure.title)?;
            say!("paper: {}\n{}\n", figure.claim, shown.text)?;
        }
        if let Some(dir) = &args.output.plot {
            for path in plotted(figure.number, &shown, args, dir)? {
                if !quiet {
                    say!("{}", path.display())?;
                }
            }
        }
        // Figures may share their rows.
        rows.extend(shown.rows.into_iter().filter(|row| !rows.contains(row)).collect::<Vec<_>>());
    }
    if !quiet && !rows.is_empty() {
        print_place(&rows)?;
    }
    if let Some((path, out)) = &mut json {
        bench::write_json(&rows, out).map_err(|error| Failure::file("write", path, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}
