//! Which engine keeps the objects under transactions that are in a pool.

use pmem::{PoolInfo, RegionKind};

/// An engine that keeps objects in regions of a pool.
pub struct ObjectEngine {
    /// Where the objects are.
    blocks: &'static str,
    state: &'static str,
    regions: &'static [&'static str],
}

/// A heap of transactions.
pub const HEAP: ObjectEngine = ObjectEngine {
    blocks: "heap",
    state: "heap.state",
    regions: &[
        "heap",
        "heap.backup",
        "heap.zones",
        "heap.marks",
        "heap.logs",
        "heap.state",
        "heap.copies",
        "heap.copies.state",
    ],
};

/// Objects with several versions.
pub const VERSIONS: ObjectEngine = ObjectEngine {
    blocks: "mvcc",
    state: "mvcc.state",
    regions: &["mvcc", "mvcc.logs", "mvcc.state", "mvcc.copies", "mvcc.procedures"],
};

impl ObjectEngine {
    /// What belongs to it, or did before another engine took its objects over.
    pub fn owns(&self, region: &str) -> bool {
        self.regions.contains(&region)
    }

    /// Whether it has objects there. One whose objects another engine has taken over has left some of its regions.
    pub fn is_in(&self, info: &PoolInfo) -> bool {
        let has = |name: &str| info.regions.iter().any(|region| region.name == name);
        has(self.state)
            && info.regions.iter().any(|region| region.name == self.blocks && region.kind == RegionKind::Heap)
    }
}
