//! A row of things, zeros at first, that grows while others use it, and never moves.

use std::sync::OnceLock;

use crate::raw::{self, Zeros};

/// Things in the first block. Each further eight blocks have as many as all before them: at most about an eighth waits to be used.
const FIRST: usize = 64;
const PARTS: usize = 8;
const DOUBLINGS: usize = 25;

pub(crate) struct Rows<T>(Box<[OnceLock<Box<[T]>>]>);

impl<T: Zeros> Rows<T> {
    /// Things there can be.
    pub(crate) const MOST: usize = FIRST << DOUBLINGS;

    pub(crate) fn new() -> Self {
        Self((0..1 + DOUBLINGS * PARTS).map(|_| OnceLock::new()).collect())
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> &T {
        let (block, at, len) = locate(at as usize % Self::MOST);
        let made = self.0[block].get_or_init(|| raw::zeros(len));
        &made[at]
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().filter_map(OnceLock::get).map(|block| size_of_val(&**block) as u64).sum()
    }
}

/// Block, row in it, and its length.
#[inline]
fn locate(at: usize) -> (usize, usize, usize) {
    if at < FIRST {
        return (0, at, FIRST);
    }
    let doubling = at.ilog2() - FIRST.ilog2();
    let shift = doubling + FIRST.ilog2() - PARTS.ilog2();
    let part = (at >> shift) % PARTS;
    (1 + doubling as usize * PARTS + part, at & ((1 << shift) - 1), 1 << shift)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn each_place_is_one_of_its_own() {
        let (mut block, mut next) = (0, 0);
        for at in 0..100_000 {
            let (here, row, len) = locate(at);
            assert_eq!((here, row), (block, next), "{at}");
            (block, next) = if row + 1 < len { (block, row + 1) } else { (block + 1, 0) };
        }
        assert_eq!(locate(Rows::<AtomicU64>::MOST - 1).0, DOUBLINGS * PARTS);
    }
}
