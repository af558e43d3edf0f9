//! What a check has seen stays: an operation in doubt may be there or not, but once a recovered program was seen with it or without it, a
//! later crash must not change that.
//!
//! The explorer crashes a check while it goes on (appends, updates, publishes) by running the next check inside it, on the same
//! thread; so what the outer one has seen is kept here, outside of the pool, and costs no barrier that would hide one of theirs.

use std::cell::Cell;

use crash::Violation;

thread_local! {
    static SEEN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Holds while a check goes on after it has looked.
pub(crate) struct Witness(Option<u64>);

impl Witness {
    /// Compares `seen` with what the check around this one saw, if there is one, and stands for it from here on.
    pub(crate) fn of(seen: u64) -> Result<Self, Violation> {
        let before = SEEN.get();
        if let Some(before) = before
            && before != seen
        {
            return Err(Violation::new(format!("an earlier recovery saw {before:#x}, this one {seen:#x}")));
        }
        SEEN.set(Some(seen));
        Ok(Self(before))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        SEEN.set(self.0);
    }
}
