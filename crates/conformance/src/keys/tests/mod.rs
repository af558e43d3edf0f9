//! The suite passes a store that is right, and notices every way of being wrong.

mod faults;
mod synthetic;

use super::*;

struct Plain;

impl Subject for Plain {
    type Store = Memory;

    fn fresh(&self) -> Memory {
        Memory::new()
    }

    fn skews(&self) -> bool {
        true
    }
}

crate::keys!(plain, Plain);

/// Versions follow each other as the store says.
struct Telling;

impl Subject for Telling {
    type Store = Memory;

    const TELLS_ORDER: bool = true;

    fn fresh(&self) -> Memory {
        Memory::new()
    }

    fn commit(tx: MemoryTx<'_>) -> Result<Option<u64>> {
        tx.commit_at().map(Some)
    }
}

crate::keys!(telling, Telling);
