//! A leader and the other replicas of its log, over a network without faults.

use std::time::Duration;

use fabric::sim::{Faults, Network, Node};
use fabric::{Event, Receiver, Sender};
use pmem::Pool;

use super::wiring::{Way, clock, connect, layout, lead, peer_of};
use crate::error::{Error, Result};
use crate::recovery::Recovered;
use crate::replicate::candidate::{Candidate, Link, Make, Stand};
use crate::replicate::leading::FlushOrder;
use crate::replicate::served::Served;
use crate::replicate::stored::StoredReplica;
use crate::replicate::takeover::Taken;
use crate::replicate::wire::Versions;
use crate::{Log, Lsn, Options};

/// Time that passes where nothing happens.
const TICK: Duration = Duration::from_millis(20);

/// Where a replica is: a machine has a pool of its own, or a region of one.
#[derive(Clone, Debug)]
pub struct Home {
    /// The pool.
    pub pool: Pool,
    /// The region in it, which need not be there yet.
    pub region: &'static str,
}

/// Another machine.
struct Other {
    served: Served,
    node: Node,
    sessions: Vec<(u64, Box<dyn Receiver>)>,
}

/// Runs what a machine does, by its number; the leader is 0.
pub type On = fn(usize, &mut dyn FnMut());

/// A leader and other replicas. Nothing happens but what is called, on the caller's thread.
pub struct Cluster {
    network: Network,
    node: Node,
    log: Log,
    hears: Vec<(usize, Box<dyn Receiver>)>,
    others: Vec<Other>,
    on: On,
}

impl Cluster {
    /// Makes a log with a replica in each of these homes, the leader's own first.
    ///
    /// # Errors
    /// As [`Options::create_replicated`].
    pub fn create(options: &Options, homes: &[Home], write_quorum: u32, on: On) -> Result<Self> {
        let (segment_bytes, segments) = options.geometry()?;
        let layout = layout(segment_bytes, segments);
        let ids = (2..=homes.len() as u64).collect();
        let make = Make { layout, write_quorum, ids, again: false };
        Self::lead(options, homes, Some(make), 1, on).map(|(this, _)| this)
    }

    /// Takes it over from the replica in the first of these homes.
    ///
    /// # Errors
    /// As [`Options::open_replicated`].
    pub fn open(options: &Options, homes: &[Home], owner: u64, on: On) -> Result<(Self, Recovered)> {
        Self::lead(options, homes, None, owner, on)
    }

    fn lead(options: &Options, homes: &[Home], make: Option<Make>, owner: u64, on: On) -> Result<(Self, Recovered)> {
        let failpoints = options.failpoints();
        let network = Network::new(1, Faults::none());
        let node = network.node();
        let nobody =
            || Error::QuorumUnavailable { why: "nobody is there", found: 0, missing: Vec::new(), away: Vec::new() };
        let (own, rest) = homes.split_first().ok_or_else(nobody)?;
        let (mut others, mut links, mut hears) = (Vec::new(), Vec::new(), Vec::new());
        for (at, home) in rest.iter().enumerate() {
            let mut served = None;
            on(at + 1, &mut || served = Some(StoredReplica::open_in(&home.pool, home.region, failpoints)));
            let served = Served::new(served.ok_or_else(nobody)??, false);
            let mut other = Other { served, node: network.node(), sessions: Vec::new() };
            let (link, receiver) = other.connect(&network, node)?;
            links.push(link);
            hears.push((at + 1, receiver));
            others.push(other);
        }
        let image = StoredReplica::open_in(&own.pool, own.region, failpoints)?;
        let stand = Stand {
            owner,
            term: 0,
            make,
            image_id: 1,
            image_counts: true,
            accept_doubt: false,
            lost: Vec::new(),
            speaks: Versions::default(),
            failpoints,
        };
        let (mut candidate, mut taken) = Candidate::stand(stand, image, links)?;
        while taken.is_none() {
            let quiet = network.step().is_none();
            attend(&mut others, on)?;
            taken = hear_out(&mut candidate, &mut hears)?;
            if quiet && taken.is_none() {
                taken = candidate.on_timeout()?;
            }
        }
        let Some(taken) = taken else { return Err(nobody()) };
        let elected = candidate.finish(taken);
        hears.retain_mut(|(of, _)| peer_of(&elected, *of).map(|peer| *of = peer).is_some());
        let (log, recovered) = lead(elected, FlushOrder::Beside, clock(&network), options)?;
        Ok((Self { network, node, log, hears, others, on }, recovered))
    }

    /// The leader's handle. What waits for replicas never returns: here they do what they do when they are [attended](Self::catch_up).
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// A record that no replica was sent yet.
    ///
    /// # Errors
    /// As [`Log::reserve`].
    pub fn complete(&self, payload: &[u8]) -> Result<Lsn> {
        let mut record = self.log.reserve(payload.len())?;
        record.copy(0, payload);
        record.complete()
    }

    /// What is complete goes to the replicas and into the leader's own image, and all that is under way arrives, and is answered.
    ///
    /// # Errors
    /// Those of a force, and of a replica.
    pub fn force(&mut self) -> Result<()> {
        self.log.post()?;
        self.catch_up()?;
        self.log.post_parts(true)?;
        self.catch_up()?;
        self.log.check_leading()
    }

    /// All that is under way arrives, and is answered.
    ///
    /// # Errors
    /// A replica's.
    pub fn catch_up(&mut self) -> Result<()> {
        let Self { network, log, hears, others, on, .. } = self;
        while network.step().is_some() {
            attend(others, *on)?;
            hear(log, hears);
        }
        Ok(())
    }

    /// A new replica is taken in.
    ///
    /// # Errors
    /// As [`Log::join`].
    pub fn join(&mut self, home: &Home) -> Result<()> {
        self.join_along(home, |link| link)
    }

    fn join_along(&mut self, home: &Home, on_the_way: impl FnOnce(Link) -> Link) -> Result<()> {
        let at = self.others.len() + 1;
        let mut served = None;
        (self.on)(at, &mut || served = Some(StoredReplica::open_in(&home.pool, home.region, Default::default())));
        let Some(served) = served else { return Ok(()) };
        let mut other = Other { served: Served::new(served?, false), node: self.network.node(), sessions: Vec::new() };
        let (link, receiver) = other.connect(&self.network, self.node)?;
        self.others.push(other);
        self.join_over(on_the_way(link), receiver)
    }

    /// What is reached by this is taken in, whatever it is.
    ///
    /// # Errors
    /// As [`Log::join`].
    pub(super) fn join_by(&mut self, sender: Box<dyn Sender>, receiver: Box<dyn Receiver>) -> Result<()> {
        self.join_over(Link::new(0, "somebody".into(), sender), receiver)
    }

    fn join_over(&mut self, link: Link, receiver: Box<dyn Receiver>) -> Result<()> {
        let new_id = 100 + self.hears.len() as u64;
        let Self { network, log, hears, others, on, .. } = self;
        let mut failed = Ok(());
        let mut pump = || {
            network.step_until(network.now() + TICK);
            let attended = attend(others, *on);
            failed = std::mem::replace(&mut failed, Ok(())).and(attended);
            hear(log, hears);
        };
        let joined = log.join_by(link, receiver, new_id, &mut pump);
        failed?;
        hears.push(joined?);
        Ok(())
    }
}

/// What a receiver has.
fn arrived(receiver: &mut dyn Receiver) -> Option<Event> {
    receiver.poll(Duration::ZERO).ok().flatten()
}

/// The other machines do what has arrived there asks for.
fn attend(others: &mut [Other], on: On) -> Result<()> {
    for (at, other) in others.iter_mut().enumerate() {
        let mut done = Ok(());
        on(at + 1, &mut || done = other.attend());
        done?;
    }
    Ok(())
}

impl Other {
    fn connect(&mut self, network: &Network, leader: Node) -> Result<(Link, Box<dyn Receiver>)> {
        let Way { link, receiver, session, theirs } = connect(network, leader, self.node, &mut self.served)?;
        self.sessions.push((session, theirs));
        Ok((link, receiver))
    }

    fn attend(&mut self) -> Result<()> {
        for (session, receiver) in &mut self.sessions {
            while let Some(event) = arrived(receiver.as_mut()) {
                self.served.on_event(*session, event)?;
            }
        }
        if self.served.has_dirty() { self.served.persist() } else { Ok(()) }
    }
}

fn hear_out(candidate: &mut Candidate, hears: &mut [(usize, Box<dyn Receiver>)]) -> Result<Option<Taken>> {
    for (replica, receiver) in hears {
        while let Some(event) = arrived(receiver.as_mut()) {
            if let Some(taken) = candidate.on_event(*replica, event)? {
                return Ok(Some(taken));
            }
        }
    }
    Ok(None)
}

fn hear(log: &Log, hears: &mut [(usize, Box<dyn Receiver>)]) {
    for (peer, receiver) in hears {
        while let Some(event) = arrived(receiver.as_mut()) {
            log.on_event(*peer, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SEGMENT, SEGMENTS};

    /// What it writes is lost on the way to the medium.
    struct Lossy(Box<dyn Sender>);

    impl Sender for Lossy {
        fn write(&mut self, _: u64, _: &[u8]) -> fabric::Result<()> {
            Ok(())
        }
        fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> fabric::Result<()> {
            self.0.write_imm(offset, bytes, imm)
        }
        fn read(&mut self, offset: u64, len: u32, tag: u32) -> fabric::Result<()> {
            self.0.read(offset, len, tag)
        }
        fn send(&mut self, message: &[u8]) -> fabric::Result<()> {
            self.0.send(message)
        }
        fn flush(&mut self) -> fabric::Result<()> {
            self.0.flush()
        }
        fn close(&mut self) {
            self.0.close();
        }
    }

    #[test]
    fn a_replica_that_does_not_have_what_was_written_into_it_does_not_join() {
        let dir = tempfile::tempdir().expect("a folder");
        let pool = |name: &str| pmem::Options::new().size(64 << 10).create(dir.path().join(name)).expect("a pool");
        let homes = ["one", "two", "three", "four"].map(|name| Home { pool: pool(name), region: "log" });
        let options = Options::new().bytes(SEGMENTS * SEGMENT).segment_bytes(SEGMENT).idle(None);
        let mut cluster = Cluster::create(&options, &homes[..2], 2, |_, act| act()).expect("made");
        for n in 0..3 {
            cluster.complete(&[n; 40]).expect("room");
            cluster.force().expect("forced");
        }
        let lossy = |link: Link| Link::new(0, link.name, Box::new(Lossy(link.sender)));
        let error = cluster.join_along(&homes[2], lossy).expect_err("it has nothing");
        assert!(error.to_string().contains("is not what it has"), "{error}");
        cluster.join(&homes[3]).expect("that one has");
    }
}
