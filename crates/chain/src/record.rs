//! What goes along the chain.

use crate::{Number, Object};

/// What the protocol knows of a record; the bytes stay where they are, in the queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// Its position in the order of all transactions.
    pub number: Number,
    /// What the transaction has written; nothing if the number was drawn and lost.
    pub objects: Vec<Object>,
}

/// One transaction's effects: executed any number of times, in the order of numbers, it leaves the same.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// Which.
    pub entry: Entry,
    /// Opaque.
    pub bytes: Vec<u8>,
}

impl Entry {
    /// Fills a number that was drawn and lost.
    #[must_use]
    pub fn skip(number: Number) -> Self {
        Self { number, objects: Vec::new() }
    }
}
