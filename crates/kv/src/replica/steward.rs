//! What the store that leads has for the other machines, while it leads: how it is doing, changes of its copies, and itself, for a follower that is further behind than the log.
//!
//! It listens where this machine's copy of the log was served while it followed: a leader's own copy is not served. Requests and answers are lines of text, so
//! that versions that differ understand each other's refusals; only what has proved to belong to the group is heard ([`log::fabric::Options`]).
//!
//! | request | answer |
//! |---|---|
//! | `cairn-kv 1 status` | `ok` and lines: [`LeaderStatus`] |
//! | `cairn-kv 1 seed LOG` | `ok BYTES`, then so many bytes in messages, then `end HASH` |
//! | `cairn-kv 1 join ADDRESS` | `ok`, when that copy of the log is one of those that count |
//! | `cairn-kv 1 remove ID` | `ok`, when it is none any more |
//! | `cairn-kv 1 transfer ADDRESS` | `ok`, when this machine has begun to leave the leadership to the one that announces ADDRESS |
//!
//! Any answer may be `error WHY` instead, behind which the connection is over.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::Duration;

use log::fabric::{self, Connection, Event, Listener, MESSAGE_MAX, Receiver, Rights, Sender};
use log::{Lsn, ReplicaHealth};
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};
use crate::store::Store;

/// What every request begins with.
const GREETING: &str = "cairn-kv 1 ";
/// Longest time until a thread notices that it is to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A request has to come within this time, and each part of an answer: to make a seed takes a while.
const TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT_SEED: Duration = Duration::from_secs(600);
/// The leader looks at the successor, and tells the others, before it answers.
const TIMEOUT_TRANSFER: Duration = Duration::from_secs(30);
/// Peers that are answered at once.
const PEERS_MAX: usize = 16;
/// Copies of a log are fewer; so many lines are read of a status.
const LINES_MAX: usize = 64;

/// How a store that leads is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderStatus {
    /// Its last commit; they are counted from 1.
    pub commits: u64,
    /// The number that the next record of its log gets.
    pub next: u64,
    /// The log's id.
    pub log: u64,
    /// How many copies must have a record before its commit returns.
    pub write_quorum: u32,
    /// The id of the leader's own copy; 0 if it has none that counts.
    pub own: u64,
    /// The newest [wire version](log::WIRE_VERSION) that the leader speaks; none if its program is of before it said so.
    pub wire: Option<u32>,
    /// The other copies.
    pub copies: Vec<CopyStatus>,
}

/// How another copy of the log is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStatus {
    /// Its id.
    pub id: u64,
    /// It takes part: what it acknowledges counts.
    pub live: bool,
    /// It has all records through this one.
    pub through: u64,
    /// The newest wire version that its machine speaks; none if it is not live, or if the leader does not know.
    pub wire: Option<u32>,
    /// Where it is reached; or why it takes no part.
    pub what: String,
}

/// Answers the other machines, until it is dropped.
#[derive(Debug)]
pub struct Steward {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Begins to leave the leadership to the machine at an address, or says why it does not. It takes less than a request may ([`ask_to_transfer`]).
pub type Transfer = dyn Fn(&str) -> std::result::Result<(), String> + Send + Sync;

struct Office {
    store: Arc<Store>,
    transfer: Box<Transfer>,
    trust: fabric::Options,
    stop: Arc<AtomicBool>,
    /// One seed is made at a time: it takes as much of the disk as the store.
    seeding: Mutex<()>,
}

impl Steward {
    /// Answers at `address` for this store, which leads.
    ///
    /// # Errors
    /// Those of the network.
    pub fn serve(store: &Arc<Store>, address: &str, trust: &fabric::Options) -> Result<Self> {
        let none = |_: &str| Err("it has no other machine lead on request".to_owned());
        Self::serve_with(store, address, trust, Box::new(none))
    }

    /// The same for a program that elects leaders, and can leave the leadership to another machine.
    ///
    /// # Errors
    /// Those of the network.
    pub fn serve_with(
        store: &Arc<Store>,
        address: &str,
        trust: &fabric::Options,
        transfer: Box<Transfer>,
    ) -> Result<Self> {
        let quiet = fabric::Options { rights: Rights::None, ..trust.clone() };
        let mut listener = Listener::bind(address, quiet, None).map_err(log::Error::from)?;
        let address = listener.address().map_err(log::Error::from)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (store, trust) = (Arc::clone(store), trust.clone());
        let office = Arc::new(Office { store, transfer, trust, stop: Arc::clone(&stop), seeding: Mutex::new(()) });
        let over = Arc::clone(&stop);
        let thread = spawn(move || {
            let mut peers: Vec<JoinHandle<()>> = Vec::new();
            while !over.load(Acquire) {
                match listener.accept(POLL_INTERVAL) {
                    Ok(Some(connection)) => {
                        peers.retain(|peer| !peer.is_finished());
                        if peers.len() < PEERS_MAX {
                            let office = Arc::clone(&office);
                            peers.push(spawn(move || office.talk(connection)));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a connection cannot be accepted");
                        std::thread::sleep(POLL_INTERVAL); // no files left, as a rule: others may end
                    }
                }
            }
            for peer in peers {
                let _ = peer.join(); // a panic in it was said
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.stop.store(true, Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic in it was said
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "ends when the steward is dropped, which waits for it")]
fn spawn(what: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(what)
}

// ---- the side of the leader -----------------------------------------------------------------------------------------

impl Office {
    fn talk(&self, connection: Connection) {
        let Connection { mut sender, mut receiver, peer, .. } = connection;
        let over = || self.stop.load(Acquire);
        let Ok(request) = hear(receiver.as_mut(), &peer, TIMEOUT, &over) else { return };
        let answered = self.answer(&String::from_utf8_lossy(&request), sender.as_mut(), receiver.as_mut());
        if let Err(error) = answered {
            tracing::info!(peer, %error, "a request of another machine was not met");
            let text = format!("error {error}");
            drop(say(sender.as_mut(), &text.as_bytes()[..text.len().min(MESSAGE_MAX)]));
        }
        sender.close();
    }

    fn answer(&self, request: &str, sender: &mut dyn Sender, receiver: &mut dyn Receiver) -> Result<()> {
        let failed = |why: &str| Error::from(log::Error::Replica { replica: "the leader".into(), why: why.into() });
        let words: Vec<&str> =
            request.strip_prefix(GREETING).map(|words| words.split(' ').collect()).unwrap_or_default();
        match words[..] {
            ["status"] => say(sender, self.store.leader_status()?.to_text().as_bytes()),
            ["seed", log] if number(log).is_some_and(|log| self.store.is_of_log(log)) => self.seed(sender, receiver),
            ["seed", _] => Err(failed("its store is of another log")),
            ["join", address] => {
                self.store.join(address, &self.trust)?;
                say(sender, b"ok")
            }
            ["remove", id] => {
                self.store.remove_copy(number(id).ok_or_else(|| failed("that is no id of a copy"))?)?;
                say(sender, b"ok")
            }
            ["transfer", address] => {
                (self.transfer)(address).map_err(|why| failed(&why))?;
                say(sender, b"ok")
            }
            _ => Err(failed("it does not understand that: its version is another one")),
        }
    }

    /// Makes a seed beside the store, and sends it. The file has no name while it is sent.
    fn seed(&self, sender: &mut dyn Sender, receiver: &mut dyn Receiver) -> Result<()> {
        let Some(_one) = self.seeding.try_lock() else {
            return Err(log::Error::Replica {
                replica: "the leader".into(),
                why: "it sends a seed to another one".into(),
            }
            .into());
        };
        let path = beside(self.store.pool().path(), ".giving");
        let io = |op, source| Error::Pool(pmem::Error::Io { op, path: path.clone(), source });
        remove(&path).map_err(|error| io("remove", error))?;
        let over = || Error::from(log::Error::Replica { replica: "the leader".into(), why: "it leads no more".into() });
        self.store.seed_while(&path, |_| if self.stop.load(Acquire) { Err(over()) } else { Ok(()) })?;
        let mut file = File::open(&path).map_err(|error| io("open", error))?;
        fs::remove_file(&path).map_err(|error| io("remove", error))?;
        let bytes = file.metadata().map_err(|error| io("look at", error))?.len();
        say(sender, format!("ok {bytes}").as_bytes())?;
        let (mut left, mut hash, mut part) = (bytes, Xxh3::new(), vec![0; MESSAGE_MAX]);
        while left > 0 {
            // A follower that has left, or an end of this leadership, ends it.
            let gone = !matches!(receiver.poll(Duration::ZERO), Ok(None));
            if gone || self.stop.load(Acquire) {
                return Ok(());
            }
            let len = left.min(MESSAGE_MAX as u64) as usize;
            let part = &mut part[..len];
            file.read_exact(part).map_err(|error| io("read", error))?;
            hash.update(part);
            say(sender, part)?;
            left -= len as u64;
        }
        say(sender, format!("end {:x}", hash.digest()).as_bytes())?;
        // It says so when it has all of it; until then the connection is not to be closed under it.
        drop(hear(receiver, "", TIMEOUT, &|| self.stop.load(Acquire)));
        Ok(())
    }
}

impl LeaderStatus {
    fn to_text(&self) -> String {
        let Self { commits, next, log, write_quorum, own, wire, copies } = self;
        let mut text =
            format!("ok\ncommits {commits}\nnext {next}\nlog {log:x}\nwrite-quorum {write_quorum}\nown {own:x}");
        for CopyStatus { id, live, through, what, .. } in copies {
            let (state, what) = (if *live { "live" } else { "failed" }, what.replace('\n', " "));
            text += &format!("\ncopy {id:x} {state} {through} {what}");
        }
        // Behind the copies, and not in their lines, which go on with any text.
        let wires = copies.iter().map(|copy| (copy.id, copy.wire)).chain([(*own, *wire)]);
        for (id, version) in wires.filter_map(|(id, wire)| Some((id, wire?))) {
            text += &format!("\nwire {id:x} {version}");
        }
        text
    }

    /// None if it makes no sense; lines that a later version has more are passed over.
    fn of_text(text: &str) -> Option<Self> {
        let mut this = Self::default();
        let mut lines = text.lines();
        (lines.next()? == "ok").then_some(())?;
        for line in lines.take(LINES_MAX) {
            let (name, value) = line.split_once(' ')?;
            match name {
                "commits" => this.commits = value.parse().ok()?,
                "next" => this.next = value.parse().ok()?,
                "log" => this.log = number(value)?,
                "write-quorum" => this.write_quorum = value.parse().ok()?,
                "own" => this.own = number(value)?,
                "copy" => {
                    let mut words = value.splitn(4, ' ');
                    let (id, live, through) =
                        (number(words.next()?)?, words.next()? == "live", words.next()?.parse().ok()?);
                    this.copies.push(CopyStatus {
                        id,
                        live,
                        through,
                        what: words.next().unwrap_or_default().to_owned(),
                        wire: None,
                    });
                }
                "wire" => {
                    let (id, version) = value.split_once(' ')?;
                    let (id, version) = (number(id)?, version.parse().ok()?);
                    match this.copies.iter_mut().find(|copy| copy.id == id) {
                        Some(copy) => copy.wire = Some(version),
                        None if id == this.own => this.wire = Some(version),
                        None => {}
                    }
                }
                _ => {}
            }
        }
        Some(this)
    }
}

impl Store {
    /// How this store is doing, which leads.
    ///
    /// # Errors
    /// [`Error::Follows`]; [`Error::NotReplicated`].
    pub fn leader_status(&self) -> Result<LeaderStatus> {
        let log = self.core.persistence.leading()?.log();
        let (reached, speak) = (log.addresses(), log.wire_versions());
        let at = |id| reached.iter().find(|(of, _)| *of == id).map(|(_, at)| at.clone()).unwrap_or_default();
        let copy = |(id, state, through): (u64, ReplicaHealth, Lsn)| {
            let (live, what) = match state {
                ReplicaHealth::Live => (true, at(id)),
                ReplicaHealth::Failed(why) => (false, why),
            };
            let wire = speak.iter().find(|(of, _)| *of == id).map(|(_, version)| *version);
            CopyStatus { id, live, through: through.get(), what, wire: wire.filter(|_| live) }
        };
        let (members, write_quorum) = log.members();
        let own = log.own_replica().unwrap_or(0);
        let mut copies: Vec<_> = log.replicas().into_iter().map(copy).collect();
        let away = members.iter().filter(|id| **id != own && copies.iter().all(|copy| copy.id != **id));
        let unknown =
            |id: &u64| CopyStatus { id: *id, what: "it has not been reached".into(), ..CopyStatus::default() };
        let away: Vec<_> = away.map(unknown).collect();
        copies.extend(away);
        Ok(LeaderStatus {
            commits: self.core.persistence.last(),
            next: log.stats().next.get(),
            log: log.id(),
            write_quorum,
            own,
            wire: Some(log::WIRE_VERSION),
            copies,
        })
    }

    fn is_of_log(&self, log: u64) -> bool {
        self.core.persistence.leading().is_ok_and(|leading| leading.log().id() == log)
    }
}

// ---- the side of the others -----------------------------------------------------------------------------------------

/// How the store is doing that leads, whose machine is reached at `address` (host and port).
///
/// # Errors
/// Those of the network; what the leader answers.
pub fn leader_status(address: &str, trust: &fabric::Options) -> Result<LeaderStatus> {
    let answer = ask(address, trust, "status", TIMEOUT, &|| false)?.2;
    LeaderStatus::of_text(&answer).ok_or_else(|| nonsense(address))
}

/// Has the leader at `address` take the copy of the log at `copy` in, while it serves: see [`Store::join`].
///
/// # Errors
/// Those of the network; what the leader answers.
pub fn ask_to_join(address: &str, trust: &fabric::Options, copy: &str) -> Result<()> {
    ask(address, trust, &format!("join {copy}"), TIMEOUT_SEED, &|| false).map(drop)
}

/// Has the leader at `address` do without the copy with this id, for good: see [`Store::remove_copy`].
///
/// # Errors
/// Those of the network; what the leader answers.
pub fn ask_to_remove(address: &str, trust: &fabric::Options, id: u64) -> Result<()> {
    ask(address, trust, &format!("remove {id:x}"), TIMEOUT_SEED, &|| false).map(drop)
}

/// Has the leader at `address` leave the leadership to the machine whose copy of the log is announced at `to`. It has begun to when this returns; who leads then is told by the election.
///
/// # Errors
/// Those of the network; what the leader answers.
pub fn ask_to_transfer(address: &str, trust: &fabric::Options, to: &str) -> Result<()> {
    ask(address, trust, &format!("transfer {to}"), TIMEOUT_TRANSFER, &|| false).map(drop)
}

/// Brings a [seed](Store::seed) of the store of log `log` that leads at `address` to a file at `to`: durable when this returns. What was there is overwritten.
pub(super) fn fetch(
    address: &str,
    trust: &fabric::Options,
    log: u64,
    to: &Path,
    over: &dyn Fn() -> bool,
) -> Result<u64> {
    let io = |op, source| Error::Pool(pmem::Error::Io { op, path: to.to_owned(), source });
    let (mut sender, mut receiver, answer) = ask(address, trust, &format!("seed {log:x}"), TIMEOUT_SEED, over)?;
    let bytes: u64 = answer.strip_prefix("ok ").and_then(|n| n.parse().ok()).ok_or_else(|| nonsense(address))?;
    // As the store's own file: for no other user.
    remove(to).map_err(|error| io("remove", error))?;
    let made = File::options().write(true).create_new(true).mode(0o600).open(to);
    let mut file = made.map_err(|error| io("create", error))?;
    let (mut left, mut hash) = (bytes, Xxh3::new());
    while left > 0 {
        let part = hear(receiver.as_mut(), address, TIMEOUT, over)?;
        left = left.checked_sub(part.len() as u64).ok_or_else(|| nonsense(address))?;
        hash.update(&part);
        file.write_all(&part).map_err(|error| io("write", error))?;
    }
    let end = hear(receiver.as_mut(), address, TIMEOUT, over)?;
    if end != format!("end {:x}", hash.digest()).as_bytes() {
        return Err(log::Error::Replica {
            replica: address.into(),
            why: "the seed did not arrive as it was sent".into(),
        }
        .into());
    }
    file.sync_all().map_err(|error| io("sync", error))?;
    sender.close();
    Ok(bytes)
}

type Answered = (Box<dyn Sender>, Box<dyn Receiver>, String);

fn ask(
    address: &str,
    trust: &fabric::Options,
    request: &str,
    timeout: Duration,
    over: &dyn Fn() -> bool,
) -> Result<Answered> {
    let Connection { mut sender, mut receiver, access, .. } =
        fabric::connect(address, trust, None).map_err(log::Error::from)?;
    access.set(Rights::None);
    say(sender.as_mut(), format!("{GREETING}{request}").as_bytes())?;
    let answer = hear(receiver.as_mut(), address, timeout, over)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.strip_prefix("error ") {
        Some(why) => Err(log::Error::Replica { replica: address.into(), why: why.to_owned() }.into()),
        None if answer.starts_with("ok") => Ok((sender, receiver, answer)),
        None => Err(nonsense(address)),
    }
}

fn nonsense(address: &str) -> Error {
    log::Error::Replica { replica: address.into(), why: "it sent what makes no sense".into() }.into()
}

fn say(sender: &mut dyn Sender, message: &[u8]) -> Result<()> {
    sender.send(message).and_then(|()| sender.flush()).map_err(|error| log::Error::from(error).into())
}

/// The next message.
fn hear(receiver: &mut dyn Receiver, peer: &str, timeout: Duration, over: &dyn Fn() -> bool) -> Result<Vec<u8>> {
    let failed = |why: String| Error::from(log::Error::Replica { replica: peer.to_owned(), why });
    let mut naps = timeout.as_millis() / POLL_INTERVAL.as_millis();
    while !over() {
        match receiver.poll(POLL_INTERVAL).map_err(log::Error::from)? {
            Some(Event::Message(bytes)) => return Ok(bytes),
            Some(Event::Closed(reason)) => return Err(failed(reason.to_string())),
            Some(_) => {}
            None if naps == 0 => return Err(failed(format!("it did not answer in {timeout:?}"))),
            None => naps -= 1,
        }
    }
    Err(failed("this machine does not wait for it any more".into()))
}

fn number(hex: &str) -> Option<u64> {
    u64::from_str_radix(hex, 16).ok()
}

/// A file beside a store, in the same folder.
pub(super) fn beside(store: &Path, what: &str) -> PathBuf {
    let mut name = store.file_name().unwrap_or_default().to_owned();
    name.push(what);
    store.with_file_name(name)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let copies = vec![
            CopyStatus { id: 0xa1, live: true, through: 7, what: "b:7400".into(), wire: Some(4) },
            CopyStatus { id: 0xb2, live: false, through: 3, what: "it did\nnot answer".into(), wire: None },
        ];
        let status = LeaderStatus { commits: 9, next: 8, log: 0xfe, write_quorum: 2, own: 5, wire: Some(5), copies };
        let text = status.to_text();
        let mut read = LeaderStatus::of_text(&(text.clone() + "\nlater 1 2 3")).unwrap();
        assert_eq!(read.copies[1].what, "it did not answer");
        read.copies[1].what = "it did\nnot answer".to_owned();
        assert_eq!(read, status);
        // As the build before tells it: of no wire versions.
        let before: Vec<&str> = text.lines().filter(|line| !line.starts_with("wire ")).collect();
        let read = LeaderStatus::of_text(&before.join("\n")).unwrap();
        assert_eq!((read.wire, read.copies.iter().find_map(|copy| copy.wire), read.copies.len()), (None, None, 2));
        for bad in [
            "",
            "no",
            "ok\ncommits",
            "ok\ncommits x",
            "ok\ncopy 1 live",
            "ok\ncopy 1 live x",
            "ok\nwire 1",
            "ok\nwire 1 x",
        ] {
            assert_eq!(LeaderStatus::of_text(bad), None, "{bad}");
        }
    }
}
