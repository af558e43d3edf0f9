//! A file of records: written with one call and synced with another, under a lock. All of its blocks are there, so that a sync is for data alone.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pmem::{Domain, Stats};

use super::{HEADER, LogSide, Writer, full, header};
use crate::{Error, Result};

/// The log.
pub struct Pwrite {
    file: File,
    path: PathBuf,
    bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    at: u64,
    number: u64,
    /// Header and payload go out in one piece.
    buffer: Vec<u8>,
}

impl Pwrite {
    /// A new file of that size, all zeros.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path, bytes: u64) -> Result<Self> {
        let failed = |op| move |source| Error::Io { op, path: path.to_owned(), source };
        let mut file = File::options().read(true).write(true).create_new(true).open(path).map_err(failed("create"))?;
        let zeros = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            let part = left.min(zeros.len() as u64);
            file.write_all(&zeros[..part as usize]).map_err(failed("write"))?;
            left -= part;
        }
        file.sync_all().map_err(failed("sync"))?;
        Ok(Self { file, path: path.to_owned(), bytes, inner: Mutex::default() })
    }

    fn append(&self, record: &[u8]) -> Result<()> {
        let failed = |op| move |source| Error::Io { op, path: self.path.clone(), source };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { at, number, buffer } = &mut *inner;
        let next = *at + (HEADER + record.len()) as u64;
        if next > self.bytes {
            return Err(full("pwrite"));
        }
        buffer.clear();
        buffer.extend_from_slice(&header(*number, record));
        buffer.extend_from_slice(record);
        self.file.write_all_at(buffer, *at).map_err(failed("write"))?;
        self.file.sync_data().map_err(failed("sync"))?;
        (*at, *number) = (next, *number + 1);
        Ok(())
    }
}

impl LogSide for Pwrite {
    fn writer(&self, _: usize) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(PwriteWriter(self)))
    }

    fn clean(&self) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.at, inner.number) = (0, 0);
        Ok(())
    }

    fn stats(&self) -> Option<Stats> {
        None
    }

    fn domain(&self) -> String {
        Domain::File.to_string()
    }
}

struct PwriteWriter<'e>(&'e Pwrite);

impl Writer for PwriteWriter<'_> {
    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)
    }
}
