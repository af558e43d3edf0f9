//! pmem
pub mod sim;
pub mod sync;
