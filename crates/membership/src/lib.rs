//! The leader of a replicated log and the addresses of its copies, agreed on through etcd.
//!
//! Copies announce their addresses; candidates stand for leadership; at most one is leader at a time, and knows by its own clock when it no longer
//! is. Each leadership has a *term*, higher than every earlier one: a fencing number, for those that take orders from leaders to refuse those of
//! an old one. All calls block; what waits for the network is a thread of this crate's own.
//!
//! # What is promised
//!
//! * While [`Leadership::is_held`] says true, no other leader has been elected. It costs a look at the clock. A process that was stopped, a machine that slept,
//!   a leader that etcd cannot hear: each finds out by itself, before etcd may elect another, and false stays false.
//! * Between that look and whatever is done because of it time passes, and an operator may delete a leader's key. So the term goes with every order,
//!   and the machine that carries it out refuses terms below the highest it has seen.
//! * Terms rise for as long as etcd keeps its history. One that was restored from a backup begins again from there; a process that is connected sees it
//!   ([`Error::HistoryLost`]).
//!
//! # In etcd
//!
//! | key | value | |
//! |---|---|---|
//! | `PREFIX/copies/NAME` | `{"name":…,"address":…}` | bound to a lease that its process renews |
//! | `PREFIX/leader` | the same, of the leader | likewise; the revision that created it is the term |
//! | `PREFIX/successor` | a name | bound to a lease that ends: [`Members::expect_successor`] |
//! | `PREFIX/said/NAME` | a text | put once, and stays: [`Members::declare`] |
//! | `PREFIX/registers/NAME` | opaque | replaced by compare-and-swap on its revision |
//! | `PREFIX/registers/NAME.sessions/MACHINE` | nothing | its revision is the machine's session |
//!
//! A member that serves clients says where with a further field, `"serves"`; one that cannot do its part says why with another, `"trouble"` ([`Announcement::tell`]).
//!
//! # The way of a call
//!
//! | module | what it does with it |
//! |---|---|
//! | `members` | [`Members::connect`], [`Members::copies`], [`Members::leader`], and the way to all below |
//! | `announcement` | [`Members::announce`]: a copy's key, put again when an outage of etcd has cost the lease |
//! | `campaign`, `candidate` | [`Members::campaign`]: carries out what the candidate's state machine says |
//! | `leadership`, `tenure` | what the elected has; what it may look at from any thread |
//! | `keeper`, `holding` | carries out what the lease's state machine says, until it is over |
//! | `watch` | [`Members::watch_leader`] |
//! | `register` | [`Members::register`]: a value that is replaced by compare-and-swap, in sessions |
//! | `member`, `inner` | the processes that take part, as values of etcd; what all of these share: etcd, the thread, the keys |
//! | `error`, `why`, `arguments` | [`Error`]; [`Why`] something is over; what is refused before anything is sent |
//! | `access`, `connection` | how etcd lets this program in; the one connection, and the log-in |
//! | `etcd`, `verdict` | one request, at the member that answered last; what its error says about asking again |
//! | `runtime`, `clock` | the thread; the clock that goes on while the machine sleeps |
//!
//! ```no_run
//! # fn main() -> membership::Result<()> {
//! use std::time::Duration;
//! use membership::{Member, Members};
//!
//! let etcd = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"];
//! let members = Members::connect(&etcd, "/cairn/orders", Duration::from_secs(3))?;
//! let me = Member::new("b", "10.0.0.2:7000");
//! let announcement = members.announce(&me, Duration::from_secs(10))?; // until it is dropped
//!
//! let leadership = members.campaign(&me, Duration::from_secs(10), Duration::MAX)?;
//! println!("leader of term {}, of {:?}", leadership.term(), members.copies()?);
//! while leadership.is_held() {
//!     // accept a record, with the term
//! }
//! # drop(announcement); Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod access;
mod announcement;
mod arguments;
mod campaign;
mod candidate;
mod clock;
mod connection;
mod error;
mod etcd;
mod holding;
mod inner;
mod keeper;
mod leadership;
mod member;
mod members;
mod register;
mod runtime;
#[cfg(test)]
mod sim;
mod tenure;
mod verdict;
mod watch;
mod why;

pub use access::Access;
pub use announcement::Announcement;
pub use error::{Error, Result};
pub use leadership::Leadership;
pub use member::{Leader, Member};
pub use members::Members;
pub use register::{Held, Register, Swapped};
pub use tenure::Tenure;
pub use watch::{LeaderWatch, Seen};
pub use why::Why;
