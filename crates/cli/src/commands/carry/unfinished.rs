//! Under which name a long collection is built at the target, until it is whole and gets its own.

use std::time::Duration;

use server::rdb;

use super::peer::Peer;
use crate::failure::Failure;

const FRONT: &[u8] = b"cairn:import:unfinished:";
/// What is not added to for so long expires, so nothing stays of an import that never comes again.
pub const LEASE: Duration = Duration::from_secs(600);

/// A name that no other import has. Its end is a checksum of the rest, so what a user calls so is told from it.
pub fn name(random: u64) -> Vec<u8> {
    let mut name = FRONT.to_vec();
    name.extend_from_slice(format!("{random:016x}").as_bytes());
    let sum = rdb::checksum(0, &name);
    name.extend_from_slice(format!("{sum:016x}").as_bytes());
    name
}

/// Whether an import made this name.
pub fn is_one(key: &[u8]) -> bool {
    let random = key.strip_prefix(FRONT).and_then(|rest| rest.get(..16)).and_then(|hex| std::str::from_utf8(hex).ok());
    random.and_then(|hex| u64::from_str_radix(hex, 16).ok()).is_some_and(|random| key == name(random))
}

/// Removes what interrupted imports have left there. One that runs at the same time notices, and begins its collection again. What cannot be listed or removed expires.
pub fn remove_all(peer: &mut Peer) -> Result<(), Failure> {
    let pattern = [FRONT, b"*"].concat();
    for db in peer.databases()? {
        if peer.select(db)?.is_err() {
            continue;
        }
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(10_000);
            let Ok((next, keys)) = peer.try_ask::<(String, Vec<Vec<u8>>)>(&scan)? else { break };
            for key in keys.iter().filter(|key| is_one(key)) {
                let _ = peer.try_ask::<redis::Value>(redis::cmd("DEL").arg(key))?;
            }
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_none_of_these() {
        let own = name(7);
        assert!(is_one(&own) && is_one(&name(u64::MAX)) && own != name(8) && own.len() < 64);
        let mut other = own.clone();
        *other.last_mut().unwrap() ^= 1;
        for key in [&other[..], &own[..40], b"cairn:import:unfinished:list", b"", &[&own[..], b"0"].concat()] {
            assert!(!is_one(key), "{}", key.escape_ascii());
        }
        assert!(!is_one(&own.to_ascii_uppercase()));
    }
}
