//! What keys hold: values that tell which transaction wrote them.

use std::collections::BTreeMap;

use super::START;

/// What a transaction promises.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Grows in the order in which transactions lock what they share.
    pub number: u64,
    /// The keys it changed, and the lengths of their values; none where it was deleted.
    pub keys: Vec<(usize, Option<usize>)>,
}

/// By key: the number of the transaction that wrote the value, and its length.
pub(super) type Seen = BTreeMap<usize, (u64, usize)>;

/// What there is at first.
pub(super) fn at_first(start: usize) -> Seen {
    // Of many keys only some have a block for their value.
    let len = |key: usize| if key < START { LENS[key % LENS.len()] } else { LENS[key % 3] };
    (0..start).map(|key| (key, (1 + key as u64, len(key)))).collect()
}

/// Lengths of values: in a leaf, in blocks, beginning on a line.
pub const LENS: [usize; 6] = [8, 8, 16, 40, 136, 520];

pub(super) fn value(number: u64, len: usize) -> Vec<u8> {
    let rest = (8..len).map(|at| (number as usize).wrapping_mul(13).wrapping_add(at) as u8);
    number.to_le_bytes().into_iter().chain(rest).collect()
}

/// The number and length of a value; none if no transaction writes it so.
pub(super) fn parse(bytes: &[u8]) -> Option<(u64, usize)> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (value(number, bytes.len()) == bytes).then_some((number, bytes.len()))
}
