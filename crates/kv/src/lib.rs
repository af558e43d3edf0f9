//! A serializable key-value store: many writers, ordered keys, one barrier per commit, instant restart.
//!
//! It is the store of the Midas thesis (snapshot isolation, made serializable by validating what was read when a transaction commits; first updater wins; versions
//! are their own log), with an ordered concurrent index, online garbage collection and scans, which the thesis leaves open.
//!
//! # The rooms
//!
//! Each knows those below it, and none above.
//!
//! | room | what is in it |
//! |---|---|
//! | [`table`](Table), `bulk`, `pairs`, `traits` | typed keys and values; many keys at once: loaded, copied, checked, followed; iterators; the traits of `tx` |
//! | `replica`, with the feature `replication` | the same store on other machines: the leader, its followers |
//! | `open` | a store is made, opened, recovered: the last checkpoint, then what the logs have behind it |
//! | `store` | the handle, and snapshots |
//! | `upkeep`, `repeat` | the background thread, and what has expired; what a log with copies says is repeated |
//! | `txn` | transactions; trying again until they commit; commits that are awaited |
//! | `core` | what all handles share: the parts below, and no more |
//! | `commit` | timestamp, validation, **one barrier**, publication; a put by itself (`lone`); a store that is full (`room`, `shortage`) |
//! | `maintenance` | checkpoints: when one is due; what one leaves to the next; nodes on media; the index on media follows; versions move together, and segments become free |
//! | `durable` | when commits are durable: at once, bounded, of a group, or in a log with copies |
//! | `scan` | ranges, leaf by leaf |
//! | `versions` | the versions of all keys: the parts below together; how a key is read, and what stands in a log |
//! | `writers` | what a transaction writes, in memory (`work`), and the log it goes to (`writer`) |
//! | `space`, `index` | segments: taken, freed, kept back; from keys to their newest versions, in memory |
//! | `options`, `copies` | what a store is opened with |
//! | `medium` | the pool, and what is fixed about it while a store is open |
//! | `media` | what all of it looks like on media: records, nodes, the checkpoint, marks |
//! | `raw`, `rows` | all the unsafe code; rows of things in memory |
//! | `isolation` | the clock, snapshots, and active transactions; which transaction writes which key; in which order commits are seen |
//! | `threads` | how threads wait for each other, queue, and are called |
//! | `error`, `time`, `stats`, `salvaged`, `failpoints` | what is told |
//!
//! # The parts of a store
//!
//! Each has its state to itself, with the methods that keep it right. What takes several parts has references to those that it takes, and to no others.
//!
//! | part | what it owns | file |
//! |---|---|---|
//! | `Versions` | the four below and the writers; what may expire | `versions` |
//! | `Medium` | pool, checksum key, generation | `medium` |
//! | `Concurrency` | clock, transaction slots, locks, order of commits | `isolation` |
//! | `Index`, `Space` | leaves; segments | `index`, `space` |
//! | `Persistence` | numbers of commits, groups, the log with copies | `durable` |
//! | `Maintenance` | the last checkpoint and what it left, when the next one is due, the signal for the background thread | `maintenance` |
//! | `Shortage` | who was refused room in a full store, and whose turn it is | `commit/shortage` |
//! | `Checkpointing` | none: it takes `Versions`, `Persistence`, `Maintenance` | `maintenance` |
//! | `Committing` | none: it takes these and `Shortage` | `commit` |
//!
//! # One put
//!
//! `store.put(b"apples", b"17")`, on a file:
//!
//! | file | what happens |
//! |---|---|
//! | `store` | `put` asks `commit/lone` first, which is for memory, and then begins a transaction that takes one lock |
//! | `txn/transaction` | `write`: a transaction slot and a snapshot from `isolation/active`, the key's lock from `isolation/locks` |
//! | `versions` | `newest`: `index` leads to the version that goes, `media/record` shows it |
//! | `writers/work` | the new record, complete but for timestamp and checksum |
//! | `commit`, `commit/grouped` | it is announced at its leaf, gets a timestamp and a position in the queue of `durable/group` |
//! | `commit/validate` | what was read has not changed: here nothing was |
//! | `writers/writer` | its position in the log; a new segment comes from `space`, down to what `space/reserve` keeps |
//! | `commit/barrier` | checksums; `raw` stores the records past the cache; **the one barrier** |
//! | `commit/publish` | `index` is led to the new version; the old one waits in the writer's list |
//! | `isolation/order` | readers see it when all before it are published; then `put` returns |
//! | `upkeep/background`, `maintenance/checkpoint` | later: the leaf goes to media, in a node of `maintenance/nodes`; the old version's space is free |
//!
//! In memory `commit/lone` does all from the lock to the index by itself.
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
//!
//! # One commit on keys
//!
//! `store.transact(|tx| { let n = tx.get(b"apples")?; tx.put(b"apples", ..)?; Ok(()) })`
//!
//! 1. `txn/retry` begins a transaction; `isolation/active` `pin` takes a transaction slot, and with it a reading of the
//!    clock: the snapshot. While the transaction slot is taken nothing that can be reached from there is
//!    freed.
//! 2. `get`: `index` `locate` goes down two levels of immutable nodes to a leaf, whose word leads
//!    to the newest record; `versions` `version` follows the records' `prev` on media to the one of
//!    the snapshot. No lock. A transaction that is about to commit in that leaf, with a smaller timestamp or
//!    none yet, is waited for; but not where a commit waits for a device or other machines: there
//!    the snapshot is from before the first commit still under way (`isolation/order`), and readers wait for
//!    no writer. What was read is noted (`writers/work`); the value is shown where it is. A scan (`scan`)
//!    goes leaf by leaf along a list of slots in order of keys, which each leaf has in memory
//!    (`index/leaf`); an insert does not touch it, the next scan puts in what is missing. Records are
//!    asked for a dozen ahead.
//! 3. `put`: the key's lock (`isolation/locks`), one for each key, is taken, and what is newest must be of
//!    the snapshot: else it is a conflict at once, the first updater wins. The record is made in
//!    memory, complete but for timestamp and checksum.
//! 4. `commit`: the thread's writer (`writers/writer`) reserves what follows the last transaction of its log; a new
//!    segment comes from `space`. It announces itself at each leaf, and *then* asks the clock for
//!    the commit's timestamp. What was read, ranges too (`scan`), is looked at again as of that
//!    timestamp; waits go to smaller timestamps only.
//! 5. The records get timestamp, link to the transaction before, and checksums, are stored past the
//!    cache in one run, and are drained: **the one barrier**. Each record's checksum is proof of
//!    itself, `rest` of the others: there is no commit record. On a file `durable/group` has a step of its
//!    own here: transactions that are ready at the same time go to one log as one, in order of
//!    their timestamps; the first of them reserves the space, not before all are validated, and
//!    writes; the others wait for it. One commit in 16 also says, on another page and with its
//!    own barrier, how far its log was durable before it (`media/watermark`). A put that is a
//!    transaction of its own, in memory and where its log has room, takes the same steps without
//!    image and lists (`commit/lone`): the record leaves from the caller's bytes, and the version it
//!    supersedes is known by its word until then.
//! 6. `publish`: the leaf's word is exchanged. The version it led to waits in the writer's list.
//!    In such a store the commit is acknowledged when all with smaller timestamps are published,
//!    so that a transaction that begins then sees it. Locks go, each to the first of those who wait for it.
//! 7. Later (`maintenance/due`), `maintenance/checkpoint`, mostly by the background thread: marks are taken of all logs; leaves that changed
//!    are written to new nodes, with the lists above them; barrier; the cell names them and the
//!    marks; barrier; its other copy does, too; barrier. Then what no durable checkpoint leads to
//!    and no reader can reach is subtracted from its segment; a segment with nothing in it is free;
//!    where few are full, versions are moved (`maintenance/compact`), and from far out when the file is much
//!    too long; the file's free end goes back to the file system. What a checkpoint itself needs
//!    is kept back from data (`space/reserve`): without one nothing is ever freed. The background thread makes the
//!    file longer ahead of writers (`space/growth`), 4 MiB at a time and an eighth of the store or 128
//!    MiB ahead, under a lock that a writer with room does not take, and has the kernel make the new
//!    pages (`Pool::populate`) before they come there; a writer that finds no room makes such a step
//!    itself. One that finds the store full makes checkpoints until something is free, or nothing more
//!    can be. What is kept for checkpoints, deletions and moving, and that new data do not fill
//!    what was given to these: `space/reserve`.
//!
//! A replicated store (`durable/leading`) has its barrier elsewhere: in step 4, behind validation, the
//! commit draws its number and a position in the `log` under one lock, when all with smaller
//! timestamps have theirs: so the log is in the order of timestamps. It is encoded right there and
//! forced on a quorum of the copies; only then its records go to the segments, without a barrier,
//! and the index leads to them. When the log is half full, what waits in the segments is drained
//! once, and the log forgets it. A follower (`replica`) repeats commits (`repeat`) as its copy of the log knows them to
//! be committed, and lets the leader use their space again when they are durable in its own store.
//! Opening and promotion are the same: take the log over, repeat what is behind the last number.
//!
//! After a conflict a transaction queues (`threads/queue`): two at a time try again, in the order in which
//! they came. Such an attempt takes locks for what it reads, too, and waits for those it does not
//! get. An older transaction tells a younger one that holds a lock to give way (*wound-wait*), so
//! the oldest always gets through. A transaction that waits sleeps in a row, oldest first, and is given the lock:
//! none waits for more than the holder and those that are older, ten seconds for each; a thread
//! that meets many conflicts begins so. `store.put` is such an attempt with one lock: it meets
//! none.
//!
//! # One recovery of a store
//!
//! `open/recovery`, after the pool is open
//!
//! 1. The cell gives the last checkpoint. `open/load` reads its nodes, each held against what names it,
//!    and fills the leaves in memory with their words. No record is read. A word counts as live in
//!    its segment, a tombstone is noted.
//! 2. With the table, `replay` knows the segments of each log, and reads it (`open/reading`) from its mark: a whole
//!    transaction, linked to the one before, leads the index to its records where they are newer.
//!    Where none stands it looks further on: for the next, linked likewise; or for one that is
//!    not, which proves a loss. So does a watermark behind the log's end.
//! 3. If commits were bounded, `open/prefix` has read all logs before, for the numbers: what comes
//!    behind the first that is missing is dropped, and its checksums are erased.
//! 4. What was read is flushed, and the table; barrier. The clock goes on above every timestamp
//!    seen: each is either in what a checkpoint's clock covers or behind a mark.
//! 5. Segments in which nothing is live are free. Each log begins a new one, unless the store had
//!    been closed.

#![deny(unsafe_code)]
// What is for a log with copies stays where it belongs, and has no user then.
#![cfg_attr(not(feature = "replication"), allow(dead_code))]

mod bulk;
mod commit;
mod copies;
mod core;
mod durable;
mod error;
mod failpoints;
mod index;
mod isolation;
mod maintenance;
mod media;
mod medium;
mod open;
mod options;
mod pairs;
#[allow(unsafe_code)]
mod raw;
#[cfg(feature = "replication")]
mod repeat;
#[cfg(feature = "replication")]
mod replica;
mod rows;
mod salvaged;
mod scan;
mod space;
mod stats;
mod store;
mod table;
mod threads;
mod time;
mod traits;
mod txn;
mod upkeep;
mod versions;
mod writers;

pub use ::tx::{Isolation, Keys};
pub use bulk::backup::{Backup, restore};
pub use bulk::check::{Checked, Problem};
pub use bulk::feed::{Changed, Changes};
pub use bulk::load::{Loaded, Loader};
pub use error::{ConflictWith, DecodeError, Error, Key, Result};
#[cfg(not(feature = "failpoints"))]
use failpoints::Step;
#[cfg(feature = "failpoints")]
pub use failpoints::{Step, at_next_commit, hold_log};
pub use media::key::{KEY_MAX, VALUE_MAX};
pub use media::regions::{NAME, REGION_KIND};
pub use options::{Durability, Opening, Options, Part};
pub use pairs::Pairs;
#[cfg(feature = "replication")]
pub use replica::follower::{Follower, FollowerStatus, NotPromoted};
#[cfg(feature = "replication")]
pub use replica::steward::{
    CopyStatus, LeaderStatus, Steward, Transfer, ask_to_join, ask_to_remove, ask_to_transfer, leader_status,
};
pub use salvaged::{CutLog, Salvaged};
pub use stats::Stats;
pub use store::{Batch, Snapshot, Store};
#[cfg(feature = "serde")]
pub use table::Json;
pub use table::{
    Entries, KeyCode, KeyOf, KeyRange, Plain, PrefixOf, Reader, TABLE_NAME_MAX, Table, TableOn, ValueCode,
};
pub use time::Timestamp;
pub use txn::later::Commit;
pub use txn::scan::{Pair, Scan};
pub use txn::transaction::Transaction;
pub use writers::work::Stage;
