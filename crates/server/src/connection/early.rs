//! Has work run, and answers before its commit to a client that settles for less.
//!
//! The connection waits for the commit all the same: what it sends next finds what it has written, and what others are told of a write, or woken for, is behind it.

use std::pin::pin;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::io::write;
use crate::job::Job;
use crate::thread::Thread;

pub(super) async fn run(mut job: Job, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), thread: &Thread) -> Job {
    // In memory a commit is over before it could be told of.
    let answer = if thread.executor.is_immediate() { None } else { job.settle() };
    let Some(mut answer) = answer else { return thread.executor.run(job).await };
    let (client, began) = (job.parts.session.client.clone(), (job.parts.reply.len(), job.parts.mark));
    let mut running = pin!(thread.executor.run(job));
    let reply = tokio::select! {
        biased;
        job = &mut running => {
            let mut job = job;
            if let Ok(reply) = answer.try_recv() {
                job.take_back(reply, began);
            }
            return job;
        }
        Ok(reply) = &mut answer => reply,
    };
    // Others hear of the write when it is committed, however slowly this client reads.
    let mut reply = reply;
    let gone = tokio::select! {
        biased;
        gone = write(stream, thread, &client, &mut reply) => gone,
        job = &mut running => {
            let mut job = job;
            job.take_back(reply, began);
            return job;
        }
    };
    let mut job = running.await;
    job.parts.session.closing |= gone.is_err();
    job
}
