//! What is refused before anything is sent.

use std::time::Duration;

use crate::{Error, Result};

/// Longest name, address and prefix, in bytes.
const TEXT_MAX: usize = 255;
/// Least and most time to live of a lease: etcd counts in seconds, and a leader that is gone is missed for as long.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

pub(crate) fn check_ttl(ttl: Duration) -> Result<()> {
    if TTL.contains(&ttl) {
        return Ok(());
    }
    Err(argument("a lease's time to live", format!("{ttl:?}"), "from a second to an hour"))
}

pub(crate) fn text(what: &'static str, found: &str, path: bool) -> Result<()> {
    let plain = found.chars().all(|c| !c.is_control() && !c.is_whitespace() && (path || c != '/'));
    if plain && !found.is_empty() && found.len() <= TEXT_MAX {
        return Ok(());
    }
    let must = if path {
        "1 to 255 bytes without spaces and control characters"
    } else {
        "1 to 255 bytes without spaces, control characters and slashes"
    };
    Err(argument(what, found.to_owned(), must))
}

pub(crate) fn argument(what: &'static str, found: String, must: &'static str) -> Error {
    Error::Argument { what, found, must }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_less_than_a_second_is_refused() {
        assert!(check_ttl(Duration::from_millis(999)).is_err());
        assert!(check_ttl(Duration::from_secs(1)).is_ok());
    }
}
