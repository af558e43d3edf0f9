//! What logs without machines are made of: their layout, ways between a leader and a replica, and the leader that is elected.

use std::time::Duration;

use fabric::sim::{Network, Node};
use fabric::{Connection, Receiver, Rights};

use crate::core::Core;
use crate::error::Result;
use crate::handle::Log;
use crate::options::Options;
use crate::recovery::Recovered;
use crate::replicate::candidate::{Elected, Link};
use crate::replicate::leading::{Clock, FlushOrder, LeadOptions};
use crate::replicate::members::Layout;
use crate::replicate::served::Served;

/// Bytes of a segment of the logs that are made here.
pub const SEGMENT: u64 = 256;
/// How many segments.
pub const SEGMENTS: u64 = 4;
/// Of these logs.
pub(super) const LAYOUT: Layout = layout(SEGMENT, SEGMENTS);

pub(super) const fn layout(segment_bytes: u64, segments: u64) -> Layout {
    Layout { log: 7, key: 9, segment_bytes, segments, checksums: 2 }
}

/// The two ends of a way between a leader and a replica: how the leader sends and hears, the session at the replica, and how that hears.
pub(super) struct Way {
    pub(super) link: Link,
    pub(super) receiver: Box<dyn Receiver>,
    pub(super) session: u64,
    pub(super) theirs: Box<dyn Receiver>,
}

/// Connects a leader here to the replica that is served there.
pub(super) fn connect(network: &Network, here: Node, there: Node, served: &mut Served) -> fabric::Result<Way> {
    let (ours, theirs) = network.connect(here, there, Some(served.stored().window()), None)?;
    let Connection { sender, receiver, access, peer } = theirs;
    let session = served.connected(sender, access, peer);
    ours.access.set(Rights::Write); // to nothing: it acknowledges by immediates
    Ok(Way { link: Link::new(0, ours.peer, ours.sender), receiver: ours.receiver, session, theirs: receiver })
}

/// What replicas are called while one stands, and when it leads: as which this one is heard from now on, if it is.
pub(super) fn peer_of(elected: &Elected, replica: usize) -> Option<usize> {
    elected.links.iter().position(|(of, _)| *of == replica)
}

/// The log of the candidate that was elected. Only the caller hears its replicas.
pub(super) fn lead(elected: Elected, order: FlushOrder, clock: Clock, options: &Options) -> Result<(Log, Recovered)> {
    let lead_options = LeadOptions { order, timeout: Duration::from_millis(300), clock };
    let (core, recovered) = Core::lead(elected, lead_options, options)?;
    Ok((Log::new(core), recovered))
}

/// The time of a network.
pub(super) fn clock(network: &Network) -> Clock {
    let network = network.clone();
    Box::new(move || network.now().as_micros() as u64)
}
