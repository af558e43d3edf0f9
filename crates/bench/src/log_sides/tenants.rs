//! Several logs, each with one thread.

use std::path::Path;

use pmem::Stats;

use super::{Appender, LogSide, Writer, stranger};
use crate::{Error, Result};

/// The logs of one appender's tenants.
pub struct Tenants(Vec<Box<dyn LogSide>>);

impl Tenants {
    /// As [`Appender::make`], one log for each of `tenants`, with room for `bytes` together.
    ///
    /// # Errors
    /// As there.
    pub fn make(who: Appender, dir: &Path, bytes: u64, tenants: usize) -> Result<Result<Self, String>> {
        let mut logs = Vec::with_capacity(tenants);
        for tenant in 0..tenants {
            let own = dir.join(format!("{who}-{tenant}").replace(':', "-"));
            std::fs::create_dir_all(&own).map_err(|source| Error::Io {
                op: "make a directory",
                path: own.clone(),
                source,
            })?;
            match who.make(&own, bytes / tenants as u64, 1)? {
                Ok(log) => logs.push(log),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(Self(logs)))
    }
}

impl LogSide for Tenants {
    fn writer(&self, thread: usize) -> Result<Box<dyn Writer + '_>> {
        self.0.get(thread).ok_or_else(|| stranger(thread))?.writer(0)
    }

    fn clean(&self) -> Result<()> {
        self.0.iter().try_for_each(|log| log.clean())
    }

    fn stats(&self) -> Option<Stats> {
        self.0.iter().map(|log| log.stats()).try_fold(Stats::default(), |mut sum, stats| {
            sum += stats?;
            Some(sum)
        })
    }

    fn domain(&self) -> String {
        self.0.first().map_or_else(String::new, |log| log.domain())
    }
}
