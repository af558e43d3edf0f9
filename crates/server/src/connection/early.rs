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

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::oneshot;
    use tokio::task::{LocalSet, spawn_local, yield_now};
    use tokio::time::timeout;

    use crate::client::Client;
    use crate::config::Settings;
    use crate::durability::Durability;
    use crate::engine::{Commit, Counts, Engine, Kv, Result, Run, Stage, Tell};
    use crate::thread::Thread;

    type Flight = (Tell, oneshot::Sender<()>);

    /// A store whose commits end when the test says so, if they are told of.
    struct Staged(Kv, Sender<Flight>);

    impl Engine for Staged {
        fn read(&self, run: Run<'_>) -> Result<()> {
            self.0.read(run)
        }
        fn write(&self, run: Run<'_>) -> Result<()> {
            self.0.write(run)
        }
        fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
            self.0.write_once(run, here)
        }
        fn write_told(&self, run: Run<'_>, tell: Tell) -> Result<Commit> {
            let commit = self.0.write_once(run, false)?;
            let (end, ended) = oneshot::channel();
            self.1.send((tell, end)).unwrap();
            Ok(Box::pin(async move {
                commit.await?;
                ended.await.unwrap();
                Ok(())
            }))
        }
        fn is_slow(&self) -> bool {
            true
        }
        fn key_max(&self) -> usize {
            self.0.key_max()
        }
        fn value_max(&self) -> usize {
            self.0.value_max()
        }
        fn healthy(&self) -> Result<()> {
            self.0.healthy()
        }
        fn counts(&self) -> Counts {
            self.0.counts()
        }
        fn close(self: Box<Self>) -> Result<()> {
            Box::new(self.0).close()
        }
    }

    async fn says(stream: &mut DuplexStream, expected: &str) {
        let mut found = vec![0; expected.len()];
        stream.read_exact(&mut found).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&found), expected);
    }

    async fn next(flights: &Receiver<Flight>) -> Flight {
        loop {
            match flights.try_recv() {
                Ok(flight) => return flight,
                Err(_) => yield_now().await,
            }
        }
    }

    /// However slowly a client takes an early answer, what it has written is told to others when it is committed; and it gets the rest.
    #[test]
    fn an_answer_that_is_not_read_holds_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(pmem::DomainChoice::File);
        let store = kv::Options::new().pool(pool).create(dir.path().join("s")).unwrap();
        let (sender, flights) = channel();
        let shared = crate::shared::tests::shared(Box::new(Staged(Kv::new(store), sender)));
        shared.change_settings(Settings { least_durability: Durability::Bounded, ..Settings::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let test = async {
            let thread = Rc::new(Thread::start(shared.clone(), shared.recorders[0].clone()));
            let connect = |id: u64| {
                // No more than this fits on the way to a client.
                let (ours, theirs) = duplex(64);
                let client = Client::new(id, format!("a:{id}"), String::new(), 0);
                spawn_local(super::super::serve(theirs, thread.clone(), client));
                ours
            };
            let (mut slow, mut waits) = (connect(1), connect(2));
            slow.write_all(b"CLIENT DURABILITY bounded\r\n").await.unwrap();
            says(&mut slow, "+OK\r\n").await;
            waits.write_all(b"BLPOP list 0\r\n").await.unwrap();
            while !shared.waiters.any() {
                yield_now().await;
            }
            let long = "x".repeat(1000);
            let asked = format!("MULTI\r\nSET long {long}\r\nGET long\r\nRPUSH list e\r\nEXEC\r\n");
            slow.write_all(asked.as_bytes()).await.unwrap();
            let (tell, end) = next(&flights).await;
            tell(Stage::Ordered);
            says(&mut slow, "+OK\r\n+QUEUED\r\n").await;
            end.send(()).unwrap();
            says(&mut waits, "*2\r\n$4\r\nlist\r\n$1\r\ne\r\n").await;
            says(&mut slow, &format!("+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n$1000\r\n{long}\r\n:1\r\n")).await;
            slow.write_all(b"PING\r\n").await.unwrap();
            says(&mut slow, "+PONG\r\n").await;
        };
        let limit = Duration::from_secs(60);
        runtime.block_on(LocalSet::new().run_until(async { timeout(limit, test).await })).unwrap();
    }
}
