//! What the store calls its regions in the pool.

/// Kind of the region with the records, in the directory of the pool.
pub const REGION_KIND: pmem::RegionKind = pmem::RegionKind::Other(17);
/// Name of a store in a pool of its own, and of the pool's engine.
pub const NAME: &str = "kv";
/// Name of the region with the checkpoint, and the table of segments.
pub(crate) const TABLE: &str = "kv.table";
