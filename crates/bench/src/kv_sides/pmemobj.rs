//! libpmemobj's structures.

use std::path::Path;

use peers::Pmemobj;
use pmem::Stats;
use tx::Isolation;

use super::{KvRoom, KvSide, Session, Step};
use crate::Result;
use crate::engines::{Structure, domain_of_peer};
use crate::peer::PeerStore;

/// A structure in a pool of its own.
pub(super) struct OnPmemobj {
    peer: Pmemobj,
    store: PeerStore,
}

impl OnPmemobj {
    pub(super) fn open(dir: &Path, structure: Structure, room: KvRoom) -> Result<Self> {
        let path = dir.join("pool");
        let tree_key_bytes = (structure == Structure::BTree).then_some(room.key_bytes);
        if path.exists() {
            let peer = Pmemobj::open(&path)?;
            return Ok(Self { store: PeerStore::opened(&peer, tree_key_bytes)?, peer });
        }
        let peer = Pmemobj::create(&path, room.in_blocks() as usize)?;
        let store = match tree_key_bytes {
            None => PeerStore::hash(&peer, room.pairs)?,
            Some(key_bytes) => PeerStore::tree(&peer, key_bytes)?,
        };
        Ok(Self { peer, store })
    }
}

impl KvSide for OnPmemobj {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self.store.clone()))
    }

    fn stats(&self) -> Option<Stats> {
        None
    }

    fn domain(&self) -> Option<String> {
        Some(domain_of_peer(self.peer.flushes()).to_string())
    }
}

impl Session for PeerStore {
    /// The hash map alone.
    fn attempt(&mut self, _: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Option<u64>> {
        self.transact(steps.iter().map(|step| (step.key, step.put)), out).map(Some)
    }
}
