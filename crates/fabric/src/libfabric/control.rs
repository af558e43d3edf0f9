//! The connection of TCP beside the endpoint: how it came about, why it ends, and that the peer is gone.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::intake::{Inbound, Intake};
use crate::tcp::greeting::Greeted;
use crate::tcp::outgoing::Outgoing;
use crate::tcp::stream::{Sealed, Stream};
use crate::wire::{Header, Kind, malformed};
use crate::{Error, Event, Reason, Result, clock};

pub(super) struct Control {
    stream: Stream,
    sealed: Sealed,
    outgoing: Outgoing,
    intake: Intake,
    bytes: Vec<u8>,
    pub(super) peer: String,
}

/// What the peer said.
pub(super) enum Heard {
    Nothing,
    Message(Vec<u8>),
    /// Its last word.
    Word(Reason),
    /// It is gone.
    Gone,
}

impl Control {
    pub(super) fn new(greeted: Greeted) -> Self {
        let Greeted { stream, sealed, early, peer } = greeted;
        Self { stream, sealed, outgoing: Outgoing::default(), intake: Intake::default(), bytes: early, peer }
    }

    /// This end's address on it.
    pub(super) fn local(&self) -> Option<String> {
        self.stream.socket.local_addr().ok().map(|address| address.ip().to_string())
    }

    /// To wait for what comes.
    pub(super) fn socket(&self) -> io::Result<TcpStream> {
        self.stream.socket.try_clone()
    }

    /// Says a frame, without waiting: few are said, and short ones.
    pub(super) fn say(&mut self, frame: &[u8]) {
        let said = self.outgoing.room().map(|out| self.stream.seal(&[frame], out));
        if matches!(said, Ok(Ok(()))) {
            // A peer that cannot be told will find out.
            let _ = self.outgoing.offer(&self.stream);
        }
    }

    pub(super) fn say_message(&mut self, message: &[u8]) {
        let mut frame = Header::plain(Kind::Message, message.len() as u32).encode().to_vec();
        frame.extend(message);
        self.say(&frame);
    }

    pub(super) fn hang_up(&self) {
        // Where that fails it is gone already.
        let _ = self.stream.socket.shutdown(Shutdown::Write);
    }

    /// The peer's next message, until then.
    pub(super) fn await_message(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>> {
        let unreachable = |peer: &str, what: String| Error::Unreachable { peer: peer.into(), what };
        loop {
            match self.hear() {
                Heard::Message(message) => return Ok(message),
                Heard::Word(reason) => return Err(unreachable(&self.peer, reason.to_string())),
                Heard::Gone => return Err(unreachable(&self.peer, "it went away while the endpoints met".into())),
                Heard::Nothing => {}
            }
            let left = deadline.map_or(Duration::MAX, clock::until);
            if left.is_zero() {
                return Err(unreachable(&self.peer, "its endpoint did not come in time".into()));
            }
            self.stream.wait_readable(left)?;
        }
    }

    pub(super) fn hear(&mut self) -> Heard {
        loop {
            let bytes = std::mem::take(&mut self.bytes);
            match self.intake.next(&bytes, &mut Nowhere) {
                Ok((taken, event)) => {
                    self.bytes = bytes[taken..].to_vec();
                    match event {
                        Some(Event::Message(message)) => return Heard::Message(message),
                        Some(_) => return Heard::Word(malformed("an event of a window where there is none")),
                        None => {}
                    }
                }
                Err(reason) => return Heard::Word(reason),
            }
            let mut more = [0; 1024];
            match self.stream.receive(&mut self.sealed, &mut more) {
                Ok(0) => return Heard::Gone,
                Ok(len) => self.bytes = more[..len].to_vec(),
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {
                    return Heard::Nothing;
                }
                Err(_) => return Heard::Gone,
            }
        }
    }
}

/// No window is reached by this.
struct Nowhere;

impl Inbound for Nowhere {
    fn may_write(&mut self, _: u64, _: u32) -> std::result::Result<(), Reason> {
        Err(malformed("a write beside the endpoint"))
    }
    fn write(&mut self, _: u64, _: &[u8]) -> std::result::Result<(), Reason> {
        Err(malformed("a write beside the endpoint"))
    }
    fn asked(&mut self, _: u64, _: u32, _: u32) -> std::result::Result<(), Reason> {
        Err(malformed("a read beside the endpoint"))
    }
    fn answered(&mut self, _: u32, _: u64, _: &[u8]) -> std::result::Result<Option<Event>, Reason> {
        Err(malformed("an answer beside the endpoint"))
    }
}
