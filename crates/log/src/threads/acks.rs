//! The thread that hears the replicas of a log while no thread waits for them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::sync::Ticker;

use crate::core::Core;

/// How often they are heard.
const TICK: Duration = Duration::from_millis(20);

/// The thread that hears the replicas of a log now and then, if no other thread does.
pub(crate) struct AckThread {
    stop: Arc<Ticker>,
    thread: Option<JoinHandle<()>>,
}

impl AckThread {
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when the log is closed or dropped")]
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let stop = Arc::new(Ticker::default());
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while let Some(leading) = &core.leading
                && stopped.tick(TICK)
            {
                leading.listen(&core.image, Duration::ZERO);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for AckThread {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic in it was said
        }
    }
}
