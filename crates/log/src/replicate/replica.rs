//! A replica of a log, served to its leader: the process behind `cairn log-replica`.
//!
//! One thread waits for connections; each connection has a thread. What a leader writes goes from the socket into the log itself, or the leader's device writes it there; once
//! all is taken that was received at once, one barrier makes it persistent, and one word acknowledges it: a wait, a receive and a send for what a leader sends at once.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::Duration;

use fabric::{Connection, Event, Listener, Receiver, Rights};
use parking_lot::{Condvar, Mutex};
use pmem::Pool;
use pmem::sync::Watched;

use super::cursor::Cursor;
use super::message::Formed;
use super::served::Served;
use super::stored::StoredReplica;
use super::wire::Versions;
use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::front::NAME;

/// Longest time until a thread notices that it is to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Messages and writes of a connection between two barriers, at most.
const BATCH_MAX: usize = 256;
/// Connections at once. A leader has one; others are those that take over, look, or are gone and do not know it.
const CONNECTIONS_MAX: usize = 64;

/// A replica of a log, served from this process until it is dropped.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// use cairn_log::{Options, Replica, Replicas, fabric};
/// let secret = fabric::Secret::new(b"what both of them know")?;
/// let trust = fabric::Options { secret: Some(secret), ..Default::default() };
/// let backup = Replica::serve(path("backup"), "127.0.0.1:0", trust.clone())?;
///
/// let replicas = Replicas::new().local(path("orders")).at(&backup.address()?.to_string()).trust(trust);
/// let log = Options::new().bytes(1 << 20).create_replicated(&replicas)?;
/// log.append(b"17 apples")?; // on both when it returns
/// log.close()?;
///
/// let (log, found) = Options::new().open_replicated(&replicas)?;
/// assert_eq!(found.records, 1);
/// # Ok(()) }
/// ```
pub struct Replica {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    served: Mutex<Served>,
    /// How often something came that may have changed what can be read, or is awaited; with it, the threads that wait for that.
    news: Watched<u64>,
    stop: AtomicBool,
    /// What the replica failed with, if it did: it acknowledges nothing any more.
    failed: Mutex<Option<Error>>,
    over: Condvar,
    pool: Pool,
}

/// How a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Its id, once it is a replica of a log.
    pub id: u64,
    /// The log's id.
    pub log: u64,
    /// Of the last leader that repaired it; 0 for a new one.
    pub epoch: u32,
    /// No leader with a lower epoch is heard.
    pub promised: u32,
    /// To which leader it promised that.
    pub owner: u64,
    /// How many replicas the log has, and how many must have a record; none for a new one.
    pub quorum: Option<(u32, u32)>,
    /// The oldest record that the log has.
    pub head: Lsn,
    /// It has all records before this one; more than these if it was opened since a leader repaired it.
    pub next: Lsn,
    /// A leader has repaired it since it was opened: `next` is how far it is.
    pub current: bool,
    /// The newest wire version that its program speaks.
    pub wire: u32,
}

impl ReplicaStatus {
    pub(super) fn of(formed: &Formed, wire: u32) -> Self {
        let quorum = formed.config.as_ref().map(|config| (config.ids.len() as u32, config.write_quorum));
        Self {
            id: formed.me,
            log: formed.layout.log,
            epoch: formed.log_epoch,
            promised: formed.promised,
            owner: formed.owner,
            quorum,
            head: Lsn(formed.head.lsn),
            next: Lsn(formed.next),
            current: formed.knows,
            wire,
        }
    }
}

impl Replica {
    /// Serves the replica in the pool at `path` to peers at `address`; makes an empty one if nothing is there. An empty one becomes a replica of a log when a leader
    /// makes the log, or takes it in. The options say by which transport, too; rights are given to the leader alone, whatever they say.
    ///
    /// # Errors
    /// Those of the pool; [`Error::NotALog`] if it holds something else; those of the network.
    pub fn serve(path: impl AsRef<Path>, address: &str, trust: fabric::Options) -> Result<Self> {
        Self::serve_with(&pmem::Options::new(), path, address, trust)
    }

    /// The same, with a pool of this kind.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_with(
        pool: &pmem::Options,
        path: impl AsRef<Path>,
        address: &str,
        trust: fabric::Options,
    ) -> Result<Self> {
        Self::start(pool, path.as_ref(), address, trust, false, Versions::default())
    }

    /// The same, for a process that [reads](Self::read) the replica, too: a leader uses the space of records again only when they are [released](Self::release)
    /// here.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_read(
        pool: &pmem::Options,
        path: impl AsRef<Path>,
        address: &str,
        trust: fabric::Options,
    ) -> Result<Self> {
        Self::start(pool, path.as_ref(), address, trust, true, Versions::default())
    }

    pub(crate) fn start(
        pool: &pmem::Options,
        path: &Path,
        address: &str,
        trust: fabric::Options,
        held: bool,
        speaks: Versions,
    ) -> Result<Self> {
        let pool = open_or_create(pool, path)?;
        let replica = StoredReplica::open(&pool, Failpoints::default())?.speaking(speaks);
        let trust = fabric::Options { rights: Rights::None, ..trust };
        let mut listener = Listener::bind(address, trust, Some(replica.window()))?;
        let address = listener.address()?;
        let shared = Arc::new(Shared {
            served: Mutex::new(Served::new(replica, held).closed_by_sessions()),
            news: Watched::new(0),
            stop: AtomicBool::new(false),
            failed: Mutex::new(None),
            over: Condvar::new(),
            pool,
        });
        let here = Arc::clone(&shared);
        let listener = spawn(move || {
            let mut sessions: Vec<JoinHandle<()>> = Vec::new();
            while !here.is_over() {
                match listener.accept(POLL_INTERVAL) {
                    Ok(Some(connection)) => {
                        sessions.retain(|session| !session.is_finished());
                        if sessions.len() < CONNECTIONS_MAX {
                            let shared = Arc::clone(&here);
                            sessions.push(spawn(move || shared.session(connection)));
                        } else {
                            tracing::warn!(peer = connection.peer, "too many connections: refused");
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        here.fail(error.into());
                        break;
                    }
                }
            }
            for session in sessions {
                let _ = session.join(); // a panic in it was said
            }
        });
        Ok(Self { shared, address, listener: Some(listener) })
    }

    /// Where it is reached.
    ///
    /// # Errors
    /// None any more; kept for backends that have to ask.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.address)
    }

    /// What it is a replica of, and how far; none for a new one.
    pub fn status(&self) -> Option<ReplicaStatus> {
        let served = self.shared.served.lock();
        served.stored().log().map(|log| ReplicaStatus::of(&log.formed(), served.stored().speaks().newest))
    }

    // ---- reading it here --------------------------------------------------------------------------------------

    /// What is committed by now and was not read, about so many bytes of it: every record once, in order. Most often a leader's next record says that one is
    /// committed, or its silence of [100 ms](crate::Options::idle).
    ///
    /// # Errors
    /// [`Error::Overtaken`] of a replica that is [served for its reader](Self::serve_read), if a leader began with a log that begins behind what was read here: a new cursor reads what there
    /// is. Those of the pool.
    pub fn read(&self, cursor: &mut Cursor, most: usize) -> Result<Vec<(Lsn, Vec<u8>)>> {
        let served = self.shared.served.lock();
        let Some(log) = served.stored().log() else { return Ok(Vec::new()) };
        cursor.read(&self.shared.pool, log, most, served.is_held())
    }

    /// How often something came that may have changed what can be [read](Self::read), or [is awaited](Self::is_awaited): asked before these, for [`await_news`](Self::await_news).
    pub fn news(&self) -> u64 {
        *self.shared.news.lock()
    }

    /// Waits until something came since [`news`](Self::news) said `seen`, or for this long.
    pub fn await_news(&self, seen: u64, limit: Duration) {
        let news = self.shared.news.lock();
        if *news == seen {
            drop(self.shared.news.sleep(news, limit));
        }
    }

    /// A thread that [waits for news](Self::await_news) goes on.
    pub fn wake(&self) {
        self.shared.tell();
    }

    /// Records through this one are not needed here any more: a leader may use their space again.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn release(&self, lsn: Lsn) -> Result<()> {
        self.shared.served.lock().release(lsn.0)
    }

    /// Whether a leader waits for a release.
    pub fn is_awaited(&self) -> bool {
        self.shared.served.lock().is_awaited()
    }

    /// Waits until it fails, or for this long; true if it goes on.
    ///
    /// # Errors
    /// What the replica failed with: a sync that failed, damage. It acknowledges nothing any more.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        let mut failed = self.shared.failed.lock();
        if failed.is_none() {
            self.shared.over.wait_for(&mut failed, limit);
        }
        match failed.take() {
            Some(error) => Err(error),
            None => Ok(!self.shared.stop.load(Acquire)),
        }
    }

    /// Stops serving, and closes the pool.
    ///
    /// # Errors
    /// Those of closing the pool.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        let pool = self.shared.pool.clone();
        drop(self);
        match pool.close() {
            Ok(()) | Err(pmem::Error::InUse { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Release);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join(); // a panic in it was said
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replica({}, {:?})", self.address, self.status())
    }
}

#[expect(clippy::disallowed_methods, reason = "ends when the replica is dropped, which waits for it")]
fn spawn(what: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(what)
}

pub(crate) fn open_or_create(pool: &pmem::Options, path: &Path) -> Result<Pool> {
    let pool = pool.clone().engine(NAME, [0; 64]);
    if path.exists() { Ok(pool.open(path)?) } else { Ok(pool.size(64 << 10).create(path)?) }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Acquire)
    }

    fn fail(&self, error: Error) {
        tracing::error!(%error, "the replica cannot go on");
        *self.failed.lock() = Some(error);
        self.stop.store(true, Release);
        self.over.notify_all();
        self.tell();
    }

    fn tell(&self) {
        *self.news.lock() += 1;
        self.news.wake_all();
    }

    fn session(&self, connection: Connection) {
        let Connection { sender, mut receiver, peer, access } = connection;
        let session = self.served.lock().connected(sender, access, peer);
        let talked = self.talk(session, receiver.as_mut());
        let left = {
            let mut served = self.served.lock();
            served.unheard(session);
            served.left(session)
        };
        if let Some(mut sender) = left {
            sender.close(); // what it was told last arrives, if it takes anything
        }
        if let Err(error) = talked {
            self.fail(error);
        }
    }

    /// Everything a connection brings. An error is the replica's own. Where several writes came between two barriers more may have come meanwhile, and it looks again before the
    /// next: a look costs less than a barrier and an acknowledgement.
    fn talk(&self, session: u64, receiver: &mut dyn Receiver) -> Result<()> {
        let (mut waiting, mut streams, mut looked) = (0, false, false);
        while !self.is_over() {
            let event = receiver.poll(if waiting > 0 { Duration::ZERO } else { POLL_INTERVAL });
            let over = matches!(event, Err(_) | Ok(Some(Event::Closed(_))));
            if matches!(event, Ok(None)) && !self.served.lock().has(session) {
                return Ok(());
            }
            if let Ok(Some(event)) = event {
                let mut served = self.served.lock();
                served.on_event(session, event)?;
                if !over && !served.has(session) {
                    return Ok(());
                }
                waiting = if served.has_dirty() { waiting + 1 } else { 0 };
                drop(served);
                if waiting == 0 {
                    self.tell();
                }
                if waiting < BATCH_MAX && !over {
                    continue;
                }
            }
            if waiting > 0 && streams && !looked && !over {
                looked = true;
            } else if waiting > 0 {
                self.served.lock().persist()?;
                self.tell();
                (streams, looked, waiting) = (waiting > 1, false, 0);
            }
            if over {
                break;
            }
        }
        Ok(())
    }
}
