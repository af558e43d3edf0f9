//! How links end.

use super::state::{Frame, Node, Refusal, State};
use super::torn::tear;
use crate::{Event, Reason, Rights};

impl State {
    /// That side's connection is over. What was on the way to it is lost, and of the first write of that any words may have arrived.
    pub(super) fn finish(&mut self, link: usize, side: usize, reason: Reason) {
        if self.end(link, side).closed.is_some() {
            return;
        }
        if *self.end(link, side).target.access.hold() == Rights::Write {
            self.tear_first(link, side);
        }
        let end = self.end(link, side);
        end.incoming.clear();
        end.gathered.clear();
        end.stalled = None;
        // Its owner may want to open the same memory again.
        end.target.window = None;
        end.closed = Some(reason.clone());
        end.inbox.push_back(Event::Closed(reason));
    }

    /// Closed at that side, with its last word.
    pub(super) fn close(&mut self, link: usize, side: usize) {
        if self.end(link, side).closed.is_none() {
            self.send(link, 1 - side, Frame::Bye);
            self.finish(link, side, Reason::Here);
        }
    }

    /// That side does not put up with what the other did, or cannot do it.
    pub(super) fn refuse(&mut self, link: usize, side: usize, reason: Reason) {
        let refusal = match &reason {
            Reason::PeerViolated(violation) => Refusal::Violation(*violation),
            other => Refusal::Window(other.to_string()),
        };
        self.finish(link, side, reason);
        self.send(link, 1 - side, Frame::Refused(refusal));
    }

    /// That side gives the link up, without a word that is sure to arrive. What it sent may still arrive, late.
    pub(super) fn lose(&mut self, link: usize, side: usize, what: &'static str) {
        self.finish(link, side, Reason::Lost { what: what.into() });
        if self.chance(self.faults.stale_per_mille) {
            let after = self.long_delay();
            self.send_after(after, link, 1 - side, Frame::Reset("the peer gave it up"));
            self.postpone(link, 1 - side);
        } else {
            self.cut_off(link, 1 - side);
            self.send(link, 1 - side, Frame::Reset("the peer gave it up"));
        }
    }

    /// Both sides lose the link: one of them now, the other when it is told.
    pub(super) fn reset_link(&mut self, link: usize) {
        let first = self.below(2) as usize;
        self.lose(link, first, "reset");
    }

    /// The node is gone with all it knew. Of what it sent a beginning still arrives, by chance all or nothing.
    pub(super) fn crash(&mut self, node: Node) {
        self.up[node.0] = false;
        for link in 0..self.links.len() {
            for side in [0, 1] {
                if self.end(link, side).node == node && self.end(link, side).closed.is_none() {
                    self.crash_end(link, side);
                }
            }
        }
    }

    fn crash_end(&mut self, link: usize, side: usize) {
        self.finish(link, side, Reason::Lost { what: "the node crashed".into() });
        let end = self.end(link, side);
        end.inbox.clear();
        end.silent = true;

        let other = 1 - side;
        if self.end(link, other).closed.is_some() {
            return;
        }
        self.cut_off(link, other);
        // Its system tells of a process that is killed; nothing tells of a machine.
        let after = if self.below(2) == 0 { self.delay() } else { self.give_up_after() };
        self.send_after(after, link, other, Frame::Reset("the peer is gone"));
    }

    /// Of what is on the way to that side only a beginning arrives, by chance all or nothing, and perhaps a part of what comes next.
    fn cut_off(&mut self, link: usize, side: usize) {
        let under_way = self.end(link, side).incoming.len() as u64;
        let arrive = self.below(under_way + 1) as usize;
        let torn = self.chance(self.faults.torn_per_mille);
        let end = self.end(link, side);
        let mut tail = end.incoming.drain(arrive..);
        let next = tail.next();
        drop(tail);
        if let Some((at, Frame::Write { offset, bytes, .. })) = next
            && torn
        {
            end.incoming.push_back((at, Frame::Torn { offset, bytes }));
        }
    }

    /// All that is on the way to that side comes later than it would have.
    fn postpone(&mut self, link: usize, side: usize) {
        let later = self.long_delay();
        let now = self.now;
        for (at, _) in &mut self.end(link, side).incoming {
            *at = (*at).max(now) + later;
        }
    }

    /// A part of the write that was being delivered to that side arrives.
    pub(super) fn tear_first(&mut self, link: usize, side: usize) {
        if !self.chance(self.faults.torn_per_mille) {
            return;
        }
        let end = &self.links[link].ends[side];
        let Some((_, Frame::Write { offset, bytes, .. } | Frame::Torn { offset, bytes })) = end.incoming.front() else {
            return;
        };
        let Some(window) = &end.target.window else { return };
        if offset.checked_add(bytes.len() as u64).is_some_and(|last| last <= window.len()) {
            tear(&mut self.random, window.as_ref(), *offset, bytes);
        }
    }
}
