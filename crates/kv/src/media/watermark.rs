//! How far each log was durable, kept on another page than its records. If the last page of a log is lost, or goes back to an earlier state, nothing behind it says
//! that there was more; the *watermark* does. Format 1 has none.
//!
//! A commit that finds more than [`EVERY`] before it that the watermark does not have writes it first, with the end of the last one: so it says nothing that is not durable, and
//! its line goes along with the commit's own barrier. After that barrier at most so many commits, or those that this one barrier made durable, are behind it.
//!
//! Each log has a line of the page, and in it two places, written in turn: a line that is torn has the one before.

use pmem::{ChecksumKey, LINE, Pool};

use crate::error::Result;
use crate::media::cell::PAGE;
use crate::media::checkpoint::WRITERS;
use crate::media::mark::Mark;
use crate::raw::{self, Claim};

/// Commits of a log that its watermark may not have.
pub(crate) const EVERY: u32 = 16;
/// Bytes for all logs.
pub(crate) const BYTES: u64 = WRITERS as u64 * LINE;
const _: () = assert!(BYTES == PAGE);

/// Mark and checksum, twice.
type Line = [u64; 4];

/// The watermark of a log.
#[derive(Debug)]
pub(crate) struct Watermark {
    writer: usize,
    /// Where its line is.
    offset: u64,
    line: Line,
    /// What it says.
    pub(crate) durable: Mark,
    /// Commits in the log that it does not have, and how many may be.
    behind: u32,
    every: u32,
}

fn checksum(key: &ChecksumKey, mark: u64, writer: usize) -> u64 {
    let mut bytes = *b"watermark of kv\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    bytes[16..24].copy_from_slice(&mark.to_le_bytes());
    bytes[24..].copy_from_slice(&(writer as u64).to_le_bytes());
    key.checksum(&bytes)
}

impl Watermark {
    /// Reads that of a log; `page` is where those of all logs are.
    pub(crate) fn read(pool: &Pool, key: &ChecksumKey, page: u64, writer: usize, every: u32) -> Result<Self> {
        let offset = page + writer as u64 * LINE;
        let bytes = raw::bytes(Claim::Opening, pool, pool, offset, size_of::<Line>() as u64)?;
        let line: Line = pmem::from_bytes(bytes).unwrap_or_default();
        let whole = line.chunks_exact(2).filter(|two| two[1] == checksum(key, two[0], writer)).map(|two| two[0]);
        let durable = Mark::from_word(whole.max().unwrap_or(0));
        Ok(Self { writer, offset, line, durable, behind: 0, every })
    }

    /// Where it is in the pool.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Recovery found commits that it does not have: the next one writes it.
    pub(crate) fn is_due(&mut self) {
        self.behind = self.every;
    }

    /// So many commits go to the log.
    #[inline]
    pub(crate) fn count(&mut self, commits: u32) {
        self.behind = self.behind.saturating_add(commits);
    }

    /// Writes it if it would not have too many with so many more, as far as everything before `end` is durable. Persistent with this thread's next drain. The caller
    /// holds the log.
    #[inline]
    pub(crate) fn follow(&mut self, pool: &Pool, key: &ChecksumKey, end: Mark, more: u32) -> Result<()> {
        if self.behind.saturating_add(more) > self.every && end > self.durable {
            self.write(pool, key, end)?;
            self.behind = 0;
        }
        Ok(())
    }

    /// Says that everything before `end` is durable.
    #[cold]
    fn write(&mut self, pool: &Pool, key: &ChecksumKey, end: Mark) -> Result<()> {
        // Over the older one.
        let at = if self.line[0] == self.durable.to_word() { 2 } else { 0 };
        let mark = end.to_word();
        self.line[at..at + 2].copy_from_slice(&[mark, checksum(key, mark, self.writer)]);
        self.durable = end;
        raw::store(Claim::Writer, pool, self.offset, pmem::bytes_of(&self.line))
    }
}
