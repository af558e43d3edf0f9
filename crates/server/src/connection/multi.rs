//! `MULTI`, `EXEC` and `WATCH`: what is queued, and what becomes of it.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::early;
use super::ended::{note_slow, outcome_of};
use super::messages::hear_first;
use super::monitored::tell_from;
use crate::buffer::Buffer;
use crate::command::Command;
use crate::commands::{self, COMMANDS};
use crate::data::stored;
use crate::databases::Seen;
use crate::engine::{self, Tx};
use crate::failpoints::Step;
use crate::form::flag;
use crate::job::{Job, Parts};
use crate::outcome::Stop;
use crate::shared::Shared;
use crate::thread::Thread;

/// Keys that a connection may watch.
const WATCHED: usize = 100_000;

pub(super) fn queue(mut parts: Parts, at: usize, number: usize, command: &'static Command) -> Parts {
    let most = parts.session.shared.settings().request;
    let args = parts.batch.arguments(at, &parts.input);
    let Some(queued) = &mut parts.session.multi else { return parts };
    let fits = queued.batch.copied() + args.from(0).map(|arg| arg.len() + 64).sum::<usize>() <= most
        && queued.batch.len() < 1 << 20;
    if command.is(flag::NO_MULTI) || !fits {
        queued.broken = true;
        parts.reply.error(if fits {
            "ERR Command not allowed inside a transaction"
        } else {
            "ERR the transaction is too large"
        });
        return parts;
    }
    queued.batch.push_copy(&args);
    queued.writes |= super::pause::writes(command);
    queued.commands.push(number);
    parts.session.client.state.lock().queued = Some(queued.batch.len());
    parts.reply.simple("QUEUED");
    parts
}

/// `EXEC` itself is refused: what was queued is gone.
pub(super) fn refuse(parts: &mut Parts, why: &str) {
    let Parts { session, reply, .. } = parts;
    session.multi = None;
    session.watched.clear();
    {
        let mut state = session.client.state.lock();
        (state.queued, state.watched) = (None, 0);
    }
    let why = why.strip_prefix("ERR ").unwrap_or(why);
    reply.error(&format!("EXECABORT Transaction discarded because of: {why}"));
}

pub(super) async fn exec(
    mut parts: Parts,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> Parts {
    let Some(queued) = parts.session.multi.take() else {
        thread.recorder.errors.add(1);
        parts.reply.error("ERR EXEC without MULTI");
        return parts;
    };
    {
        let mut state = parts.session.client.state.lock();
        (state.queued, state.watched) = (None, 0);
    }
    if queued.broken {
        parts.session.watched.clear();
        thread.recorder.errors.add(1);
        parts.reply.error("EXECABORT Transaction discarded because of previous errors.");
        return parts;
    }
    // What was queued is slow, not that which runs it.
    let (began, ran) = (thread.tick(), false);
    let Parts { session, reply, input, batch, commands, mark, .. } = parts;
    let no_input = Buffer::new();
    let command = |(at, number): (usize, usize)| {
        let args = queued.batch.arguments(at, &no_input);
        COMMANDS.get(number).map(|command| (number, commands::of_words(command, &args)))
    };
    let queue = queued.commands.into_iter().enumerate().map(command).collect();
    let mut inner =
        Parts { session, reply, input: no_input, batch: queued.batch, commands: queue, ran, mark, heavy: None };
    let shared = &thread.shared;
    if shared.failpoints.skips(Step::OneTransaction) {
        inner.reply.array(inner.batch.len());
        for at in 0..inner.batch.len() {
            inner = thread.executor.run(Job::batch(inner, at..at + 1)).await.parts;
        }
        return Parts { input, batch, commands, ..inner };
    }
    if shared.failpoints.skips(Step::WatchedInside) {
        let watched = std::mem::take(&mut inner.session.watched);
        let keys: Vec<Vec<u8>> = watched.keys().cloned().collect();
        if versions(shared, &keys, true).is_ok_and(|now| !now.iter().eq(watched.values())) {
            inner.reply.null_array();
            return Parts { input, batch, commands, ..inner };
        }
    }
    let (db, told) = (inner.session.db, inner.session.tracking.is_on());
    let mut job = early::run(Job::exec(inner), stream, thread).await;
    job.wake();
    if !told && job.parts.session.tracking.is_on() {
        // Keys that it has read behind `CLIENT TRACKING ON` were not noted.
        thread.shared.cut_off(job.parts.session.tracking.forget_all(thread.shared.settings().subscriber));
    }
    tell_from(&mut job.parts, 0..job.done, db);
    hear_first(&mut job.parts);
    job.parts.session.publish_deferred();
    job.count();
    note_slow(&job.parts, 0..job.done, thread, thread.tick() - began);
    Parts { input, batch, commands, ran, ..job.parts }
}

/// What keys, with the number of their database in front, are at this moment. Only where it may wait for transactions that take long it does.
fn versions(shared: &Shared, keys: &[Vec<u8>], waits: bool) -> engine::Result<Vec<Seen>> {
    let mut versions = Vec::new();
    let mut look = |tx: &mut dyn Tx| {
        // Where a swap comes in between, what is seen is in another database than it is at `EXEC`, or as it is behind the swap.
        let map = shared.databases.now();
        versions = keys.iter().map(|key| map.seen(tx, key)).collect::<Result<_, _>>()?;
        Ok(())
    };
    if waits { shared.look(&mut look) } else { shared.try_look(&mut look) }?;
    Ok(versions)
}

/// Keys that are looked at before others have their turn.
const LOOKED_AT: usize = 1000;

/// What each key is at a moment between the request and its answer.
async fn look(shared: &Arc<Shared>, keys: &[Vec<u8>]) -> engine::Result<Vec<Seen>> {
    let mut seen = Vec::new();
    for (at, some) in keys.chunks(LOOKED_AT).enumerate() {
        if at > 0 {
            tokio::task::yield_now().await;
        }
        seen.extend(match versions(shared, some, false) {
            Err(engine::Error::Conflict(_)) => {
                let (shared, some) = (shared.clone(), some.to_vec());
                let seen = tokio::task::spawn_blocking(move || versions(&shared, &some, true)).await;
                seen.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?
            }
            seen => seen?,
        });
    }
    Ok(seen)
}

pub(super) async fn watch(mut parts: Parts, at: usize, thread: &Thread) -> Parts {
    if parts.session.multi.is_some() {
        parts.reply.error("ERR WATCH inside MULTI is not allowed");
        return parts;
    }
    let args = parts.batch.arguments(at, &parts.input);
    if parts.session.watched.len() + args.len() - 1 > WATCHED {
        let mark = parts.reply.len();
        let refused = Err(Stop::Error(format!("ERR more than {WATCHED} keys are watched")));
        outcome_of(&mut parts.reply, mark, refused, thread);
        return parts;
    }
    let keys: Vec<Vec<u8>> = args.from(1).map(|key| stored(parts.session.db, key)).collect();
    // Before the keys are looked at: a swap in between is taken for one that comes later.
    if parts.session.watched.is_empty() {
        parts.session.watched_swaps.clear();
    }
    let (db, databases) = (parts.session.db, &thread.shared.databases);
    parts.session.watched_swaps.entry(db).or_insert_with(|| databases.swaps(db));
    let seen = look(&thread.shared, &keys).await;
    let watched = &mut parts.session.watched;
    let outcome = match seen {
        Err(error) => Err(Stop::Engine(error)),
        Ok(versions) => {
            // What was watched before must be as it was then.
            for (key, version) in keys.into_iter().zip(versions) {
                watched.entry(key).or_insert(version);
            }
            parts.session.client.state.lock().watched = parts.session.watched.len();
            parts.reply.ok();
            Ok(())
        }
    };
    let mark = parts.reply.len();
    outcome_of(&mut parts.reply, mark, outcome, thread);
    parts
}
