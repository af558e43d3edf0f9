//! A connection of Redis' protocol: reads requests, has them run, writes replies, in their order.
//!
//! Requests that have come together run together: those on data that follow each other are one transaction.
//!
//! ```text
//!   io ─> batch ─> step ─> job, executor ─> ended, messages ─> io
//!                    ├──> early        answers of clients that settle for less than the commit
//!                    ├──> multi        what is queued, and what was watched
//!                    ├──> pause        what is held back
//!                    └──> blocking     what waits for an element, an entry, or other machines
//! ```

mod batch;
mod blocking;
mod early;
mod ended;
mod messages;
mod monitored;
mod multi;
mod pause;
mod refusal;
mod step;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

pub(crate) use self::batch::{Found, find, is_script, together};
pub(crate) use self::ended::note_slow;
pub(crate) use self::messages::{REPLY, deliver};
pub(crate) use self::monitored::tell as tell_monitors;
use self::step::step;
use crate::client::Client;
use crate::clock::now;
use crate::io::{Heard, hear, rest, write};
use crate::job::Parts;
use crate::request::Parser;
use crate::session::{Replies, Session};
use crate::thread::Thread;

/// What the requests of one connection may take before others have their turn, in nanoseconds.
const TURN: u64 = 1_000_000;

/// Serves `stream` until it ends, or is ended.
pub(crate) async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, thread: Rc<Thread>, client: Arc<Client>) {
    let session = Session::new(thread.shared.clone(), thread.recorder.clone(), client);
    drop(attend(Parts::new(session), &mut Parser::default(), &mut stream, &thread, false).await);
}

/// Serves a connection that rests until it ends; or as long as it listens, and gives it back when it does not.
pub(crate) async fn attend(
    mut parts: Parts,
    parser: &mut Parser,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
    while_it_listens: bool,
) -> Option<Parts> {
    let client = parts.session.client.clone();
    while !while_it_listens || parts.session.listens() {
        match hear(stream, thread, &client, &mut parts.input).await {
            Heard::End => return None,
            Heard::Messages => {
                deliver(&mut parts);
                write(stream, thread, &client, &mut parts.reply).await.ok()?;
                continue;
            }
            Heard::Bytes => {}
        }
        let began = thread.tick();
        client.last_active.store(now(), Relaxed);
        loop {
            let (next, full) = turn(parts, parser, stream, thread).await;
            parts = next;
            if !full || parts.session.closing {
                break;
            }
        }
        if !parts.session.closing {
            // Also to a client that sends on and on, and never a whole request.
            deliver(&mut parts);
        }
        write(stream, thread, &client, &mut parts.reply).await.ok()?;
        thread.recorder.replies.add(thread.tick() - began, 1);
        if parts.session.closing {
            drop(stream.shutdown().await);
            return None;
        }
        take_answered(&mut parts, parser);
    }
    Some(parts)
}

/// All that was found is answered: takes it off the input, and the connection rests.
pub(crate) fn take_answered(parts: &mut Parts, parser: &mut Parser) {
    parts.input.drain(..parser.discard());
    let wanted = parser.wanted(&parts.input);
    rest(&mut parts.input, &mut parts.reply, wanted);
}

/// Runs requests that are complete, and takes them off the input; true if there may be more.
pub(crate) async fn turn(
    mut parts: Parts,
    parser: &mut Parser,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> (Parts, bool) {
    let found = find(&mut parts, parser, thread);
    answer(parts, 0, found, parser, stream, thread).await
}

/// Answers those from `at` on, and takes all off the input; true if there may be more.
pub(crate) async fn answer(
    mut parts: Parts,
    mut at: usize,
    found: Found,
    parser: &mut Parser,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> (Parts, bool) {
    let client = parts.session.client.clone();
    client.begins_work();
    let mut began = thread.tick();
    while at < parts.batch.len() && !parts.session.closing {
        (parts, at) = step(parts, at, stream, thread).await;
        if thread.tick() - began > TURN {
            tokio::task::yield_now().await;
            began = thread.tick();
        }
        if parts.reply.len() > REPLY {
            parts.session.closing |= write(stream, thread, &client, &mut parts.reply).await.is_err();
        }
    }
    if let Some(malformed) = found.malformed {
        thread.recorder.errors.add(1);
        if parts.session.replies == Replies::On {
            parts.reply.error(&format!("ERR {malformed}"));
        }
        parts.session.closing = true;
    }
    // A connection that waited for an element went on to read.
    let more = found.full || parts.input.len() > found.seen;
    parts.input.drain(..parser.discard());
    client.has_worked(now());
    (parts, more)
}
