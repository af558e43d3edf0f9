//! What all shares that is made from one [`Members`](crate::Members): etcd, the thread that talks to it, and the keys.

use std::sync::Arc;
use std::time::Duration;

use crate::etcd::Etcd;
use crate::runtime::Runtime;
use crate::{Access, Result};

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) etcd: Arc<Etcd>,
    prefix: String,
    /// Longest that a call waits for etcd.
    pub(crate) timeout: Duration,
    pub(crate) runtime: Runtime,
}

impl Inner {
    /// Nothing is asked yet.
    pub(crate) fn start(access: Access, prefix: &str, timeout: Duration) -> Result<Self> {
        let etcd = Arc::new(Etcd::new(access, timeout));
        Ok(Self { etcd, prefix: prefix.to_owned(), timeout, runtime: Runtime::start(timeout)? })
    }

    pub(crate) fn leader_key(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    pub(crate) fn successor_key(&self) -> String {
        format!("{}/successor", self.prefix)
    }

    pub(crate) fn said_key(&self, name: &str) -> String {
        format!("{}/said/{name}", self.prefix)
    }

    pub(crate) fn register_key(&self, name: &str) -> String {
        format!("{}/registers/{name}", self.prefix)
    }

    pub(crate) fn copy_key(&self, name: &str) -> String {
        format!("{}/copies/{name}", self.prefix)
    }
}
