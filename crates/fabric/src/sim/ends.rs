//! The halves of a connection.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::state::{End, Frame, State};
use crate::access::Enforce;
use crate::limits::limit;
use crate::{
    Access, Connection, Error, Event, MESSAGE_MAX, READ_MAX, READS_MAX, Reason, Receiver, Result, Rights, Sender,
    WRITE_MAX, Watch,
};

/// More than this is handed over before the next flush.
const GATHER_BYTES: usize = 1 << 20;
const GATHER_FRAMES: usize = 256;

/// Which end of which link, for each of its halves.
#[derive(Clone)]
pub(super) struct Halves {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) link: usize,
    pub(super) side: usize,
    pub(super) peer: String,
}

struct SendHalf {
    halves: Halves,
    /// The access handle holds this weakly.
    _tear: Arc<Tear>,
}

struct ReceiveHalf(Halves);

/// Access taken away in the middle of a write: a part of it has arrived.
struct Tear {
    state: Weak<Mutex<State>>,
    link: usize,
    side: usize,
}

impl Enforce for Tear {
    fn changed(&self, from: Rights, to: Rights, _: &[u8]) -> bool {
        if from == Rights::Write
            && to < from
            && let Some(state) = self.state.upgrade()
        {
            state.lock().tear_first(self.link, self.side);
        }
        false
    }
}

pub(super) fn connection(halves: Halves, access: Access) -> Connection {
    let tear = Arc::new(Tear { state: Arc::downgrade(&halves.state), link: halves.link, side: halves.side });
    let weak = Arc::downgrade(&tear);
    access.enforced_by(weak);
    Connection {
        peer: halves.peer.clone(),
        access,
        receiver: Box::new(ReceiveHalf(halves.clone())),
        sender: Box::new(SendHalf { halves, _tear: tear }),
    }
}

impl Halves {
    fn closed(&self, reason: &Reason) -> Error {
        Error::Closed { peer: self.peer.clone(), reason: reason.clone() }
    }

    /// The state, if this end is not over.
    fn open(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        match &state.end(self.link, self.side).closed {
            Some(reason) => Err(self.closed(reason)),
            None => Ok(state),
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        // An error: the link is over, which is what was asked for.
        let _ = state.flush(self);
        state.close(self.link, self.side);
    }
}

impl State {
    fn gather(&mut self, halves: &Halves, frame: Frame, bytes: usize) -> Result<()> {
        let end = self.end(halves.link, halves.side);
        end.gathered.push(frame);
        end.gathered_bytes += bytes;
        if end.gathered_bytes > GATHER_BYTES || end.gathered.len() > GATHER_FRAMES {
            self.flush(halves)?;
        }
        Ok(())
    }

    fn flush(&mut self, halves: &Halves) -> Result<()> {
        let (link, side) = (halves.link, halves.side);
        self.end(link, side).gathered_bytes = 0;
        let mut frames = std::mem::take(&mut self.end(link, side).gathered);
        let End { incoming, inbox, .. } = self.end(link, 1 - side);
        if incoming.len() + inbox.len() + frames.len() > self.faults.queue_max {
            let reason = Reason::Slow { waited: Duration::ZERO };
            let error = halves.closed(&reason);
            self.send(link, 1 - side, Frame::Reset("the peer found this end slow"));
            self.finish(link, side, reason);
            return Err(error);
        }
        for frame in frames.drain(..) {
            self.send(link, 1 - side, frame);
        }
        // Keeps its room.
        self.end(link, side).gathered = frames;
        Ok(())
    }
}

impl SendHalf {
    fn put(&self, offset: u64, bytes: &[u8], imm: Option<u32>) -> Result<()> {
        limit("write", bytes.len(), WRITE_MAX)?;
        let frame = Frame::Write { offset, bytes: bytes.to_vec(), imm };
        self.halves.open()?.gather(&self.halves, frame, bytes.len())
    }
}

impl Sender for SendHalf {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.put(offset, bytes, None)
    }

    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> Result<()> {
        self.put(offset, bytes, Some(imm))
    }

    fn read(&mut self, offset: u64, len: u32, tag: u32) -> Result<()> {
        limit("read", len as usize, READ_MAX as usize)?;
        let mut state = self.halves.open()?;
        let end = state.end(self.halves.link, self.halves.side);
        if end.reads >= READS_MAX {
            return Err(Error::TooManyReads { peer: self.halves.peer.clone(), max: READS_MAX });
        }
        end.reads += 1;
        state.gather(&self.halves, Frame::Read { offset, len, tag }, 0)
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        limit("message", message.len(), MESSAGE_MAX)?;
        self.halves.open()?.gather(&self.halves, Frame::Message(message.to_vec()), message.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.halves.open()?.flush(&self.halves)
    }

    fn close(&mut self) {
        self.halves.close();
    }
}

impl Receiver for ReceiveHalf {
    fn poll(&mut self, _: Duration) -> Result<Option<Event>> {
        let mut state = self.0.state.lock();
        let end = state.end(self.0.link, self.0.side);
        match (end.inbox.pop_front(), &end.closed) {
            (Some(event), _) => {
                end.told |= matches!(event, Event::Closed(_));
                Ok(Some(event))
            }
            (None, Some(reason)) if end.told || end.silent => Err(self.0.closed(reason)),
            (None, _) => Ok(None),
        }
    }

    /// Time does not pass while a thread waits.
    fn watch<'a>(&'a mut self, watch: &mut Watch<'a>) {
        watch.within(Duration::ZERO);
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        self.halves.close();
    }
}

impl Drop for ReceiveHalf {
    fn drop(&mut self) {
        self.0.close();
    }
}
