//! Messages to a subscriber, among the answers to its requests.

use crate::job::Parts;

/// Bytes of replies that are gathered before they are written.
pub(crate) const REPLY: usize = 64 << 10;

/// Writes some of the messages that have come to the reply.
pub(super) fn deliver(parts: &mut Parts) {
    if parts.session.subscriptions.any() {
        parts.session.subscriptions.hear(&mut parts.reply, REPLY);
    }
}

/// Messages that came before the answer was known come before it, whether or not that is to be heard: also what a request has published to itself.
pub(super) fn hear_first(parts: &mut Parts) {
    if parts.session.subscriptions.any() && parts.session.client.inbox.has_some() {
        let answer = parts.reply.split_off(parts.mark);
        parts.session.subscriptions.hear(&mut parts.reply, usize::MAX);
        parts.mark = parts.reply.len();
        parts.reply.raw(&answer);
    }
}
