//! What checkpoints know: which nodes of the index are where, and what the last one has left to the next.

pub(crate) mod checkpointer;
pub(crate) mod nodes;
