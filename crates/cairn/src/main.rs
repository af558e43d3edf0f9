//! The command `cairn`: `args` says what can be asked for, `commands` does it, `failure` tells what went wrong.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod size;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    // Usage errors leave here, with exit code 2.
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();

    let outcome = match &args.command {
        Command::Create(args) => commands::create::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Scrub(args) => commands::scrub::run(args),
        Command::Backup(args) => commands::backup::run(args),
        Command::Bench { experiment } => commands::bench::run(experiment),
        Command::Kv { action } => commands::kv::run(action),
        Command::Log { action } => commands::log::run(action),
        Command::LogReplica(args) => commands::log_replica::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Crash(args) => commands::crash::run(args),
        Command::Man(args) => commands::man::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::DemoWorker(args) => commands::demo::work(args),
        Command::BenchReplica => commands::bench::replica(),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        failure.exit_code()
    })
}
