//! Over TCP: what runs everywhere. The system copies, and the target's [`Receiver`](crate::Receiver) puts what is written into its window.
//!
//! | module | what it is |
//! |---|---|
//! | `listener`, `greeting` | connecting, without threads: bounded in number and time until an end has proved who it is |
//! | `stream` | the socket, and TLS on it |
//! | `outgoing` | bytes that wait for the socket |
//! | `link` | what the halves of an end share |
//! | `ends` | the halves |
//!
//! An end must poll its receiver for its peer's writes to arrive and its peer's reads to be answered. Where one thread does both, sending and polling, it must
//! not hand over more than the sockets hold (some 100 KiB) while the peer's only thread does likewise: both would wait until the time-out.
//!
//! [`Sender::close`](crate::Sender::close) waits, up to the time-out, until the peer's system has taken everything. Dropping waits for nothing.

mod ends;
pub(crate) mod greeting;
mod link;
pub(crate) mod listener;
pub(crate) mod outgoing;
pub(crate) mod stream;

use std::net::ToSocketAddrs;
use std::sync::Arc;

pub use listener::Listener;

use crate::{Connection, Error, Options, Result, Window};

/// Connects to a listener at `address` (host and port). The peer may do with `window` what the options, and later the connection's access, allow.
///
/// # Errors
/// There is no way there; the ends do not trust each other; the options trust no peer.
pub fn connect(address: &str, options: &Options, window: Option<Arc<dyn Window>>) -> Result<Connection> {
    let greeted = connect_stream(address, options)?;
    ends::connection(greeted, options, window)
}

/// A stream to a peer that has proved who it is.
pub(crate) fn connect_stream(address: &str, options: &Options) -> Result<greeting::Greeted> {
    options.check()?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let mut last = Error::Unreachable { peer: address.into(), what: "the name has no address".into() };
    let addresses = address
        .to_socket_addrs()
        .map_err(|error| Error::Unreachable { peer: address.into(), what: error.to_string() })?;
    for candidate in addresses {
        match greeting::connect(candidate, host, options) {
            Ok(greeted) => return Ok(greeted),
            Err(error) => last = error,
        }
    }
    Err(last)
}
