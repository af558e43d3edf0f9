//! Until an end has proved who it is: TLS if there is any, then the secret.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection as Session, ServerConnection};

use super::outgoing::Outgoing;
use super::stream::{Sealed, Stream};
use crate::auth::{self, Handshake, Role};
use crate::poll::poll_for;
use crate::{Error, Options, Result, clock};

/// A stream whose other end has proved who it is.
pub(crate) struct Greeted {
    pub(crate) stream: Stream,
    pub(crate) sealed: Sealed,
    /// What came behind the greeting.
    pub(crate) early: Vec<u8>,
    pub(crate) peer: String,
}

/// One under way.
pub(super) struct Greeting {
    stream: Stream,
    sealed: Sealed,
    outgoing: Outgoing,
    role: Role,
    secret: Vec<u8>,
    handshake: Option<Handshake>,
    early: Vec<u8>,
    pub(super) peer: String,
    /// Its address.
    pub(super) from: IpAddr,
    pub(super) deadline: Option<Instant>,
}

/// Connects, and waits until both ends have proved themselves.
pub(super) fn connect(address: SocketAddr, host: &str, options: &Options) -> Result<Greeted> {
    let unreachable = |what: String| Error::Unreachable { peer: address.to_string(), what };
    let socket = TcpStream::connect_timeout(&address, options.greeting_timeout.max(Duration::from_millis(1)))
        .map_err(|error| unreachable(error.to_string()))?;
    let session = match &options.tls {
        None => None,
        Some(tls) => {
            let wrong = |what: String| Error::Tls { what };
            let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(format!("{host}: {error}")))?;
            let session = ClientConnection::new(tls.client.clone(), name).map_err(|error| wrong(error.to_string()))?;
            Some(Session::Client(session))
        }
    };
    let mut greeting = Greeting::new(socket, address, Role::Client, session, options)?;
    while !greeting.advance()? {
        let left = greeting.deadline.map_or(Duration::MAX, clock::until);
        if left.is_zero() {
            return Err(unreachable("it did not answer in time".into()));
        }
        poll_for(&mut [greeting.poll_fd()], left)?;
    }
    Ok(greeting.finish())
}

impl Greeting {
    /// Of a peer that has just connected.
    pub(super) fn of_client(socket: TcpStream, peer: SocketAddr, options: &Options) -> Result<Self> {
        let session = match &options.tls {
            None => None,
            Some(tls) => Some(Session::Server(
                ServerConnection::new(tls.server.clone()).map_err(|error| Error::Tls { what: error.to_string() })?,
            )),
        };
        Self::new(socket, peer, Role::Server, session, options)
    }

    fn new(
        socket: TcpStream,
        peer: SocketAddr,
        role: Role,
        session: Option<Session>,
        options: &Options,
    ) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(socket, options.send_timeout, session)?,
            sealed: Sealed::default(),
            outgoing: Outgoing::default(),
            role,
            secret: options.secret.as_ref().map_or_else(Vec::new, |secret| secret.bytes().to_vec()),
            handshake: None,
            early: Vec::new(),
            peer: peer.to_string(),
            from: peer.ip(),
            deadline: clock::after(options.greeting_timeout),
        })
    }

    /// Does what can be done without waiting. Whether both ends have proved themselves.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let mut bytes = [0; 1024];
        loop {
            self.say(&[])?;
            if self.handshake.as_ref().is_some_and(Handshake::is_done) {
                return Ok(self.outgoing.len() == 0);
            }
            let received = self.stream.receive(&mut self.sealed, &mut bytes);
            let began = self.begin_if_ready()?;
            match received {
                Ok(0) => return Err(self.not_trusted("it closed the connection during the greeting".into())),
                Ok(len) => self.hear(&bytes[..len])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && began => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.say(&[])?;
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // TLS may have a last word for the other end, about what was wrong.
                    let _ = self.say(&[]);
                    return Err(self.not_trusted(error.to_string()));
                }
            }
        }
    }

    /// Starts to prove, once TLS is set up. Whether it did.
    fn begin_if_ready(&mut self) -> Result<bool> {
        if self.handshake.is_some() || !self.stream.is_ready() {
            return Ok(false);
        }
        let mut out = Vec::new();
        let binding = self.stream.binding()?;
        self.handshake = Some(Handshake::new(self.role, &self.secret, auth::nonce()?, &binding, &mut out));
        self.say(&out)?;
        Ok(true)
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        let taken = match &mut self.handshake {
            Some(handshake) => handshake.take(bytes, &mut out),
            None => Ok(0),
        };
        let taken = taken.map_err(|auth::Denied| {
            self.not_trusted("it does not know the secret, or speaks another version".into())
        })?;
        self.early.extend_from_slice(&bytes[taken..]);
        self.say(&out)
    }

    fn say(&mut self, bytes: &[u8]) -> Result<()> {
        let sealed = self.outgoing.room().map(|out| self.stream.seal(&[bytes], out));
        let said = sealed.and_then(|sealed| {
            sealed.map_err(|error| crate::Reason::Lost { what: error.to_string() })?;
            self.outgoing.offer(&self.stream)
        });
        said.map(|_| ()).map_err(|reason| self.not_trusted(reason.to_string()))
    }

    fn not_trusted(&self, what: String) -> Error {
        Error::NotTrusted { peer: self.peer.clone(), what }
    }

    /// What to wait for.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let out = if self.outgoing.len() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(&self.stream.socket, PollFlags::IN | out)
    }

    /// After `advance` said so.
    pub(super) fn finish(self) -> Greeted {
        Greeted { stream: self.stream, sealed: self.sealed, early: self.early, peer: self.peer }
    }
}
