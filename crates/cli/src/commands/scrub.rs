//! `cairn scrub`.

use std::process::ExitCode;

use heap::{Heap, Options, Policy};
use mvcc::Mvcc;
use pmem::Error as PoolError;

use super::Outcome;
use super::check::{self, transactions};
use crate::args::Scrub;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn run(args: &Scrub) -> Outcome {
    let failed = |error: &tx::Error| Failure::heap(&args.path, error);
    let heap = match Heap::open(&args.path, &Options::new().coordinator(false)) {
        Err(tx::Error::Pool(PoolError::WrongLayout { found, .. })) if found == "mvcc" => return of_versions(args),
        opened => opened.map_err(|error| failed(&error))?,
    };
    if heap.policy() != Policy::InPlace {
        let policy = heap.policy();
        return Err(Failure::new(
            format!("{}: the heap's policy is {policy}: there is no second copy to compare with", args.path.display()),
            "restore from a copy if `cairn check` finds damage",
        ));
    }
    let found = heap.scrub().map_err(|e| failed(&e))?;
    heap.close().map_err(|e| failed(&e))?;
    say!(
        "{}: {} zones compared; repaired: {} of objects, {} of their backup",
        args.path.display(),
        found.zones,
        size::human(found.main_repaired),
        size::human(found.backup_repaired)
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all of it, makes whole what is there twice, and walks what has one copy only.
fn of_versions(args: &Scrub) -> Outcome {
    let failed = |error: &tx::Error| Failure::heap(&args.path, error);
    let pool = pmem::Options::new().open(&args.path).map_err(|error| Failure::pool(&args.path, &error))?;
    let info = pool.info();
    for region in info.regions.iter().filter(|region| region.part == 0) {
        check::read_all(&pool, &region.name).map_err(|error| Failure::pool(&args.path, &error))?;
    }
    let bytes = info.regions.iter().map(|region| region.len).sum();
    let header = u64::from(pool.was_repaired());
    let store = match Mvcc::open_in(&pool, &mvcc::Options::new().background(false)) {
        Ok(store) => store,
        Err(error) => {
            check::give_back(&args.path, pool)?;
            return Err(failed(&error));
        }
    };
    drop(pool); // the store's own handle is the last
    let repaired = store.recovery().cells + header;
    let used = store.live_blocks(|_, _| {}).map_err(|error| failed(&error))?;
    let walked = transactions::look_into_root(&store).map_err(|error| failed(&error));
    let closed = store.close().map_err(|error| failed(&error));
    let root = walked?;
    closed?;
    say!(
        "{}: {} read; repaired: {repaired} cells that are kept twice; {} objects, of which there is one copy, without a checksum: root: {root}",
        args.path.display(),
        size::human(bytes),
        used.live_blocks
    )?;
    Ok(ExitCode::SUCCESS)
}
