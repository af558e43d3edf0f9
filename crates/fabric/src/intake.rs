//! What an end does with a stream of frames: a state machine without a socket, total over all bytes.

use crate::wire::{HEADER, Header, Kind, Refusal, malformed};
use crate::{Event, Reason};

/// An end, as far as frames from its peer reach it. An error ends the connection.
pub(crate) trait Inbound {
    /// Whether a write may begin, of which `bytes` are to come.
    fn may_write(&mut self, offset: u64, len: u32) -> Result<(), Reason>;
    /// A piece of it.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Reason>;
    /// The peer wants to read.
    fn asked(&mut self, offset: u64, len: u32, tag: u32) -> Result<(), Reason>;
    /// A piece of what this end wanted to read, `at` bytes into it; the event if it is the last.
    fn answered(&mut self, tag: u32, at: u64, bytes: &[u8]) -> Result<Option<Event>, Reason>;
}

/// Where in the stream it is.
#[derive(Default)]
pub(crate) struct Intake {
    head: [u8; HEADER],
    head_len: usize,
    /// The frame whose payload is being taken, and how much of that was.
    frame: Option<(Header, usize)>,
    /// A message's or refusal's payload, gathered.
    gathered: Vec<u8>,
}

impl Intake {
    /// Takes bytes up to the next event. How many it took, which is all if there is no event.
    pub(crate) fn next(&mut self, bytes: &[u8], end: &mut impl Inbound) -> Result<(usize, Option<Event>), Reason> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let Some((header, done)) = self.frame else {
                let part = rest.len().min(HEADER - self.head_len);
                self.head[self.head_len..][..part].copy_from_slice(&rest[..part]);
                self.head_len += part;
                taken += part;
                if self.head_len < HEADER {
                    return Ok((taken, None));
                }
                self.head_len = 0;
                let header = Header::decode(&self.head)?;
                self.begin(header, end)?;
                self.frame = Some((header, 0));
                continue;
            };
            let part = rest.len().min(header.payload() - done);
            let event = self.payload(header, done, &rest[..part], end)?;
            taken += part;
            if done + part < header.payload() {
                self.frame = Some((header, done + part));
                return Ok((taken, None));
            }
            self.frame = None;
            if event.is_some() {
                return Ok((taken, event));
            }
        }
    }

    /// Whether a frame has begun and not ended.
    pub(crate) const fn is_inside(&self) -> bool {
        self.head_len > 0 || self.frame.is_some()
    }

    fn begin(&mut self, header: Header, end: &mut impl Inbound) -> Result<(), Reason> {
        match header.kind {
            Kind::Write | Kind::WriteImm => end.may_write(header.offset, header.len),
            Kind::Message | Kind::Refused => {
                self.gathered = Vec::with_capacity(header.payload());
                Ok(())
            }
            Kind::Grant => Err(malformed("a grant, where there is no device")),
            Kind::Read | Kind::Answer | Kind::Bye => Ok(()),
        }
    }

    /// A piece of the payload, `done` bytes into it; the event if it is the last.
    fn payload(
        &mut self,
        header: Header,
        done: usize,
        bytes: &[u8],
        end: &mut impl Inbound,
    ) -> Result<Option<Event>, Reason> {
        let last = done + bytes.len() == header.payload();
        match header.kind {
            Kind::Write | Kind::WriteImm => {
                if !bytes.is_empty() {
                    end.write(header.offset + done as u64, bytes)?;
                }
                Ok((last && header.kind == Kind::WriteImm).then_some(Event::Written { imm: header.word }))
            }
            Kind::Read => end.asked(header.offset, header.len, header.word).map(|()| None),
            Kind::Answer => {
                let at = header.offset.checked_add(done as u64);
                end.answered(header.word, at.ok_or_else(|| malformed("an answer beyond all bounds"))?, bytes)
            }
            Kind::Message => {
                self.gathered.extend_from_slice(bytes);
                Ok(last.then(|| Event::Message(std::mem::take(&mut self.gathered))))
            }
            Kind::Bye | Kind::Grant => Err(Reason::Peer),
            Kind::Refused => {
                self.gathered.extend_from_slice(bytes);
                if last { Err(Refusal::decode(&self.gathered)) } else { Ok(None) }
            }
        }
    }
}
