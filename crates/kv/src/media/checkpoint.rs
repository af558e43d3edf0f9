//! The checkpoint: where the store stands, in either format.

use pmem::Persist;

/// Writers, and logs: one commits at a time in each.
pub(crate) const WRITERS: usize = 64;

/// Of the bytes described here.
pub(crate) const FORMAT: u32 = 2;
/// The one before: both copies of the checkpoint are on one page, nothing proves that the index is that of the checkpoint, and logs have no watermarks. Stores that
/// have it are used as they are, and keep it.
pub(crate) const FORMAT_1: u32 = 1;

/// Where the store stands: replaced as a whole, one copy after the other.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub(crate) struct Checkpoint {
    pub(crate) format: u32,
    /// Node that begins the list of chunks.
    pub(crate) root: u32,
    pub(crate) segment_bytes: u64,
    /// Counts checkpoints.
    pub(crate) number: u64,
    /// Not smaller than any commit timestamp in what it leads to.
    pub(crate) clock: u64,
    /// Commits through this number are durable and in it: see `durable`.
    pub(crate) commit_number: u64,
    /// Keys in the index, tombstones included.
    pub(crate) entries: u64,
    /// For each writer: its records before this are in the index.
    pub(crate) marks: [u64; WRITERS],
    /// ... and the last transaction before it has this link.
    pub(crate) links: [u16; WRITERS],
    /// Checksum of the root node: with the checksums of children in the nodes it proves that each node is the one written for this checkpoint or an earlier one that it
    /// still counts, and not what its place held before.
    #[persist(name = "root_seal")]
    pub(crate) root_checksum: u64,
}

impl Checkpoint {
    /// Whether nodes prove their children.
    pub(crate) fn proves_nodes(&self) -> bool {
        self.format > FORMAT_1
    }

    /// What format 1 has of it.
    pub(super) fn as_format_1(&self) -> format_1::Checkpoint {
        let Self { format, root, segment_bytes, number, clock, commit_number, entries, marks, links, .. } = *self;
        format_1::Checkpoint { format, root, segment_bytes, number, clock, commit_number, entries, marks, links }
    }
}

impl From<format_1::Checkpoint> for Checkpoint {
    fn from(old: format_1::Checkpoint) -> Self {
        let format_1::Checkpoint { format, root, segment_bytes, number, clock, commit_number, entries, marks, links } =
            old;
        Self { format, root, segment_bytes, number, clock, commit_number, entries, marks, links, root_checksum: 0 }
    }
}

pub(crate) mod format_1 {
    //! What is different in format 1. Names count: they are part of a type's layout.

    use pmem::Persist;

    use super::WRITERS;

    /// As the present one, up to its last field.
    #[derive(Clone, Copy, Debug, Persist)]
    #[repr(C)]
    pub(crate) struct Checkpoint {
        pub(crate) format: u32,
        pub(crate) root: u32,
        pub(crate) segment_bytes: u64,
        pub(crate) number: u64,
        pub(crate) clock: u64,
        pub(crate) commit_number: u64,
        pub(crate) entries: u64,
        pub(crate) marks: [u64; WRITERS],
        pub(crate) links: [u16; WRITERS],
    }
}
