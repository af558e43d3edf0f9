//! Providers of libfabric, by name.

/// Which of libfabric's providers, and how.
#[derive(Clone, Debug)]
pub struct Provider {
    /// By libfabric's name: `tcp`, `shm`, `verbs`.
    pub name: String,
    /// Its kind of endpoints. The end that listens decides.
    pub endpoint: Endpoint,
    /// The address of the own device, as libfabric takes it. Without it: for connected endpoints the address that the peer connected to; else the provider's choice.
    pub node: Option<String>,
    /// Each operation waits until the one before is done, as where the provider does not keep their order.
    pub wait_for_each: bool,
}

/// Kinds of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Endpoint {
    /// Connected ones if the provider has them, or datagrams.
    #[default]
    Any,
    /// `FI_EP_MSG`.
    Connected,
    /// `FI_EP_RDM`.
    Datagram,
}

impl Provider {
    /// The provider of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), endpoint: Endpoint::Any, node: None, wait_for_each: false }
    }
}
