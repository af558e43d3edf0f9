//! `cairn kv check`.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kv::{Checked, Options, Problem, Salvaged};
use rustix::fs::{FlockOperation, flock};

use super::super::Outcome;
use crate::args::CheckStore;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

/// Bytes of a pool's header, both copies.
const HEADER: u64 = 8192;

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
    let printed = say!("{}: {} keys, {}", path.display(), checked.keys, size::human(checked.bytes));
    if checked.is_sound() {
        printed.and_then(|()| say!("sound"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let advice =
        || say!("`cairn kv check --dry-run {0}` says what a repair would leave, `--repair` does it", path.display());
    // Damage is told by the exit code though nothing can be printed.
    let printed = printed.and_then(|()| print(&checked.problems, checked.count)).and_then(|()| advice());
    printed.map(|()| ExitCode::from(1)).map_err(Failure::damaged)
}

fn print(problems: &[Problem], count: u64) -> Result<(), Failure> {
    for problem in problems {
        say!("{problem}")?;
    }
    if count > problems.len() as u64 {
        say!("... and {} more", count - problems.len() as u64)?;
    }
    Ok(())
}

/// What the opening of a copy has left out.
fn print_given_up(given_up: &Salvaged) -> Result<(), Failure> {
    if let Some(why) = &given_up.index {
        say!("the index is made anew of all whole records, and keys may be back that were deleted: {why}")?;
    }
    for log in &given_up.logs {
        say!("{log}")?;
    }
    Ok(())
}

/// On a copy. If that becomes sound it takes the store's place, and the store is kept beside it.
fn repair(args: &CheckStore) -> Outcome {
    let path = &args.source.path;
    let failed = |what: &'static str| move |error: std::io::Error| Failure::file(what, path, &error);
    let real = path.canonicalize().map_err(failed("find"))?;
    if !real.metadata().map_err(failed("look at"))?.is_file() {
        let next = "check the path; a store that is no file cannot be copied, which a repair does";
        return Err(Failure::new(format!("{}: is no ordinary file", path.display()), next));
    }
    let before = beside(&real, "before-repair");
    if before.exists() && !args.dry_run {
        let next = "move it away: it may be the only copy of what an earlier repair gave up";
        return Err(Failure::new(format!("{}: is there already", before.display()), next));
    }
    // As long as this is held, no process opens the store, and none has it open.
    let store = File::options().read(true).write(!args.dry_run).open(&real).map_err(failed("open"))?;
    if flock(&store, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(Failure::new(format!("{}: is in use", path.display()), "close it first"));
    }
    let copy = Temporary(beside(&real, "repairing"));
    let missing = copy_pool(&store, &copy.0).map_err(failed("copy"))?;
    let (given_up, dropped, checked) = salvage(path, &copy.0)?;
    let (keys, bytes) = (checked.keys, size::human(checked.bytes));
    if missing > 0 {
        say!("{}: {missing} bytes at its end are missing; what stood there is given up", path.display())?;
    }
    if args.dry_run {
        print_given_up(&given_up)?;
        print(&dropped, dropped.len() as u64)?;
        say!("{}: a repair would leave {keys} keys, {bytes}; nothing was changed", path.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = real.parent().unwrap_or(Path::new("/"));
    let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
    sync(&copy.0).map_err(failed("write"))?;
    // There is a whole store under the name at any time.
    std::fs::hard_link(&real, &before).or_else(|_| std::fs::rename(&real, &before)).map_err(failed("keep"))?;
    std::fs::rename(&copy.0, &real).and_then(|()| sync(folder)).map_err(failed("replace"))?;
    print_given_up(&given_up)?;
    print(&dropped, dropped.len() as u64)?;
    say!("{}: {keys} keys, {bytes}; as it was before: {}", path.display(), before.display())?;
    Ok(ExitCode::SUCCESS)
}

/// A file that goes unless it has got another name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Copies a pool, and nothing of what stands behind its end: a file that was made longer may be so by terabytes. One that was cut short gets its length, with zeros that are no records; returns
/// how many.
fn copy_pool(mut from: &File, to: &Path) -> io::Result<u64> {
    let meta = from.metadata()?;
    let mut copy = File::options().read(true).write(true).create(true).truncate(true).open(to)?;
    copy.set_permissions(meta.permissions())?;
    let (len, missing) = len_of(from, &copy, to, meta.len())?;
    copy.set_len(0)?;
    from.rewind()?;
    io::copy(&mut from.take(len), &mut copy)?;
    if missing > 0 {
        copy.set_len(len + missing)?;
    }
    Ok(missing)
}

/// How long the pool in a file of `len` bytes says that it is, if that is less, or all of it; and how much is missing behind that. Asked of a file that has its header alone.
fn len_of(from: &File, sketch: &File, at: &Path, len: u64) -> io::Result<(u64, u64)> {
    let mut header = Vec::new();
    from.take(HEADER).read_to_end(&mut header)?;
    sketch.write_all_at(&header, 0)?;
    sketch.set_len(len)?;
    match pmem::Options::new().open(at) {
        Ok(pool) => Ok((pool.size().min(len), 0)),
        Err(pmem::Error::Truncated { expected, .. }) => Ok((len, expected.saturating_sub(len))),
        // It allocates as much as the copy needs.
        Err(pmem::Error::NoSpace { .. }) => Err(io::ErrorKind::StorageFull.into()),
        Err(_) => Ok((len, 0)),
    }
}

/// `path` is what its errors are about.
fn salvage(path: &Path, copy: &Path) -> Result<(Salvaged, Vec<Problem>, Checked), Failure> {
    let failed = |error: kv::Error| Failure::no_repair(path, &error);
    let store = Options::new().background(false).salvage(true).open(copy).map_err(failed)?;
    let given_up = store.salvaged().clone();
    let dropped = store.drop_damaged().map_err(failed)?;
    let checked = store.check(|_| ()).map_err(failed)?;
    store.close().map_err(failed)?;
    Ok((given_up, dropped, checked))
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}"));
    path.with_file_name(name)
}
