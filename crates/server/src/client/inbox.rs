//! What is yet to be sent to a subscriber.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU8};

use parking_lot::Mutex;

use crate::config::SubscriberLimit;
use crate::reply::Reply;
use crate::topic::{Name, Of};

/// Bytes that are kept for a subscriber, whatever is allowed.
const MOST: usize = 512 << 20;
/// What a message takes besides its text.
const OVERHEAD: usize = 64;
/// Messages that an empty inbox has room for.
const KEPT: usize = 64;

pub(crate) struct Message {
    pub(crate) to: Of,
    pub(crate) channel: Arc<[u8]>,
    pub(crate) payload: Arc<[u8]>,
}

/// Why there is something to be sent that was not asked for.
pub(crate) mod listens {
    /// The client subscribes.
    pub(crate) const SUBSCRIBES: u8 = 1 << 0;
    /// It monitors.
    pub(crate) const MONITORS: u8 = 1 << 1;
    /// It is told of keys that have changed.
    pub(crate) const TRACKS: u8 = 1 << 2;
}

/// Where invalidations go to a subscriber with version 2 of the protocol.
const INVALIDATE: &[u8] = b"__redis__:invalidate";

pub(crate) enum Item {
    Message {
        message: Arc<Message>,
        /// The pattern that brings it, if it is not its channel.
        pattern: Option<Name>,
    },
    /// A line of `MONITOR`, with its end.
    Line(Arc<[u8]>),
    /// Keys that have changed; all there are, if it names none.
    Changed(Option<Arc<[Name]>>),
    /// The client of this id, to which invalidations were to go, is not there any more.
    Broken(u64),
}

impl Item {
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Message { message, pattern } => {
                message.channel.len() + message.payload.len() + pattern.as_ref().map_or(0, |pattern| pattern.len())
            }
            Self::Line(line) => line.len(),
            Self::Changed(keys) => keys.iter().flat_map(|keys| keys.iter()).map(|key| key.len() + OVERHEAD).sum(),
            Self::Broken(_) => 0,
        };
        text + OVERHEAD
    }

    /// Whether it must not come before the answer to a request that runs. An invalidation in front of the value that it is about would be taken for one of the value before: the
    /// client would keep what it reads then, for good.
    fn is_late(&self) -> bool {
        !matches!(self, Self::Message { .. })
    }

    pub(crate) fn say(&self, reply: &mut Reply) {
        match self {
            Self::Message { message, pattern } => say_message(message, pattern.as_ref(), reply),
            Self::Line(line) => reply.raw(line),
            Self::Changed(keys) => {
                if reply.three {
                    reply.push(2);
                    reply.bulk(b"invalidate");
                } else {
                    reply.push(3);
                    reply.bulk(b"message");
                    reply.bulk(INVALIDATE);
                }
                match keys {
                    None => reply.null(),
                    Some(keys) => {
                        reply.array(keys.len());
                        keys.iter().for_each(|key| reply.bulk(key));
                    }
                }
            }
            Self::Broken(id) => {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.int(*id as i64);
            }
        }
    }
}

fn say_message(message: &Message, pattern: Option<&Name>, reply: &mut Reply) {
    let Message { to, channel, payload } = message;
    reply.push(if pattern.is_some() { 4 } else { 3 });
    match pattern {
        Some(pattern) => {
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
        None => reply.bulk(if *to == Of::Shard { b"smessage" } else { b"message" }),
    }
    reply.shared_bulk(channel);
    reply.shared_bulk(payload);
}

/// What is yet to be sent to a subscriber.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Why its client [`listens`]; nothing once it is cut off.
    open: AtomicU8,
    /// Something was taken, and not yet written.
    has_taken: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Those that must not come before an answer.
    late: VecDeque<Item>,
    /// Bytes of these, and of those that were taken and are not written.
    bytes: usize,
    taken: usize,
    /// Since when it has more than the lower limit, in milliseconds of Unix time; 0 if it has not.
    over_since: u64,
}

pub(crate) enum Put {
    /// The subscriber does not know that there is something.
    First,
    Behind,
    /// Nothing more is kept.
    TooMuch,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(crate) fn put(&self, item: Item, limit: SubscriberLimit, now: u64) -> Put {
        let mut queue = self.queue.lock();
        // Looked at under the lock: the thread that closes it empties it behind that.
        if !self.is_open() {
            return Put::Behind;
        }
        queue.bytes += item.bytes();
        let queued = if item.is_late() { &mut queue.late } else { &mut queue.items };
        let first = queued.is_empty();
        queued.push_back(item);
        if queue.is_too_full(limit, now) {
            self.open.store(0, SeqCst);
            queue.clear();
            return Put::TooMuch;
        }
        if first { Put::First } else { Put::Behind }
    }

    /// What comes is kept from now on.
    pub(crate) fn open(&self, why: u8) {
        self.open.fetch_or(why, SeqCst);
    }

    /// Whether its client listens, for one of these reasons.
    pub(crate) fn is(&self, why: u8) -> bool {
        self.open.load(SeqCst) & why != 0
    }

    /// Whether its subscriber has had too much to read for too long: it is told so once, and nothing more is kept.
    pub(crate) fn closes_if_too_full(&self, limit: SubscriberLimit, now: u64) -> bool {
        let mut queue = self.queue.lock();
        let too_full = self.is_open() && queue.is_too_full(limit, now);
        if too_full {
            self.open.store(0, SeqCst);
            queue.clear();
        }
        too_full
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(SeqCst) != 0
    }

    pub(crate) fn has_some(&self) -> bool {
        self.is_open() && self.queue.lock().len() > 0
    }

    /// The same of what may come before an answer.
    pub(crate) fn has_messages(&self) -> bool {
        self.is(listens::SUBSCRIBES) && !self.queue.lock().items.is_empty()
    }

    /// Bytes that are yet to be written.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// What is yet to be taken.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// The next; of those that may come before an answer, if it is `early`.
    pub(crate) fn take(&self, early: bool) -> Option<Item> {
        let mut queue = self.queue.lock();
        let item = match queue.items.pop_front() {
            None if !early => queue.late.pop_front(),
            item => item,
        }?;
        queue.taken += item.bytes();
        self.has_taken.store(true, SeqCst);
        if queue.len() == 0 {
            queue.items.shrink_to(KEPT);
            queue.late.shrink_to(KEPT);
        }
        Some(item)
    }

    /// All that was taken is written.
    pub(crate) fn written(&self) {
        // Nearly all connections subscribe to nothing: no lock for them.
        if self.has_taken.load(SeqCst) {
            let mut queue = self.queue.lock();
            self.has_taken.store(false, SeqCst);
            queue.bytes = queue.bytes.saturating_sub(std::mem::take(&mut queue.taken));
        }
    }

    /// Nothing more is kept, if there is no other reason for it.
    pub(crate) fn close(&self, why: u8) {
        if self.open.fetch_and(!why, SeqCst) & !why == 0 {
            self.queue.lock().clear();
        }
    }
}

impl Queue {
    fn len(&self) -> usize {
        self.items.len() + self.late.len()
    }

    fn is_too_full(&mut self, limit: SubscriberLimit, now: u64) -> bool {
        if limit.soft_bytes == 0 || self.bytes <= limit.soft_bytes {
            self.over_since = 0;
        } else if self.over_since == 0 {
            self.over_since = now.max(1);
        }
        let too_long = self.over_since != 0 && now.saturating_sub(self.over_since) > limit.soft_ms();
        let hard = if limit.hard_bytes == 0 { MOST } else { limit.hard_bytes.min(MOST) };
        self.bytes > hard || too_long
    }

    fn clear(&mut self) {
        (self.items, self.late) = (VecDeque::new(), VecDeque::new());
        self.bytes = self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SubscriberLimit = SubscriberLimit { hard_bytes: 10_000, soft_bytes: 1000, soft_seconds: 2 };

    fn put(inbox: &Inbox, bytes: usize, now: u64) -> Put {
        let message = Message { to: Of::Channel, channel: Arc::new([]), payload: vec![0; bytes - OVERHEAD].into() };
        inbox.put(Item::Message { message: message.into(), pattern: None }, LIMIT, now)
    }

    #[test]
    fn a_large_message_is_in_memory_once() {
        let payload: Arc<[u8]> = vec![b'x'; 1 << 20].into();
        let message = Arc::new(Message { to: Of::Channel, channel: b"news"[..].into(), payload: payload.clone() });
        let mut replies: Vec<Reply> = (0..40).map(|_| Reply::new()).collect();
        for reply in &mut replies {
            Item::Message { message: message.clone(), pattern: Some(b"n*"[..].into()) }.say(reply);
        }
        assert!(replies.iter().all(|reply| reply.len() < 100 && reply.size() > payload.len()));
        assert_eq!(Arc::strong_count(&payload), 42);
        // Once it is sent no reply has it any more.
        drop(message);
        replies.iter_mut().for_each(Reply::clear);
        assert_eq!(Arc::strong_count(&payload), 1);
    }

    #[test]
    fn an_inbox_that_is_empty_gives_its_room_back() {
        let inbox = Inbox { open: listens::SUBSCRIBES.into(), ..Inbox::default() };
        let limit = SubscriberLimit { hard_bytes: 1 << 20, soft_bytes: 0, soft_seconds: 0 };
        let message = Arc::new(Message { to: Of::Channel, channel: Arc::new([]), payload: Arc::new([]) });
        for _ in 0..10_000 {
            inbox.put(Item::Message { message: message.clone(), pattern: None }, limit, 1);
        }
        while inbox.take(true).is_some() {}
        assert!(inbox.queue.lock().items.capacity() <= 2 * KEPT);
    }

    #[test]
    fn invalidations_wait_for_answers() {
        let inbox = Inbox { open: (listens::SUBSCRIBES | listens::TRACKS).into(), ..Inbox::default() };
        assert!(matches!(inbox.put(Item::Changed(None), LIMIT, 1), Put::First));
        assert!(inbox.has_some() && !inbox.has_messages() && inbox.take(true).is_none());
        assert!(matches!(put(&inbox, 100, 1), Put::First));
        assert!(matches!(inbox.take(true), Some(Item::Message { .. })) && inbox.take(true).is_none());
        assert!(matches!(inbox.take(false), Some(Item::Changed(None))) && !inbox.has_some());
        // What is kept for one reason goes on when the other ends.
        inbox.close(listens::SUBSCRIBES);
        assert!(matches!(inbox.put(Item::Changed(None), LIMIT, 1), Put::First) && inbox.has_some());
        inbox.close(listens::TRACKS);
        assert!(!inbox.has_some() && inbox.len() == 0);
    }

    fn open() -> Inbox {
        Inbox { open: listens::SUBSCRIBES.into(), ..Inbox::default() }
    }

    #[test]
    fn an_inbox_keeps_what_its_limit_allows() {
        let inbox = open();
        assert!(matches!(put(&inbox, 5000, 1), Put::First) && matches!(put(&inbox, 5000, 1), Put::Behind));
        // What was taken counts until it is written.
        assert!(inbox.take(true).is_some());
        assert!(matches!(put(&inbox, 100, 1), Put::TooMuch));
        assert!(!inbox.has_some() && inbox.bytes() == 5000);
        assert!(matches!(put(&inbox, 100, 1), Put::Behind) && !inbox.has_some(), "nobody is there any more");
        let inbox = open();
        assert!(matches!(put(&inbox, 10_000, 1), Put::First) && inbox.take(true).is_some());
        inbox.written();
        assert!(matches!(put(&inbox, 10_000, 1), Put::First) && inbox.bytes() == 10_000);
    }

    #[test]
    fn more_than_the_lower_limit_is_kept_for_a_while() {
        let inbox = open();
        put(&inbox, 1001, 5000);
        assert!(!inbox.closes_if_too_full(LIMIT, 7000));
        assert!(matches!(put(&inbox, 100, 7001), Put::TooMuch));
        let inbox = open();
        put(&inbox, 1001, 5000);
        assert!(inbox.take(true).is_some());
        inbox.written();
        assert!(!inbox.closes_if_too_full(LIMIT, 6000));
        // It begins anew.
        put(&inbox, 1001, 7500);
        assert!(!inbox.closes_if_too_full(LIMIT, 9500) && inbox.closes_if_too_full(LIMIT, 9501));
        assert!(!inbox.closes_if_too_full(LIMIT, 9502) && !inbox.has_some(), "it is told once");
    }
}
