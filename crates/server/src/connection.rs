//! A connection of Redis' protocol: reads requests, has them run, writes replies, in their order.
//!
//! Requests that have come together run together: those on data that follow each other are one transaction. While nothing is to be done a connection keeps no
//! buffers: it reads into one of its thread's, and copies what came.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::client::Client;
use crate::clock::now;
use crate::command::{Command, Run, Special};
use crate::commands::{self, COMMANDS};
use crate::data::stored;
use crate::engine;
use crate::failpoints::Step;
use crate::form::flag;
use crate::job::{Job, Parts, REPLY_MAX, text};
use crate::outcome::Stop;
use crate::reply::Reply;
use crate::request::{Arguments, Limits, Malformed, Parser};
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::thread::Thread;

/// Requests that are looked at together.
const BATCH: usize = 256;
/// Bytes of their arguments, unless one has more.
const BYTES: usize = 1 << 20;
/// Bytes of replies that are gathered before they are written.
pub(crate) const REPLY: usize = 64 << 10;
/// Keys that a connection may watch.
const WATCHED: usize = 100_000;
/// Bytes of buffers that a connection may keep between requests.
const KEPT: usize = 4 << 10;

/// Serves `stream` until it ends, or is ended.
pub(crate) async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, thread: Rc<Thread>, client: Arc<Client>) {
    let session = Session::new(thread.shared.clone(), thread.recorder.clone(), client);
    drop(attend(Parts::new(session), &mut Parser::default(), &mut stream, &thread, false).await);
}

/// Serves a connection that rests until it ends; or as long as it subscribes, and gives it back when it does not.
pub(crate) async fn attend(
    mut parts: Parts,
    parser: &mut Parser,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
    while_subscribed: bool,
) -> Option<Parts> {
    let client = parts.session.client.clone();
    while !while_subscribed || parts.session.subscriptions.any() {
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
            // Also to who sends on and on, and never a whole request.
            deliver(&mut parts);
        }
        write(stream, thread, &client, &mut parts.reply).await.ok()?;
        thread.recorder.replies.add(thread.tick() - began, 1);
        if parts.session.closing {
            drop(stream.shutdown().await);
            return None;
        }
        settle(&mut parts, parser);
    }
    Some(parts)
}

/// Writes some of the messages that have come to the reply.
pub(crate) fn deliver(parts: &mut Parts) {
    if parts.session.subscriptions.any() {
        parts.session.subscriptions.hear(&mut parts.reply, REPLY);
    }
}

/// All that was found is answered: takes it off the input, and the connection rests.
pub(crate) fn settle(parts: &mut Parts, parser: &mut Parser) {
    parts.input.drain(..parser.discard());
    let wanted = parser.wanted(&parts.input);
    rest(&mut parts.input, &mut parts.reply, wanted);
}

/// Between requests: gives memory back that is seldom needed, and makes room for `wanted` bytes that are announced.
pub(crate) fn rest(input: &mut Vec<u8>, reply: &mut Reply, wanted: usize) {
    if input.is_empty() && input.capacity() > KEPT {
        *input = Vec::new();
    }
    if input.capacity() - input.len() < wanted {
        // What was announced need not come: room grows with what does.
        input.reserve(wanted.min(input.len().max(KEPT)));
    }
    reply.clear();
}

/// What a connection is to do next.
pub(crate) enum Heard {
    /// Read the input, to which bytes have come.
    Bytes,
    /// Tell its client the messages that have come.
    Messages,
    /// It is at its end, or is to end.
    End,
}

/// Waits for bytes and messages.
pub(crate) async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
    thread: &Thread,
    client: &Client,
    input: &mut Vec<u8>,
) -> Heard {
    std::future::poll_fn(|cx| {
        // Whoever has put a message there since this has kept the waker wakes it.
        if client.is_killed(cx) {
            return Poll::Ready(Heard::End);
        }
        let mut scratch = thread.scratch.borrow_mut();
        let mut buffer = tokio::io::ReadBuf::new(&mut scratch);
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Pending if client.inbox.has_some() => Poll::Ready(Heard::Messages),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                input.extend_from_slice(buffer.filled());
                thread.recorder.read.add(buffer.filled().len() as u64);
                Poll::Ready(Heard::Bytes)
            }
            Poll::Ready(_) => Poll::Ready(Heard::End),
        }
    })
    .await
}

/// Writes all replies, but those that have gone. Who does not take them is ended by the thread after a while, and asks for nothing in the meantime. What is written when this
/// is dropped stays written.
pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    thread: &Thread,
    client: &Client,
    reply: &mut Reply,
) -> std::io::Result<()> {
    // A task that is woken for something else does not begin to wait anew.
    let mut some = false;
    std::future::poll_fn(|cx| {
        while let bytes @ [_, ..] = reply.unsent() {
            match Pin::new(&mut *stream).poll_write(cx, bytes) {
                Poll::Pending => {
                    if client.is_killed(cx) {
                        return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
                    }
                    if std::mem::take(&mut some) || client.writing_since.load(Relaxed) == 0 {
                        client.writing_since.store(now(), Relaxed);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    reply.sent += count;
                    some = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        Pin::new(&mut *stream).poll_flush(cx)
    })
    .await?;
    if client.writing_since.load(Relaxed) != 0 {
        client.last_active.store(now(), Relaxed); // it was reading
        client.writing_since.store(0, Relaxed);
    }
    thread.recorder.written.add(reply.sent as u64);
    client.inbox.written();
    reply.clear();
    Ok(())
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
        // What he says may make him somebody, whose requests may be longer.
        None => (Limits::STRANGER, 1),
    };
    let mut malformed = None;
    parts.batch.clear();
    // As a rule it is the same again.
    let mut last = parts.commands.last().copied().flatten();
    parts.commands.clear();
    while parts.batch.len() < most {
        match parser.advance(&parts.input, &limits, &mut parts.batch) {
            Ok(true) => {
                let args = parts.batch.arguments(parts.commands.len(), &parts.input);
                let name = args.get(0);
                let same = last.is_some_and(|(_, command)| commands::is(name, command.name));
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
    while at < parts.batch.len() && !parts.session.closing {
        (parts, at) = step(parts, at, stream, thread).await;
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
    // Who waited for an element went on to read.
    let more = found.full || parts.input.len() > found.seen;
    parts.input.drain(..parser.discard());
    client.has_worked(now());
    (parts, more)
}

/// Runs one request, or several as one transaction; returns the number of the next one.
async fn step(
    mut parts: Parts,
    at: usize,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    thread: &Thread,
) -> (Parts, usize) {
    if parts.session.subscriptions.any() {
        parts.session.subscriptions.hear(&mut parts.reply, usize::MAX);
    }
    let to = together(&parts, at);
    let recorder = &thread.recorder;
    let began = thread.tick();
    parts.mark = parts.reply.len();
    if to > at {
        let mut job = thread.executor.run(Job::batch(parts, at..to)).await;
        job.wake();
        recorder.batches.add(1);
        job.count();
        note_slow(&job.parts, at..job.done, thread, thread.tick() - began);
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
    // Nothing is said to who wants to hear nothing, this time or always.
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
    parts.session.replies = match (before, parts.session.replies) {
        (_, Replies::SkipNext) => Replies::Skip,
        (Replies::Skip, Replies::Skip) => Replies::On,
        (_, after) => after,
    };
    (parts, at + 1)
}

/// Messages that came before the answer was known come before it, whether or not that is to be heard: also what a request has published to itself.
fn hear_first(parts: &mut Parts) {
    if parts.session.subscriptions.any() && parts.session.client.inbox.has_some() {
        let answer = parts.reply.split_off(parts.mark);
        parts.session.subscriptions.hear(&mut parts.reply, usize::MAX);
        parts.mark = parts.reply.len();
        parts.reply.raw(&answer);
    }
}

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

/// Why a request is not even tried.
fn refusal(session: &Session, number: usize, command: &Command, args: &Arguments<'_>) -> Option<String> {
    if let Some(error) = command.fit(args).error(command) {
        return Some(error);
    }
    let longest = session.shared.engine.key_max() - 1;
    if args.from(1).any(|arg| arg.len() > longest) && command.keys(args).iter().any(|key| key.len() > longest) {
        // Told before anybody else's requests are run with it.
        return Some(format!("ERR the key is longer than {longest} bytes, the most that this store takes"));
    }
    let Some(user) = &session.user else {
        return (!command.is(flag::NO_AUTH)).then(|| "NOAUTH Authentication required.".to_owned());
    };
    if let Some(group) = session.shared.follows()
        && is_about_data(command)
    {
        return Some(group.refusal());
    }
    if !user.may_run(number) && !command.is(flag::NO_AUTH) {
        return Some(format!("NOPERM this user has no permissions to run the '{}' command", command.name));
    }
    if !user.may_touch(command, args) {
        return Some("NOPERM this user has no permissions to access one of the keys used as arguments".to_owned());
    }
    if command.is(flag::PUBSUB) && !user.may_hear_all(command, args) {
        return Some("NOPERM this user has no permissions to access one of the channels used as arguments".to_owned());
    }
    None
}

/// Whether only the server that leads may answer it. `EXEC` answers for itself: what was queued was refused.
fn is_about_data(command: &Command) -> bool {
    use Run::{Await, Block, Connection, Data, Read, Script};
    matches!(command.run, Data(_) | Read(_) | Block(..) | Await(_) | Script(_) | Connection(Special::Watch))
        || matches!(command.name, "publish" | "spublish")
}

fn only_hears(command: &Command, args: &Arguments<'_>) -> String {
    let mut name = command.name.to_owned();
    if matches!(command.name, "acl" | "client" | "command" | "config" | "function" | "pubsub" | "script" | "slowlog")
        && args.len() > 1
    {
        name += &format!("|{}", args.get(1).to_ascii_lowercase().escape_ascii());
    }
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )
}

fn unknown(args: &Arguments<'_>) -> String {
    let cut = |arg: &[u8]| arg.iter().take(128).copied().collect::<Vec<_>>().escape_ascii().to_string();
    let mut shown = String::new();
    for arg in args.from(1).take(20) {
        shown += &format!("'{}' ", cut(arg));
        if shown.len() > 128 {
            break;
        }
    }
    format!("ERR unknown command '{}', with args beginning with: {shown}", cut(args.get(0)))
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
        // Who has not said who he is learns nothing of what there is.
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
        if let Some(queued) = &mut parts.session.multi {
            queued.broken = true;
        }
        parts.reply.error(&refused.unwrap_or_default());
        return parts;
    };
    thread.recorder.calls[number].add(1);
    parts.session.client.last_command.store(number as u64, Relaxed);
    if parts.session.multi.is_some() && !command.is(flag::NOW) {
        return queue(parts, at, number, command);
    }
    parts.ran = true;
    match command.run {
        Run::Read(_) if !command.is_at_once(&args) => crate::blocking::read(parts, at, stream, thread).await,
        Run::Data(_) | Run::Read(_) => {
            let mut job = thread.executor.run(Job::batch(parts, at..at + 1)).await;
            job.wake();
            job.parts
        }
        Run::Session(run) => {
            let mark = parts.reply.len();
            let mut outcome = run(&mut parts.session, &args, &mut parts.reply);
            if parts.reply.len() - mark > REPLY_MAX {
                outcome =
                    Err(Stop::Error(format!("ERR the reply has more than {REPLY_MAX} bytes; ask for less at once")));
            }
            outcome_of(&mut parts.reply, mark, outcome, thread);
            parts
        }
        Run::Script(_) => {
            let mut job = thread.executor.run(Job::script(parts, at)).await;
            job.wake();
            job.parts.session.publish_deferred();
            job.parts
        }
        Run::Connection(Special::Exec) => exec(parts, thread).await,
        Run::Connection(Special::Watch) => watch(parts, at, thread),
        Run::Block(_, timeout) => crate::blocking::wait(parts, at, timeout, stream, thread).await,
        Run::Await(run) => crate::blocking::ask_again(parts, at, run, stream, thread).await,
    }
}

pub(crate) fn outcome_of(reply: &mut Reply, mark: usize, outcome: Result<(), Stop>, thread: &Thread) {
    let error = match outcome {
        Ok(()) => return,
        Err(Stop::Error(error)) => error,
        Err(Stop::Engine(error)) => text(&error),
    };
    thread.recorder.errors.add(1);
    reply.truncate(mark);
    reply.error(&error);
}

fn queue(mut parts: Parts, at: usize, number: usize, command: &'static Command) -> Parts {
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
    queued.commands.push(number);
    parts.session.client.state.lock().queued = Some(queued.batch.len());
    parts.reply.simple("QUEUED");
    parts
}

async fn exec(mut parts: Parts, thread: &Thread) -> Parts {
    let Some(queued) = parts.session.multi.take() else {
        parts.reply.error("ERR EXEC without MULTI");
        return parts;
    };
    {
        let mut state = parts.session.client.state.lock();
        (state.queued, state.watched) = (None, 0);
    }
    if queued.broken {
        parts.session.watched.clear();
        parts.reply.error("EXECABORT Transaction discarded because of previous errors.");
        return parts;
    }
    // What was queued is slow, not that which runs it.
    let (began, ran) = (thread.tick(), false);
    let Parts { session, reply, input, batch, commands, mark, .. } = parts;
    let no_input = Vec::new();
    let command = |(at, number): (usize, usize)| {
        let args = queued.batch.arguments(at, &no_input);
        COMMANDS.get(number).map(|command| (number, commands::of_words(command, &args)))
    };
    let queue = queued.commands.into_iter().enumerate().map(command).collect();
    let mut inner = Parts { session, reply, input: no_input, batch: queued.batch, commands: queue, ran, mark };
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
        if versions(shared, &keys).is_ok_and(|now| !now.iter().eq(watched.values())) {
            inner.reply.null_array();
            return Parts { input, batch, commands, ..inner };
        }
    }
    let mut job = thread.executor.run(Job::exec(inner)).await;
    job.wake();
    hear_first(&mut job.parts);
    job.parts.session.publish_deferred();
    job.count();
    note_slow(&job.parts, 0..job.done, thread, thread.tick() - began);
    Parts { input, batch, commands, ran, ..job.parts }
}

/// What keys, as they are in the store, have at this moment.
fn versions(shared: &Shared, keys: &[Vec<u8>]) -> engine::Result<Vec<Option<u64>>> {
    let mut versions = Vec::new();
    shared.look(&mut |tx| {
        versions = keys.iter().map(|key| tx.version(key)).collect::<Result<_, _>>()?;
        Ok(())
    })?;
    Ok(versions)
}

fn watch(mut parts: Parts, at: usize, thread: &Thread) -> Parts {
    if parts.session.multi.is_some() {
        parts.reply.error("ERR WATCH inside MULTI is not allowed");
        return parts;
    }
    let args = parts.batch.arguments(at, &parts.input);
    let keys: Vec<Vec<u8>> = args.from(1).map(|key| stored(parts.session.db, key)).collect();
    let seen = versions(&thread.shared, &keys);
    let watched = &mut parts.session.watched;
    let outcome = match seen {
        _ if watched.len() + keys.len() > WATCHED => {
            Err(Stop::Error(format!("ERR more than {WATCHED} keys are watched")))
        }
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
