//! Networks of real processes, for tests: hosts that can be cut off from each other, processes that can be stopped and killed.
//!
//! A host is a network namespace with an address of its own; a bridge in a further namespace joins them, so the machine's own network is neither used nor
//! changed, and two networks may have the same addresses. Processes and sockets are of the host where they were made; a test's own threads reach a
//! host from [`Host::inside`]. A cut drops packets where they arrive, silently, as a broken network does: connections stay and stall. After [`Net::heal`] a connection goes
//! on when its next retransmission is due, which may be as long again as the cut was.
//!
//! | module | |
//! |---|---|
//! | `net` | makes the hosts and what joins them; cuts |
//! | `host` | what runs on one of them |
//! | `process` | a child that can be stopped and killed |
//! | `names` | names that no other process has; what dead ones have left is swept |
//! | `ip` | runs `ip` and `iptables` |
//! | `certificates` | for tests of TLS: runs `openssl` |
//!
//! It needs root, Linux' network namespaces, and the commands `ip` and `iptables`. Where there is none of that, a test says so and passes:
//!
//! ```
//! use std::process::Command;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Some(net) = testnet::Net::or_say_why(2) else { return Ok(()) };
//! let listener = net.host(0).inside(|| std::net::TcpListener::bind((net.host(0).addr(), 7000)))??;
//! net.cut(0, 1)?;
//! let mut other = net.host(1).spawn(Command::new("sleep").arg("1000"))?;
//! other.pause()?;
//! net.heal()?;
//! # drop(listener); Ok(()) } // the process is killed and the hosts are removed
//! ```

#![forbid(unsafe_code)]

mod certificates;
mod error;
mod host;
mod ip;
mod names;
mod net;
mod process;

pub use certificates::Certificate;
pub use error::{Error, Result};
pub use host::Host;
pub use net::Net;
pub use process::Process;
