//! What a check has seen stays: an operation in doubt may be there or not, but once a recovered program was seen with it or without it, a
//! later crash must not change that.

use std::cell::Cell;

use crate::hash::mix_pair;
use crate::violation::Violation;

thread_local! {
    static SEEN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Holds while a check goes on (appends, updates, publishes) after it has looked. The explorer crashes a check by running the next one
/// inside it, on the same thread; so what the outer one has seen is kept here, outside of the memory, and costs no barrier that would
/// hide one of theirs.
///
/// ```
/// use crash::Witness;
///
/// let _outer = Witness::of(7)?;
/// assert!(Witness::of(8).is_err());
/// # Ok::<(), crash::Violation>(())
/// ```
#[derive(Debug)]
#[must_use = "it holds until it is dropped"]
pub struct Witness(Option<u64>);

impl Witness {
    /// Compares `seen` with what the check around this one saw, if there is one, and stands for it from here on.
    ///
    /// # Errors
    /// They differ.
    pub fn of(seen: u64) -> Result<Self, Violation> {
        let before = SEEN.get();
        if let Some(before) = before
            && before != seen
        {
            return Err(Violation::new(format!("an earlier recovery saw {before:#x}, this one {seen:#x}")));
        }
        SEEN.set(Some(seen));
        Ok(Self(before))
    }

    /// Equal while the checks around hold to the same.
    pub(crate) fn key() -> u64 {
        SEEN.get().map_or(0, |seen| mix_pair(seen, 0x5EE4))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        SEEN.set(self.0);
    }
}
