//! One thread that runs whatever waits for etcd, so that callers need know nothing of it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc as tasks;

use crate::{Error, Result};

/// Made on the thread that runs it, so that it may be of one thread.
type Make = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Between two looks at whether a caller still waits.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Runtime {
    /// Unbounded: callers wait for what they send, or hold what it serves.
    start: Option<tasks::UnboundedSender<Make>>,
    /// Each task that has something to finish holds a clone; nothing is ever sent.
    busy: Option<tasks::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// At the end, what has something to finish is given so long.
    pub(crate) fn start(goodbye: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let (start, mut starting) = tasks::unbounded_channel::<Make>();
        let (busy, mut all_done) = tasks::channel(1);
        let main = async move {
            while let Some(make) = starting.recv().await {
                tokio::task::spawn_local(make());
            }
            // Ends when there is no task left that could send.
            drop(tokio::time::timeout(goodbye, all_done.recv()).await);
        };
        let thread = std::thread::Builder::new()
            .name("cairn-members".to_owned())
            .spawn(move || runtime.block_on(tokio::task::LocalSet::new().run_until(main)))
            .map_err(Error::Thread)?;
        Ok(Self { start: Some(start), busy: Some(busy), thread: Some(thread) })
    }

    /// Runs what `make` makes to its end, unless the runtime ends first.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, make: impl FnOnce() -> F + Send + 'static) {
        if let Some(start) = &self.start
            && start.send(Box::new(move || Box::pin(make()))).is_err()
        {
            tracing::error!("the thread that talks to etcd has ended");
        }
    }

    /// As [`spawn`](Self::spawn), and the runtime waits for it for a while.
    pub(crate) fn spawn_to_finish<F: Future<Output = ()> + 'static>(&self, make: impl FnOnce() -> F + Send + 'static) {
        let busy = self.busy.clone();
        self.spawn(move || async move {
            make().await;
            drop(busy);
        });
    }

    /// Runs what `make` makes and waits for what it returns.
    pub(crate) fn wait<T: Send + 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(move || async move { drop(sender.send(make().await)) });
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// As [`wait`](Self::wait); nothing if `is_over` says so before there is something. What was begun goes on then.
    pub(crate) fn wait_unless<T: Send + 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        is_over: impl Fn() -> bool,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Option<T>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(move || async move { drop(sender.send(make().await)) });
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(answer) => return answer.map(Some),
                Err(mpsc::RecvTimeoutError::Timeout) if is_over() => return Ok(None),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
    }
}

fn ended() -> Error {
    Error::Thread(std::io::Error::other("it has ended"))
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.busy = None;
        self.start = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that talks to etcd has panicked");
        }
    }
}
