//! Waiting for an element, `BLPOP` and its like; for an entry of a stream, `XREAD BLOCK` and `XREADGROUP BLOCK`; and for an answer that comes with time, `WAIT`.
//!
//! The connection registers, tries, and sleeps only if there was nothing ([`waiters`](crate::waiters)). Meanwhile it goes on to read, so that it learns when
//! its client has gone: nothing is taken out for one that is not there to get it, nor for one that does not take what it is sent. The one that
//! waits longest is woken first, and served unless another one comes in between.

use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::ended::outcome_of;
use super::messages::deliver;
use crate::client::{Blocked, Unblock};
use crate::clock::now;
use crate::command::{Ask, Asked, Timeout, WaitLimit};
use crate::data::stored;
use crate::form::streams;
use crate::io::{Heard, hear, write};
use crate::job::{Job, Parts};
use crate::readers::{Reading, Since};
use crate::thread::Thread;
use crate::waiters::Waiting;

/// Bytes that may be sent while one waits.
const AHEAD: usize = 1 << 20;
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
const NO_ANSWER: &str = "ERR internal error: the command has given no answer in its time; next: ask again";
const NOTHING: [&[u8]; 3] = [b"*-1\r\n", b"$-1\r\n", b"_\r\n"];

/// Runs request `at` until it has found something, its time is over, or its client is gone.
pub(super) async fn wait(
    mut parts: Parts,
    at: usize,
    timeout: Timeout,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> Parts {
    let args = parts.batch.arguments(at, &parts.input);
    let wait_limit = match timeout.limit(&args) {
        Ok(wait_limit) => wait_limit,
        Err(error) => {
            parts.reply.error(error);
            return parts;
        }
    };
    let Some((_, command)) = parts.commands.get(at).copied().flatten() else { return parts };
    let mut keys = command.keys(&args);
    // Of these two the second is where it goes: what comes there is for others.
    if matches!(command.name, "blmove" | "brpoplpush") {
        keys.truncate(1);
    }
    let keys = keys.into_iter().map(|key| stored(parts.session.db, key)).collect();
    let waiting = thread.shared.waiters.register(keys);
    let until = wait_limit.map(|wait_limit| tokio::time::Instant::now() + wait_limit);
    let most = parts.input.len() + AHEAD;
    let client = parts.session.client.clone();
    let blocked = Blocked::of(&client.wait);
    loop {
        waiting.again();
        parts.mark = parts.reply.len();
        let mark = parts.mark;
        let mut job = thread.executor.run(Job::batch(parts, at..at + 1)).await;
        let found = !NOTHING.contains(&job.parts.reply.bytes().get(mark..).unwrap_or_default());
        if found {
            job.wake(); // it may have put something elsewhere; one that found nothing would wake itself
            job.count_outcome();
        } else {
            job.tell();
        }
        parts = job.parts;
        if found {
            break;
        }
        if parts.session.mismatched {
            waiting.pass_on();
        }
        parts.session.waited = true;
        waiting.found_nothing();
        parts.reply.truncate(mark);
        blocked.begin();
        let next = rest(&mut parts, most, stream, thread, &waiting, until).await;
        // What was in front of it may have gone, and messages come.
        parts.mark = parts.reply.len();
        match next {
            Next::Look => {}
            Next::Answer | Next::Unblocked(Unblock::Timeout) => {
                parts.reply.null_array();
                break;
            }
            Next::Unblocked(Unblock::Error) => {
                outcome_of(&mut parts.reply, parts.mark, Err(UNBLOCKED.into()), thread);
                break;
            }
            Next::End => {
                parts.session.closing = true;
                break;
            }
        }
    }
    parts.session.waited = false;
    parts
}

/// The same for request `at` that reads streams.
pub(super) async fn read(
    mut parts: Parts,
    at: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> Parts {
    let args = parts.batch.arguments(at, &parts.input);
    let Some((_, command)) = parts.commands.get(at).copied().flatten() else { return parts };
    let keys = command.keys(&args).into_iter().map(|key| stored(parts.session.db, key)).collect();
    // What is not to be waited for is an error of the command.
    let until = streams::wait_limit(&args).and_then(|wait_limit| tokio::time::Instant::now().checked_add(wait_limit));
    let reading = thread.shared.readers.register(keys, streams::group(&args));
    let most = parts.input.len() + AHEAD;
    parts.session.since = Since::of(reading.number());
    let client = parts.session.client.clone();
    let blocked = Blocked::of(&client.wait);
    let mut told = false;
    loop {
        reading.again();
        parts.mark = parts.reply.len();
        let mark = parts.mark;
        let mut job = thread.executor.run(Job::batch(parts, at..at + 1)).await;
        job.tell();
        let found = !NOTHING.contains(&job.parts.reply.bytes().get(mark..).unwrap_or_default());
        if found {
            job.count_outcome();
        }
        parts = job.parts;
        if found {
            break;
        }
        parts.session.waited = true;
        reading.found_nothing(std::mem::take(&mut told), &parts.session.since.seen);
        parts.reply.truncate(mark);
        // A stream that expires is one that goes.
        let goes = parts.session.since.ends.map(|ends| Duration::from_millis(ends.saturating_sub(now()) + 1));
        let goes = goes.and_then(|left| tokio::time::Instant::now().checked_add(left));
        let first = until.into_iter().chain(goes).min();
        blocked.begin();
        let next = rest(&mut parts, most, stream, thread, &reading, first).await;
        parts.mark = parts.reply.len();
        match next {
            Next::Look => told = true,
            Next::Answer if first != until => {}
            Next::Answer | Next::Unblocked(Unblock::Timeout) => {
                parts.reply.null_array();
                break;
            }
            Next::Unblocked(Unblock::Error) => {
                outcome_of(&mut parts.reply, parts.mark, Err(UNBLOCKED.into()), thread);
                break;
            }
            Next::End => {
                parts.session.closing = true;
                break;
            }
        }
    }
    // Its next request is not one of a client that waits.
    (parts.session.waited, parts.session.since) = (false, Since::default());
    parts
}

/// Between two looks of a client that waits for other machines.
const LOOK: Duration = Duration::from_millis(2);

/// Asks until the answer is good enough, the client's time is over, or it is gone. What it asks about is what there was when it began.
pub(super) async fn ask_again(
    mut parts: Parts,
    at: usize,
    ask: Ask,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> Parts {
    let began = tokio::time::Instant::now();
    let waiting = thread.shared.waiters.register(Vec::new());
    let most = parts.input.len() + AHEAD;
    let client = parts.session.client.clone();
    let blocked = Blocked::of(&client.wait);
    let mut asked = Asked::default();
    loop {
        parts.mark = parts.reply.len();
        let mark = parts.mark;
        let args = parts.batch.arguments(at, &parts.input);
        let outcome = ask(&parts.session, &args, &mut asked, &mut parts.reply);
        let until = match outcome {
            Ok(wait_limit) if asked.is_over || wait_limit == WaitLimit::Enough => {
                // Without an answer the client would take that to its next request for it.
                if parts.reply.len() == mark {
                    outcome_of(&mut parts.reply, mark, Err(NO_ANSWER.into()), thread);
                }
                break;
            }
            Ok(WaitLimit::Enough | WaitLimit::Forever) => None,
            Ok(WaitLimit::For(wait_limit)) => Some(began + wait_limit),
            Err(error) => {
                outcome_of(&mut parts.reply, mark, Err(error), thread);
                break;
            }
        };
        parts.reply.truncate(mark);
        let now = tokio::time::Instant::now();
        if until.is_some_and(|until| until <= now) || client.wait.how() == Some(Unblock::Timeout) {
            asked.is_over = true;
            continue;
        }
        // The others wait for a moment, and not for what their client has asked for: they are not blocked.
        if matches!(command_name(&parts, at), "wait" | "waitaof") {
            waiting.found_nothing();
            blocked.begin();
        }
        let next = now + LOOK;
        let next = rest(&mut parts, most, stream, thread, &waiting, Some(until.map_or(next, |until| until.min(next))));
        match next.await {
            Next::End => {
                parts.session.closing = true;
                break;
            }
            Next::Unblocked(Unblock::Error) => {
                let mark = parts.reply.len();
                outcome_of(&mut parts.reply, mark, Err(UNBLOCKED.into()), thread);
                break;
            }
            Next::Look | Next::Answer | Next::Unblocked(Unblock::Timeout) => {}
        }
    }
    parts
}

fn command_name(parts: &Parts, at: usize) -> &'static str {
    parts.commands.get(at).copied().flatten().map_or("", |(_, command)| command.name)
}

/// A place among those that wait.
trait Waiter {
    /// What tells it to look.
    fn notify(&self) -> &Notify;
    /// Others go first for a while.
    fn step_aside(&self);
}

impl Waiter for Waiting<'_> {
    fn notify(&self) -> &Notify {
        Waiting::notify(self)
    }
    fn step_aside(&self) {
        Waiting::step_aside(self);
    }
}

impl Waiter for Reading<'_> {
    fn notify(&self) -> &Notify {
        Reading::notify(self)
    }
    fn step_aside(&self) {
        Reading::step_aside(self);
    }
}

/// What is to be done when one has waited.
enum Next {
    Look,
    /// The time is over.
    Answer,
    /// By `CLIENT UNBLOCK`.
    Unblocked(Unblock),
    /// The client is gone.
    End,
}

/// Waits until there is a reason to look again. Meanwhile it sends what is to be said about requests before this one, and messages; a client that does not take that at once
/// lets others go first, and waits no longer than it has asked for.
async fn rest(
    parts: &mut Parts,
    most: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
    waiting: &impl Waiter,
    until: Option<tokio::time::Instant>,
) -> Next {
    let client = parts.session.client.clone();
    client.blocked.store(true, Relaxed);
    let next = until_there_is_something(parts, most, stream, thread, waiting, until).await;
    client.blocked.store(false, Relaxed);
    next
}

async fn until_there_is_something(
    parts: &mut Parts,
    most: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
    waiting: &impl Waiter,
    until: Option<tokio::time::Instant>,
) -> Next {
    let client = parts.session.client.clone();
    loop {
        if let Some(next) = send(parts, stream, thread, waiting, until).await {
            return next;
        }
        if let Some(how) = client.wait.how() {
            return Next::Unblocked(how);
        }
        tokio::select! {
            () = waiting.notify().notified() => return Next::Look,
            // What it was told is looked at above; an old notification says nothing.
            () = client.wait.told() => {}
            () = end(until) => return Next::Answer,
            heard = hear(stream, thread, &client, &mut parts.input) => match heard {
                // A client that sends on and on while it waits is not worth the memory.
                Heard::Bytes if parts.input.len() <= most => {}
                Heard::Messages => deliver(parts),
                Heard::Bytes | Heard::End => return Next::End,
            }
        }
    }
}

/// Sends what is to be said. Says what is to be done if that was not at once.
async fn send(
    parts: &mut Parts,
    stream: &mut (impl AsyncWrite + Unpin),
    thread: &Thread,
    waiting: &impl Waiter,
    until: Option<tokio::time::Instant>,
) -> Option<Next> {
    let mut sent = std::pin::pin!(write(stream, thread, &parts.session.client, &mut parts.reply));
    match std::future::poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx))).await {
        Poll::Ready(Ok(())) => return None,
        Poll::Ready(Err(_)) => return Some(Next::End),
        Poll::Pending => waiting.step_aside(),
    }
    Some(tokio::select! {
        sent = sent => if sent.is_ok() { Next::Look } else { Next::End },
        () = end(until) => Next::Answer,
    })
}

async fn end(until: Option<tokio::time::Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
