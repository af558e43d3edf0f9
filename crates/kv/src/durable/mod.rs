//! When a commit is durable: by a barrier of its own, or it is bounded, of a group, or in a log with copies.

mod bound;
pub(crate) mod group;
#[cfg(feature = "replication")]
pub(crate) mod leading;
#[cfg(not(feature = "replication"))]
#[path = "alone.rs"]
pub(crate) mod leading;
#[cfg(feature = "replication")]
pub(crate) mod logged;

use pmem::{Domain, Pool};

use crate::Step;
use crate::copies::Log;
use crate::error::{Error, Result};
use crate::isolation::order::Position;
use crate::medium::Medium;
use crate::options;
use crate::versions::Versions;
use crate::writers::work::Work;
use bound::Bound;
use group::Group;
use leading::{Leading, Replicated, is_in_doubt};

/// What makes the commits of a store durable.
pub(crate) struct Persistence {
    /// Numbers of commits, and through which one they are durable in the store.
    bound: Bound,
    pub(crate) group: Group,
    /// Of a replicated store.
    replicated: Option<Replicated>,
}

impl Persistence {
    /// The checkpoint has the commits through number `last`.
    pub(crate) fn new(durability: options::Durability, last: u64) -> Self {
        let (bound, group) = (Bound::new(durability, last), Group::default());
        Self { bound, group, replicated: Replicated::of(durability) }
    }

    // ---- what it does -----------------------------------------------------------------------------------------

    /// Whether a commit waits for a device, or for the machines that have copies.
    pub(crate) fn waits(&self, pool: &Pool) -> bool {
        self.is_replicated() || pool.domain() == Domain::File
    }

    /// Whether commits are numbered: they may return before their barrier, or are in a log with copies.
    #[inline]
    pub(crate) fn is_numbered(&self) -> bool {
        self.bound.is_on()
    }

    #[inline]
    pub(crate) fn is_replicated(&self) -> bool {
        self.replicated.is_some()
    }

    /// The part that leads, of a replicated store.
    pub(crate) fn leading(&self) -> Result<&Leading> {
        self.leads().ok_or(if self.is_replicated() { Error::Follows } else { Error::NotReplicated })
    }

    fn leads(&self) -> Option<&Leading> {
        self.replicated.as_ref().and_then(Replicated::leading)
    }

    /// Whether it is a replicated store that does not lead.
    pub(crate) fn follows(&self) -> bool {
        self.is_replicated() && self.leads().is_none()
    }

    /// Whether it has no room for what is to be repeated but that of moves.
    pub(crate) fn is_cornered(&self) -> bool {
        self.replicated.as_ref().is_some_and(Replicated::is_cornered)
    }

    /// Returns whether it was.
    #[cfg(feature = "replication")]
    pub(crate) fn set_cornered(&self, cornered: bool) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.set_cornered(cornered))
    }

    /// It leads from now on.
    #[cfg(feature = "replication")]
    pub(crate) fn lead(&self, leading: Leading) {
        if let Some(replicated) = &self.replicated {
            replicated.lead(leading);
        }
    }

    /// The log of one that leads, to be closed behind the store.
    pub(crate) fn take_log(&mut self) -> Option<Log> {
        self.replicated.take().and_then(Replicated::into_log)
    }

    // ---- numbers ----------------------------------------------------------------------------------------------

    /// The last number drawn.
    pub(crate) fn last(&self) -> u64 {
        self.bound.last()
    }

    /// Commits through this number are durable in the store.
    pub(crate) fn forced(&self) -> u64 {
        self.bound.forced()
    }

    /// The store has the commits through this number, and no others.
    pub(crate) fn restart(&self, last: u64) {
        self.bound.restart(last);
    }

    /// Commits that a crash would take now.
    pub(crate) fn at_risk(&self) -> u64 {
        // Those of a replicated store are in its log.
        if self.is_replicated() { 0 } else { self.last().saturating_sub(self.forced()) }
    }

    /// What a record says of what is durable.
    pub(crate) fn watermark(&self, medium: &Medium) -> u64 {
        if medium.skips(Step::HonestWatermark) { self.last() } else { self.forced() }
    }

    // ---- a commit ---------------------------------------------------------------------------------------------

    /// Waits until one more numbered commit may be at risk. The caller holds no log.
    pub(crate) fn admit(&self, versions: &Versions) -> Result<()> {
        self.bound.admit(|| self.force(versions))
    }

    /// Nothing of a commit that was admitted is or will be in the log.
    pub(crate) fn turned_back(&self) {
        if self.bound.is_on() {
            self.bound.give_up();
        }
    }

    /// The commit's number; durable in the log, if that is where it is to be. The caller holds its own log. Every commit before it by timestamp has its number.
    pub(crate) fn draw(&self, medium: &Medium, work: &Work, position: Option<&Position<'_>>) -> Result<u64> {
        crate::failpoints::before_barrier();
        let in_order = !medium.skips(Step::NumbersInOrder);
        if let Some(position) = position.filter(|_| in_order) {
            position.turn();
        }
        let drawn = || {
            if let Some(position) = position {
                position.is_numbered();
            }
        };
        match self.leads() {
            None => {
                let number = self.bound.draw();
                drawn();
                Ok(number)
            }
            Some(leading) => leading.append(&self.bound, work, medium.failpoints(), drawn).inspect_err(|error| {
                if !is_in_doubt(error) {
                    self.turned_back();
                }
            }),
        }
    }

    /// Makes every commit that has returned durable in the store. One barrier.
    pub(crate) fn force(&self, versions: &Versions) -> Result<()> {
        let check = || self.leads().map_or(Ok(()), Leading::check);
        self.bound.force(&versions.medium, &versions.writers, &versions.space, check)
    }

    /// Makes the store durable as far as it is, and lets the log forget that. The caller holds no log of a writer.
    #[cold]
    pub(crate) fn trim(&self, versions: &Versions, leading: &Leading, is_urgent: bool) -> Result<()> {
        leading.trim(is_urgent, versions.medium.failpoints(), || self.force(versions).map(|()| self.forced()))
    }
}
