//! `cairn chain demo`.

use std::process::ExitCode;

use chainmap::demo::{self, Demo};

use super::super::Outcome;
use super::serve::stop_at_signals;
use crate::args::DemoOfChain;
use crate::failure::{Failure, Tame};
use crate::output::{note, say};

pub fn run(args: &DemoOfChain) -> Outcome {
    let demo = Demo {
        cairn: std::env::current_exe().unwrap_or_else(|_| "cairn".into()),
        dir: args.dir.clone(),
        seconds: args.seconds,
        kills: args.kills,
        clients: args.clients,
        ttl: args.ttl,
        early: args.plant_early,
    };
    let stop = stop_at_signals()?;
    let summary = demo::run(&demo, &stop, &mut |what| note!("{}", Tame(what))).map_err(|error| {
        let message = error.to_string();
        let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see `cairn help chain demo`"));
        Failure::new(what, next)
    })?;
    for violation in &summary.violations {
        say!("{}", Tame(violation))?;
    }
    say!("{summary}")?;
    Ok(match &summary.kept {
        None => ExitCode::SUCCESS,
        Some(kept) => {
            say!("files: kept in {}", kept.display())?;
            ExitCode::from(1)
        }
    })
}
