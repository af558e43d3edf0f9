//! Messages to a subscriber, among the answers to its requests.

use crate::failpoints::Step;
use crate::job::Parts;

/// Bytes of replies that are gathered before they are written.
pub(crate) const REPLY: usize = 64 << 10;

/// Writes some of what has come to the reply: messages, lines of `MONITOR`, keys that have changed. Every request that has run is answered in it.
pub(crate) fn deliver(parts: &mut Parts) {
    if parts.session.client.inbox.has_some() {
        parts.session.subscriptions.hear(&mut parts.reply, REPLY, false);
    }
}

/// The same, all of it.
pub(super) fn deliver_all(parts: &mut Parts) {
    if parts.session.client.inbox.has_some() {
        parts.session.subscriptions.hear(&mut parts.reply, usize::MAX, false);
    }
}

/// Messages that came before the answer was known come before it, whether or not that is to be heard: also what a request has published to itself.
pub(super) fn hear_first(parts: &mut Parts) {
    let (inbox, early) = (&parts.session.client.inbox, !parts.session.shared.failpoints.skips(Step::ToldBehind));
    if if early { inbox.has_messages() } else { inbox.has_some() } {
        let answer = parts.reply.split_off(parts.mark);
        parts.session.subscriptions.hear(&mut parts.reply, usize::MAX, early);
        parts.mark = parts.reply.len();
        parts.reply.raw(&answer);
    }
}
