//! What a process says of itself: a message of one byte asks, and one message answers. The connection has proved before that it knows the secret.

use std::time::Duration;

use fabric::{Connection, Event, Reason};
use serde::{Deserialize, Serialize};

use crate::node::Status;
use crate::{ReplicaId, Stage};

/// Asks for a report. Pieces of messages begin with 0 or 1.
const ASKS: &[u8] = &[2];

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Its chain's keys at etcd.
    pub prefix: String,
    /// Whose copy it has.
    pub id: ReplicaId,
    /// What it is doing.
    pub stage: Stage,
    /// The view that it serves in.
    pub view: Option<u64>,
    /// Transactions through this one are in its queue.
    pub last: u64,
    /// ... in its heap.
    pub executed: u64,
    /// ... on every member, as far as it knows.
    pub acknowledged: u64,
    /// Its lease holds.
    pub has_lease: bool,
    /// It answers readers now; false of an earlier version.
    #[serde(default)]
    pub reads: bool,
    /// Which machine joins behind it.
    pub joiner: Option<u32>,
    /// Why it does nothing any more.
    pub stopped: Option<String>,
}

impl Report {
    pub(super) fn of(status: &Status, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            id: status.id,
            stage: status.stage,
            view: status.view.as_ref().map(|view| view.id.0),
            last: status.progress.last,
            executed: status.progress.executed,
            acknowledged: status.progress.acknowledged,
            has_lease: status.has_lease,
            reads: status.reads,
            joiner: status.joiner.map(|id| id.machine),
            stopped: status.stopped.clone(),
        }
    }

    /// True of a member that works.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.stage == Stage::Serving && self.stopped.is_none()
    }
}

pub(super) fn is_asked_for(piece: &[u8]) -> bool {
    piece == ASKS
}

pub(super) fn answer(connection: &mut Connection, report: &Report) -> fabric::Result<()> {
    // A struct of numbers and text has a representation.
    let bytes = serde_json::to_vec(report).unwrap_or_default();
    connection.sender.send(&bytes)?;
    connection.sender.flush()
}

/// Asks the process at an address.
pub(super) fn ask(address: &str, options: &fabric::Options, most: Duration) -> Result<Report, String> {
    let mut connection = fabric::connect(address, options, None).map_err(|error| short(&error))?;
    let sent = connection.sender.send(ASKS).and_then(|()| connection.sender.flush());
    sent.map_err(|error| short(&error))?;
    match connection.receiver.poll(most) {
        Ok(Some(Event::Message(bytes))) => {
            serde_json::from_slice(&bytes).map_err(|_| "what answers there is no member of a chain".to_owned())
        }
        Ok(Some(Event::Closed(Reason::Peer))) => Err("it ends, or is of an earlier version".to_owned()),
        Ok(Some(Event::Closed(reason))) => Err(reason.to_string()),
        Ok(Some(_)) => Err("what answers there is no member of a chain".to_owned()),
        Ok(None) => Err(format!("it says nothing for {most:?}")),
        Err(error) => Err(short(&error)),
    }
}

/// Without what to do next, which the process that asks says.
fn short(error: &fabric::Error) -> String {
    let message = error.to_string();
    message.split_once("; ").map_or(&*message, |(what, _)| what).to_owned()
}
