//! Whether a thread serves connections: what takes long, or waits, is for those that do not.

use std::cell::Cell;

thread_local! {
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread serves no connections: only then may what it runs take long.
pub(crate) fn is_apart() -> bool {
    APART.get()
}

/// This thread serves no connections until this is dropped.
pub(crate) struct Apart(());

impl Apart {
    pub(crate) fn begin() -> Self {
        APART.set(true);
        Self(())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        APART.set(false);
    }
}
