//! A replica as a process: a file, TCP between machines, and an etcd that says who is in the chain.
//!
//! ```no_run
//! # fn secret() -> fabric::Secret { fabric::Secret::new(&[7; 32]).unwrap() }
//! # fn main() -> Result<(), chain::process::Failure> {
//! use chain::process::{Options, Process};
//! use tx::{Engine, Isolation::Strict, Transaction, Typed};
//!
//! let etcd = ["http://10.0.0.9:2379"];
//! let process = Process::start("bank.cairn", &Options::new(1, "10.0.0.1:7500", &etcd, "/cairn/bank").secret(secret()).first_members(&[1, 2, 3]))?;
//! while !process.node().status().is_head() {
//!     std::thread::sleep(std::time::Duration::from_millis(50));
//! }
//! process.node().transact(Strict, |tx| tx.write(tx.root_cell()).map(|cell| cell[0] += 1))?; // on every member
//! # Ok(()) }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `views` | the view, and the members' leases, at etcd |
//! | `peers` | what is said to other replicas |
//! | `wire` | messages as bytes |

mod options;
mod peers;
mod views;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fabric::Listener;
use membership::{Announcement, Member, Members, Register, Swapped};

pub use self::options::Options;
use self::peers::Peers;
use self::views::{Views, from_bytes, to_bytes};
use self::wire::Incoming;
use crate::{Command, Medium, Message, Node, Outside, ReplicaId, View};

/// Connections that others have opened here.
const CONNECTIONS_MAX: usize = 64;
/// How soon a thread looks whether the process ends.
const LOOK: Duration = Duration::from_millis(100);
/// A copy's first incarnation on a new file is a multiple of this: higher than all before.
const INCARNATIONS: u32 = 1 << 16;

/// Why a process cannot start, or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The replica's own.
    #[error(transparent)]
    Replica(#[from] crate::Error),
    /// etcd's.
    #[error(transparent)]
    Membership(#[from] membership::Error),
    /// The network's.
    #[error(transparent)]
    Network(#[from] fabric::Error),
    /// A transaction's.
    #[error(transparent)]
    Transaction(#[from] tx::Error),
    /// The chain is not what was expected.
    #[error("{0}; look at the prefix, and at `--members` of a new chain")]
    Chain(String),
    /// What stands at etcd is not a view.
    #[error("what stands at etcd below the prefix is not of a chain ({0}); use another prefix")]
    Foreign(#[from] serde_json::Error),
    /// Another process of the machine has started since.
    #[error("another process of this machine has started since; run one at a time")]
    Superseded,
    /// The system gives no thread.
    #[error("no thread can be started ({0}); raise the limits of this process (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// What a replica says goes to the threads that say it.
struct Threads {
    peers: Arc<Peers>,
    asks: parking_lot::Mutex<Sender<Command>>,
}

impl Outside for Threads {
    fn send(&self, message: Message) {
        self.peers.send(message);
    }

    fn ask(&self, command: Command) {
        // The other end goes when the process ends.
        drop(self.asks.lock().send(command));
    }
}

/// A replica's process, running.
pub struct Process {
    node: Arc<Node>,
    peers: Arc<Peers>,
    ends: Arc<AtomicBool>,
    known: Arc<parking_lot::Mutex<Option<View>>>,
    address: String,
    threads: Vec<JoinHandle<()>>,
    _announcement: Announcement,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Process {
    /// Opens the file, or makes it, and takes part in the chain, or makes it.
    ///
    /// # Errors
    /// The file, etcd or the address is not to be had; there is no chain, and nobody has said what it begins with.
    pub fn start(path: impl AsRef<Path>, options: &Options) -> Result<Self, Failure> {
        let path = path.as_ref();
        let timeout = options.ttl / 3;
        let connect = |below: &str| Members::connect(&options.etcd, &format!("{}/{below}", options.prefix), timeout);
        let (nodes, leases) = (connect("nodes")?, connect("leases")?);
        let machine = options.machine.to_string();
        let register = nodes.register("view", &machine)?;
        if !path.exists() {
            create(path, options, &nodes)?;
        }
        let (medium, found) = Medium::open(path)?;
        if found.id.machine != options.machine {
            let why = format!("it is the copy of machine {}, and this is {}", found.id.machine, options.machine);
            return Err(crate::Error::File { path: path.display().to_string(), why }.into());
        }
        let view = view(&register, options)?;
        let listener = Listener::bind(&options.listen, options.fabric.clone(), None)?;
        let own = listener.address()?.to_string();
        let address = options.announce.clone().unwrap_or_else(|| own.clone());
        let announcement = nodes.announce(&Member::new(machine, &*address), options.ttl)?;

        let peers = Peers::new(options.fabric.clone());
        let (asks, asked) = channel();
        let outside = Threads { peers: peers.clone(), asks: parking_lot::Mutex::new(asks) };
        let node = Arc::new(Node::start(medium, found, Arc::new(outside)).patience(options.patience));
        let known = Arc::new(parking_lot::Mutex::new(Some(view)));
        let views = Views {
            register,
            leases,
            ttl: options.ttl,
            address,
            held: None,
            seen: BTreeSet::new(),
            missing: BTreeMap::new(),
            proposal: None,
            awaited: None,
            known: known.clone(),
        };
        let mut process = Self {
            node,
            peers,
            ends: Arc::new(AtomicBool::new(false)),
            known,
            address: own,
            threads: Vec::new(),
            _announcement: announcement,
        };
        process.run(options, views, nodes, asked, listener)?;
        Ok(process)
    }

    fn run(
        &mut self,
        options: &Options,
        views: Views,
        nodes: Members,
        asked: Receiver<Command>,
        listener: Listener,
    ) -> Result<(), Failure> {
        let (tick, pause, max) = (options.tick, options.ttl / 20, self.node.message_max());
        let node = self.node.clone();
        self.spawn("chain-drive", move || node.drive(tick))?;
        let (node, peers, ends) = (self.node.clone(), self.peers.clone(), self.ends.clone());
        self.spawn("chain-views", move || look(views, &nodes, &node, &peers, &asked, &ends, pause))?;
        let (node, ends) = (self.node.clone(), self.ends.clone());
        self.spawn("chain-listen", move || listen(listener, &node, &ends, max))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// The replica: at the head, an engine.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The view, as etcd had it a moment ago.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.known.lock().clone()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Process {
    /// It goes as one that is killed: what is persistent is on the medium, and others take it out when its lease has ended.
    fn drop(&mut self) {
        self.node.end();
        self.ends.store(true, Relaxed);
        self.peers.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a replica has panicked");
            }
        }
    }
}

/// The chain's view, or its first one, which any of the first members makes.
fn view(register: &Register, options: &Options) -> Result<View, Failure> {
    let held = match register.read()? {
        Some(held) => Some(held),
        None => {
            let first = options.first_view().ok_or_else(|| Failure::Chain("there is no chain yet".into()))?;
            register.swap(0, to_bytes(&first)?)?;
            register.read()?
        }
    };
    from_bytes(&held.ok_or_else(|| Failure::Chain("the chain is gone from etcd".into()))?.value)
}

/// A new file. Its incarnation is one that no file of this machine has had: the first one of a chain's first members may count, all others join.
fn create(path: &Path, options: &Options, nodes: &Members) -> Result<(), Failure> {
    let files = nodes.register(&format!("files-{}", options.machine), &options.machine.to_string())?;
    let number = loop {
        let held = files.read()?;
        let (revision, number) = match &held {
            None => (0, 0u32),
            Some(held) => (held.revision, serde_json::from_slice(&held.value)?),
        };
        match files.swap(revision, serde_json::to_vec(&(number + 1))?)? {
            Swapped::Yes => break number,
            Swapped::Changed => {}
            Swapped::Superseded => return Err(Failure::Superseded),
        }
    };
    let incarnation = number.checked_mul(INCARNATIONS).ok_or_else(|| Failure::Chain("too many files".into()))?;
    let id = ReplicaId { machine: options.machine, incarnation };
    let whole = number == 0 && options.first.contains(&options.machine);
    Ok(Medium::create(path, id, whole, options.sizes)?)
}

/// The thread that talks to etcd.
fn look(
    mut views: Views,
    nodes: &Members,
    node: &Node,
    peers: &Peers,
    asked: &Receiver<Command>,
    ends: &AtomicBool,
    pause: Duration,
) {
    while !ends.load(Relaxed) {
        let mut next = asked.recv_timeout(pause);
        // Whoever asks again and again is answered now and then.
        std::thread::sleep(pause / 10);
        while let Ok(command) = next {
            match command {
                Command::Propose(view) => views.proposal = Some(view),
                Command::AwaitLeases(view) => views.awaited = Some(view),
                _ => {}
            }
            next = asked.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        let addresses = nodes.copies().map(|copies| {
            let parse = |member: Member| Some((member.name.parse().ok()?, member.address));
            copies.into_iter().filter_map(parse).collect()
        });
        match addresses {
            Ok(addresses) => peers.set_addresses(addresses),
            Err(error) => tracing::warn!(%error, "who is where is not known"),
        }
        match views.look(node) {
            Ok(()) => {}
            Err(Failure::Replica(_) | Failure::Superseded) => return node.end(),
            Err(error) => tracing::warn!(%error, "who is in the chain is not known"),
        }
    }
}

/// The thread that takes connections: each has a thread of its own.
fn listen(mut listener: Listener, node: &Node, ends: &AtomicBool, max: usize) {
    let open = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|threads| {
        while !ends.load(Relaxed) {
            match listener.accept(LOOK) {
                Ok(Some(connection)) if open.load(Relaxed) < CONNECTIONS_MAX => {
                    open.fetch_add(1, Relaxed);
                    let open = &open;
                    threads.spawn(move || {
                        hear(connection, node, ends, max);
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

fn hear(mut connection: fabric::Connection, node: &Node, ends: &AtomicBool, max: usize) {
    let mut incoming = Incoming::new(max);
    while !ends.load(Relaxed) {
        let piece = match connection.receiver.poll(LOOK) {
            Ok(Some(fabric::Event::Message(piece))) => piece,
            Ok(Some(fabric::Event::Closed(_))) | Err(_) => return,
            Ok(_) => continue,
        };
        match incoming.take(&piece) {
            Ok(None) => {}
            Ok(Some(message)) => match node.deliver(message) {
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
