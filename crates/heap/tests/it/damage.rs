//! Damaged heaps, by the file: a workload leaves a heap that was closed, or one that was killed; one change of its bytes must lead to an error, to a
//! repair that is equal, to the same contents, to a loss that opening tells of, or to what docs/limits.md names. `CAIRN_DAMAGE` is how many
//! mutations of each kind a heap gets; the table is that of `docs/damage.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use heap::{Heap, Options, Policy};
use pmem::{Allocator, DomainChoice, HeapOptions, PPtr};
use tx::{Engine, Isolation, Transaction, Typed};

use crate::support::{Object, Rng, memory, quiet};

const PAGE: usize = 4096;

fn options(policy: Policy) -> Options {
    let blocks = HeapOptions::chunk_bytes(4096).unwrap();
    let pool = pmem::Options::new().size(64 << 10).domain(DomainChoice::Emulated);
    quiet(policy, DomainChoice::Emulated)
        .pool(pool)
        .bytes(96 << 10)
        .zone_bytes(8192)
        .slots(2)
        .log_bytes(4096)
        .blocks(blocks)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bit,
    Line,
    ZeroedPage,
    Truncated,
    MovedPage,
    LostWrite,
    /// Two of the others, at two places.
    Two,
}

const KINDS: [Kind; 7] =
    [Kind::Bit, Kind::Line, Kind::ZeroedPage, Kind::MovedPage, Kind::LostWrite, Kind::Truncated, Kind::Two];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Error,
    /// Something was repaired, and it is equal.
    Repaired,
    Equal,
    /// Other contents, and opening or scrubbing has told that something is in doubt.
    Told,
    /// Other contents, where docs/limits.md says that it can be so.
    Limit,
}

/// What the bytes of a page are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Objects, their backup or copies.
    Contents,
    Logs,
    /// Of the allocator.
    Tables,
    Other,
}

/// A heap's file, and what is in it.
struct Reference {
    policy: Policy,
    closed: bool,
    bytes: Vec<u8>,
    /// The file at earlier times.
    earlier: Vec<Vec<u8>>,
    objects: BTreeMap<u64, u64>,
    /// Every value that an object ever held.
    values: BTreeMap<u64, BTreeSet<u64>>,
    parts: Vec<(Range<usize>, Part)>,
}

impl Reference {
    fn new(policy: Policy, closed: bool, seed: u64, dir: &Path) -> Self {
        let path = dir.join("reference");
        let _ = fs::remove_file(&path);
        let heap = Heap::create(&path, &options(policy)).unwrap();
        let mut rng = Rng(seed);
        let mut live: Vec<PPtr<Object>> = Vec::new();
        let (mut objects, mut earlier) = (BTreeMap::new(), Vec::new());
        let mut values: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for number in 1..=300u64 {
            let made = heap.transact(Isolation::Strict, |tx| -> tx::Result<_> {
                let object = match live.len() {
                    n if n < 40 || n < 150 && rng.below(2) == 0 => tx.alloc(&[number; 8])?,
                    n => {
                        let object = live[rng.below(n as u64) as usize];
                        *tx.write(object)? = [number; 8];
                        object
                    }
                };
                if number == 1 {
                    tx.set_root(object)?;
                }
                Ok(object)
            });
            let object = made.unwrap();
            if objects.insert(object.offset(), number).is_none() {
                live.push(object);
            }
            values.entry(object.offset()).or_default().insert(number);
            if number % 7 == 0 && live.len() > 20 && policy != Policy::None {
                let gone = live.swap_remove(1 + rng.below(live.len() as u64 - 1) as usize);
                heap.transact(Isolation::Strict, |tx| tx.free(gone)).unwrap();
                objects.remove(&gone.offset());
            }
            if number % 40 == 0 {
                earlier.push(fs::read(&path).unwrap());
            }
            if number == 150 {
                heap.apply_pending().unwrap();
            }
        }
        let mut parts = Vec::new();
        for region in heap.pool().info().regions {
            let range = region.offset as usize..(region.offset + region.len) as usize;
            parts.push(match region.name.as_str() {
                "heap" | "heap.backup" | "heap.copies" => (range, Part::Contents),
                "heap.logs" => (range, Part::Logs),
                _ => (range, Part::Other),
            });
        }
        if closed {
            heap.close().unwrap();
        } else {
            let mut open = heap.begin(Isolation::Strict).unwrap();
            if policy != Policy::None {
                for object in live.iter().take(3) {
                    *open.write(*object).unwrap() = [u64::MAX; 8]; // never to be seen
                }
            }
            earlier.push(fs::read(&path).unwrap());
            open.abort().unwrap_or(());
            drop(heap);
        }
        let bytes = if closed { fs::read(&path).unwrap() } else { earlier.pop().unwrap() };
        earlier.iter_mut().for_each(|e| e.resize(bytes.len(), 0));
        // Tables of the allocator are not contents.
        let pool = pmem::Options::new().domain(DomainChoice::Emulated).open(&path).unwrap();
        let starts: Vec<usize> =
            Allocator::open(&pool, "heap").unwrap().spaces().iter().map(|s| s.start as usize).collect();
        for start in starts {
            let (range, _) = parts.iter_mut().find(|(r, _)| r.contains(&start)).unwrap();
            let tables = range.start..start;
            range.start = start;
            parts.push((tables, Part::Tables));
        }
        Self { policy, closed, bytes, earlier, objects, values, parts }
    }

    fn mutate(&self, kind: Kind, rng: &mut Rng) -> (Vec<u8>, Vec<Range<usize>>) {
        if kind != Kind::Two {
            let (bytes, touched) = self.mutate_once(&self.bytes, kind, rng);
            return (bytes, vec![touched]);
        }
        let of = |rng: &mut Rng| KINDS[rng.below(5) as usize];
        let (once, first) = self.mutate_once(&self.bytes, of(rng), rng);
        let (twice, second) = self.mutate_once(&once, of(rng), rng);
        (twice, vec![first, second])
    }

    fn mutate_once(&self, bytes: &[u8], kind: Kind, rng: &mut Rng) -> (Vec<u8>, Range<usize>) {
        let mut bytes = bytes.to_vec();
        let used: Vec<usize> =
            (0..bytes.len()).step_by(PAGE).filter(|at| bytes[*at..at + PAGE].iter().any(|b| *b != 0)).collect();
        let page = |rng: &mut Rng| used[rng.below(used.len() as u64) as usize];
        let at = page(rng);
        let touched = match kind {
            Kind::Bit => {
                let bit = rng.below(PAGE as u64 * 8) as usize;
                bytes[at + bit / 8] ^= 1 << (bit % 8);
                at + bit / 8..at + bit / 8 + 1
            }
            Kind::Line => {
                let line = at + rng.below(64) as usize * 64;
                let with = rng.word();
                bytes[line..line + 64].chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&with.to_le_bytes()));
                line..line + 64
            }
            Kind::ZeroedPage => {
                bytes[at..at + PAGE].fill(0);
                at..at + PAGE
            }
            Kind::Truncated => {
                bytes.truncate(rng.below(used[used.len() - 1] as u64) as usize);
                bytes.len()..self.bytes.len()
            }
            Kind::MovedPage => {
                let from = page(rng);
                bytes.copy_within(from..from + PAGE, at);
                at..at + PAGE
            }
            Kind::LostWrite => {
                // One that held something else, mostly.
                let then = &self.earlier[rng.below(self.earlier.len() as u64) as usize];
                let from = (0..40).map(|_| page(rng)).find(|p| bytes[*p..p + PAGE] != then[*p..p + PAGE]).unwrap_or(at);
                bytes[from..from + PAGE].copy_from_slice(&then[from..from + PAGE]);
                from..from + PAGE
            }
            Kind::Two => unreachable!("made of the others"),
        };
        (bytes, touched)
    }

    fn part(&self, touched: &Range<usize>) -> Part {
        let found = self.parts.iter().find(|(range, _)| range.contains(&touched.start));
        found.map_or(Part::Other, |(_, part)| *part)
    }

    /// What came of it, or what must not be.
    fn judge(&self, bytes: &[u8], touched: &[Range<usize>], path: &Path) -> Result<Outcome, String> {
        fs::write(path, bytes).unwrap();
        let Ok(heap) = Heap::open(path, &options(self.policy)) else { return Ok(Outcome::Error) };
        let recovery = heap.recovery();
        let mut told = !recovery.in_doubt.is_empty() || !recovery.copies_in_doubt.is_empty();
        let mut repaired = heap.pool().was_repaired();
        match heap.scrub_all() {
            Ok((scrubbed, unclear)) => {
                repaired |= scrubbed.main_repaired + scrubbed.backup_repaired > 0;
                told |= !unclear.is_empty();
            }
            Err(_) => return Ok(Outcome::Error),
        }
        let mut live = BTreeSet::new();
        if heap.live_blocks(|offset, _| live.extend([offset])).is_err() {
            return Ok(Outcome::Error);
        }
        let (mut wrong, mut never) = (Vec::new(), Vec::new());
        for (&offset, &value) in &self.objects {
            let tx = heap.begin(Isolation::Strict).map_err(|e| e.to_string())?;
            let Ok(seen) = tx.read(PPtr::<Object>::new(heap.pool().tag(), offset)).copied() else {
                if live.contains(&offset) {
                    return Ok(Outcome::Error);
                }
                wrong.push(offset);
                continue;
            };
            if seen != [value; 8] {
                wrong.push(offset);
                if seen[1..] != seen[..7] || !self.values[&offset].contains(&seen[0]) {
                    never.push(offset);
                }
            }
        }
        // The root's block besides.
        let same_blocks = live.len() == self.objects.len() + 1 && self.objects.keys().all(|o| live.contains(o));
        if !wrong.is_empty() || !same_blocks {
            // Both copies of the same bytes; two pages of the allocator that went back to the same moment.
            let both = |part| touched.len() == 2 && touched.iter().all(|t| self.part(t) == part);
            let one = |touched: &Range<usize>| match self.part(touched) {
                // Not checksummed at rest; with a backup, as long as no zone was written since.
                Part::Contents => self.policy != Policy::InPlace || !self.closed,
                // The last records of a slot that are gone without a trace.
                Part::Logs => !self.closed,
                Part::Tables | Part::Other => false,
            };
            let allowed = both(Part::Contents) || both(Part::Tables) || touched.iter().any(one);
            return match (told, allowed) {
                (true, _) => Ok(Outcome::Told),
                (false, true) => Ok(Outcome::Limit),
                _ => Err(format!(
                    "{} objects differ, {} hold what they never held; blocks {same_blocks}",
                    wrong.len(),
                    never.len()
                )),
            };
        }
        // It is used: nothing that lives is handed out.
        for _ in 0..40 {
            if heap.transact(Isolation::Strict, |tx| tx.alloc(&[u64::MAX; 8])).is_err() {
                break;
            }
        }
        let tx = heap.begin(Isolation::Strict).map_err(|e| e.to_string())?;
        for (&offset, &value) in &self.objects {
            match tx.read(PPtr::<Object>::new(heap.pool().tag(), offset)) {
                Ok(seen) if *seen == [value; 8] => {}
                other => return Err(format!("a new block overwrote the object at {offset:#x}: {other:?}")),
            }
        }
        Ok(if repaired {
            Outcome::Repaired
        } else if told {
            Outcome::Told
        } else {
            Outcome::Equal
        })
    }
}

#[test]
fn damaged_heaps_never_pass_for_sound_ones() {
    let each: u64 = std::env::var("CAIRN_DAMAGE").map_or(40, |n| n.parse().unwrap());
    let seed: u64 = std::env::var("CAIRN_SEED").map_or(20, |n| n.parse().unwrap());
    println!("seed {seed}, {each} of each kind and heap");
    let dir = memory();
    let path = dir.path().join("p");
    let mut table: BTreeMap<(String, Kind), BTreeMap<Outcome, u64>> = BTreeMap::new();
    let mut failures = Vec::new();
    for policy in Policy::ALL {
        for closed in [true, false] {
            let reference = Reference::new(policy, closed, seed, dir.path());
            let name = format!("{policy}, {}", if closed { "closed" } else { "killed" });
            let untouched = reference.judge(&reference.bytes, &[], &path);
            assert!(
                matches!(untouched, Ok(Outcome::Equal | Outcome::Repaired | Outcome::Told)),
                "{name}: {untouched:?}"
            );
            for kind in KINDS {
                for number in 0..each {
                    let mut rng = Rng(seed << 40 ^ (kind as u64) << 32 ^ number);
                    let (bytes, touched) = reference.mutate(kind, &mut rng);
                    let judged = catch_unwind(AssertUnwindSafe(|| reference.judge(&bytes, &touched, &path)));
                    match judged.unwrap_or_else(|_| Err("panic".into())) {
                        Ok(outcome) => *table.entry((name.clone(), kind)).or_default().entry(outcome).or_default() += 1,
                        Err(what) => failures.push(format!("{name}, {kind:?} {number} at {touched:x?}: {what}")),
                    }
                }
            }
        }
    }
    println!("| heap | damage | error | repaired | equal | told | limit |\n|---|---|---|---|---|---|---|");
    for ((name, kind), outcomes) in &table {
        let of = |o| outcomes.get(&o).copied().unwrap_or(0);
        let counts = [Outcome::Error, Outcome::Repaired, Outcome::Equal, Outcome::Told, Outcome::Limit].map(of);
        println!("| {name} | {kind:?} | {} |", counts.map(|n| n.to_string()).join(" | "));
    }
    assert!(failures.is_empty(), "{} of them:\n{}", failures.len(), failures[..failures.len().min(30)].join("\n"));
}

/// In a heap that was closed both copies are equal. A mark that is damaged does not make the backup right, which may be damaged too.
#[test]
fn a_damaged_mark_of_a_closed_heap_restores_nothing() {
    let dir = memory();
    let path = dir.path().join("p");
    let reference = Reference::new(Policy::InPlace, true, 7, dir.path());
    let at = |name: &str, path: &Path| {
        let pool = pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(path).unwrap();
        pool.info().regions.iter().find(|r| r.name == name).map(|r| r.offset as usize).unwrap()
    };
    fs::write(&path, &reference.bytes).unwrap();
    let (backup, zones, marks) = (at("heap.backup", &path), at("heap.zones", &path), at("heap.marks", &path));
    let main = reference.parts.iter().find(|(_, part)| *part == Part::Contents).map(|(range, _)| range.start).unwrap();
    let (&object, &value) = reference.objects.iter().nth(5).unwrap();
    // Which mark; whether the checksums are still there to tell which copy is right.
    for (mark, summed) in [(zones, false), (marks, true)] {
        let mut bytes = reference.bytes.clone();
        bytes[mark..mark + 8].fill(0);
        bytes[backup + object as usize - main..][..8].fill(0xee);
        for kept in [true, false] {
            fs::write(&path, &bytes).unwrap();
            let options = options(Policy::InPlace);
            let options = if kept { options } else { options.leave_out(heap::Step::KeepClosed) };
            let heap = Heap::open(&path, &options).unwrap();
            let ptr = PPtr::<Object>::new(heap.pool().tag(), object);
            let seen = heap.transact(Isolation::Strict, |tx| tx.read(ptr).copied()).unwrap();
            assert_eq!(seen == [value; 8], kept, "mark at {mark:#x}: {seen:x?}");
            if kept {
                let (scrubbed, unclear) = heap.scrub_all().unwrap();
                assert_eq!((scrubbed.backup_repaired > 0, unclear.is_empty()), (summed, summed), "{unclear:?}");
            }
            drop(heap);
        }
    }
}
