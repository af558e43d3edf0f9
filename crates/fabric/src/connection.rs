//! The two halves of one end of a connection, and what arrives.

use std::fmt;
use std::time::Duration;

use crate::{Access, Reason, Result, Watch};

/// The half of an end that asks. Operations take effect at the peer in the order of the calls; none is waited for, so `Ok` says only that it was taken.
///
/// An error says that the connection is over, but for [`Error::TooLong`](crate::Error::TooLong) and [`Error::TooManyReads`](crate::Error::TooManyReads),
/// which change nothing. Dropping it closes the connection.
pub trait Sender: Send {
    /// Puts `bytes` at `offset` of the peer's window. The peer notices nothing.
    ///
    /// # Errors
    /// The connection is over, or the peer took nothing for too long; more than [`WRITE_MAX`](crate::WRITE_MAX) bytes.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The same, and then [`Event::Written`] there: with `imm` alone, as hardware has it. Offset and length are for `imm` or a message to tell.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> Result<()>;

    /// Asks for `len` bytes at `offset` of the peer's window: [`Event::Read`] with `tag` at this end. It sees what this end wrote before.
    ///
    /// # Errors
    /// As for [`write`](Self::write); more than [`READ_MAX`](crate::READ_MAX) bytes; [`READS_MAX`](crate::READS_MAX) reads wait for their answers already.
    fn read(&mut self, offset: u64, len: u32, tag: u32) -> Result<()>;

    /// [`Event::Message`] there, in order with writes.
    ///
    /// # Errors
    /// As for [`write`](Self::write); more than [`MESSAGE_MAX`](crate::MESSAGE_MAX) bytes.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Hands over what was gathered: until then any operation may still wait at this end.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn flush(&mut self) -> Result<()>;

    /// From now on no operation waits for the peer: what it does not take yet is kept at this end, and goes when this end polls its receiver, or sends more. An operation that finds
    /// more than so many bytes kept is the end of the connection, [`Reason::Slow`]. For a sender that must not be held up by one peer of several. Backends
    /// whose operations never wait for the peer have nothing to do.
    fn queue_up_to(&mut self, bytes: usize) {
        let _: usize = bytes;
    }

    /// Flushes, and ends the connection. The peer gets all that came before, then [`Event::Closed`].
    fn close(&mut self);
}

/// The half of an end that is told. Dropping it closes the connection.
pub trait Receiver: Send {
    /// What arrived next; none if nothing did within `wait`.
    ///
    /// The end of the connection is one [`Event::Closed`], behind all that arrived before. A caller that does not wait, and was given an event by the call
    /// before, may be told nothing although something has arrived since.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed), after that event.
    fn poll(&mut self, wait: Duration) -> Result<Option<Event>>;

    /// Says by what it is woken when a thread waits for several, in [`wait`](crate::wait). What has arrived already, and was not polled, wakes at once; so does the end
    /// of the connection.
    fn watch<'a>(&'a mut self, watch: &mut Watch<'a>);
}

/// What arrives at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer wrote into this end's window, all of it, with this immediate.
    Written {
        /// What the peer gave.
        imm: u32,
    },
    /// The peer sent a message.
    Message(Vec<u8>),
    /// What this end asked to read.
    Read {
        /// As it was asked for.
        tag: u32,
        /// What the peer's window held.
        bytes: Vec<u8>,
    },
    /// The connection is over.
    Closed(Reason),
}

/// One end of a connection.
pub struct Connection {
    /// For the thread that asks.
    pub sender: Box<dyn Sender>,
    /// For the thread that is told.
    pub receiver: Box<dyn Receiver>,
    /// The other end, for messages.
    pub peer: String,
    /// What the peer may do with this end's window.
    pub access: Access,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).field("access", &self.access).finish_non_exhaustive()
    }
}
