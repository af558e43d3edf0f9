//! Reads what a client sends, and writes what it is told, whichever protocol it speaks. While nothing is to be done a connection keeps no buffers: it reads into
//! one of its thread's, and copies what came.

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::buffer::Buffer;
use crate::client::Client;
use crate::clock::now;
use crate::reply::Reply;
use crate::thread::Thread;

/// Bytes of buffers that a connection may keep between requests.
const KEPT: usize = 4 << 10;
/// Bytes of replies that are written before others have their turn, and to a socket at once.
const TURN: usize = 512 << 10;
pub(crate) const AT_ONCE: usize = 256 << 10;

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
    input: &mut Buffer,
) -> Heard {
    std::future::poll_fn(|cx| {
        // A thread that has put a message there since this has kept the waker wakes it.
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

/// Writes all replies, but those that have gone. A client that does not take them is ended by the thread after a while, and asks for nothing meanwhile. What is written when this
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
        let mut left = TURN;
        while let bytes @ [_, ..] = reply.unsent() {
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let bytes = &bytes[..bytes.len().min(AT_ONCE)];
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
                    left = left.saturating_sub(count);
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

/// Between requests: gives memory back that is seldom needed, and makes room for `wanted` bytes that are announced.
pub(crate) fn rest(input: &mut Buffer, reply: &mut Reply, wanted: usize) {
    if input.is_empty() {
        input.reset(KEPT);
    }
    input.expect(wanted, KEPT);
    reply.clear();
}
