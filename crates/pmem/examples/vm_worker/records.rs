//! Records that say of themselves which they are, and the verification of a pool full of them.

use pmem::{Area, Error, Options, Pool};

use super::Arguments;

/// Threads that update records, each in its own part of the region.
pub const THREADS: usize = 2;
/// Slots of one thread; record `n` lies in slot `n % SLOTS`.
const SLOTS: u64 = 500;
/// Not a power of two: records lie across lines, sectors and pages.
const WORDS: usize = 41;

/// Word 0 is the sequence number, the others follow from it, the thread and their place.
type Record = [u64; WORDS];
const RECORD_BYTES: u64 = size_of::<Record>() as u64;
/// Bytes of one thread's slots.
const PART_BYTES: u64 = SLOTS * RECORD_BYTES;
const POOL_BYTES: u64 = 16 << 20;
const REGION: &str = "records";

fn record(thread: usize, sequence: u64) -> Record {
    std::array::from_fn(|word| match word {
        0 => sequence,
        _ => {
            let seed = sequence ^ (thread as u64) << 56 ^ (word as u64) << 48;
            (seed ^ seed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31) | 1
        }
    })
}

fn place(sequence: u64) -> u64 {
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

/// Each thread's part of the region; says whether it had to be added.
fn parts(pool: &Pool, created: bool) -> Result<(Vec<Area>, bool), String> {
    let (region, added) = match pool.region(REGION) {
        Err(Error::NoRegion { .. }) if !created => (pool.add_region(REGION, THREADS as u64 * PART_BYTES), true),
        Err(e @ Error::NoRegion { .. }) => return Err(format!("LOST {e}")),
        found => (found, false),
    };
    let mut rest = region.and_then(pmem::Region::into_area).map_err(text)?;
    let mut parts = Vec::new();
    for _ in 0..THREADS {
        let (part, behind) = rest.split_at(PART_BYTES).map_err(text)?;
        parts.push(part);
        rest = behind;
    }
    Ok((parts, added))
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
    let read = |slot: u64| part.get::<Record>(place(slot)).map_err(text);
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
    let (parts, added) = parts(&pool, arguments.created)?;
    if added {
        println!("created");
    }
    let mut newest = [0; THREADS];
    for (thread, (newest, part)) in newest.iter_mut().zip(&parts).enumerate() {
        let found = verify(part, thread)?;
        if found.torn {
            println!("torn {thread} {}", found.newest + 1);
        }
        *newest = found.newest;
    }
    if newest.iter().zip(&arguments.need).any(|(found, need)| found < need) {
        return Err(format!("LOST found {newest:?}, acknowledged {:?}", arguments.need));
    }
    println!("found {}", newest.map(|n| n.to_string()).join(" "));
    if arguments.verify_only {
        return Ok(());
    }
    if arguments.no_sync {
        stub_out_drains()?;
    }
    std::thread::scope(|scope| {
        let work = parts.into_iter().zip(newest).enumerate();
        let threads: Vec<_> =
            work.map(|(thread, (mut part, newest))| scope.spawn(move || write(&mut part, thread, newest))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

/// Updates records for ever; the power cut ends it.
fn write(part: &mut Area, thread: usize, newest: u64) -> Result<(), String> {
    for sequence in newest + 1.. {
        let at = place(sequence);
        part.put(at, &record(thread, sequence)).map_err(text)?;
        part.persist(at, RECORD_BYTES).map_err(text)?;
        println!("ack {thread} {sequence}");
    }
    Ok(())
}

#[cfg(feature = "sabotage")]
fn stub_out_drains() -> Result<(), String> {
    pmem::sabotage::ignore_drains(true);
    Ok(())
}

#[cfg(not(feature = "sabotage"))]
fn stub_out_drains() -> Result<(), String> {
    Err("--no-sync needs the feature `sabotage`".into())
}
