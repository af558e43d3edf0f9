//! One host, and what runs on it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::names::PLACE;
use crate::{Error, Process, Result};

/// A network namespace with an address.
#[derive(Debug)]
pub struct Host {
    name: String,
    addr: Ipv4Addr,
    namespace: File,
}

impl Host {
    pub(crate) fn open(name: String, addr: Ipv4Addr) -> Result<Self> {
        let path = Path::new(PLACE).join(&name);
        let namespace = File::open(&path).map_err(|why| Error::system("open", path.display().to_string(), why))?;
        Ok(Self { name, addr, namespace })
    }

    /// Where the others reach it.
    #[must_use]
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    /// Of the namespace, as `ip netns exec NAME` takes it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does something on this host, in a thread of its own: sockets that it makes, processes and threads that it starts, are of this host and stay there.
    ///
    /// # Errors
    /// The thread cannot be moved.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> Result<T> {
        let result = std::thread::scope(|scope| {
            let moved = scope.spawn(|| {
                move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(what())
            });
            moved.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        result.map_err(|why: rustix::io::Errno| Error::system("move a thread to", &*self.name, why))
    }

    /// Starts a process on this host. It is killed when what is returned is dropped.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Process> {
        let program = command.get_program().to_string_lossy().into_owned();
        // A child is of the namespace of the thread that starts it.
        let child = self.inside(|| command.spawn())?.map_err(|why| Error::system("start", &program, why))?;
        Ok(Process::new(child, program))
    }
}
