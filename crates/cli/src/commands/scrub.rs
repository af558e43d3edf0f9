//! `cairn scrub`.

use std::process::ExitCode;

use heap::{Heap, Options, Policy};

use super::Outcome;
use crate::args::Scrub;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn run(args: &Scrub) -> Outcome {
    let failed = |error: &tx::Error| Failure::heap(&args.path, error);
    let heap = Heap::open(&args.path, &Options::new().coordinator(false)).map_err(|e| failed(&e))?;
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
