//! What is on media besides records: the checkpoint, the table of segments, the nodes of the index.

use pmem::{ChecksumKey, LINE, Persist};

use crate::record::place;
use crate::word::Word;

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
    /// Not smaller than any commit timestamp in what is settled.
    pub(crate) clock: u64,
    /// Commits through this number are durable and settled: see `bounded`.
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
    pub(crate) fn as_format_1(&self) -> format_1::Checkpoint {
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

/// A place in a writer's log: segments are numbered, and counted in lines inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) sequence: u32,
    pub(crate) at: u64,
}

impl Mark {
    /// Before everything.
    pub(crate) const START: Self = Self { sequence: 0, at: 0 };

    pub(crate) fn from_word(word: u64) -> Self {
        Self { sequence: (word >> 32) as u32, at: (word & u64::from(u32::MAX)) * LINE }
    }

    pub(crate) fn to_word(self) -> u64 {
        (u64::from(self.sequence) << 32) | (self.at / LINE)
    }
}

/// What a segment is used for: a word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing, or something that the checkpoint no longer needs.
    Free,
    /// The `sequence`th segment of a writer's log; no record in it is older than the pool's generation (its lower half) when it was taken.
    Log { writer: usize, sequence: u32, generation: u16 },
    /// Goes on where the one before it ends.
    More,
    /// Nodes of the index.
    Nodes,
}

impl Use {
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let (writer, sequence) = ((word >> 2 & 0x3f) as usize, (word >> 32) as u32);
        let generation = (word >> 16) as u16;
        let used = match word & 3 {
            0 => Self::Free,
            1 => Self::Log { writer, sequence, generation },
            2 => Self::More,
            _ => Self::Nodes,
        };
        (used.to_word() == word).then_some(used)
    }

    pub(crate) fn to_word(self) -> u64 {
        let word = match self {
            Self::Free => return 0,
            Self::Log { writer, sequence, generation } => {
                1 | ((writer as u64) << 2) | (u64::from(generation) << 16) | (u64::from(sequence) << 32)
            }
            Self::More => 2,
            Self::Nodes => 3,
        };
        word | u64::from(code(word)) << 8
    }
}

/// Tells each single bit of a table's word that went bad, and of other damage all but one in 256.
fn code(word: u64) -> u8 {
    (0..).zip(word.to_le_bytes()).fold(0xa5, |code, (at, byte)| code ^ byte.rotate_left(at))
}

const _: () = assert!(WRITERS == 1 << 6);

// ---- nodes -----------------------------------------------------------------------------------------------------

/// Bytes of a node.
pub(crate) const NODE: u64 = 640;
/// Bytes of a fence that stand in its leaf's node; the rest follows in further nodes.
pub(crate) const FENCE_INLINE: usize = 64;
const BODY: usize = 512;

pub(crate) const LEAF: u32 = 1;
pub(crate) const CHUNK: u32 = 2;
pub(crate) const ROOT: u32 = 3;

/// A node: never changed once a checkpoint names it.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub(crate) struct Node {
    /// Over everything behind it, what follows of the fence, and the place.
    pub(crate) checksum: u64,
    /// The one it was written for.
    pub(crate) checkpoint: u64,
    pub(crate) kind: u32,
    /// Of words in a leaf, of numbers of nodes elsewhere.
    pub(crate) count: u32,
    /// First key a leaf is for.
    pub(crate) fence_len: u32,
    /// The root goes on there, if not 0.
    pub(crate) next: u32,
    /// Checksum over the checksums of the nodes that this one names: see [`Node::children`].
    pub(crate) children: u64,
    pub(crate) _reserved: [u64; 3],
    pub(crate) fence: [u8; FENCE_INLINE],
    pub(crate) body: [u8; BODY],
}

const _: () = assert!(size_of::<Node>() as u64 == NODE && NODE.is_multiple_of(LINE));

/// Numbers of nodes in one node.
pub(crate) const FANOUT: usize = BODY / 4;

impl Node {
    fn new(checkpoint: u64, kind: u32, count: usize) -> Self {
        Self {
            checksum: 0,
            checkpoint,
            kind,
            count: count as u32,
            fence_len: 0,
            next: 0,
            children: 0,
            _reserved: [0; 3],
            fence: [0; FENCE_INLINE],
            body: [0; BODY],
        }
    }

    pub(crate) fn leaf(checkpoint: u64, fence: &[u8], words: &[Word]) -> Self {
        let mut node = Self { fence_len: fence.len() as u32, ..Self::new(checkpoint, LEAF, words.len()) };
        let inline = fence.len().min(FENCE_INLINE);
        node.fence[..inline].copy_from_slice(&fence[..inline]);
        for (place, word) in node.body.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.0.to_le_bytes());
        }
        node
    }

    pub(crate) fn list(checkpoint: u64, kind: u32, nodes: &[u32], next: u32, children: u64) -> Self {
        let mut node = Self { next, children, ..Self::new(checkpoint, kind, nodes.len()) };
        for (place, number) in node.body.chunks_exact_mut(4).zip(nodes) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        node
    }

    /// Nodes it takes, with the rest of its fence.
    pub(crate) fn span(fence_len: usize) -> u32 {
        1 + fence_len.saturating_sub(FENCE_INLINE).div_ceil(NODE as usize) as u32
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = Word> {
        let words = self.body.chunks_exact(8).map(|b| Word(u64::from_le_bytes(b.try_into().unwrap_or_default())));
        words.take(self.count as usize)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        let numbers = self.body.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default()));
        numbers.take(self.count as usize)
    }

    /// The combined checksum of children with these checksums, in order; of a root that goes on, with the checksum of the next one behind them.
    /// `kind` is the node's that names them: each level has a key of its own, so that checksums of one can stand in what another checksums.
    pub(crate) fn children(key: &ChecksumKey, kind: u32, checksums: impl Iterator<Item = u64>) -> u64 {
        key.of_kind(kind).checksum_words(checksums)
    }

    pub(crate) fn checksum_at(&self, key: &ChecksumKey, number: u32, rest_of_fence: &[u8]) -> u64 {
        let own = &pmem::bytes_of(self)[8..];
        key.of_kind(self.kind).checksum_each([own, rest_of_fence].into_iter()) ^ place(u64::from(number), WRITERS, 0)
    }
}
