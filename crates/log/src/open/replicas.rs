//! How a replicated log is made and opened: connections, and the takeover over them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fabric::{Connection, Event, Receiver, Rights};
use pmem::DomainChoice;

use crate::core::Core;
use crate::error::{Away, Error, Result};
use crate::handle::Log;
use crate::options::Options;
use crate::recovery::Recovered;
use crate::replicate::candidate::{Candidate, Elected, Link, Lost, Make, Stand};
use crate::replicate::leading::{Clock, FlushOrder, LeadOptions};
use crate::replicate::members::Layout;
use crate::replicate::stored::StoredReplica;
use crate::replicate::takeover::Taken;
use crate::replicate::wire::Versions;
use crate::replicate::{number, open_or_create};

/// Where the replicas of a log are, and how many must have a record before it counts as durable.
///
/// ```no_run
/// # fn main() -> cairn_log::Result<()> {
/// use cairn_log::{Options, Replicas, fabric};
/// let secret = fabric::Secret::new(&std::fs::read("/etc/cairn/secret").unwrap())?;
/// let replicas = Replicas::new()
///     .local("/mnt/pmem/orders.log")     // one of the three; leave it out, and all of them are elsewhere
///     .at("backup-1:7400")
///     .at("backup-2:7400")
///     .write_quorum(2)                   // any one of them may be lost
///     .trust(fabric::Options { secret: Some(secret), ..Default::default() });
/// let (log, found) = Options::new().open_replicated(&replicas)?;
/// # Ok(()) }
/// ```
///
/// Leader and replicas reach each other by TCP, or by the [`transport`](fabric::Options::transport) that all of them are told. With the feature `libfabric` one is
/// `"libfabric:verbs".parse()`, which is RDMA: then the leader's device writes records into the replicas, whose processors check and flush them. It does so where a replica is in
/// memory: on devdax or tmpfs. A replica in a file is written by its process, since no sync would find what a device wrote there; so is one on fsdax, as long as the kernel
/// lets no device have such pages for good.
#[derive(Clone, Debug)]
pub struct Replicas {
    local: Option<PathBuf>,
    addresses: Vec<String>,
    write_quorum: Option<u32>,
    trust: fabric::Options,
    order: FlushOrder,
    timeout: Duration,
    open_timeout: Duration,
    owner: Option<u64>,
    term: u64,
    accept_doubt: bool,
    lost: Vec<u64>,
    again: bool,
    speaks: Versions,
}

impl Default for Replicas {
    fn default() -> Self {
        Self::new()
    }
}

impl Replicas {
    /// No replicas yet. A replica is given up that has not acknowledged for two seconds.
    #[must_use]
    pub fn new() -> Self {
        Self {
            local: None,
            addresses: Vec::new(),
            write_quorum: None,
            trust: fabric::Options::default(),
            order: FlushOrder::Beside,
            timeout: Duration::from_secs(2),
            open_timeout: Duration::from_secs(30),
            owner: None,
            term: 0,
            accept_doubt: false,
            lost: Vec::new(),
            again: false,
            speaks: Versions::default(),
        }
    }

    /// The replica in the pool at this path is the leader's own. Without one the leader keeps the log in memory, and only the others are durable.
    #[must_use]
    pub fn local(self, path: impl AsRef<Path>) -> Self {
        Self { local: Some(path.as_ref().to_owned()), ..self }
    }

    /// A replica that a [`Replica`](crate::Replica) serves at this address, host and port.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// How many replicas must have a record, for a new log; by default all of them. With `n` replicas and a quorum of `w`, `n - w` may be lost while
    /// the log goes on, and `w - 1` without losing a record.
    #[must_use]
    pub fn write_quorum(self, replicas: u32) -> Self {
        Self { write_quorum: Some(replicas), ..self }
    }

    /// How leader and replicas know each other, and by which transport they reach each other.
    #[must_use]
    pub fn trust(self, options: fabric::Options) -> Self {
        Self { trust: options, ..self }
    }

    /// When the leader's own replica is flushed.
    #[must_use]
    pub fn order(self, order: FlushOrder) -> Self {
        Self { order, ..self }
    }

    /// A replica that has not acknowledged for so long is given up.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self { timeout: limit, ..self }
    }

    /// How long opening waits for a replica's answer: what is asked there can be to read the whole log. 30 s by default.
    #[must_use]
    pub fn open_timeout(self, limit: Duration) -> Self {
        Self { open_timeout: limit, ..self }
    }

    /// The number by which the election service knows this one, and its term. The log's epoch, which counts takeovers, is at least the term as long as that
    /// leaves half of the epochs for them. Neither orders leaders: one of an older term that opens the log later shuts the present one out, so check that the
    /// lease is still held before opening, say how long it is [held](Log::lead_for), and [`fence`](Log::fence) the log when it is lost.
    #[must_use]
    pub fn elected(self, owner: u64, term: u64) -> Self {
        Self { owner: Some(owner), term, ..self }
    }

    /// Opens although a record may be lost that was acknowledged ([`Error::InDoubt`]): for replicas that will never come back.
    #[must_use]
    pub fn accept_doubt(self, accept: bool) -> Self {
        Self { accept_doubt: accept, ..self }
    }

    /// The replica of this [id](crate::ReplicaStatus::id) is lost for good, with its medium: a new, empty one of those that are named takes its place when the log is opened; the write
    /// quorum stays, and all the other replicas must be there. For logs that cannot be opened without it; of an open one [`Log::join`] and [`Log::remove`] do the same. Once for each. A replica that was
    /// said to be lost must never be served again: it does not know that it is not one any more.
    #[must_use]
    pub fn lost(mut self, id: u64) -> Self {
        self.lost.push(id);
        self
    }

    /// By a leader that speaks these wire versions.
    #[cfg(test)]
    pub(crate) fn speaking(self, speaks: Versions) -> Self {
        Self { speaks, ..self }
    }

    /// A log is [made](Options::create_replicated) of replicas that a making was cut short of, too: none of them has ever had a record. Only if no other log can have named them its own
    /// meanwhile, as a replica that was about to join one looks the same: a caller that says this knows that there is none.
    #[must_use]
    pub fn make_again(self, again: bool) -> Self {
        Self { again, ..self }
    }
}

impl Options {
    /// Makes a log with these replicas, all of which have to be there and empty.
    ///
    /// # Errors
    /// [`Error::QuorumUnavailable`] if they are not; [`Error::Limit`]; those of the pool and of the network.
    pub fn create_replicated(&self, replicas: &Replicas) -> Result<Log> {
        self.check()?;
        let (segment_bytes, segments) = self.geometry()?;
        let layout =
            Layout { log: number()?, key: number()?, segment_bytes, segments, checksums: pmem::FORMAT_VERSION };
        let all = replicas.addresses.len() + usize::from(replicas.local.is_some());
        let make = Make {
            layout,
            write_quorum: replicas.write_quorum.unwrap_or(all as u32),
            ids: replicas.addresses.iter().map(|_| number()).collect::<Result<_>>()?,
            again: replicas.again,
        };
        lead(self, replicas, Some(make)).map(|(log, _)| log)
    }

    /// Takes a log over, as its leader: the previous leader is fenced, the replicas that can be reached are repaired, and nothing that was acknowledged is missing.
    ///
    /// # Errors
    /// [`Error::QuorumUnavailable`], [`Error::InDoubt`], [`Error::Unrecoverable`], [`Error::Fenced`]; those of the pool and of the network.
    pub fn open_replicated(&self, replicas: &Replicas) -> Result<(Log, Recovered)> {
        self.check()?;
        lead(self, replicas, None)
    }
}

#[expect(clippy::disallowed_methods, reason = "time-outs are in real time; the simulator brings its own clock")]
fn clock() -> Clock {
    let start = Instant::now();
    Box::new(move || start.elapsed().as_micros() as u64)
}

/// The least epoch of a leader of this term.
fn epoch_floor(term: u64) -> u32 {
    u32::try_from(term).ok().filter(|&term| term <= u32::MAX / 2).unwrap_or(0)
}

fn lead(options: &Options, replicas: &Replicas, make: Option<Make>) -> Result<(Log, Recovered)> {
    let failpoints = options.failpoints();
    let is_new = make.is_some();
    let (pool, temporary) = image_pool(options, replicas.local.as_deref())?;
    let image = StoredReplica::open(&pool, failpoints)?;
    let mut links = Vec::new();
    let (mut receivers, mut away) = (Vec::new(), Vec::new());
    for address in &replicas.addresses {
        match fabric::connect(address, &replicas.trust, None) {
            Ok(Connection { sender, receiver, access, .. }) => {
                access.set(Rights::Write); // to nothing: it acknowledges by immediates
                links.push(Link::new(0, address.clone(), sender));
                receivers.push(Some(receiver));
            }
            Err(error) if is_new => return Err(error.into()),
            Err(error) => {
                tracing::warn!(address, %error, "a replica is not reached");
                away.push(Away { replica: address.clone(), why: error.to_string(), answered: false });
            }
        }
    }
    let owner = match replicas.owner {
        Some(owner) => owner,
        None => number()?,
    };
    let lost = replicas.lost.iter().map(|&id| Ok(Lost { id, new_id: number()? })).collect::<Result<_>>()?;
    let (term, image_id, accept_doubt) = (epoch_floor(replicas.term), number()?, replicas.accept_doubt);
    let image_counts = replicas.local.is_some();
    let stand =
        Stand { owner, term, make, image_id, image_counts, accept_doubt, lost, speaks: replicas.speaks, failpoints };
    let elected = Candidate::stand(stand, image, links)
        .and_then(|(candidate, taken)| hear_out(candidate, taken, &mut receivers, replicas.open_timeout, &mut away));
    let elected = elected.map_err(|error| match error {
        Error::QuorumUnavailable { why, found, missing, .. } => Error::QuorumUnavailable { why, found, missing, away },
        other => other,
    })?;
    drop(temporary); // its file has no name any more, and goes when the pool is closed
    let receivers = elected.links.iter().map(|(replica, _)| receivers[replica - 1].take()).collect();
    let lead_options = LeadOptions { order: replicas.order, timeout: replicas.timeout, clock: clock() };
    let (core, recovered) = Core::lead(elected, lead_options, options)?;
    Ok((Log::leading(core, recovered, receivers, &replicas.addresses, &replicas.trust), recovered))
}

/// The pool of the leader's image: its own replica, or a file that is gone when it is closed.
fn image_pool(options: &Options, local: Option<&Path>) -> Result<(pmem::Pool, Option<tempfile::TempDir>)> {
    if let Some(path) = local {
        return Ok((open_or_create(&options.pool, path)?, None));
    }
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let failed = |source| pmem::Error::Io { op: "make a folder in", path: memory.into(), source };
    let dir = dir.map_err(failed)?;
    let pool = open_or_create(&pmem::Options::new().domain(DomainChoice::Emulated), &dir.path().join("image"))?;
    Ok((pool, Some(dir)))
}

/// Longest wait without a look at the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Brings a candidate what its replicas say until it is elected.
fn hear_out(
    mut candidate: Candidate,
    taken: Option<Taken>,
    receivers: &mut [Option<Box<dyn Receiver>>],
    open_timeout: Duration,
    away: &mut Vec<Away>,
) -> Result<Elected> {
    let taken = take(&mut candidate, taken, receivers, open_timeout);
    away.extend_from_slice(candidate.away());
    Ok(candidate.finish(taken?))
}

#[expect(clippy::disallowed_methods, reason = "time-outs are in real time; the simulator brings its own")]
fn take(
    candidate: &mut Candidate,
    mut taken: Option<Taken>,
    receivers: &mut [Option<Box<dyn Receiver>>],
    open_timeout: Duration,
) -> Result<Taken> {
    let mut since = Instant::now();
    loop {
        if let Some(taken) = taken {
            return Ok(taken);
        }
        let mut quiet = true;
        for (at, slot) in receivers.iter_mut().enumerate() {
            let Some(receiver) = slot else { continue };
            let Ok(Some(event)) = receiver.poll(Duration::ZERO) else { continue };
            if matches!(event, Event::Closed(_)) {
                *slot = None;
            }
            quiet = false;
            since = Instant::now();
            taken = candidate.on_event(at + 1, event)?;
            if taken.is_some() {
                break;
            }
        }
        if quiet && since.elapsed() > open_timeout {
            since = Instant::now();
            taken = candidate.on_timeout()?;
        } else if quiet {
            let left = open_timeout.saturating_sub(since.elapsed()).min(POLL_INTERVAL);
            let there = receivers.iter_mut().flatten().map(|receiver| &mut **receiver as &mut dyn Receiver);
            fabric::wait(there, left)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_any_length_leave_epochs_for_takeovers() {
        let half = u64::from(u32::MAX / 2);
        assert_eq!([0, 7, half].map(epoch_floor), [0, 7, u32::MAX / 2]);
        assert_eq!([half + 1, u64::from(u32::MAX), 1 << 32, u64::MAX].map(epoch_floor), [0; 4]);
    }
}
