//! A socket that never blocks, and TLS on it. Both directions may be used at once: the lock of TLS is held while bytes are processed, and never
//! while a thread waits.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustls::Connection as Session;

use crate::poll::poll_for;

/// Bytes that are taken from the socket at once.
pub(super) const CHUNK: usize = 128 << 10;
/// Bytes that TLS takes at once: a record.
const RECORD: usize = 16 << 10;

pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    tls: Option<Mutex<Session>>,
}

/// Sealed bytes that came and are not open yet; for the one thread that receives.
#[derive(Default)]
pub(crate) struct Sealed {
    bytes: Vec<u8>,
    used: usize,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, silence: Duration, tls: Option<Session>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        watch(&socket, silence)?;
        let tls = tls.map(|mut session| {
            session.set_buffer_limit(None);
            Mutex::new(session)
        });
        Ok(Self { socket, tls })
    }

    pub(super) const fn is_sealed(&self) -> bool {
        self.tls.is_some()
    }

    /// Bytes that came, opened, into the front of `into`: none is the end of the stream; an error may be that there are none yet.
    pub(crate) fn receive(&self, sealed: &mut Sealed, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return (&self.socket).read(into) };
        loop {
            {
                let mut session = tls.lock();
                loop {
                    match session.reader().read(into) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        // Or the end, which the other end has sealed.
                        done => return done,
                    }
                    if sealed.used == sealed.bytes.len() {
                        break;
                    }
                    sealed.used += session.read_tls(&mut &sealed.bytes[sealed.used..])?;
                    session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                }
            }
            sealed.bytes.resize(RECORD, 0);
            sealed.used = 0;
            let got = (&self.socket).read(&mut sealed.bytes);
            sealed.bytes.truncate(*got.as_ref().unwrap_or(&0));
            if got? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Bytes as they go to the socket, behind what is in `out`. The caller holds `out` until they have gone: sealed bytes have an order.
    pub(crate) fn seal(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            parts.iter().for_each(|part| out.extend_from_slice(part));
            return Ok(());
        };
        let mut session = tls.lock();
        for part in parts {
            session.writer().write_all(part)?;
        }
        while session.wants_write() {
            session.write_tls(out)?;
        }
        Ok(())
    }

    /// The session below the greeting is set up.
    pub(super) fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.lock().is_handshaking())
    }

    /// What this session has and no other; empty without TLS.
    pub(super) fn binding(&self) -> io::Result<Vec<u8>> {
        let Some(tls) = &self.tls else { return Ok(Vec::new()) };
        let exported = tls.lock().export_keying_material(vec![0; 32], b"EXPORTER-cairn-fabric", None);
        exported.map_err(io::Error::other)
    }

    /// Waits until the socket may be read (or written, if that is wanted), or `bell` may be read.
    pub(super) fn wait(&self, also_writable: bool, bell: &OwnedFd, wait: Duration) -> io::Result<()> {
        let flags = if also_writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        poll_for(&mut [PollFd::new(&self.socket, flags), PollFd::new(bell, PollFlags::IN)], wait)
    }

    /// Waits until the socket may be read.
    #[cfg(feature = "libfabric")]
    pub(crate) fn wait_readable(&self, wait: Duration) -> io::Result<()> {
        poll_for(&mut [PollFd::new(&self.socket, PollFlags::IN)], wait)
    }

    /// Waits until the socket may be written.
    pub(super) fn wait_writable(&self, wait: Duration) -> io::Result<()> {
        poll_for(&mut [PollFd::new(&self.socket, PollFlags::OUT)], wait)
    }
}

/// A peer whose machine is gone is noticed, at some time, also when nothing is sent.
fn watch(socket: &TcpStream, silence: Duration) -> io::Result<()> {
    use rustix::net::sockopt;
    let fd = socket.as_fd();
    // Later than the sender finds the peer slow, which says more.
    let millis = u32::try_from(silence.as_millis().saturating_mul(2)).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(fd, millis.max(1))?;
    sockopt::set_socket_keepalive(fd, true)?;
    let whole = Duration::from_secs(silence.as_secs().clamp(1, 32_000));
    sockopt::set_tcp_keepidle(fd, whole)?;
    sockopt::set_tcp_keepintvl(fd, Duration::from_secs((whole.as_secs() / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(fd, 3)?;
    Ok(())
}
