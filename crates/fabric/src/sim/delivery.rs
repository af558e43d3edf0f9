//! What a frame does where it arrives.

use std::time::Duration;

use super::state::{Due, Frame, Node, Refusal, State};
use crate::{Event, Reason, Rights};

impl State {
    /// Lets what is due next happen. The node that may have noticed, if one could.
    pub(super) fn happen(&mut self, due: Due) -> Option<Node> {
        match due {
            Due::Frame { link, side } => self.arrive(link, side),
            Due::GiveUp { link, side } => {
                let long_ago = self.now.saturating_sub(self.faults.give_up / 2);
                let stuck = |since: Duration| since <= long_ago;
                let stuck = self.links[link].ends.iter().any(|end| end.stalled.is_some_and(stuck));
                if !stuck || self.end(link, side).closed.is_some() {
                    return None;
                }
                self.lose(link, side, "nothing gets through");
                Some(self.end(link, side).node)
            }
        }
    }

    /// The first frame on the way to that side arrives.
    fn arrive(&mut self, link: usize, side: usize) -> Option<Node> {
        self.end(link, side).scheduled = false;
        if self.end(link, side).closed.is_some() {
            return None;
        }
        if self.is_cut(link, side) {
            self.end(link, side).stalled = Some(self.now);
            for side in [0, 1] {
                let at = self.now + self.give_up_after();
                self.schedule(at, Due::GiveUp { link, side });
            }
            return None;
        }
        if self.links[link].ends[side].incoming.front().is_some_and(|(at, _)| *at > self.now) {
            // It was postponed.
            self.schedule_first(link, side);
            return None;
        }
        let resets = self.faults.resets_per_million;
        if resets > 0 && self.below(1_000_000) < u64::from(resets) {
            self.reset_link(link);
            return Some(self.end(link, side).node);
        }
        let (_, frame) = self.end(link, side).incoming.pop_front()?;
        self.deliver(link, side, frame);
        self.schedule_first(link, side);
        Some(self.end(link, side).node)
    }

    fn deliver(&mut self, link: usize, side: usize, frame: Frame) {
        match frame {
            Frame::Write { offset, bytes, imm } => {
                let end = self.end(link, side);
                match (end.target.write(offset, &bytes), imm) {
                    (Ok(()), Some(imm)) => end.inbox.push_back(Event::Written { imm }),
                    (Ok(()), None) => {}
                    (Err(reason), _) => self.refuse(link, side, reason),
                }
            }
            Frame::Torn { offset, bytes } => {
                let target = &self.links[link].ends[side].target;
                if target.allows(Rights::Write, offset, bytes.len() as u64).is_ok()
                    && let Some(window) = &target.window
                {
                    super::torn::tear(&mut self.random, window.as_ref(), offset, &bytes);
                }
            }
            Frame::Read { offset, len, tag } => {
                let mut bytes = vec![0; len as usize];
                match self.end(link, side).target.read(offset, &mut bytes) {
                    Ok(()) => self.send(link, 1 - side, Frame::Answer { tag, bytes }),
                    Err(reason) => self.refuse(link, side, reason),
                }
            }
            Frame::Answer { tag, bytes } => {
                let end = self.end(link, side);
                end.reads -= 1;
                end.inbox.push_back(Event::Read { tag, bytes });
            }
            Frame::Message(bytes) => self.message(link, side, bytes),
            Frame::Bye => self.finish(link, side, Reason::Peer),
            Frame::Refused(Refusal::Violation(violation)) => self.finish(link, side, Reason::Violated(violation)),
            Frame::Refused(Refusal::Window(what)) => self.finish(link, side, Reason::Window { what }),
            Frame::Reset(what) => self.finish(link, side, Reason::Lost { what: what.into() }),
        }
    }

    fn message(&mut self, link: usize, side: usize, bytes: Vec<u8>) {
        if self.chance(self.faults.duplicates_per_mille) {
            let again = bytes.clone();
            let end = self.end(link, side);
            // The link's last word stays the last.
            let ends = end.incoming.iter().any(|(_, f)| matches!(f, Frame::Bye | Frame::Refused(_) | Frame::Reset(_)));
            if ends {
                end.inbox.push_back(Event::Message(again));
            } else {
                self.send(link, side, Frame::Message(again));
            }
        }
        self.end(link, side).inbox.push_back(Event::Message(bytes));
    }
}
