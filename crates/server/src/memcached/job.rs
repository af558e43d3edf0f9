//! Requests of one connection that run in one transaction.

use std::sync::Arc;

use super::Turn;
use super::line::Verb;
use super::meta::{complete, is_pending, with_version};
use super::request::{Batch, Request};
use crate::apart::is_apart;
use crate::buffer::Buffer;
use crate::clock::now;
use crate::context::Context;
use crate::data::stored;
use crate::engine::{self, Error, Tx};
use crate::meter::{LONG, Metered, Spent};
use crate::metrics::Recorder;
use crate::refusals::Refusals;
use crate::reply::Reply;
use crate::shared::Shared;
use crate::touching::{Touched, Touching};
use crate::tracking::Author;
use crate::work::{Class, PutOff, Work};

/// Bytes of replies from which on a batch stops, to be sent first.
const REPLY: usize = 256 << 10;
/// Bytes of requests that are one transaction, unless one has more.
const BYTES: usize = 1 << 20;
/// Keys that are fetched from memory together.
const KEYS: usize = 256;

/// What a connection has, and lends to a job.
pub(super) struct Parts {
    pub(super) shared: Arc<Shared>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) reply: Reply,
    /// What the requests are found in.
    pub(super) input: Buffer,
    pub(super) batch: Batch,
}

/// Some of a connection's requests.
pub(super) struct Job {
    pub(super) parts: Parts,
    /// The requests that are to be run, and behind the run those that are not yet.
    from: usize,
    to: usize,
    /// Those behind the last that was run.
    pub(super) done: usize,
    turn: Turn,
    errors: u64,
    /// A read has found that it must write.
    found: bool,
    /// ... so it is run as what writes.
    forced: bool,
    /// The answer of a write whose version is only to be had now.
    versionless: Option<Vec<u8>>,
    /// It takes too long for a thread that serves others, or has to wait.
    heavy: bool,
    /// What was in the reply before.
    base: usize,
    touched: Touched,
}

impl Job {
    /// Requests of the batch from `from` on, as many as can be one transaction.
    pub(super) fn new(parts: Parts, from: usize) -> Self {
        let base = parts.reply.len();
        let to = together(&parts, from);
        Self {
            parts,
            from,
            to,
            done: from,
            turn: Turn::default(),
            errors: 0,
            found: false,
            forced: false,
            versionless: None,
            heavy: false,
            base,
            touched: Touched::Unknown,
        }
    }

    fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        (self.from..self.to).filter_map(|at| self.parts.batch.get(at, &self.parts.input))
    }

    /// Whether its answer lacks a version, which it is to be run for once more.
    pub(super) fn lacks_version(&mut self) -> bool {
        let answer = &self.parts.reply.bytes()[self.base..];
        // Such a request is alone.
        let pending = self.requests().next().is_some_and(|one| one.tells_versions() && is_pending(&one, answer));
        self.versionless = pending.then(|| answer.to_vec());
        pending
    }

    /// Of several keys all are known before the first is looked at.
    fn prefetch(&self, tx: &dyn Tx) {
        let db = self.parts.shared.databases.now().of(0);
        let keys: Vec<Vec<u8>> =
            self.requests().flat_map(|one| one.keys()).take(KEYS).map(|key| stored(db, key)).collect();
        if keys.len() > 1 {
            tx.prefetch(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }

    /// Counts what was run.
    pub(super) fn count(&self) {
        let recorder = &self.parts.recorder;
        let asked = self.requests().take(self.done - self.from).filter(|one| one.verb != Verb::Touches);
        recorder.commands.add(asked.count() as u64);
        recorder.batches.add(1);
        recorder.errors.add(self.errors);
        recorder.hits.add(self.turn.hits);
        recorder.misses.add(self.turn.misses);
    }

    /// Tells clients that read streams for groups: what was written may stand where a stream was.
    pub(super) fn wake(&mut self) {
        // Also of one that was run once more for a version.
        if self.forced || self.requests().any(|one| one.writes()) {
            self.parts.shared.tell_touched(std::mem::replace(&mut self.touched, Touched::Told), &Author::default());
        }
        let readers = &self.parts.shared.readers;
        if !readers.any_of_group() {
            return;
        }
        for one in self.requests().take(self.done - self.from).filter(Request::writes) {
            // A key that is not there as it is in the store may be any.
            if one.has_flag(b"b") {
                readers.wake(&[]);
            }
            one.keys().for_each(|key| readers.wake(&stored(0, key)));
        }
    }

    /// Runs one request, with an error of its own as its reply.
    fn run_one(&mut self, tx: &mut dyn Tx, at: usize, now: u64, apart: bool, spent: &mut Spent) -> engine::Result<()> {
        let Parts { shared, reply, input, batch, .. } = &mut self.parts;
        let Some(request) = batch.get(at, input) else { return Ok(()) };
        let mark = reply.len();
        let databases = shared.databases.now();
        let db = databases.of(0);
        if shared.evictor.notes() {
            let writes = request.writes();
            request.keys().for_each(|key| shared.evictor.note_key(&shared.random, &stored(db, key), writes, now));
        }
        let mut looks = crate::context::Looks::new(0, databases);
        (looks.apart, looks.spent) = (apart, *spent);
        let mut metered = Metered::new(tx, *spent, looks.apart);
        let mut context = Context { tx: &mut metered, reply, db, now, shared, looks };
        let outcome = match &self.versionless {
            Some(answer) => complete(&mut context, &request, answer),
            None => super::run(&mut context, &request, &mut self.turn),
        };
        spent.nanos = metered.nanos();
        match outcome {
            Ok(()) => {}
            Err(stop) => {
                let text = stop.answer()?;
                reply.truncate(mark);
                reply.raw(&text);
                reply.raw(b"\r\n");
                self.errors += 1;
            }
        }
        if matches!(request.verb, Verb::Refused(_) | Verb::TooLarge) {
            self.errors += 1;
        }
        if request.quiet {
            reply.truncate(mark);
        }
        Ok(())
    }
}

impl Job {
    /// Runs all that are to be run.
    fn run_all(&mut self, tx: &mut dyn Tx, now: u64) -> engine::Result<()> {
        let mut spent = Spent::default();
        // As of Redis' protocol: in a full store what takes something out has the room that this thread has.
        let apart = is_apart() || self.changes() && self.parts.shared.was_full_lately();
        for at in self.from..self.to {
            spent.begin_request();
            match self.run_one(tx, at, now, apart, &mut spent) {
                // On its own, next time.
                Err(Error::Conflict(_)) if !self.turn.writable && at > self.from => break,
                // Those before it are run again without it.
                Err(Error::TooLong) if at > self.from => {
                    self.to = at;
                    return Err(Error::Again);
                }
                Err(error) => {
                    self.heavy = error == Error::TooLong;
                    self.found = !self.turn.writable && matches!(error, Error::Conflict(_));
                    return Err(error);
                }
                Ok(()) => {}
            }
            self.done = at + 1;
            if self.parts.reply.len() - self.base > REPLY || spent.nanos > LONG && !apart {
                break;
            }
        }
        Ok(())
    }
}

/// The end of the requests from `from` on that can be one transaction. A request that tells the version of an item reads it where nothing is written; if it
/// writes the item itself, no other one's answer is to be written again.
fn together(parts: &Parts, from: usize) -> usize {
    let (mut writes, mut tells, mut bytes) = (false, false, 0);
    let mut to = from;
    while let Some(request) = parts.batch.get(to, &parts.input) {
        writes |= request.writes();
        tells |= request.tells_versions();
        bytes += request.bytes();
        if to > from && (writes && tells || bytes > BYTES) {
            break;
        }
        to += 1;
    }
    to
}

impl Work for Job {
    fn attempt(&mut self, tx: &mut dyn Tx) -> engine::Result<()> {
        self.parts.reply.truncate(self.base);
        self.heavy = false;
        if self.versionless.is_none() {
            self.errors = 0;
            self.turn = Turn { writable: self.writes(), ..Turn::default() };
        }
        let now = now();
        self.prefetch(tx);
        if !self.parts.shared.tracking.any() {
            self.touched = Touched::Unknown;
            return self.run_all(tx, now);
        }
        let mut touching = Touching::new(tx);
        let ran = self.run_all(&mut touching, now);
        // What is run once more for its version alone writes nothing.
        if self.versionless.is_none() {
            self.touched = touching.touched();
        }
        ran
    }

    fn writes(&self) -> bool {
        self.versionless.is_none() && (self.forced || self.requests().any(|one| one.writes()))
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        self.requests().map(|one| one.bytes()).sum()
    }

    fn narrow(&mut self) -> bool {
        let wide = self.to > self.from + 1;
        self.to = self.to.min(self.from + 1);
        let now_forced = self.found && !self.forced;
        self.forced |= self.found;
        wide || now_forced
    }

    fn is_one(&self) -> bool {
        self.to <= self.from + 1
    }

    fn class(&self) -> Class {
        if self.requests().any(|one| one.verb == Verb::FlushAll) { Class::Flush } else { Class::Data }
    }

    fn is_heavy(&self) -> bool {
        self.heavy
    }

    fn put_off(&mut self, _: PutOff) {
        self.heavy = true;
        self.parts.reply.truncate(self.base);
        self.done = self.from;
        // What is run once more for its version alone was committed before.
        if self.versionless.is_none() {
            (self.touched, self.errors) = (Touched::Keys(Vec::new()), 0);
        }
    }

    fn flushed(&mut self) {
        self.touched = Touched::All;
    }

    fn end_in_doubt(&mut self, error: &Error) {
        self.parts.reply.truncate(self.base);
        let text = text(error, &self.parts.shared.refusals);
        let loud = self.requests().take(self.done - self.from).filter(|one| !one.quiet).count();
        (0..loud).for_each(|_| self.parts.reply.raw(text.as_bytes()));
        self.errors = (self.done - self.from) as u64;
    }

    fn fail(&mut self, error: &Error) {
        let quiet = self.requests().next().is_some_and(|one| one.quiet);
        self.parts.reply.truncate(self.base);
        self.done = self.to;
        let text = text(error, &self.parts.shared.refusals);
        // The write was done: only its version is not known.
        if let Some(answer) = self.versionless.take() {
            return self.parts.reply.raw(&with_version(&answer, 0));
        }
        self.errors = 1;
        // A client that waits for no answer would take it for that of its next request.
        if !quiet {
            self.parts.reply.raw(text.as_bytes());
        }
    }
}

fn text(error: &Error, refusals: &Refusals) -> String {
    refusals.note(error);
    match error {
        Error::Full(_) | Error::Memory(_) | Error::LogFull(_) => {
            "SERVER_ERROR out of memory storing object\r\n".to_owned()
        }
        other => {
            let what = match other {
                Error::InDoubt(_) => "this write is in doubt: it may or may not be there after a restart: ",
                Error::Stopped(_) => "this command has written nothing: ",
                _ => "",
            };
            format!("SERVER_ERROR {what}{}\r\n", other.to_string().replace(char::is_control, " "))
        }
    }
}
