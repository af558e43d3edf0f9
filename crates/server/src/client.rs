//! What others may know of a connection, and what is yet to be sent to it.

mod inbox;
mod wait;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Waker};

use parking_lot::Mutex;

pub(crate) use self::inbox::{Inbox, Item, Message, Put, listens};
use self::listens::{MONITORS, SUBSCRIBES};
pub(crate) use self::wait::{Blocked, Unblock, Wait};
use crate::form::Catalogue;

/// What others may know of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) addr: String,
    pub(crate) laddr: String,
    /// When it came, in milliseconds of Unix time.
    pub(crate) since: u64,
    pub(crate) last_active: AtomicU64,
    /// The number of its last command.
    pub(crate) last_command: AtomicU64,
    pub(crate) state: Mutex<State>,
    /// It has authenticated, or need not.
    pub(crate) known: AtomicBool,
    /// A request of it is being answered, which can take as long as the client has asked for.
    at_work: AtomicBool,
    /// A request of it waits for others, or is held back.
    pub(crate) blocked: AtomicBool,
    /// When a reply did not go out at once; 0 if all have.
    pub(crate) writing_since: AtomicU64,
    /// Messages that are yet to be sent to it.
    pub(crate) inbox: Inbox,
    /// The client to which its invalidations were to go is not there any more.
    pub(crate) redirection_broken: AtomicBool,
    /// Whether it is blocked, and whether that is to end.
    pub(crate) wait: Wait,
    /// It is to end.
    killed: AtomicBool,
    /// Wakes the connection's task.
    waker: Mutex<Option<Waker>>,
    waker_kept: AtomicBool,
}

/// What seldom changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) db: u8,
    pub(crate) three: bool,
    pub(crate) queued: Option<usize>,
    pub(crate) watched: usize,
    /// Channels, patterns, and channels of shards.
    pub(crate) subscribed: [usize; 3],
    pub(crate) library: String,
    pub(crate) library_version: String,
    /// It is told of keys that have changed.
    pub(crate) tracking: Option<Tracking>,
}

/// What `CLIENT LIST` tells of a client that is told of keys that have changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracking {
    pub(crate) broadcast: bool,
    /// The client to which that goes; 0 if it goes to itself.
    pub(crate) redirect: u64,
}

impl Client {
    pub(crate) fn new(id: u64, addr: String, laddr: String, now: u64) -> Arc<Self> {
        let state = State { user: "default".to_owned(), ..State::default() };
        Arc::new(Self {
            id,
            addr,
            laddr,
            since: now,
            last_active: now.into(),
            last_command: u64::MAX.into(),
            state: Mutex::new(state),
            known: false.into(),
            at_work: false.into(),
            blocked: false.into(),
            writing_since: 0.into(),
            inbox: Inbox::default(),
            redirection_broken: false.into(),
            wait: Wait::default(),
            killed: false.into(),
            waker: Mutex::default(),
            waker_kept: false.into(),
        })
    }

    pub(crate) fn end(&self) {
        self.killed.store(true, SeqCst);
        self.wake();
    }

    /// Its task looks whether it is to end, and whether there are messages.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// Whether it is to end. If not, its task is woken when it is: a task has one waker, which is kept until it is [forgotten](Self::forget_waker).
    pub(crate) fn is_killed(&self, cx: &Context<'_>) -> bool {
        if !self.waker_kept.load(Relaxed) {
            self.keep_waker(cx.waker());
        }
        self.must_end()
    }

    /// What is told from now on when it is to end.
    pub(crate) fn keep_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
        self.waker_kept.store(true, Relaxed);
    }

    /// The next task that [asks](Self::is_killed) is the one that is told.
    pub(crate) fn forget_waker(&self) {
        self.waker_kept.store(false, Relaxed);
    }

    /// A request of it is being answered from now on.
    pub(crate) fn begins_work(&self) {
        self.at_work.store(true, Relaxed);
    }

    /// The request is answered: from now on it is the client that is waited for.
    pub(crate) fn has_worked(&self, now: u64) {
        self.last_active.store(now, Relaxed);
        self.at_work.store(false, Relaxed);
    }

    /// Whether it has been silent longer than `idle` (milliseconds; 0: for ever), has not taken replies for `wait_limit`, or has not authenticated.
    pub(crate) fn has_waited_too_long(&self, now: u64, idle: u64, wait_limit: u64) -> bool {
        let since = |moment: u64| now.saturating_sub(moment);
        let writing = self.writing_since.load(Relaxed);
        let stuck = writing != 0 && since(writing) > wait_limit;
        // A subscriber is to listen.
        let rests = writing == 0 && !self.at_work.load(Relaxed) && !self.inbox.is(SUBSCRIBES | MONITORS);
        let silent = idle != 0 && rests && since(self.last_active.load(Relaxed)) > idle;
        let stranger = !self.known.load(Relaxed) && since(self.since) > wait_limit;
        stuck || silent || stranger
    }

    pub(crate) fn must_end(&self) -> bool {
        self.killed.load(SeqCst)
    }

    /// A line of `CLIENT LIST`; its last command is one of these.
    pub(crate) fn line(&self, now: u64, commands: &Catalogue) -> String {
        let state = self.state.lock().clone();
        let last = usize::try_from(self.last_command.load(Relaxed)).ok().and_then(|at| commands.get(at));
        let idle = now.saturating_sub(self.last_active.load(Relaxed)) / 1000;
        let tracking = state.tracking;
        let flags: String = [
            (self.inbox.is(MONITORS), 'O'),
            (self.inbox.is(SUBSCRIBES), 'P'),
            (state.queued.is_some(), 'x'),
            (self.blocked.load(Relaxed), 'b'),
            (tracking.is_some(), 't'),
            (tracking.is_some() && self.redirection_broken.load(Relaxed), 'R'),
            (tracking.is_some_and(|tracking| tracking.broadcast), 'B'),
        ]
        .into_iter()
        .filter_map(|(is_so, letter)| is_so.then_some(letter))
        .collect();
        let flags = if flags.is_empty() { "N" } else { &flags };
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={idle} flags={} db={} sub={} psub={} ssub={} multi={} watch={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem=0 events=r cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.laddr,
            state.name,
            now.saturating_sub(self.since) / 1000,
            flags,
            state.db,
            state.subscribed[0],
            state.subscribed[1],
            state.subscribed[2],
            state.queued.map_or(-1, |count| count as i64),
            state.watched,
            self.inbox.bytes(),
            last.map_or("NULL", |command| command.name),
            state.user,
            tracking.map_or(-1, |tracking| tracking.redirect as i64),
            if state.three { 3 } else { 2 },
            state.library,
            state.library_version,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_waited_for_is_never_silent() {
        const IDLE: u64 = 1000;
        let client = Client::new(1, String::new(), String::new(), 0);
        client.known.store(true, Relaxed);
        let goes = |at| client.has_waited_too_long(at, IDLE, 5000);
        assert!(!goes(IDLE) && goes(IDLE + 1));
        // It waits for an element, longer than it may be silent, and is silent from then on.
        client.begins_work();
        assert!(!goes(9000));
        client.has_worked(9000);
        assert!(!goes(9000 + IDLE) && goes(9001 + IDLE));
        // It takes its reply slowly: as long as it takes some, it stays.
        client.writing_since.store(20_000, Relaxed);
        assert!(!goes(25_000) && goes(25_001));
        // It subscribes: it is not to say anything.
        client.inbox.open(SUBSCRIBES);
        client.writing_since.store(0, Relaxed);
        assert!(!client.has_waited_too_long(1 << 40, IDLE, 5000));
        // Nothing ends a silent client, if nothing is said about it.
        client.writing_since.store(0, Relaxed);
        assert!(!client.has_waited_too_long(1 << 40, 0, 5000));
    }

    #[test]
    fn who_does_not_say_who_it_is_goes() {
        let client = Client::new(1, String::new(), String::new(), 0);
        assert!(!client.has_waited_too_long(5000, 0, 5000) && client.has_waited_too_long(5001, 0, 5000));
    }
}
