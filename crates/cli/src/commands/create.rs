//! `cairn create`.

use std::process::ExitCode;

use pmem::Options;

use super::Outcome;
use crate::args::Create;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn run(args: &Create) -> Outcome {
    let mut options = Options::new().size(args.size).layout(&args.layout).domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        options = options.latency(latency);
    }
    let pool = options.create(&args.path).map_err(|error| Failure::pool(&args.path, &error))?;
    let (size, domain) = (pool.size(), pool.domain());
    pool.close().map_err(|error| Failure::pool(&args.path, &error))?;
    say!("{}: {}, domain {domain}: survives {}", args.path.display(), size::human(size), domain.survives())?;
    Ok(ExitCode::SUCCESS)
}
