//! Exactly-once: what a client's cell says of a request.
//!
//! A client has a few cells, objects of the heap like any other; the request with sequence number `s` belongs to cell `s mod w`, so that `w` requests can be under way.
//! The transaction that carries out a request stores number and reply in the cell, so both are on every replica or on none. A request that comes again finds
//! them; and since the cell is in flight until the tail has acknowledged that transaction, it finds them only then.

use std::num::NonZeroU64;

/// Which of a client's `width` cells a request belongs to.
#[must_use]
pub fn cell_of(sequence: u64, width: NonZeroU64) -> u64 {
    sequence % width
}

/// What a cell says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not carried out: do it, and store the reply.
    New,
    /// It was: say again what the cell has.
    Stored,
    /// The client has gone on to later ones: it waits for no reply.
    Stale,
}

/// Compares a request with the last one of its cell, 0 if there was none. Sequence numbers begin at 1.
#[must_use]
pub fn judge(sequence: u64, last: u64) -> Verdict {
    match sequence.cmp(&last) {
        std::cmp::Ordering::Greater => Verdict::New,
        std::cmp::Ordering::Equal => Verdict::Stored,
        std::cmp::Ordering::Less => Verdict::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once() {
        assert_eq!(judge(1, 0), Verdict::New);
        assert_eq!(judge(1, 1), Verdict::Stored);
        assert_eq!(judge(1, 3), Verdict::Stale);
        assert_eq!(judge(3, 1), Verdict::New);
    }

    #[test]
    fn as_many_requests_as_cells_are_in_different_cells() {
        let width = NonZeroU64::new(4).unwrap();
        let cells: std::collections::BTreeSet<u64> = (7..11).map(|s| cell_of(s, width)).collect();
        assert_eq!(cells.len(), 4);
    }
}
