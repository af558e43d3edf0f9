//! What replicas say to each other. Any of it may be lost, come twice, late, or in another order.

use crate::{Record, ReplicaId, ViewId};

/// A message of one replica to another.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// The sender's: other views' messages are not taken.
    pub view: ViewId,
    /// The sender.
    pub from: ReplicaId,
    /// The receiver.
    pub to: ReplicaId,
    /// What.
    pub body: Body,
}

/// What is said. All numbers are counts through which something is so: later ones replace earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Body {
    /// Downstream: records without a gap.
    Records(Vec<Record>),
    /// Upstream, and of a joiner to the tail: all records through here are persistent.
    Have(u64),
    /// Of the tail to the head, and to a joiner that gets the image: all through here are executed, and persistent on every member.
    Acknowledged(u64),
    /// Upstream, the same.
    CleanUp(u64),
    /// To the tail, of a voided copy: let me in.
    Join,
    /// To the tail, of a process that has started on a whole copy and finds that it is no member: refuse it, unless a proposal names it.
    Restarted,
    /// Of the tail: this copy is not let in, and no proposal that names it can be carried out any more.
    Refused,
    /// Of the tail to a joiner: a part of its heap when exactly the records through here were executed.
    Part {
        /// Through here.
        through: u64,
        /// Which part, from 0.
        part: u32,
        /// There is none behind it.
        last: bool,
        /// Opaque.
        image: Vec<u8>,
    },
    /// Of a joiner to the tail, while it gets the image.
    Copied {
        /// The part that it waits for; none: it has all of them.
        part: Option<u32>,
        /// All records through here are persistent.
        through: u64,
        /// Those through here take no room any more.
        retired: u64,
    },
}
