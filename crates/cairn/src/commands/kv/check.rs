//! `cairn kv check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kv::{Checked, Options, Problem};

use super::super::Outcome;
use crate::args::CheckStore;
use crate::failure::Failure;
use crate::size;

pub fn run(args: &CheckStore) -> Outcome {
    if args.repair || args.dry_run {
        return repair(args);
    }
    let path = &args.source.path;
    let bar = super::load::progress(true, "checked");
    let checked = super::read(&args.source, |store| {
        store.check(|keys| bar.set_position(keys)).map_err(|error| Failure::kv(path, &error))
    });
    bar.finish_and_clear();
    let checked = checked?;
    println!("{}: {} keys, {}", path.display(), checked.keys, size::human(checked.bytes));
    if checked.is_sound() {
        println!("sound");
        return Ok(ExitCode::SUCCESS);
    }
    print(&checked.problems, checked.count);
    println!("`cairn kv check --dry-run {0}` says what a repair would leave, `--repair` does it", path.display());
    Ok(ExitCode::from(1))
}

fn print(problems: &[Problem], count: u64) {
    for problem in problems {
        println!("{problem}");
    }
    if count > problems.len() as u64 {
        println!("... and {} more", count - problems.len() as u64);
    }
}

/// On the store, after a copy of it was kept; or on the copy, which then goes.
fn repair(args: &CheckStore) -> Outcome {
    let path = &args.source.path;
    let copy = beside(path, if args.dry_run { "dry-run" } else { "before-repair" });
    if copy.exists() {
        let next = "move it away: it may be the only copy of what an earlier repair gave up";
        return Err(Failure::new(format!("{}: is there already", copy.display()), next));
    }
    std::fs::copy(path, &copy).map_err(|error| Failure::file("copy", path, &error))?;
    let result = salvage(if args.dry_run { &copy } else { path });
    if args.dry_run {
        let _ = std::fs::remove_file(&copy); // ours; what matters is the result
    }
    let (dropped, checked) = result.inspect_err(|_| {
        // Where it failed, all is as before, and no copy in the way of another attempt.
        if !args.dry_run {
            let _ = std::fs::rename(&copy, path);
        }
    })?;
    print(&dropped, dropped.len() as u64);
    let (keys, bytes) = (checked.keys, size::human(checked.bytes));
    if args.dry_run {
        println!("{}: a repair would leave {keys} keys, {bytes}; nothing was changed", path.display());
    } else {
        println!("{}: {keys} keys, {bytes}; as it was before: {}", path.display(), copy.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn salvage(path: &Path) -> Result<(Vec<Problem>, Checked), Failure> {
    let failed = |error: kv::Error| Failure::kv(path, &error);
    let store = Options::new().background(false).salvage(true).open(path).map_err(failed)?;
    let dropped = store.drop_damaged().map_err(failed)?;
    let checked = store.check(|_| ()).map_err(failed)?;
    store.close().map_err(failed)?;
    Ok((dropped, checked))
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}"));
    path.with_file_name(name)
}
