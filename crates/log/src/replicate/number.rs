//! Ids of logs, replicas and leaders.

use crate::error::{Error, Result};

/// A number that nothing else has.
#[expect(clippy::disallowed_methods, reason = "ids of logs, replicas and leaders; the simulator brings its own")]
pub(crate) fn number() -> Result<u64> {
    loop {
        let found = getrandom::u64().map_err(|error| {
            let source = std::io::Error::other(error);
            Error::from(pmem::Error::Io { op: "get a random number from", path: "the system".into(), source })
        })?;
        if found != 0 {
            return Ok(found);
        }
    }
}
