//! Requests of one connection that run in one transaction: a pipelined batch, or what stands between `MULTI` and `EXEC`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;

use crate::apart::is_apart;
use crate::buffer::Buffer;
use crate::clock::now;
use crate::command::{Command, Env, Run};
use crate::commands::{self, COMMANDS};
use crate::context::Looks;
use crate::databases::{DatabaseMap, Seen};
use crate::dispatch;
use crate::durability::Durability;
use crate::engine::{self, Error, Stage, Tx};
use crate::events::Ticket;
use crate::failpoints::Step;
use crate::form::{KeysAt, flag, is};
use crate::meter::{LONG, Metered, Spent};
use crate::refusals::Refusals;
use crate::reply::Reply;
use crate::request::{Batch, number};
use crate::scripts::Long;
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::touching::{Touched, Touching};
use crate::work::{Class, PutOff, Work};

/// Bytes of replies from which on a batch stops, to be sent first.
const REPLY: usize = 256 << 10;

/// Bytes of strings that the requests of a batch write, at most, before each is run alone; and those that one may write, or a transaction.
const WRITTEN: u64 = 16 << 20;
const WRITTEN_MAX: u64 = 1 << 30;
/// Requests between `MULTI` and `EXEC` from which on they are not tried on a thread that serves others.
const QUEUED: usize = 4096;

/// What a connection has, and lends to a job.
pub(crate) struct Parts {
    /// Apart, since parts are moved much.
    pub(crate) session: Box<Session>,
    pub(crate) reply: Reply,
    /// What the requests' arguments are found in.
    pub(crate) input: Buffer,
    pub(crate) batch: Batch,
    /// The command of each request, with its number; none if there is no such command.
    pub(crate) commands: Vec<Option<(usize, &'static Command)>>,
    /// The last request was run: neither refused nor queued.
    pub(crate) ran: bool,
    /// Where in the reply the answer to it begins.
    pub(crate) mark: usize,
    /// The request of the batch that was found to take too long for a thread that serves others.
    pub(crate) heavy: Option<usize>,
}

impl Parts {
    pub(crate) fn new(session: Session) -> Self {
        let (reply, input, batch, commands) = (Reply::new(), Buffer::new(), Batch::default(), Vec::new());
        Self { session: Box::new(session), reply, input, batch, commands, ran: false, mark: 0, heavy: None }
    }
}

/// Some of a connection's requests.
pub(crate) struct Job {
    pub(crate) parts: Parts,
    /// The requests that are to be run, and behind the run those that are not yet.
    from: usize,
    pub(crate) to: usize,
    /// Those behind the last that was run.
    pub(crate) done: usize,
    errors: u64,
    /// Keys that commands which read have found, and have not.
    looks: (u64, u64),
    exec: Option<BTreeMap<Vec<u8>, Seen>>,
    /// The answers to those of its requests that [act once](commands::acts_once), by their numbers: they are not run again with their transaction.
    answered: BTreeMap<usize, Vec<u8>>,
    /// What was in the reply before, and which database was used.
    base: usize,
    db: u8,
    /// The version of the protocol was 3.
    three: bool,
    /// It takes too long for a thread that serves others, or has to wait.
    heavy: bool,
    /// That it has to wait is all that is known.
    waits: bool,
    /// Clients that wait were told of it.
    woken: bool,
    /// What its keys need was asked for with that of others.
    pub(crate) prefetched: bool,
    /// What is to be told when it is committed.
    ticket: Option<Ticket<Shared>>,
    touched: Touched,
    early: Early,
}

/// The answer of a client that settles for less than the commit.
enum Early {
    /// It does not.
    No,
    /// It is sent here.
    To(oneshot::Sender<Reply>),
    Sent,
    /// ... and what it was about is in doubt.
    Lost,
}

impl Job {
    /// Requests `from..to` of a batch.
    pub(crate) fn batch(mut parts: Parts, requests: std::ops::Range<usize>) -> Self {
        let (base, db, three) = (parts.reply.len(), parts.session.db, parts.reply.three);
        let from = requests.start;
        let heavy = parts.heavy == Some(from);
        // What is known to be heavy is alone, and those before it do not wait for it.
        let to = match parts.heavy {
            Some(at) if at >= from => requests.end.min(at.max(from + 1)),
            _ => requests.end,
        };
        note_reads(&mut parts, from..to, false);
        Self {
            parts,
            from,
            to,
            done: from,
            errors: 0,
            looks: (0, 0),
            exec: None,
            answered: BTreeMap::new(),
            base,
            db,
            three,
            heavy,
            waits: false,
            woken: false,
            prefetched: false,
            ticket: None,
            touched: Touched::Unknown,
            early: Early::No,
        }
    }

    /// A script: what it publishes waits until it is durable.
    pub(crate) fn script(mut parts: Parts, at: usize) -> Self {
        parts.session.deferred = Some(Vec::new());
        Self::batch(parts, at..at + 1)
    }

    /// What was queued, if what was watched is as it was.
    pub(crate) fn exec(mut parts: Parts) -> Self {
        let watched = std::mem::take(&mut parts.session.watched);
        parts.session.deferred = Some(Vec::new());
        let (base, db, to) = (parts.reply.len(), parts.session.db, parts.batch.len());
        let three = parts.reply.three;
        note_reads(&mut parts, 0..to, true);
        Self {
            parts,
            from: 0,
            to,
            done: 0,
            errors: 0,
            looks: (0, 0),
            exec: Some(watched),
            answered: BTreeMap::new(),
            base,
            db,
            three,
            heavy: to > QUEUED,
            waits: false,
            woken: false,
            prefetched: false,
            ticket: None,
            touched: Touched::Unknown,
            early: Early::No,
        }
    }

    /// Its client has its answer as soon as the commit has come to where that is enough for it: from here, if it does. Not one that is told of other things beside its answers, or of none.
    pub(crate) fn settle(&mut self) -> Option<oneshot::Receiver<Reply>> {
        let session = &self.parts.session;
        let hears = session.replies == Replies::On && !session.listens() && !session.tracking.is_on();
        if !hears || !self.changes() || session.durability() == Durability::Quorum {
            return None;
        }
        let (to, answer) = oneshot::channel();
        self.early = Early::To(to);
        Some(answer)
    }

    /// An early answer has not gone, or not all of it: it goes with what comes next. Where it is false by now, only what stood before it does; its own began there.
    pub(crate) fn take_back(&mut self, mut reply: Reply, (own, mark): (usize, usize)) {
        if matches!(self.early, Early::Lost) {
            if reply.sent > own {
                return;
            }
            reply.truncate(own);
        }
        (self.parts.reply, self.parts.mark) = (reply, mark);
    }

    /// Runs one request, with an error of its own as its reply.
    fn run_one(&mut self, tx: &mut dyn Tx, at: usize, now: u64, looks: &mut Looks) -> engine::Result<()> {
        let Parts { session, reply, input, batch, commands, .. } = &mut self.parts;
        let mark = reply.len();
        let Some((_, command)) = commands.get(at).copied().flatten() else { return Ok(()) };
        let args = batch.arguments(at, input);
        let once = self.exec.is_some() && commands::acts_once(command, &args);
        if once && let Some(answer) = self.answered.get(&at) {
            reply.raw(answer);
            self.errors += u64::from(answer.starts_with(b"-"));
            return Ok(());
        }
        match dispatch::run(command, &args, &mut Env { tx, session, now, looks, commands: &COMMANDS }, reply) {
            Ok(()) if reply.is_full() => return Err(Error::Limit(reply.too_long())),
            Ok(()) => {}
            Err(stop) => {
                let text = stop.answer()?;
                reply.truncate(mark);
                reply.error_bytes(&text);
                self.errors += 1;
            }
        }
        if once {
            self.answered.insert(at, reply.bytes().get(mark..).unwrap_or_default().to_vec());
        }
        Ok(())
    }

    /// Whether its thread has all the time that it takes. In a full store what takes something out has the room that this thread has; another one may find none.
    fn may_take_long(&self) -> bool {
        is_apart() || self.changes() && self.parts.session.shared.was_full_lately()
    }

    /// Whether all that is watched is as it was; to look takes time, as commands do.
    fn is_as_watched(&self, tx: &mut dyn Tx, databases: DatabaseMap, spent: &mut Spent) -> engine::Result<bool> {
        let session = &self.parts.session;
        let (shared, failpoints) = (&session.shared, session.shared.failpoints);
        let metered = Metered::new(tx, *spent, self.may_take_long());
        for (key, seen) in self.exec.iter().flatten().filter(|_| !failpoints.skips(Step::Watched)) {
            let now = databases.seen(&metered, key)?;
            let forgets = failpoints.skips(Step::SeenDatabase);
            let version = |seen: &Seen| seen.map(|(version, _)| version);
            let is_same = now == *seen || forgets && version(&now) == version(seen);
            let swaps = key.first().and_then(|number| session.watched_swaps.get(number));
            let is_swapped = |swaps: &u64| shared.databases.is_swapped(&metered, key, *seen, *swaps);
            if swaps.map_or(Ok(false), is_swapped)? && !forgets || !is_same {
                return Ok(false);
            }
        }
        spent.nanos = metered.nanos();
        Ok(true)
    }

    /// Runs all that are to be run.
    fn run_all(&mut self, tx: &mut dyn Tx, now: u64, databases: DatabaseMap, spent: Spent) -> engine::Result<()> {
        let failpoints = self.parts.session.shared.failpoints;
        let alone = self.exec.is_some() || self.to == self.from + 1;
        let mut looks = Looks::new(if alone { WRITTEN_MAX } else { WRITTEN }, databases);
        (looks.whole, looks.spent, looks.apart) = (self.exec.is_some(), spent, self.may_take_long());
        for at in self.from..self.to {
            if self.exec.is_none() {
                looks.spent.begin_request();
            }
            self.parts.session.script.request = at;
            let turn = if failpoints.skips(Step::InOrder) { self.from + self.to - 1 - at } else { at };
            match self.run_one(tx, turn, now, &mut looks) {
                Ok(()) => {}
                // Those before it are run again without it.
                Err(Error::TooLong) if self.exec.is_none() && at > self.from => {
                    (self.to, self.parts.heavy) = (at, Some(at));
                    return Err(Error::Again);
                }
                Err(error) => {
                    self.heavy = error == Error::TooLong;
                    return Err(error);
                }
            }
            self.looks = looks.counts();
            self.done = at + 1;
            let much = self.parts.reply.len() - self.base > REPLY || looks.spent.nanos > LONG && !looks.apart;
            if self.exec.is_none() && much {
                break;
            }
        }
        let shared = &self.parts.session.shared;
        self.ticket = shared.events.ticket(shared, std::mem::take(&mut looks.told));
        Ok(())
    }

    /// The connection is as before the first attempt: it hears nothing of this one, and what `SELECT` and `HELLO` have set in it is forgotten.
    fn undo(&mut self) {
        self.ticket = None;
        let Parts { session, reply, .. } = &mut self.parts;
        if let Some(deferred) = &mut session.deferred {
            deferred.clear();
        }
        reply.truncate(self.base);
        if session.db != self.db || reply.three != self.three {
            (session.db, reply.three) = (self.db, self.three);
            let mut state = session.client.state.lock();
            (state.db, state.three) = (self.db, self.three);
        }
    }

    /// Of several requests the keys are known before the first is run.
    pub(crate) fn prefetch_all<'j>(jobs: impl Iterator<Item = &'j Self>, tx: &dyn Tx) {
        let (mut stored, mut ends) = (Vec::with_capacity(1024), Vec::with_capacity(64));
        for job in jobs {
            let Parts { session, input, batch, commands, .. } = &job.parts;
            let db = session.shared.databases.now().of(session.db);
            for at in job.from..job.to {
                // The first key is enough: most commands have no other.
                if let Some((_, command)) = commands.get(at).copied().flatten()
                    && let KeysAt::Range(first, ..) = command.keys
                {
                    let key = batch.arguments(at, input).get(first);
                    if key.len() < 256 {
                        stored.push(db);
                        stored.extend_from_slice(key);
                        ends.push(stored.len());
                    }
                }
            }
        }
        let mut from = 0;
        let keys: Vec<&[u8]> = ends.iter().map(|end| &stored[std::mem::replace(&mut from, *end)..*end]).collect();
        tx.prefetch(&keys);
    }

    /// Counts what came of what was run.
    pub(crate) fn count_outcome(&mut self) {
        let refused = std::mem::take(&mut self.parts.session.script.refused);
        let recorder = &self.parts.session.recorder;
        recorder.errors.add(self.errors + refused);
        if !self.writes() {
            recorder.hits.add(self.looks.0);
            recorder.misses.add(self.looks.1);
        }
    }

    /// Counts what was run.
    pub(crate) fn count(&mut self) {
        self.count_outcome();
        let session = &self.parts.session;
        let recorder = &session.recorder;
        recorder.commands.add((self.done - self.from) as u64);
        let mut last = None;
        for (number, _) in self.parts.commands[self.from..self.done].iter().flatten() {
            recorder.calls[*number].add(1);
            last = Some(*number);
        }
        if let Some(last) = last {
            session.client.last_command.store(last as u64, Relaxed);
        }
    }

    /// It is committed: subscribers are told what has become of keys.
    pub(crate) fn tell(&mut self) {
        if self.parts.session.shared.failpoints.skips(Step::NotedFirst) {
            note_keys(&mut self.parts, self.from..self.to, self.exec.is_some());
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.tell();
        }
        if self.parts.session.shared.tracking.any() && self.touched != Touched::Told && self.changes() {
            let touched = std::mem::replace(&mut self.touched, Touched::Told);
            let session = &self.parts.session;
            session.shared.tell_touched(touched, &session.tracking.author());
        }
        // Behind what it has changed itself: that takes a moment which was noted before.
        let Session { shared, tracking, .. } = &mut *self.parts.session;
        if !tracking.due.is_empty() {
            shared.cut_off(tracking.note_due(|| shared.settings().subscriber));
        }
    }

    /// The same; and keys of lists, sorted sets and streams that were written: a client may wait for them.
    pub(crate) fn wake(&mut self) {
        self.tell();
        if std::mem::replace(&mut self.woken, true) {
            return;
        }
        let shared = &self.parts.session.shared;
        if !shared.readers.any() && !shared.waiters.any() || shared.failpoints.skips(Step::Woken) {
            return;
        }
        let groups = shared.readers.any_of_group();
        // Each key once: of one that waits longest and finds something there the next learns, when there may be more.
        let mut woken = BTreeSet::new();
        let mut wake = |key: &[u8]| {
            if woken.insert(key.to_vec()) {
                shared.waiters.wake(key);
                shared.readers.wake(key);
            }
        };
        let mut db = self.db;
        for at in self.from..self.done {
            let Some((_, command)) = self.parts.commands.get(at).copied().flatten() else { continue };
            let args = self.parts.batch.arguments(at, &self.parts.input);
            if command.name == "select" {
                db = number(args.get(1)).and_then(|db| u8::try_from(db).ok()).unwrap_or(db);
            }
            dispatch::woken(command, &args, db, groups, |key| wake(&key));
        }
        self.parts.session.script.woken.iter().for_each(|key| wake(key));
    }
}

/// Notes the keys that a client is about to read, if it is to be told of their changes. `whole` is what stands between `MULTI` and `EXEC`.
fn note_reads(parts: &mut Parts, requests: std::ops::Range<usize>, whole: bool) {
    if !parts.session.shared.failpoints.skips(Step::NotedFirst) {
        note_keys(parts, requests, whole);
    }
}

fn note_keys(parts: &mut Parts, requests: std::ops::Range<usize>, whole: bool) {
    let Some(mode) = parts.session.tracking.mode().filter(|mode| !mode.broadcast) else { return };
    let (mut said, mut keys) = (parts.session.tracking.said, Vec::new());
    for at in requests {
        let Some((_, command)) = parts.commands.get(at).copied().flatten() else { continue };
        let args = parts.batch.arguments(at, &parts.input);
        if command.name == "client" {
            let word = if mode.opt_in { "YES" } else { "NO" };
            said |= is(args.get(1), "CACHING") && is(args.get(2), word);
            continue;
        }
        // What a script reads of the keys that it is given is not known before.
        let reads = command.is(flag::READ) || matches!(command.run, Run::Script(_));
        if reads && mode.notes(said) {
            keys.extend(command.keys(&args));
        }
        said &= whole;
    }
    let Session { shared, tracking, .. } = &mut *parts.session;
    shared.cut_off(tracking.note(&keys, || shared.settings().subscriber));
}

impl Work for Job {
    fn attempt(&mut self, tx: &mut dyn Tx) -> engine::Result<()> {
        self.undo();
        self.parts.session.script.begin();
        self.parts.session.tracking.due.clear();
        self.parts.session.flushed = false;
        (self.heavy, self.waits, self.woken) = (false, false, false);
        self.errors = 0;
        let now = now();
        let databases = self.parts.session.shared.databases.now();
        let mut spent = Spent::default();
        if self.exec.is_some() {
            match self.is_as_watched(tx, databases, &mut spent) {
                Ok(true) => {}
                Ok(false) => {
                    self.parts.reply.null_array();
                    self.done = self.to;
                    self.touched = Touched::Keys(Vec::new());
                    return Ok(());
                }
                Err(error) => {
                    self.heavy = error == Error::TooLong;
                    return Err(error);
                }
            }
            self.parts.reply.array(self.to);
        }
        if self.to - self.from > 1 && !self.prefetched {
            Self::prefetch_all(std::iter::once(&*self), tx);
        }
        if !self.parts.session.shared.tracking.any() {
            self.touched = Touched::Unknown;
            return self.run_all(tx, now, databases, spent);
        }
        let mut touching = Touching::new(tx);
        let ran = self.run_all(&mut touching, now, databases, spent);
        self.touched = if self.parts.session.flushed { Touched::All } else { touching.touched() };
        ran
    }
    fn writes(&self) -> bool {
        // What was watched is looked at with the rest, or it could change in between.
        let commands = &self.parts.commands[self.from..self.to];
        self.exec.is_some() || commands.iter().flatten().any(|(_, command)| command.is(flag::WRITE | flag::MAY_WRITE))
    }

    fn changes(&self) -> bool {
        let commands = &self.parts.commands[self.from..self.to];
        commands.iter().flatten().any(|(_, command)| command.is(flag::WRITE | flag::MAY_WRITE))
    }

    fn is_alone(&self) -> bool {
        self.exec.as_ref().is_some_and(|watched| !watched.is_empty())
    }

    fn bytes(&self) -> usize {
        let args = |at| self.parts.batch.arguments(at, &self.parts.input).from(0);
        (self.from..self.to).flat_map(args).map(<[u8]>::len).sum()
    }

    fn narrow(&mut self) -> bool {
        let wide = self.exec.is_none() && self.to > self.from + 1;
        if wide {
            self.to = self.from + 1;
        }
        wide
    }

    fn is_one(&self) -> bool {
        self.exec.is_some() || self.to <= self.from + 1
    }

    fn class(&self) -> Class {
        let mut class = Class::Data;
        for (_, command) in self.parts.commands[self.from..self.to].iter().flatten() {
            match command.run {
                Run::Script(_) => return Class::Script,
                _ if matches!(command.name, "flushall" | "flushdb" | "swapdb") => class = Class::Flush,
                _ => {}
            }
        }
        class
    }

    fn leaves(&self) -> bool {
        self.parts.session.script.leaves
    }

    fn is_heavy(&self) -> bool {
        self.heavy
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn put_off(&mut self, why: PutOff) {
        (self.heavy, self.waits) = (true, why == PutOff::Waits);
        if self.exec.is_none() && !self.waits {
            self.parts.heavy = Some(self.from);
        }
        self.undo();
        // It has changed nothing, and read nothing.
        self.touched = Touched::Keys(Vec::new());
        self.parts.session.tracking.due.clear();
        (self.done, self.errors) = (self.from, 0);
    }

    fn has_entered(&mut self, waited: u64) {
        if let Some(long) = &self.parts.session.script.long {
            long.has_entered(waited);
        }
    }

    fn ended_apart(&mut self) {
        // One that found nothing, and waits, would wake itself.
        let waits = |command: &Command| matches!(command.run, Run::Block(..) | Run::Read(_));
        let commands = &self.parts.commands[self.from..self.to];
        if self.exec.is_none() && commands.iter().flatten().any(|(_, command)| waits(command)) {
            self.tell();
        } else {
            self.wake();
        }
    }

    fn stay(&mut self, long: Option<std::sync::Arc<Long>>) {
        let script = &mut self.parts.session.script;
        (script.long, script.leaves) = (long, false);
    }

    fn is_long(&self) -> bool {
        self.parts.session.script.long.is_some()
    }

    fn settles_for(&self) -> Option<Stage> {
        if let Early::To(_) = self.early { self.parts.session.durability().stage() } else { None }
    }

    fn answer_early(&mut self) {
        // It may have asked for silence meanwhile.
        if self.parts.session.replies != Replies::On {
            return;
        }
        if let Early::To(to) = std::mem::replace(&mut self.early, Early::Sent) {
            // With those before it, which were not sent yet.
            drop(to.send(self.parts.reply.take()));
            (self.base, self.parts.mark) = (0, 0);
            self.parts.session.recorder.early.add(1);
        }
    }

    fn flushed(&mut self) {
        self.ticket = None;
        self.touched = Touched::All;
        self.parts.reply.truncate(self.base);
        self.parts.reply.ok();
        self.done = self.to;
    }

    fn end_in_doubt(&mut self, error: &Error) {
        self.undo();
        if let Early::Sent = self.early {
            self.early = Early::Lost;
            let session = &mut self.parts.session;
            session.closing = true;
            session.recorder.early_lost.add(1);
            return session.shared.refusals.note(error);
        }
        let replies = if self.exec.is_some() { 1 } else { self.done - self.from };
        let text = text(error, &self.parts.session.shared.refusals);
        (0..replies).for_each(|_| self.parts.reply.error(&text));
        self.errors = replies as u64;
    }

    fn fail(&mut self, error: &Error) {
        if !matches!(error, Error::InDoubt(_)) {
            self.touched = Touched::Keys(Vec::new());
        }
        self.undo();
        self.errors = 1;
        let text = text(error, &self.parts.session.shared.refusals);
        self.parts.reply.error(&text);
        self.done = self.to;
    }
}

/// What Redis would say.
pub(crate) fn text(error: &Error, refusals: &Refusals) -> String {
    match error {
        Error::Full(_) | Error::LogFull(_) => {
            refusals.note(error);
            "MISCONF Errors writing to the AOF file: No space left on device".to_owned()
        }
        Error::Memory(_) => {
            refusals.note(error);
            "OOM command not allowed when used memory > 'maxmemory'.".to_owned()
        }
        Error::InDoubt(why) => {
            refusals.note(error);
            format!("MISCONF this write is in doubt: it may or may not be there after a restart: {why}")
        }
        Error::Stopped(why) => {
            refusals.note(error);
            format!("MISCONF Errors writing to the AOF file: this command has written nothing: {why}")
        }
        Error::Elsewhere(why) => format!("READONLY {why}"),
        Error::Damaged(why) => {
            refusals.note(error);
            format!("ERR {why}")
        }
        other => format!("ERR {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands before a reply takes some of the room: one that something was left out of is not sent.
    #[test]
    fn a_reply_that_has_no_room_behind_others_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = kv::Options::new().create(dir.path().join("s")).unwrap();
        let shared = crate::shared::tests::shared(Box::new(engine::Kv::new(store)));
        let mut parts = Parts::new(crate::session::tests::session(&shared));
        parts.batch.push_words([&b"COMMAND"[..], b"LIST"].into_iter());
        parts.commands = vec![crate::commands::find(b"command")];
        for (most, before, fits) in [(1 << 20, 1000, true), (4000, 1000, false), (4000, 0, false)] {
            parts.reply = Reply::up_to(most);
            parts.reply.bulk(&vec![b'x'; before]);
            let mut job = Job::batch(parts, 0..1);
            let mut ran = None;
            let mut run = |tx: &mut dyn Tx| {
                let mut looks = Looks::new(WRITTEN, job.parts.session.shared.databases.now());
                ran = Some(job.run_one(tx, 0, 1, &mut looks));
                Ok(())
            };
            shared.engine.read(&mut run).unwrap();
            assert_eq!(matches!(ran, Some(Ok(()))), fits, "{before} of {most}: {ran:?}");
            assert!(fits || matches!(&ran, Some(Err(Error::Limit(why))) if why.contains("4000 bytes")), "{ran:?}");
            parts = job.parts;
        }
    }
}
