//! Takes connections at an address.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::member::{Member, Settings};
use crate::session::{Counters, Shared, run};

/// Most connections at a time.
const CONNECTIONS_MAX: u64 = 512;
/// How soon a thread looks whether the service ends.
const LOOK: Duration = Duration::from_millis(50);

/// What has happened since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Of all kinds.
    pub requests: u64,
    /// Told to ask elsewhere, or later.
    pub moved: u64,
    /// Answered here while this was the tail, and not the head.
    pub reads_at_tail: u64,
    /// Told that it is not known whether it happened.
    pub unknown: u64,
}

/// A map that is served, until it is dropped.
pub struct Service<M: Member> {
    shared: Arc<Shared<M>>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl<M: Member> std::fmt::Debug for Service<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<M: Member> Service<M> {
    /// Serves a machine's map to clients that connect here.
    ///
    /// # Errors
    /// The system gives no thread, or has something against the socket.
    pub fn start(member: M, listener: TcpListener, settings: Settings) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let counters = Counters::default();
        let shared =
            Arc::new(Shared { member, settings, counters, ends: AtomicBool::new(false), early: Mutex::new(()) });
        let all = shared.clone();
        let thread =
            std::thread::Builder::new().name("chain-clients".to_owned()).spawn(move || listen(&listener, &all))?;
        Ok(Self { shared, address, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The machine.
    #[must_use]
    pub fn member(&self) -> &M {
        &self.shared.member
    }

    /// What has happened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counters = &self.shared.counters;
        let all = [&counters.requests, &counters.moved, &counters.reads_at_tail, &counters.unknown];
        let [requests, moved, reads_at_tail, unknown] = all.map(|counter| counter.load(Relaxed));
        Counts { requests, moved, reads_at_tail, unknown }
    }
}

impl<M: Member> Drop for Service<M> {
    /// Requests that are under way are answered before; connections end then, and those whose clients do not take their replies, too.
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread of a service has panicked");
        }
    }
}

fn listen<M: Member>(listener: &TcpListener, shared: &Shared<M>) {
    let open = &shared.counters.connections;
    std::thread::scope(|threads| {
        while !shared.ends.load(Relaxed) {
            match listener.accept() {
                Ok((mut stream, _)) if open.load(Relaxed) >= CONNECTIONS_MAX => {
                    // A client that does not read it is not waited for: it fits into the socket's buffer.
                    drop(stream.write_all(b"-ERR max number of clients reached; end one, or come again later\r\n"));
                }
                Ok((stream, from)) => {
                    open.fetch_add(1, Relaxed);
                    threads.spawn(move || {
                        if let Err(error) = serve(shared, stream) {
                            tracing::debug!(%error, %from, "a client's connection has ended");
                        }
                        open.fetch_sub(1, Relaxed);
                    });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK / 10),
                Err(error) => {
                    tracing::warn!(%error, "no client's connection can be taken");
                    std::thread::sleep(LOOK);
                }
            }
        }
    });
}

fn serve<M: Member>(shared: &Shared<M>, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))?;
    run(shared, &mut stream)
}
