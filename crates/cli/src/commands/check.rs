//! `cairn check`.

#[cfg(test)]
mod damage;
mod store;
pub(super) mod transactions;
mod versions;

use std::path::Path;
use std::process::ExitCode;

use heap::Heap;
use mvcc::Mvcc;
use pmem::{Allocator, HeapUsage, Objects, Options, Pool, PoolInfo, RegionInfo, RegionKind, Ring, Tail};
use serde::Serialize;

use super::info::{InfoJson, kind_name};
use super::object_engine::{HEAP, VERSIONS};
use super::{Outcome, print_json};
use crate::args::Check;
use crate::failure::{Failure, is_damage};
use crate::output::say;
use crate::size;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct CheckJson {
    sound: bool,
    /// Null when not even the header could be read.
    pool: Option<InfoJson>,
    /// What was looked at, and what is there.
    checked: Vec<String>,
    /// What is wrong.
    findings: Vec<String>,
    /// What was wrong and is repaired, or with --dry-run would be.
    repaired: Vec<String>,
    /// What is not wrong, but worth knowing.
    notes: Vec<String>,
}

/// What is done about what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It is told.
    Not,
    /// It is told whether it would be repaired.
    Dry,
    Yes,
}

impl CheckJson {
    fn new(pool: Option<InfoJson>) -> Self {
        Self { sound: true, pool, checked: vec!["header".into()], findings: vec![], repaired: vec![], notes: vec![] }
    }

    fn finding(&mut self, what: String) {
        self.sound = false;
        self.findings.push(what);
    }
}

pub fn run(args: &Check) -> Outcome {
    let report = examine(args)?;
    let printed = if args.json { print_json(&report) } else { print(args, &report) };
    match report.sound {
        true => printed.map(|()| ExitCode::SUCCESS),
        // A caller that cannot read the report must not take the pool for one that was not looked at.
        false => printed.map(|()| ExitCode::from(1)).map_err(Failure::damaged),
    }
}

/// All that the command does but for printing.
///
/// # Errors
/// What is no finding: wrong usage, or a pool that cannot be opened.
fn examine(args: &Check) -> Result<CheckJson, Failure> {
    let repair = match (args.repair, args.dry_run) {
        (true, _) => Repair::Yes,
        (_, true) => Repair::Dry,
        _ => Repair::Not,
    };
    let write = args.recover || args.repair;
    let opened = if write { Options::new().open(&args.path) } else { Options::new().open_read_only(&args.path) };
    match opened {
        Ok(pool) => look_at(&args.path, pool, repair),
        Err(error) if is_damage(&error) => {
            let mut report = CheckJson::new(None);
            report.finding(error.to_string());
            Ok(report)
        }
        Err(error) => Err(Failure::pool(&args.path, &error)),
    }
}

/// The same of an open pool, for those that want a sound one: what is wrong is an error. `path` is what it is about.
///
/// # Errors
/// Damage; what is no finding.
pub(super) fn all_sound(path: &Path, pool: Pool) -> Result<(), Failure> {
    let report = look_at(path, pool, Repair::Not)?;
    let Some(first) = report.findings.first() else { return Ok(()) };
    let file = path.display();
    let more = match report.findings.len() {
        1 => String::new(),
        found => format!(", and {} findings more", found - 1),
    };
    let next = format!("`cairn check {file}` says all that is damaged; restore from an older copy");
    Err(Failure::new(format!("{file}: damaged: {first}{more}"), next).damaged())
}

/// The header was checked when the pool was opened.
fn look_at(path: &Path, pool: Pool, repair: Repair) -> Result<CheckJson, Failure> {
    let info = pool.info();
    let mut report = CheckJson::new(Some(InfoJson::new(&info)));
    match (pool.was_repaired(), repair) {
        (false, _) => {}
        (true, Repair::Not) => report.notes.push("one copy of the header was not whole; the other one was used".into()),
        // Opening for writing writes both.
        (true, _) => report.repaired.push("header: one copy was not whole; made anew from the other one".into()),
    }
    if repair != Repair::Not && info.regions.iter().any(|region| region.kind == kv::REGION_KIND) {
        let option = if repair == Repair::Yes { "repair" } else { "dry-run" };
        if info.was_clean {
            pool.close().map_err(|error| Failure::pool(path, &error))?; // as it was
        }
        return Err(Failure::new(
            format!("{}: a store of keys and values", path.display()),
            format!("cairn kv check --{option} {}", path.display()),
        ));
    }
    for overlap in overlaps(&info.regions) {
        report.finding(overlap);
    }
    let (heap, versions) = (HEAP.is_in(&info), VERSIONS.is_in(&info));
    let mut recovered = true;
    let objects = info.regions.iter().any(|region| region.kind == RegionKind::Objects);
    for region in info.regions.iter().filter(|region| region.part == 0) {
        let label = format!("{} {:?}", kind_name(region.kind), region.name);
        let part_of_objects = objects && region.name == OBJECTS_HEAP;
        let read = read_all(&pool, &region.name);
        let found = match region.kind {
            _ if read.is_err() => read.map(|()| None),
            _ if part_of_objects => Ok(None),
            _ if heap && HEAP.owns(&region.name) || versions && VERSIONS.owns(&region.name) => {
                Ok(Some("readable".to_owned()))
            }
            _ if heap && VERSIONS.owns(&region.name) || versions && HEAP.owns(&region.name) => {
                Ok(Some("readable; of the engine that had the objects earlier".to_owned()))
            }
            RegionKind::Raw => Ok(Some("readable".to_owned())),
            RegionKind::Ring => look_into_ring(&pool, &region.name, &mut report.notes).map(Some),
            RegionKind::Heap => look_into_heap(&pool, &region.name).map(Some),
            RegionKind::Objects => look_into_objects(&pool, &mut report.notes).map(Some),
            ::log::REGION_KIND => {
                let (what, is_recovered) = store::look_into_log(path, &pool, &region.name, &mut report)?;
                recovered &= is_recovered;
                Ok(what)
            }
            kv::REGION_KIND => Ok(Some("readable".to_owned())),
            _ => Ok(Some("readable; this build does not know its contents".to_owned())),
        };
        match found {
            Ok(Some(what)) => report.checked.push(format!("{label}: {what}")),
            Ok(None) => {}
            Err(error) => report.finding(format!("{label}: {error}")),
        }
    }
    // What cannot be read would end this process by a signal.
    let looked = match report.sound {
        true if heap => {
            transactions::look_into(&pool, repair, &mut report).map(|heap| heap.map(Box::new).map(Opened::Heap))
        }
        true if versions => versions::look_into(&pool, repair, &mut report).map(|store| store.map(Opened::Versions)),
        _ => Ok(None),
    };
    let opened = looked.map_err(|error| Failure::pool(path, &error))?;
    if store::is_in(&info) && report.sound {
        store::look_into(path, &pool, &mut report)?;
    }
    end(path, (pool, opened), &info, recovered, &mut report)?;
    Ok(report)
}

/// Objects that were looked at as their programs do.
enum Opened {
    Heap(Box<Heap>),
    Versions(Mvcc),
}

impl Opened {
    /// Its regions, and what an engine has left that had the objects earlier.
    fn owns(&self, region: &str, info: &PoolInfo) -> bool {
        let (heap, versions) = (HEAP.owns(region), VERSIONS.owns(region));
        match self {
            Self::Heap(_) => heap || versions && !VERSIONS.is_in(info),
            Self::Versions(_) => versions || heap && !HEAP.is_in(info),
        }
    }

    fn close(self) -> tx::Result<()> {
        match self {
            Self::Heap(heap) => heap.close(),
            Self::Versions(store) => store.close(),
        }
    }
}

/// The heap that [`Objects`] keeps its blocks in.
const OBJECTS_HEAP: &str = "objects.heap";

/// Closes the pool cleanly if all there was to recover has been recovered here. What other programs keep in it they recover
/// themselves, and a clean close would tell them that there is nothing to do.
fn end(
    path: &Path,
    (pool, opened): (Pool, Option<Opened>),
    info: &PoolInfo,
    recovered: bool,
    report: &mut CheckJson,
) -> Result<(), Failure> {
    if pool.is_read_only() {
        return Ok(());
    }
    let ours = |region: &RegionInfo| {
        region.kind == RegionKind::Objects
            || region.kind == ::log::REGION_KIND && recovered
            || region.kind == kv::REGION_KIND
            || region.name == OBJECTS_HEAP
            || opened.as_ref().is_some_and(|opened| opened.owns(&region.name, info))
    };
    let foreign = info.regions.iter().find(|region| !ours(region));
    if report.sound
        && (info.was_clean || foreign.is_none() && ["", ::log::NAME, kv::NAME].contains(&info.engine.as_str()))
    {
        let Some(opened) = opened else { return pool.close().map_err(|error| Failure::pool(path, &error)) };
        drop(pool); // its own handle is the last
        return opened.close().map_err(|error| Failure::heap(path, &error));
    }
    let is_objects = |region: &RegionInfo| HEAP.owns(&region.name) || VERSIONS.owns(&region.name);
    if info.was_clean && opened.is_none() && info.regions.iter().all(is_objects) {
        // What was refused and not changed stays closed: else the next program to open it would recover it, old records and all.
        return pool.close().map_err(|error| Failure::pool(path, &error));
    }
    if let Some(region) = foreign {
        let name = &region.name;
        report.notes.push(format!("not closed cleanly: region {name:?} is recovered by the program that owns it"));
    }
    Ok(())
}

/// Closed as it was: opening it for writing has taken the mark of a clean close.
pub(super) fn give_back(path: &Path, pool: Pool) -> Result<(), Failure> {
    match !pool.is_read_only() && pool.was_clean() {
        true => pool.close().map_err(|error| Failure::pool(path, &error)),
        false => Ok(()),
    }
}

/// Reads every byte through the file, so that a medium that does not return them is found.
pub(super) fn read_all(pool: &Pool, name: &str) -> pmem::Result<()> {
    pool.region(name)?.areas().iter().try_for_each(|area| area.probe("region", 0, area.len()))
}

fn look_into_ring(pool: &Pool, name: &str, notes: &mut Vec<String>) -> pmem::Result<String> {
    let (ring, found) = Ring::open(pool.region(name)?.into_area()?)?;
    note_tail(name, found.tail, notes);
    Ok(format!("{} unretired records in {} of {} bytes", found.records.len(), ring.unretired(), ring.capacity()))
}

fn look_into_heap(pool: &Pool, name: &str) -> pmem::Result<String> {
    let heap = Allocator::open(pool, name)?;
    Ok(usage(heap.live_blocks(|_, _| Ok(()))?))
}

fn look_into_objects(pool: &Pool, notes: &mut Vec<String>) -> pmem::Result<String> {
    let objects = Objects::open(pool)?;
    note_tail("objects", objects.tail(), notes);
    let used = objects.heap().live_blocks(|_, _| Ok(()))?;
    objects.close()?;
    Ok(usage(used))
}

fn usage(used: HeapUsage) -> String {
    let HeapUsage { live_blocks, live_bytes, chunk_bytes, .. } = used;
    format!("{live_blocks} live blocks in {} of {}", size::human(live_bytes), size::human(chunk_bytes))
}

fn note_tail(name: &str, tail: Tail, notes: &mut Vec<String>) {
    if let Tail::InDoubt { offset } = tail {
        notes.push(format!(
            "{name:?}: the record at byte {offset} is not whole: it was never acknowledged, or it was the last one and is damaged"
        ));
    }
}

fn overlaps(regions: &[RegionInfo]) -> Vec<String> {
    let mut sorted: Vec<&RegionInfo> = regions.iter().collect();
    sorted.sort_by_key(|region| region.offset);
    let pairs = sorted.windows(2).filter(|pair| pair[0].offset.saturating_add(pair[0].len) > pair[1].offset);
    pairs
        .map(|pair| format!("regions {:?} and {:?} overlap at {:#x}", pair[0].name, pair[1].name, pair[1].offset))
        .collect()
}

fn print(args: &Check, report: &CheckJson) -> Result<(), Failure> {
    for finding in &report.findings {
        say!("damaged: {finding}")?;
    }
    for note in &report.notes {
        say!("note: {note}")?;
    }
    for repaired in &report.repaired {
        say!("{}: {repaired}", if args.dry_run { "would be repaired" } else { "repaired" })?;
    }
    for checked in &report.checked {
        say!("checked: {checked}")?;
    }
    let sound = match (report.sound, report.repaired.is_empty(), args.dry_run) {
        (false, ..) => "damaged",
        (true, true, _) => "sound",
        (true, false, false) => "sound now",
        (true, false, true) => "would be sound; nothing was changed",
    };
    say!("{}: {sound}", args.path.display())?;
    if !report.sound {
        say!("next: restore from a copy; keep this file until that worked")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_regions_are_found() {
        let region =
            |name: &str, offset, len| RegionInfo { name: name.into(), kind: RegionKind::Raw, part: 0, offset, len };
        assert!(overlaps(&[region("b", 8192, 4096), region("a", 4096, 4096)]).is_empty());
        let found = overlaps(&[region("b", 8192, 4096), region("a", 4096, 8192)]);
        assert_eq!(found, [r#"regions "a" and "b" overlap at 0x2000"#]);
    }
}
