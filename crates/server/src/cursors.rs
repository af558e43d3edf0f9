//! Where scans go on. Keys are in order, and a cursor is a number: so the server keeps the last key of each, of so many as it has room for.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Cursors at one time; the oldest goes first.
const MOST: usize = 1 << 14;
/// Bytes of their keys.
const BYTES: usize = 16 << 20;

/// Cursors of all connections: a client may send each request over another one.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The number of the first key.
    first: u64,
    keys: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Cursors {
    /// Numbers begin anywhere: one that another run of the server gave is not taken for one of this.
    pub(crate) fn new(random: u64) -> Self {
        Self(Mutex::new(Kept { first: random >> 16, ..Kept::default() }))
    }

    /// A number for a key, never 0.
    pub(crate) fn keep(&self, key: &[u8]) -> u64 {
        let mut kept = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        kept.bytes += key.len();
        kept.keys.push_back(key.into());
        while kept.keys.len() > MOST || kept.bytes > BYTES {
            let Some(gone) = kept.keys.pop_front() else { break };
            kept.bytes -= gone.len();
            kept.first += 1;
        }
        kept.first + kept.keys.len() as u64
    }

    /// The key of that number, if it is still kept.
    pub(crate) fn last(&self, number: u64) -> Option<Box<[u8]>> {
        let kept = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        let at = number.checked_sub(kept.first + 1)?;
        kept.keys.get(usize::try_from(at).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let cursors = Cursors::default();
        let numbers: Vec<u64> = (0..MOST + 10).map(|n| cursors.keep(n.to_string().as_bytes())).collect();
        assert!(numbers[..10].iter().all(|number| cursors.last(*number).is_none()));
        assert_eq!(cursors.last(numbers[10]).as_deref(), Some(&b"10"[..]));
        assert!(cursors.last(0).is_none() && cursors.last(u64::MAX).is_none());
    }
}
