//! What the halves of an end share.
//!
//! Two threads write to the socket: the one that sends, and the one that receives, since that one answers reads. The latter never waits to write, or two ends
//! whose sockets are full would wait for each other. So it leaves in `urgent` what it has to say, and the thread that holds `outgoing` says it: the receiving
//! thread if the lock is free, or the one that has the lock, when it has given it back.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use super::outgoing::Outgoing;
use super::stream::Stream;
use crate::answers::{Answers, Piece};
use crate::raw::socket::unacknowledged;
use crate::reads::Reads;
use crate::target::Target;
use crate::wire::{HEADER, Header, Kind};
use crate::{Error, Reason, Result, Rights, Watch, clock};

/// A payload up to this length is gathered with others; a longer one goes to the socket from where it is.
const COPY_MAX: usize = 16 << 10;
/// So much is gathered at most before it goes without a flush.
const GATHER_MAX: usize = 64 << 10;
/// A thread that closes looks again after so long whether everything has gone, until the peer counts as slow: the system does not tell when its last bytes are
/// acknowledged.
const CLOSING_NAP: Duration = Duration::from_micros(200);

pub(super) struct Link {
    pub(super) stream: Stream,
    pub(super) peer: String,
    pub(super) target: Target,
    pub(super) reads: Mutex<Reads>,
    outgoing: Mutex<Outgoing>,
    urgent: Mutex<Urgent>,
    /// There is something urgent, or some of it waits for the socket.
    has_urgent: AtomicBool,
    over: Mutex<Option<Reason>>,
    /// Readable once it is over: wakes the thread that polls.
    bell: OwnedFd,
    timeout: Duration,
    /// A sender does not wait while no more than so many bytes do; `usize::MAX` if it waits.
    queue: AtomicUsize,
}

#[derive(Default)]
struct Urgent {
    answers: Answers,
    /// The last frame of this end.
    last_word: Option<Vec<u8>>,
    /// ... is among what is to go.
    saying: bool,
}

impl Link {
    pub(super) fn new(stream: Stream, peer: String, target: Target, timeout: Duration) -> io::Result<Self> {
        Ok(Self {
            stream,
            peer,
            target,
            reads: Mutex::default(),
            outgoing: Mutex::default(),
            urgent: Mutex::default(),
            has_urgent: AtomicBool::new(false),
            over: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            timeout,
            queue: AtomicUsize::new(usize::MAX),
        })
    }

    pub(super) fn over(&self) -> Option<Reason> {
        self.over.lock().clone()
    }

    pub(super) fn closed(&self, reason: Reason) -> Error {
        Error::Closed { peer: self.peer.clone(), reason }
    }

    // ---- sending -------------------------------------------------------------------------------------------

    /// Takes a frame; it may stay here until the next flush.
    pub(super) fn put(&self, header: Header, payload: &[u8]) -> Result<()> {
        self.with_outgoing(|outgoing| {
            let header = header.encode();
            if let Some(most) = self.queue() {
                outgoing.check_room(&self.stream, most)?;
            }
            if !self.stream.is_sealed() && payload.len() > COPY_MAX {
                return self.push(outgoing, &mut [&header, payload]);
            }
            self.gather(outgoing, &header, &payload[..payload.len().min(GATHER_MAX)])?;
            for piece in payload.chunks(GATHER_MAX).skip(1) {
                self.gather(outgoing, &[], piece)?;
            }
            Ok(())
        })
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.with_outgoing(|outgoing| self.push(outgoing, &mut []))
    }

    /// From now on a sender never waits for the socket: what that does not take is kept, and goes when this end polls, or sends again.
    pub(super) fn queue_up_to(&self, bytes: usize) {
        self.queue.store(bytes, Ordering::Release);
    }

    fn queue(&self) -> Option<usize> {
        Some(self.queue.load(Ordering::Acquire)).filter(|&bytes| bytes != usize::MAX)
    }

    fn push(&self, outgoing: &mut Outgoing, tail: &mut [&[u8]]) -> std::result::Result<(), Reason> {
        if self.queue().is_none() {
            return outgoing.push(&self.stream, tail, self.timeout);
        }
        if !outgoing.keep(&self.stream, tail)? {
            self.has_urgent.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn gather(&self, outgoing: &mut Outgoing, header: &[u8], piece: &[u8]) -> std::result::Result<(), Reason> {
        self.seal(outgoing, &[header, piece])?;
        if outgoing.len() >= GATHER_MAX { self.push(outgoing, &mut []) } else { Ok(()) }
    }

    fn seal(&self, outgoing: &mut Outgoing, parts: &[&[u8]]) -> std::result::Result<(), Reason> {
        self.stream.seal(parts, outgoing.room()?).map_err(|error| Reason::Lost { what: error.to_string() })
    }

    fn with_outgoing(&self, operation: impl FnOnce(&mut Outgoing) -> std::result::Result<(), Reason>) -> Result<()> {
        if let Some(reason) = self.over() {
            return Err(self.closed(reason));
        }
        let done = operation(&mut self.outgoing.lock());
        self.attend();
        done.map_err(|reason| {
            // A peer that is gone may have said why: the thread that polls reads on to the end.
            if matches!(reason, Reason::Slow { .. }) {
                self.end(reason.clone());
            }
            self.closed(self.over().unwrap_or(reason))
        })
    }

    // ---- what is urgent ------------------------------------------------------------------------------------

    /// The peer wants to read.
    pub(super) fn asked(&self, offset: u64, len: u32, tag: u32) -> std::result::Result<(), Reason> {
        self.target.allows(Rights::Read, offset, len.into())?;
        self.urgent.lock().answers.ask(offset, len, tag)?;
        self.has_urgent.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn has_urgent(&self) -> bool {
        self.has_urgent.load(Ordering::SeqCst)
    }

    /// Says what is urgent, as far as the socket takes it now; or another thread that is sending does.
    ///
    /// Nothing is forgotten: a thread that finds the lock taken has set `has_urgent` before, and the thread that had the lock looks at that after it gave it
    /// back.
    pub(super) fn attend(&self) {
        while self.has_urgent() {
            let Some(mut outgoing) = self.outgoing.try_lock() else { return };
            match self.say_urgent(&mut outgoing) {
                Ok(true) => {}
                // The socket is full: the thread that polls waits for it.
                Ok(false) => return,
                Err(reason) => {
                    drop(outgoing);
                    self.has_urgent.store(false, Ordering::SeqCst);
                    if matches!(reason, Reason::PeerViolated(_) | Reason::Window { .. }) {
                        self.refuse(reason);
                    }
                }
            }
        }
    }

    /// Whether all was said.
    fn say_urgent(&self, outgoing: &mut Outgoing) -> std::result::Result<bool, Reason> {
        loop {
            if !outgoing.offer(&self.stream)? {
                return Ok(false);
            }
            let mut urgent = self.urgent.lock();
            let Some(Piece { offset, len, tag, at }) = urgent.answers.next() else {
                if let Some(word) = urgent.last_word.take() {
                    urgent.saying = true;
                    drop(urgent);
                    self.seal(outgoing, &[&word])?;
                    continue;
                }
                if urgent.saying {
                    // Nothing to do where that fails: the socket is gone already.
                    let _ = self.stream.socket.shutdown(Shutdown::Write);
                }
                self.has_urgent.store(false, Ordering::SeqCst);
                return Ok(true);
            };
            drop(urgent);
            let mut frame = vec![0; HEADER + len as usize];
            let header = Header { kind: Kind::Answer, len, offset: at.into(), word: tag };
            frame[..HEADER].copy_from_slice(&header.encode());
            self.target.read(offset, &mut frame[HEADER..])?;
            self.seal(outgoing, &[&frame])?;
        }
    }

    // ---- endings -------------------------------------------------------------------------------------------

    /// It is over, if it was not. Whether it was not.
    fn mark(&self, reason: Reason) -> bool {
        let mut over = self.over.lock();
        let first = over.is_none();
        over.get_or_insert(reason);
        drop(over);
        if first {
            // It cannot be full: this is its only 1.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        first
    }

    /// It is over, and there is nothing to say.
    pub(super) fn end(&self, reason: Reason) {
        if self.mark(reason) {
            let _ = self.stream.socket.shutdown(Shutdown::Both);
        }
    }

    /// Why it is over: the first reason, but that the peer was slow to take a refusal is none.
    pub(super) fn closed_for(&self, reason: Reason) -> Reason {
        let mut over = self.over.lock();
        let first = over.get_or_insert_with(|| reason.clone());
        if matches!(first, Reason::Slow { .. }) {
            *first = reason;
        }
        first.clone()
    }

    /// The peer did what it may not, or this end cannot do what it asked: it is told.
    pub(super) fn refuse(&self, reason: Reason) {
        let word = crate::wire::Refusal::frame(&reason);
        self.leave(reason, word);
    }

    /// Says goodbye, without waiting.
    pub(super) fn hang_up(&self) {
        self.leave(Reason::Here, Header::plain(Kind::Bye, 0).encode().to_vec());
    }

    fn leave(&self, reason: Reason, last_word: Vec<u8>) {
        if self.mark(reason) {
            let mut urgent = self.urgent.lock();
            urgent.answers.clear();
            urgent.last_word = Some(last_word);
            self.has_urgent.store(true, Ordering::SeqCst);
            drop(urgent);
            self.attend();
        }
    }

    /// Says goodbye, and waits until the peer's system has taken everything.
    pub(super) fn close(&self) {
        // An error: the connection is over, which is what was asked for.
        let flushed = self.flush();
        self.hang_up();
        let deadline = clock::after(self.timeout);
        // A peer that has reset the connection acknowledges nothing any more, and leaves the socket without a peer.
        let is_open = || self.stream.socket.peer_addr().is_ok();
        while flushed.is_ok() && is_open() && (self.has_urgent() || unacknowledged(&self.stream.socket) > 0) {
            if deadline.is_some_and(|deadline| clock::until(deadline).is_zero()) {
                return;
            }
            self.attend();
            std::thread::sleep(CLOSING_NAP);
        }
    }

    // ---- waiting -------------------------------------------------------------------------------------------

    /// Until there may be something to receive, or to say, or it is over.
    pub(super) fn wait(&self, wait: Duration) -> io::Result<()> {
        self.stream.wait(self.has_urgent(), &self.bell, wait)
    }

    /// The same, with others.
    pub(super) fn watch<'a>(&'a self, watch: &mut Watch<'a>) {
        watch.on(&self.stream.socket, self.has_urgent());
        watch.on(&self.bell, false);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A socket that is closed with bytes in it resets the connection at once, and what this end said last may be lost.
        let mut bytes = [0; 16 << 10];
        while (&self.stream.socket).read(&mut bytes).is_ok_and(|len| len > 0) {}
    }
}
