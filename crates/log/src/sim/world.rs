//! All machines, the network between them, and what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crash::Rng;
use fabric::Event;
use fabric::sim::{Faults, Network};

use super::node::{Leader, Node, Of, Role};
use super::shape::{Coverage, Shape};
use super::wiring::{clock, connect, layout, lead, peer_of};
use crate::error::{Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::replicate::candidate::{Candidate, Lost, Make, Stand};
use crate::replicate::leading::FlushOrder;
use crate::replicate::members::Config;
use crate::replicate::served::Served;
use crate::replicate::takeover::Taken;
use crate::replicate::wire::Versions;
use crate::{Log, Lsn, Options, ReplicaHealth};

pub(super) const SEGMENT: u64 = 512;
const SEGMENTS: u64 = 8;

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) network: Network,
    pub(super) nodes: Vec<Node>,
    pub(super) shape: Shape,
    pub(super) coverage: Coverage,
    without: Option<Step>,
    /// What was acknowledged: number, and the epoch of the leader that did, by LSN.
    acknowledged: BTreeMap<u64, (u64, u32)>,
    /// Through here records need not be there.
    truncated: u64,
    pub(super) next_number: u64,
    next_owner: u64,
    next_id: u64,
    /// Of the replica on each machine.
    ids: Vec<u64>,
    /// One replica was damaged.
    pub(super) damaged: Option<usize>,
    /// Where, from the start of its log's region.
    pub(super) flips: Vec<u64>,
    /// Several times in what may be one record's header: the last record of a log then looks like one that was never written. If another replica that acknowledged
    /// it is not read, two of those that had it are lost, and no leader can know.
    pub(super) twice: bool,
    /// ... or lost with its medium.
    pub(super) wiped: bool,
    /// Through which record the image of each machine that led was said to have all.
    own: Vec<u64>,
    /// This machine has a new medium, and no replica of the log was made of it yet.
    lost: Option<usize>,
    tells: bool,
}

/// What the program speaks that a machine is started with.
fn program(rng: &mut Rng, shape: &Shape) -> Versions {
    if shape.mixed && rng.chance(1, 2) { Versions::BEFORE } else { Versions::default() }
}

fn broken(what: impl std::fmt::Display) -> String {
    what.to_string()
}

impl World {
    pub(super) fn new(seed: u64, shape: Shape, without: Option<Step>) -> std::result::Result<Self, String> {
        let mut faults = if shape.calm { Faults::none() } else { Faults::all() };
        if shape.rivals {
            (faults.slow_per_mille, faults.slow_max) = (200, Duration::from_millis(50));
        }
        let network = Network::new(seed, faults);
        let mut rng = Rng::seeded(seed);
        let mut nodes = Vec::new();
        for machine in 0..shape.machines() + shape.clients {
            let net = network.node();
            let speaks = program(&mut rng, &shape);
            let (module, role) = if machine < shape.machines() {
                let (module, replica) = Node::make(Failpoints(without)).map_err(broken)?;
                (Some(module), Role::Serving(Box::new(Served::new(replica.speaking(speaks), false))))
            } else {
                (None, Role::Idle)
            };
            nodes.push(Node { net, module, role, speaks, ends: Vec::new() });
        }
        Ok(Self {
            rng,
            network,
            nodes,
            shape,
            coverage: Coverage::default(),
            without,
            acknowledged: BTreeMap::new(),
            truncated: 0,
            next_number: 1,
            next_owner: 1,
            next_id: 1000,
            ids: (0..shape.machines()).map(|c| 100 + c as u64).collect(),
            damaged: None,
            flips: Vec::new(),
            twice: false,
            wiped: false,
            own: vec![0; shape.machines()],
            lost: None,
            tells: std::env::var_os("CAIRN_TELL").is_some(),
        })
    }

    /// What happens, for a person to read: CAIRN_TELL=1.
    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{:?}: {}", self.network.now(), what());
        }
    }

    // ---- leaders ----------------------------------------------------------------------------------------------

    /// A machine stands for leader; with a replica of its own, it stops serving that to others.
    pub(super) fn stand(&mut self, at: usize, make: bool) -> std::result::Result<(), String> {
        let image = match std::mem::replace(&mut self.nodes[at].role, Role::Down) {
            Role::Serving(served) => served.into_stored(),
            Role::Idle => Node::make(Failpoints(self.without)).map_err(broken)?.1,
            other => {
                self.nodes[at].role = other;
                return Ok(());
            }
        };
        self.nodes[at].ends.clear();
        let mut links = Vec::new();
        for other in 0..if make { self.shape.replicas } else { self.shape.machines() } {
            let (here, there) = (self.nodes[at].net, self.nodes[other].net);
            let Some(served) = self.nodes[other].served().filter(|_| other != at) else { continue };
            let Ok(mut way) = connect(&self.network, here, there, served) else { continue };
            self.nodes[other].ends.push((Of::Session(way.session), way.theirs));
            way.link.name = format!("machine {other}");
            links.push(way.link);
            self.nodes[at].ends.push((Of::Replica(links.len()), way.receiver));
        }
        self.next_owner += 1;
        self.next_id += 2;
        let lost =
            self.lost.filter(|_| self.rng.chance(1, 2)).map(|at| Lost { id: self.ids[at], new_id: self.next_id + 1 });
        self.tell(|| format!("machine {at} stands, with {} links", links.len()));
        let ids: Vec<u64> = (0..self.shape.replicas).filter(|&c| c != at).map(|c| 100 + c as u64).collect();
        let has_replica = at < self.shape.machines();
        let layout = layout(SEGMENT, SEGMENTS);
        let stand = Stand {
            owner: self.next_owner,
            term: 0,
            make: make.then_some(Make { layout, write_quorum: self.shape.quorum, ids, again: true }),
            // A new medium is a new replica: a leader that took it for the one before would count on promises that are gone with that.
            image_id: if make && has_replica { self.ids[at] } else { self.next_id },
            image_counts: has_replica,
            // Where it is known that a replica will never be read again.
            accept_doubt: self.wiped,
            lost: lost.into_iter().collect(),
            speaks: self.nodes[at].speaks,
            failpoints: Failpoints(self.without),
        };
        match Candidate::stand(stand, image, links) {
            Ok((candidate, taken)) => {
                self.nodes[at].role = Role::Standing(Box::new(candidate));
                taken.map_or(Ok(()), |taken| self.elected(at, taken))
            }
            Err(error) => self.not_elected(at, &error),
        }
    }

    /// The takeover has failed: the machine goes back to what it was.
    fn not_elected(&mut self, at: usize, error: &Error) -> std::result::Result<(), String> {
        self.coverage.note(error);
        self.tell(|| format!("machine {at}: {error}"));
        let excusable = self.damaged.is_some() && self.shape.quorum < 2;
        match error {
            Error::Unrecoverable { .. } if !excusable => Err(format!("machine {at}: {error}")),
            Error::QuorumUnavailable { .. }
            | Error::InDoubt { .. }
            | Error::Fenced { .. }
            | Error::Unrecoverable { .. } => {
                self.down(at);
                self.up(at)
            }
            other => Err(format!("machine {at} could not take over: {other}")),
        }
    }

    fn elected(&mut self, at: usize, taken: Taken) -> std::result::Result<(), String> {
        let role = std::mem::replace(&mut self.nodes[at].role, Role::Down);
        let Role::Standing(candidate) = role else { return Err("elected without standing".into()) };
        self.coverage.elections += 1;
        self.coverage.in_doubt += u64::from(taken.in_doubt.is_some());
        self.tell(|| format!("machine {at} leads: {taken:?}"));
        let elected = candidate.finish(taken);
        let (epoch, ids, speaks) = (elected.epoch, &elected.taken.config.ids, elected.speaks);
        if let Some(lost) = self.lost.filter(|&lost| !ids.contains(&self.ids[lost])) {
            let new = ids.iter().find(|id| !self.ids.contains(id));
            self.ids[lost] = *new.ok_or("no new replica took the place of a lost one")?;
            self.lost = None;
            self.coverage.replaced += 1;
        }
        self.nodes[at].ends.retain_mut(|(of, _)| match of {
            Of::Replica(replica) => peer_of(&elected, *replica).map(|peer| *replica = peer).is_some(),
            Of::Session(_) => true,
        });
        let all = elected.links.len() + usize::from(elected.own.is_some()) == ids.len();
        self.coverage.mixed_elections +=
            u64::from(elected.links.iter().any(|(_, link)| link.newest() != speaks.newest));
        let order = if self.rng.chance(1, 4) { FlushOrder::Before } else { FlushOrder::Beside };
        let options = Options { without: self.without, ..Options::new() };
        let led = lead(elected, order, clock(&self.network), &options);
        let log = Arc::new(led.map_err(|e| format!("machine {at}: {e}"))?.0);
        self.check(&log, epoch, all).map_err(|e| format!("machine {at}, epoch {epoch}: {e}"))?;
        let forced = log.forced().get();
        self.nodes[at].role = Role::Leading(Box::new(Leader { log, pending: BTreeMap::new(), forced }));
        Ok(())
    }

    /// Everything acknowledged is there, but for what leaders after this one have acknowledged: it may be a late one, that is shut out and has not heard of it.
    fn check(&mut self, log: &Log, epoch: u32, all: bool) -> std::result::Result<(), String> {
        let mut found = BTreeMap::new();
        let mut records = log.iter();
        while let Some(record) = records.next().map_err(broken)? {
            let number = record.payload.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
            found.insert(record.lsn.get(), number.ok_or("a record without its number")?);
        }
        let excusable = self.twice && !all;
        let mut excused = Vec::new();
        for (lsn, (number, by)) in self.acknowledged.range(self.truncated + 1..) {
            if *by > epoch {
                continue;
            }
            match found.get(lsn) {
                Some(there) if there == number => {}
                None if excusable => excused.push(*lsn),
                there => {
                    return Err(format!("record {lsn} was acknowledged as {number}, and is {there:?} (log: {log:?})"));
                }
            }
        }
        for lsn in excused {
            self.acknowledged.remove(&lsn);
            self.coverage.excused += 1;
        }
        Ok(())
    }

    /// A leader appends a record, and sends it on its way, or lets it wait.
    pub(super) fn append(&mut self, at: usize) -> std::result::Result<(), String> {
        let (len, posts, flushes) = (8 + self.rng.index(90), self.rng.chance(2, 3), self.rng.chance(4, 5));
        let number = self.next_number;
        let Some(leader) = self.nodes[at].leader() else { return Ok(()) };
        if leader.pending.len() < 40 {
            match leader.log.reserve(len) {
                Ok(mut record) => {
                    record.copy(0, &number.to_le_bytes());
                    let lsn = record.complete().map_err(broken)?;
                    leader.pending.insert(lsn.get(), number);
                    self.next_number += 1;
                }
                Err(Error::Full { .. } | Error::QuorumLost { .. } | Error::Fenced { .. }) => {}
                Err(error) => return Err(broken(error)),
            }
        }
        if posts {
            leader.log.post_parts(flushes).map_err(broken)?;
        }
        self.catch_up(at)
    }

    /// What is durable by now is acknowledged.
    fn catch_up(&mut self, at: usize) -> std::result::Result<(), String> {
        let Some(leader) = self.nodes[at].leader() else { return Ok(()) };
        leader.forced = leader.log.forced().get();
        let epoch = leader.log.stats().epoch;
        let rest = leader.pending.split_off(&(leader.forced + 1));
        let (forced, some) = (leader.forced, !leader.pending.is_empty());
        let now_acked = std::mem::replace(&mut leader.pending, rest);
        if some {
            self.tell(|| format!("machine {at}: durable through {forced}"));
        }
        for (lsn, number) in now_acked {
            self.coverage.records += 1;
            if let Some((other, _)) = self.acknowledged.insert(lsn, (number, epoch)) {
                return Err(format!("record {lsn} was acknowledged as {other} by one, as {number} by machine {at}"));
            }
        }
        Ok(())
    }

    /// A leader truncates all but its newest records.
    pub(super) fn truncate(&mut self, at: usize) -> std::result::Result<(), String> {
        let keep = 1 + self.rng.below(8);
        let Some(leader) = self.nodes[at].leader() else { return Ok(()) };
        let Some(through) = leader.forced.checked_sub(keep).filter(|&t| t > 0) else { return Ok(()) };
        leader.log.truncate_to(Lsn(through)).map_err(broken)?;
        self.truncated = self.truncated.max(through);
        Ok(())
    }

    /// A replica that the leader has not joins; a new one takes the place of the one its machine had.
    pub(super) fn join(&mut self, at: usize, other: usize) -> std::result::Result<(), String> {
        let (here, there) = (self.nodes[at].net, self.nodes[other].net);
        let is_mixed = self.nodes[at].speaks != self.nodes[other].speaks;
        let Some(log) = self.nodes[at].leader().map(|leader| Arc::clone(&leader.log)) else { return Ok(()) };
        let Some(served) = self.nodes[other].served() else { return Ok(()) };
        let id = served.stored().log().map(|log| log.formed().me);
        let is_live = |id: u64| log.replicas().iter().any(|(i, state, _)| *i == id && *state == ReplicaHealth::Live);
        if id.is_some_and(is_live) {
            return Ok(());
        }
        let Ok(mut way) = connect(&self.network, here, there, served) else { return Ok(()) };
        self.nodes[other].ends.push((Of::Session(way.session), way.theirs));
        way.link.name = format!("machine {other}");
        self.next_id += 1;
        let new_id = self.next_id;
        self.tell(|| format!("machine {other} ({id:?}) joins machine {at}"));
        let (mut broken_by, mut turns, faults) = (None, 0, self.rng.chance(1, 4));
        let cut_short = self.shape.spares > 0 && self.rng.chance(1, 4);
        let mut apart = self.shape.restless && self.rng.chance(1, 4);
        let mut pump = || {
            let happened = self.step().map(|_| ()).and_then(|()| self.one_config_each());
            let happened = if faults { happened.and_then(|()| self.maybe_fault()) } else { happened };
            turns += 1;
            note(&log, turns, &mut broken_by, happened);
            // It was told that it joins, and its answer is lost.
            if cut_short && self.config_of(other).is_some_and(|(_, config)| config.before.is_some()) {
                self.network.reset(here, there);
            }
            // Leader and replica are cut off from all others when the replica has heard that it is one.
            if apart && self.config_of(other).is_some_and(|(_, config)| log.members().0.len() < config.ids.len()) {
                self.set_apart(&[at, other]);
                apart = false;
            }
        };
        let joined = log.join_by(way.link, way.receiver, new_id, &mut pump);
        let joined = joined.map(|(peer, receiver)| {
            // The replica that was lost with its medium is never seen again.
            let old = Some(self.ids[other]).filter(|&old| id != Some(old) && self.lost == Some(other));
            let mut pump = || {
                let happened = self.step().map(|_| ());
                turns += 1;
                note(&log, turns, &mut broken_by, happened);
            };
            let removed = old.map_or(Ok(()), |old| log.remove_by(old, &mut pump));
            (peer, receiver, removed)
        });
        if let Some(broken) = broken_by {
            return Err(broken);
        }
        match joined {
            // Nothing is appended meanwhile: all was compared before, while others could.
            Ok(_) if log.last_step() > 128 => {
                Err(format!("{} bytes were compared while nobody appends", log.last_step()))
            }
            Ok((peer, receiver, removed)) => {
                self.coverage.joins += 1;
                self.coverage.mixed_joins += u64::from(is_mixed);
                self.tell(|| format!("machine {other} has joined machine {at}: {removed:?}"));
                if self.lost == Some(other) {
                    self.lost = None;
                    self.coverage.replaced += 1;
                }
                self.coverage.growths += u64::from(log.members().0.len() > self.shape.replicas);
                self.ids[other] = id.unwrap_or(new_id);
                if self.nodes[at].leader().is_some_and(|leader| Arc::ptr_eq(&leader.log, &log)) {
                    self.nodes[at].ends.push((Of::Replica(peer), receiver));
                }
                Ok(())
            }
            Err(error) => {
                self.tell(|| format!("machine {other} has not joined machine {at}: {error}"));
                Ok(())
            }
        }
    }

    /// Cuts these off from all others.
    fn set_apart(&self, some: &[usize]) {
        for other in (0..self.nodes.len()).filter(|other| !some.contains(other)) {
            some.iter().for_each(|&one| self.network.cut(self.nodes[one].net, self.nodes[other].net));
        }
    }

    /// What a served replica says which replicas there are, and of which epoch that is.
    fn config_of(&mut self, at: usize) -> Option<(u32, Config)> {
        let formed = self.nodes[at].served()?.stored().log()?.formed();
        Some((formed.log_epoch, formed.config?))
    }

    /// No two configurations of one epoch have the same generation: a takeover would take either.
    fn one_config_each(&mut self) -> std::result::Result<(), String> {
        let mut known = BTreeMap::new();
        for at in 0..self.nodes.len() {
            let Some((epoch, config)) = self.config_of(at) else { continue };
            let before = known.entry((epoch, config.generation)).or_insert_with(|| config.clone());
            if *before != config {
                return Err(format!("machine {at}, epoch {epoch}: {config:?} and {before:?} are of one generation"));
            }
        }
        Ok(())
    }

    /// A replica leaves; there are more than a write quorum then, or no machine could lead without the one that is down.
    pub(super) fn remove(&mut self, at: usize, other: usize) -> std::result::Result<(), String> {
        let Some(log) = self.nodes[at].leader().map(|leader| Arc::clone(&leader.log)) else { return Ok(()) };
        let Some(&id) = self.ids.get(other).filter(|_| other != at) else { return Ok(()) };
        let (members, quorum) = log.members();
        if !members.contains(&id) || members.len() <= quorum as usize {
            return Ok(());
        }
        self.tell(|| format!("machine {other} ({id:x}) leaves machine {at}"));
        let knew: Vec<_> = (0..self.nodes.len()).map(|n| self.config_of(n)).collect();
        let live = log.replicas().into_iter().filter(|(_, state, _)| *state == ReplicaHealth::Live).count();
        let own = usize::from(log.own_replica().is_some_and(|mine| members.contains(&mine)));
        let is_live = log.replicas().iter().any(|(i, state, _)| *i == id && *state == ReplicaHealth::Live);
        // One that is at its end may have sent it before.
        let can_be_spared = log.check_leading().is_err() || live + own - usize::from(is_live) >= quorum as usize;
        let (mut broken_by, mut turns, faults) = (None, 0, self.rng.chance(1, 4));
        // Leader and replica are cut off from all others when the replica has heard of the first step, or of the second.
        let mut apart = (self.shape.restless && self.rng.chance(1, 2)).then(|| self.rng.chance(1, 2));
        let without: Vec<u64> = members.iter().copied().filter(|&i| i != id).collect();
        let removed = log.remove_by(id, &mut || {
            let happened = self.step().map(|_| ()).and_then(|()| self.one_config_each());
            let happened = if faults { happened.and_then(|()| self.maybe_fault()) } else { happened };
            if let Some(joint) = apart
                && let Some(n) = (0..self.nodes.len()).find(|&n| {
                    self.config_of(n).is_some_and(|(by, c)| {
                        by == log.stats().epoch && c.ids == without && c.before.is_some() == joint
                    })
                })
            {
                self.set_apart(&[at, n]);
                apart = None;
            }
            turns += 1;
            note(&log, turns, &mut broken_by, happened);
        });
        self.tell(|| format!("machine {other} ({id:x}) has left machine {at}: {removed:?}"));
        self.coverage.removals += u64::from(removed.is_ok());
        let epoch = log.stats().epoch;
        let told = |(by, c): &(u32, Config)| *by == epoch && c.ids == without && c.before.is_some();
        let has_heard = (knew.into_iter().enumerate()).any(|(n, before)| {
            let was_told = before.as_ref().is_none_or(|before| before.0 != epoch || told(before));
            !was_told && self.config_of(n).as_ref().is_some_and(told)
        });
        if !can_be_spared && has_heard {
            return Err(format!("replica {id:x} cannot be spared, and a replica has heard that it leaves"));
        }
        broken_by.map_or(Ok(()), Err)
    }

    /// True if the log can be led without this machine, whatever replicas there are by what any of them says.
    pub(super) fn can_do_without(&mut self, at: usize) -> bool {
        let formed = self.nodes[at].served().and_then(|served| Some(served.stored().log()?.formed()));
        let Some(id) = formed.map(|formed| formed.me) else { return false };
        let configs: Vec<Config> = (0..self.nodes.len()).filter_map(|n| Some(self.config_of(n)?.1)).collect();
        let there = |other: u64| other != id;
        let all_up = self.nodes.iter().all(|n| matches!(n.role, Role::Serving(_) | Role::Idle));
        let led = |c: &Config| c.can_read(there) && (c.can_write(there) || c.can_withdraw(there));
        all_up && !configs.is_empty() && configs.iter().all(led)
    }

    // ---- events -----------------------------------------------------------------------------------------------

    /// Lets the next thing happen; false if nothing is under way.
    pub(super) fn step(&mut self) -> std::result::Result<bool, String> {
        let limit = self.network.now() + Duration::from_millis(20);
        let node = self.network.step_until(limit);
        if let Some(net) = node {
            let at = self.nodes.iter().position(|n| n.net == net).ok_or("no such node")?;
            self.deliver(at)?;
        }
        Ok(node.is_some())
    }

    fn deliver(&mut self, at: usize) -> std::result::Result<(), String> {
        // One by one: an event may change who is at the other ends.
        while let Some((of, event)) = self.nodes[at].ends.iter_mut().find_map(|(of, receiver)| {
            let event = receiver.poll(Duration::ZERO).ok().flatten();
            event.map(|event| (*of, event))
        }) {
            self.event(at, of, event)?;
        }
        let persists = self.rng.chance(7, 8);
        if let Some(served) = self.nodes[at].served()
            && served.has_dirty()
            && persists
        {
            served.persist().map_err(broken)?;
        }
        self.catch_up(at)
    }

    fn event(&mut self, at: usize, of: Of, event: Event) -> std::result::Result<(), String> {
        let outcome: Result<Option<Taken>> = match (&mut self.nodes[at].role, of) {
            (Role::Serving(served), Of::Session(session)) => served.on_event(session, event).map(|()| None),
            (Role::Standing(candidate), Of::Replica(replica)) => candidate.on_event(replica, event),
            (Role::Leading(leader), Of::Replica(peer)) => {
                leader.log.on_event(peer, event);
                Ok(None)
            }
            _ => Ok(None),
        };
        self.outcome(at, outcome)
    }

    fn outcome(&mut self, at: usize, outcome: Result<Option<Taken>>) -> std::result::Result<(), String> {
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some(taken)) => self.elected(at, taken),
            Err(error) if matches!(self.nodes[at].role, Role::Standing(_)) => self.not_elected(at, &error),
            Err(error) => Err(format!("machine {at}: {error}")),
        }
    }

    /// A candidate has waited long enough for answers; a leader looks at its clock; a replica that is served writes out what waits.
    pub(super) fn time_passes(&mut self, at: usize) -> std::result::Result<(), String> {
        let outcome = match &mut self.nodes[at].role {
            Role::Standing(candidate) => candidate.on_timeout(),
            Role::Leading(leader) => {
                leader.log.post_parts(true).map_err(broken)?;
                leader.log.give_up_late();
                Ok(None)
            }
            Role::Serving(served) if served.has_dirty() => served.persist().map(|()| None),
            _ => Ok(None),
        };
        self.outcome(at, outcome)?;
        self.catch_up(at)
    }

    // ---- machines ---------------------------------------------------------------------------------------------

    /// Its process is gone.
    pub(super) fn down(&mut self, at: usize) {
        self.tell(|| format!("machine {at} stops"));
        let own = self.nodes[at].leader().and_then(|leader| leader.log.own_through());
        if let (Some(own), Some(known)) = (own, self.own.get_mut(at)) {
            *known = own;
        }
        self.nodes[at].ends.clear();
        self.nodes[at].role = Role::Down;
        self.network.crash(self.nodes[at].net);
    }

    /// Its power is gone, too.
    pub(super) fn power_fails(&mut self, at: usize) {
        self.down(at);
        self.tell(|| "and its power is gone".into());
        if let Some(module) = self.nodes[at].module.clone() {
            module.fail_power(&mut self.rng);
        }
    }

    /// It starts again, and serves its replica if it has one that can be opened.
    pub(super) fn up(&mut self, at: usize) -> std::result::Result<(), String> {
        if !matches!(self.nodes[at].role, Role::Down) {
            return Ok(());
        }
        self.network.restart(self.nodes[at].net);
        let (before, speaks) = (self.nodes[at].speaks, program(&mut self.rng, &self.shape));
        self.coverage.upgrades += u64::from(speaks.newest > before.newest);
        self.coverage.downgrades += u64::from(speaks.newest < before.newest);
        self.nodes[at].speaks = speaks;
        self.nodes[at].role = match &self.nodes[at].module {
            None => Role::Idle,
            Some(module) => match Node::open(module, Failpoints(self.without)) {
                Ok(replica) if self.damaged.is_none() && !replica.has_through(std::mem::take(&mut self.own[at])) => {
                    return Err(format!("machine {at} led, and its own image lacks a record that it was said to have"));
                }
                Ok(replica) => Role::Serving(Box::new(Served::new(replica.speaking(speaks), false))),
                Err(_) if self.damaged == Some(at) => {
                    self.wiped = true; // it is as good as lost
                    Role::Down
                }
                Err(error) => return Err(format!("machine {at} does not start: {error}")),
            },
        };
        Ok(())
    }

    /// Where a machine's log is in its module: first byte, and bytes.
    pub(super) fn region_of(&self, at: usize) -> Option<(u64, u64)> {
        let Role::Serving(served) = &self.nodes[at].role else { return None };
        let log = served.stored().log()?;
        Some((log.geometry.offset(0) - 4096, 4096 + SEGMENT * SEGMENTS))
    }

    /// The machine gets a new medium, with an empty replica.
    pub(super) fn replace_module(&mut self, at: usize) -> std::result::Result<(), String> {
        self.down(at);
        self.tell(|| "and has a new medium".into());
        let (module, replica) = Node::make(Failpoints(self.without)).map_err(broken)?;
        drop(replica);
        self.nodes[at].module = Some(module);
        self.own[at] = 0;
        self.lost = Some(at);
        Ok(())
    }

    /// A machine that serves an empty replica.
    pub(super) fn new_replica(&mut self) -> Option<usize> {
        let is_new = |n: &Node| matches!(&n.role, Role::Serving(served) if served.stored().log().is_none());
        self.nodes.iter().position(is_new)
    }

    pub(super) fn without(&self) -> Option<Step> {
        self.without
    }

    pub(super) fn leaders(&mut self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&n| self.nodes[n].leader().is_some()).collect()
    }

    pub(super) fn standing(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.role, Role::Standing(_)))
    }

    /// Where its replica is.
    pub(super) fn module_of(&self, at: usize) -> Option<Arc<crash::Module>> {
        self.nodes[at].module.clone()
    }
}

/// Turns of a change of replicas, at most.
const TURNS_MAX: u64 = 100_000;

/// Notes what broke in a turn of a change that waits. Then its leader has nothing to wait for any more: a world that is broken stands still.
fn note(log: &Log, turns: u64, broken_by: &mut Option<String>, happened: std::result::Result<(), String>) {
    let stuck = || (turns > TURNS_MAX).then(|| format!("a change of replicas has not ended after {turns} turns"));
    let broken = happened.err().or_else(stuck);
    if broken.is_some() && broken_by.is_none() {
        *broken_by = broken;
        log.fence();
    }
}
