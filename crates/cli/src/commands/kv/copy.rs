//! `cairn kv backup` and `cairn kv restore`.

use std::path::Path;
use std::process::ExitCode;

use super::super::Outcome;
use super::load::{progress, show};
use crate::args::{BackupOfStore, Restore};
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn backup(args: &BackupOfStore) -> Outcome {
    let path = &args.source.path;
    let bar = progress(true, "written");
    let made = super::read(&args.source, |store| {
        let made = store.snapshot().and_then(|snapshot| snapshot.backup(&args.target, |loaded| show(&bar, loaded)));
        bar.finish_and_clear();
        made.map_err(|error| failed(path, &args.target, &error))
    })?;
    say!("{}: {} pairs, {}", args.target.display(), made.pairs, size::human(made.bytes))?;
    Ok(ExitCode::SUCCESS)
}

pub fn restore(args: &Restore) -> Outcome {
    let bar = progress(true, "written");
    let made = kv::restore(&args.backup, &args.path, |loaded| show(&bar, loaded));
    bar.finish_and_clear();
    let made = made.map_err(|error| failed(&args.backup, &args.path, &error))?;
    say!("{}: {} pairs, {}, each checked", args.path.display(), made.pairs, size::human(made.bytes))?;
    Ok(ExitCode::SUCCESS)
}

/// The error may be about either file.
pub fn failed(source: &Path, target: &Path, error: &kv::Error) -> Failure {
    match error {
        kv::Error::Pool(pmem::Error::NeedsRecovery { .. }) => Failure::new(
            format!("{}: not closed cleanly", source.display()),
            "open it with --recover, as in `cairn kv stats --recover`, which recovers it",
        ),
        kv::Error::Pool(pmem::Error::Io { path, source: cause, op }) if path != source => {
            let exists = cause.kind() == std::io::ErrorKind::AlreadyExists;
            let next = if exists {
                "choose another path, or remove what is there"
            } else {
                "check the path and its permissions"
            };
            Failure::new(format!("{}: {op} failed: {cause}", target.display()), next)
        }
        kv::Error::Pool(pmem::Error::NoSpace { .. }) | kv::Error::Full { .. } => Failure::new(
            format!("{}: no space for the copy", target.display()),
            "free space there, or choose another place",
        ),
        _ => Failure::kv(source, error),
    }
}
