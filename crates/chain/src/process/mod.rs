//! A replica as a process: a file, TCP between machines, and an etcd that says which replicas are in the chain.
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
//! let count = process.node().transact(Strict, |tx| tx.read(tx.root_cell()).map(|cell| cell[0]))?; // the tail runs this, too
//! # let _ = count;
//! # Ok(()) }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `files` | a file belongs to one machine of one chain |
//! | `views`, `text` | the view, and the members' leases, at etcd |
//! | `peers` | what is said to other replicas |
//! | `listen`, `wire` | what they say here; messages as bytes |
//! | `report` | what a process says of itself, for clients that know the secret |
//! | `operator` | [`Chain`]: how a chain is; members are taken in, and out |
//! | `failure` | what can go wrong |

mod failure;
mod files;
mod listen;
mod operator;
mod options;
mod peers;
mod report;
mod text;
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
use membership::{Announcement, Member, Members, Register};

pub use self::failure::Failure;
use self::listen::{About, listen};
pub use self::operator::{Chain, Look, Outlook, Seen};
pub use self::options::Options;
use self::peers::Peers;
pub use self::report::Report;
use self::text::Text;
use self::views::Views;
use crate::{Command, Message, Node, Outside, Sizes, View};

/// The register that has the view.
const VIEW: &str = "view";

/// What is known at etcd, as of a moment ago.
#[derive(Clone, Debug, Default)]
struct Known {
    text: Option<Text>,
    /// All that are announced, by machine.
    machines: BTreeMap<u32, Member>,
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
    known: Arc<parking_lot::Mutex<Known>>,
    address: String,
    threads: Vec<JoinHandle<()>>,
    announcement: Announcement,
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
    /// The file, etcd or the address is not to be had; there is no chain, and it was not said what it begins with.
    pub fn start(path: impl AsRef<Path>, options: &Options) -> Result<Self, Failure> {
        let path = path.as_ref();
        // First of all: a file that cannot be used is told without an etcd, and one that another process has leaves that one alone.
        let found = if path.exists() { Some(files::open(path, options)?) } else { None };
        let timeout = options.ttl / 3;
        let connect = |below: &str| Members::connect(&options.etcd, &format!("{}/{below}", options.prefix), timeout);
        let (nodes, leases) = (connect("nodes")?, connect("leases")?);
        // No file is made for a chain that cannot be.
        let held = nodes.held(VIEW)?.map(|held| Text::from_bytes(&held.value)).transpose()?;
        let there = match &held {
            Some(text) => text.clone(),
            None => options.first_text(options.sizes)?,
        };
        let machine = options.machine.to_string();
        let sizes = there.sizes().unwrap_or(options.sizes);
        // What cannot take part is not noted as the machine's: it is deleted, and another one made.
        let check = |medium: &crate::Medium| {
            held.as_ref().map_or(Ok(()), |text| check_sizes(options.machine, text, medium.sizes()))
        };
        if found.is_some() {
            files::check_runs(options.machine, &nodes)?;
        }
        // A start counts from the claim on: what can fail for other reasons comes first.
        let listener = Listener::bind(&options.listen, options.fabric.clone(), None)?;
        let own = listener.address()?.to_string();
        let address = options.announce.clone().unwrap_or_else(|| own.clone());
        let (medium, found) = files::claim(path, &address, found, options, sizes, &nodes, &there.view(), &check)?;
        let register = nodes.register(VIEW, &machine)?;
        let text = first_text(&register, options, medium.sizes())?;
        check_sizes(options.machine, &text, medium.sizes())?;
        let member = Member::new(machine, &*address);
        let member = options.serves.iter().fold(member, |member, serves| member.serving(serves));
        let announcement = nodes.announce(&member, options.ttl)?;

        let peers = Peers::new(options.fabric.clone());
        let (asks, asked) = channel();
        let outside = Threads { peers: peers.clone(), asks: parking_lot::Mutex::new(asks) };
        let node = Arc::new(Node::start(medium, found, Arc::new(outside)).timeout(options.timeout));
        let known = Arc::new(parking_lot::Mutex::new(Known { text: Some(text), machines: BTreeMap::new() }));
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
            announcement,
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
        let about = About {
            node: self.node.clone(),
            known: self.known.clone(),
            ends: self.ends.clone(),
            max,
            prefix: options.prefix.clone(),
        };
        self.spawn("chain-listen", move || listen(listener, &about))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// The replica: at the head, an engine; at the tail, one for transactions that only read.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The view, as etcd had it a moment ago.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.known.lock().text.as_ref().map(Text::view)
    }

    /// True if this machine was taken out of the chain by [`Chain::remove`], as far as was known a moment ago.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let machine = self.node.status().id.machine;
        self.known.lock().text.as_ref().is_some_and(|text| text.is_out(machine))
    }

    /// Which machine leads, and where clients reach it, if that is known: it may be this one.
    #[must_use]
    pub fn leader(&self) -> Option<(u32, Option<String>)> {
        self.member(View::head)
    }

    /// Which machine is the tail, where transactions that only read are run, too, and where clients reach it, if that is known: it may be this one.
    #[must_use]
    pub fn tail(&self) -> Option<(u32, Option<String>)> {
        self.member(View::tail)
    }

    fn member(&self, which: impl Fn(&View) -> Option<crate::ReplicaId>) -> Option<(u32, Option<String>)> {
        let known = self.known.lock();
        let machine = which(&known.text.as_ref()?.view())?.machine;
        Some((machine, known.machines.get(&machine).and_then(|member| member.serves.clone())))
    }

    /// Nothing while it runs.
    ///
    /// # Errors
    /// Why it does no more: its medium failed, or another process of its machine has started since.
    pub fn check(&self) -> Result<(), Failure> {
        if let Err(membership::Error::Replaced { .. }) = self.announcement.check() {
            return Err(Failure::Superseded);
        }
        match self.node.status().stopped {
            Some(why) => Err(crate::Error::Stopped { why }.into()),
            None => Ok(()),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Process {
    /// It goes as one that is killed: what is persistent is on the medium. It gives up its lease when it answers no reader any more, so others take it out at
    /// once.
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
fn first_text(register: &Register, options: &Options, sizes: Sizes) -> Result<Text, Failure> {
    let held = match register.read()? {
        Some(held) => Some(held),
        None => {
            register.swap(0, options.first_text(sizes)?.to_bytes()?)?;
            register.read()?
        }
    };
    Text::from_bytes(&held.ok_or_else(|| Failure::NoChain { prefix: options.prefix.clone() })?.value)
}

/// One whose queue takes less than the others' would stop the chain.
fn check_sizes(machine: u32, text: &Text, own: Sizes) -> Result<(), Failure> {
    match text.sizes() {
        Some(wanted) if (wanted.capacity, wanted.queue) != (own.capacity, own.queue) => {
            Err(Failure::OtherSize { machine, found: own, wanted })
        }
        _ => Ok(()),
    }
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
        // A caller that asks again and again is answered now and then.
        std::thread::sleep(pause / 10);
        while let Ok(command) = next {
            match command {
                Command::Propose(view) => views.proposal = Some(view),
                Command::AwaitLeases(view) => views.awaited = Some(view),
                _ => {}
            }
            next = asked.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        match nodes.copies() {
            Ok(copies) => {
                let machines = by_machine(copies);
                peers.set_addresses(machines.iter().map(|(&machine, at)| (machine, at.address.clone())).collect());
                views.known.lock().machines = machines;
            }
            Err(error) => tracing::warn!(%error, "who is where is not known"),
        }
        match views.look(node) {
            Ok(()) => {}
            Err(Failure::Replica(_) | Failure::Superseded) => return node.end(),
            Err(error) => {
                views.lose_sight();
                tracing::warn!(%error, "who is in the chain is not known");
            }
        }
    }
}

/// Announcements of machines of a chain.
fn by_machine(announced: Vec<Member>) -> BTreeMap<u32, Member> {
    announced.into_iter().filter_map(|member| Some((member.name.parse().ok()?, member))).collect()
}
