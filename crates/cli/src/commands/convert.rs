//! `cairn convert`.

use std::process::ExitCode;

use demo::Kind;
use heap::Heap;
use mvcc::Mvcc;
use pmem::{HeapUsage, Pool};

use super::Outcome;
use super::check;
use super::object_engine::{HEAP, VERSIONS};
use crate::args::Convert;
use crate::failure::Failure;
use crate::output::{note, say};
use crate::size;

pub fn run(args: &Convert) -> Outcome {
    let path = args.path.display();
    if let Some(option) = args.sizes.foreign(args.engine) {
        return Err(Failure::new(format!("{option}: {} has no such thing", args.engine), "see `cairn help convert`"));
    }
    let pool = pmem::Options::new().open(&args.path).map_err(|error| Failure::pool(&args.path, &error))?;
    let info = pool.info();
    if let Some(refused) = refusal(args, &info) {
        check::give_back(&args.path, pool)?;
        return Err(refused);
    }
    let failed = |error: tx::Error| Failure::heap(&args.path, &error);
    let (before, used) = match VERSIONS.is_in(&info) {
        true => of_versions(args, pool),
        false => of_heap(args, pool),
    }
    .map_err(failed)?;
    let HeapUsage { live_blocks, .. } = used;
    match before == args.engine {
        true => say!("{path}: {before} has its {live_blocks} objects already")?,
        false => say!("{path}: {live_blocks} objects, of {before} before, of {} now", args.engine)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Why the pool is left to its program.
fn refusal(args: &Convert, info: &pmem::PoolInfo) -> Option<Failure> {
    let path = args.path.display();
    let has = |region: &str| info.regions.iter().any(|found| found.name == region);
    if let Some((option, region)) = args.sizes.without_effect(args.engine, has) {
        return Some(Failure::new(
            format!("{option}: {path} has {region} already, whose size stays as it is"),
            format!("leave {option} out: it is for the first time that such an engine has the objects"),
        ));
    }
    let is_ours = |name: &str| HEAP.owns(name) || VERSIONS.owns(name);
    if let Some(region) = info.regions.iter().find(|region| !is_ours(&region.name)) {
        return Some(Failure::new(
            format!("{path}: region {:?} is none of objects under transactions", region.name),
            "only pools of an engine for objects are converted here; a program can do it that has all of the pool open: `Heap::hand_over`, `Mvcc::take_over`",
        ));
    }
    match (HEAP.is_in(info), VERSIONS.is_in(info)) {
        (true, true) => Some(Failure::new(
            format!("{path}: a heap and objects with versions are in it, side by side"),
            "nothing can be done about that here: one engine takes over the objects of a pool that has none of its own",
        )),
        (false, false) => Some(Failure::new(
            format!("{path}: there are no objects under transactions in it"),
            format!("`cairn create {path} --engine {}` makes a pool for them, where nothing is", args.engine),
        )),
        _ => None,
    }
}

fn of_heap(args: &Convert, pool: Pool) -> tx::Result<(Kind, HeapUsage)> {
    let options = heap::Options::new().coordinator(false);
    let heap = match Heap::open_in(&pool, &options) {
        Ok(heap) => heap,
        Err(error) => return refused(pool, error),
    };
    drop(pool); // the heap's own handle is the last: it is closed also behind an error
    let (before, wanted) = (Kind::Heap(heap.policy()), args.engine);
    let used = heap.live_blocks(|_, _| {})?;
    if before != wanted {
        repair(args, &heap)?;
    }
    match wanted {
        _ if before == wanted => heap.close()?,
        Kind::Mvcc => Mvcc::take_over(heap.hand_over()?, &args.sizes.versions())?.close()?,
        Kind::Heap(policy) => {
            let closed = heap.hand_over()?; // all of it applied, in the pool that stays open
            match Heap::open_in(closed.pool(), &args.sizes.heap(policy)) {
                Ok(heap) => {
                    drop(closed);
                    heap.close()?;
                }
                Err(error) => {
                    closed.close().unwrap_or(()); // the error that is told comes first
                    return Err(error);
                }
            }
        }
    }
    Ok((before, used))
}

/// Where two copies differ the right one goes over, and that is told; if nothing tells which, the heap is closed as it is.
fn repair(args: &Convert, heap: &Heap) -> tx::Result<()> {
    let (found, unclear) = heap.scrub_all()?;
    let bytes = found.main_repaired + found.backup_repaired;
    if bytes > 0 {
        let path = args.path.display();
        note!("note: {path}: {} were damaged in one of two copies, and are repaired", size::human(bytes));
    }
    unclear.into_iter().next().map_or(Ok(()), Err)
}

fn of_versions(args: &Convert, pool: Pool) -> tx::Result<(Kind, HeapUsage)> {
    let store = match Mvcc::open_in(&pool, &mvcc::Options::new().background(false)) {
        Ok(store) => store,
        Err(error) => return refused(pool, error),
    };
    drop(pool); // the store's own handle is the last
    let used = store.live_blocks(|_, _| {})?;
    match args.engine {
        Kind::Mvcc => store.close()?,
        Kind::Heap(policy) => Heap::take_over(store.hand_over()?, &args.sizes.heap(policy))?.close()?,
    }
    Ok((Kind::Mvcc, used))
}

/// What was closed, and refused, stays closed.
fn refused<T>(pool: Pool, error: tx::Error) -> tx::Result<T> {
    if pool.was_clean() {
        pool.close().unwrap_or(()); // the error that is told comes first
    }
    Err(error)
}
