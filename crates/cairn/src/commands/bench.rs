//! `cairn bench`.

use std::process::ExitCode;

use bench::Plan;
use bench::limits::Limits;

use super::{Outcome, open_output};
use crate::args;
use crate::failure::Failure;

/// `cairn bench limits`.
pub fn limits(args: &args::Limits) -> Outcome {
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
        println!("{}", bench::table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}
