//! Scripts that are known by their digests, those that run long, and what is known of those in a transaction.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use crate::clock::Watch;
use crate::request::Arguments;
use crate::sha::{Sha, unhex};

/// Scripts that are known by their digests, and their bytes.
const SCRIPTS: usize = 10_000;
pub(crate) const BYTES: usize = 64 << 20;

/// What a server knows of scripts. It is lost with it.
#[derive(Default)]
pub(crate) struct Scripts {
    known: RwLock<Known>,
    long: Mutex<Vec<Weak<Long>>>,
    /// How many of these there are.
    longs: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Known {
    by_sha: BTreeMap<Sha, Script>,
    bytes: usize,
    /// In the order in which they came: those that were only run go first.
    evaluated: VecDeque<Sha>,
    loaded: VecDeque<Sha>,
}

struct Script {
    body: Arc<[u8]>,
    loaded: bool,
}

impl Known {
    fn add(&mut self, sha: Sha, body: &[u8], loaded: bool) {
        if let Some(known) = self.by_sha.get_mut(&sha) {
            known.loaded |= loaded;
            return;
        }
        if body.len() > BYTES {
            return;
        }
        self.bytes += body.len();
        self.by_sha.insert(sha, Script { body: body.into(), loaded });
        if loaded {
            self.loaded.push_back(sha)
        } else {
            self.evaluated.push_back(sha)
        }
        while self.by_sha.len() > SCRIPTS || self.bytes > BYTES {
            let Some(oldest) = self.evaluated.pop_front() else {
                let Some(oldest) = self.loaded.pop_front() else { return };
                self.forget(&oldest);
                continue;
            };
            if self.by_sha.get(&oldest).is_some_and(|script| script.loaded) {
                self.loaded.push_back(oldest);
            } else {
                self.forget(&oldest);
            }
        }
    }

    fn forget(&mut self, sha: &Sha) {
        if let Some(script) = self.by_sha.remove(sha) {
            self.bytes -= script.body.len();
        }
    }
}

impl Scripts {
    pub(crate) fn find(&self, sha: &Sha) -> Option<Arc<[u8]>> {
        self.known.read().by_sha.get(sha).map(|script| script.body.clone())
    }

    pub(crate) fn add(&self, sha: Sha, body: &[u8], loaded: bool) {
        let known = self.known.read().by_sha.get(&sha).is_some_and(|script| script.loaded || !loaded);
        if !known {
            self.known.write().add(sha, body, loaded);
        }
    }

    pub(crate) fn has(&self, sha: &[u8]) -> bool {
        unhex(sha).is_some_and(|sha| self.known.read().by_sha.contains_key(&sha))
    }

    pub(crate) fn flush(&self) {
        *self.known.write() = Known::default();
    }

    /// Scripts, and their bytes.
    pub(crate) fn count(&self) -> (usize, usize) {
        let known = self.known.read();
        (known.by_sha.len(), known.bytes)
    }

    /// One that runs long begins.
    pub(crate) fn begin_long(&self, limit: std::time::Duration) -> Arc<Long> {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.longs.fetch_add(1, SeqCst);
        let (waited, end, now) = (0.into(), 0.into(), Mutex::new(None));
        let long = Arc::new(Long { began: Watch::start(), limit, waited, end, now, longs: self.longs.clone() });
        let mut all = self.long.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&long));
        long
    }

    /// Whether any runs long: then others may meet conflicts that last, and must not wait on a thread that serves.
    #[inline]
    pub(crate) fn any_long(&self) -> bool {
        self.longs() > 0
    }

    pub(crate) fn longs(&self) -> usize {
        self.longs.load(SeqCst)
    }

    /// Ends scripts that run long, or functions; or says why there are none of those.
    pub(crate) fn kill(&self, functions: bool) -> Result<(), &'static str> {
        let all = self.all_long();
        // One that is about to begin is ended as a script.
        let is_one = |one: &&Arc<Long>| one.now.lock().as_ref().is_some_and(|now| now.function) == functions;
        let these = all.iter().filter(is_one);
        let count = these.map(|one| one.end.store(End::Killed as u8, SeqCst)).count();
        match (count, all.is_empty(), functions) {
            (0, true, _) => Err("NOTBUSY No scripts in execution right now."),
            (0, false, true) => {
                Err("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
            }
            (0, false, false) => {
                Err("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.")
            }
            _ => Ok(()),
        }
    }

    fn all_long(&self) -> Vec<Arc<Long>> {
        if self.any_long() { self.long.lock().iter().filter_map(Weak::upgrade).collect() } else { Vec::new() }
    }

    /// The function that has run longest, of those that run long, and its milliseconds.
    pub(crate) fn function_that_runs(&self) -> Option<(Now, u64)> {
        let all = self.all_long();
        let functions = all.iter().filter_map(|one| {
            let now = one.now.lock().clone().filter(|now| now.function)?;
            Some((now, one.began.nanos() / 1_000_000))
        });
        functions.max_by_key(|(_, ms)| *ms)
    }

    /// The same, because others wait for what these hold. One that was killed stays so: a client has been told.
    pub(crate) fn end_long(&self, end: End) -> bool {
        let all = self.all_long();
        for one in &all {
            let unless_killed = |now| (now != End::Killed as u8).then_some(end as u8);
            let _ = one.end.fetch_update(SeqCst, SeqCst, unless_killed);
        }
        !all.is_empty()
    }
}

/// Why one that runs long is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is asked for.
    Killed = 1,
    /// Something is removed in steps, beside which no transaction runs.
    Steps = 2,
    /// The store is full; it gets no space back that a transaction looks at.
    Full = 3,
}

/// What runs long at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Or a script.
    function: bool,
    pub(crate) name: String,
    /// The request, as far as that is told.
    pub(crate) command: Vec<Vec<u8>>,
}

/// Arguments that are told of a request, and bytes of each.
const TOLD: usize = 32;
const TOLD_BYTES: usize = 128;

impl Now {
    pub(crate) fn new(function: bool, name: &str, args: &Arguments<'_>) -> Self {
        let command = args.from(0).take(TOLD).map(|arg| arg[..arg.len().min(TOLD_BYTES)].to_vec()).collect();
        Self { function, name: name.to_owned(), command }
    }
}

/// A script that runs long, or a transaction with scripts.
#[derive(Debug)]
pub(crate) struct Long {
    pub(crate) began: Watch,
    /// Nanoseconds, without those that it has waited.
    limit: u64,
    waited: AtomicU64,
    /// An [`End`]; 0 if it may go on.
    end: AtomicU8,
    /// Which of the transaction's; none before the first.
    now: Mutex<Option<Now>>,
    longs: Arc<AtomicUsize>,
}

impl Long {
    pub(crate) fn runs(&self, now: impl FnOnce() -> Now) {
        *self.now.lock() = Some(now());
    }

    /// It is inside the gate, for which it has waited so many nanoseconds: these do not count. It was not inside when it was asked to leave; a thread that closes the gate from now on repeats what it asks.
    pub(crate) fn has_entered(&self, waited: u64) {
        self.has_waited(waited);
        let _ = self.end.compare_exchange(End::Steps as u8, 0, SeqCst, SeqCst);
    }

    /// So many nanoseconds more do not count.
    pub(crate) fn has_waited(&self, nanos: u64) {
        self.waited.fetch_add(nanos, SeqCst);
    }

    /// Nanoseconds from its beginning on that it may run.
    pub(crate) fn budget(&self) -> u64 {
        self.limit.saturating_add(self.waited.load(SeqCst))
    }

    pub(crate) fn end(&self) -> Option<End> {
        match self.end.load(SeqCst) {
            0 => None,
            1 => Some(End::Killed),
            2 => Some(End::Steps),
            _ => Some(End::Full),
        }
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.longs.fetch_sub(1, SeqCst);
    }
}

/// What a connection knows of the scripts in its transaction.
#[derive(Default)]
pub(crate) struct Running {
    /// They may take long.
    pub(crate) long: Option<Arc<Long>>,
    /// They take longer than they may where they run.
    pub(crate) leaves: bool,
    /// When the first began.
    pub(crate) began: Option<Watch>,
    /// Bytes that they have passed on: `PASSED` at most.
    pub(crate) passed: usize,
    /// Nanoseconds that they have waited for locks.
    pub(crate) waited: u64,
    /// Commands of theirs that were refused.
    pub(crate) refused: u64,
    /// Keys as they are in the store, at which a client may wait.
    pub(crate) woken: BTreeSet<Vec<u8>>,
    /// The number of the transaction's request that runs; and lines about commands of scripts, with the numbers of these, for clients that monitor.
    pub(crate) request: usize,
    pub(crate) lines: Vec<(usize, Vec<u8>)>,
    /// Bytes of these, and of those that there were too many of.
    pub(crate) lines_bytes: usize,
}

impl Running {
    /// So many nanoseconds more are no time of a script.
    pub(crate) fn has_waited(&mut self, nanos: u64) {
        self.waited += nanos;
        if let Some(long) = &self.long {
            long.has_waited(nanos);
        }
    }

    /// The transaction begins, or begins again.
    pub(crate) fn begin(&mut self) {
        (self.leaves, self.began, self.passed, self.waited) = (false, None, 0, 0);
        (self.refused, self.request, self.lines_bytes) = (0, 0, 0);
        if !self.lines.is_empty() {
            self.lines = Vec::new();
        }
        if !self.woken.is_empty() {
            self.woken.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_at_the_gate_is_not_that_of_a_script() {
        let scripts = Scripts::default();
        let long = scripts.begin_long(std::time::Duration::from_millis(5));
        assert_eq!(long.budget(), 5_000_000);
        // The gate closes while it waits there.
        scripts.end_long(End::Steps);
        assert_eq!(long.end(), Some(End::Steps));
        long.has_entered(70_000_000);
        assert_eq!((long.end(), long.budget()), (None, 75_000_000));
        // Inside it is asked again. What else it was told stays so.
        for end in [End::Full, End::Killed] {
            scripts.end_long(end);
            long.has_entered(0);
            assert_eq!(long.end(), Some(end));
        }
        scripts.end_long(End::Steps);
        long.has_entered(0);
        assert_eq!(long.end(), Some(End::Killed), "a client was told so");
    }
}
