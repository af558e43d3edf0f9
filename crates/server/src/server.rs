//! The server: listens, hands connections to its threads, stops without losing what was acknowledged.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::clock::now;
use crate::commands::COMMANDS;
use crate::config::Config;
use crate::engine::{self, Engine};
use crate::failpoints::Failpoints;
use crate::line::Socket;
use crate::serve::{Accepted, Protocol};
use crate::shared::Shared;
use crate::users::Users;

/// Why a server does not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address or a file cannot be used.
    #[error("{what}: {source}; choose another one, or end the process that uses it")]
    Listen {
        /// Where.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// Every client that reaches it could read and write everything.
    #[error(
        "{address} is reached from other machines, and needs no password; set one (--password-file), listen on 127.0.0.1, or say --open"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// Nowhere to listen.
    #[error("the server would listen nowhere; give it an address (--redis)")]
    Nowhere,
    /// TLS was asked for, and cannot be had.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system allows so few files that no client could be served.
    #[error(
        "the system allows {allowed} open files, and the server needs {needed} for one client; raise the limit (ulimit -n)"
    )]
    Files {
        /// How many it allows.
        allowed: u64,
        /// How many one client needs, with the store and the threads.
        needed: u64,
    },
    /// No thread is to be had.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// The store's own error.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Error {
    /// What the operator can do about it.
    pub fn kind(&self) -> pmem::ErrorKind {
        match self {
            Self::Listen { .. } | Self::Files { .. } | Self::Thread(_) => pmem::ErrorKind::System,
            Self::Open { .. } | Self::Nowhere | Self::Tls(_) => pmem::ErrorKind::Misuse,
            Self::Engine(error) => error.kind(),
        }
    }

    /// What to do next: [`pmem::ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }
}

/// A server that runs. Dropping it stops it, too, without waiting.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    redis: Vec<SocketAddr>,
    memcached: Vec<SocketAddr>,
    http: Option<SocketAddr>,
}

/// What listens.
enum Listener {
    Tcp(std::net::TcpListener, Protocol),
    Unix(std::os::unix::net::UnixListener),
}

impl Server {
    /// Serves `engine` as `config` says; returns when all addresses are listened on.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Open`], [`Error::Tls`]; those of the store.
    pub fn start(config: Config, engine: Box<dyn Engine>) -> Result<Self, Error> {
        Self::begin(config, engine, Failpoints::default())
    }

    /// As [`start`](Self::start), and leaves a step out.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "failpoints")]
    pub fn start_without(step: crate::Step, config: Config, engine: Box<dyn Engine>) -> Result<Self, Error> {
        Self::begin(config, engine, Failpoints(Some(step)))
    }

    fn begin(config: Config, engine: Box<dyn Engine>, failpoints: Failpoints) -> Result<Self, Error> {
        let commands = COMMANDS.forms();
        let users = Users::load(&*engine, commands, config.password.as_deref())?;
        if config.redis.is_empty()
            && config.redis_tls.is_empty()
            && config.unix.is_none()
            && config.memcached.is_empty()
        {
            return Err(Error::Nowhere);
        }
        refuse_open(&config, users.whoever().is_some())?;
        let tls = match &config.tls {
            Some(files) => Some(crate::tls::acceptor(files).map_err(Error::Tls)?),
            None if config.redis_tls.is_empty() => None,
            None => return Err(Error::Tls("no certificate was given; say --tls-certificate and --tls-key".to_owned())),
        };
        let mut config = config;
        let threads = match config.threads {
            // Clients of a busy server want processors, too, and the store some of one.
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
            count => count,
        };
        config.settings.connections = files_for(config.settings.connections, threads)?;
        let shared =
            Shared::start(commands, engine, config.settings.clone(), users, threads, config.group.clone(), failpoints)?;
        if !config.ignore_kept {
            crate::commands::load_kept(&shared)?;
        }
        let mut listeners = Vec::new();
        let mut bound = |addresses: &[SocketAddr], protocol: &Protocol| -> Result<Vec<SocketAddr>, Error> {
            let mut found = Vec::new();
            for address in addresses {
                let (listener, at) = listen(*address)?;
                listeners.push(Listener::Tcp(listener, protocol.clone()));
                found.push(at);
            }
            Ok(found)
        };
        let mut redis = bound(&config.redis, &Protocol::Redis(None))?;
        if let Some(tls) = tls {
            redis.extend(bound(&config.redis_tls, &Protocol::Redis(Some(tls)))?);
        }
        let memcached = bound(&config.memcached, &Protocol::Memcached)?;
        if let Some(path) = &config.unix {
            listeners.push(Listener::Unix(listen_unix(path)?));
        }
        let http = config.http.map(listen).transpose()?;
        *shared.listens.lock() = redis.iter().map(ToString::to_string).collect();
        let mut this = Self { shared, threads: Vec::new(), redis, memcached, http: http.as_ref().map(|(_, at)| *at) };
        this.serve(threads, listeners, http.map(|(listener, _)| listener))?;
        Ok(this)
    }

    fn serve(
        &mut self,
        threads: usize,
        listeners: Vec<Listener>,
        http: Option<std::net::TcpListener>,
    ) -> Result<(), Error> {
        let mut senders = Vec::new();
        for at in 0..threads {
            let (send, receive) = mpsc::unbounded_channel();
            let (shared, recorder) = (self.shared.clone(), self.shared.recorders[at].clone());
            self.spawn(format!("cairn-serve-{at}"), move || crate::serve::run(shared, recorder, receive))?;
            senders.push(send);
        }
        let shared = self.shared.clone();
        self.spawn("cairn-accept".to_owned(), move || async move {
            for listener in listeners {
                let (shared, senders) = (shared.clone(), senders.clone());
                tokio::task::spawn_local(accept(listener, shared, senders));
            }
            drop(senders);
            if shared.follows().is_none() {
                tokio::task::spawn_local(crate::reaper::run(shared.clone()));
                tokio::task::spawn_local(crate::expired::run(shared.clone()));
                tokio::task::spawn_local(crate::evict::run(shared.clone()));
                tokio::task::spawn_local(crate::tracked::run(shared.clone()));
            }
            if let Some(http) = http {
                tokio::task::spawn_local(crate::http::serve(http, shared.clone()));
            }
            drop(shared.stop.subscribe().wait_for(|stop| *stop).await);
        })
    }

    /// A thread that runs what `future` makes, in a runtime of its own.
    fn spawn<F: Future<Output = ()>>(
        &mut self,
        name: String,
        future: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let local = tokio::task::LocalSet::new();
            runtime.block_on(local.run_until(future()));
        });
        self.threads.push(thread.map_err(Error::Thread)?);
        Ok(())
    }

    /// Where Redis' protocol is spoken: the addresses of the configuration, with the ports that were found for 0.
    #[must_use]
    pub fn redis(&self) -> &[SocketAddr] {
        &self.redis
    }

    /// Where memcached's are.
    #[must_use]
    pub fn memcached(&self) -> &[SocketAddr] {
        &self.memcached
    }

    /// Where metrics are.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// How many connections it takes at one time: fewer than the configuration says if the system allows no more files.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.settings().connections
    }

    /// Whether it is to stop: a client said `SHUTDOWN`, or [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.shared.stop.borrow()
    }

    /// Takes the users over that are in the store now: for a server whose store another one writes.
    ///
    /// # Errors
    /// Those of reading it; the users stay as they were.
    pub fn renew_users(&self) -> Result<(), Error> {
        Ok(self.shared.users.renew(&*self.shared.engine)?)
    }

    /// Why writes are refused now, if they are: the store found no room within the last minute, or takes none until it is opened again.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<String> {
        self.shared.takes_writes().err()
    }

    /// Accepts no connection any more, lets every connection finish what it has asked for, and ends them.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Waits until the server has stopped, and closes the store.
    ///
    /// # Errors
    /// Those of closing the store; it is then recovered when it is opened again.
    pub fn join(mut self) -> Result<(), Error> {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server has panicked");
            }
        }
        let shared = self.shared.clone();
        drop(self);
        shared.refusals.end();
        match Arc::into_inner(shared) {
            Some(shared) => Ok(shared.engine.close()?),
            None => Err(engine::Error::Other("a connection is still there".to_owned()).into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Has the system allow as many files as so many connections need; fewer connections if it does not.
fn files_for(connections: usize, threads: usize) -> Result<usize, Error> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // For the store, the copies of its log, listeners, the status page; and those that each thread waits with, the one that accepts among them.
    let others = 44 + 4 * (threads as u64 + 1);
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = (connections as u64).saturating_add(others);
    if limit.current.is_some_and(|now| now < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        setrlimit(Resource::Nofile, limit).unwrap_or(()); // what there is then is looked at
    }
    let Some(allowed) = getrlimit(Resource::Nofile).current.filter(|now| *now < wanted) else {
        return Ok(connections);
    };
    match allowed.saturating_sub(others) {
        0 => Err(Error::Files { allowed, needed: others + 1 }),
        fewer => Ok(fewer as usize),
    }
}

fn refuse_open(config: &Config, anybody: bool) -> Result<(), Error> {
    let public = |address: &&SocketAddr| !address.ip().is_loopback();
    // Memcached's protocols know no passwords.
    let guarded = config.redis.iter().chain(&config.redis_tls).filter(|_| anybody).chain(&config.memcached);
    match guarded.chain(&config.http).find(public) {
        Some(address) if !config.open => Err(Error::Open { address: *address }),
        _ => Ok(()),
    }
}

/// Connections that may wait to be accepted; the system allows `net.core.somaxconn` at most. With the usual 128, of thousands that come at once many try again after a second.
const BACKLOG: i32 = 4096;

fn listen(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Listen { what: address.to_string(), source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    rustix::net::listen(&listener, BACKLOG).map_err(|e| failed(e.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    Ok((listener, at))
}

fn listen_unix(path: &Path) -> Result<std::os::unix::net::UnixListener, Error> {
    let failed = |source| Error::Listen { what: path.display().to_string(), source };
    // A socket that no process listens on any more is left by a crash. Anything else is not this server's.
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket());
    if is_socket
        && let Err(error) = std::os::unix::net::UnixStream::connect(path)
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
    rustix::net::listen(&listener, BACKLOG).map_err(|e| failed(e.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Hands connections to the thread that has fewest.
async fn accept(listener: Listener, shared: Arc<Shared>, threads: Vec<mpsc::UnboundedSender<Accepted>>) {
    let mut stop = shared.stop.subscribe();
    let accept = async {
        match listener {
            Listener::Tcp(listener, protocol) => {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                loop {
                    let socket = match listener.accept().await {
                        Ok((socket, _)) => socket,
                        Err(error) => {
                            pause(&error).await;
                            continue;
                        }
                    };
                    drop(socket.set_nodelay(true));
                    if let Err(error) = keep_alive(&socket) {
                        tracing::warn!("a peer that vanishes will not be noticed: {error}");
                    }
                    let name = |address: io::Result<SocketAddr>| {
                        address.map_or_else(|_| "?:0".to_owned(), |at| at.to_string())
                    };
                    let (addr, laddr) = (name(socket.peer_addr()), name(socket.local_addr()));
                    let Ok(socket) = socket.into_std() else { continue };
                    hand(Socket::Tcp(socket), addr, laddr, &protocol, &shared, &threads);
                }
            }
            Listener::Unix(listener) => {
                let Ok(listener) = UnixListener::from_std(listener) else { return };
                loop {
                    let socket = match listener.accept().await {
                        Ok((socket, _)) => socket,
                        Err(error) => {
                            pause(&error).await;
                            continue;
                        }
                    };
                    let path = socket
                        .local_addr()
                        .ok()
                        .and_then(|at| at.as_pathname().map(|path| format!("{}:0", path.display())));
                    let name = path.unwrap_or_default();
                    let Ok(socket) = socket.into_std() else { continue };
                    hand(Socket::Unix(socket), name.clone(), name, &Protocol::Redis(None), &shared, &threads);
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Seconds after which a connection on which nothing comes is asked whether its peer is there; then three times more, in the same time. As Redis has it.
const KEEP_ALIVE: u32 = 300;

/// Peers that vanish without a word are noticed, of those that subscribe or wait for ever as well.
fn keep_alive(socket: &impl rustix::fd::AsFd) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    use std::time::Duration;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(KEEP_ALIVE.into()))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs((KEEP_ALIVE / 3).into()))?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

/// Too many open files, as a rule: others may end.
async fn pause(error: &io::Error) {
    tracing::warn!("a connection cannot be accepted: {error}");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

fn hand(
    mut socket: Socket,
    addr: String,
    laddr: String,
    protocol: &Protocol,
    shared: &Arc<Shared>,
    threads: &[mpsc::UnboundedSender<Accepted>],
) {
    let mut clients = shared.clients.lock();
    if clients.len() >= shared.settings().connections {
        drop(clients);
        shared.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        use io::Write;
        let text: &[u8] = match protocol {
            Protocol::Redis(_) => b"-ERR max number of clients reached\r\n",
            Protocol::Memcached => b"SERVER_ERROR Too many open connections\r\n",
        };
        // A client that does not take it at once does without.
        drop(match &mut socket {
            Socket::Tcp(socket) => socket.write(text),
            Socket::Unix(socket) => socket.write(text),
        });
        return;
    }
    let client = Client::new(shared.client_id(), addr, laddr, now());
    clients.insert(client.id, Arc::downgrade(&client));
    drop(clients);
    // Each in turn: connections of one client come together, and are much the same.
    let thread = client.id as usize % threads.len().max(1);
    if let Some(thread) = threads.get(thread) {
        drop(thread.send(Accepted { socket, client, protocol: protocol.clone() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_vanishes_is_noticed() {
        use rustix::net::sockopt;
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert_eq!(sockopt::socket_keepalive(&socket), Ok(false));
        keep_alive(&socket).expect("a socket of TCP takes it");
        assert_eq!(sockopt::socket_keepalive(&socket), Ok(true));
        let seconds = |time: std::time::Duration| time.as_secs();
        assert_eq!(sockopt::tcp_keepidle(&socket).map(seconds), Ok(300));
        assert_eq!(sockopt::tcp_keepintvl(&socket).map(seconds), Ok(100));
        assert_eq!(sockopt::tcp_keepcnt(&socket), Ok(3));
    }
}
