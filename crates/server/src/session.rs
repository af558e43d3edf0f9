//! One connection of Redis' protocol, without its socket: its user, which database it uses, what it has queued.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::acl_log::{Entry, Reason, Within};
use crate::client::{Client, State};
use crate::clock::now;
use crate::databases::Seen;
use crate::durability::Durability;
use crate::form::Form;
use crate::metrics::Recorder;
use crate::monitors::Monitoring;
use crate::pubsub::Subscriptions;
use crate::reply::Reply;
use crate::request::Batch;
use crate::shared::Shared;
use crate::topic::Of;
use crate::tracking::Tracking;
use crate::users::{Denied, User};

/// What a connection has.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) client: Arc<Client>,
    /// The number of its database, which [`databases`](crate::databases) leads to one of the store.
    pub(crate) db: u8,
    /// None if it has not authenticated, and must.
    pub(crate) user: Option<Arc<User>>,
    /// The number of the users of whom that is one.
    users: u64,
    pub(crate) multi: Option<Queued>,
    /// Keys, with the number of their database in front, and what they were.
    pub(crate) watched: BTreeMap<Vec<u8>, Seen>,
    /// Of the databases of these, by their numbers, how many swaps there were before.
    pub(crate) watched_swaps: BTreeMap<u8, u64>,
    /// The connection ends when its replies are written.
    pub(crate) closing: bool,
    pub(crate) replies: Replies,
    /// What it has asked for; what its user has if it has not.
    pub(crate) durability: Option<Durability>,
    /// Its request waits for an element, and has looked before; and the last look met a key of another type.
    pub(crate) waited: bool,
    pub(crate) mismatched: bool,
    /// What its request waits for in streams.
    pub(crate) since: crate::readers::Since,
    pub(crate) subscriptions: Subscriptions,
    /// Of the scripts in its transaction.
    pub(crate) script: crate::scripts::Running,
    /// Whether it monitors, and of which keys it is told.
    pub(crate) monitoring: Monitoring,
    pub(crate) tracking: Tracking,
    /// Its transaction has emptied a database.
    pub(crate) flushed: bool,
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
    /// The number of each request's command.
    pub(crate) commands: Vec<usize>,
    /// One was refused: so is `EXEC`.
    pub(crate) broken: bool,
    /// One may write.
    pub(crate) writes: bool,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, recorder: Arc<Recorder>, client: Arc<Client>) -> Self {
        let users = shared.users.number();
        let user = shared.users.whoever();
        client.known.store(user.is_some(), Relaxed);
        let replies = Replies::On;
        let subscriptions = Subscriptions::new(shared.pubsub.clone(), client.clone());
        let monitoring = Monitoring::new(shared.monitors.clone(), client.clone());
        let tracking = Tracking::new(shared.tracking.clone(), client.clone());
        Self {
            shared,
            recorder,
            client,
            db: 0,
            user,
            users,
            multi: None,
            watched: BTreeMap::new(),
            watched_swaps: BTreeMap::new(),
            closing: false,
            replies,
            durability: None,
            waited: false,
            mismatched: false,
            since: crate::readers::Since::default(),
            subscriptions,
            monitoring,
            tracking,
            flushed: false,
            script: crate::scripts::Running::default(),
            deferred: None,
        }
    }

    /// It is this user from now on.
    pub(crate) fn become_user(&mut self, user: Arc<User>) {
        self.client.state.lock().user = user.name.clone();
        self.client.known.store(true, Relaxed);
        self.user = Some(user);
        self.durability = None;
    }

    /// Keeps in `ACL LOG` that its user has no right to a command, which may be named by two words.
    pub(crate) fn note_denied(&self, denied: Denied<'_>, within: Within, command: &Form, second: Option<&str>) {
        let (reason, object) = match denied {
            Denied::Command => {
                let name = second.map_or(command.name.to_owned(), |second| format!("{}|{second}", command.name));
                (Reason::Command, name.into_bytes())
            }
            Denied::Key(key) => (Reason::Key, key.to_vec()),
            Denied::Channel(channel) => (Reason::Channel, channel.to_vec()),
        };
        let user = self.user.as_ref().map_or_else(String::new, |user| user.name.clone());
        self.note_refused(reason, within, object, user);
    }

    pub(crate) fn note_refused(&self, reason: Reason, within: Within, object: Vec<u8>, user: String) {
        let at = now();
        let client = self.client.line(at, self.shared.commands);
        self.shared.acl_log.push(Entry { count: 1, reason, within, object, user, at, client });
    }

    /// Takes the rules that hold now, if users have changed; a client whose user is gone or off is out.
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
    fn may_still_hear(&self) -> bool {
        let Some(user) = &self.user else { return false };
        Of::ALL.iter().all(|of| self.subscriptions.names(*of).iter().all(|name| user.may_hear(*of, name)))
    }

    /// Of version 2 a subscriber may do nothing else: messages and answers look alike.
    pub(crate) fn only_hears(&self, reply: &Reply) -> bool {
        !reply.three && self.subscriptions.any()
    }

    /// Whether there is, or may come, something that its client has not asked for: it needs a task.
    pub(crate) fn listens(&self) -> bool {
        self.subscriptions.any() || self.monitoring.is_on() || self.client.inbox.has_some()
    }

    /// Requests from now on are about this one, and clients are told so of it.
    pub(crate) fn use_database(&mut self, db: u8) {
        if self.db != db {
            self.db = db;
            self.client.state.lock().db = db;
        }
    }

    /// What an answer to a write of it means.
    pub(crate) fn durability(&self) -> Durability {
        let asked = self.durability.or(self.user.as_ref().map(|user| user.durability)).unwrap_or_default();
        if asked == Durability::Quorum { asked } else { asked.max(self.shared.settings().least_durability) }
    }

    /// Publishes what a transaction has, which is durable now.
    pub(crate) fn publish_deferred(&mut self) {
        for one in self.deferred.take().unwrap_or_default() {
            self.shared.publish(one.to, &one.channel, &one.payload);
        }
    }

    /// As it was when the connection began.
    pub(crate) fn reset(&mut self) {
        self.db = 0;
        self.multi = None;
        self.watched.clear();
        self.subscriptions.clear();
        self.monitoring.end();
        self.tracking.end();
        if self.replies != Replies::Skip {
            self.replies = Replies::On;
        }
        self.durability = None;
        self.user = self.shared.users.whoever();
        self.client.known.store(self.user.is_some(), Relaxed);
        let mut state = self.client.state.lock();
        *state = State { user: "default".to_owned(), ..State::default() };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of a client that is not connected.
    pub(crate) fn session(shared: &Arc<Shared>) -> Session {
        let client = Client::new(1, "a:1".to_owned(), String::new(), 0);
        Session::new(shared.clone(), shared.recorders[0].clone(), client)
    }
}
