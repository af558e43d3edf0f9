//! A question to the system that rustix does not know.

use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

/// Bytes that were sent and the peer's system has not acknowledged; 0 also if that cannot be told any more.
pub(crate) fn unacknowledged(socket: &TcpStream) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, and the descriptor is open.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}
