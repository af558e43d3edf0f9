//! RDMA by libfabric: writes and reads are the device's, and the target's processor is only told.
//!
//! | module | what it is |
//! |---|---|
//! | `listener` | where peers connect to |
//! | `meeting` | two ends find each other's endpoints, over a connection of TCP on which they have proved who they are |
//! | `control` | that connection, which stays: it says why the other ends, and that a peer is gone |
//! | `link`, `state` | what the halves of an end share: one endpoint, under one lock |
//! | `desk` | what messages between the ends mean |
//! | `ends` | the halves |
//! | `shim.c`, `raw` | libfabric itself |
//!
//! # How
//!
//! Endpoints are connected ones (`FI_EP_MSG`: providers `tcp` and `verbs`) where the provider has them, and datagrams otherwise (`FI_EP_RDM`: `shm`; made so that
//! `efa` and `cxi` fit). A write that tells is `fi_writemsg` with `FI_REMOTE_CQ_DATA`. Where the provider does not keep the order of operations, each waits for the
//! one before.
//!
//! * **Credit.** An end has a fixed number of receives posted. What is sent, and what tells, uses up one each; the peer writes back how many it has taken, into a
//!   word of this end's memory. Without credit a sender waits, and finds the peer slow after the time-out.
//! * **Windows** with an [address](crate::Window::address) that the provider can register are reached by the device, once the peer has rights: it is told the key
//!   then. All others, and every operation that no key allows, goes as a message, and the target's software does it, or refuses.
//! * With **shm** all windows are reached by software, since no end could take away what it gave; and a process cannot connect with itself.
//!   A process that is killed leaves a file in `/dev/shm`, named by its number.
//! * **Taking rights away** closes the endpoint and deregisters the memory, under the lock of the end: then no device reaches it. Both ends are told
//!   [`Reason::Revoked`](crate::Reason::Revoked), and the peer before that the message of [`Access::withdraw`](crate::Access::withdraw), by the connection of TCP.
//!
//! # What is protected
//!
//! Only a peer that has proved that it knows the secret (or has a certificate) is told the endpoint's address, a token to connect with, and keys, which are
//! random where the provider lets choose. What travels between endpoints is as safe as their network: it is neither encrypted nor, with datagrams,
//! authenticated.

mod control;
mod desk;
mod ends;
mod link;
mod listener;
mod meeting;
mod state;

use std::sync::Arc;

pub use listener::Listener;

pub use crate::provider::{Endpoint, Provider};
use crate::raw::libfabric::{Device, Failure};
use crate::tcp::connect_stream;
use crate::{Connection, Error, Options, Result, Window};

impl Provider {
    /// The device, and whether its endpoints connect.
    fn find(&self, local: Option<&str>) -> Result<(Device, bool)> {
        let node = self.node.as_deref();
        if self.endpoint != Endpoint::Datagram {
            match Device::find(&self.name, true, node.or(local), None) {
                Ok(device) => return Ok((device, true)),
                Err(failure) if failure.is_no_provider() && self.endpoint == Endpoint::Any => {}
                Err(failure) => return Err(self.failed(failure)),
            }
        }
        let device = Device::find(&self.name, false, node, None).map_err(|failure| self.failed(failure))?;
        Ok((device, false))
    }

    fn failed(&self, Failure { what, code, text }: Failure) -> Error {
        Error::Provider { provider: self.name.clone(), what, code, text }
    }
}

/// Connects to a [`Listener`] of the same provider, at the address (host and port) of its connection of TCP.
///
/// # Errors
/// As for [`tcp::connect`](crate::tcp::connect); the provider is not there, or does not get through.
pub fn connect(
    address: &str,
    options: &Options,
    provider: &Provider,
    window: Option<Arc<dyn Window>>,
) -> Result<Connection> {
    let greeted = connect_stream(address, options)?;
    meeting::connect(greeted, options, provider, window)
}
