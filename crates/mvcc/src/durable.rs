//! A commit that is durable, as recovery finds it in a log.

use pmem::{Intent, Position};

use crate::record::{Body, Bytes, Call};

/// A commit that was found.
pub(crate) struct Commit {
    pub(crate) slot: usize,
    pub(crate) stamp: u64,
    /// Where its record ends.
    pub(crate) end: Position,
    pub(crate) what: What,
    /// Bytes elsewhere that its record vouches for.
    pub(crate) outside: Vec<Bytes>,
}

/// What it did.
pub(crate) enum What {
    Values(Body),
    Call(Call),
}

impl Commit {
    pub(crate) fn call(&self) -> Option<&Call> {
        match &self.what {
            What::Call(call) => Some(call),
            What::Values(_) => None,
        }
    }

    pub(crate) fn intents(&self) -> &[Intent] {
        match &self.what {
            What::Call(call) => &call.intents,
            What::Values(body) => &body.intents,
        }
    }
}
