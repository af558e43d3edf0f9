//! A replica as a process: a file, TCP between machines, and an etcd that says who is in the chain.
//!
//! ```no_run
//! # fn main() -> Result<(), chain::process::Failure> {
//! use chain::process::{Options, Process};
//! use tx::{Engine, Isolation::Strict, Transaction, Typed};
//!
//! let etcd = ["http://10.0.0.9:2379"];
//! let process = Process::start("bank.cairn", &Options::new(1, "10.0.0.1:7500", &etcd, "/cairn/bank").first_members(&[1, 2, 3]))?;
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

use fabric::{Listener, Secret};
use membership::{Announcement, Member, Members, Swapped};

use self::peers::Peers;
use self::views::{Views, from_bytes, to_bytes};
use self::wire::Incoming;
use crate::{Command, Medium, Message, Mode, Node, Outside, ReplicaId, Sizes, View, ViewId};

/// Bytes of a message beside those of a heap, or of records.
const MESSAGE_MORE: usize = 64 << 20;
/// Connections that others have opened here.
const CONNECTIONS_MAX: usize = 64;
/// How soon a thread looks whether the process ends.
const LOOK: Duration = Duration::from_millis(100);
/// A copy's first incarnation on a new file is a multiple of this: higher than all before.
const INCARNATIONS: u32 = 1 << 16;

/// How a replica's process runs.
#[derive(Clone, Debug)]
pub struct Options {
    machine: u32,
    listen: String,
    announce: Option<String>,
    etcd: Vec<String>,
    prefix: String,
    fabric: fabric::Options,
    ttl: Duration,
    tick: Duration,
    patience: Duration,
    sizes: Sizes,
    first: Vec<u32>,
    f: Option<u32>,
}

impl Options {
    /// The replica of this machine, which listens at an address (host and port), of the chain whose keys at these etcds (`http://host:port`) are below `prefix`.
    pub fn new(machine: u32, listen: &str, etcd: &[impl AsRef<str>], prefix: &str) -> Self {
        Self {
            machine,
            listen: listen.to_owned(),
            announce: None,
            etcd: etcd.iter().map(|etcd| etcd.as_ref().to_owned()).collect(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            fabric: fabric::Options { anyone: true, ..fabric::Options::default() },
            ttl: Duration::from_secs(5),
            tick: Duration::from_millis(100),
            patience: Duration::from_secs(30),
            sizes: Sizes::default(),
            first: Vec::new(),
            f: None,
        }
    }

    /// Where others reach it, if that is not where it listens.
    #[must_use]
    pub fn announce(self, address: &str) -> Self {
        Self { announce: Some(address.to_owned()), ..self }
    }

    /// What all members know and nobody else: whoever does not is not let in. Without one, whoever reaches the address is trusted.
    #[must_use]
    pub fn secret(self, secret: Secret) -> Self {
        let fabric = fabric::Options { secret: Some(secret), anyone: false, ..self.fabric };
        Self { fabric, ..self }
    }

    /// How members connect, for certificates.
    #[must_use]
    pub fn fabric(self, fabric: fabric::Options) -> Self {
        Self { fabric, ..self }
    }

    /// How long a member's lease is: a member that is gone is taken out after as long. Whole seconds; five if nothing is said.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// How often what may be lost is said again. A tenth of a second if nothing is said; 30 of them are a joiner's time for its image.
    #[must_use]
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick, ..self }
    }

    /// How long a commit waits for the tail's word: half a minute if nothing is said.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Of a new file: the same for all members.
    #[must_use]
    pub fn sizes(self, sizes: Sizes) -> Self {
        Self { sizes, ..self }
    }

    /// The machines that a new chain begins with, head first: the same for all of them. A chain that there is stays as it is.
    #[must_use]
    pub fn first_members(self, machines: &[u32]) -> Self {
        Self { first: machines.to_vec(), ..self }
    }

    /// Of a new chain: with fewer than `f + 1` members, others join. As many as it begins with, if nothing is said.
    #[must_use]
    pub fn failures(self, f: u32) -> Self {
        Self { f: Some(f), ..self }
    }

    fn first_view(&self) -> Option<View> {
        let members: Vec<ReplicaId> =
            self.first.iter().map(|&machine| ReplicaId { machine, incarnation: 0 }).collect();
        let f = self.f.unwrap_or(members.len().saturating_sub(1) as u32);
        (!members.is_empty()).then_some(View { id: ViewId(1), members, f, mode: Mode::Values })
    }
}

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
        let view = match register.read()? {
            Some(held) => from_bytes(&held.value)?,
            None => {
                let first = options.first_view().ok_or_else(|| Failure::Chain("there is no chain yet".into()))?;
                register.swap(0, to_bytes(&first)?)?;
                let held = register.read()?.ok_or_else(|| Failure::Chain("the chain is gone from etcd".into()))?;
                from_bytes(&held.value)?
            }
        };
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
        let (tick, pause, max) = (options.tick, options.ttl / 20, options.sizes.capacity as usize * 2 + MESSAGE_MORE);
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
