//! A serializable key-value store: many writers, ordered keys, one barrier per commit, instant restart.
//!
//! It is the store of the Midas thesis (snapshot isolation, made serializable by validating what was read when a transaction commits; first updater wins; versions
//! are their own log), with an ordered concurrent index, online garbage collection and scans, which the thesis leaves open.
//!
//! # The way of a transaction
//!
//! | module | what it does |
//! |---|---|
//! | `store`, `retry`, `queue` | the handle; `transact` runs a transaction until it commits |
//! | `tx`, `work` | reads a snapshot; keeps what it writes as records, in memory |
//! | `active`, `time` | the clock, snapshots, and who is active |
//! | `locks` | who writes which key |
//! | `index` | from keys to their newest versions, in memory |
//! | `scan` | ranges of it |
//! | `commit`, `writer` | timestamp, validation, **one barrier**, publication |
//! | `record`, `word`, `media` | what all of it looks like on media |
//! | `settle`, `nodes` | checkpoints: the index on media follows |
//! | `compact`, `space`, `reserve` | segments: freed, emptied, given back; what is kept for checkpoints |
//! | `recovery`, `create` | open: the last checkpoint, then what the logs have behind it |
//! | `table`, `load`, `backup` | typed keys and values; many pairs at once; a copy of a snapshot |
//! | `keeper`, `sweep` | the thread that settles, and removes what has expired |
//! | `order`, `wait` | in which order commits are seen; how threads wait for each other |
//! | `later` | commits that are awaited |
//! | `origin`; `replicated`, `follower` with the feature `replication` | commits through a log with copies on other machines; the same store there |
//! | `feed` | changes in the order of their commits |
//!
//! # Example
//!
//! ```
//! # fn main() -> kv::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("shop.cairn");
//! let store = kv::Store::open(&path)?; // creates, opens or recovers
//! store.put(b"apples", b"17")?; // durable when it returns
//! let left = store.transact(|tx| {
//!     let apples: u32 = tx.get(b"apples")?.and_then(|v| std::str::from_utf8(v).ok()?.parse().ok()).unwrap_or(0);
//!     tx.put(b"apples", (apples - 1).to_string().as_bytes())?;
//!     Ok(apples - 1)
//! })?;
//! assert_eq!(left, 16);
//! store.close()?;
//! # Ok(()) }
//! ```

#![deny(unsafe_code)]
// What is for a log with copies stays where it belongs, and has no user then.
#![cfg_attr(not(feature = "replication"), allow(dead_code))]

mod active;
#[cfg(not(feature = "replication"))]
mod alone;
mod backup;
mod bounded;
mod cell;
mod check;
mod commit;
mod compact;
mod core;
mod create;
mod error;
mod feed;
#[cfg(feature = "replication")]
mod follower;
mod group;
mod index;
mod keeper;
mod later;
mod load;
mod locks;
mod lone;
mod media;
mod nodes;
mod options;
mod order;
mod origin;
mod queue;
#[allow(unsafe_code)]
mod raw;
mod record;
mod recovery;
#[cfg(feature = "replication")]
mod replicated;
mod reserve;
mod retry;
mod rows;
mod sabotage;
mod salvaged;
mod scan;
mod settle;
mod space;
mod stats;
mod store;
mod sweep;
mod table;
mod time;
mod traits;
mod tx;
mod wait;
mod watermark;
mod word;
mod work;
mod writer;

pub use ::tx::{Isolation, Keys};
#[cfg(not(feature = "replication"))]
use alone as replicated;
pub use backup::{Backup, restore};
pub use bounded::Durability;
pub use check::{Checked, Problem};
pub use error::{Error, Key, Result, Rival};
pub use feed::{Changed, Changes};
#[cfg(feature = "replication")]
pub use follower::{Follower, FollowerStatus};
pub use later::Commit;
pub use load::{Loaded, Loader};
pub use options::{NAME, Opening, Options, Part, REGION_KIND};
pub use record::{KEY_MAX, VALUE_MAX};
#[cfg(not(feature = "sabotage"))]
use sabotage::Step;
#[cfg(feature = "sabotage")]
pub use sabotage::{Step, at_next_commit};
pub use salvaged::{CutLog, Salvaged};
pub use stats::Stats;
pub use store::{Batch, Snapshot, Store};
#[cfg(feature = "serde")]
pub use table::Json;
pub use table::{
    Entries, KeyCode, KeyOf, KeyRange, Plain, PrefixOf, Reader, TABLE_NAME_MAX, Table, TableOn, Unfit, ValueCode,
};
pub use time::Timestamp;
pub use tx::{Pair, Scan, Transaction};
