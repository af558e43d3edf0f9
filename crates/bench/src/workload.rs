//! What stores are asked to do: YCSB (Cooper et al. 2010) A to F, and traces. What engines are: [`tpcc`], [`smallbank`].
//!
//! A stream of [`Op`]s names keys by number; [`Names`] turns numbers into bytes, [`Values`] has something to store.
//!
//! ```
//! use bench::workload::{Hashed, Names, Op, Values, Workload, Ycsb};
//!
//! let ycsb = Ycsb::new(Workload::A, 1000).value_bytes(100);
//! let (names, values) = (Hashed::new(24)?, Values::new(100, 1));
//! let mut name = names.buffer();
//! for op in ycsb.stream(7).take(5) {
//!     match op {
//!         Op::Update { key, bytes } => println!("{:?} = {:?}", names.name(key, &mut name), values.get(key, bytes)),
//!         op => println!("{op:?}"),
//!     }
//! }
//! # Ok::<(), bench::Error>(())
//! ```

mod distribution;
mod names;
mod random;
pub mod smallbank;
pub mod tpcc;
mod trace;
mod ycsb;

pub use distribution::{Latest, Scrambled, Uniform, Zipfian};
pub use names::{Hashed, KEY_BYTES_MAX, Names, Values};
pub use random::Random;
pub use trace::{SCAN_MAX, Trace, VALUE_BYTES_MAX};
pub use ycsb::{Distribution, Stream, Workload, Ycsb};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read a value.
    Read {
        /// Of this key.
        key: u64,
    },
    /// Put a value where there is one already (in a trace: or not).
    Update {
        /// Of this key.
        key: u64,
        /// So long.
        bytes: u32,
    },
    /// Put a value under a new key.
    Insert {
        /// The key.
        key: u64,
        /// So long.
        bytes: u32,
    },
    /// Read a value and put another, in one transaction.
    ReadModifyWrite {
        /// Of this key.
        key: u64,
        /// So long.
        bytes: u32,
    },
    /// Read values in the order of their keys.
    Scan {
        /// From this one on.
        key: u64,
        /// So many.
        count: u32,
    },
    /// Remove a key.
    Delete {
        /// This one.
        key: u64,
    },
}

impl Op {
    /// The key it begins with.
    #[must_use]
    pub fn key(self) -> u64 {
        match self {
            Self::Read { key }
            | Self::Update { key, .. }
            | Self::Insert { key, .. }
            | Self::ReadModifyWrite { key, .. }
            | Self::Scan { key, .. }
            | Self::Delete { key } => key,
        }
    }
}
