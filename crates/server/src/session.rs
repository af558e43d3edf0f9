//! One connection of Redis' protocol, without its socket: who it is, which database it uses, what it has queued.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Waker};

use parking_lot::Mutex;

use crate::commands::{COMMANDS, Command};
use crate::metrics::Recorder;
use crate::pubsub::{Inbox, Of, Subscriptions};
use crate::reply::Reply;
use crate::request::Batch;
use crate::shared::Shared;
use crate::users::User;

/// What a connection has.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) client: Arc<Client>,
    pub(crate) db: u8,
    /// None if it has not said who it is, and must.
    pub(crate) user: Option<Arc<User>>,
    /// The number of the users of whom that is one.
    users: u64,
    pub(crate) multi: Option<Queued>,
    /// Keys as they are in the store, and the versions they had.
    pub(crate) watched: BTreeMap<Vec<u8>, Option<u64>>,
    /// The connection ends when its replies are written.
    pub(crate) closing: bool,
    pub(crate) replies: Replies,
    /// Its request waits for an element, and has looked before; and the last look met a key of another type.
    pub(crate) waited: bool,
    pub(crate) mismatched: bool,
    /// What its request waits for in streams.
    pub(crate) since: crate::readers::Since,
    pub(crate) subscriptions: Subscriptions,
    /// Of the scripts in its transaction.
    pub(crate) script: crate::scripts::Running,
    /// What is published between `MULTI` and `EXEC`, while that runs: it goes out when all is durable.
    pub(crate) deferred: Option<Vec<Publication>>,
}

/// A message that is yet to be published.
pub(crate) struct Publication {
    pub(crate) to: Of,
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// What `CLIENT REPLY` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not from the next request on: that of now has no answer either.
    SkipNext,
    /// Not to this request.
    Skip,
}

/// Between `MULTI` and `EXEC`.
#[derive(Default)]
pub(crate) struct Queued {
    pub(crate) batch: Batch,
    pub(crate) commands: Vec<Option<(usize, &'static Command)>>,
    /// One was refused: so is `EXEC`.
    pub(crate) broken: bool,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, recorder: Arc<Recorder>, client: Arc<Client>) -> Self {
        let users = shared.users.number();
        let user = shared.users.whoever();
        client.known.store(user.is_some(), Relaxed);
        let replies = Replies::On;
        let subscriptions = Subscriptions::new(shared.clone(), client.clone());
        Self {
            shared,
            recorder,
            client,
            db: 0,
            user,
            users,
            multi: None,
            watched: BTreeMap::new(),
            closing: false,
            replies,
            waited: false,
            mismatched: false,
            since: crate::readers::Since::default(),
            subscriptions,
            script: crate::scripts::Running::default(),
            deferred: None,
        }
    }

    /// Who it says it is from now on.
    pub(crate) fn become_user(&mut self, user: Arc<User>) {
        self.client.state.lock().user = user.name.clone();
        self.client.known.store(true, Relaxed);
        self.user = Some(user);
    }

    /// Takes the rules that hold now, if users have changed; whoever is none any more is out.
    pub(crate) fn renew(&mut self) {
        let number = self.shared.users.number();
        if number == self.users {
            return;
        }
        self.users = number;
        if let Some(user) = &self.user {
            self.user = self.shared.users.get(&user.name).filter(|user| user.on);
            self.closing |= self.user.is_none() || !self.may_still_hear();
        }
    }

    /// Whether all it subscribes to is still allowed.
    pub(crate) fn may_still_hear(&self) -> bool {
        let Some(user) = &self.user else { return false };
        Of::ALL.iter().all(|of| self.subscriptions.names(*of).iter().all(|name| user.may_hear(*of, name)))
    }

    /// Of version 2 who subscribes may do nothing else: messages and answers look alike.
    pub(crate) fn only_hears(&self, reply: &Reply) -> bool {
        !reply.three && self.subscriptions.any()
    }

    /// Publishes what a transaction has, which is durable now.
    pub(crate) fn publish_deferred(&mut self) {
        for one in self.deferred.take().unwrap_or_default() {
            self.shared.pubsub.publish(&self.shared, one.to, &one.channel, &one.payload);
        }
    }

    /// As it was when the connection began.
    pub(crate) fn reset(&mut self) {
        self.db = 0;
        self.multi = None;
        self.watched.clear();
        self.subscriptions.clear();
        if self.replies != Replies::Skip {
            self.replies = Replies::On;
        }
        self.user = self.shared.users.whoever();
        self.client.known.store(self.user.is_some(), Relaxed);
        let mut state = self.client.state.lock();
        *state = State { user: "default".to_owned(), ..State::default() };
    }
}

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
    /// It has said who it is, or need not.
    pub(crate) known: AtomicBool,
    /// A request of it is being answered, which can take as long as the client has asked for.
    at_work: AtomicBool,
    /// When a reply did not go out at once; 0 if all have.
    pub(crate) writing_since: AtomicU64,
    /// Messages that are yet to be sent to it.
    pub(crate) inbox: Inbox,
    /// Somebody wants it to end.
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
            writing_since: 0.into(),
            inbox: Inbox::default(),
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

    /// Who is told from now on when it is to end.
    pub(crate) fn keep_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
        self.waker_kept.store(true, Relaxed);
    }

    /// The next who [asks](Self::is_killed) is who is told.
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

    /// Whether it has been silent longer than `idle` (milliseconds; 0: for ever), has not taken replies for `wait_limit`, or has not said who it is.
    pub(crate) fn has_waited_too_long(&self, now: u64, idle: u64, wait_limit: u64) -> bool {
        let since = |moment: u64| now.saturating_sub(moment);
        let writing = self.writing_since.load(Relaxed);
        let stuck = writing != 0 && since(writing) > wait_limit;
        // Who subscribes is to listen.
        let rests = writing == 0 && !self.at_work.load(Relaxed) && !self.inbox.is_open();
        let silent = idle != 0 && rests && since(self.last_active.load(Relaxed)) > idle;
        let stranger = !self.known.load(Relaxed) && since(self.since) > wait_limit;
        stuck || silent || stranger
    }

    pub(crate) fn must_end(&self) -> bool {
        self.killed.load(SeqCst)
    }

    /// A line of `CLIENT LIST`.
    pub(crate) fn line(&self, now: u64) -> String {
        let state = self.state.lock().clone();
        let last = usize::try_from(self.last_command.load(Relaxed)).ok().and_then(|at| COMMANDS.get(at));
        let idle = now.saturating_sub(self.last_active.load(Relaxed)) / 1000;
        let flags = match (self.inbox.is_open(), state.queued.is_some()) {
            (true, true) => "Px",
            (true, false) => "P",
            (false, true) => "x",
            (false, false) => "N",
        };
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={idle} flags={} db={} sub={} psub={} ssub={} multi={} watch={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem=0 events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
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
        client.inbox.open();
        client.writing_since.store(0, Relaxed);
        assert!(!client.has_waited_too_long(1 << 40, IDLE, 5000));
        // Nothing ends who is silent, if nothing is said about it.
        client.writing_since.store(0, Relaxed);
        assert!(!client.has_waited_too_long(1 << 40, 0, 5000));
    }

    #[test]
    fn who_does_not_say_who_it_is_goes() {
        let client = Client::new(1, String::new(), String::new(), 0);
        assert!(!client.has_waited_too_long(5000, 0, 5000) && client.has_waited_too_long(5001, 0, 5000));
    }
}
