//! Nodes of the index.

use pmem::{ChecksumKey, LINE, Persist};

use crate::media::checkpoint::WRITERS;
use crate::media::checksum::location;
use crate::media::word::Word;

/// Bytes of a node.
pub(crate) const NODE: u64 = 640;
/// Bytes of a fence that stand in its leaf's node; the rest follows in further nodes.
pub(crate) const FENCE_INLINE: usize = 64;
/// Nodes in a segment.
pub(crate) fn per_segment(segment_bytes: u64) -> u32 {
    (segment_bytes / NODE) as u32
}

const BODY: usize = 512;

pub(crate) const LEAF: u32 = 1;
pub(crate) const CHUNK: u32 = 2;
pub(crate) const ROOT: u32 = 3;

/// A node: never changed once a checkpoint names it.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub(crate) struct Node {
    /// Over everything behind it, what follows of the fence, and its location.
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
    pub(super) _reserved: [u64; 3],
    pub(crate) fence: [u8; FENCE_INLINE],
    pub(super) body: [u8; BODY],
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
        for (entry, word) in node.body.chunks_exact_mut(8).zip(words) {
            entry.copy_from_slice(&word.0.to_le_bytes());
        }
        node
    }

    pub(crate) fn list(checkpoint: u64, kind: u32, nodes: &[u32], next: u32, children: u64) -> Self {
        let mut node = Self { next, children, ..Self::new(checkpoint, kind, nodes.len()) };
        for (entry, number) in node.body.chunks_exact_mut(4).zip(nodes) {
            entry.copy_from_slice(&number.to_le_bytes());
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
        key.of_kind(self.kind).checksum_each([own, rest_of_fence].into_iter()) ^ location(u64::from(number), WRITERS, 0)
    }
}
