//! `CLIENT PAUSE`: requests that are held back, and connections that wait meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use tokio::io::{AsyncRead, AsyncWrite};

use super::messages::deliver;
use super::refusal::refusal;
use crate::command::{Command, Run, Special};
use crate::form::{flag, is};
use crate::io::{Heard, hear, write};
use crate::job::Parts;
use crate::pauses::Held;
use crate::request::Arguments;
use crate::session::Session;
use crate::thread::Thread;

/// Bytes that are read ahead while a request is held back; the rest stays with the client.
const AHEAD: usize = 1 << 20;

/// Those of `at..to` in front of the first that is held back now.
pub(super) fn free(parts: &Parts, at: usize, to: usize) -> usize {
    let held = parts.session.shared.pauses.held();
    let first = held.and_then(|(held, _)| (at..to).find(|at| is_held(parts, *at, held)));
    first.unwrap_or(to)
}

/// Waits until request `at` is not held back any more. Meanwhile it sends what is to be said about requests before it, and messages. The connection is closing if its client has
/// gone, or is to end.
pub(super) async fn wait(
    mut parts: Parts,
    at: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> Parts {
    let pauses = &thread.shared.pauses;
    let client = parts.session.client.clone();
    let most = parts.input.len() + AHEAD;
    while let Some((held, until)) = pauses.held()
        && is_held(&parts, at, held)
    {
        if client.must_end() || write(stream, thread, &client, &mut parts.reply).await.is_err() {
            parts.session.closing = true;
            break;
        }
        client.blocked.store(true, Relaxed);
        let reads = parts.input.len() < most;
        tokio::select! {
            () = pauses.look(until) => {}
            heard = hear(stream, thread, &client, &mut parts.input), if reads => match heard {
                Heard::Bytes => {}
                Heard::Messages => deliver(&mut parts),
                Heard::End => {
                    parts.session.closing = true;
                    break;
                }
            }
        }
    }
    client.blocked.store(false, Relaxed);
    parts
}

fn is_held(parts: &Parts, at: usize, held: Held) -> bool {
    let Some((number, command)) = parts.commands.get(at).copied().flatten() else { return false };
    let args = parts.batch.arguments(at, &parts.input);
    // What is refused is refused at once.
    holds(&parts.session, command, &args, held) && refusal(&parts.session, number, command, &args).is_none()
}

fn holds(session: &Session, command: &Command, args: &Arguments<'_>, held: Held) -> bool {
    match held {
        // What ends the pause, and what it takes to say so.
        Held::All => !(command.is(flag::NO_AUTH) || command.name == "client" && is(args.get(1), "UNPAUSE")),
        Held::Writes => match command.run {
            Run::Connection(Special::Exec) => session.multi.as_ref().is_some_and(|queued| queued.writes),
            _ => writes(command),
        },
    }
}

/// Whether a command is one of those that write, or tells others something.
pub(super) fn writes(command: &Command) -> bool {
    command.is(flag::WRITE | flag::MAY_WRITE) || matches!(command.name, "publish" | "spublish")
}
