//! What one sync of one dirty line really writes, from the block device's own statistics.
//!
//! Other writers of the same device count too: in the guest there are none, on a busy host the least of several rounds
//! is nearest to the truth.

use pmem::{Area, Options};
use rustix::fs::Advice as FileAdvice;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Instant;

const FILE_BYTES: usize = 64 << 20;
const PAGE: usize = 4096;
const SYNCS: u64 = 200;
/// Measurements that an assertion takes the least of.
const ROUNDS: u64 = 3;

/// Counters of a block device since boot.
#[derive(Clone, Copy)]
struct Written {
    bytes: u64,
    requests: u64,
    flushes: u64,
}

/// Statistics of the block device that holds `path`; None on a file system without one.
pub fn statistics(path: &Path) -> Option<PathBuf> {
    let device = fs::metadata(path).ok()?.dev();
    let stat = format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(device), rustix::fs::minor(device));
    Some(stat.into()).filter(|p: &PathBuf| p.exists())
}

fn written(stat: &Path) -> Result<Written, String> {
    let text = fs::read_to_string(stat).map_err(|e| format!("{}: {e}", stat.display()))?;
    let fields: Vec<u64> = text.split_whitespace().map_while(|f| f.parse().ok()).collect();
    // Documentation/block/stat.rst: writes completed, sectors written (always of 512 bytes), flush requests completed.
    match fields[..] {
        [_, _, _, _, requests, _, sectors, _, _, _, _, _, _, _, _, flushes, ..] => {
            Ok(Written { bytes: sectors * 512, requests, flushes })
        }
        _ => Err(format!("{}: fewer fields than expected", stat.display())),
    }
}

/// How the file came to be filled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    /// 4 KiB writes, advised random: what a pool does.
    Pages,
    /// As `Pages`, without the advice.
    PagesNotAdvised,
    /// 4 MiB writes.
    Large,
    /// fallocate: blocks reserved, not written.
    Reserved,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sync {
    Fdatasync,
    /// msync of the page that holds the line.
    Msync,
}

fn fill(path: &Path, how: Fill) -> Result<File, String> {
    let error = |e: std::io::Error| format!("{}: {e}", path.display());
    let _ = fs::remove_file(path);
    let file = File::options().read(true).write(true).create_new(true).open(path).map_err(error)?;
    if matches!(how, Fill::Pages) {
        rustix::fs::fadvise(&file, 0, None, FileAdvice::Random).map_err(|e| error(e.into()))?;
    }
    let chunk = match how {
        Fill::Pages | Fill::PagesNotAdvised => PAGE,
        Fill::Large => 4 << 20,
        Fill::Reserved => {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, 0, FILE_BYTES as u64).map_err(|e| error(e.into()))?;
            FILE_BYTES
        }
    };
    if how != Fill::Reserved {
        let zeros = vec![0; chunk];
        for at in (0..FILE_BYTES).step_by(chunk) {
            file.write_all_at(&zeros, at as u64).map_err(error)?;
        }
    }
    file.sync_all().map_err(error)?;
    Ok(file)
}

/// Dirties one line in each of `SYNCS` different pages and syncs after each.
fn dirty_and_sync(file: &File, advise: bool, sync: Sync) -> Result<(), String> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else knows of it.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), FILE_BYTES, protection, MapFlags::SHARED, file, 0) };
    let base = NonNull::new(base.map_err(|e| e.to_string())?.cast::<u8>()).ok_or("mapped at null")?;
    let result = (|| {
        if advise {
            // SAFETY: the whole of the mapping made above.
            unsafe { rustix::mm::madvise(base.as_ptr().cast(), FILE_BYTES, Advice::Random) }
                .map_err(|e| e.to_string())?;
        }
        for n in 0..SYNCS {
            let page = page(n, FILE_BYTES);
            // SAFETY: `page` + 64 lies within the mapping, and only this thread uses it.
            unsafe { base.add(page + 128).as_ptr().write_bytes(n as u8 | 1, 64) };
            match sync {
                Sync::Fdatasync => file.sync_data().map_err(|e| e.to_string())?,
                // SAFETY: one page of the mapping.
                Sync::Msync => unsafe { rustix::mm::msync(base.add(page).as_ptr().cast(), PAGE, MsyncFlags::SYNC) }
                    .map_err(|e| e.to_string())?,
            }
        }
        Ok(())
    })();
    // SAFETY: the mapping made above; no reference into it is left.
    unsafe { rustix::mm::munmap(base.as_ptr().cast(), FILE_BYTES) }.map_err(|e| e.to_string())?;
    result
}

pub fn header() {
    println!(
        "{:<26} {:<10} {:<5} {:>10} {:>9} {:>8} {:>8}",
        "file", "sync", "cache", "bytes/sync", "requests", "flushes", "us/sync"
    );
}

/// Runs `work`, which syncs `SYNCS` times, and prints a line; returns bytes per sync and flushes per sync.
#[expect(clippy::disallowed_methods, reason = "tells how long a real disk takes")]
fn row(stat: &Path, names: [&str; 3], work: impl FnOnce() -> Result<(), String>) -> Result<(f64, f64), String> {
    let before = written(stat)?;
    let started = Instant::now();
    work()?;
    let us = started.elapsed().as_micros() as u64 / SYNCS;
    let after = written(stat)?;
    let each = |before: u64, after: u64| (after - before) as f64 / SYNCS as f64;
    let bytes = each(before.bytes, after.bytes);
    let flushes = each(before.flushes, after.flushes);
    let requests = each(before.requests, after.requests);
    let [file, sync, cache] = names;
    println!("{file:<26} {sync:<10} {cache:<5} {bytes:>10.0} {requests:>9.2} {flushes:>8.2} {us:>8}");
    Ok((bytes, flushes))
}

/// Prints a line for each way to use a pool and, if asked, for each other way to fill a file; checks the former.
pub fn measure(directory: &Path, compare: bool, bytes_max: Option<f64>) -> Result<(), String> {
    let stat = statistics(directory).ok_or(format!("{}: no block device behind it", directory.display()))?;
    header();
    let pools = pools(directory, &stat, if bytes_max.is_some() { ROUNDS } else { 1 })?;
    if compare {
        files(directory, &stat)?;
    }
    let Some(max) = bytes_max else { return Ok(()) };
    for (what, bytes, flushes) in pools {
        // Less than a page, or less than one flush, and the statistics have not seen the writes at all.
        if bytes > max || bytes < PAGE as f64 || flushes < 1.0 {
            return Err(format!(
                "{what}: {bytes:.0} bytes and {flushes:.2} flushes per drain, expected {PAGE} to {max} and 1"
            ));
        }
    }
    println!("asserted: one drain of one dirty line writes {PAGE} to {max} bytes and flushes the disk's cache");
    Ok(())
}

/// One line dirtied and drained, in every part of a pool: new, opened again with a cold page cache, and in the part it grew by.
/// The least of all rounds, each.
pub fn pools(directory: &Path, stat: &Path, rounds: u64) -> Result<Vec<(&'static str, f64, f64)>, String> {
    let path = directory.join("bytes-per-sync.cairn");
    let text = |e: pmem::Error| e.to_string();
    let mut least = vec![
        ("pool, new", f64::INFINITY, f64::INFINITY),
        ("pool, grown", f64::INFINITY, f64::INFINITY),
        ("pool, opened", f64::INFINITY, f64::INFINITY),
    ];
    for _ in 0..rounds {
        let _ = fs::remove_file(&path);
        let options = Options::new().size(FILE_BYTES as u64).domain(pmem::DomainChoice::File);
        let pool = options.create(&path).map_err(text)?;
        let half = FILE_BYTES as u64 / 2;
        let mut first = pool.add_region("first", half).and_then(pmem::Region::into_area).map_err(text)?;
        let mut results = vec![row(stat, ["pool, new", "drain", "warm"], || persist_lines(&mut first))?];
        // Twice as much as is free: most of it is new in the file.
        let mut second = pool.add_region("second", 2 * half).and_then(pmem::Region::into_area).map_err(text)?;
        results.push(row(stat, ["pool, grown", "drain", "warm"], || persist_lines(&mut second))?);
        drop((first, second));
        pool.close().map_err(text)?;
        let file = File::open(&path).map_err(|e| e.to_string())?;
        rustix::fs::fadvise(&file, 0, None, FileAdvice::DontNeed).map_err(|e| e.to_string())?;
        drop(file);
        let pool = options.open(&path).map_err(text)?;
        let mut first = pool.region("first").and_then(pmem::Region::into_area).map_err(text)?;
        results.push(row(stat, ["pool, opened", "drain", "cold"], || persist_lines(&mut first))?);
        for ((_, bytes, flushes), (b, f)) in least.iter_mut().zip(results) {
            *bytes = bytes.min(b);
            *flushes = flushes.min(f);
        }
    }
    let _ = fs::remove_file(&path);
    Ok(least)
}

fn persist_lines(area: &mut Area) -> Result<(), String> {
    for n in 0..SYNCS {
        let at = page(n, area.len() as usize) as u64 + 128;
        area.put(at, &[n | 1; 8]).and_then(|()| area.persist(at, 64)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Where the `n`-th page lies: far from the one before, in no order that readahead would know.
fn page(n: u64, len: usize) -> usize {
    (n * 7919 * 13) as usize % (len / PAGE) * PAGE
}

/// The same with plain files, filled and synced in several ways.
fn files(directory: &Path, stat: &Path) -> Result<(), String> {
    let path = directory.join("bytes-per-sync");
    for how in [Fill::Pages, Fill::PagesNotAdvised, Fill::Large, Fill::Reserved] {
        for sync in [Sync::Fdatasync, Sync::Msync] {
            for cold in [false, true] {
                let mut file = fill(&path, how)?;
                if cold {
                    rustix::fs::fadvise(&file, 0, None, FileAdvice::DontNeed).map_err(|e| e.to_string())?;
                    file = File::options().read(true).write(true).open(&path).map_err(|e| e.to_string())?;
                    if how == Fill::Pages {
                        rustix::fs::fadvise(&file, 0, None, FileAdvice::Random).map_err(|e| e.to_string())?;
                    }
                }
                let (file_name, sync_name) = (format!("{how:?}"), format!("{sync:?}"));
                let names = [&*file_name, &*sync_name, if cold { "cold" } else { "warm" }];
                row(stat, names, || dirty_and_sync(&file, how == Fill::Pages, sync))?;
            }
        }
    }
    let _ = fs::remove_file(&path);
    Ok(())
}
