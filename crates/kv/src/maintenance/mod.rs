//! The store's memory goes to media, and what is no longer needed is freed: checkpoints, and the moving of versions.

pub(crate) mod checkpoint;
mod compact;
mod neighbours;
