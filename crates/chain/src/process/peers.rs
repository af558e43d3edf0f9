//! What goes to other replicas: a thread for each, which connects when there is something to say. What cannot be sent is lost, as the protocol allows.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fabric::Connection;
use parking_lot::{Condvar, Mutex};

use super::wire::pieces;
use crate::{Body, Message};

/// Bytes that wait for one peer.
const WAITING_MAX: usize = 128 << 20;
/// After a connection that did not come about, or has ended.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    ends: bool,
}

/// One peer.
#[derive(Debug, Default)]
struct Peer {
    queue: Mutex<Queue>,
    more: Condvar,
}

/// All of them, by machine.
#[derive(Debug)]
pub(super) struct Peers {
    options: fabric::Options,
    peers: Mutex<BTreeMap<u32, Arc<Peer>>>,
    addresses: Mutex<BTreeMap<u32, String>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

fn size(message: &Message) -> usize {
    64 + match &message.body {
        Body::Records(records) => {
            records.iter().map(|record| 64 + 8 * record.entry.objects.len() + record.bytes.len()).sum()
        }
        Body::Part { image, .. } => image.len(),
        _ => 0,
    }
}

impl Peers {
    pub(super) fn new(options: fabric::Options) -> Arc<Self> {
        Arc::new(Self { options, peers: Mutex::default(), addresses: Mutex::default(), threads: Mutex::default() })
    }

    /// Where they are, as far as is known.
    pub(super) fn set_addresses(&self, addresses: BTreeMap<u32, String>) {
        *self.addresses.lock() = addresses;
    }

    pub(super) fn send(self: &Arc<Self>, message: Message) {
        let machine = message.to.machine;
        let peer = self.peers.lock().entry(machine).or_insert_with(|| self.start(machine)).clone();
        let mut queue = peer.queue.lock();
        let bytes = size(&message);
        // One message always has its place, however long it is.
        if !queue.messages.is_empty() && queue.bytes + bytes > WAITING_MAX {
            return;
        }
        queue.bytes += bytes;
        queue.messages.push_back(message);
        peer.more.notify_one();
    }

    fn start(self: &Arc<Self>, machine: u32) -> Arc<Peer> {
        let peer = Arc::new(Peer::default());
        let (peers, of) = (self.clone(), peer.clone());
        let run = move || peers.run(machine, &of);
        match std::thread::Builder::new().name(format!("chain-to-{machine}")).spawn(run) {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => tracing::error!(%error, machine, "no thread for a peer: nothing is sent there"),
        }
        peer
    }

    fn run(&self, machine: u32, peer: &Peer) {
        let mut connection = None;
        loop {
            let message = {
                let mut queue = peer.queue.lock();
                while queue.messages.is_empty() && !queue.ends {
                    peer.more.wait(&mut queue);
                }
                if queue.ends {
                    return;
                }
                let Some(message) = queue.messages.pop_front() else { continue };
                queue.bytes -= size(&message);
                message
            };
            if connection.is_none() {
                connection = self.connect(machine);
            }
            let Some(open) = &mut connection else {
                self.rest(peer);
                continue;
            };
            if let Err(error) = say(open, &message) {
                tracing::debug!(%error, machine, "a connection has ended");
                connection = None;
            }
        }
    }

    fn connect(&self, machine: u32) -> Option<Connection> {
        let address = self.addresses.lock().get(&machine).cloned()?;
        match fabric::connect(&address, &self.options, None) {
            Ok(connection) => Some(connection),
            Err(error) => {
                tracing::debug!(%error, machine, "there is no way to a peer");
                None
            }
        }
    }

    /// What has gathered meanwhile is old: it is said again.
    fn rest(&self, peer: &Peer) {
        let mut queue = peer.queue.lock();
        if !queue.ends {
            peer.more.wait_for(&mut queue, PAUSE);
        }
        queue.messages.clear();
        queue.bytes = 0;
    }

    /// All threads return, those that are connecting after a time-out.
    pub(super) fn end(&self) {
        for peer in self.peers.lock().values() {
            peer.queue.lock().ends = true;
            peer.more.notify_all();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of a peer has panicked");
            }
        }
    }
}

fn say(connection: &mut Connection, message: &Message) -> Result<(), Box<dyn std::error::Error>> {
    for piece in pieces(message)? {
        connection.sender.send(&piece)?;
    }
    Ok(connection.sender.flush()?)
}
