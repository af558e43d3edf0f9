//! Where peers connect to.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::ends;
use super::greeting::{Greeted, Greeting};
use crate::poll::poll_for;
use crate::{Connection, Options, Result, Window, clock};

/// How long to wait before the system is asked again, when it had no room for a connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Waits for peers, and finds out who they are, without threads: everything happens in [`accept`](Self::accept).
pub struct Listener {
    greeter: Greeter,
    window: Option<Arc<dyn Window>>,
}

/// A listener that ends with streams.
pub(crate) struct Greeter {
    socket: TcpListener,
    pub(crate) options: Options,
    half_open: VecDeque<Greeting>,
    refused: u64,
}

impl Listener {
    /// Listens at `address` (host and port, 0 for any port). Every peer gets to `window`, as the options, and later its connection's access, allow.
    ///
    /// # Errors
    /// The address is not to be had; the options trust no peer.
    pub fn bind(address: &str, options: Options, window: Option<Arc<dyn Window>>) -> Result<Self> {
        Ok(Self { greeter: Greeter::bind(address, options)?, window })
    }

    /// The next peer that has proved who it is; none if there was none within `wait`. Those that prove something else are dropped, with a warning in the log.
    ///
    /// A system without descriptors or memory for a connection is no error: the oldest peer, of the address that has the most, that has not proved anything yet is dropped for it, and those that wait to be accepted wait on.
    ///
    /// # Errors
    /// The socket that peers connect to does not work any more.
    pub fn accept(&mut self, wait: Duration) -> Result<Option<Connection>> {
        let Some(greeted) = self.greeter.accept(wait)? else { return Ok(None) };
        match ends::connection(greeted, &self.greeter.options, self.window.clone()) {
            Ok(connection) => Ok(Some(connection)),
            Err(error) => {
                self.greeter.refuse("a peer", &error.to_string());
                Ok(None)
            }
        }
    }

    /// The address, with the port that was found.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.greeter.address()
    }

    /// Peers that were not let in so far.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.greeter.refused
    }
}

impl Greeter {
    pub(crate) fn bind(address: &str, options: Options) -> Result<Self> {
        options.check()?;
        let socket = TcpListener::bind(address)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {address}: {error}")))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, options, half_open: VecDeque::new(), refused: 0 })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    pub(crate) fn accept(&mut self, wait: Duration) -> Result<Option<Greeted>> {
        let deadline = clock::after(wait);
        loop {
            let has_room = self.take_new()?;
            if let Some(greeted) = self.advance() {
                return Ok(Some(greeted));
            }
            let left = deadline.map_or(Duration::MAX, clock::until);
            if left.is_zero() {
                return Ok(None);
            }
            let first = self.half_open.iter().filter_map(|greeting| greeting.deadline).min();
            let pause = if has_room { Duration::MAX } else { NO_ROOM_PAUSE };
            // Without room the socket stays ready, and would wake at once.
            let mut fds: Vec<_> = has_room.then(|| PollFd::new(&self.socket, PollFlags::IN)).into_iter().collect();
            fds.extend(self.half_open.iter().map(Greeting::poll_fd));
            poll_for(&mut fds, left.min(first.map_or(Duration::MAX, clock::until)).min(pause))?;
        }
    }

    /// False if the system has no room for one that waits.
    fn take_new(&mut self) -> Result<bool> {
        loop {
            match self.socket.accept() {
                Ok((socket, peer)) => {
                    match Greeting::of_client(socket, peer, &self.options) {
                        Ok(greeting) => self.half_open.push_back(greeting),
                        Err(error) => self.refuse(&peer.to_string(), &error.to_string()),
                    }
                    if self.half_open.len() > self.options.half_open_max.max(1)
                        && let Some(given_up) = self.give_up_one()
                    {
                        self.refuse(&given_up.peer, "too many peers have not proved yet who they are");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                // Gone before it was accepted.
                Err(error)
                    if [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(error) if is_no_room(&error) => match self.give_up_one() {
                    Some(oldest) => self.refuse(&oldest.peer, "there is no descriptor or memory left for others"),
                    None => {
                        tracing::warn!(%error, "no peer can be let in");
                        return Ok(false);
                    }
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The oldest of the address that has the most: a flood from one machine keeps none from another out.
    fn give_up_one(&mut self) -> Option<Greeting> {
        let of = |ip: IpAddr| self.half_open.iter().filter(|greeting| greeting.from == ip).count();
        // Of equal ones the first.
        let most = (0..self.half_open.len()).rev().max_by_key(|&at| of(self.half_open[at].from))?;
        self.half_open.remove(most)
    }

    /// Lets each go on; the first that is done.
    fn advance(&mut self) -> Option<Greeted> {
        for _ in 0..self.half_open.len() {
            let mut greeting = self.half_open.pop_front()?;
            match greeting.advance() {
                Ok(true) => return Some(greeting.finish()),
                Ok(false) if greeting.deadline.is_some_and(|deadline| clock::until(deadline).is_zero()) => {
                    self.refuse(&greeting.peer, "it did not prove in time who it is");
                }
                // Oldest first, as before.
                Ok(false) => self.half_open.push_back(greeting),
                Err(error) => self.refuse(&greeting.peer, &error.to_string()),
            }
        }
        None
    }

    fn refuse(&mut self, peer: &str, why: &str) {
        self.refused += 1;
        tracing::warn!(peer, why, "a peer is not let in");
    }
}

fn is_no_room(error: &io::Error) -> bool {
    let no_room = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| no_room.contains(&errno))
}
