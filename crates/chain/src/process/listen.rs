//! What comes from other replicas, and from clients that look at this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fabric::Listener;

use super::report::{self, Report};
use super::wire::Incoming;
use super::{Known, Text};
use crate::{Body, Message, Node};

/// Connections that others have opened here.
const CONNECTIONS_MAX: usize = 64;
/// How soon a thread looks whether the process ends.
const LOOK: Duration = Duration::from_millis(100);

/// What connections are about.
pub(super) struct About {
    pub(super) node: Arc<Node>,
    pub(super) known: Arc<parking_lot::Mutex<Known>>,
    pub(super) ends: Arc<AtomicBool>,
    /// Bytes of a message.
    pub(super) max: usize,
    pub(super) prefix: String,
}

impl About {
    /// A machine asks to be let in that was taken out.
    fn is_out(&self, message: &Message) -> bool {
        let asks = matches!(message.body, Body::Join | Body::Restarted);
        asks && self.known.lock().text.as_ref().is_some_and(|text: &Text| text.is_out(message.from.machine))
    }

    fn report(&self) -> Report {
        Report::of(&self.node.status(), &self.prefix)
    }
}

/// The thread that takes connections: each has a thread of its own.
pub(super) fn listen(mut listener: Listener, about: &About) {
    let open = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        while !about.ends.load(Relaxed) {
            match listener.accept(LOOK) {
                Ok(Some(connection)) if open.load(Relaxed) < CONNECTIONS_MAX => {
                    open.fetch_add(1, Relaxed);
                    let open = &open;
                    threads.spawn(move || {
                        hear(connection, about);
                        open.fetch_sub(1, Relaxed);
                    });
                }
                Ok(Some(connection)) => tracing::warn!(connection.peer, "too many connections: one is refused"),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be taken");
                    std::thread::sleep(LOOK);
                }
            }
        }
    });
}

fn hear(mut connection: fabric::Connection, about: &About) {
    let mut incoming = Incoming::new(about.max);
    while !about.ends.load(Relaxed) {
        let piece = match connection.receiver.poll(LOOK) {
            Ok(Some(fabric::Event::Message(piece))) => piece,
            Ok(Some(fabric::Event::Closed(_))) | Err(_) => return,
            Ok(_) => continue,
        };
        if report::is_asked_for(&piece) {
            match report::answer(&mut connection, &about.report()) {
                Ok(()) => continue,
                Err(error) => {
                    tracing::debug!(%error, connection.peer, "a report is not sent");
                    return;
                }
            }
        }
        match incoming.take(&piece) {
            Ok(None) => {}
            // A machine that was taken out does not come back by itself.
            Ok(Some(message)) if about.is_out(&message) => {}
            Ok(Some(message)) => match about.node.deliver(message) {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, connection.peer, "a message is not taken");
                    return;
                }
            },
            Err(_) => {
                tracing::warn!(connection.peer, "it says what no member does");
                return;
            }
        }
    }
}
