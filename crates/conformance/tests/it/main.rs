//! The suite on engines that are broken on purpose, and the player of schedules on scenarios that are.

mod broken;
mod explore;
mod failpoints;
mod fault;
