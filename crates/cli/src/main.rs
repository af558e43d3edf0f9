//! The command `cairn`: `args` says what can be asked for, `commands` does it, `failure` tells what went wrong.

#![forbid(unsafe_code)]
// Both panic when nothing can be written: `output` is the way.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod failure;
mod output;
mod size;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command};
use crate::commands::Outcome;
use crate::failure::Failure;
use crate::output::note;

fn main() -> ExitCode {
    ignore_file_size_signal();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(asked) => return explain(&asked),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false).init();

    let outcome = match &args.command {
        Command::Create(args) => commands::create::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Check(args) => commands::check::run(args),
        Command::Scrub(args) => commands::scrub::run(args),
        Command::Backup(args) => commands::backup::run(args),
        Command::Convert(args) => commands::convert::run(args),
        Command::Bench { experiment } => commands::bench::run(experiment),
        Command::Kv { action } => commands::kv::run(action),
        Command::Log { action } => commands::log::run(action),
        Command::Array { action } => commands::array::run(action),
        Command::LogReplica(args) => commands::log_replica::run(args),
        Command::Group { action } => commands::group::run(action),
        Command::Chain { action } => commands::chain::run(action),
        Command::Serve(args) => commands::serve::run(args),
        Command::Import(args) => commands::carry::import(args),
        Command::Export(args) => commands::carry::export(args),
        Command::Top(args) => commands::top::run(args),
        Command::Crash(args) => commands::crash::run(args),
        Command::Man(args) => commands::man::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::DemoWorker(args) => commands::demo::work(args),
        Command::BenchReplica => commands::bench::replica(),
    };
    ended(outcome.and_then(|code| output::finish().map(|()| code)))
}

/// Under `ulimit -f` what makes a file longer than that is an error, as on a full disk; the signal that comes with it would end a server that could go on reading and deleting.
fn ignore_file_size_signal() {
    // Where no handler can be set, the signal does what it does by default.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

fn ended(outcome: Outcome) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        note!("{failure}");
        failure.exit_code()
    })
}

/// Help and version on standard output, wrong usage on standard error with exit code 2.
fn explain(asked: &clap::Error) -> ExitCode {
    let printed = match asked.print() {
        Err(error) if !asked.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => output::finish(),
    };
    ended(printed.map(|()| ExitCode::from(u8::try_from(asked.exit_code()).unwrap_or(2))))
}
