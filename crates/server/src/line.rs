//! The socket of a connection that its thread's [reactor](crate::reactor) serves. It is read and written at once; a task that has to wait for it gives it to the runtime, until the
//! reactor has it back.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Edges: a reader that reads less than it could has read all, and one that hears of an end reads until it has seen it.
const WATCHED: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);

/// Not yet a part of any runtime.
pub(crate) enum Socket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// A socket, and where the reactor hears of it.
pub(crate) struct Line {
    state: State,
    epoll: Rc<OwnedFd>,
}

enum State {
    Own(Socket),
    Tcp(TcpStream),
    Unix(UnixStream),
    /// It could not be moved from one to the other.
    Lost,
}

impl Line {
    /// The reactor hears of it under `token` from now on.
    pub(crate) fn new(socket: Socket, epoll: Rc<OwnedFd>, token: u64) -> io::Result<Self> {
        epoll::add(&*epoll, descriptor(&socket), epoll::EventData::new_u64(token), WATCHED)?;
        Ok(Self { state: State::Own(socket), epoll })
    }

    /// What came, without waiting.
    pub(crate) fn read_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.state {
            State::Own(Socket::Tcp(socket)) => socket.read(into),
            State::Own(Socket::Unix(socket)) => socket.read(into),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes what it takes without waiting.
    pub(crate) fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            State::Own(Socket::Tcp(socket)) => socket.write(bytes),
            State::Own(Socket::Unix(socket)) => socket.write(bytes),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The runtime hears of it, and the reactor does not.
    fn lend(&mut self) -> io::Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Lost) {
            State::Own(socket) => {
                epoll::delete(&*self.epoll, descriptor(&socket))?;
                match socket {
                    Socket::Tcp(socket) => State::Tcp(TcpStream::from_std(socket)?),
                    Socket::Unix(socket) => State::Unix(UnixStream::from_std(socket)?),
                }
            }
            known => known,
        };
        Ok(())
    }

    /// The reactor hears of it again; true if it has not for a while.
    pub(crate) fn take_back(&mut self, token: u64) -> io::Result<bool> {
        let socket = match std::mem::replace(&mut self.state, State::Lost) {
            State::Tcp(socket) => Socket::Tcp(socket.into_std()?),
            State::Unix(socket) => Socket::Unix(socket.into_std()?),
            known => {
                self.state = known;
                return Ok(false);
            }
        };
        epoll::add(&*self.epoll, descriptor(&socket), epoll::EventData::new_u64(token), WATCHED)?;
        self.state = State::Own(socket);
        Ok(true)
    }
}

fn descriptor(socket: &Socket) -> BorrowedFd<'_> {
    match socket {
        Socket::Tcp(socket) => socket.as_fd(),
        Socket::Unix(socket) => socket.as_fd(),
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.lend()?;
        match &mut self.state {
            State::Tcp(socket) => Pin::new(socket).poll_read(cx, into),
            State::Unix(socket) => Pin::new(socket).poll_read(cx, into),
            State::Own(_) | State::Lost => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.write_now(bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            done => return Poll::Ready(done),
        }
        self.lend()?;
        match &mut self.state {
            State::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            State::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            State::Own(_) | State::Lost => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Own(Socket::Tcp(socket)) => Poll::Ready(socket.shutdown(std::net::Shutdown::Write)),
            State::Own(Socket::Unix(socket)) => Poll::Ready(socket.shutdown(std::net::Shutdown::Write)),
            State::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            State::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            State::Lost => Poll::Ready(Ok(())),
        }
    }
}
