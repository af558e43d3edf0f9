//! The thread in the background, and what it does besides checkpoints.

pub(crate) mod background;
pub(crate) mod sweep;
