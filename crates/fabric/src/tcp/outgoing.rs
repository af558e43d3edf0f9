//! Bytes that wait for the socket.

use std::io::{self, IoSlice, Write as _};
use std::time::{Duration, Instant};

use super::stream::Stream;
use crate::{Reason, clock};

/// Within one time-out a peer takes at least so much.
const PROGRESS: usize = 1 << 20;
/// What went is kept until it is so much: moving the rest costs too.
const WENT_MAX: usize = 64 << 10;

/// What is to go: whole frames, in order. It belongs to the thread that holds its lock.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    went: usize,
    /// Since when some of it waits for the socket.
    waits: Option<Instant>,
    /// A frame was begun and not ended: nothing goes any more.
    broken: bool,
}

impl Outgoing {
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.went
    }

    /// Where to put more.
    pub(crate) fn room(&mut self) -> Result<&mut Vec<u8>, Reason> {
        if self.broken {
            return Err(Reason::Lost { what: "it broke while it was written to".into() });
        }
        if self.went > WENT_MAX {
            self.bytes.drain(..self.went);
            self.went = 0;
        }
        Ok(&mut self.bytes)
    }

    /// Sends what the socket takes now. Whether that was all.
    pub(crate) fn offer(&mut self, stream: &Stream) -> Result<bool, Reason> {
        let sent = self.send(stream, &mut []);
        sent.map(|(_, all)| all).map_err(|error| self.fail(&error))
    }

    /// Whether there is room for one frame more, where no more than `most` bytes are to wait.
    pub(super) fn check_room(&mut self, stream: &Stream, most: usize) -> Result<(), Reason> {
        if self.len() <= most || self.offer(stream)? || self.len() <= most {
            return Ok(());
        }
        self.broken = true;
        Err(Reason::Slow { waited: self.waits.map_or(Duration::ZERO, |since| clock::now().duration_since(since)) })
    }

    /// Sends what the socket takes now, and keeps the rest, `tail` too. Whether that was all.
    pub(super) fn keep(&mut self, stream: &Stream, tail: &mut [&[u8]]) -> Result<bool, Reason> {
        let (_, all) = self.send(stream, tail).map_err(|error| self.fail(&error))?;
        if !all {
            self.waits.get_or_insert_with(clock::now);
            let bytes = self.room()?;
            tail.iter().for_each(|part| bytes.extend_from_slice(part));
        }
        Ok(all)
    }

    /// Sends it all, then `tail`, and waits for the socket. The peer has `timeout` for each MiB.
    pub(super) fn push(&mut self, stream: &Stream, tail: &mut [&[u8]], timeout: Duration) -> Result<(), Reason> {
        let (mut waiting_since, mut progress) = (None, 0);
        loop {
            let (sent, all) = self.send(stream, tail).map_err(|error| self.fail(&error))?;
            if all {
                return Ok(());
            }
            progress += sent;
            if progress >= PROGRESS {
                (waiting_since, progress) = (None, 0);
            }
            let now = clock::now();
            let waited = now.duration_since(*waiting_since.get_or_insert(now));
            if waited >= timeout {
                self.broken = true;
                return Err(Reason::Slow { waited });
            }
            stream.wait_writable(timeout - waited).map_err(|error| self.fail(&error))?;
        }
    }

    /// How much the socket took, and whether that was all. What of `tail` went is cut off.
    fn send(&mut self, stream: &Stream, tail: &mut [&[u8]]) -> io::Result<(usize, bool)> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut sent = 0;
        loop {
            let own = &self.bytes[self.went..];
            if own.is_empty() && tail.iter().all(|part| part.is_empty()) {
                self.bytes.clear();
                (self.went, self.waits) = (0, None);
                return Ok((sent, true));
            }
            let first = *tail.first().unwrap_or(&&[][..]);
            let second = *tail.get(1).unwrap_or(&&[][..]);
            match (&stream.socket).write_vectored(&[IoSlice::new(own), IoSlice::new(first), IoSlice::new(second)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(mut took) => {
                    sent += took;
                    let of_own = took.min(own.len());
                    self.went += of_own;
                    took -= of_own;
                    for part in tail.iter_mut() {
                        let of_part = took.min(part.len());
                        *part = &part[of_part..];
                        took -= of_part;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((sent, false)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn fail(&mut self, error: &io::Error) -> Reason {
        self.broken = true;
        Reason::Lost { what: error.to_string() }
    }
}
