//! Positions between records.

#[cfg(feature = "replication")]
use serde::{Deserialize, Serialize};

/// A position between two records: the same on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "replication", derive(Serialize, Deserialize))]
pub(crate) struct At {
    /// The record behind it.
    pub(crate) lsn: u64,
    /// Where the record before it ends.
    pub(crate) position: u64,
    /// The record behind it has at least this epoch.
    pub(crate) epoch: u32,
}

/// Positions, the end not included. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "replication", derive(Serialize, Deserialize))]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Bytes that replicas compare, and send one another, at once.
pub(crate) const PIECE: u64 = 32 << 10;

impl Span {
    /// The pieces of it: none crosses a segment's end, so that each is contiguous on every replica.
    pub(crate) fn pieces(self, segment_bytes: u64) -> impl Iterator<Item = Self> {
        let mut from = self.from;
        std::iter::from_fn(move || {
            let in_segment = from % segment_bytes;
            let end = (in_segment / PIECE + 1) * PIECE;
            let to = (from - in_segment + end.min(segment_bytes)).min(self.to);
            let piece = (from < self.to).then_some(Self { from, to });
            from = to;
            piece
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_segments() {
        let spans = |from, to, segment| Span { from, to }.pieces(segment).map(|s| (s.from, s.to)).collect::<Vec<_>>();
        assert_eq!(spans(100, 1100, 512), [(100, 512), (512, 1024), (1024, 1100)]);
        assert_eq!(spans(8, PIECE * 2, 1 << 20), [(8, PIECE), (PIECE, 2 * PIECE)]);
        assert_eq!(spans(8, 8, 512), []);
    }
}
