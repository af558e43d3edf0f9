//! A connection of memcached's protocols: reads requests, has them run, writes replies, in their order.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::job::{Job, Parts};
use super::request::{Batch, End, Parser};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::clock::now;
use crate::io::{Heard, hear, rest, write};
use crate::reply::Reply;
use crate::thread::Thread;

/// Requests that are looked at together.
const BATCH: usize = 256;
/// Bytes of replies that are gathered before they are written.
const REPLY: usize = 64 << 10;
/// What the requests of one connection may take before others have their turn, in nanoseconds.
const TURN: u64 = 1_000_000;

/// Serves `stream` until it ends, or is ended.
pub(crate) async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, thread: Rc<Thread>, client: Arc<Client>) {
    // No client is asked to authenticate.
    client.known.store(true, Relaxed);
    let (shared, recorder) = (thread.shared.clone(), thread.recorder.clone());
    let mut parts = Parts { shared, recorder, reply: Reply::new(), input: Buffer::new(), batch: Batch::default() };
    let mut parser = Parser::default();
    loop {
        if !matches!(hear(&mut stream, &thread, &client, &mut parts.input).await, Heard::Bytes) {
            return;
        }
        let began = thread.tick();
        client.last_active.store(now(), Relaxed);
        client.begins_work();
        let mut closing = false;
        loop {
            let more;
            (parts, more) = match turn(parts, &mut parser, &mut stream, &thread, &client).await {
                Ok(next) => next,
                Err(last) => {
                    closing = true;
                    (last, false)
                }
            };
            if !more {
                break;
            }
        }
        client.has_worked(now());
        if write(&mut stream, &thread, &client, &mut parts.reply).await.is_err() {
            return;
        }
        thread.recorder.replies.add(thread.tick() - began, 1);
        if closing {
            drop(stream.shutdown().await);
            return;
        }
        let wanted = parser.wanted(&parts.input);
        rest(&mut parts.input, &mut parts.reply, wanted);
    }
}

/// Runs requests that are complete, and takes them off the input; true if there may be more. An error if these were the last ones.
async fn turn(
    mut parts: Parts,
    parser: &mut Parser,
    stream: &mut (impl AsyncWrite + Unpin),
    thread: &Thread,
    client: &Client,
) -> Result<(Parts, bool), Parts> {
    let item_max = thread.limits().1;
    let mut end = None;
    parts.batch.clear();
    while parts.batch.len() < BATCH {
        match parser.advance(&parts.input, item_max, &mut parts.batch) {
            Ok(true) => {}
            Ok(false) => break,
            Err(last) => {
                end = Some(last);
                break;
            }
        }
    }
    let full = parts.batch.len() >= BATCH;
    let (mut at, mut began) = (0, thread.tick());
    while at < parts.batch.len() {
        let mut job = thread.executor.run(Job::new(parts, at)).await;
        if job.lacks_version() {
            job = thread.executor.run(job).await;
        }
        job.count();
        job.wake();
        (parts, at) = (job.parts, job.done);
        if thread.tick() - began > TURN {
            tokio::task::yield_now().await;
            began = thread.tick();
        }
        if parts.reply.len() > REPLY && write(stream, thread, client, &mut parts.reply).await.is_err() {
            return Err(parts);
        }
    }
    parts.input.drain(..parser.discard());
    match end {
        None => Ok((parts, full)),
        Some(End::Quit) => Err(parts),
        Some(wrong @ End::Line) => {
            thread.recorder.errors.add(1);
            parts.reply.raw(format!("{wrong}\r\n").as_bytes());
            Err(parts)
        }
    }
}
