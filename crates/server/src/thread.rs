//! A thread that serves: its connections never leave it, so nothing they use in common needs a lock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::client::Client;
use crate::clock::now;
use crate::executor::Executor;
use crate::metrics::Recorder;
use crate::reactor::Desk;
use crate::request::Limits;
use crate::shared::Shared;

/// Bytes that are read at once.
const SCRATCH: usize = 64 << 10;
/// How long connections may take to end after they were told to.
const FAREWELL: Duration = Duration::from_secs(10);

/// What the connections of a thread share.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) executor: Executor,
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The limits of requests and of memcached's items, and the number of the settings they are of.
    limits: Cell<(u64, Limits, usize)>,
    began: Instant,
}

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) client: Arc<Client>,
    pub(crate) protocol: Protocol,
}

/// Not yet a part of any runtime.
pub(crate) enum Socket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

#[derive(Clone)]
pub(crate) enum Protocol {
    Redis(Option<TlsAcceptor>),
    Memcached,
}

impl Thread {
    /// Nanoseconds since the thread began.
    #[expect(clippy::disallowed_methods, reason = "measures how long replies take")]
    pub(crate) fn tick(&self) -> u64 {
        Instant::now().duration_since(self.began).as_nanos() as u64
    }

    /// What a request may be, and bytes of an item: no lock, and no reference counted, unless somebody has changed the settings.
    pub(crate) fn limits(&self) -> (Limits, usize) {
        let (number, limits, item) = self.limits.get();
        let newest = self.shared.settings_number.load(Relaxed);
        if number == newest {
            return (limits, item);
        }
        let settings = self.shared.settings();
        let limits = Limits { arguments: 1 << 20, argument: settings.argument, request: settings.request };
        self.limits.set((newest, limits, settings.item));
        (limits, settings.item)
    }
}

/// Serves what is accepted until the server stops, and then until all connections have ended.
#[expect(clippy::disallowed_methods, reason = "the thread's own clock begins")]
pub(crate) async fn run(shared: Arc<Shared>, recorder: Arc<Recorder>, mut accepted: mpsc::UnboundedReceiver<Accepted>) {
    let executor = Executor::start(shared.clone(), recorder.clone());
    let scratch = RefCell::new(vec![0; SCRATCH]);
    let limits = Cell::new((0, Limits::STRANGER, 0));
    let thread = Rc::new(Thread { shared: shared.clone(), recorder, executor, scratch, limits, began: Instant::now() });
    let desk =
        thread.executor.is_immediate().then(Desk::open).and_then(|desk| {
            desk.map_err(|error| tracing::warn!("no epoll, so each connection has a task: {error}")).ok()
        });
    if let Some(desk) = &desk {
        tokio::task::spawn_local(crate::reactor::run(thread.clone(), desk.clone()));
    }
    let mut stop = shared.stop.subscribe();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut own: Vec<std::sync::Weak<Client>> = Vec::new();
    loop {
        tokio::select! {
            next = accepted.recv() => {
                let Some(next) = next else { break };
                own.push(Arc::downgrade(&next.client));
                let present = Present::new(thread.clone(), &next.client);
                match (&desk, next) {
                    (Some(desk), Accepted { socket, client, protocol: Protocol::Redis(None) }) => desk.slot(socket, client, present),
                    (_, next) => drop(tokio::task::spawn_local(one(next, present))),
                }
            }
            _ = second.tick() => end_idle(&shared, &mut own),
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    own.iter().filter_map(std::sync::Weak::upgrade).for_each(|client| client.end());
    shared.scripts.end_long(crate::scripts::End::Killed);
    let all_ended = async {
        while thread.recorder.connected.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(FAREWELL, all_ended).await.is_err() {
        tracing::warn!("{} connections are cut off: they did not take their replies", thread.recorder.connected.get());
    }
}

/// Ends connections that have said nothing for too long, do not take their replies, or do not say who they are.
fn end_idle(shared: &Shared, own: &mut Vec<std::sync::Weak<Client>>) {
    let (settings, now) = (shared.settings(), now());
    let wait_limit = settings.wait_limit.as_millis() as u64;
    let idle = settings.idle.as_millis() as u64;
    own.retain(|client| {
        let Some(client) = client.upgrade() else { return false };
        if client.has_waited_too_long(now, idle, wait_limit) {
            client.end();
        } else if client.inbox.closes_if_too_full(settings.subscriber, now) {
            shared.pubsub.cut_off(&client);
        }
        true
    });
}

/// Counts a connection as long as it is there.
pub(crate) struct Present(Rc<Thread>, u64);

impl Present {
    fn new(thread: Rc<Thread>, client: &Client) -> Self {
        thread.recorder.connections.add(1);
        thread.recorder.connected.add(1);
        Self(thread, client.id)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.recorder.connected.less(1);
        self.0.shared.clients.lock().remove(&self.1);
    }
}

async fn one(accepted: Accepted, present: Present) {
    let thread = present.0.clone();
    let Accepted { socket, client, protocol } = accepted;
    match socket {
        Socket::Tcp(socket) => {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            match protocol {
                Protocol::Redis(Some(tls)) => {
                    let wait_limit = thread.shared.settings().wait_limit;
                    match tokio::time::timeout(wait_limit, tls.accept(socket)).await {
                        Ok(Ok(stream)) => crate::connection::serve(stream, thread, client).await,
                        Ok(Err(error)) => tracing::info!("{}: no TLS: {error}", client.addr),
                        Err(_) => tracing::info!("{}: no TLS in time", client.addr),
                    }
                }
                plain => speak(socket, plain, thread, client).await,
            }
        }
        Socket::Unix(socket) => {
            let Ok(socket) = UnixStream::from_std(socket) else { return };
            speak(socket, protocol, thread, client).await;
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    protocol: Protocol,
    thread: Rc<Thread>,
    client: Arc<Client>,
) {
    match protocol {
        Protocol::Redis(_) => crate::connection::serve(stream, thread, client).await,
        Protocol::Memcached => crate::memcached::serve(stream, thread, client).await,
    }
}
