//! A thread that serves: takes what is accepted, gives it to the [reactor] or to a task of its own, and ends those that say nothing for too long.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::client::Client;
use crate::clock::now;
use crate::line::Socket;
use crate::metrics::Recorder;
use crate::reactor::{self, Desk};
use crate::scripts::End;
use crate::shared::Shared;
use crate::thread::{Present, Thread};
use crate::{connection, memcached};

/// How long connections may take to end after they were told to.
const FAREWELL: Duration = Duration::from_secs(10);

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) client: Arc<Client>,
    pub(crate) protocol: Protocol,
}

#[derive(Clone)]
pub(crate) enum Protocol {
    Redis(Option<TlsAcceptor>),
    Memcached,
}

/// Serves what is accepted until the server stops, and then until all connections have ended.
pub(crate) async fn run(shared: Arc<Shared>, recorder: Arc<Recorder>, mut accepted: mpsc::UnboundedReceiver<Accepted>) {
    let thread = Rc::new(Thread::start(shared.clone(), recorder));
    let desk =
        thread.executor.is_immediate().then(Desk::open).and_then(|desk| {
            desk.map_err(|error| tracing::warn!("no epoll, so each connection has a task: {error}")).ok()
        });
    if let Some(desk) = &desk {
        tokio::task::spawn_local(reactor::run(thread.clone(), desk.clone()));
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
    shared.scripts.end_long(End::Killed);
    let all_ended = async {
        while thread.recorder.connected.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(FAREWELL, all_ended).await.is_err() {
        tracing::warn!("{} connections are cut off: they did not take their replies", thread.recorder.connected.get());
    }
}

/// Ends connections that have said nothing for too long, do not take their replies, or do not authenticate.
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

async fn one(accepted: Accepted, present: Present) {
    let thread = present.thread.clone();
    let Accepted { socket, client, protocol } = accepted;
    match socket {
        Socket::Tcp(socket) => {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            match protocol {
                Protocol::Redis(Some(tls)) => {
                    let wait_limit = thread.shared.settings().wait_limit;
                    match tokio::time::timeout(wait_limit, tls.accept(socket)).await {
                        Ok(Ok(stream)) => connection::serve(stream, thread, client).await,
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
        Protocol::Redis(_) => connection::serve(stream, thread, client).await,
        Protocol::Memcached => memcached::serve(stream, thread, client).await,
    }
}
