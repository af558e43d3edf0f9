//! `cairn check` against thousands of damaged files of every kind: what it says is held against what the kind's own open and check say, and against what can be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use self::files::{COMMITS, Data, KINDS, Kind, Mutation, Sample, Unread, read, stored};
use super::examine;
use crate::args;

#[path = "damage/files.rs"]
mod files;

/// Mutations of each file, of each sort: the gate's budget, or what the environment says.
fn budget() -> usize {
    std::env::var("CAIRN_DAMAGE").map_or(40, |text| text.parse().expect("CAIRN_DAMAGE is a number"))
}

fn seed() -> u64 {
    std::env::var("CAIRN_SEED").map_or(1, |text| text.parse().expect("CAIRN_SEED is a number"))
}

/// Wrong data that the engines themselves take for whole, as docs/limits.md says. What no checksum or no later record covers; never anything that was not there once, but
/// in objects and regions that have no checksum.
fn is_known(sample: &Sample, sort: &str, own: &Result<Data, Unread>) -> bool {
    // Nothing behind the last records says that there were more: a part of the end is lost.
    let is_shorter = own.as_ref().is_ok_and(|data| sample.data.starts_with(data));
    match (sample.kind, sample.closed) {
        // Objects have one copy, without a checksum; as have, of a heap that was not closed, those that were written lately.
        (Kind::HeapUndo | Kind::HeapEaw | Kind::HeapPartial | Kind::Versions | Kind::Tree, _)
        | (Kind::HeapInPlace | Kind::Served, false) => sort != "cut",
        (Kind::HeapInPlace | Kind::Served, true) => false,
        // Its last records are in doubt, or were never there.
        (Kind::Pool, _) => sort != "cut" && is_shorter_ring(sample, own),
        (Kind::Log, false) => {
            let enough = own.as_ref().is_ok_and(|data| data.len() + UNNOTICED >= sample.data.len());
            sort != "cut" && is_shorter && enough
        }
        (Kind::Copy, _) => sort != "cut" && is_shorter,
        (Kind::Log, true) => false,
        // The last commits of writers, of which a value is as it was before.
        (Kind::Store, false) => sort != "cut" && own.as_ref().is_ok_and(lacks_the_last_commits),
        (Kind::Store, true) => false,
    }
}

/// Records, and commits of a store, at the end of what was not closed, of which nothing may tell that they were there.
const UNNOTICED: usize = 16;

/// Whether each key of the store has what it was given last, or what it had before one of the last few commits.
fn lacks_the_last_commits(data: &Data) -> bool {
    (COMMITS - UNNOTICED..=COMMITS).any(|commits| *data == stored(commits))
}

fn is_shorter_ring(sample: &Sample, own: &Result<Data, Unread>) -> bool {
    let Ok(data) = own else { return false };
    let ring = |data: &Data| data.iter().filter(|entry| entry.0.starts_with(b"ring")).cloned().collect::<Data>();
    let rest = |data: &Data| data.iter().filter(|entry| !entry.0.starts_with(b"ring")).cloned().collect::<Data>();
    ring(&sample.data).starts_with(&ring(data)) && rest(&sample.data) == rest(data)
}

/// What the command says: its exit code, and its words.
fn verdict(path: &Path, closed: bool) -> (u8, String) {
    let path = path.to_owned();
    let args = args::Check { path, json: false, recover: !closed, repair: false, dry_run: false };
    match examine(&args) {
        Ok(report) if report.sound => (0, report.notes.join("; ")),
        Ok(report) => (1, report.findings.join("; ")),
        Err(failure) => (if failure.is_damage() { 1 } else { 2 }, failure.to_string()),
    }
}

struct Judged {
    code: u8,
    said: String,
    own: Result<Data, Unread>,
}

fn judge(sample: &Sample, bytes: &[u8], path: &Path) -> Judged {
    std::fs::write(path, bytes).unwrap();
    let (code, said) = verdict(path, sample.closed);
    if !sample.closed {
        std::fs::write(path, bytes).unwrap(); // the check has recovered it
    }
    let own = read(sample.kind, path, sample.closed);
    Judged { code, said, own }
}

/// Whether damage of it is exit code 1, whatever is damaged. A heap that was not closed may say that it has to be recovered, by a program that has its regions.
fn is_told(sample: &Sample) -> bool {
    use Kind::{HeapEaw, HeapInPlace, HeapPartial, HeapUndo, Served, Store, Tree, Versions};
    match sample.kind {
        Store => true,
        HeapInPlace | HeapPartial | HeapUndo | HeapEaw | Versions | Tree | Served => sample.closed,
        _ => false,
    }
}

/// Why a verdict is wrong, if it is: because of the command, or of the engine, which takes wrong data for right itself.
enum Complaint {
    OfCommand(String),
    OfEngine(String),
}

fn complaint(sample: &Sample, is_changed: bool, judged: &Judged) -> Option<Complaint> {
    let Judged { code, said, own } = judged;
    match own {
        Err(Unread::Rejected(error)) if *code == 0 => {
            Some(Complaint::OfCommand(format!("sound, and its own open or check says: {error}")))
        }
        // What is no pool any more, or is one of another kind, is no damage to the command.
        Err(Unread::Rejected(_)) if *code == 2 && is_told(sample) && !said.contains("not a pool") => {
            Some(Complaint::OfCommand(format!("exit code 2, and it is damaged: {said}")))
        }
        Err(Unread::Lost) if *code == 0 => {
            Some(Complaint::OfEngine("sound, and what is in it leads to nothing".into()))
        }
        Err(_) => None,
        Ok(_) if !is_changed && *code != 0 => {
            Some(Complaint::OfCommand(format!("nothing was changed: exit code {code}: {said}")))
        }
        Ok(data) if *data != sample.data && *code == 0 => {
            let (now, before) = (data.len(), sample.data.len());
            Some(Complaint::OfEngine(format!("sound, and what is read is wrong: {now} of {before} ({said})")))
        }
        Ok(_) => None,
    }
}

/// Waits for each step of `work`: one that hangs is a failure that names it.
fn watched(work: impl FnOnce(&dyn Fn(String)) + Send) {
    std::thread::scope(|scope| {
        let (say, hear) = mpsc::channel();
        let done = say.clone();
        scope.spawn(move || {
            work(&|what| say.send(Some(what)).unwrap());
            done.send(None).unwrap();
        });
        let mut last = String::new();
        loop {
            match hear.recv_timeout(Duration::from_secs(120)) {
                Ok(Some(what)) => last = what,
                Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln_hang(&last);
                }
            }
        }
    });
}

/// A thread that hangs cannot be ended, and a scope waits for it.
#[allow(clippy::print_stderr, reason = "a test")]
fn eprintln_hang(what: &str) {
    eprintln!("hangs: {what}");
    std::process::exit(101);
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a test that says what it has done")]
fn check_calls_nothing_sound_that_is_not() {
    let (dir, seed, each) = (folder(), seed(), budget());
    let path: PathBuf = dir.path().join("f");
    let (mut wrong, mut known) = (Vec::new(), 0);
    let mut table: BTreeMap<(Kind, bool), [[u32; 4]; 6]> = BTreeMap::new();
    let mut count = 0;
    watched(|progress| {
        for (number, (kind, closed)) in KINDS.iter().flat_map(|kind| [(*kind, true), (*kind, false)]).enumerate() {
            let sample = Sample::make(kind, closed, &path);
            let untouched = judge(&sample, &sample.bytes, &path);
            assert_eq!(untouched.code, 0, "{kind:?}, closed: {closed}, untouched: {}", untouched.said);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (number as u64) << 32);
            for (sort, name) in Mutation::NAMES.iter().enumerate() {
                for _ in 0..each {
                    let mutation = Mutation::draw(&mut rng, sort, &sample);
                    let what = format!("{kind:?}, closed: {closed}, {mutation:?}, seed {seed}");
                    progress(what.clone());
                    let bytes = mutation.apply(&sample);
                    let judged = judge(&sample, &bytes, &path);
                    count += 1;
                    let equal = judged.own.as_ref().is_ok_and(|data| *data == sample.data);
                    let column = if judged.code == 0 { usize::from(!equal) * 3 } else { usize::from(judged.code) };
                    table.entry((kind, closed)).or_default()[sort][column] += 1;
                    match complaint(&sample, bytes != sample.bytes, &judged) {
                        Some(Complaint::OfEngine(_)) if is_known(&sample, name, &judged.own) => known += 1,
                        Some(Complaint::OfCommand(why) | Complaint::OfEngine(why)) => {
                            wrong.push(format!("{what}: {why}"))
                        }
                        None => {}
                    }
                }
            }
        }
    });
    println!("{count} mutations, seed {seed}; sound and equal, damaged, refused, sound and wrong:");
    for ((kind, closed), rows) in &table {
        let cells = Mutation::NAMES.iter().zip(rows).map(|(name, row)| format!("{name} {row:?}"));
        println!("{kind:?} {}: {}", if *closed { "closed" } else { "killed" }, cells.collect::<Vec<_>>().join(", "));
    }
    println!("{known} known limits were met");
    wrong.iter().for_each(|one| eprintln!("{one}"));
    assert!(wrong.is_empty(), "{} wrong verdicts", wrong.len());
}

/// Files that were closed, and are recovered or repaired all the same, twice: what the second look calls sound is as it was.
#[test]
#[allow(clippy::print_stderr, reason = "a test that says what it has done")]
fn repair_makes_nothing_sound_that_is_not() {
    let (dir, seed, each) = (folder(), seed(), budget().div_ceil(4));
    let path: PathBuf = dir.path().join("f");
    let mut wrong = Vec::new();
    watched(|progress| {
        for (number, kind) in KINDS.iter().enumerate() {
            let sample = Sample::make(*kind, true, &path);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (number as u64) << 32 ^ 1 << 62);
            for (sort, name) in Mutation::NAMES.iter().enumerate() {
                // Lost writes are what a recovery is fooled by.
                for time in 0..each * if sort == 5 { 4 } else { 1 } {
                    let mutation = Mutation::draw(&mut rng, sort, &sample);
                    let repair = time % 2 == 1 && *kind != Kind::Store; // which has a command of its own
                    let what = format!("{kind:?}, repair: {repair}, {mutation:?}, seed {seed}");
                    progress(what.clone());
                    let bytes = mutation.apply(&sample);
                    std::fs::write(&path, &bytes).unwrap();
                    let args = args::Check { path: path.clone(), json: false, recover: true, repair, dry_run: false };
                    let sound = [(); 2].map(|()| examine(&args).is_ok_and(|report| report.sound))[1];
                    if !sound {
                        assert!(bytes != sample.bytes, "{what}: nothing was changed");
                        continue;
                    }
                    let own = read(*kind, &path, true);
                    if own.as_ref().is_ok_and(|data| *data == sample.data) {
                        continue;
                    }
                    if !is_known(&sample, name, &own) {
                        wrong.push(format!("{what}: sound, and then: {:?}", own.map(|data| data.len())));
                    }
                }
            }
        }
    });
    wrong.iter().for_each(|one| eprintln!("{one}"));
    assert!(wrong.is_empty(), "{} wrong verdicts", wrong.len());
}

/// Each page of the backup is lost, and recovery makes main of it: objects have no checksum then, but what a server keeps in them must fit together.
#[test]
fn what_a_damaged_backup_breaks_is_damage() {
    let dir = folder();
    let path: PathBuf = dir.path().join("f");
    let sample = Sample::make(Kind::Served, false, &path);
    std::fs::write(&path, &sample.bytes).unwrap();
    let regions = pmem::Options::new().open(&path).unwrap().info().regions;
    let backup = regions.iter().find(|region| region.name == "heap.backup").unwrap();
    let pages = backup.offset as usize / files::PAGE..(backup.offset + backup.len) as usize / files::PAGE;
    let mut broken = Vec::new();
    for page in pages {
        let judged = judge(&sample, &Mutation::Zeroed { page }.apply(&sample), &path);
        if judged.own.is_err() {
            assert_eq!(judged.code, 1, "page {page}: {}: {:?}", judged.said, judged.own);
            broken.push(judged.said);
        }
    }
    assert!(broken.iter().any(|said| said.starts_with("root of the heap: damaged")), "{broken:?}");
}

/// A closed heap has no dirty zones: a page of marks that is lost is damage, and is repaired.
#[test]
fn lost_marks_of_a_closed_heap_are_damage_and_repaired() {
    let dir = folder();
    let path: PathBuf = dir.path().join("f");
    let sample = Sample::make(Kind::HeapInPlace, true, &path);
    std::fs::write(&path, &sample.bytes).unwrap();
    let regions = pmem::Options::new().open_read_only(&path).unwrap().info().regions;
    for name in ["heap.zones", "heap.marks"] {
        let page = regions.iter().find(|region| region.name == name).unwrap().offset as usize / files::PAGE;
        let bytes = Mutation::Zeroed { page }.apply(&sample);
        std::fs::write(&path, &bytes).unwrap();
        let (code, said) = verdict(&path, true);
        assert!(code == 1 && said.contains("mark of a zone") && said.contains("--repair"), "{name}: {code}: {said}");
        let args = args::Check { path: path.clone(), json: false, recover: false, repair: true, dry_run: false };
        let report = examine(&args).unwrap();
        assert!(report.sound && report.repaired.iter().any(|what| what.contains("marks of")), "{:?}", report.repaired);
        assert_eq!(verdict(&path, true).0, 0, "{name}");
        assert_eq!(read(sample.kind, &path, true).unwrap(), sample.data, "{name}");
    }
}
