//! Connecting and listening by the backend that the [`Options`] name, so that what does either is written once for all of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "libfabric")]
use crate::libfabric;
use crate::{Connection, Options, Result, Transport, Window, tcp};

/// Connects by the transport of the options to a [`Listener`] of the same, at `address` (host and port). The peer may do with `window` what the options, and later the
/// connection's access, allow.
///
/// # Errors
/// There is no way there; the ends do not trust each other; the options trust no peer; the provider is not there.
pub fn connect(address: &str, options: &Options, window: Option<Arc<dyn Window>>) -> Result<Connection> {
    match &options.transport {
        Transport::Tcp => tcp::connect(address, options, window),
        #[cfg(feature = "libfabric")]
        Transport::Libfabric(provider) => libfabric::connect(address, options, provider, window),
    }
}

/// Waits for peers, by the transport of its options.
pub struct Listener(Backend);

enum Backend {
    Tcp(tcp::Listener),
    #[cfg(feature = "libfabric")]
    Libfabric(libfabric::Listener),
}

impl Listener {
    /// Listens at `address` (host and port, 0 for any port). Every peer gets to `window`, as the options, and later its connection's access, allow.
    ///
    /// # Errors
    /// The address is not to be had; the options trust no peer; the provider is not there.
    pub fn bind(address: &str, options: Options, window: Option<Arc<dyn Window>>) -> Result<Self> {
        let backend = match options.transport.clone() {
            Transport::Tcp => Backend::Tcp(tcp::Listener::bind(address, options, window)?),
            #[cfg(feature = "libfabric")]
            Transport::Libfabric(provider) => {
                Backend::Libfabric(libfabric::Listener::bind(address, options, provider, window)?)
            }
        };
        Ok(Self(backend))
    }

    /// The next peer that has proved who it is; none if there was none within `wait`. Those that prove something else are dropped, with a warning in the log.
    ///
    /// # Errors
    /// The system gives no socket.
    pub fn accept(&mut self, wait: Duration) -> Result<Option<Connection>> {
        match &mut self.0 {
            Backend::Tcp(listener) => listener.accept(wait),
            #[cfg(feature = "libfabric")]
            Backend::Libfabric(listener) => listener.accept(wait),
        }
    }

    /// The address, with the port that was found.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        match &self.0 {
            Backend::Tcp(listener) => listener.address(),
            #[cfg(feature = "libfabric")]
            Backend::Libfabric(listener) => listener.address(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_say_how() {
        let options = Options { anyone: true, ..Options::default() };
        let mut listener = Listener::bind("127.0.0.1:0", options.clone(), None).unwrap();
        let address = listener.address().unwrap().to_string();
        std::thread::scope(|scope| {
            let near = scope.spawn(|| connect(&address, &options, None));
            assert!(listener.accept(Duration::from_secs(10)).unwrap().is_some());
            near.join().unwrap().unwrap();
        });
    }
}
