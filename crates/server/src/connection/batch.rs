//! Finds requests in what was read, and says how many of them can be one transaction.

use super::refusal::refusal;
use crate::command::Run;
use crate::commands;
use crate::form::{flag, is};
use crate::job::Parts;
use crate::request::{Limits, Malformed, Parser};
use crate::session::Replies;
use crate::thread::Thread;

/// Requests that are looked at together.
const BATCH: usize = 256;
/// Bytes of their arguments, unless one has more.
const BYTES: usize = 1 << 20;

/// What was found on the input, besides the requests.
pub(crate) struct Found {
    /// Why nothing can follow.
    pub(crate) malformed: Option<Malformed>,
    /// There may be more requests.
    pub(crate) full: bool,
    /// Bytes of the input.
    pub(crate) seen: usize,
}

/// Finds requests that are complete.
pub(crate) fn find(parts: &mut Parts, parser: &mut Parser, thread: &Thread) -> Found {
    parts.session.renew();
    let (limits, most) = match &parts.session.user {
        Some(_) => (thread.limits().0, BATCH),
        // The client may authenticate as a user, whose requests may be longer.
        None => (Limits::STRANGER, 1),
    };
    let mut malformed = None;
    parts.batch.clear();
    parts.heavy = None;
    // As a rule it is the same again.
    let mut last = parts.commands.last().copied().flatten();
    parts.commands.clear();
    while parts.batch.len() < most {
        match parser.advance(&parts.input, &limits, &mut parts.batch) {
            Ok(true) => {
                let args = parts.batch.arguments(parts.commands.len(), &parts.input);
                let name = args.get(0);
                let same = last.is_some_and(|(_, command)| is(name, command.name));
                last = if same { last } else { commands::find(name) };
                parts.commands.push(last.map(|(number, command)| (number, commands::of_words(command, &args))));
            }
            Ok(false) => break,
            Err(error) => {
                malformed = Some(error);
                break;
            }
        }
    }
    Found { malformed, full: parts.batch.len() == most, seen: parts.input.len() }
}

/// Whether all that was found is one script, which can be one transaction with what others have sent.
pub(crate) fn is_script(parts: &Parts) -> bool {
    let session = &parts.session;
    if session.multi.is_some() || session.replies != Replies::On || session.listens() {
        return false;
    }
    let &[Some((number, command))] = &parts.commands[..] else { return false };
    let args = parts.batch.arguments(0, &parts.input);
    // Libraries are loaded alone.
    let runs = matches!(command.run, Run::Script(_)) && !command.is(flag::WRITE);
    runs && refusal(session, number, command, &args).is_none()
}

/// The end of the requests from `at` on that can be one transaction: on data, allowed, and not queued.
pub(crate) fn together(parts: &Parts, at: usize) -> usize {
    let session = &parts.session;
    if session.multi.is_some() || session.replies != Replies::On || session.only_hears(&parts.reply) {
        return at;
    }
    let mut bytes = 0;
    let mut to = at;
    while let Some(Some((number, command))) = parts.commands.get(to).copied() {
        let args = parts.batch.arguments(to, &parts.input);
        if !command.is_at_once(&args) || refusal(session, number, command, &args).is_some() {
            break;
        }
        bytes += args.from(0).map(<[u8]>::len).sum::<usize>();
        if bytes > BYTES && to > at {
            break;
        }
        to += 1;
    }
    to
}
