//! Where peers connect to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Provider, meeting};
use crate::tcp::listener::Greeter;
use crate::{Connection, Options, Result, Window, clock};

/// Waits for peers. Everything happens in [`accept`](Self::accept).
pub struct Listener {
    greeter: Greeter,
    provider: Provider,
    window: Option<Arc<dyn Window>>,
}

impl Listener {
    /// Listens at `address` (host and port, 0 for any port), over TCP: endpoints meet by that. Every peer gets to `window`, as the options, and later its
    /// connection's access, allow.
    ///
    /// # Errors
    /// The address is not to be had; the options trust no peer; the provider is not there.
    pub fn bind(address: &str, options: Options, provider: Provider, window: Option<Arc<dyn Window>>) -> Result<Self> {
        let greeter = Greeter::bind(address, options)?;
        // Found again for each peer: now, to say early that it is not there.
        provider.find(None)?;
        Ok(Self { greeter, provider, window })
    }

    /// The next peer; none if there was none within `wait`. Those that do not get through are dropped, with a warning in the log.
    ///
    /// # Errors
    /// The system gives no socket.
    pub fn accept(&mut self, wait: Duration) -> Result<Option<Connection>> {
        let deadline = clock::after(wait);
        loop {
            let left = deadline.map_or(Duration::MAX, clock::until);
            let Some(greeted) = self.greeter.accept(left)? else { return Ok(None) };
            let peer = greeted.peer.clone();
            match meeting::accept(greeted, &self.greeter.options, &self.provider, self.window.clone()) {
                Ok(connection) => return Ok(Some(connection)),
                Err(error) => tracing::warn!(peer, %error, "a peer does not get through"),
            }
        }
    }

    /// The address of its connection of TCP, with the port that was found.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.greeter.address()
    }
}
