//! The file domain on a real disk: syncs, and what the device is made to write.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use heap::{Heap, Policy};
use pmem::{DomainChoice, PPtr};

use crate::support::{Object, bump, disk, quiet, with_objects};

const OBJECTS: usize = 64 * 64;
const PAGE: f64 = 4096.0;

/// In steady state: zones dirty, pipeline full.
fn heap(policy: Policy) -> (tempfile::TempDir, Heap, Vec<PPtr<Object>>) {
    let dir = disk();
    let (heap, objects) = with_objects(&dir, &quiet(policy, DomainChoice::File).bytes(4 << 20), OBJECTS);
    objects.iter().step_by(32).for_each(|&o| bump(&heap, o));
    (dir, heap, objects)
}

#[test]
fn a_commit_in_place_is_one_sync() {
    for (policy, each) in [(Policy::None, 1), (Policy::InPlace, 1), (Policy::Eaw, 1), (Policy::Undo, 3)] {
        let (_dir, heap, objects) = heap(policy);
        let before = heap.pool().stats();
        objects.iter().step_by(5).take(200).for_each(|&o| bump(&heap, o));
        let spent = heap.pool().stats() - before;
        assert_eq!((spent.drains, spent.syncs), (each * 200, each * 200), "{policy}");
    }
}

// ---- committers together --------------------------------------------------------------------------------------------

/// Syncs and commits of as many threads, each on objects of its own.
#[expect(clippy::disallowed_methods, reason = "tells how long a real disk takes")]
fn together(heap: &Heap, objects: &[PPtr<Object>], threads: usize, each: usize) -> (u64, u64) {
    let (start, before, commits) = (Barrier::new(threads + 1), heap.pool().stats(), heap.stats().commits);
    let mut started = Instant::now();
    std::thread::scope(|scope| {
        for own in objects.chunks(objects.len() / threads).take(threads) {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                (0..each).for_each(|n| bump(heap, own[n % own.len()]));
            });
        }
        start.wait();
        started = Instant::now();
    });
    let (taken, syncs) = (started.elapsed(), (heap.pool().stats() - before).syncs);
    let commits = heap.stats().commits - commits;
    let rate = commits as f64 / taken.as_secs_f64();
    println!("{threads} committers: {commits} commits by {syncs} syncs, {rate:.0} commits/s");
    (syncs, commits)
}

#[test]
fn committers_share_syncs() {
    let (_dir, heap, objects) = heap(Policy::InPlace);
    let (syncs, commits) = together(&heap, &objects, 1, 400);
    assert_eq!((syncs, commits), (400, 400));
    let (syncs, commits) = together(&heap, &objects, 64, 100);
    assert_eq!(commits, 6400);
    // Ten and more on an idle machine; a busy one wakes fewer of them in time for the next.
    assert!(4 * syncs <= commits, "{syncs} syncs for {commits} commits of 64 threads");
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

/// The statistics of the block device under `path`, if there is one.
fn statistics(path: &Path) -> Option<PathBuf> {
    let device = fs::metadata(path).ok()?.dev();
    // As the C library's major() and minor() take them apart.
    let (major, minor) = (device >> 8 & 0xfff | device >> 32 & !0xfff, device & 0xff | device >> 12 & 0xffff_ff00);
    Some(format!("/sys/dev/block/{major}:{minor}/stat").into()).filter(|p: &PathBuf| p.exists())
}

/// Bytes the device has written since boot: sectors of 512 (Documentation/block/stat.rst).
fn written(stat: &Path) -> u64 {
    fs::read_to_string(stat).unwrap().split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
}

/// Bytes in the pages that this thread has made dirty.
fn dirtied() -> Option<u64> {
    let io = fs::read_to_string("/proc/thread-self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

/// True if that count sees what this thread writes there: it does not for files in memory, and not every kernel has it.
fn counts_dirtied(dir: &Path) -> bool {
    let before = dirtied();
    fs::write(dir.join("probe"), [1; PAGE as usize]).unwrap();
    before.is_some_and(|before| dirtied() > Some(before))
}

/// A commit writes the page with the object and the page with the end of the log; each sixteenth, besides, what the sixteen before it have changed, to
/// the backup.
#[test]
fn a_commit_in_place_writes_two_pages_and_its_share_of_the_backup() {
    const COMMITS: usize = 256;
    let (dir, heap, objects) = heap(Policy::InPlace);
    if !counts_dirtied(dir.path()) {
        println!("skipped: no count of what is made dirty in {}", dir.path().display());
        return;
    }
    let stat = statistics(dir.path());
    if stat.is_none() {
        println!("no statistics of the device of {}: what it writes is not seen", dir.path().display());
    }
    let device = || stat.as_deref().map_or(0, written);
    // Objects beside each other, and each on a page of its own: each sixteenth commit makes one page of the backup dirty (or two), or sixteen.
    for (stride, pages_max) in [(1, 2.0 + 2.0 / 16.0), (67, 3.0)] {
        // Others write to the device too: what it has written is at least this, and shown.
        let before = (dirtied().unwrap(), device());
        (0..COMMITS).for_each(|n| bump(&heap, objects[n * stride % OBJECTS]));
        let each = |before: u64, after: u64| (after - before) as f64 / COMMITS as f64;
        let (dirty, written) = (each(before.0, dirtied().unwrap()), each(before.1, device()));
        println!("{} bytes apart: {dirty:.0} bytes per commit made dirty, {written:.0} written", stride * 64);
        assert!((2.0 * PAGE..=pages_max * PAGE + 64.0).contains(&dirty), "{dirty:.0} bytes per commit made dirty");
        assert!(stat.is_none() || written >= 2.0 * PAGE, "{written:.0} bytes per commit written");
    }
}
