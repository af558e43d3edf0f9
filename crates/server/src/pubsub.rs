//! Publish and subscribe. Messages are for those that subscribe at this moment, and are lost with the server: nothing of this is in the store.
//!
//! ```text
//!   PUBLISH ─> who subscribes: a copy of the list ─> the inbox of each, under the channel's turn ─> wakes its task
//!                                                                                    task ─> takes some of the inbox ─> socket
//! ```
//!
//! A publisher writes to no socket and waits for no subscriber: a message is put into the inboxes of those that subscribe, once in memory for all of them. An inbox has a
//! most (`client-output-buffer-limit`), and a subscriber that reads so slowly that it is passed is cut off. Lists are locked while they are copied or changed, an inbox while something is put
//! or taken, and a turn while a message of its channels is put into all inboxes: so subscribers of a channel see its messages in one order, which is each publisher's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, RwLock};
use xxhash_rust::xxh3::xxh3_64;

use crate::client::{Client, Item, Message, Put, listens};
use crate::clock::now;
use crate::config::SubscriberLimit;
use crate::glob;
use crate::reply::Reply;
use crate::topic::{Name, Of};

/// Channels and patterns of one connection, and bytes of their names.
const SUBSCRIPTIONS: usize = 100_000;
const NAMES: usize = 16 << 20;
/// Bytes of a pattern, and of a channel that is compared with patterns.
const PATTERN: usize = 1 << 10;
/// What the patterns of one connection [cost](glob::cost) together at most, for each byte of a channel: every publisher compares them, and meanwhile its thread does nothing else.
const COST: usize = 128 << 10;
/// Channels take turns in so many groups.
const TURNS: usize = 64;

type Members = BTreeMap<u64, Arc<Client>>;

/// Which clients subscribe to what.
pub(crate) struct PubSub {
    topics: [RwLock<BTreeMap<Name, Members>>; 3],
    turns: [Mutex<()>; TURNS],
    /// Subscriptions of all connections: a publisher takes no lock while there are none.
    any: AtomicUsize,
    /// Subscribers that were cut off because they did not read.
    pub(crate) cut_off: AtomicU64,
}

impl Default for PubSub {
    fn default() -> Self {
        Self {
            topics: Default::default(),
            turns: std::array::from_fn(|_| Mutex::default()),
            any: AtomicUsize::new(0),
            cut_off: AtomicU64::new(0),
        }
    }
}

impl PubSub {
    /// Puts a message into the inboxes of all that subscribe; returns to how many subscriptions it went. The limit is asked for if there are any.
    pub(crate) fn publish(
        &self,
        to: Of,
        channel: &[u8],
        payload: &[u8],
        limit: impl FnOnce() -> SubscriberLimit,
    ) -> usize {
        let receivers = self.receivers(to, channel);
        if receivers.is_empty() {
            return 0;
        }
        let message = Arc::new(Message { to, channel: channel.into(), payload: payload.into() });
        let (limit, now) = (limit(), now());
        let _turn = self.turns[xxh3_64(channel) as usize % TURNS].lock();
        for (client, pattern) in &receivers {
            let item = Item::Message { message: message.clone(), pattern: pattern.clone() };
            match client.inbox.put(item, limit, now) {
                Put::First => client.wake(),
                Put::Behind => {}
                Put::TooMuch => self.cut_off(client),
            }
        }
        receivers.len()
    }

    fn receivers(&self, to: Of, channel: &[u8]) -> Vec<(Arc<Client>, Option<Name>)> {
        let mut receivers = Vec::new();
        if self.any.load(SeqCst) == 0 {
            return receivers;
        }
        let mut add = |of: Of, name: &[u8], pattern: Option<&Name>| {
            if let Some(members) = self.topics[of as usize].read().get(name) {
                receivers.extend(members.values().map(|client| (client.clone(), pattern.cloned())));
            }
        };
        add(to, channel, None);
        if to == Of::Channel && channel.len() <= PATTERN {
            // Patterns can take long to compare: not while no other client can subscribe.
            let patterns: Vec<Name> = self.topics[Of::Pattern as usize].read().keys().cloned().collect();
            let fitting = patterns.iter().filter(|pattern| glob::matches(pattern, channel));
            fitting.for_each(|pattern| add(Of::Pattern, pattern, Some(pattern)));
        }
        receivers
    }

    /// To how many subscriptions a message would go.
    pub(crate) fn would_hear(&self, to: Of, channel: &[u8]) -> usize {
        self.receivers(to, channel).len()
    }

    /// Ends a subscriber that does not read.
    pub(crate) fn cut_off(&self, client: &Client) {
        self.cut_off.fetch_add(1, Relaxed);
        tracing::warn!("{}: the subscriber does not take its messages, and is ended", client.addr);
        client.end();
    }

    /// Names that clients subscribe to.
    pub(crate) fn names(&self, of: Of, pattern: Option<&[u8]>) -> Vec<Name> {
        let mut names: Vec<Name> = self.topics[of as usize].read().keys().cloned().collect();
        names.retain(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)));
        names
    }

    pub(crate) fn count(&self, of: Of) -> usize {
        self.topics[of as usize].read().len()
    }

    /// How many subscribe to that.
    pub(crate) fn members(&self, of: Of, name: &[u8]) -> usize {
        self.topics[of as usize].read().get(name).map_or(0, BTreeMap::len)
    }

    fn add(&self, of: Of, name: &Name, client: &Arc<Client>) {
        self.topics[of as usize].write().entry(name.clone()).or_default().insert(client.id, client.clone());
        self.any.fetch_add(1, SeqCst);
    }

    fn remove(&self, of: Of, name: &[u8], client: &Client) {
        let mut topics = self.topics[of as usize].write();
        if let Some(members) = topics.get_mut(name) {
            members.remove(&client.id);
            if members.is_empty() {
                topics.remove(name);
            }
        }
        self.any.fetch_sub(1, SeqCst);
    }
}

/// What a connection subscribes to. Dropping it ends that.
pub(crate) struct Subscriptions {
    all: Arc<PubSub>,
    client: Arc<Client>,
    names: [BTreeSet<Name>; 3],
    bytes: usize,
    /// Of its patterns.
    cost: usize,
}

impl Subscriptions {
    pub(crate) fn new(all: Arc<PubSub>, client: Arc<Client>) -> Self {
        Self { all, client, names: Default::default(), bytes: 0, cost: 0 }
    }

    pub(crate) fn any(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    pub(crate) fn names(&self, of: Of) -> &BTreeSet<Name> {
        &self.names[of as usize]
    }

    /// The number that Redis tells: of channels and patterns together, or of those of the other kind.
    pub(crate) fn told(&self, of: Of) -> usize {
        match of {
            Of::Shard => self.names(of).len(),
            Of::Channel | Of::Pattern => self.names(Of::Channel).len() + self.names(Of::Pattern).len(),
        }
    }

    /// Why these would be too many.
    pub(crate) fn refusal<'a>(&self, of: Of, wanted: impl Iterator<Item = &'a [u8]>) -> Option<String> {
        let known = self.names(of);
        let new: BTreeSet<&[u8]> = wanted.filter(|name| !known.contains(*name)).collect();
        let subscribed: usize = self.names.iter().map(BTreeSet::len).sum();
        let bytes: usize = new.iter().map(|name| name.len()).sum();
        if subscribed + new.len() > SUBSCRIPTIONS || self.bytes + bytes > NAMES {
            return Some(
                "ERR too many subscriptions of one connection: at most 100000, and 16 MiB of names".to_owned(),
            );
        }
        if of != Of::Pattern {
            return None;
        }
        if new.iter().any(|pattern| pattern.len() > PATTERN) {
            return Some(format!("ERR a pattern has at most {PATTERN} bytes"));
        }
        let cost: usize = new.iter().map(|pattern| glob::cost(pattern)).sum();
        (self.cost + cost > COST).then(|| {
            "ERR the patterns of this connection would take too long to compare: use fewer, or less text behind a *"
                .to_owned()
        })
    }

    pub(crate) fn add(&mut self, of: Of, name: &[u8]) {
        if self.names(of).contains(name) {
            return;
        }
        if !self.any() {
            self.client.inbox.open(listens::SUBSCRIBES);
        }
        let name = Name::from(name);
        self.all.add(of, &name, &self.client);
        self.bytes += name.len();
        self.cost += if of == Of::Pattern { glob::cost(&name) } else { 0 };
        self.names[of as usize].insert(name);
        self.tell();
    }

    pub(crate) fn remove(&mut self, of: Of, name: &[u8]) {
        if self.names[of as usize].remove(name) {
            self.all.remove(of, name, &self.client);
            self.bytes -= name.len();
            self.cost -= if of == Of::Pattern { glob::cost(name) } else { 0 };
            self.tell();
        }
        if !self.any() {
            self.client.inbox.close(listens::SUBSCRIBES);
        }
    }

    pub(crate) fn clear(&mut self) {
        for of in Of::ALL {
            for name in std::mem::take(&mut self.names[of as usize]) {
                self.all.remove(of, &name, &self.client);
            }
        }
        (self.bytes, self.cost) = (0, 0);
        self.client.inbox.close(listens::SUBSCRIBES);
        self.tell();
    }

    fn tell(&self) {
        let subscribed = Of::ALL.map(|of| self.names(of).len());
        self.client.state.lock().subscribed = subscribed;
    }

    /// Writes what has come before this moment, until the reply has so many bytes; what may come before an answer, if it is `early`. What was published while it was
    /// unsubscribed is left out.
    pub(crate) fn hear(&self, reply: &mut Reply, most: usize, early: bool) {
        for _ in 0..self.client.inbox.len() {
            if reply.size() >= most {
                return;
            }
            let Some(item) = self.client.inbox.take(early) else { return };
            let known = match &item {
                Item::Message { pattern: Some(pattern), .. } => self.names(Of::Pattern).contains(pattern),
                Item::Message { message, .. } => self.names(message.to).contains(&*message.channel),
                Item::Line(_) => self.client.inbox.is(listens::MONITORS),
                // With version 2 an array that was not asked for would be taken for an answer, unless it is a message.
                Item::Changed(_) => reply.three || self.any(),
                Item::Broken(_) => reply.three,
            };
            if known {
                item.say(reply);
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        if self.any() {
            self.clear();
        }
    }
}
