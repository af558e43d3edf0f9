//! How a replica joins a log while its leader leads: one that was given up comes back, or a new one is taken in.
//!
//! | step | others append meanwhile |
//! |---|---|
//! | it promises this leader's epoch: the leader before is shut out | yes |
//! | a force without it: a write quorum still hears this leader, so no other leader has taken the log over with a promise that a replica lost with its medium | yes |
//! | pieces that differ are written into it, and compared again; then what came meanwhile, until that is little | yes |
//! | when nothing is under way: the little that is left; it is told where the log begins and ends; all are told if it is a new one, twice: of both groups, then of the new one | no |
//! | it is live | yes |
//!
//! It counts for nothing before the last step: a leader that fails on the way leaves a replica of an older epoch, or of none.

use std::time::Duration;

use fabric::{Event, Receiver};
use parking_lot::MutexGuard;

use super::at::{PIECE, Span};
use super::candidate::Link;
use super::leading::{Leading, Posting};
use super::members::{Config, Layout};
use super::message::{DIGESTS, DIGESTS_MAX, Formed, FromReplica, Reply, Request};
use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::Step;
use crate::image::Image;
use crate::raw::{self, Claim};

/// What may be left for the last step, in which no thread appends: a replica on a slow line takes it in a fraction of a second. Twice as much with each time that
/// more has come meanwhile.
const LAST_BYTES: u64 = 64 << 10;
const PASSES_MAX: u32 = 8;

/// A replica that joins, and the way to it.
pub(crate) struct Joining<'a> {
    pub(crate) image: &'a Image,
    pub(crate) leading: &'a Leading,
    pub(crate) link: Link,
    pub(crate) receiver: Box<dyn Receiver>,
    /// Puts a record of the log's own behind the others; its number.
    pub(crate) mark: &'a dyn Fn() -> Result<u64>,
    /// Lets time pass until something may have arrived.
    pub(crate) pump: &'a mut dyn FnMut(),
    pub(crate) timeout: Duration,
    /// The log is being closed: no thread waits for the replica any more.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Joining<'_> {
    /// Joins; returns its number among the leader's replicas, and how to hear it. Without an id for a new one only a replica that the log has comes back.
    ///
    /// # Errors
    /// [`Error::Replica`] if it cannot; those of a force; [`Error::QuorumLost`] if too few replicas were left to be told of a new one.
    pub(crate) fn join(mut self, layout: Layout, new_id: Option<u64>) -> Result<(usize, Box<dyn Receiver>)> {
        let leading = self.leading;
        let _alone = leading.joining.lock();
        self.link = self.link.speaking(leading.speaks);
        let formed = self.promise(layout, new_id)?;
        self.link.id = formed.me;
        self.confirm()?;
        let config = leading.config.lock().clone();
        if !config.ids.contains(&formed.me) {
            config.towards([&config.ids[..], &[formed.me]].concat()).check()?;
        }
        let mut from = self.image.space().superline.head().position;
        let mut to = leading.posting.lock().end.position;
        for pass in 0..PASSES_MAX {
            let came = to.saturating_sub(from);
            self.repair(Span { from, to })?;
            from = to;
            let posting = leading.posting.lock();
            to = posting.end.position;
            if to - from <= LAST_BYTES << pass {
                return self.finish(posting, from);
            }
            if pass > 0 && to - from > came {
                break;
            }
        }
        Err(self.failed("records are appended faster than it takes them".into()))
    }

    fn promise(&mut self, layout: Layout, new_id: Option<u64>) -> Result<Formed> {
        let look = self.link.look(self.leading.group.lock().failpoints());
        let mut found = self.state(look)?;
        let is_one = |formed: &Formed| self.leading.config.lock().ids.contains(&formed.me);
        match new_id {
            Some(me) if found.is_none() => found = self.state(Request::Format { layout, me })?,
            None if !found.as_ref().is_some_and(is_one) => {
                return Err(self.failed("it is none of the log's replicas".into()));
            }
            // It has come back meanwhile, or was never away: to take its promise anew would end the connection that it is live by.
            None if found.as_ref().is_some_and(|formed| self.leading.group.lock().live_ids().contains(&formed.me)) => {
                return Err(self.failed("it is live already".into()));
            }
            _ => {}
        }
        let its = found.map(|formed| formed.layout.log);
        if its.is_some_and(|log| log != layout.log) {
            return Err(self.failed(format!("it is of log {:x}, not of {:x}", its.unwrap_or(0), layout.log)));
        }
        let (epoch, owner) = (self.leading.epoch, self.leading.owner);
        self.state(Request::Promise { epoch, owner })?.ok_or_else(|| self.failed("it is no replica of a log".into()))
    }

    /// A record is durable without the replica that joins.
    fn confirm(&mut self) -> Result<()> {
        let lsn = (self.mark)()?;
        let since = (self.leading.clock)();
        while self.image.advance(None) < lsn {
            self.leading.check()?;
            self.leading.post(self.image)?;
            self.leading.flush_own(self.image)?;
            (self.pump)();
            self.leading.give_up_late();
            if (self.leading.clock)().saturating_sub(since) > self.timeout.as_micros() as u64 {
                return Err(Error::Stalled { lsn: Lsn(lsn), waited: self.timeout });
            }
        }
        Ok(())
    }

    fn state(&mut self, request: Request) -> Result<Option<Formed>> {
        match self.ask(request)? {
            Reply::State(state) => Ok(state.formed),
            other => Err(self.failed(format!("it answered {other:?}"))),
        }
    }

    fn failed(&self, why: String) -> Error {
        Error::Replica { replica: self.link.name.clone(), why }
    }

    /// The answer to a request.
    fn ask(&mut self, request: Request) -> Result<Reply> {
        let asked = self.link.ask(request)?;
        let since = (self.leading.clock)();
        loop {
            match self.receiver.poll(Duration::from_millis(1))? {
                Some(Event::Message(bytes)) => match self.link.decode(&bytes) {
                    Some(FromReplica::Answer { call, reply }) if call == asked => {
                        let reply = self.link.noted(reply);
                        return self.checked(reply);
                    }
                    Some(FromReplica::Answer { call: 0, reply: Reply::Failed { why } }) => return Err(self.failed(why)),
                    Some(FromReplica::Fenced { epoch, owner }) => return Err(Error::Fenced { epoch, owner }),
                    Some(_) => {} // late, or twice
                    None => return Err(self.failed("it sent what makes no sense".into())),
                },
                Some(Event::Closed(reason)) => return Err(self.failed(reason.to_string())),
                Some(_) => {}
                None => (self.pump)(),
            }
            if (self.leading.clock)().saturating_sub(since) > self.timeout.as_micros() as u64 {
                return Err(self.failed(format!("it has not answered for {:?}", self.timeout)));
            }
            self.leading.check()?;
            if (self.is_over)() {
                return Err(self.failed("the log is closed".into()));
            }
        }
    }

    fn checked(&self, reply: Reply) -> Result<Reply> {
        match reply {
            Reply::Refused { promised, owner } => Err(Error::Fenced { epoch: promised, owner }),
            Reply::Failed { why } => Err(self.failed(why)),
            other => Ok(other),
        }
    }

    // ---- pieces -----------------------------------------------------------------------------------------------

    /// Writes the pieces that differ into it, segment by segment, each kept from being used again meanwhile.
    fn repair(&mut self, span: Span) -> Result<()> {
        let segment_bytes = self.leading.segment_bytes;
        let most = (PIECE.min(segment_bytes) * DIGESTS_MAX / 2).min(segment_bytes);
        let mut from = span.from;
        while from < span.to {
            let to = span.to.min(from - from % most + most);
            let segment = from / segment_bytes;
            let mut space = self.image.space();
            let is_kept = segment >= space.superline.head_position / segment_bytes;
            if is_kept {
                space.pin(segment);
            }
            drop(space);
            if is_kept {
                let done = self.repair_pieces(Span { from, to });
                self.image.space().unpin(segment);
                done?;
            }
            from = to;
        }
        Ok(())
    }

    /// What was written is compared again: a replica that was told that it has a record counts as having it.
    fn repair_pieces(&mut self, span: Span) -> Result<()> {
        if self.write_differing(span)? && self.write_differing(span)? {
            return Err(self.failed("what was written into it is not what it has".into()));
        }
        Ok(())
    }

    /// Whether any piece differed.
    fn write_differing(&mut self, span: Span) -> Result<bool> {
        let Reply::Digests(theirs) = self.ask(Request::Digest { span })? else {
            return Err(self.failed("it does not say what it has".into()));
        };
        let geometry = self.image.space().geometry.clone();
        let pieces: Vec<Span> = span.pieces(self.leading.segment_bytes).collect();
        if pieces.len() != theirs.len() {
            return Err(self.failed("it does not say what it has".into()));
        }
        let key = self.image.key.derived(DIGESTS);
        let mut differed = false;
        for (piece, theirs) in pieces.into_iter().zip(theirs) {
            let offset = geometry.locate(piece.from);
            let bytes = raw::bytes(Claim::Kept, &self.image, &self.image.pool, offset, piece.to - piece.from)?;
            if key.checksum(bytes) != theirs {
                differed = true;
                self.link.sender.write(offset - self.leading.base, bytes)?;
            }
        }
        self.link.sender.flush()?;
        Ok(differed)
    }

    // ---- the last step ----------------------------------------------------------------------------------------

    /// It has everything before position `from`. No thread appends meanwhile, so none waits for it longer than for a replica that is live.
    fn finish(mut self, mut posting: MutexGuard<'_, Posting>, from: u64) -> Result<(usize, Box<dyn Receiver>)> {
        let leading = self.leading;
        self.timeout = self.timeout.min(leading.timeout);
        self.link.sender.queue_up_to(leading.queue_bytes);
        leading.rest(self.image, &mut self.pump)?;
        let head = self.image.space().superline.head();
        let (end, origin) = (posting.end, leading.promise.lock().get().origin(leading.epoch));
        leading.note_last_step(end.position - from);
        self.repair(Span { from: from.max(head.position), to: end.position })?;
        let config = self.next_config()?;
        let install = Request::Install { head, end, config: config.clone(), origin };
        self.installed(install)?;
        let peer = leading.group.lock().joined(self.link.id, end.lsn - 1, head.position);
        while posting.links.len() <= peer {
            posting.links.push(None);
        }
        // It answers here, not where live replicas are heard, until it has its link among theirs.
        leading.change(&mut posting, head, &config, &mut self.pump)?;
        if config.before.is_some() {
            let config = leading.config.lock().clone();
            let installed = self.installed(Request::Install { head, end, config, origin });
            if let Err(why) = installed {
                leading.given_up(&mut leading.group.lock(), peer, why.to_string());
                return Err(why);
            }
        }
        posting.links[peer] = Some(self.link);
        Ok((peer, self.receiver))
    }

    fn installed(&mut self, install: Request) -> Result<()> {
        match self.ask(install)? {
            Reply::Installed => Ok(()),
            _ => Err(self.failed("it does not say that it has all".into())),
        }
    }

    /// The replicas there are, if it is one of them; else those with it, joint. Its answer may be lost: then it has this generation, and no other change does.
    fn next_config(&self) -> Result<Config> {
        let (mut config, id) = (self.leading.config.lock(), self.link.id);
        if config.ids.contains(&id) {
            return Ok(config.clone());
        }
        let next = self.leading.joint(&config, [&config.ids[..], &[id]].concat());
        next.check()?;
        if !self.leading.group.lock().skips(Step::BurnGeneration) {
            *config = config.burned();
        }
        Ok(next)
    }
}
