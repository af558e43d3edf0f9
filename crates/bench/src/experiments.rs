//! The experiments: each compares engines and peers that do the same work in the same rounds.

pub mod alloc;
pub mod dependent;
pub mod log_append;
pub mod overwrite;
pub mod worst_case;
pub mod ycsb;

mod client;

pub use alloc::Alloc;
pub use dependent::Dependent;
pub use log_append::LogAppend;
pub use overwrite::{Overwrite, Set};
pub use worst_case::WorstCase;
pub use ycsb::YcsbRun;
