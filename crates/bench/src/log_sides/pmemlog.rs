//! libpmemlog: the lock is its own. It keeps no headers, so that what it writes is the payload, and its tail.

use std::path::Path;

use peers::Pmemlog;
use pmem::Stats;

use super::{LogSide, Writer};
use crate::Result;
use crate::engines::domain_of_peer;

/// Records that touch all pages of a new log.
const FILL: usize = 64 << 10;
/// For its header.
const SLACK: usize = 64 << 10;

/// The log.
pub struct OnPmemlog(Pmemlog);

impl OnPmemlog {
    /// A new log.
    ///
    /// # Errors
    /// The library's.
    pub fn create(path: &Path, bytes: u64) -> Result<Self> {
        let log = Pmemlog::create(path, (bytes as usize + SLACK).max(Pmemlog::BYTES_MIN))?;
        let fill = vec![0; FILL];
        for _ in 0..log.capacity() / FILL {
            log.append(&fill)?;
        }
        log.rewind();
        Ok(Self(log))
    }
}

impl LogSide for OnPmemlog {
    fn writer(&self, _: usize) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(PmemlogWriter(&self.0)))
    }

    fn clean(&self) -> Result<()> {
        self.0.rewind();
        Ok(())
    }

    fn stats(&self) -> Option<Stats> {
        None
    }

    fn domain(&self) -> String {
        domain_of_peer(self.0.flushes()).to_string()
    }
}

struct PmemlogWriter<'e>(&'e Pmemlog);

impl Writer for PmemlogWriter<'_> {
    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)?;
        Ok(())
    }
}
