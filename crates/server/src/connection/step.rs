//! Runs the next requests of a connection: several as one transaction, or one in its own way.

use std::sync::atomic::Ordering::Relaxed;

use tokio::io::{AsyncRead, AsyncWrite};

use super::batch::together;
use super::ended::{note_slow, outcome_of};
use super::messages::{deliver_all, hear_first};
use super::monitored::{tell as tell_monitors, tell_of_one};
use super::refusal::{self, only_hears, refusal, unknown};
use super::{blocking, early, multi, pause};
use crate::command::{Run, Special};
use crate::form::flag;
use crate::io::AT_ONCE;
use crate::job::{Job, Parts};
use crate::outcome::Stop;
use crate::session::Replies;
use crate::thread::Thread;

/// Runs one request, or several as one transaction; returns the number of the next one.
pub(super) async fn step(
    mut parts: Parts,
    at: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> (Parts, usize) {
    deliver_all(&mut parts);
    let pauses = &thread.shared.pauses;
    if pauses.any() {
        parts = pause::wait(parts, at, stream, thread).await;
        if parts.session.closing {
            return (parts, at);
        }
    }
    let mut to = together(&parts, at);
    if pauses.any() {
        to = pause::free(&parts, at, to).max(at);
    }
    let recorder = &thread.recorder;
    let began = thread.tick();
    parts.mark = parts.reply.len();
    if to > at {
        let mut job = early::run(Job::batch(parts, at..to), stream, thread).await;
        job.wake();
        recorder.batches.add(1);
        job.count();
        note_slow(&job.parts, at..job.done, thread, thread.tick() - began);
        tell_monitors(&mut job.parts, at..job.done);
        job.parts.session.tracking.said = false;
        hear_first(&mut job.parts);
        return (job.parts, job.done);
    }
    let before = parts.session.replies;
    parts.ran = false;
    parts = alone(parts, at, stream, thread).await;
    recorder.commands.add(1);
    if parts.ran {
        note_slow(&parts, at..at + 1, thread, thread.tick() - began);
    }
    // Nothing is said to a client that wants to hear nothing, this time or always.
    let skipped = before == Replies::Skip && parts.session.replies != Replies::On;
    let skipped = skipped || parts.session.replies == Replies::Off;
    let command = parts.commands.get(at).copied().flatten().map(|(_, command)| command);
    let is = |flag| parts.ran && command.is_some_and(|command| command.is(flag));
    if !is(flag::SUBSCRIBES) {
        // Of a transaction what it has published comes behind the answer.
        if !command.is_some_and(|command| matches!(command.run, Run::Connection(Special::Exec))) {
            hear_first(&mut parts);
        }
        if skipped {
            parts.reply.truncate(parts.mark);
        }
    }
    // `CLIENT CACHING` is about the next request, or the transaction that begins with it.
    if parts.session.multi.is_none() && command.is_none_or(|command| command.name != "client") {
        parts.session.tracking.said = false;
    }
    parts.session.replies = match (before, parts.session.replies) {
        (_, Replies::SkipNext) => Replies::Skip,
        (Replies::Skip, Replies::Skip) => Replies::On,
        (_, after) => after,
    };
    (parts, at + 1)
}

/// Runs, queues or refuses one request.
async fn alone(
    mut parts: Parts,
    at: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> Parts {
    let args = parts.batch.arguments(at, &parts.input);
    let found = parts.commands.get(at).copied().flatten();
    let refused = match found {
        // A client that has not authenticated learns nothing of what there is.
        // A browser that was sent here by a page: what follows is not a person's.
        None if [&b"POST"[..], b"Host:"].iter().any(|word| args.get(0).eq_ignore_ascii_case(word)) => {
            tracing::warn!("{}: possible attack by HTTP; the connection is ended", parts.session.client.addr);
            parts.session.closing = true;
            return parts;
        }
        None if parts.session.user.is_none() => Some("NOAUTH Authentication required.".to_owned()),
        None => Some(unknown(&args)),
        Some((number, command)) => refusal(&parts.session, number, command, &args).or_else(|| {
            (parts.session.only_hears(&parts.reply) && !command.is(flag::HEARING)).then(|| only_hears(command, &args))
        }),
    };
    let (Some((number, command)), None) = (found, refused.as_ref()) else {
        thread.recorder.errors.add(1);
        if let Some((number, command)) = found {
            refusal::note(&parts.session, number, command, &args);
        }
        let refused = refused.unwrap_or_default();
        if found.is_some_and(|(_, command)| matches!(command.run, Run::Connection(Special::Exec))) {
            multi::refuse(&mut parts, &refused);
            return parts;
        }
        if let Some(queued) = &mut parts.session.multi {
            queued.broken = true;
        }
        parts.reply.error(&refused);
        return parts;
    };
    thread.recorder.calls[number].add(1);
    parts.session.client.last_command.store(number as u64, Relaxed);
    if parts.session.multi.is_some() && !command.is(flag::NOW) {
        if args.from(0).map(<[u8]>::len).sum::<usize>() < AT_ONCE {
            return multi::queue(parts, at, number, command);
        }
        // It is copied.
        let queued = tokio::task::spawn_blocking(move || multi::queue(parts, at, number, command)).await;
        return queued.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    parts.ran = true;
    // Of one that waits clients that monitor are told when it begins.
    let waits = matches!(command.run, Run::Block(..) | Run::Await(_) | Run::Read(_)) && !command.is_at_once(&args);
    if waits {
        tell_of_one(&parts, command, &args);
    }
    parts = match command.run {
        Run::Read(_) if !command.is_at_once(&args) => blocking::read(parts, at, stream, thread).await,
        Run::Data(_) | Run::Read(_) => {
            let mut job = early::run(Job::batch(parts, at..at + 1), stream, thread).await;
            job.wake();
            job.count_outcome();
            job.parts
        }
        Run::Session(run) => {
            let mark = parts.reply.len();
            let mut outcome = run(&mut parts.session, &args, &mut parts.reply);
            if outcome.is_ok() {
                outcome = parts.reply.check_room().map_err(Stop::Error);
            }
            outcome_of(&mut parts.reply, mark, outcome, thread);
            parts
        }
        Run::Script(_) => {
            let mut job = early::run(Job::script(parts, at), stream, thread).await;
            job.wake();
            job.count_outcome();
            job.parts.session.publish_deferred();
            job.parts
        }
        Run::Connection(Special::Exec) => multi::exec(parts, stream, thread).await,
        Run::Connection(Special::Watch) => multi::watch(parts, at, thread).await,
        Run::Block(_, timeout) => blocking::wait(parts, at, timeout, stream, thread).await,
        Run::Await(run) => blocking::ask_again(parts, at, run, stream, thread).await,
    };
    if !waits {
        tell_monitors(&mut parts, at..at + 1);
    }
    parts
}
