//! A one-sided transport: each end of a connection writes into and reads from the other's memory by offset, without a reply from there.
//!
//! What a user's program has in common with all backends:
//!
//! | module | what it is |
//! |---|---|
//! | `raw` | [`Window`]: the memory that a peer reaches; [`Memory`], a simple one |
//! | `access` | [`Access`]: what the peer may do with it now; taking it away is synchronous |
//! | `connection` | [`Sender`] and [`Receiver`], for two threads; [`Event`], what arrives |
//! | `wait`, `watch` | [`wait`]: one thread waits for several receivers; [`Watch`], by what it is woken |
//! | `options` | [`Options`]: how an end connects, and whom it trusts |
//! | `transport`, `provider` | [`Transport`]: by which backend; of libfabric, by which provider |
//! | `choice` | [`connect`], [`Listener`]: by whichever the options name |
//! | `limits` | what one operation takes: [`MESSAGE_MAX`], [`WRITE_MAX`], [`READ_MAX`], [`READS_MAX`] |
//! | `error` | [`Error`]; [`Reason`], why a connection is over |
//!
//! and the backends:
//!
//! | module | what it is |
//! |---|---|
//! | [`sim`] | in this process, in virtual time, from a seed: delays, partitions, resets, crashes, torn writes |
//! | [`tcp`] | over TCP, with or without TLS |
//! | `libfabric` | RDMA, or what libfabric has instead (a feature; Debian's libfabric-dev) |
//!
//! Further ones are held to the same by the checks of the crate `fabric-conformance`. What those between processes share: `auth`, proving to know a secret; `wire`, frames as bytes; `intake`, what an end does with them; `reads`, `answers`: those
//! that wait for answers, at either end; `target`, what is checked before a window is touched; `clock`, `poll`: time, and waiting for descriptors. `raw` has all unsafe code.
//!
//! # What every backend promises
//!
//! * What one [`Sender`] hands over takes effect in order. [`Event::Written`] comes after all bytes of its write, and of all writes before it, are in the window.
//! * Operations may wait at this end until [`Sender::flush`], and no longer than that.
//! * Whatever is queued has a bound. A peer that does not take what is sent ends the connection, after a time-out.
//! * What a peer may not do ends the connection. Both ends are told.
//! * A connection that is over stays over. What was under way may have happened, in part too: a write that was cut off leaves any of its bytes behind.
//! * An end makes progress while its [`Receiver`] is polled: that is where a software backend writes into the window and answers reads.
//!
//! ```
//! # fn main() -> fabric::Result<()> {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use fabric::{Event, Memory, Rights, Window, sim};
//!
//! let network = sim::Network::new(1, sim::Faults::none());
//! let (primary, backup) = (network.node(), network.node());
//! let log = Arc::new(Memory::new(4096));
//! let (mut to_backup, mut at_backup) = network.connect(primary, backup, Some(log.clone()), None)?;
//! at_backup.access.set(Rights::Write);
//!
//! to_backup.sender.write_imm(64, b"17 apples", 9)?;
//! to_backup.sender.flush()?;
//! assert_eq!(network.step(), Some(backup));
//! assert_eq!(at_backup.receiver.poll(Duration::ZERO)?, Some(Event::Written { imm: 9 }));
//! let mut found = [0; 9];
//! log.read(64, &mut found)?;
//! assert_eq!(&found, b"17 apples");
//! # Ok(()) }
//! ```

#![deny(unsafe_code)]

mod access;
mod answers;
mod auth;
mod choice;
mod clock;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod intake;
#[cfg(feature = "libfabric")]
pub mod libfabric;
mod limits;
mod options;
mod poll;
#[cfg(feature = "libfabric")]
mod provider;
#[allow(unsafe_code)]
mod raw;
mod reads;
pub mod sim;
mod target;
pub mod tcp;
mod transport;
mod wait;
mod watch;
mod wire;

pub use access::{Access, Rights};
pub use choice::{Listener, connect};
pub use connection::{Connection, Event, Receiver, Sender};
pub use error::{Error, Reason, Result, Violation};
pub use limits::{MESSAGE_MAX, READ_MAX, READS_MAX, WRITE_MAX};
pub use options::{Options, Secret, Tls};
pub use raw::{Address, Memory, Window};
pub use transport::Transport;
pub use wait::wait;
pub use watch::{Ready, Watch};
