//! What borrows from a log, a store or an array, kept together with it.

pub(super) mod array;
pub(super) mod log;
pub(super) mod tx;

use std::sync::Arc;

use parking_lot::Mutex;

/// What borrows from the owner, for one thread at a time. The fields are dropped in this order.
pub(super) struct Held<B, O> {
    borrower: Mutex<B>,
    owner: Arc<O>,
}

impl<B, O> Held<B, O> {
    pub(super) fn owner(&self) -> &O {
        &self.owner
    }

    pub(super) fn state(&mut self) -> &mut B {
        self.borrower.get_mut()
    }
}

impl<B, O> AsRef<Mutex<B>> for Held<B, O> {
    fn as_ref(&self) -> &Mutex<B> {
        &self.borrower
    }
}
