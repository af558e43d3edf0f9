//! `ACL LOG`: what users were refused, the last ones. Alike refusals of one minute are one entry, which counts them.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

/// Refusals as far apart as this, in milliseconds, are one entry at most: Redis' own number.
const TOGETHER: u64 = 60_000;
/// Entries that are kept, at most.
pub(crate) const LEN_MAX: u64 = 10_000;
/// Bytes that are kept of a name.
const NAME: usize = 1 << 10;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Auth,
    Command,
    Key,
    Channel,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// Where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    Nothing,
    Multi,
    Script,
}

impl Within {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// Refusals that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) within: Within,
    /// The command, the key, or the channel; of a log-in its command as it was sent.
    pub(crate) object: Vec<u8>,
    pub(crate) user: String,
    /// The last of them, in milliseconds of Unix time, and its client as `CLIENT LIST` shows it.
    pub(crate) at: u64,
    pub(crate) client: String,
}

/// The log. It is not durable, as Redis' is not.
#[derive(Debug)]
pub(crate) struct AclLog {
    pub(crate) len_max: AtomicU64,
    /// The newest one first.
    kept: Mutex<VecDeque<Entry>>,
}

impl Default for AclLog {
    fn default() -> Self {
        Self { len_max: AtomicU64::new(128), kept: Mutex::default() }
    }
}

impl AclLog {
    pub(crate) fn push(&self, mut new: Entry) {
        new.object.truncate(NAME);
        if let Some((end, _)) = new.user.char_indices().nth(NAME) {
            new.user.truncate(end);
        }
        let mut kept = self.kept.lock();
        let alike = |old: &Entry| {
            (old.reason, old.within, &old.object, &old.user) == (new.reason, new.within, &new.object, &new.user)
                && new.at.abs_diff(old.at) <= TOGETHER
        };
        if let Some(old) = kept.iter().position(alike).and_then(|at| kept.remove(at)) {
            new.count += old.count;
        }
        kept.push_front(new);
        kept.truncate(self.len_max.load(Relaxed) as usize);
    }

    /// The newest ones, as many as there are.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        self.kept.lock().iter().take(count).cloned().collect()
    }

    pub(crate) fn reset(&self) {
        self.kept.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(object: &str, at: u64) -> Entry {
        let (user, client) = ("u".to_owned(), String::new());
        let (reason, within) = (Reason::Key, Within::Nothing);
        Entry { count: 1, reason, within, object: object.as_bytes().to_vec(), user, at, client }
    }

    #[test]
    fn alike_refusals_of_a_minute_are_one_entry() {
        let log = AclLog::default();
        for (object, at) in [("a", 0), ("b", 1), ("a", 60_000), ("a", 120_001)] {
            log.push(refused(object, at));
        }
        let told: Vec<_> = log.newest(9).into_iter().map(|one| (one.object[0], one.count, one.at)).collect();
        assert_eq!(told, [(b'a', 1, 120_001), (b'a', 2, 60_000), (b'b', 1, 1)]);
        log.len_max.store(1, Relaxed);
        log.push(refused(&"c".repeat(5000), 3));
        assert_eq!(log.newest(9).iter().map(|one| one.object.len()).collect::<Vec<_>>(), [NAME]);
        log.reset();
        assert!(log.newest(9).is_empty());
    }
}
