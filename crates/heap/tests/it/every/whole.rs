//! What is done to a heap as a whole.

use std::collections::BTreeMap;

use heap::{Heap, Policy};
use pmem::Error as PoolError;
use tx::{Engine, Error, Isolation, Transaction};

use super::operations::{KINDS, Kind};
use super::thread::{Mode, Thread, at};

impl Thread<'_> {
    /// Something with all of the heap.
    pub(super) fn whole(&mut self) {
        let mut kind = self.swarm.one(&mut self.rng, &KINDS[Kind::Apply as usize..Kind::Reopen as usize]);
        if matches!(kind, Kind::Backup | Kind::Kill) && self.rng.below(3) > 0 {
            kind = Kind::Stats; // they take longer than everything else
        }
        let in_memory = self.mode == Mode::FailingDrain;
        if in_memory && matches!(kind, Kind::Backup | Kind::Kill)
            || kind == Kind::Kill && self.heap.policy() == Policy::None
        {
            kind = Kind::Stats; // there is no file; or it may hold anything
        }
        self.world().whole(kind);
        match self.try_whole(kind) {
            Ok(()) => {}
            Err(e) if in_memory => self.explain(&e),
            Err(e) => panic!("{kind:?}: {e}"),
        }
    }

    fn try_whole(&mut self, kind: Kind) -> tx::Result<()> {
        match kind {
            Kind::Apply if self.more.below(2) == 0 => self.heap.apply_idle(),
            Kind::Apply => self.heap.apply_pending()?,
            Kind::Grow if self.heap.stats().bytes < 256 << 10 => self.heap.grow(4096)?,
            Kind::Grow => {}
            Kind::Scrub => assert_eq!(repaired(&self.heap.scrub()?), 0),
            Kind::ScrubAll => assert!(self.heap.scrub_all()?.1.is_empty()),
            Kind::Compare => assert_eq!(repaired(&self.heap.compare()?), 0),
            Kind::CompareAll => assert!(self.heap.compare_all()?.1.is_empty()),
            Kind::LiveBlocks => assert!(self.heap.live_blocks(|_, len| assert!(len > 0))?.live_blocks > 0),
            Kind::Stats => assert!(self.heap.stats().bytes > 0),
            Kind::Backup => {
                let path = self.world().file(self.dir);
                match self.heap.backup(&path, |_, _| ()) {
                    Ok(_) => std::fs::remove_file(path).unwrap(),
                    Err(Error::Pool(PoolError::BackupRunning { .. })) => {} // one at a time
                    Err(e) => panic!("{e}"),
                }
            }
            Kind::Kill => {
                let (path, allowed) = {
                    let mut world = self.world();
                    let path = world.file(self.dir);
                    std::fs::copy(self.dir.join("p"), &path).unwrap();
                    (path, world.model.after_a_crash())
                };
                let found = contents(&Heap::open(&path, self.options).unwrap());
                std::fs::remove_file(path).unwrap();
                assert!(allowed.contains(&found), "a crash leaves {}", difference(&found, &allowed));
            }
            kind => unreachable!("{kind:?}"),
        }
        Ok(())
    }
}

fn repaired(scrubbed: &heap::Scrubbed) -> u64 {
    scrubbed.main_repaired + scrubbed.backup_repaired
}

/// Everything that is in a heap beside the root's cell.
pub(super) fn contents(heap: &Heap) -> BTreeMap<u64, Vec<u8>> {
    let mut live = Vec::new();
    heap.live_blocks(|at, len| live.push((at, len))).unwrap();
    let tx = heap.begin(Isolation::Strict).unwrap();
    let cell = tx.root_cell().offset();
    live.retain(|(at, _)| *at != cell);
    live.into_iter()
        .map(|(offset, len)| (offset, tx.bytes(at(heap.pool().tag(), offset), len).unwrap().to_vec()))
        .collect()
}

pub(super) fn difference(found: &BTreeMap<u64, Vec<u8>>, allowed: &[BTreeMap<u64, Vec<u8>>]) -> String {
    let first = |bytes: &Vec<u8>| bytes.iter().take(24).copied().collect::<Vec<u8>>();
    let states = allowed.iter().map(|state| {
        let wrong = found.iter().filter(|(at, bytes)| state.get(at) != Some(bytes));
        let missing = state.keys().filter(|at| !found.contains_key(at)).map(|at| format!("{at} missing"));
        let wrong =
            wrong.map(|(at, bytes)| format!("{at}: {:?}, expected {:?}", first(bytes), state.get(at).map(first)));
        wrong.chain(missing).collect::<Vec<_>>().join("; ")
    });
    states.collect::<Vec<_>>().join(" or ")
}
