//! A log of records that any number of threads append to at once, durable in order, with one barrier for a force (Arcadia, ICDE 2022).
//!
//! Only *reserve* and *force* synchronise; records are filled, checksummed and completed in parallel. Each record proves by itself that it is whole and the next one, so
//! the log's end is not kept on media: an append writes its record and nothing else.
//!
//! # The way of a record
//!
//! A module knows those that stand below it, and none above.
//!
//! | module | what it does with it |
//! |---|---|
//! | `sim`, for tests | replicas and leaders without machines |
//! | `open`, `convert` | [`Options::create`], [`Options::open`], and with `Replicas` the same on several machines; a log of an older format |
//! | `handle` | [`Log::append`], [`Log::reserve`], [`Log::force`] |
//! | `threads` | forces what waited too long; marks an idle log; hears replicas |
//! | `core` | reserve, append, force, by the policy |
//! | `replicate`, with the feature `replication` | the same log on other machines: its leader, and replicas |
//! | `iter`, `follower`, `following` | reads it: here, and in another process while it is written |
//! | `image` | the log on this machine: completes the record, makes it persistent, says so |
//! | `recovery` | how it is read after a crash |
//! | `space` | gives it space in a segment; reclaims, grows |
//! | `options` | what can be chosen |
//! | `window`, `wait` | knows how far each record is, which thread flushes what, and when all before it is durable |
//! | `superline`, `front` | where a log begins; what stands before its first segment |
//! | `record`, `circle` | checksums it; where segments lie when the log has grown |
//! | `failpoints`, `raw` | for tests that must be seen to fail; the unsafe code |
//!
//! # What it costs
//!
//! | | barriers | on media |
//! |---|---|---|
//! | append, each force a barrier | 1 | the record, 24 bytes of header, to the end of the line |
//! | `n` records completed, one force | 1 | each record, 24 bytes of header, to the next word; to whole lines (pages of a file) at both ends |
//! | discard, truncate_to | 0 | nothing |
//! | space reclaimed, at most once for each segment | 2 | the superline, twice |
//! | open (a barrier more if the superline's copies differ) | 3 | the superline, twice; after a crash the live part is written out |
//!
//! ```
//! # fn main() -> cairn_log::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("orders.cairn");
//! let log = cairn_log::Options::new().bytes(16 << 20).create(&path)?;
//! let lsn = log.append(b"17 apples")?; // durable when it returns
//! log.close()?;
//!
//! let (log, found) = cairn_log::Options::new().open(&path)?;
//! assert_eq!(found.records, 1);
//! let mut records = log.iter();
//! while let Some(record) = records.next()? {
//!     println!("{}: {}", record.lsn, String::from_utf8_lossy(record.payload));
//! }
//! drop(records);
//! log.truncate_to(lsn)?; // carried out, not needed any more
//! # Ok(()) }
//! ```
//!
//! # One append
//!
//! `log.append(b"17 apples")`, each force a barrier, on memory. `core` goes through the files one
//! behind the other.
//!
//! 1. `core` `append` checksums the payload, which brings it into the cache. Nothing is shared yet.
//! 2. `reserve`: under the one lock of the log, which is the only locked instruction, `space`
//!    gives the next LSN and offset, and takes note of what this thread knows to be durable. A few
//!    instructions, unless a segment begins.
//! 3. `raw`: the header, with the watermark of that moment, and the payload are stored past the
//!    cache to lines of their own, of one record in 16 the log's watermark, too, and **drained**,
//!    while others do the same.
//! 4. The record is marked persistent in `window`, by a plain store, which the drain orders; the
//!    thread follows the marks without a gap, from what was known to be durable when it reserved,
//!    and notes how far in a cell of its own; all threads are told once in 32 records. If an
//!    earlier record is missing, the thread waits for it, or flushes what is complete and claimed
//!    by no thread.
//!
//! With a frequency, if it is shorter than 1500 bytes, or in a file, the record is noted as
//! reserved, stored through the cache, packed, and marked complete; the thread that completes
//! every `F`-th leads: it claims all complete records, flushes their ranges, drains once. A
//! replica is to be given the same: `claim` hands out ranges that are contiguous and in order, and
//! log bytes are wire bytes.
//!
//! # One append on several machines
//!
//! The record is complete, and `core` forces it. All that follows is in `replicate`.
//!
//! 1. `posting` `force` claims what is complete and, under one lock, writes it into the window of
//!    every live replica, as it stands in the log; meanwhile it flushes its own image.
//! 2. At a replica: `replica` hears that something was written, `served` knows by whom, and `stored`
//!    verifies the records where they stand, with one **drain** for all that has arrived; then they
//!    are acknowledged.
//! 3. At the leader: `acks` says which thread hears the replicas: this thread, or another while it sleeps.
//!    `leading` `on_event` takes what arrives.
//! 4. `group` counts: with a write quorum, in order, the records are durable. The threads that wait are woken.
//!
//! # One recovery of a log
//!
//! `recovery` reads the superline, walks from the head while records are whole, and decides by a
//! table whether that is the end, a torn tail, or a loss. What it read is flushed, a torn record's
//! checksum erased, the epoch raised: then the log goes on.
//!
//! # One takeover
//!
//! 1. `open::replicas` connects to the replicas, and opens an image of its own.
//! 2. `replicate::candidate` carries to each of them what `takeover` asks, and what it answers back:
//!    promise, walk, fetch, verify, repair, install. `takeover`'s head says why what it finds is the
//!    log.
//! 3. At a replica: `served`, and `stored` `answer`, which promises once, and makes what it was told
//!    persistent before it says so.
//! 4. `core::lead` makes the repaired image a log, and `handle::led` has its replicas heard, and
//!    looks for those that are away.
//!
//! `sim` runs all of these over a network and memory that fail.

#![deny(unsafe_code)]
// What is for replicas stays where it belongs, and has no user then.
#![cfg_attr(not(feature = "replication"), allow(dead_code))]

#[cfg(not(feature = "replication"))]
mod alone;
mod at;
mod circle;
mod convert;
mod core;
mod error;
mod failpoints;
mod follower;
mod following;
mod front;
mod handle;
#[cfg(test)]
mod hostile;
mod image;
mod iter;
mod lsn;
mod open;
mod options;
#[allow(unsafe_code)]
mod raw;
mod record;
mod recovery;
#[cfg(feature = "replication")]
mod replicate;
#[cfg(all(feature = "replication", any(test, feature = "testing")))]
mod sim;
mod space;
mod stats;
mod superline;
mod threads;
mod wait;
mod window;

#[cfg(not(feature = "replication"))]
use alone as replicate;
pub use convert::Converted;
pub use error::{Away, Error, Result};
#[cfg(feature = "replication")]
pub use fabric;
#[cfg(any(test, feature = "failpoints"))]
pub use failpoints::Step;
pub use follower::Follower;
pub use following::Following;
pub use front::{NAME, REGION_KIND};
pub use handle::{Log, Reservation};
pub use iter::{Iter, Record};
pub use lsn::Lsn;
#[cfg(feature = "replication")]
pub use open::Replicas;
pub use options::{Options, WhenFull};
pub use record::RECORD_HEADER;
pub use recovery::{Recovered, Tail};
#[cfg(feature = "replication")]
pub use replicate::{
    CheckedReplica, Cursor, FlushOrder, REPLICAS_MAX, Replica, ReplicaHealth, ReplicaStatus, WIRE_VERSION,
    check_replica, look,
};
pub use stats::{Stats, VulnerabilityWindow};

/// Replicas and leaders driven by hand, for the crates that explore crashes and feed any bytes. No part of the interface that programs use.
#[cfg(all(feature = "replication", any(test, feature = "testing")))]
pub mod testing {
    pub use crate::sim::{
        Alone, Cluster, Found, Home, Position, SEGMENT, SEGMENTS, Told, candidate, leading, record, replica,
    };
}
