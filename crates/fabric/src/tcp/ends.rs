//! The halves of an end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::greeting::Greeted;
use super::link::Link;
use super::stream::{CHUNK, Sealed};
use crate::intake::{Inbound, Intake};
use crate::limits::limit;
use crate::target::Target;
use crate::wire::{Header, Kind};
use crate::{
    Access, Connection, Error, Event, MESSAGE_MAX, Options, READ_MAX, READS_MAX, Reason, Receiver, Result, Rights,
    Sender, WRITE_MAX, Watch, Window, clock,
};

struct SendHalf(Arc<Link>);

struct ReceiveHalf {
    link: Arc<Link>,
    sealed: Sealed,
    intake: Intake,
    /// What was received, from `used` to `len`.
    bytes: Vec<u8>,
    used: usize,
    len: usize,
    socket: Socket,
    spin: Duration,
    told: bool,
}

/// What is known of the socket without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    /// It, or TLS, may have more.
    Unknown,
    /// It had no more when the last event was received: a caller that does not wait need not ask again.
    JustEmptied,
    /// It had no more: a caller that waits need not ask before.
    Emptied,
}

pub(super) fn connection(greeted: Greeted, options: &Options, window: Option<Arc<dyn Window>>) -> Result<Connection> {
    let Greeted { stream, sealed, early, peer } = greeted;
    let access = Access::new(options.rights);
    let target = Target { window, access: access.clone() };
    let link = Arc::new(Link::new(stream, peer.clone(), target, options.send_timeout)?);
    let mut bytes = early;
    let len = bytes.len();
    bytes.resize(len.max(CHUNK), 0);
    let receiver = ReceiveHalf {
        link: link.clone(),
        sealed,
        intake: Intake::default(),
        bytes,
        used: 0,
        len,
        socket: Socket::Unknown,
        spin: options.spin,
        told: false,
    };
    Ok(Connection { sender: Box::new(SendHalf(link)), receiver: Box::new(receiver), peer, access })
}

impl SendHalf {
    fn write_frame(&self, kind: Kind, offset: u64, bytes: &[u8], word: u32) -> Result<()> {
        limit("write", bytes.len(), WRITE_MAX)?;
        self.0.put(Header { kind, len: bytes.len() as u32, offset, word }, bytes)
    }
}

impl Sender for SendHalf {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_frame(Kind::Write, offset, bytes, 0)
    }

    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> Result<()> {
        self.write_frame(Kind::WriteImm, offset, bytes, imm)
    }

    fn read(&mut self, offset: u64, len: u32, tag: u32) -> Result<()> {
        limit("read", len as usize, READ_MAX as usize)?;
        if !self.0.reads.lock().ask(len, tag) {
            return Err(Error::TooManyReads { peer: self.0.peer.clone(), max: READS_MAX });
        }
        self.0.put(Header { kind: Kind::Read, len, offset, word: tag }, &[])
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        limit("message", message.len(), MESSAGE_MAX)?;
        self.0.put(Header::plain(Kind::Message, message.len() as u32), message)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }

    fn queue_up_to(&mut self, bytes: usize) {
        self.0.queue_up_to(bytes);
    }

    fn close(&mut self) {
        self.0.close();
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

impl Inbound for &Link {
    fn may_write(&mut self, offset: u64, len: u32) -> std::result::Result<(), Reason> {
        self.target.allows(Rights::Write, offset, len.into())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> std::result::Result<(), Reason> {
        self.target.write(offset, bytes)
    }

    fn asked(&mut self, offset: u64, len: u32, tag: u32) -> std::result::Result<(), Reason> {
        Link::asked(self, offset, len, tag)
    }

    fn answered(&mut self, tag: u32, at: u64, bytes: &[u8]) -> std::result::Result<Option<Event>, Reason> {
        self.reads.lock().answered(tag, at, bytes)
    }
}

impl ReceiveHalf {
    /// What the bytes in hand hold, up to the first event.
    fn take(&mut self) -> std::result::Result<Option<Event>, Reason> {
        while self.used < self.len {
            let (taken, event) = self.intake.next(&self.bytes[self.used..self.len], &mut &*self.link)?;
            self.used += taken;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Whether bytes came.
    fn receive(&mut self) -> std::result::Result<bool, Reason> {
        let lost = |what: String| Reason::Lost { what };
        self.socket = Socket::Unknown;
        match self.link.stream.receive(&mut self.sealed, &mut self.bytes) {
            Ok(0) if self.intake.is_inside() => Err(lost("the stream ended inside a frame".into())),
            Ok(0) => Err(lost("the stream ended without a goodbye".into())),
            Ok(len) => {
                (self.used, self.len) = (0, len);
                // Less than there was room for: the system had no more. TLS may have some in hand.
                if len < self.bytes.len() && !self.link.stream.is_sealed() {
                    self.socket = Socket::JustEmptied;
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.socket = Socket::Emptied;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// Whether the socket is to be asked, by a caller that waits for so long.
    fn asks(&mut self, wait: Duration) -> bool {
        match self.socket {
            Socket::JustEmptied if wait.is_zero() => {
                self.socket = Socket::Emptied;
                false
            }
            // A caller that is about to sleep is told by the system.
            Socket::JustEmptied | Socket::Emptied => wait.is_zero() || !self.spin.is_zero(),
            Socket::Unknown => true,
        }
    }

    /// What has come and is not taken yet: an event; or the peer's last word, if it is there.
    fn rest(&mut self) -> std::result::Result<Option<Event>, Option<Reason>> {
        loop {
            match self.take() {
                Ok(None) => {}
                Ok(event) => return Ok(event),
                Err(word @ (Reason::Peer | Reason::Violated(_) | Reason::Window { .. })) => return Err(Some(word)),
                Err(_) => return Err(None),
            }
            if !self.receive().map_err(|_| None)? {
                return Err(None);
            }
        }
    }

    /// The next event, or none within `wait`; an error ends the connection.
    fn next(&mut self, wait: Duration) -> std::result::Result<Option<Event>, Reason> {
        let mut began = None;
        loop {
            match self.link.over() {
                // The sender found the peer slow, which may have said why.
                Some(slow @ Reason::Slow { .. }) => return self.rest().map_err(|word| word.unwrap_or(slow)),
                Some(reason) => return Err(reason),
                None => {}
            }
            let event = self.take()?;
            self.link.attend();
            if event.is_some() {
                return Ok(event);
            }
            if self.asks(wait) && self.receive()? {
                continue;
            }
            if wait.is_zero() {
                return Ok(None);
            }
            let waited = began.get_or_insert_with(clock::now).elapsed();
            if waited >= wait {
                return Ok(None);
            }
            if waited >= self.spin {
                self.link.wait(wait - waited).map_err(|error| Reason::Lost { what: error.to_string() })?;
                self.socket = Socket::Unknown;
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Receiver for ReceiveHalf {
    fn poll(&mut self, wait: Duration) -> Result<Option<Event>> {
        if self.told {
            let reason = self.link.over().unwrap_or(Reason::Here);
            return Err(self.link.closed(reason));
        }
        match self.next(wait) {
            Ok(event) => Ok(event),
            Err(reason) => {
                match &reason {
                    Reason::PeerViolated(_) | Reason::Window { .. } | Reason::Malformed { .. } => {
                        self.link.refuse(reason.clone());
                    }
                    _ => self.link.end(reason.clone()),
                }
                self.told = true;
                Ok(Some(Event::Closed(self.link.closed_for(reason))))
            }
        }
    }

    fn watch<'a>(&'a mut self, watch: &mut Watch<'a>) {
        let in_hand = self.used < self.len || self.link.stream.is_sealed() && self.socket == Socket::Unknown;
        if in_hand || self.link.over().is_some() {
            watch.within(Duration::ZERO);
        }
        self.socket = Socket::Unknown;
        watch.spinning(self.spin);
        self.link.watch(watch);
    }
}

impl Drop for ReceiveHalf {
    fn drop(&mut self) {
        self.link.hang_up();
    }
}
