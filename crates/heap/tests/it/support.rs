//! What several test modules share: heaps, places for them, numbers that a seed reproduces.

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, PPtr};
use tempfile::TempDir;
use tx::{Engine, Isolation, Typed};

/// One line.
pub type Object = [u64; 8];

/// The policies under which a transaction is all there, or not at all.
pub const ATOMIC: [Policy; 4] = [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::Eaw];

/// A directory in memory.
pub fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// A directory on the disk that the build is on.
pub fn disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Nothing happens in the background: counts are exact.
pub fn quiet(policy: Policy, domain: DomainChoice) -> Options {
    Options::new().policy(policy).coordinator(false).pool(pmem::Options::new().domain(domain))
}

/// A heap with this many objects, all applied.
pub fn with_objects(dir: &TempDir, options: &Options, objects: usize) -> (Heap, Vec<PPtr<Object>>) {
    let heap = Heap::create(dir.path().join("p"), options).unwrap();
    let made = heap
        .transact(Isolation::Strict, |tx| (0..objects).map(|_| tx.alloc(&[0; 8])).collect::<tx::Result<Vec<_>>>())
        .unwrap();
    heap.apply_pending().unwrap();
    (heap, made)
}

/// One committed transaction on one object.
pub fn bump(heap: &Heap, object: PPtr<Object>) {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        tx.write(object)?[0] += 1;
        Ok(())
    })
    .unwrap();
}

/// The same, but a word of the object only.
pub fn bump_word(heap: &Heap, object: PPtr<Object>) {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        *tx.write(object.cast::<u64>())? += 1;
        Ok(())
    })
    .unwrap();
}

/// What was counted while `work` ran, and everything it left was applied.
pub fn counted(heap: &Heap, work: impl FnOnce()) -> pmem::Stats {
    let before = heap.pool().stats();
    work();
    heap.apply_pending().unwrap();
    heap.pool().stats() - before
}

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }
}

/// Ranks from 0 on, rank r as likely as 1 / (r + 1)^0.99.
pub struct Zipfian {
    /// Sums of the weights.
    sums: Vec<f64>,
}

impl Zipfian {
    pub fn new(n: usize) -> Self {
        let weights = (1..=n).map(|rank| (rank as f64).powf(-0.99));
        Self {
            sums: weights
                .scan(0.0, |sum, w| {
                    *sum += w;
                    Some(*sum)
                })
                .collect(),
        }
    }

    pub fn next(&self, rng: &mut Rng) -> usize {
        let at = (rng.word() >> 11) as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= at)
    }
}
