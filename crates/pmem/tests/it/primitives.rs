//! The cell, checksummed records and the ring against plain models, closed and opened at any time, and with single bits flipped: what is
//! read is what was written, or an error, or a report.

use std::sync::Arc;

use pmem::{
    Appended, Area, CHECKSUMMED_HEADER, Error, Options, PAYLOAD_MAX, Position, Recovered, Ring, SlotState, Tail,
    TwoSlot,
};
use proptest::prelude::*;

use crate::support::{Ram, Rng, emulated, fails, memory};

const POOL: u64 = 32 << 10;
/// First byte behind the header: where the first region of a pool is.
const FIRST: u64 = 8192;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn fresh(len: u64) -> (Arc<Ram>, Area) {
    let ram = Ram::new(POOL);
    let pool = Options::new().size(POOL).create_on(ram.clone()).unwrap();
    let area = pool.add_region("data", 4096).unwrap().into_area().unwrap().split_at(len).unwrap().0;
    (ram, area)
}

fn reopened(ram: &Arc<Ram>, len: u64) -> Area {
    let pool = Options::new().open_on(ram.clone()).unwrap();
    pool.region("data").unwrap().into_area().unwrap().split_at(len).unwrap().0
}

// ---- the cell ----------------------------------------------------------------------------------------------------

type Value = [u64; 9];

fn value(n: u64) -> Value {
    std::array::from_fn(|i| n * 1000 + i as u64)
}

#[derive(Clone, Copy, Debug)]
enum CellOp {
    Update,
    Mirror,
    Stage,
    Reopen,
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn cell_shows_what_was_stored_last(ops in proptest::collection::vec(
        prop_oneof![Just(CellOp::Update), Just(CellOp::Mirror), Just(CellOp::Stage), Just(CellOp::Reopen)], 0..30)
    ) {
        let size = TwoSlot::<Value>::SIZE;
        let (ram, area) = fresh(size);
        let mut cell = TwoSlot::create(area, &value(0)).unwrap();
        let (mut n, mut twin) = (0, SlotState::Unwritten);
        for op in ops {
            match op {
                CellOp::Update => cell.update(&value(n + 1)).unwrap(),
                CellOp::Mirror => cell.update_mirrored(&value(n + 1)).unwrap(),
                CellOp::Stage => drop(cell.stage(&value(n + 1)).unwrap()),
                CellOp::Reopen => {
                    drop(cell);
                    let (again, found) = TwoSlot::open(reopened(&ram, size)).unwrap();
                    prop_assert_eq!(found, twin);
                    cell = again;
                    prop_assert_eq!(cell.get(), value(n));
                    continue;
                }
            }
            n += 1;
            twin = if let CellOp::Mirror = op { SlotState::Equal } else { SlotState::Stale };
            prop_assert_eq!(cell.get(), value(n));
        }
    }
}

#[test]
fn flipped_bit_in_a_cell_is_reported_or_harmless() {
    let size = TwoSlot::<Value>::SIZE;
    for (mirrored, reported) in [(true, 2 * (8 + 72 + 16) * 8), (false, 2 * (8 + 72 + 16) * 8)] {
        let (ram, area) = fresh(size);
        let mut cell = TwoSlot::create(area, &value(0)).unwrap();
        cell.update(&value(1)).unwrap();
        if mirrored { cell.update_mirrored(&value(2)) } else { cell.update(&value(2)) }.unwrap();
        drop(cell);
        let image = ram.image();
        let mut broken = 0;
        for at in 0..size {
            for bit in 0..8 {
                ram.restore(&image);
                ram.flip(FIRST + at, bit);
                let (cell, twin) = TwoSlot::<Value>::open(reopened(&ram, size)).unwrap();
                match twin {
                    SlotState::Corrupt => {
                        broken += 1;
                        let allowed = if mirrored { &[2][..] } else { &[1, 2] };
                        assert!(allowed.iter().any(|&n| cell.get() == value(n)), "byte {at} bit {bit}");
                    }
                    _ => assert_eq!(cell.get(), value(2), "byte {at} bit {bit}"),
                }
            }
        }
        assert_eq!(broken, reported, "each bit of type, value, sequence and checksum, in both slots");
        // Both slots damaged: nothing is left to show.
        ram.restore(&image);
        ram.flip(FIRST + 3, 1);
        ram.flip(FIRST + size / 2 + 3, 1);
        let error = fails(TwoSlot::<Value>::open(reopened(&ram, size)), &["damaged two-slot cell at byte 8192"]);
        assert!(matches!(error, Error::Damaged { .. }));
    }
}

#[test]
fn cell_of_another_offset_or_type_is_refused() {
    let size = TwoSlot::<Value>::SIZE;
    let (ram, area) = fresh(4096);
    let (first, second) = area.split_at(size).unwrap();
    let cell = TwoSlot::create(first, &value(1)).unwrap();
    drop((cell, second));
    let copied = ram.peek(FIRST, size as usize);
    ram.poke(FIRST + size, &copied);
    let (first, second) = reopened(&ram, 4096).split_at(size).unwrap();
    TwoSlot::<Value>::open(first).unwrap();
    assert!(matches!(TwoSlot::<Value>::open(second), Err(Error::Damaged { .. })), "a copy at another offset");
    let short = reopened(&ram, size - 64);
    assert!(matches!(TwoSlot::<Value>::open(short), Err(Error::OutOfBounds { .. })));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, pmem::Persist)]
#[repr(C)]
struct Pair {
    a: u64,
    b: u64,
}

/// A cell of a `[u64; 2]`, updated `updates` times, opened as a `T`.
#[track_caller]
fn refused_as<T: pmem::Persist + std::fmt::Debug>(updates: u64, damage: impl Fn(&Ram)) -> Error {
    let (ram, area) = fresh(4096);
    let mut cell = TwoSlot::create(area, &[0u64, 0]).unwrap();
    (0..updates).for_each(|n| cell.update(&[n, n]).unwrap());
    drop(cell);
    damage(&ram);
    TwoSlot::<T>::open(reopened(&ram, 4096)).unwrap_err()
}

#[test]
fn cell_knows_its_type() {
    let another = |error: Error| {
        let error =
            fails::<()>(Err(error), &["type of a two-slot cell is", "asked for was", "open it with the program"]);
        assert!(matches!(error, Error::WrongLayout { what: "type of a two-slot cell", .. }));
    };
    for updates in 0..3 {
        another(refused_as::<Pair>(updates, |_| ())); // of the same size
        another(refused_as::<[f64; 2]>(updates, |_| ()));
        another(refused_as::<u64>(updates, |_| ()));
        another(refused_as::<()>(updates, |_| ()));
        another(refused_as::<[u64; 400]>(updates, |_| ())); // larger than the area
    }
    // Of one whole slot too, whichever it is; the word of the type itself must be whole where it is found.
    another(refused_as::<Pair>(2, |ram| ram.flip(FIRST + 64 + 9, 1)));
    another(refused_as::<u64>(2, |ram| ram.flip(FIRST + 9, 1)));
    // A damaged cell is not taken for one of another type.
    let both = |ram: &Ram| [9, 64 + 9].into_iter().for_each(|at| ram.flip(FIRST + at, 1));
    assert!(matches!(refused_as::<[u64; 2]>(2, both), Error::Damaged { .. }));
    assert!(matches!(refused_as::<Pair>(2, both), Error::Damaged { .. }));
    for bit in 0..64 {
        let error = refused_as::<[u64; 2]>(0, |ram| ram.flip(FIRST + bit / 8, (bit % 8) as u32));
        assert!(matches!(error, Error::Damaged { .. }), "bit {bit} of the word: {error}");
    }
    // Values of any alignment.
    let (ram, area) = fresh(4096);
    let mut cell = TwoSlot::create(area, &1u128).unwrap();
    cell.update(&u128::MAX).unwrap();
    drop(cell);
    assert_eq!(TwoSlot::<u128>::open(reopened(&ram, 4096)).unwrap().0.get(), u128::MAX);
}

// ---- checksummed records ----------------------------------------------------------------------------------------------

proptest! {
    #![proptest_config(config(200))]

    /// Records written over each other anywhere: a read gives exactly what was written last there, unless something was written
    /// over part of it since; then it is an error, or by chance the same bytes stand there again.
    #[test]
    fn checksummed_record_is_whole_or_an_error(writes in proptest::collection::vec((0u64..40, 0usize..600, any::<u8>(), 0u32..3), 1..25)) {
        let (ram, mut area) = fresh(2048);
        let mut model: Vec<(u64, Vec<u8>, u32)> = Vec::new();
        let mut gone = Vec::new();
        for (slot, len, byte, kind) in writes {
            let (at, payload) = (slot * 48, vec![byte; len]);
            let end = at + CHECKSUMMED_HEADER + len as u64;
            match area.write_checksummed(at, kind, 5, &payload) {
                Ok(_) => {
                    // What was written before and overlaps is gone (a later read of it may only fail).
                    gone.extend(model.extract_if(.., |(a, p, _)| *a < end && *a + CHECKSUMMED_HEADER + p.len() as u64 > at));
                    model.push((at, payload, kind));
                }
                Err(Error::OutOfBounds { .. }) => prop_assert!(end > 2048),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
            if byte % 4 == 0 {
                drop(area);
                area = reopened(&ram, 2048);
            }
            for (at, payload, kind) in &model {
                prop_assert_eq!(area.read_checksummed(*at, *kind, 5).unwrap(), &payload[..]);
                for (kind, version) in [(kind + 1, 5), (*kind, 4)] {
                    let refused = matches!(area.read_checksummed(*at, kind, version), Err(Error::Damaged { .. }));
                    prop_assert!(refused);
                }
            }
            for at in (0..2048).step_by(8).filter(|at| !model.iter().any(|m| m.0 == *at)) {
                if let Ok(found) = area.read_checksummed(at, kind, 5) {
                    prop_assert!(gone.iter().any(|(a, p, k)| (*a, &p[..], *k) == (at, found, kind)));
                }
            }
        }
    }
}

#[test]
fn flipped_bit_in_a_checksummed_record_is_an_error() {
    let (ram, mut area) = fresh(512);
    let payload: Vec<u8> = (0..100).collect();
    area.write_checksummed(64, 3, 1, &payload).unwrap();
    drop(area);
    let image = ram.image();
    for at in 0..256 {
        for bit in 0..8 {
            ram.restore(&image);
            ram.flip(FIRST + at, bit);
            let area = reopened(&ram, 512);
            let inside = (64..64 + CHECKSUMMED_HEADER + 100).contains(&at);
            match area.read_checksummed(64, 3, 1) {
                Ok(read) => assert!(!inside && read == payload, "byte {at} bit {bit}"),
                Err(Error::Damaged { .. }) => assert!(inside, "byte {at} bit {bit}"),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn checksummed_record_of_another_offset_or_pool_is_refused() {
    let dir = memory();
    let claimed = |name: &str| {
        let pool = emulated(64 << 10).create(dir.path().join(name)).unwrap();
        pool.add_region("data", 4096).unwrap().into_area().unwrap()
    };
    let (mut one, mut other) = (claimed("one"), claimed("other"));
    one.write_checksummed(0, 1, 1, b"payload").unwrap();
    let bytes = one.bytes(0, 64).unwrap().to_vec();
    one.bytes_mut(512, 64).unwrap().copy_from_slice(&bytes);
    other.bytes_mut(0, 64).unwrap().copy_from_slice(&bytes);
    assert_eq!(one.offset(), other.offset());
    for result in [one.read_checksummed(512, 1, 1), other.read_checksummed(0, 1, 1)] {
        let error = fails(result, &["checksummed record place"]);
        assert!(matches!(error, Error::Damaged { .. }));
    }
    assert_eq!(one.read_checksummed(0, 1, 1).unwrap(), b"payload");
}

// ---- the ring ----------------------------------------------------------------------------------------------------

/// Everything ever appended, and how much of it is retired.
#[derive(Default)]
struct Journal {
    appended: Vec<(Position, Position, Vec<u8>)>,
    retired: usize,
}

impl Journal {
    fn note(&mut self, record: Appended, payload: Vec<u8>) {
        self.appended.push((record.position, record.end, payload));
    }

    /// How many of the last records are missing, if what was found is a run of the journal that begins no later than the first
    /// unretired record, in order and byte by byte.
    fn missing(&self, ring: &Ring, found: &Recovered) -> Option<usize> {
        let Some(first) = found.records.first() else { return Some(self.appended.len() - self.retired) };
        let start = self.appended.iter().position(|a| a.0 == first.position)?;
        let end = start + found.records.len();
        let run = self.appended.get(start..end)?;
        let same = run.iter().zip(&found.records).all(|((position, end, payload), record)| {
            (*position, *end) == (record.position, record.end) && ring.payload(record).unwrap() == payload
        });
        (same && (start <= self.retired)).then(|| self.appended.len() - end.max(self.retired))
    }
}

#[derive(Clone, Copy, Debug)]
enum RingOp {
    Append(usize),
    Checksum(usize),
    Force,
    Retire(usize),
    Reclaim,
    Reopen,
}

fn ring_op() -> impl Strategy<Value = RingOp> {
    prop_oneof![
        4 => (0usize..300).prop_map(RingOp::Append),
        1 => (0usize..1100).prop_map(RingOp::Append),
        2 => (0usize..200).prop_map(RingOp::Checksum),
        3 => Just(RingOp::Force),
        4 => (0usize..5).prop_map(RingOp::Retire),
        1 => Just(RingOp::Reclaim),
        1 => Just(RingOp::Reopen),
    ]
}

const RING: u64 = 128 + 1024;

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn ring_gives_back_what_was_appended(ops in proptest::collection::vec(ring_op(), 1..120), seed in any::<u64>()) {
        let (ram, area) = fresh(RING);
        let mut ring = Ring::create(area).unwrap();
        let (mut journal, mut rng) = (Journal::default(), Rng(seed));
        for op in ops {
            match op {
                RingOp::Append(len) | RingOp::Checksum(len) => {
                    // None of it looks like an epoch, which would put a clean end in doubt.
                    let payload: Vec<u8> = (0..len).map(|_| rng.word() as u8 | 0x80).collect();
                    let (a, b) = payload.split_at(len / 3);
                    let appended = match op {
                        RingOp::Checksum(_) => ring.append_checksumming(&[a, b], [&payload[..]].into_iter()),
                        _ => ring.append(&[a, b]),
                    };
                    match appended {
                        Ok(record) => {
                            prop_assert_eq!(record.end, ring.head());
                            journal.note(record, payload);
                        }
                        Err(Error::RingFull { unretired, capacity, wanted }) => {
                            prop_assert_eq!((unretired, capacity), (ring.unretired(), 1024));
                            prop_assert!(unretired + wanted > capacity, "{unretired} + {wanted} fit {capacity}");
                            prop_assert!(unretired > 0 || len as u64 + 40 > 1024, "{len} bytes fit an empty ring");
                        }
                        Err(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                    prop_assert!(ring.unretired() <= ring.capacity());
                }
                RingOp::Force => {
                    ring.force().unwrap();
                    prop_assert_eq!(ring.durable(), ring.head());
                }
                RingOp::Retire(n) => {
                    let durable = journal.appended.iter().filter(|a| a.1 <= ring.durable()).count();
                    journal.retired = (journal.retired + n).min(durable).max(journal.retired);
                    if let Some(last) = journal.retired.checked_sub(1) {
                        ring.retire(journal.appended[last].1);
                    }
                }
                RingOp::Reclaim => ring.reclaim().unwrap(),
                RingOp::Reopen => {
                    let reclaimed = ring.reclaimed();
                    drop(ring);
                    let (again, found) = Ring::open(reopened(&ram, RING)).unwrap();
                    prop_assert_eq!(found.tail, Tail::Clean);
                    prop_assert_eq!(journal.missing(&again, &found), Some(0));
                    prop_assert!(found.records.iter().all(|r| r.position >= reclaimed), "a reclaimed record came back");
                    for record in &found.records {
                        let (payload, at) = (again.payload(record).unwrap(), record.position);
                        if let Some(checksum) = record.outside {
                            prop_assert_eq!(checksum, again.outside_checksum([payload].into_iter()), "record at {}", at.get());
                        }
                    }
                    journal.retired = journal.appended.len() - found.records.len();
                    ring = again;
                }
            }
        }
    }
}

#[test]
fn record_that_fits_the_ring_can_be_appended_wherever_the_head_is() {
    for lines in 1..16 {
        let (ram, area) = fresh(RING);
        let mut ring = Ring::create(area).unwrap();
        let first = ring.append(&[&vec![1; 64 * lines - 32]]).unwrap();
        let error = fails(ring.append(&[&[2; 1024 - 32]]), &["unretired bytes of 1024", "retire records first"]);
        assert!(matches!(error, Error::RingFull { .. }));
        ring.force().unwrap();
        ring.retire(first.end);
        ring.append(&[&[2; 1024 - 32]]).unwrap();
        ring.force().unwrap();
        drop(ring);
        let (ring, found) = Ring::open(reopened(&ram, RING)).unwrap();
        assert_eq!(found.records.len(), 1);
        assert_eq!(ring.payload(&found.records[0]).unwrap(), [2; 1024 - 32]);
    }
}

#[test]
fn ring_has_limits() {
    let (_ram, area) = fresh(pmem::RING_MIN - 1);
    let error = fails(Ring::create(area), &["bytes of a ring"]);
    assert!(matches!(error, Error::Limit { .. }));
    let (_ram, area) = fresh(RING);
    let mut ring = Ring::create(area).unwrap();
    assert!(matches!(ring.append(&[&[0; 1024]]), Err(Error::RingFull { .. })));
    let huge = vec![0u8; 1 << 20];
    let parts = vec![&huge[..]; (PAYLOAD_MAX >> 20) as usize + 1];
    assert!(matches!(ring.append(&parts), Err(Error::Limit { what: "bytes of a record", .. })));
    let record = ring.append(&[b"x"]).unwrap();
    let retire = std::panic::AssertUnwindSafe(|| ring.retire(record.end));
    assert!(std::panic::catch_unwind(retire).is_err(), "what was not forced must not be retired");
}

/// A ring and its bytes, for flipping.
struct Specimen {
    name: &'static str,
    ram: Arc<Ram>,
    image: Vec<u8>,
    journal: Journal,
    /// Records that no force covers, or one that nothing behind it vouches for.
    unproven: usize,
}

impl Specimen {
    /// Appends records of these lengths, forcing some, and retires all but the last two of those forced.
    fn new(name: &'static str, unproven: usize, appends: &[(usize, bool)], reclaim: bool) -> Self {
        let (ram, area) = fresh(RING);
        let mut ring = Ring::create(area).unwrap();
        let mut journal = Journal::default();
        for &(len, force) in appends {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7 + journal.appended.len()) as u8).collect();
            let record = ring.append(&[&payload]).unwrap();
            journal.note(record, payload);
            if force {
                ring.force().unwrap();
                journal.retired = journal.appended.len().saturating_sub(2);
                journal.appended[..journal.retired].iter().for_each(|record| ring.retire(record.1));
            }
        }
        if reclaim {
            ring.reclaim().unwrap();
        }
        drop(ring);
        Self { name, image: ram.image(), ram, journal, unproven }
    }

    /// New, never forced, wrapped around, reclaimed.
    fn all() -> Vec<Self> {
        let one_force: Vec<(usize, bool)> = (0..3).map(|n| (70 * n, n == 2)).collect();
        let never: Vec<(usize, bool)> = (0..3).map(|n| (30 + n, false)).collect();
        let wrapped: Vec<(usize, bool)> = (0..23).map(|n| (20 + 13 * (n % 9), true)).collect();
        let reclaimed: Vec<(usize, bool)> = (0..14).map(|n| (150 - n, true)).collect();
        vec![
            Self::new("one record", 1, &[(50, true)], false),
            Self::new("three records of one force", 3, &one_force, false),
            Self::new("never forced", 3, &never, false),
            Self::new("wrapped", 1, &wrapped, false),
            Self::new("wrapped and reclaimed", 1, &reclaimed, true),
        ]
    }
}

#[test]
fn flipped_bit_in_a_ring_is_reported_or_harmless() {
    for Specimen { name, ram, image, journal, unproven } in Specimen::all() {
        let (mut errors, mut in_doubt, mut equal) = (0, 0, 0);
        for at in 0..RING {
            for bit in 0..8 {
                ram.restore(&image);
                ram.flip(FIRST + at, bit);
                match Ring::open(reopened(&ram, RING)) {
                    Err(Error::Damaged { .. }) => errors += 1,
                    Err(other) => panic!("{name}, byte {at} bit {bit}: {other:?}"),
                    Ok((ring, found)) => {
                        let missing = journal.missing(&ring, &found);
                        let Some(missing) = missing else { panic!("{name}, byte {at} bit {bit}: {found:?} is wrong") };
                        match found.tail {
                            Tail::Clean => {
                                assert_eq!(missing, 0, "{name}, byte {at} bit {bit}: silently lost");
                                equal += 1;
                            }
                            Tail::InDoubt { .. } => {
                                assert!(missing <= unproven, "{name}, byte {at} bit {bit}: {missing} records lost");
                                in_doubt += 1;
                            }
                        }
                    }
                }
            }
        }
        println!("{name}: {errors} errors, {in_doubt} in doubt, {equal} equal");
        assert!(in_doubt > 0 && equal > 0);
    }
}

/// Slots on two pages: either page may be lost, or go back to any earlier time.
#[test]
fn a_cell_with_slots_apart_survives_a_page_that_is_lost_or_stale() {
    const PAGE: u64 = 4096;
    let size = TwoSlot::<Value>::size_apart(PAGE).next_multiple_of(PAGE);
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().size(1 << 20).create(dir.path().join("p")).unwrap();
    let mut area = pool.add_region("cell", size).unwrap().into_area().unwrap();
    let mut older = vec![area.bytes(0, size as usize).unwrap().to_vec()];
    let mut cell = TwoSlot::create_apart(area, PAGE, &value(0)).unwrap();
    for n in 1..6 {
        cell.update_mirrored(&value(n)).unwrap();
        area = cell.into_area();
        let now = area.bytes(0, size as usize).unwrap().to_vec();
        older.push(now.clone());
        for old in older.iter().chain([&vec![0xff; size as usize]]) {
            for page in [0..PAGE as usize, PAGE as usize..size as usize] {
                area.bytes_mut(0, size as usize).unwrap()[page.clone()].copy_from_slice(&old[page]);
                let (found, twin) = TwoSlot::<Value>::look_apart(&area, PAGE).unwrap();
                assert_eq!(found, value(n));
                assert_eq!(twin == SlotState::Equal, *old == now);
                area.bytes_mut(0, size as usize).unwrap().copy_from_slice(&now);
            }
        }
        cell = TwoSlot::open_apart(area, PAGE).unwrap().0;
    }
    let area = cell.into_area();
    assert!(matches!(TwoSlot::create_apart(area, 63, &value(0)), Err(Error::Limit { .. })));
}
