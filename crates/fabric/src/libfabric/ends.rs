//! The halves of an end.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Link, NAP_MAX, NAP_MIN};
use super::state::{PIECE, Way};
use crate::limits::limit;
use crate::raw::libfabric::RemoteAddress;
use crate::wire::{Header, Kind};
use crate::{
    Connection, Error, Event, MESSAGE_MAX, Options, READ_MAX, READS_MAX, Reason, Receiver, Result, Rights, Sender,
    WRITE_MAX, Watch,
};

struct SendHalf(Arc<Link>);

struct ReceiveHalf {
    link: Arc<Link>,
    spin: Duration,
    /// How long it is slept next where there is nothing to wait for.
    nap: Duration,
    told: bool,
}

pub(super) fn connection(link: Arc<Link>, options: &Options) -> Connection {
    Connection {
        peer: link.peer.clone(),
        access: link.access.clone(),
        receiver: Box::new(ReceiveHalf { link: link.clone(), spin: options.spin, nap: NAP_MIN, told: false }),
        sender: Box::new(SendHalf(link)),
    }
}

impl SendHalf {
    fn put(&self, header: Header, payload: &[u8]) -> Result<()> {
        self.0.until(|state| Ok(state.send(header, payload)?.then_some(())))
    }

    fn write_any(&self, offset: u64, bytes: &[u8], imm: Option<u32>) -> Result<()> {
        limit("write", bytes.len(), WRITE_MAX)?;
        match self.0.until(|state| Ok(state.way(Rights::Write, offset, bytes.len() as u64)))? {
            Way::Device(at) => self.write_by_device(at, bytes, imm),
            Way::Software => self.write_by_software(offset, bytes, imm),
        }
    }

    fn write_by_device(&self, at: RemoteAddress, bytes: &[u8], imm: Option<u32>) -> Result<()> {
        let last = bytes.len().saturating_sub(1) / PIECE;
        for index in 0..=last {
            let piece = &bytes[index * PIECE..bytes.len().min((index + 1) * PIECE)];
            let imm = imm.filter(|_| index == last);
            if piece.is_empty() && imm.is_none() {
                return Ok(());
            }
            let to = RemoteAddress { address: at.address.wrapping_add((index * PIECE) as u64), ..at };
            self.0.until(|state| Ok(state.write(piece, to, imm)?.then_some(())))?;
        }
        Ok(())
    }

    fn write_by_software(&self, offset: u64, bytes: &[u8], imm: Option<u32>) -> Result<()> {
        if bytes.len() > PIECE {
            self.put(Header { kind: Kind::Write, len: bytes.len() as u32, offset, word: 0 }, &[])?;
        }
        let last = bytes.len().saturating_sub(1) / PIECE;
        for index in 0..=last {
            let piece = &bytes[index * PIECE..bytes.len().min((index + 1) * PIECE)];
            let (kind, word) = match imm.filter(|_| index == last) {
                Some(imm) => (Kind::WriteImm, imm),
                None => (Kind::Write, 0),
            };
            // It may wrap around: the target has refused it then.
            let offset = offset.wrapping_add((index * PIECE) as u64);
            self.put(Header { kind, len: piece.len() as u32, offset, word }, piece)?;
        }
        Ok(())
    }
}

impl Sender for SendHalf {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_any(offset, bytes, None)
    }

    fn write_imm(&mut self, offset: u64, bytes: &[u8], imm: u32) -> Result<()> {
        self.write_any(offset, bytes, Some(imm))
    }

    fn read(&mut self, offset: u64, len: u32, tag: u32) -> Result<()> {
        limit("read", len as usize, READ_MAX as usize)?;
        self.0.until(|state| {
            if !state.desk.reads.has_room() {
                return Ok(Some(Err(Error::TooManyReads { peer: self.0.peer.clone(), max: READS_MAX })));
            }
            let begun = match state.way(Rights::Read, offset, len.into()) {
                None => false,
                Some(Way::Device(at)) => state.read(len, at, tag)?,
                Some(Way::Software) => {
                    let sent = state.send(Header { kind: Kind::Read, len, offset, word: tag }, &[])?;
                    sent && state.desk.reads.ask(len, tag)
                }
            };
            Ok(begun.then_some(Ok(())))
        })?
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        limit("message", message.len(), MESSAGE_MAX)?;
        self.put(Header::plain(Kind::Message, message.len() as u32), message)
    }

    /// Everything has begun already.
    fn flush(&mut self) -> Result<()> {
        self.0.until(|_| Ok(Some(())))
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

impl Receiver for ReceiveHalf {
    fn poll(&mut self, wait: Duration) -> Result<Option<Event>> {
        if self.told {
            return Err(self.link.closed(self.link.over().unwrap_or(Reason::Here)));
        }
        match self.link.next(wait, self.spin) {
            Ok(event) => {
                if event.is_some() {
                    self.nap = NAP_MIN;
                }
                Ok(event)
            }
            Err(reason) => {
                self.link.end(reason.clone());
                self.told = true;
                Ok(Some(Event::Closed(self.link.over().unwrap_or(reason))))
            }
        }
    }

    fn watch<'a>(&'a mut self, watch: &mut Watch<'a>) {
        watch.spinning(self.spin);
        if !self.link.watch(watch) {
            watch.within(self.nap);
            self.nap = (self.nap * 2).min(NAP_MAX);
        }
    }
}

impl Drop for ReceiveHalf {
    fn drop(&mut self) {
        self.link.hang_up();
    }
}
