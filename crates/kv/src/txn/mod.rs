//! Transactions: what they read and write until they commit, and trying again.

pub(crate) mod later;
pub(crate) mod retry;
pub(crate) mod scan;
pub(crate) mod transaction;
