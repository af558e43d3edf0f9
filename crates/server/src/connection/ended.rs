//! What is left to do when requests have run: their errors are answers, and those that took long are kept in the log.

use crate::command::Run;
use crate::job::{Parts, text};
use crate::outcome::Stop;
use crate::reply::Reply;
use crate::thread::Thread;

/// Keeps requests that took long, together, in the log of those. What waits for others is not slow.
pub(crate) fn note_slow(parts: &Parts, requests: std::ops::Range<usize>, thread: &Thread, took: u64) {
    let log = &thread.shared.slow;
    if !log.is_slow(took) {
        return;
    }
    for at in requests {
        let Some((_, command)) = parts.commands.get(at).copied().flatten() else { continue };
        let args = parts.batch.arguments(at, &parts.input);
        let secret = match command.name {
            "acl" | "auth" | "hello" => true,
            "config" => args.from(1).any(|arg| arg.eq_ignore_ascii_case(b"requirepass")),
            _ => false,
        };
        if command.is_at_once(&args) || !matches!(command.run, Run::Block(..) | Run::Read(_) | Run::Await(_)) {
            log.push(took, &args, secret, &parts.session.client);
        }
    }
}

pub(super) fn outcome_of(reply: &mut Reply, mark: usize, outcome: Result<(), Stop>, thread: &Thread) {
    let error = match outcome {
        Ok(()) => return,
        Err(Stop::Error(error)) => error,
        Err(Stop::Engine(error)) => text(&error),
    };
    thread.recorder.errors.add(1);
    reply.truncate(mark);
    reply.error(&error);
}
