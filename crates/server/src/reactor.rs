//! Connections of Redis' protocol that a thread serves without a task for each: where a commit is a barrier, all of those that sent something take part in one.
//!
//! ```text
//!   epoll ─> read every socket that has something ─> requests on data and scripts, of all connections: one transaction ─> every reply
//!                        │                              what is large, or meets trouble: one of its own
//!                        └─> anything else, or a reply that is not taken at once ─> a future, as of a connection with a task; a task of its own once it waits
//! ```
//!
//! A connection has a slot of its own. It leaves it while a task serves it, and comes back when that has nothing to do any more. No replies are written before the transaction that
//! they are of is committed; a connection that does not take them waits in a task. Each is read once a round, so that none that sends much makes others wait.

mod desk;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use rustix::event::{Timespec, epoll};
use tokio::io::AsyncWriteExt;

pub(crate) use self::desk::Desk;
use self::desk::{Came, ConnSlot, Entry, Way};
use crate::clock::now;
use crate::command::Command;
use crate::connection::{self, Found, REPLY};
use crate::form::flag;
use crate::io::{AT_ONCE, write};
use crate::job::{Job, Parts};
use crate::line::Line;
use crate::request::Parser;
use crate::session::Session;
use crate::thread::Thread;

/// Sockets that are heard of at once.
const EVENTS: usize = 256;
/// Requests of all connections that become one transaction.
const TOGETHER: usize = 64;
/// Bytes of these, as they came.
const TOGETHER_BYTES: usize = 256 << 10;
/// Requests of one connection, and their bytes, from which on it has a transaction of its own.
const ALONE: usize = 32;
const ALONE_BYTES: usize = 64 << 10;

/// What a connection has come with.
enum Asked {
    Nothing,
    /// Requests on data, or one script; and whether they write.
    Plain {
        writes: bool,
        is_script: bool,
    },
    Other(Found),
    Gone,
}

/// The connections of a thread.
struct Reactor {
    thread: Rc<Thread>,
    desk: Rc<Desk>,
    entries: Vec<Entry>,
    free: Vec<usize>,
    events: Vec<epoll::Event>,
    /// The slots that take part in the next round; and whether there may be others, which are not told of again.
    next: Vec<usize>,
    more: bool,
    round: u64,
    /// When this round began: in milliseconds of Unix time, and by the thread's own clock.
    moment: u64,
    began: u64,
    /// Writes of this round are under way, for who begins a pause.
    under_way: Option<usize>,
    /// The jobs that were found to want a transaction that reads, or one that writes, in this round.
    reads: Group,
    writes: Group,
}

/// Those that are to have one transaction together.
#[derive(Default)]
struct Group {
    jobs: Vec<(usize, Job)>,
    requests: usize,
    bytes: usize,
}

/// Serves as long as the thread lives.
pub(crate) async fn run(thread: Rc<Thread>, desk: Rc<Desk>) {
    let mut reactor = Reactor {
        thread,
        desk,
        entries: Vec::new(),
        free: Vec::new(),
        events: Vec::with_capacity(EVENTS),
        next: Vec::new(),
        more: false,
        round: 0,
        moment: 0,
        began: 0,
        under_way: None,
        reads: Group::default(),
        writes: Group::default(),
    };
    loop {
        if reactor.next.is_empty() && !reactor.more {
            reactor.desk.wait().await;
        } else {
            // Others have their turn between rounds.
            tokio::task::yield_now().await;
        }
        std::future::poll_fn(|cx| {
            reactor.round(cx);
            Poll::Ready(())
        })
        .await;
    }
}

impl Reactor {
    /// Serves each connection once that has sent something.
    fn round(&mut self, cx: &mut Context<'_>) {
        self.slot_who_came();
        self.end_who_must();
        self.hear();
        let mut turn = std::mem::take(&mut self.next);
        self.round += 1;
        self.moment = now();
        self.began = self.thread.tick();
        for at in turn.drain(..) {
            match self.entries.get_mut(at) {
                // A connection that left its slot and came back may stand here twice.
                Some(Entry::Taken(slot)) if slot.round != self.round => slot.round = self.round,
                _ => continue,
            }
            match self.take_in(at) {
                Asked::Nothing => {}
                Asked::Gone => self.leave(at),
                Asked::Plain { writes, is_script } => self.join(at, writes, is_script, cx),
                Asked::Other(found) => self.go_on(at, Rest { found, from: 0, written: 0, began: self.began }, cx),
            }
            if let Some(Entry::Taken(slot)) = self.entries.get_mut(at) {
                slot.queued = slot.full || slot.readable;
                if slot.queued {
                    self.next.push(at);
                }
            }
        }
        self.commit(false, cx);
        self.commit(true, cx);
        if let Some(at) = self.under_way.take() {
            self.thread.shared.pauses.leave(at);
        }
        if self.next.is_empty() {
            self.next = turn; // its room
        }
    }

    fn slot_who_came(&mut self) {
        for came in self.desk.take_who_came() {
            match came {
                Came::New(socket, client, present) => {
                    let at = self.free.pop().unwrap_or(self.entries.len());
                    let Ok(line) = Line::new(socket, self.desk.epoll.get_ref().clone(), at as u64) else {
                        tracing::warn!("{}: the connection cannot be watched, and is ended", client.addr);
                        self.free.extend((at < self.entries.len()).then_some(at));
                        continue;
                    };
                    client.keep_waker(&self.desk.ring(at));
                    let session =
                        Session::new(self.thread.shared.clone(), self.thread.recorder.clone(), client.clone());
                    let (parser, parts) = (Parser::default(), Some(Parts::new(session)));
                    let (readable, hung, full, queued) = (false, false, false, false);
                    let slot = ConnSlot {
                        at,
                        line,
                        client,
                        parser,
                        parts,
                        readable,
                        hung,
                        full,
                        queued,
                        round: 0,
                        _present: present,
                    };
                    if at == self.entries.len() {
                        self.entries.push(Entry::Free);
                    }
                    self.sit(Box::new(slot));
                }
                Came::Back(slot) => {
                    slot.client.keep_waker(&self.desk.ring(slot.at));
                    self.take_back(slot, true);
                }
                Came::Left(at) => self.leave(at),
            }
        }
    }

    /// A future is done with a connection. What that has missed meanwhile it looks for.
    fn take_back(&mut self, mut slot: Box<ConnSlot>, was_away: bool) {
        let at = slot.at;
        match slot.line.take_back(at as u64) {
            Ok(false) if !was_away => self.entries[at] = Entry::Taken(slot),
            Ok(_) => self.sit(slot),
            Err(error) => {
                tracing::warn!("{}: the connection cannot be watched, and is ended: {error}", slot.client.addr);
                self.leave(at);
            }
        }
    }

    /// Takes its slot, and its turn.
    fn sit(&mut self, mut slot: Box<ConnSlot>) {
        let at = slot.at;
        if slot.client.must_end() {
            return self.leave(at);
        }
        (slot.readable, slot.queued) = (true, true);
        self.next.push(at);
        self.entries[at] = Entry::Taken(slot);
    }

    fn leave(&mut self, at: usize) {
        self.entries[at] = Entry::Free;
        self.free.push(at);
    }

    fn end_who_must(&mut self) {
        for at in self.desk.take_ended() {
            // The connection there now may be another one.
            match self.entries.get_mut(at) {
                Some(Entry::Taken(slot)) if slot.client.must_end() => self.leave(at),
                // There is something to be told.
                Some(Entry::Taken(slot)) if !slot.queued => {
                    slot.queued = true;
                    self.next.push(at);
                }
                _ => {}
            }
        }
    }

    /// Learns which connections have sent something.
    fn hear(&mut self) {
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Err(error) = epoll::wait(self.desk.epoll.get_ref(), room, Some(&none))
            && error != rustix::io::Errno::INTR
        {
            tracing::error!("connections are not heard of: {error}");
        }
        for event in &self.events {
            let (at, flags) = (event.data.u64() as usize, event.flags);
            if let Some(Entry::Taken(slot)) = self.entries.get_mut(at) {
                slot.readable = true;
                let end = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                slot.hung |= flags.intersects(end);
                if !std::mem::replace(&mut slot.queued, true) {
                    self.next.push(at);
                }
            }
        }
        self.more = self.events.len() == EVENTS;
    }

    /// Reads once what a connection has sent, unless some of that is left from before, and says what is to be done.
    fn take_in(&mut self, at: usize) -> Asked {
        let Some(Entry::Taken(slot)) = self.entries.get_mut(at) else { return Asked::Nothing };
        let Some(parts) = &mut slot.parts else { return Asked::Nothing };
        if slot.client.inbox.has_some() {
            parts.batch.clear();
            parts.commands.clear();
            return Asked::Other(Found { malformed: None, full: slot.full, seen: parts.input.len() });
        }
        if !slot.full {
            let mut scratch = self.thread.scratch.borrow_mut();
            match slot.line.read_now(&mut scratch) {
                Ok(0) => return Asked::Gone,
                Ok(count) => {
                    slot.readable = count == scratch.len() || slot.hung;
                    parts.input.extend_from_slice(&scratch[..count]);
                    self.thread.recorder.read.add(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    slot.readable = false;
                    return Asked::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Asked::Nothing,
                Err(_) => return Asked::Gone,
            }
            slot.client.last_active.store(self.moment, Relaxed);
        }
        let (parser, thread) = (&mut slot.parser, &self.thread);
        let found = catch_unwind(AssertUnwindSafe(|| connection::find(parts, parser, thread)));
        let Ok(found) = found else {
            tracing::error!(
                "{}: reading a request has panicked, which is a bug; the connection is ended",
                slot.client.addr
            );
            return Asked::Gone;
        };
        slot.full = found.full;
        if parts.batch.is_empty() && found.malformed.is_none() && !parts.session.closing {
            connection::take_answered(parts, &mut slot.parser);
            return Asked::Nothing;
        }
        // Beside a script that runs long each may have to wait, and others must not.
        let plain = found.malformed.is_none() && !parts.session.closing && !self.thread.shared.scripts.any_long();
        // What is held back has to wait, too.
        let plain = plain && !self.thread.shared.pauses.any();
        let is_script = plain && connection::is_script(parts);
        if !plain || !is_script && connection::together(parts, 0) < parts.batch.len() {
            return Asked::Other(found);
        }
        let writes = |(_, command): &(usize, &Command)| command.is(flag::WRITE | flag::MAY_WRITE);
        Asked::Plain { writes: parts.commands.iter().flatten().any(writes), is_script }
    }

    /// Requests on data, or a script: with those of others, or alone if they are many.
    fn join(&mut self, at: usize, writes: bool, is_script: bool, cx: &mut Context<'_>) {
        if writes && self.under_way.is_none() {
            self.under_way = self.thread.shared.pauses.enter();
        }
        let Some(Entry::Taken(slot)) = self.entries.get_mut(at) else { return };
        let Some(parts) = slot.parts.take() else { return };
        if writes && self.under_way.is_none() {
            // A pause has begun just now.
            let found = Found { malformed: None, full: slot.full, seen: parts.input.len() };
            slot.parts = Some(parts);
            return self.go_on(at, Rest { found, from: 0, written: 0, began: self.began }, cx);
        }
        let (requests, bytes) = (parts.batch.len(), parts.input.len());
        let mut job = if is_script { Job::script(parts, 0) } else { Job::batch(parts, 0..requests) };
        let most = TOGETHER_BYTES.min(self.thread.shared.engine.together_max());
        if requests > ALONE || bytes > ALONE_BYTES.min(most) {
            let began = self.thread.tick();
            self.thread.executor.run_now(&mut job);
            let ended = self.thread.tick();
            let answered = self.answer(at, job, ended - began, cx);
            self.thread.recorder.replies.add(ended - self.began, answered.into());
            return;
        }
        if self.group(writes).bytes + bytes > most {
            self.commit(writes, cx);
        }
        let group = self.group(writes);
        group.jobs.push((at, job));
        (group.requests, group.bytes) = (group.requests + requests, group.bytes + bytes);
        if group.requests >= TOGETHER {
            self.commit(writes, cx);
        }
    }

    fn group(&mut self, writes: bool) -> &mut Group {
        if writes { &mut self.writes } else { &mut self.reads }
    }

    /// Runs those that wait for a transaction, and writes their replies.
    fn commit(&mut self, writes: bool, cx: &mut Context<'_>) {
        let mut group = std::mem::take(self.group(writes));
        if group.jobs.is_empty() {
            return;
        }
        let (thread, mut alone) = (self.thread.clone(), false);
        while !group.jobs.is_empty() {
            let began = thread.tick();
            let ran = thread.executor.run_together(&mut group.jobs, writes, &mut alone, &mut |at, reply| {
                if let Some(Entry::Taken(slot)) = self.entries.get_mut(at) {
                    drop(slot.line.write_now(reply));
                }
            });
            let took = thread.tick() - began;
            let answered =
                group.jobs.drain(..ran).filter_map(|(at, job)| self.answer(at, job, took, cx).then_some(())).count();
            thread.recorder.replies.add(thread.tick() - self.began, answered as u64);
        }
        *self.group(writes) = Group { jobs: group.jobs, ..Group::default() }; // their room
    }

    /// Its transaction is committed, or it is to be run elsewhere: writes what is to be said, and does what is left to do. True if that was all.
    fn answer(&mut self, at: usize, mut job: Job, took: u64, cx: &mut Context<'_>) -> bool {
        let thread = &self.thread;
        // What is put off has not been run: nothing is told of it, and `CLIENT CACHING` is about it still.
        if job.done > 0 {
            job.wake();
            thread.recorder.batches.add(1);
            job.count();
            connection::note_slow(&job.parts, 0..job.done, thread, took);
            connection::tell_monitors(&mut job.parts, 0..job.done);
            job.parts.session.tracking.said = false;
            job.parts.session.publish_deferred();
        }
        let Some(Entry::Taken(slot)) = self.entries.get_mut(at) else { return false };
        let all = job.done == job.parts.batch.len();
        let reply = job.parts.reply.bytes();
        // A long one goes on as what waits does, bit by bit.
        let written = if all { slot.line.write_now(&reply[..reply.len().min(AT_ONCE)]) } else { Ok(0) };
        let written = match written {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(_) => {
                self.leave(at);
                return false;
            }
        };
        if all && written == reply.len() {
            thread.recorder.written.add(written as u64);
            connection::take_answered(&mut job.parts, &mut slot.parser);
            slot.parts = Some(job.parts);
            return true;
        }
        let found = Found { malformed: None, full: slot.full, seen: job.parts.input.len() };
        let from = job.done;
        slot.parts = Some(job.parts);
        self.go_on(at, Rest { found, from, written, began: self.began }, cx);
        false
    }

    /// Goes on in a future, which goes on in a task when it has to wait.
    fn go_on(&mut self, at: usize, rest: Rest, cx: &mut Context<'_>) {
        let Entry::Taken(mut slot) = std::mem::replace(&mut self.entries[at], Entry::Away) else { return };
        let Some(parts) = slot.parts.take() else { return self.leave(at) };
        let client = slot.client.clone();
        let mut end: Pin<Box<dyn Future<Output = Option<Box<ConnSlot>>>>> =
            Box::pin(go_on(slot, parts, rest, self.thread.clone()));
        match catch_unwind(AssertUnwindSafe(|| end.as_mut().poll(cx))) {
            // It may have begun to wait, and found that it need not.
            Ok(Poll::Ready(Some(slot))) => self.take_back(slot, false),
            Ok(Poll::Ready(None)) => self.leave(at),
            Ok(Poll::Pending) => {
                // From now on that task is the one to be told.
                client.forget_waker();
                let desk = self.desk.clone();
                tokio::task::spawn_local(async move {
                    // Whatever becomes of the task.
                    let mut way = Way(desk, Some(Came::Left(at)));
                    if let Some(slot) = end.await {
                        way.1 = Some(Came::Back(slot));
                    }
                });
            }
            Err(_) => {
                tracing::error!("{}: a command has panicked, which is a bug; the connection is ended", client.addr);
                self.leave(at);
            }
        }
    }
}

/// What is left to do of requests that were found.
struct Rest {
    found: Found,
    /// The first request that is not answered.
    from: usize,
    /// Bytes of the reply that have gone.
    written: usize,
    began: u64,
}

/// Does the rest as a connection with a task does. Gives the slot back when all that was read is answered, and the answers have gone; none if the connection has ended.
async fn go_on(mut slot: Box<ConnSlot>, mut parts: Parts, rest: Rest, thread: Rc<Thread>) -> Option<Box<ConnSlot>> {
    let ConnSlot { line, client, parser, .. } = &mut *slot;
    if rest.written > 0 || parts.reply.len() > REPLY {
        parts.reply.sent = rest.written;
        write(line, &thread, client, &mut parts.reply).await.ok()?;
    }
    let mut more;
    (parts, more) = connection::answer(parts, rest.from, rest.found, parser, line, &thread).await;
    while more && !parts.session.closing {
        (parts, more) = connection::turn(parts, parser, line, &thread).await;
    }
    if !parts.session.closing {
        connection::deliver(&mut parts);
    }
    write(line, &thread, client, &mut parts.reply).await.ok()?;
    thread.recorder.replies.add(thread.tick() - rest.began, 1);
    if parts.session.closing {
        drop(line.shutdown().await);
        return None;
    }
    connection::take_answered(&mut parts, parser);
    if parts.session.listens() {
        // Messages come at any time: it stays a task as long as it subscribes.
        parts = connection::attend(parts, parser, line, &thread, true).await?;
    }
    (slot.full, slot.parts) = (false, Some(parts));
    Some(slot)
}
