//! `cairn create`.

use std::process::ExitCode;

use demo::Kind;
use pmem::{Domain, Options};

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
    let (size, domain) = match args.engine {
        None => of_nothing(args, &options).map_err(|error| Failure::pool(&args.path, &error))?,
        Some(engine) => {
            if let Some(option) = args.sizes.foreign(engine) {
                return Err(Failure::new(format!("{option}: {engine} has no such thing"), "see `cairn help create`"));
            }
            of_objects(args, engine, options).map_err(|error| Failure::heap(&args.path, &error))?
        }
    };
    let engine = args.engine.map_or(String::new(), |engine| format!(", {engine}"));
    let survives = domain.survives();
    say!("{}: {}{engine}, domain {domain}: survives {survives}", args.path.display(), size::human(size))?;
    Ok(ExitCode::SUCCESS)
}

fn of_nothing(args: &Create, options: &Options) -> pmem::Result<(u64, Domain)> {
    let pool = options.create(&args.path)?;
    let made = (pool.size(), pool.domain());
    pool.close()?;
    Ok(made)
}

/// With room for so many bytes of objects.
fn of_objects(args: &Create, engine: Kind, options: Options) -> tx::Result<(u64, Domain)> {
    let is = |pool: &pmem::Pool| (pool.size(), pool.domain());
    match engine {
        Kind::Heap(policy) => {
            let heap = args.sizes.heap(policy).bytes(args.size).pool(options).create(&args.path)?;
            let made = is(heap.pool());
            heap.close().map(|()| made)
        }
        Kind::Mvcc => {
            let store = args.sizes.versions().bytes(args.size).pool(options).create(&args.path)?;
            let made = is(store.pool());
            store.close().map(|()| made)
        }
    }
}
