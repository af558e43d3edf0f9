//! What a transaction writes, in memory, and the log that it goes to.

pub(crate) mod work;
pub(crate) mod writer;
