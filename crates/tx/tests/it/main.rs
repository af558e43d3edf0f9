//! The suite on the reference engine, and on engines that are broken on purpose.

mod broken;
mod explore;
mod failpoints;
mod fault;
mod reference;
