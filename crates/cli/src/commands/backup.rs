//! `cairn backup`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use heap::{Heap, Options};
use indicatif::{ProgressBar, ProgressDrawTarget};
use mvcc::Mvcc;
use pmem::Pool;

use super::Outcome;
use super::check;
use super::object_engine::{HEAP, VERSIONS};
use crate::args::Backup;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn run(args: &Backup) -> Outcome {
    let path = &args.path;
    let options = pmem::Options::new();
    let opened = if args.recover { options.open(path) } else { options.open_read_only(path) };
    let pool = opened.map_err(|error| failed(args, error))?;
    let info = pool.info();
    if info.regions.iter().any(|region| kv::REGION_KIND == region.kind) {
        check::give_back(&args.path, pool)?;
        let (path, target) = (path.display(), args.target.display());
        return Err(Failure::new(
            format!("{path}: a store of keys and values"),
            format!("cairn kv backup {path} {target}"),
        ));
    }
    let bar = progress();
    let shown = |copied, all| {
        bar.set_length(all);
        bar.set_position(copied);
    };
    let what = match () {
        () if HEAP.is_in(&info) => heap(args, pool, shown)?,
        () if VERSIONS.is_in(&info) && args.recover => store(args, pool, shown)?,
        () => image(args, pool, shown)?,
    };
    bar.finish_and_clear();
    say!("{}: {what}", args.target.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Recovered, and held against its own backup.
fn heap(args: &Backup, pool: Pool, progress: impl FnMut(u64, u64)) -> Result<String, Failure> {
    let heap = match Heap::open_in(&pool, &Options::new().coordinator(false)) {
        Ok(heap) => heap,
        Err(error) => {
            check::give_back(&args.path, pool)?;
            return Err(heap_failed(args, error));
        }
    };
    drop(pool); // the heap's own handle is the last
    let made = heap.backup(&args.target, progress);
    let closed = match heap.pool().is_read_only() {
        true => Ok(()),
        false => heap.close(),
    };
    let made = made.map_err(|error| heap_failed(args, error))?;
    closed.map_err(|error| heap_failed(args, error))?;
    Ok(format!("{}, {} objects, checked", size::human(made.bytes), made.objects))
}

/// Of objects with versions, which are to be recovered.
fn store(args: &Backup, pool: Pool, progress: impl FnMut(u64, u64)) -> Result<String, Failure> {
    let store = match Mvcc::open_in(&pool, &mvcc::Options::new().background(false)) {
        Ok(store) => store,
        Err(error) => {
            check::give_back(&args.path, pool)?;
            return Err(heap_failed(args, error));
        }
    };
    drop(pool); // the store's own handle is the last
    let made = store.backup(&args.target, progress).map_err(|error| heap_failed(args, error));
    let closed = store.close().map_err(|error| heap_failed(args, error));
    let made = made?;
    closed?;
    Ok(format!("{}, {} objects, opened", size::human(made.bytes), made.objects))
}

/// As it is: closed, so that nothing in it is to be recovered.
fn image(args: &Backup, pool: Pool, progress: impl FnMut(u64, u64)) -> Result<String, Failure> {
    if !pool.is_read_only() {
        check::give_back(&args.path, pool)?;
        let path = args.path.display();
        return Err(Failure::new(
            format!("{path}: there is no heap of transactions in it to be recovered"),
            format!("close it in the program that owns it, or `cairn check --recover {path}`; then without --recover"),
        ));
    }
    let copied = pool.image(&args.target).and_then(|mut image| {
        image.pass(progress)?;
        image.cut()?;
        let copy = pmem::Options::new().open_read_only(image.temporary())?;
        Ok((image, copy))
    });
    let (image, copy) = copied.map_err(|error| failed(args, error))?;
    let bytes = copy.size();
    // What is wrong with the copy is wrong with the pool: both files are equal.
    check::all_sound(&args.path, copy)?;
    image.publish().map_err(|error| failed(args, error))?;
    Ok(format!("{}, checked as `cairn check` does", size::human(bytes)))
}

fn heap_failed(args: &Backup, error: tx::Error) -> Failure {
    match error {
        tx::Error::Pool(error) => failed(args, error),
        other => Failure::heap(&args.path, &other),
    }
}

/// The error may be about either file.
fn failed(args: &Backup, error: pmem::Error) -> Failure {
    match &error {
        pmem::Error::NeedsRecovery { .. } => {
            let (path, target) = (args.path.display(), args.target.display());
            Failure::new(format!("{path}: not closed cleanly"), format!("cairn backup --recover {path} {target}"))
        }
        pmem::Error::Io { path, source, op } if *path == args.target => {
            let next = match source.kind() {
                io::ErrorKind::AlreadyExists => "choose another path, or remove what is there",
                _ => "check the path and its permissions",
            };
            Failure::new(format!("{}: {op} failed: {source}", path.display()), next)
        }
        pmem::Error::NoSpace { path, wanted, .. } if *path == args.target => Failure::new(
            format!("{}: no space for the copy: {} more are needed", path.display(), size::human(*wanted)),
            "free space there, or choose another place",
        ),
        _ => Failure::pool(&args.path, &error),
    }
}

fn progress() -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(0), target)
}
