//! What a heap has to hold, and which operations have met there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::operations::{KINDS, Kind};
use super::thread::THREADS;

/// What an object holds; nothing once it is freed.
pub(super) type Contents = Option<Vec<u8>>;

/// What a transaction changes.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    /// Grows in the order of the locks: taken before they are given up.
    pub(super) number: u64,
    pub(super) changes: BTreeMap<u64, Contents>,
}

#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) objects: BTreeMap<u64, (u64, Contents)>,
    /// Commits that have not returned.
    pub(super) doubts: Vec<Effect>,
    pub(super) next: u64,
}

impl Model {
    pub(super) fn apply(&mut self, effect: &Effect) {
        for (&at, contents) in &effect.changes {
            let object = self.objects.entry(at).or_default();
            if object.0 < effect.number {
                *object = (effect.number, contents.clone());
            }
        }
    }

    /// What a transaction that locks the object may find; nothing for what never was one.
    pub(super) fn allowed(&self, at: u64) -> Vec<&Contents> {
        let (number, now) = self.objects.get(&at).map_or((0, None), |object| (object.0, Some(&object.1)));
        let doubts = self.doubts.iter().filter(|effect| effect.number > number);
        now.into_iter().chain(doubts.filter_map(|effect| effect.changes.get(&at))).collect()
    }

    pub(super) fn live(&self) -> BTreeMap<u64, Vec<u8>> {
        self.objects.iter().filter_map(|(&at, object)| Some((at, object.1.clone()?))).collect()
    }

    /// Nothing is in doubt: this is what was found.
    pub(super) fn adopt(&mut self, found: &BTreeMap<u64, Vec<u8>>) {
        self.doubts.clear();
        self.next += 1;
        let number = self.next;
        self.objects.values_mut().for_each(|object| *object = (number, None));
        self.objects.extend(found.iter().map(|(&at, bytes)| (at, (number, Some(bytes.clone())))));
    }

    /// All states that a crash may leave.
    pub(super) fn after_a_crash(&self) -> Vec<BTreeMap<u64, Vec<u8>>> {
        let subsets = (0..1u32 << self.doubts.len()).map(|chosen| {
            let mut model = self.clone();
            for (n, effect) in self.doubts.iter().enumerate() {
                if chosen >> n & 1 != 0 {
                    model.apply(effect);
                }
            }
            model.live()
        });
        subsets.collect()
    }
}

/// How often each kind met each other on one object.
pub(super) struct Met {
    /// While the first one's transaction was open.
    pub(super) beside: Vec<Vec<u32>>,
    /// As the next one.
    pub(super) behind: Vec<Vec<u32>>,
}

impl Met {
    pub(super) fn new() -> Self {
        let none = || vec![vec![0; KINDS.len()]; KINDS.len()];
        Self { beside: none(), behind: none() }
    }

    /// Pairs that never met where they can.
    pub(super) fn missing(&self) -> Vec<(Kind, Kind, &'static str)> {
        let mut missing = Vec::new();
        for (&a, b) in KINDS.iter().flat_map(|a| KINDS.iter().map(move |b| (a, *b))) {
            let beside = self.beside[a as usize][b as usize];
            let any = beside + self.behind[a as usize][b as usize] + self.behind[b as usize][a as usize];
            if a.is_of_object() && !b.is_new() && !b.is_alone() && beside == 0 {
                missing.push((a, b, "beside"));
            } else if a <= b && any + self.beside[b as usize][a as usize] == 0 {
                missing.push((a, b, "at all"));
            }
        }
        missing
    }
}

pub(super) struct World {
    pub(super) model: Model,
    /// By thread and object: what its open transaction has done to it.
    pub(super) open: [BTreeMap<u64, u64>; THREADS],
    /// What the last transaction there did, and was done to the whole heap since.
    pub(super) last: BTreeMap<u64, u64>,
    pub(super) met: Met,
    /// Of backups and killed processes.
    pub(super) files: usize,
    /// A drain has.
    pub(super) failed: bool,
}

fn count(table: &mut [Vec<u32>], before: u64, kind: Kind) {
    (0..KINDS.len()).filter(|bit| before >> bit & 1 != 0).for_each(|bit| table[bit][kind as usize] += 1);
}

impl World {
    pub(super) fn meets(&mut self, thread: Option<usize>, at: u64, kind: Kind) {
        for (_, open) in self.open.iter().enumerate().filter(|(other, _)| Some(*other) != thread) {
            count(&mut self.met.beside, open.get(&at).copied().unwrap_or(0), kind);
        }
        count(&mut self.met.behind, self.last.get(&at).copied().unwrap_or(0), kind);
    }

    pub(super) fn touches(&mut self, thread: usize, at: u64, kind: Kind) {
        self.meets(Some(thread), at, kind);
        *self.open[thread].entry(at).or_default() |= 1 << kind as u64;
    }

    /// The thread's transaction is about to end.
    pub(super) fn ends(&mut self, thread: usize, kind: Kind) {
        let touched = self.open[thread].clone();
        touched.keys().for_each(|&at| self.meets(Some(thread), at, kind));
    }

    pub(super) fn ended(&mut self, thread: usize, kind: Kind) {
        for (at, bits) in std::mem::take(&mut self.open[thread]) {
            self.last.insert(at, bits | 1 << kind as u64);
        }
    }

    pub(super) fn whole(&mut self, kind: Kind) {
        let objects: BTreeSet<u64> =
            self.open.iter().flat_map(BTreeMap::keys).chain(self.last.keys()).copied().collect();
        for at in objects {
            self.meets(None, at, kind);
            *self.last.entry(at).or_default() |= 1 << kind as u64;
        }
    }

    pub(super) fn file(&mut self, dir: &Path) -> PathBuf {
        self.files += 1;
        dir.join(format!("copy{}", self.files))
    }
}
