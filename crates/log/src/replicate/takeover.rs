//! How a new leader takes a log over (Arcadia §4.2): round by round, each a question to some replicas and what their answers mean. No clock and no network in it.
//!
//! | round | asked | goes on if |
//! |---|---|---|
//! | promise | all: hear no leader before me | none has promised more; a read quorum of the replicas there are counts, and all others of them if one is replaced; else *unavailable*, *fenced* |
//! | walk | replicas of the newest log epoch: how far do your records go from here? (each reads so much at a time) | again from the image's end, or the farthest, until no replica knows a further record |
//! | | | no replica says that more had been durable, else *unrecoverable*, or *unavailable* while some were not read |
//! | | | what might have been acknowledged and cannot be read is on less than a write quorum, else *in doubt* |
//! | fetch | the image and the sources: what have you got? | pieces that differ are read into the image |
//! | verify | the image: is that the log? | it is: what a failing medium changed meanwhile goes no further |
//! | repair | the image and all others | pieces that differ are written into the replicas, and compared again |
//! | install | all: this is the log, of my epoch | a write quorum has done so, of the replicas before a change too if that may not be committed |
//! | conclude | after such a change: the replicas behind it, alone | a write quorum of those has done so |
//!
//! Nothing is installed unless those that promised are a write quorum, and what a change cannot complete is withdrawn: `docs/replication.md` says why both are safe.
//!
//! Why that is the log: a record is acknowledged by `W` replicas that have the log epoch of its leader. Any `R` readable replicas have one of them, so the newest epoch
//! among them is that leader's or a later one's, and that log has the record, by induction. Within one epoch there is one writer, so two replicas of the
//! newest epoch never have different records at one position, and what is missing or damaged in one is taken from another. A replica that is new, or of which only part
//! was repaired, has an older epoch or none, and is no witness; but for what the newest took over from replicas of that very epoch, when a leader was cut short
//! before a write quorum had its own. Nothing is appended before a write quorum has the new epoch; so a takeover
//! cut short anywhere is only done again.

use super::at::{At, PIECE, Span};
use super::members::{Config, Layout, Origin, Quorum};
use super::message::{DIGESTS_MAX, Formed, Reply, Request, Walked};
use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::{Failpoints, Step};

#[cfg(test)]
mod tests;

/// What to do for a takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Ask; the answer comes back.
    Ask(usize, Request),
    /// Read these pieces of a replica into the image, then say so.
    Fetch(usize, Vec<Span>),
    /// Write these pieces of the image into a replica, before anything it is asked later.
    Push(usize, Vec<Span>),
}

/// What came of a command.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Reply(Reply),
    Fetched,
    /// No answer in time, or no connection.
    Lost(String),
}

/// What a takeover begins with.
pub(super) struct Plan {
    pub(super) epoch: u32,
    pub(super) owner: u64,
    /// The ids of the replicas that are asked, the leader's own image of the log first; 0 for what is not one of the replicas that count.
    pub(super) ids: Vec<u64>,
    /// The image can be one of the log's replicas.
    pub(super) image_counts: bool,
    /// The log is new, and these are its replicas; else they stay who they were.
    pub(super) make: Option<Config>,
    /// Goes on though a record may be lost that was acknowledged, if no replica that can be read has it.
    pub(super) accept_doubt: bool,
    /// Ids of replicas that will never come back: new ones take their places.
    pub(super) lost: Vec<u64>,
    pub(super) failpoints: Failpoints,
}

/// The log that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    head: At,
    pub(crate) end: At,
    /// Which of the replicas have it.
    pub(super) live: Vec<usize>,
    pub(crate) config: Config,
    /// A record that was begun on some replica, is whole on none, and was acknowledged only if several were damaged since.
    pub(crate) in_doubt: Option<Lsn>,
}

/// The leader's own image of the log.
const IMAGE: usize = 0;

/// Where a takeover is.
pub(super) enum Progress {
    Ask(Vec<Command>),
    Taken(Taken),
}

pub(super) struct Takeover {
    plan: Plan,
    phase: Phase,
    /// Replicas whose answer this round still waits for.
    waiting: Vec<usize>,
    heard: Vec<Option<Heard>>,
    /// What each replica said it was when it promised; none if it is lost.
    replicas: Vec<Option<Formed>>,
    before: Option<Config>,
    /// The same with new replicas in the places of lost ones.
    after: Option<Config>,
    head: At,
    end: At,
    /// Whose records count.
    newest: Vec<usize>,
    /// Whose records count before the one where the newest took over from them, too: a leader was cut short when it made those the newest.
    older: Vec<usize>,
    origin: Origin,
    newest_epoch: u32,
    /// Where each part of the log is read from.
    parts: Vec<(usize, Span)>,
    /// Parts that are not compared yet, none longer than a message takes.
    todo: Vec<(usize, Span)>,
    /// Replicas that pieces of the last of these were written into.
    written: Vec<usize>,
    /// The image is whole as far as that.
    verified: At,
    in_doubt: Option<Lsn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Promise,
    Walk,
    CompareSource,
    Fetch,
    Verify,
    CompareOthers,
    Install,
    Conclude,
}

impl Takeover {
    /// Begins: asks all replicas for their promise.
    pub(super) fn begin(plan: Plan) -> (Self, Vec<Command>) {
        let count = plan.ids.len();
        let nowhere = At { lsn: 1, position: 0, epoch: 0 };
        let mut this = Self {
            phase: Phase::Promise,
            waiting: Vec::new(),
            heard: vec![None; count],
            replicas: vec![None; count],
            before: None,
            after: None,
            head: nowhere,
            end: nowhere,
            newest: Vec::new(),
            older: Vec::new(),
            origin: Origin::default(),
            newest_epoch: 0,
            parts: Vec::new(),
            todo: Vec::new(),
            written: Vec::new(),
            verified: nowhere,
            in_doubt: None,
            plan,
        };
        let (epoch, owner) = (this.plan.epoch, this.plan.owner);
        let all = 0..count;
        let commands = this.ask(Phase::Promise, all, |_| Request::Promise { epoch, owner });
        (this, commands)
    }

    /// What became of a replica's command. Late and repeated answers mean nothing.
    pub(super) fn hear(&mut self, replica: usize, heard: Heard) -> Result<Progress> {
        match &heard {
            Heard::Lost(why) | Heard::Reply(Reply::Failed { why }) => {
                tracing::info!(replica = self.plan.ids.get(replica), why, "a replica takes no part any more");
                if let Some(state) = self.replicas.get_mut(replica) {
                    *state = None;
                }
            }
            Heard::Reply(Reply::Refused { promised, owner }) if self.phase != Phase::Promise => {
                return Err(Error::Fenced { epoch: *promised, owner: *owner });
            }
            _ => {}
        }
        let Some(index) = self.waiting.iter().position(|&c| c == replica) else { return Ok(Progress::Ask(Vec::new())) };
        self.waiting.swap_remove(index);
        self.heard[replica] = Some(heard);
        if self.waiting.is_empty() { self.next() } else { Ok(Progress::Ask(Vec::new())) }
    }

    /// Replicas whose answers are waited for.
    pub(super) fn waiting(&self) -> &[usize] {
        &self.waiting
    }

    fn ask(
        &mut self,
        phase: Phase,
        whom: impl IntoIterator<Item = usize>,
        what: impl Fn(usize) -> Request,
    ) -> Vec<Command> {
        self.phase = phase;
        self.heard.fill(None);
        self.waiting = whom.into_iter().collect();
        self.waiting.iter().map(|&replica| Command::Ask(replica, what(replica))).collect()
    }

    fn next(&mut self) -> Result<Progress> {
        match self.phase {
            Phase::Promise => self.promised(),
            Phase::Walk => self.walked(),
            Phase::CompareSource => self.compared_source(),
            Phase::Fetch => self.fetched(),
            Phase::Verify => self.verified(),
            Phase::CompareOthers => self.compared_others(),
            Phase::Install | Phase::Conclude => self.installed(),
        }
    }

    // ---- promise ----------------------------------------------------------------------------------------------

    fn promised(&mut self) -> Result<Progress> {
        let mut fenced = None;
        for (replica, heard) in self.heard.iter_mut().enumerate() {
            match heard.take() {
                Some(Heard::Reply(Reply::State(state))) => self.replicas[replica] = state.formed,
                Some(Heard::Reply(Reply::Refused { promised, owner })) => fenced = fenced.max(Some((promised, owner))),
                _ => {}
            }
        }
        if let Some((epoch, owner)) = fenced {
            return Err(Error::Fenced { epoch, owner });
        }
        self.doubt_strangers();
        if let Some(config) = &self.plan.make {
            if !config.ids.iter().all(|&id| self.promised_empty(id)) {
                return Err(self.unavailable("a log is made only of new replicas, and of all of them", &[]));
            }
            self.newest = self.members().collect();
            return Ok(Progress::Ask(self.install()));
        }
        self.decide()
    }

    /// What replicas say comes from outside: one of another log than the image says nothing, and replicas that cannot be were never agreed on.
    fn doubt_strangers(&mut self) {
        let layout = self.layout();
        for replica in &mut self.replicas {
            if replica.as_ref().is_some_and(|formed| Some(formed.layout) != layout) {
                *replica = None;
            }
            if let Some(formed) = replica {
                formed.config = formed.config.take().filter(|config| config.check().is_ok());
            }
        }
    }

    fn layout(&self) -> Option<Layout> {
        self.replicas[IMAGE].as_ref().map(|formed| formed.layout)
    }

    /// True if the log can reach as far, by its size.
    fn can_end(&self, end: At) -> bool {
        let room = self.layout().map_or(0, |layout| layout.segment_bytes.saturating_mul(layout.segments));
        let len = end.position.checked_sub(self.head.position);
        end.position.is_multiple_of(8) && end.lsn < 1 << 62 && len.is_some_and(|len| len <= room)
    }

    /// Whose records count, of those that can be read. Done again when one of them is lost: what others have may count then.
    fn decide(&mut self) -> Result<Progress> {
        self.parts.clear();
        let counts = |formed: &&Formed| formed.log_epoch > 0;
        let newest = self.members().filter_map(|c| self.replicas[c].as_ref()).filter(counts).map(|f| f.log_epoch).max();
        let Some(newest) = newest else { return Err(self.unavailable("none of them has ever been one of a log", &[])) };
        let of_newest =
            |f: &Formed| f.log_epoch == newest || self.plan.failpoints.skips(Step::NewestLog) && f.log_epoch > 0;
        self.newest = self.members().filter(|&c| self.replicas[c].as_ref().is_some_and(of_newest)).collect();
        let witnesses = || self.newest.iter().filter_map(|&c| self.replicas[c].as_ref());
        let configs = || witnesses().filter(|f| f.log_epoch == newest).filter_map(|f| f.config.clone());
        let Some(mut config) = configs().max_by_key(|c| c.generation) else {
            return Err(self.unavailable("the newest of them does not say which replicas there are", &[]));
        };
        if self.plan.failpoints.skips(Step::BothQuorums) {
            config.before = None;
        }
        if !config.can_read(|id| self.has_read(id)) {
            let missing: Vec<u64> = config.all().into_iter().filter(|&id| !self.has_read(id)).collect();
            return Err(self.unavailable("too few of the replicas there are can be read", &missing));
        }
        let origins = || witnesses().filter(|f| f.log_epoch == newest).map(|f| f.origin);
        let base = origins().map(|o| o.base).max().unwrap_or(newest);
        // They differ only if several took the log over at once, each at another end, and none of them led: then nothing was appended.
        let taken = origins().map(|o| o.taken).max().unwrap_or(0);
        let is_older = |f: &Formed| (base.max(1)..newest).contains(&f.log_epoch);
        // Some may have heard of a later head than others. Nothing before it is needed, of whatever epoch the replica that heard of it is: what was discarded had
        // been durable.
        let all = self.members().filter_map(|c| self.replicas[c].as_ref()).filter(counts);
        if let Some(head) = all.map(|f| f.head).max_by_key(|head| head.position) {
            (self.head, self.end) = (head, head);
        }
        self.older = self.members().filter(|&c| self.replicas[c].as_ref().is_some_and(is_older)).collect();
        (self.origin, self.newest_epoch) = (Origin { base, taken }, newest);
        let after = self.replaced(config.clone())?;
        let alive = |id: u64| self.alive().any(|c| self.plan.ids[c] == id);
        // A candidate that could not lead installs nothing either: a log of a high epoch on too few replicas would pass for the newest.
        let can = after.can_write(alive) || self.can_withdraw(&after, alive);
        if !can && !self.plan.failpoints.skips(Step::CanWriteFirst) {
            let missing: Vec<u64> = after.all().into_iter().filter(|&id| !alive(id)).collect();
            return Err(self.unavailable("too few of the replicas there are can be written", &missing));
        }
        (self.before, self.after) = (Some(config), Some(after));
        Ok(Progress::Ask(self.walk()))
    }

    /// With replicas that are none of the log's yet in the places of those that are lost for good. The write quorum stays what it was. It is joint with the replicas before, without the
    /// lost ones: as many of those make a read quorum as did with them, since a write quorum has fewer by so many.
    ///
    /// All others have promised: one of them may have, with a lost one, been made the newest by a candidate that did not get to lead, of a higher epoch than
    /// any that a write quorum with a new replica would meet. From this promise on it is not.
    fn replaced(&self, mut config: Config) -> Result<Config> {
        let alive = |id: u64| self.alive().find(|&c| self.plan.ids[c] == id);
        let all = config.all();
        let lost: Vec<u64> = self.plan.lost.iter().copied().filter(|id| all.contains(id)).collect(); // others were replaced before
        if let Some(back) = lost.iter().find(|&&id| alive(id).is_some()) {
            let why = "it was said to be lost for good, and is there".into();
            return Err(Error::Replica { replica: format!("{back:x}"), why });
        }
        let missing: Vec<u64> = all.iter().copied().filter(|&id| !lost.contains(&id) && alive(id).is_none()).collect();
        if !lost.is_empty() && !missing.is_empty() {
            return Err(self.unavailable("a replica is replaced when all the others are there", &missing));
        }
        if lost.is_empty() {
            return Ok(config);
        }
        let now = || Quorum { ids: config.ids.clone(), write_quorum: config.write_quorum };
        let mut before = config.before.clone().unwrap_or_else(now);
        let were = before.ids.len();
        before.ids.retain(|id| !lost.contains(id));
        before.write_quorum = before.write_quorum.saturating_sub((were - before.ids.len()) as u32);
        config = config.later(1);
        for lost in lost.into_iter().filter(|lost| config.ids.contains(lost)).collect::<Vec<_>>() {
            let is_new = |&c: &usize| {
                let id = self.plan.ids[c];
                (c != IMAGE || self.plan.image_counts) && !config.ids.contains(&id) && !all.contains(&id)
            };
            let Some(new) = self.alive().find(is_new) else {
                return Err(
                    self.unavailable("no new replica was found for the place of one that is lost for good", &[])
                );
            };
            let new = self.plan.ids[new];
            config.ids.iter_mut().filter(|id| **id == lost).for_each(|id| *id = new);
        }
        config.before = Some(before);
        config.check()?;
        Ok(config)
    }

    fn can_withdraw(&self, config: &Config, has: impl Fn(u64) -> bool) -> bool {
        config.can_withdraw(has) && !self.plan.failpoints.skips(Step::Withdraw)
    }

    /// Replicas that can count.
    fn members(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.plan.ids.len()
    }

    /// True if this replica promised, and has been one of the log before.
    fn has_read(&self, id: u64) -> bool {
        let replica = self.plan.ids.iter().position(|&i| i == id);
        replica.and_then(|c| self.replicas[c].as_ref()).is_some_and(|f| f.log_epoch > 0)
    }

    fn promised_empty(&self, id: u64) -> bool {
        let replica = self.plan.ids.iter().position(|&i| i == id);
        replica.and_then(|c| self.replicas[c].as_ref()).is_some_and(|f| f.log_epoch == 0)
    }

    fn unavailable(&self, why: &'static str, missing: &[u64]) -> Error {
        let found = self.members().filter(|&c| self.replicas[c].is_some()).count();
        Error::QuorumUnavailable { why, found, missing: missing.to_vec(), away: Vec::new() }
    }

    // ---- walk -------------------------------------------------------------------------------------------------

    fn walk(&mut self) -> Vec<Command> {
        let (from, taken) = (self.end, self.origin.taken);
        let older = self.older.iter().filter(|_| from.lsn < taken);
        let alive: Vec<usize> = self.newest.iter().chain(older).copied().collect();
        let newest = self.newest.clone();
        let until = move |replica: usize| if newest.contains(&replica) { u64::MAX } else { taken };
        let epochs: Vec<u32> = self.replicas.iter().map(|f| f.as_ref().map_or(0, |f| f.log_epoch)).collect();
        self.ask(Phase::Walk, alive, move |replica| Request::Walk {
            from,
            until: until(replica),
            epoch: epochs[replica],
        })
    }

    fn walked(&mut self) -> Result<Progress> {
        let found: Vec<(usize, Walked)> = (self.heard.iter().enumerate())
            .filter_map(|(replica, heard)| match heard {
                Some(Heard::Reply(Reply::Walked(walked))) if self.can_end(walked.end) => Some((replica, *walked)),
                _ => None,
            })
            .collect();
        for replica in self.newest.iter().chain(&self.older) {
            let asked = self.heard[*replica].is_some();
            if asked && !found.iter().any(|(c, _)| c == replica) {
                self.replicas[*replica] = None;
            }
        }
        if self.newest.iter().chain(&self.older).any(|&replica| self.replicas[replica].is_none()) {
            return self.decide();
        }
        let Some(before) = &self.before else { return Err(self.unavailable("nothing was read", &[])) };
        let unread: Vec<u64> = before.all().into_iter().filter(|&id| !self.has_read(id)).collect();
        // The image's own first: what it has whole is never fetched, so a replica whose medium fails between this round and the next cannot spoil what is good here.
        let further = |w: &Walked| w.end.lsn > self.end.lsn && w.end.position > self.end.position;
        let farthest =
            found.iter().filter(|(_, w)| further(w)).max_by_key(|(replica, w)| (*replica == IMAGE, w.end.lsn));
        if let Some(&(replica, Walked { end, .. })) = farthest {
            self.parts.push((replica, Span { from: self.end.position, to: end.position }));
            self.end = end;
            return Ok(Progress::Ask(self.walk()));
        }
        let lsn = Lsn(self.end.lsn);
        let through = found.iter().map(|(_, w)| w.through).max().unwrap_or(0);
        if through >= lsn.0 {
            return Err(if unread.is_empty() {
                Error::Unrecoverable { lsn, through: Lsn(through) }
            } else {
                self.unavailable("a record that was durable is damaged on all that were read", &unread)
            });
        }
        let doubts = self.members().filter(|&replica| self.may_have_had(replica, lsn, &found)).count();
        if doubts > 0 && doubts + unread.len() >= before.write_quorum as usize {
            if !unread.is_empty() && !self.plan.accept_doubt {
                return Err(Error::InDoubt { lsn, missing: unread });
            }
            self.in_doubt = Some(lsn);
        }
        self.todo = self.parts.clone();
        self.todo.retain(|(replica, _)| *replica != IMAGE);
        self.split_todo();
        Ok(Progress::Ask(self.compare_source()?))
    }

    /// True if a replica may have acknowledged the record that is missing.
    fn may_have_had(&self, replica: usize, lsn: Lsn, found: &[(usize, Walked)]) -> bool {
        let Some(formed) = self.replicas[replica].as_ref().filter(|formed| formed.log_epoch > 0) else { return false };
        // A replica that was made one of the newest had what was taken over, persistently.
        if self.newest.contains(&replica) && lsn.0 < formed.origin.taken {
            return true;
        }
        // A replica that was not asked may have it from a leader before: what was taken over from others may be older still.
        let walked = found.iter().find(|(c, _)| *c == replica);
        walked.map_or(lsn.0 < self.origin.taken, |(_, walked)| walked.doubt)
    }

    // ---- fetch ------------------------------------------------------------------------------------------------

    /// So that the digests of each fit into a message.
    fn split_todo(&mut self) {
        let segment = self.segment_bytes();
        let most = PIECE.min(segment) * DIGESTS_MAX / 2;
        let split = |(replica, Span { from, to }): (usize, Span)| {
            (from..to)
                .step_by(most as usize)
                .map(move |start| (replica, Span { from: start, to: to.min(start + most) }))
        };
        self.todo = std::mem::take(&mut self.todo).into_iter().flat_map(split).collect();
        self.todo.reverse(); // taken from the end
    }

    fn segment_bytes(&self) -> u64 {
        self.layout().map_or(PIECE, |layout| layout.segment_bytes)
    }

    fn compare_source(&mut self) -> Result<Vec<Command>> {
        let Some(&(source, span)) = self.todo.last() else {
            return Ok(self.verify(self.head));
        };
        if self.replicas[source].is_none() {
            return Err(self.unavailable("one was lost while it was read", &[]));
        }
        Ok(self.ask(Phase::CompareSource, [IMAGE, source], |_| Request::Digest { span }))
    }

    /// Reads the image from there on.
    fn verify(&mut self, from: At) -> Vec<Command> {
        let (until, epoch) = (self.end.lsn, self.newest_epoch);
        self.verified = from;
        self.ask(Phase::Verify, [IMAGE], |_| Request::Walk { from, until, epoch })
    }

    /// What was read is what was found; or a medium failed meanwhile, and nothing of that goes any further.
    fn verified(&mut self) -> Result<Progress> {
        match self.heard[IMAGE] {
            Some(Heard::Reply(Reply::Walked(Walked { end, .. }))) if end == self.end => {}
            Some(Heard::Reply(Reply::Walked(Walked { end, .. })))
                if (self.verified.lsn + 1..self.end.lsn).contains(&end.lsn) =>
            {
                return Ok(Progress::Ask(self.verify(end)));
            }
            _ => return Err(self.unavailable("one was damaged while it was read", &[])),
        }
        self.todo = vec![(IMAGE, Span { from: self.head.position, to: self.end.position })];
        self.split_todo();
        Ok(Progress::Ask(self.compare_others()?))
    }

    fn digests(&self, replica: usize) -> Option<&[u64]> {
        match self.heard.get(replica) {
            Some(Some(Heard::Reply(Reply::Digests(digests)))) => Some(digests),
            _ => None,
        }
    }

    /// The pieces in which a replica differs from another.
    fn differing(&self, span: Span, one: usize, other: usize) -> Option<Vec<Span>> {
        let (one, other) = (self.digests(one)?, self.digests(other)?);
        let pieces: Vec<Span> = span.pieces(self.segment_bytes()).collect();
        (one.len() == pieces.len() && other.len() == pieces.len())
            .then(|| pieces.into_iter().enumerate().filter(|(i, _)| one[*i] != other[*i]).map(|(_, p)| p).collect())
    }

    fn compared_source(&mut self) -> Result<Progress> {
        let Some((source, span)) = self.todo.pop() else { return Ok(Progress::Ask(self.compare_source()?)) };
        let Some(spans) = self.differing(span, IMAGE, source) else {
            return Err(self.unavailable("one was lost while it was read", &[]));
        };
        if spans.is_empty() {
            return Ok(Progress::Ask(self.compare_source()?));
        }
        self.phase = Phase::Fetch;
        self.heard.fill(None);
        self.waiting = vec![source];
        Ok(Progress::Ask(vec![Command::Fetch(source, spans)]))
    }

    fn fetched(&mut self) -> Result<Progress> {
        if !self.heard.iter().any(|h| matches!(h, Some(Heard::Fetched))) {
            return Err(self.unavailable("one was lost while it was read", &[]));
        }
        Ok(Progress::Ask(self.compare_source()?))
    }

    // ---- repair -----------------------------------------------------------------------------------------------

    fn compare_others(&mut self) -> Result<Vec<Command>> {
        let Some(&(_, span)) = self.todo.last() else { return Ok(self.install()) };
        let alive: Vec<usize> = self.alive().collect();
        Ok(self.ask(Phase::CompareOthers, alive, |_| Request::Digest { span }))
    }

    fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.replicas.len()).filter(|&c| self.replicas[c].is_some())
    }

    fn compared_others(&mut self) -> Result<Progress> {
        let Some((image, span)) = self.todo.pop() else { return Ok(Progress::Ask(self.install())) };
        if self.digests(image).is_none() {
            return Err(self.unavailable("the leader's own could not be read", &[]));
        }
        let mut pushes = Vec::new();
        let written = std::mem::take(&mut self.written);
        for replica in 0..self.replicas.len() {
            if replica == image || self.replicas[replica].is_none() {
                continue;
            }
            match self.differing(span, image, replica) {
                Some(spans) if spans.is_empty() => {}
                Some(spans) if !written.contains(&replica) => {
                    self.written.push(replica);
                    pushes.push(Command::Push(replica, spans));
                }
                // It failed, or does not have what was written into it: the others may do.
                _ => self.replicas[replica] = None,
            }
        }
        // What was written is compared again, before it is vouched for.
        if !pushes.is_empty() {
            self.todo.push((image, span));
        }
        pushes.extend(self.compare_others()?);
        Ok(Progress::Ask(pushes))
    }

    // ---- install ----------------------------------------------------------------------------------------------

    fn install(&mut self) -> Vec<Command> {
        let config = self.config();
        let alive: Vec<usize> = self.alive().collect();
        if config.before.is_some() && self.plan.failpoints.skips(Step::InstallJoint) {
            let has = |id: u64| alive.iter().any(|&c| self.plan.ids[c] == id);
            self.after = if config.can_write(has) { Some(config.concluded()) } else { config.withdrawn() };
        }
        self.install_at(Phase::Install, alive)
    }

    fn install_at(&mut self, phase: Phase, whom: Vec<usize>) -> Vec<Command> {
        let (head, end) = (self.head, self.end);
        // If nothing that was appended since the newest was taken over is there, those that it was taken from still have all of it.
        let base = if self.end.lsn <= self.origin.taken { self.origin.base } else { self.newest_epoch };
        let origin = Origin { base, taken: self.end.lsn };
        let config = self.config();
        self.ask(phase, whom, |_| Request::Install { head, end, config: config.clone(), origin })
    }

    fn config(&self) -> Config {
        let none = || Config::of(Vec::new(), 1);
        self.after.clone().or_else(|| self.plan.make.clone()).unwrap_or_else(none)
    }

    fn installed(&mut self) -> Result<Progress> {
        let done = |c: &usize| matches!(self.heard[*c], Some(Heard::Reply(Reply::Installed)));
        let live: Vec<usize> = (0..self.heard.len()).filter(done).collect();
        let has = |id: u64| live.iter().any(|&c| self.plan.ids.get(c) == Some(&id));
        let config = self.config();
        let all = self.plan.make.is_none() || config.ids.iter().all(|&id| has(id));
        let next = if config.can_write(has) {
            Some(config.concluded())
        } else {
            self.can_withdraw(&config, has).then(|| config.withdrawn()).flatten()
        };
        let Some(next) = next.filter(|_| all && live.contains(&IMAGE)) else {
            let missing: Vec<u64> = config.all().into_iter().filter(|&id| !has(id)).collect();
            return Err(self.unavailable("too few were left when they were repaired", &missing));
        };
        if config.before.is_some() {
            self.after = Some(next);
            return Ok(Progress::Ask(self.install_at(Phase::Conclude, live)));
        }
        Ok(Progress::Taken(Taken { head: self.head, end: self.end, live, config, in_doubt: self.in_doubt }))
    }
}
