//! Waiting for descriptors.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};

/// Until one of them is ready, or there is a signal; `wait` at most.
pub(crate) fn poll_for(fds: &mut [PollFd<'_>], wait: Duration) -> io::Result<()> {
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    match poll(fds, Some(&Timespec { tv_sec: seconds, tv_nsec: wait.subsec_nanos().into() })) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
