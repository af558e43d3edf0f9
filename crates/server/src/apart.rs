//! Whether a thread serves connections: what takes long, or waits, is for those that do not.

use std::cell::Cell;

/// What is run on a thread that serves no connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    /// It may take long, and waits for no other transaction: others of its kind have the thread in a moment.
    Busy,
    /// It may wait as well.
    Waiting,
}

thread_local! {
    static APART: Cell<Option<Apart>> = const { Cell::new(None) };
}

/// Whether this thread serves no connections: only then may what it runs take long.
pub(crate) fn is_apart() -> bool {
    APART.get().is_some()
}

/// Whether what it runs may wait for other transactions.
pub(crate) fn may_wait() -> bool {
    APART.get() == Some(Apart::Waiting)
}

/// This thread serves no connections until this is dropped.
pub(crate) struct Aside(());

impl Aside {
    pub(crate) fn begin(what: Apart) -> Self {
        APART.set(Some(what));
        Self(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        APART.set(None);
    }
}
