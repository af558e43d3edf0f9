//! What transactions leave to the upkeep.

use pmem::Block;

use crate::raw::{Owned, Word};

/// What they leave there. Held for a moment: a thread that has its own log locked may take it, and the upkeep takes logs.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) given_up: Vec<(u64, GivenUp)>,
    /// Objects whose header may be of no use.
    pub(crate) listed: Vec<Changed>,
}

/// An object with a header.
#[derive(Clone, Copy)]
pub(crate) struct Changed {
    pub(crate) header: u32,
    pub(crate) word: Word,
    pub(crate) block: Block,
}

/// What a thread may still look at.
pub(crate) enum GivenUp {
    Version(Owned),
    Header(u32),
    Block(Block),
}
