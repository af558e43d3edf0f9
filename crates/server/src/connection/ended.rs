//! What is left to do when requests have run: their errors are answers, and those that took long are kept in the log.

use std::sync::atomic::Ordering::Relaxed;

use crate::command::{Command, Run};
use crate::form::flag;
use crate::job::{Parts, text};
use crate::latency::event;
use crate::metrics::time_class;
use crate::outcome::Stop;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::thread::Thread;

/// Keeps requests that took long, together, in the log of those. What waits for others is not slow.
pub(crate) fn note_slow(parts: &Parts, requests: std::ops::Range<usize>, thread: &Thread, took: u64) {
    note_times(parts, requests.clone(), thread, took);
    let log = &thread.shared.slow;
    if !log.is_slow(took) {
        return;
    }
    // Of very many the last ones are kept.
    let is_slow = |at: &usize| {
        let command = parts.commands.get(*at).copied().flatten();
        command.is_some_and(|(_, command)| !waits(command, &parts.batch.arguments(*at, &parts.input)))
    };
    let kept = requests.end.saturating_sub(log.len_max.load(Relaxed) as usize).max(requests.start);
    log.pass((requests.start..kept).filter(is_slow).count() as u64);
    for at in (kept..requests.end).filter(is_slow) {
        log.push(took, &parts.batch.arguments(at, &parts.input), &parts.session.client);
    }
}

/// What waits for others says nothing about this server.
fn waits(command: &Command, args: &Arguments<'_>) -> bool {
    matches!(command.run, Run::Block(..) | Run::Read(_) | Run::Await(_)) && !command.is_at_once(args)
}

/// Counts how long requests took, together, by their commands.
fn note_times(parts: &Parts, requests: std::ops::Range<usize>, thread: &Thread, took: u64) {
    let latency = &thread.shared.latency;
    let (counts, is_long) = (latency.counts.load(Relaxed), latency.is_long(took));
    if !counts && !is_long {
        return;
    }
    let class = time_class(took);
    for at in requests {
        let Some((number, command)) = parts.commands.get(at).copied().flatten() else { continue };
        let args = parts.batch.arguments(at, &parts.input);
        if waits(command, &args) {
            continue;
        }
        if counts && let Some(times) = thread.recorder.times.get(thread.shared.commands.time_of(number, &args)) {
            times[class].add(1);
        }
        if is_long {
            latency.note(if command.is(flag::FAST) { event::FAST_COMMAND } else { event::COMMAND }, took);
        }
    }
}

pub(super) fn outcome_of(reply: &mut Reply, mark: usize, outcome: Result<(), Stop>, thread: &Thread) {
    let error = match outcome {
        Ok(()) => return,
        Err(stop) => stop.answer().unwrap_or_else(|error| text(&error, &thread.shared.refusals).into_bytes()),
    };
    thread.recorder.errors.add(1);
    reply.truncate(mark);
    reply.error_bytes(&error);
}
