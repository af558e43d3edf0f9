//! Records that say of themselves which they are, and the verification of a pool full of them.

use std::time::Duration;

use pmem::{Area, Error, Options, Pool, Region};

use super::Arguments;

/// Threads that update records, each in its own part of the region.
pub const WRITERS: usize = 2;
/// What is counted and acknowledged: each writer's records, and the pages the pool grew by.
pub const COUNTERS: usize = WRITERS + 1;
/// Slots of one thread; record `n` lies in slot `n % SLOTS`.
const SLOTS: u64 = 500;
/// Not a power of two: records lie across lines, sectors and pages.
const WORDS: usize = 41;

/// Word 0 is the sequence number, the others follow from it, the thread and their index.
type Record = [u64; WORDS];
const RECORD_BYTES: u64 = size_of::<Record>() as u64;
/// Bytes of one thread's slots.
const PART_BYTES: u64 = SLOTS * RECORD_BYTES;
const POOL_BYTES: u64 = 16 << 20;
const REGION: &str = "records";
/// Stored to without a flush while the writers work.
const SCRATCH: &str = "scratch";
const SCRATCH_BYTES: u64 = 4 << 20;
/// Grown again and again; the last region of the pool, so that the file grows with it.
const GROWTH: &str = "growth";
const GROWTH_PAGES_MAX: u64 = 4096;
const PAGE: u64 = 4096;

fn record(thread: usize, sequence: u64) -> Record {
    std::array::from_fn(|word| match word {
        0 => sequence,
        _ => {
            let seed = sequence ^ (thread as u64) << 56 ^ (word as u64) << 48;
            (seed ^ seed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31) | 1
        }
    })
}

fn offset(sequence: u64) -> u64 {
    sequence % SLOTS * RECORD_BYTES
}

/// The pool in the directory; made if there is none, which must not be so if its creation was acknowledged.
fn open_or_create(arguments: &Arguments) -> Result<Pool, String> {
    let path = arguments.directory.join("records.cairn");
    let options = Options::new().size(POOL_BYTES).layout("vm-worker");
    let exists = path.exists();
    if !exists && arguments.created {
        return Err(format!("LOST the pool {}", path.display()));
    }
    let opened = if exists { options.open(&path) } else { options.create(&path) };
    opened.map_err(|e| format!("LOST {e}"))
}

/// The regions of the pool.
struct Regions {
    /// Each writer's part of the records.
    parts: Vec<Area>,
    /// Nothing is promised about it.
    scratch: Area,
    growth: Region,
}

/// Claims the regions; says whether one had to be added, which must not be so if their creation was acknowledged.
fn regions(pool: &Pool, created: bool) -> Result<(Regions, bool), String> {
    let mut added = false;
    let mut claim = |name, len| match pool.region(name) {
        Err(Error::NoRegion { .. }) if !created => {
            added = true;
            pool.add_region(name, len).map_err(text)
        }
        Err(e @ Error::NoRegion { .. }) => Err(format!("LOST {e}")),
        found => found.map_err(text),
    };
    let mut rest = claim(REGION, WRITERS as u64 * PART_BYTES)?.into_area().map_err(text)?;
    let scratch = claim(SCRATCH, SCRATCH_BYTES)?.into_area().map_err(text)?;
    let growth = claim(GROWTH, PAGE)?;
    let mut parts = Vec::new();
    for _ in 0..WRITERS {
        let (part, behind) = rest.split_at(PART_BYTES).map_err(text)?;
        parts.push(part);
        rest = behind;
    }
    Ok((Regions { parts, scratch, growth }, added))
}

fn text(error: Error) -> String {
    error.to_string()
}

/// What verification found of one thread's records.
struct Found {
    /// The newest whole record; 0 if there is none.
    newest: u64,
    /// The one after it was begun and is there in part.
    torn: bool,
}

/// Finds the newest whole record and demands all that it proves to have been acknowledged.
fn verify(part: &Area, thread: usize) -> Result<Found, String> {
    let read = |slot: u64| part.get::<Record>(offset(slot)).map_err(text);
    let whole = |r: &Record, slot: u64| {
        (r[0] == 0 && r.iter().all(|&w| w == 0)) || (r[0] != 0 && r[0] % SLOTS == slot && *r == record(thread, r[0]))
    };
    let mut newest = 0;
    for slot in 0..SLOTS {
        let r = read(slot)?;
        if whole(r, slot) {
            newest = newest.max(r[0]);
        }
    }
    // Only the record after the newest can have been under way, so only its slot may hold anything else than the
    // newest record of that slot.
    let mut torn = false;
    for slot in 0..SLOTS {
        let r = read(slot)?;
        if (newest + 1) % SLOTS == slot {
            torn = !whole(r, slot);
            continue;
        }
        let expected = (newest.saturating_sub(SLOTS - 1)..=newest).find(|n| n % SLOTS == slot).unwrap_or(0);
        if !whole(r, slot) {
            return Err(format!("DAMAGED thread {thread} slot {slot}: record {expected} is torn (newest {newest})"));
        }
        if r[0] != expected {
            return Err(format!("LOST thread {thread} slot {slot}: holds {}, not {expected} (newest {newest})", r[0]));
        }
    }
    Ok(Found { newest, torn })
}

/// See the head of this program.
pub fn verify_and_write(arguments: &Arguments) -> Result<(), String> {
    let pool = open_or_create(arguments)?;
    let domain = pool.domain().to_string();
    println!("domain {domain}");
    if arguments.domain.as_ref().is_some_and(|expected| *expected != domain) {
        return Err(format!("the domain detected is {domain}"));
    }
    let (Regions { parts, mut scratch, mut growth }, added) = regions(&pool, arguments.created)?;
    if added {
        println!("created");
    }
    let mut found = [0; COUNTERS];
    for (thread, part) in parts.iter().enumerate() {
        let Found { newest, torn } = verify(part, thread)?;
        if torn {
            println!("torn {thread} {}", newest + 1);
        }
        found[thread] = newest;
    }
    found[WRITERS] = verify_growth(&growth)?;
    if found.iter().zip(&arguments.need).any(|(found, need)| found < need) {
        return Err(format!("LOST found {found:?}, acknowledged {:?}", arguments.need));
    }
    println!("found {}", found.map(|n| n.to_string()).join(" "));
    if arguments.verify_only {
        return Ok(());
    }
    if arguments.no_sync {
        stub_out_drains()?;
    }
    std::thread::scope(|scope| {
        let pool = &pool;
        let mut threads = vec![scope.spawn(move || disturb(pool, &mut scratch, &mut growth))];
        for (thread, mut part) in parts.into_iter().enumerate() {
            threads.push(scope.spawn(move || write(&mut part, thread, found[thread])));
        }
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

/// Pages of the region; each must be there to be read, and zero.
fn verify_growth(growth: &Region) -> Result<u64, String> {
    for area in growth.areas() {
        if area.bytes(0, area.len() as usize).map_err(text)?.iter().any(|&b| b != 0) {
            return Err(format!("DAMAGED {area:?}: grown bytes are not zero"));
        }
    }
    Ok(growth.len() / PAGE)
}

/// Updates records for ever; the power cut ends it.
fn write(part: &mut Area, thread: usize, newest: u64) -> Result<(), String> {
    for sequence in newest + 1.. {
        let at = offset(sequence);
        part.put(at, &record(thread, sequence)).map_err(text)?;
        part.persist(at, RECORD_BYTES).map_err(text)?;
        println!("ack {thread} {sequence}");
    }
    Ok(())
}

/// Stores here and there for ever and flushes nothing: these pages go out with the syncs of the others, which gives a
/// sync some length, so that cuts fall into it. Now and then makes the pool longer.
fn disturb(pool: &Pool, scratch: &mut Area, growth: &mut Region) -> Result<(), String> {
    for n in 1u64.. {
        scratch.put(n * PAGE * 7919 % SCRATCH_BYTES, &n).map_err(text)?;
        if n % 8 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if n % 64 == 0 && growth.len() < GROWTH_PAGES_MAX * PAGE {
            pool.grow_region(growth, PAGE).map_err(text)?;
            println!("ack {WRITERS} {}", growth.len() / PAGE);
        }
    }
    Ok(())
}

#[cfg(feature = "failpoints")]
fn stub_out_drains() -> Result<(), String> {
    pmem::failpoints::ignore_drains(true);
    Ok(())
}

#[cfg(not(feature = "failpoints"))]
fn stub_out_drains() -> Result<(), String> {
    Err("--no-sync needs the feature `failpoints`".into())
}
