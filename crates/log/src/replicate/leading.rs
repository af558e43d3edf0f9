//! A log whose leader this is, while it leads: records go to all live replicas as they are forced, and are durable when a write quorum has them.
//!
//! Acknowledgements come in by [`Leading::on_event`], from a thread that waits for one ([`acks`](super::acks)), or from a simulator.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use fabric::{Event, Receiver};
use parking_lot::{Mutex, MutexGuard};
use pmem::TwoSlot;

use super::acks::{Acks, Ears, Part, Woken};
use super::at::At;
use super::candidate::Link;
use super::group::{Advance, Group, Over, Until};
use super::members::{Config, Promise};
use super::message::{FromReplica, Reply, Request, decode};
use super::wire::Versions;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::image::Image;
use crate::space::Geometry;

/// When the leader's own image is flushed, beside the replicas (Arcadia §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOrder {
    /// While the replicas have theirs under way.
    Beside,
    /// When enough replicas have acknowledged: best in the paper, where a flush evicts what the network card is about to read. Not of a record that is [forced here](crate::Log::force_own) first.
    After,
    /// Before anything is sent.
    Before,
}

/// Microseconds, from any beginning.
pub(crate) type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// How a leader leads.
pub(crate) struct LeadOptions {
    pub(crate) order: FlushOrder,
    /// A replica that has not acknowledged for so long is given up.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
}

/// What a leader goes on with.
pub(crate) struct Lead {
    pub(crate) links: Vec<Link>,
    pub(crate) config: Config,
    /// The id of the leader's own image, if it is one of the replicas.
    pub(crate) own: Option<u64>,
    pub(crate) epoch: u32,
    pub(crate) owner: u64,
    pub(crate) speaks: Versions,
    pub(crate) lead_options: LeadOptions,
}

/// The ways to the replicas, and how far they were sent records.
pub(super) struct Posting {
    pub(super) links: Vec<Option<Link>>,
    pub(super) end: At,
}

/// What a live replica was asked, and has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To know that the log begins at this position.
    Head(u64),
    /// To know which replicas there are.
    Install,
}

pub(crate) struct Leading {
    /// Held while records are claimed and posted.
    pub(super) posting: Mutex<Posting>,
    pub(super) group: Mutex<Group>,
    /// One replica joins at a time: two connections to one would take its promise from each other.
    pub(super) joining: Mutex<()>,
    pub(super) acks: Acks,
    /// What live replicas were asked: replica, call, what for.
    pub(super) asked: Mutex<Vec<(usize, u32, Asked)>>,
    /// Of the leader's own image.
    pub(super) promise: Mutex<TwoSlot<Promise>>,
    pub(super) config: Mutex<Config>,
    pub(super) own: Option<u64>,
    /// By the clock: no other leader is elected before. `u64::MAX` if none is.
    leads_until: AtomicU64,
    pub(crate) epoch: u32,
    pub(crate) owner: u64,
    /// Which wire versions this leader speaks.
    pub(super) speaks: Versions,
    pub(super) order: FlushOrder,
    pub(crate) timeout: Duration,
    pub(super) clock: Clock,
    /// First byte of the first segment in the pool: where the replicas' windows begin.
    pub(super) base: u64,
    pub(super) segment_bytes: u64,
    pub(super) segments: u64,
    /// Bytes that may wait for one replica, besides the last batch.
    pub(super) queue_bytes: usize,
    /// What was compared in the last step of the last join.
    #[cfg(test)]
    last_step: AtomicU64,
}

/// Longest wait without a look at the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A replica that is needed is waited for so many times as long, before the space of old records is used again without it.
const HELD: u64 = 30;
/// Bytes that may wait at the leader for one replica, at least: no thread is to wait for a slow one while the posting is held. One that lets more wait is given
/// up.
const QUEUE_MIN: u64 = 8 << 20;

impl Leading {
    pub(crate) fn new(
        mut lead: Lead,
        end: At,
        head: At,
        promise: TwoSlot<Promise>,
        geometry: &Geometry,
        failpoints: Failpoints,
    ) -> Self {
        let queue_bytes = (2 * geometry.segment_bytes).max(QUEUE_MIN) as usize;
        lead.links.iter_mut().for_each(|link| link.sender.queue_up_to(queue_bytes));
        let ids: Vec<u64> = lead.links.iter().map(|l| l.id).collect();
        let counts = lead.own.is_some();
        let quorum = lead.config.write_quorum as usize;
        Self {
            group: Mutex::new(Group::new(&ids, end.lsn - 1, head.position, counts, quorum, failpoints)),
            posting: Mutex::new(Posting { links: lead.links.into_iter().map(Some).collect(), end }),
            joining: Mutex::new(()),
            acks: Acks::new(),
            asked: Mutex::new(Vec::new()),
            promise: Mutex::new(promise),
            config: Mutex::new(lead.config),
            own: lead.own,
            leads_until: AtomicU64::new(u64::MAX),
            epoch: lead.epoch,
            owner: lead.owner,
            speaks: lead.speaks,
            order: lead.lead_options.order,
            timeout: lead.lead_options.timeout,
            clock: lead.lead_options.clock,
            base: geometry.offset(0),
            segment_bytes: geometry.segment_bytes,
            segments: geometry.circle.segments(),
            queue_bytes,
            #[cfg(test)]
            last_step: AtomicU64::new(0),
        }
    }

    // ---- wait and hear ----------------------------------------------------------------------------------------

    /// One more replica is heard.
    pub(crate) fn hears(&self, peer: usize, receiver: Box<dyn Receiver>) {
        self.acks.add(peer, receiver);
    }

    pub(super) fn is_there(&self, image: &Image, group: &Group, until: Until) -> bool {
        group.over().is_some()
            || match until {
                Until::Committed(lsn) => image.advance(None) >= lsn,
                Until::Remote(lsn) => group.has_remote(lsn),
                Until::Own(lsn) => group.own_through(image.advance(None)) >= lsn,
                Until::Head(position) => group.all_know_head(position),
            }
    }

    /// Something has changed in the group: the threads that wait for it are woken.
    fn news(&self, image: &Image, group: &Group) {
        self.acks.news(group, |until| self.is_there(image, group, until));
    }

    /// Waits for a while until it is there, or nothing can be any more; false if it is not. Then replicas that are late are given up, too.
    pub(super) fn wait(&self, image: &Image, until: Until) -> bool {
        let there = self.hear_or_sleep(image, until);
        if !there {
            self.give_up_late();
        }
        there
    }

    fn hear_or_sleep(&self, image: &Image, until: Until) -> bool {
        let mut group = self.group.lock();
        while !self.is_there(image, &group, until) {
            let number = match self.acks.wait(&group, until) {
                Part::Hear(ears) => {
                    drop(group);
                    return self.hear(image, ears, until);
                }
                Part::Sleep(number) => number,
            };
            MutexGuard::unlocked(&mut group, || std::thread::park_timeout(POLL_INTERVAL));
            if self.acks.up(&group, number) == Woken::No && !self.is_there(image, &group, until) {
                return false;
            }
        }
        self.acks.call(&group);
        true
    }

    /// Hears the replicas until it is there, and while there is something to hear.
    fn hear(&self, image: &Image, mut ears: Ears, until: Until) -> bool {
        loop {
            let heard = ears.hear(POLL_INTERVAL, |peer, event| self.on_event(image, peer, event));
            let group = self.group.lock();
            let there = self.is_there(image, &group, until);
            if there || !heard || !self.acks.go_on(&group, &mut ears, until) {
                self.acks.give_back(&group, ears);
                return there;
            }
        }
    }

    /// Hears what has come, or comes in that time, unless another thread hears already: then it is false.
    pub(crate) fn listen(&self, image: &Image, wait: Duration) -> bool {
        let Some(mut ears) = self.acks.take() else { return false };
        ears.hear(wait, |peer, event| self.on_event(image, peer, event));
        self.acks.give_back(&self.group.lock(), ears);
        true
    }

    /// Waits while another thread hears the replicas, until something has come, and no longer than that.
    pub(crate) fn pause(&self, limit: Duration) {
        self.acks.pause(limit);
    }

    // ---- replicas that are lost --------------------------------------------------------------------------

    /// Gives up the replicas that have not acknowledged for too long.
    pub(crate) fn give_up_late(&self) {
        let limit = (self.clock)().checked_sub(self.timeout.as_micros() as u64);
        let Some(limit) = limit else { return };
        let late = self.group.lock().late(limit);
        for peer in late {
            self.lose(peer, format!("it has not acknowledged for {:?}", self.timeout));
        }
    }

    /// Drops the ways to replicas that were given up, which closes them: no thread waits until such a one has taken everything.
    pub(super) fn reap(&self, links: &mut [Option<Link>]) {
        for (peer, link) in links.iter_mut().enumerate() {
            let is_live = link.is_none() || self.group.lock().is_live(peer);
            if !is_live {
                *link = None;
            }
        }
    }

    pub(super) fn lose(&self, peer: usize, why: String) {
        self.given_up(&mut self.group.lock(), peer, why);
        // A thread that posts just now closes it then.
        if let Some(mut posting) = self.posting.try_lock() {
            self.reap(&mut posting.links);
        }
    }

    pub(super) fn given_up(&self, group: &mut Group, peer: usize, why: String) {
        group.lost(peer, why);
        self.acks.news(group, |_| true);
    }

    /// An error once nothing more can be committed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.group.lock().over() {
            None => Ok(()),
            Some(Over::QuorumLost { live, needed }) => Err(Error::QuorumLost { live, needed }),
            Some(Over::Fenced { epoch, owner }) => Err(Error::Fenced { epoch, owner }),
        }
    }

    /// The same, or once another may have been elected.
    pub(crate) fn check_leading(&self) -> Result<()> {
        let until = self.leads_until.load(Acquire);
        if until != u64::MAX && (self.clock)() >= until {
            return Err(Error::Fenced { epoch: self.epoch, owner: self.owner });
        }
        self.check()
    }

    /// No other leader is elected for so long from now.
    pub(crate) fn lead_for(&self, left: Duration) {
        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        self.leads_until.store((self.clock)().saturating_add(left), Release);
    }

    /// Another leader is known to be there, or may be: nothing is committed any more.
    pub(crate) fn fence(&self, epoch: u32, owner: u64) {
        let mut group = self.group.lock();
        group.fenced(epoch, owner);
        self.acks.news(&group, |_| true);
    }

    // ---- what comes from replicas ------------------------------------------------------------------------

    /// Something arrived from a replica.
    pub(crate) fn on_event(&self, image: &Image, peer: usize, event: Event) {
        match event {
            Event::Written { imm } => {
                self.advance(image, &mut self.group.lock(), |group| group.acknowledged(peer, group.lsn_of(peer, imm)));
            }
            Event::Message(bytes) => match decode::<FromReplica>(&bytes, self.speaks.newest) {
                Some(
                    FromReplica::Fenced { epoch, owner }
                    | FromReplica::Answer { reply: Reply::Refused { promised: epoch, owner }, .. },
                ) => self.refused(peer, epoch, owner),
                Some(FromReplica::Answer { call, reply: Reply::HeadMoved | Reply::Installed }) => {
                    self.answered(image, peer, call);
                }
                Some(FromReplica::Answer { reply: Reply::Failed { why }, .. }) => self.lose(peer, why),
                Some(FromReplica::Answer { .. }) => {} // to what was asked before it was live
                None => self.lose(peer, "it sent what makes no sense".into()),
            },
            Event::Closed(reason) => self.lose(peer, reason.to_string()),
            _ => {}
        }
    }

    /// Takes a step of the group, and says what it committed. All of it under the group's lock: a thread that has it, and finds too little there, is asleep
    /// before it gives it back, and is woken.
    pub(super) fn advance(&self, image: &Image, group: &mut Group, step: impl FnOnce(&mut Group) -> Advance) {
        if let Some(claimed) = step(group).committed {
            image.persisted(&claimed);
            image.advance(None);
        }
        self.news(image, group);
    }

    /// A replica hears another session: of another leader, or of this one, over another connection.
    fn refused(&self, peer: usize, epoch: u32, owner: u64) {
        if (epoch, owner) == (self.epoch, self.owner) {
            self.lose(peer, "it was connected to once more".into());
        } else {
            self.fence(epoch, owner);
        }
    }

    // ---- the head ---------------------------------------------------------------------------------------------

    /// Tells the live replicas where the log begins, each once.
    pub(crate) fn post_head(&self, head: At) {
        let lacking = self.group.lock().live_without_head(head.position);
        let is_told = |peer: usize| {
            let told = |&(p, _, asked): &(usize, u32, Asked)| {
                p == peer && matches!(asked, Asked::Head(at) if at >= head.position)
            };
            self.asked.lock().iter().any(told)
        };
        let whom: Vec<usize> = lacking.into_iter().filter(|peer| !is_told(*peer)).collect();
        if whom.is_empty() {
            return;
        }
        let mut posting = self.posting.lock();
        self.ask(&mut posting.links, &Request::Head { head }, Asked::Head(head.position), |peer| whom.contains(&peer));
    }

    pub(super) fn ask_all(&self, links: &mut [Option<Link>], request: &Request, what: Asked) {
        self.ask(links, request, what, |_| true);
    }

    fn ask(&self, links: &mut [Option<Link>], request: &Request, what: Asked, whom: impl Fn(usize) -> bool) {
        self.reap(links);
        for (peer, link) in links.iter_mut().enumerate().filter(|(peer, _)| whom(*peer)) {
            let Some(to) = link.as_mut() else { continue };
            // Known before it can be answered.
            let mut asked = self.asked.lock();
            match to.ask(request.clone()) {
                Ok(call) => asked.push((peer, call, what)),
                Err(error) => {
                    drop(asked);
                    *link = None;
                    self.given_up(&mut self.group.lock(), peer, error.to_string());
                }
            }
        }
    }

    fn answered(&self, image: &Image, peer: usize, call: u32) {
        let mut asked = self.asked.lock();
        let Some(at) = asked.iter().position(|&(p, c, _)| p == peer && c == call) else { return };
        let (_, _, what) = asked.swap_remove(at);
        drop(asked);
        self.acks.heard();
        if let Asked::Head(position) = what {
            let mut group = self.group.lock();
            group.head_moved(peer, position);
            self.news(image, &group);
        }
    }

    /// True if all live replicas know that the log begins there.
    pub(crate) fn all_know_head(&self, position: u64) -> bool {
        self.group.lock().all_know_head(position)
    }

    /// Waits until they do, or are given up. Of those that are needed for a write quorum, and acknowledge what they get, no sooner than after many times the
    /// timeout: a reader of such a replica is held up, as by having its store brought to it, and without the replica nothing would be committed at all.
    pub(crate) fn await_head(&self, image: &Image, head: At) -> Result<()> {
        let (started, position) = ((self.clock)(), head.position);
        loop {
            // One that has joined meanwhile, too.
            self.post_head(head);
            let there = self.wait(image, Until::Head(position));
            self.check()?;
            if there {
                return Ok(());
            }
            let (waited, timeout) = ((self.clock)().saturating_sub(started), self.timeout.as_micros() as u64);
            if waited < timeout {
                continue;
            }
            let slow: Vec<usize> = {
                let group = self.group.lock();
                let spare = if waited < timeout * HELD { group.spare() } else { usize::MAX };
                group.live_without_head(position).into_iter().take(spare).collect()
            };
            for peer in slow {
                self.lose(peer, "it does not say that it knows where the log begins".into());
            }
        }
    }

    // ---- the rest ---------------------------------------------------------------------------------------------

    /// Each remote replica: its id, how it is doing, and through which record it has all.
    pub(crate) fn states(&self) -> Vec<(u64, super::ReplicaHealth, u64)> {
        self.group.lock().states()
    }

    pub(super) fn note_last_step(&self, bytes: u64) {
        #[cfg(test)]
        self.last_step.store(bytes, Release);
        let _: u64 = bytes;
    }

    #[cfg(test)]
    pub(crate) fn last_step(&self) -> u64 {
        self.last_step.load(Acquire)
    }

    /// Every replica there is, is live.
    pub(crate) fn has_all(&self) -> bool {
        let (ids, live) = (self.config.lock().ids.clone(), self.group.lock().live_ids());
        ids.iter().all(|id| self.own == Some(*id) || live.contains(id))
    }

    /// Addresses of replicas that are live; none if a thread is about to send.
    pub(crate) fn live_names(&self) -> Option<Vec<String>> {
        let posting = self.posting.try_lock()?;
        let group = self.group.lock();
        let live = posting.links.iter().enumerate().filter(|(peer, _)| group.is_live(*peer));
        Some(live.filter_map(|(_, link)| Some(link.as_ref()?.name.clone())).collect())
    }

    /// The same with their ids.
    pub(crate) fn addresses(&self) -> Vec<(u64, String)> {
        let posting = self.posting.lock();
        let group = self.group.lock();
        let live = posting.links.iter().enumerate().filter(|(peer, _)| group.is_live(*peer));
        live.filter_map(|(_, link)| link.as_ref().map(|link| (link.id, link.name.clone()))).collect()
    }

    /// The newest wire version that each live replica speaks, by its id.
    pub(crate) fn wire_versions(&self) -> Vec<(u64, u32)> {
        let posting = self.posting.lock();
        let group = self.group.lock();
        let live = posting.links.iter().enumerate().filter(|(peer, _)| group.is_live(*peer));
        live.filter_map(|(_, link)| link.as_ref().map(|link| (link.id, link.newest()))).collect()
    }

    pub(crate) fn own(&self) -> Option<u64> {
        self.own
    }

    /// All replicas there are, and the write quorum.
    pub(crate) fn members(&self) -> (Vec<u64>, u32) {
        let config = self.config.lock();
        (config.ids.clone(), config.write_quorum)
    }

    /// What checksums the records, for a new replica: a key, and the version of the pool format whose function it is for.
    pub(crate) fn secret(&self) -> (u64, u32) {
        let promise = self.promise.lock().get();
        (promise.key, promise.checksums())
    }

    /// Closes the connections. No thread waits.
    pub(crate) fn close(&self) {
        drop(self.acks.take());
        for link in &mut self.posting.lock().links {
            if let Some(mut link) = link.take() {
                link.sender.close();
            }
        }
    }
}
