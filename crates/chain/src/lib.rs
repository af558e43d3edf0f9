//! Object transactions on several machines, along a chain that changes its heaps in place (Kamino-Tx §5): the protocol, as a state machine without clock, network, medium or heap; what
//! drives it on real media, with the head as an engine; and processes. What there is and what not is in `docs/chain.md`.
//!
//! # The way of a transaction
//!
//! | module | what it does with it |
//! |---|---|
//! | [`Event`], [`Command`] | what goes into a [`Replica`], and what comes out |
//! | `replica::head`, `locks` | admits it while its objects are free, draws its number, applies it, and frees the objects when tail and backup have it |
//! | `replica::records`, `queue` | its record: persistent, forwarded, executed, acknowledged, cleaned up, retired |
//! | `replica::reading` | reads at head and tail, under a lease |
//! | `replica::views`, [`View`] | members go |
//! | `replica::joining` | members come |
//! | `replica::start` | a process starts on what an earlier one has left |
//! | [`clients`] | a request that comes twice is carried out once |
//! | [`Medium`] | note, queue and heap in a pool: what is to be done on it, one barrier for all that waits for one |
//! | `entries`, `writes` | a record as bytes: in the queue, and the ranges that it changes |
//! | `image`, `blocks`, `size` | the heap's bytes, where there is room in it, and how long blocks are |
//! | [`Driven`] | state machine and medium on one thread, for tests |
//! | [`Node`], [`NodeTx`] | the same for many threads; the head's transactions, and the tail's, which only read: an engine of `tx` |
//! | `process` | a node with TCP and etcd (feature `process`) |
//! | `failpoints`, `rules`, `simulate` | for tests: each rule left out; each rule by itself; whole chains with all that goes wrong |
//!
//! # What drives it
//!
//! A program has a [`Node`], or a `process::Process`. Other code that drives a replica has a thread that gives it events, one at a time, and carries out its commands in their order. Each command says which event answers it, if any does; a command is not waited for.
//!
//! * *Messages* may be lost, doubled, and reordered: a replica says again, at each [`Event::Tick`], what it does not know to be heard.
//! * *Writes* are in any state after a power failure until the barrier behind them is over; entries and notes have checksums, so they are there or not.
//! * *Views* come from a service that is linearizable, and is watched: a member that serves does not ask for them. It installs no proposal of a process whose machine has opened a later session, and does not let a replica that was a member and is none
//!   renew a lease.
//!
//! ```
//! use chain::{Command, Event, Found, Mode, Moment, Object, Replica, ReplicaId, TransactionId, View, ViewId};
//!
//! let id = ReplicaId { machine: 1, incarnation: 0 };
//! let (mut head, first) = Replica::start(Found::new(id));
//! assert_eq!(first, [Command::FetchView]);
//!
//! let now = Moment(5);
//! let alone = View { id: ViewId(1), members: vec![id], f: 0, mode: Mode::Values };
//! let [Command::Persist(barrier)] = head.step(now, Event::View(alone))[..] else { panic!() };
//! let [Command::Recover { .. }] = head.step(now, Event::Persisted(barrier))[..] else { panic!() };
//! head.step(now, Event::Recovered);
//! head.step(now, Event::Lease { id, until: Moment(1000) });
//!
//! let transaction = TransactionId(1);
//! let lock = Event::Lock { transaction, slot: 0, reads: vec![], writes: vec![Object(4096)] };
//! assert_eq!(head.step(now, lock), [Command::Locked(transaction)]);
//! let commit = head.step(now, Event::Commit(transaction));
//! assert!(matches!(&commit[..], [Command::Commit(_, entry)] if entry.number.n == 1));
//! head.step(now, Event::Committed(1));
//! // Its own tail: acknowledged when nobody reads under an earlier view any more.
//! let commands = head.step(now, Event::LeasesEnded(ViewId(1)));
//! assert!(commands.contains(&Command::Acknowledged(1)));
//! ```

#![forbid(unsafe_code)]

mod blocks;
pub mod clients;
mod clock;
mod drive;
mod entries;
mod error;
mod event;
mod failpoints;
mod image;
mod locks;
mod medium;
mod message;
mod node;
#[cfg(feature = "process")]
pub mod process;
mod queue;
mod record;
mod replica;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulate;
mod size;
mod types;
mod view;
mod writes;

pub use drive::Driven;
pub use error::{Error, Result};
pub use event::{Command, Event, Found, Refusal};
#[doc(hidden)]
pub use medium::Omission;
pub use medium::{Medium, Sizes};
pub use message::{Body, Message};
pub use node::{Node, NodeTx, Outside, Status, Ticket};
pub use record::{Entry, Record};
pub use replica::{IN_FLIGHT_MAX, Progress, QUEUE_MAX, Replica, Stage};
pub use types::{Barrier, Moment, Number, Object, ReadId, ReplicaId, TransactionId, ViewId};
pub use view::{Mode, View};
