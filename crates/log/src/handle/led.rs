//! What only a replicated log has: its replicas.

use std::time::Duration;

use super::Log;
use crate::Lsn;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::recovery::Recovered;
use crate::replicate::{Leading, Link, ReplicaHealth, number};
use crate::threads::{Returning, acks};

impl Log {
    /// The log of a leader, which hears its replicas by these, and where they come back from.
    pub(crate) fn leading(
        core: Core,
        found: Recovered,
        receivers: Vec<Option<Box<dyn fabric::Receiver>>>,
        addresses: &[String],
        trust: &fabric::Options,
    ) -> Self {
        if let Some(leading) = &core.leading {
            let receivers = receivers.into_iter().enumerate().filter_map(|(peer, there)| Some((peer, there?)));
            receivers.for_each(|(peer, receiver)| leading.hears(peer, receiver));
        }
        let mut log = Self::opened(core, found);
        log.ack_thread = Some(acks::start(&log.core));
        log.returning = Some(Returning::start(&log.core, addresses, trust));
        log
    }

    /// Something arrived from a replica.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn on_event(&self, peer: usize, event: fabric::Event) {
        if let Some(leading) = &self.core.leading {
            leading.on_event(&self.core.image, peer, event);
        }
    }

    /// Gives up the replicas that have not acknowledged for too long.
    #[cfg(test)]
    pub(crate) fn give_up_late(&self) {
        if let Some(leading) = &self.core.leading {
            leading.give_up_late();
        }
    }

    /// What was compared in the last step of the last join.
    #[cfg(test)]
    pub(crate) fn last_step(&self) -> u64 {
        self.core.leading.as_ref().map_or(0, Leading::last_step)
    }

    /// The id of the leader's own replica, if it is one.
    #[must_use]
    pub fn own_replica(&self) -> Option<u64> {
        self.core.leading.as_ref().and_then(Leading::own)
    }

    /// The other replicas of a replicated log, in no order: id, how it is doing, through which record it has all.
    pub fn replicas(&self) -> Vec<(u64, ReplicaHealth, Lsn)> {
        let states = self.core.leading.as_ref().map(Leading::states).unwrap_or_default();
        states.into_iter().map(|(id, state, lsn)| (id, state, Lsn(lsn))).collect()
    }

    /// The ids of all replicas of a replicated log, those that are lost and the leader's own included, and how many of them must have a record. None and 0 if it has no other replicas.
    pub fn members(&self) -> (Vec<u64>, u32) {
        self.core.leading.as_ref().map(Leading::members).unwrap_or_default()
    }

    /// Takes a replica in while the log is used: one that was given up and is there again, or a new one, which a [`Replica`](crate::Replica) serves at this address. It is repaired, and
    /// counts from when this returns. Appends go on meanwhile, but for the moment in which it becomes live. With a new one a log has a replica more;
    /// the write quorum stays.
    ///
    /// # Errors
    /// [`Error::Replica`] if it cannot join, which changes nothing; [`Error::Fenced`], [`Error::QuorumLost`]; those of the network.
    pub fn join(&self, address: &str, trust: &fabric::Options) -> Result<()> {
        let connection = fabric::connect(address, trust, None)?;
        let fabric::Connection { sender, receiver, access, .. } = connection;
        access.set(fabric::Rights::Write); // to nothing: it acknowledges by immediates
        let link = Link::new(0, address.to_owned(), sender);
        let (peer, receiver) = self.join_by(link, receiver, number()?, &mut || self.core.listen())?;
        if let Some(leading) = &self.core.leading {
            leading.hears(peer, receiver);
        }
        if let Some(returning) = &self.returning {
            returning.knows(address);
        }
        Ok(())
    }

    /// A replica of this log may be back at this address: it is looked for there soon, and from then on now and then, and joins again if it is one that the log has.
    pub fn expect_at(&self, address: &str) {
        if let Some(returning) = &self.returning {
            returning.knows(address);
        }
    }

    /// Where the live replicas are reached, by their [ids](Self::replicas), but for the leader's own.
    #[must_use]
    pub fn addresses(&self) -> Vec<(u64, String)> {
        self.core.leading.as_ref().map(Leading::addresses).unwrap_or_default()
    }

    /// The newest [wire version](crate::WIRE_VERSION) that each live replica speaks, by its [id](Self::replicas), but for the leader's own: what a version brings is of use when the program of every
    /// machine has it. A replica that is away is not in it: what its program speaks then is known when it is back.
    #[must_use]
    pub fn wire_versions(&self) -> Vec<(u64, u32)> {
        self.core.leading.as_ref().map(Leading::wire_versions).unwrap_or_default()
    }

    /// A replica is not one of the log's any more: it was lost for good, and does not count among those that must be read when the log is opened. By its
    /// [id](Self::replicas).
    ///
    /// # Errors
    /// [`Error::Limit`] if the write quorum needs it; as [`join`](Self::join).
    pub fn remove(&self, id: u64) -> Result<()> {
        self.remove_by(id, &mut || self.core.listen())
    }

    pub(crate) fn remove_by(&self, id: u64, pump: &mut dyn FnMut()) -> Result<()> {
        match &self.core.leading {
            Some(leading) => leading.remove(&self.core.image, id, pump),
            None => {
                let next = "it has no other replicas";
                Err(Error::NotReplicated { what: "remove a replica", next })
            }
        }
    }

    /// The same over any connection: `pump` lets time pass until something may have arrived.
    pub(crate) fn join_by(
        &self,
        link: Link,
        receiver: Box<dyn fabric::Receiver>,
        new_id: u64,
        pump: &mut dyn FnMut(),
    ) -> Result<(usize, Box<dyn fabric::Receiver>)> {
        self.core.join(link, receiver, Some(new_id), pump, self.core.options.stall_timeout, &|| false)
    }

    /// No other leader can be elected for so long from now: behind that, [`check_leading`](Self::check_leading) is an error until this is said again. For
    /// programs that elect leaders; without it a leader that is cut off does not know that another leads, and what it reads may be out of date.
    pub fn lead_for(&self, left: Duration) {
        if let Some(leading) = &self.core.leading {
            leading.lead_for(left);
        }
    }

    /// Another process leads this log now, or may: nothing more becomes durable through this handle. For programs that elect leaders, to call when a lease is
    /// over.
    pub fn fence(&self) {
        if let Some(leading) = &self.core.leading {
            leading.fence(leading.epoch, leading.owner);
        }
    }
}
