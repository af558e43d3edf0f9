//! The experiments: each compares engines and peers that do the same work in the same rounds.

pub mod alloc;
pub mod dependent;
pub mod kv;
pub mod log_append;
pub mod log_replicate;
pub mod log_takeover;
pub mod midas;
pub mod open;
pub mod overwrite;
pub mod rocksdb_wal;
pub mod server;
pub mod smallbank;
pub mod space;
pub mod structures;
pub mod tpcc;
pub mod worst_case;
pub mod ycsb;

mod client;

pub use alloc::Alloc;
pub use dependent::Dependent;
pub use kv::KvRun;
pub use log_append::LogAppend;
pub use log_replicate::{LogReplicate, Placement, Transport};
pub use log_takeover::LogTakeover;
pub use midas::{Midas, Scenario};
pub use open::KvOpen;
pub use overwrite::{Overwrite, Set};
pub use rocksdb_wal::RocksdbWal;
pub use server::Served;
pub(crate) use server::memcached;
pub use smallbank::SmallBank;
pub use space::KvSpace;
pub use structures::{Shape, Structures};
pub use tpcc::Tpcc;
pub use worst_case::WorstCase;
pub use ycsb::YcsbRun;
