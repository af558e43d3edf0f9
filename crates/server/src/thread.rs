//! What the connections of a thread share: they never leave it, so nothing of this needs a lock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::client::Client;
use crate::executor::Executor;
use crate::metrics::Recorder;
use crate::request::Limits;
use crate::shared::Shared;

/// Bytes that are read at once.
const SCRATCH: usize = 64 << 10;

/// What the connections of a thread share.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) executor: Executor,
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The limits of requests and of memcached's items, and the number of the settings they are of.
    limits: Cell<(u64, Limits, usize)>,
    began: Instant,
}

impl Thread {
    /// This one, which must run a `LocalSet`.
    #[expect(clippy::disallowed_methods, reason = "the thread's own clock begins")]
    pub(crate) fn start(shared: Arc<Shared>, recorder: Arc<Recorder>) -> Self {
        let executor = Executor::start(shared.clone(), recorder.clone());
        let scratch = RefCell::new(vec![0; SCRATCH]);
        let limits = Cell::new((0, Limits::STRANGER, 0));
        Self { shared, recorder, executor, scratch, limits, began: Instant::now() }
    }

    /// Nanoseconds since the thread began.
    #[expect(clippy::disallowed_methods, reason = "measures how long replies take")]
    pub(crate) fn tick(&self) -> u64 {
        Instant::now().duration_since(self.began).as_nanos() as u64
    }

    /// What a request may be, and bytes of an item: no lock, and no reference counted, unless the settings have changed.
    pub(crate) fn limits(&self) -> (Limits, usize) {
        let (number, limits, item) = self.limits.get();
        let newest = self.shared.settings_number.load(Relaxed);
        if number == newest {
            return (limits, item);
        }
        let settings = self.shared.settings();
        let limits = Limits { arguments: 1 << 20, argument: settings.argument, request: settings.request };
        self.limits.set((newest, limits, settings.item));
        (limits, settings.item)
    }
}

/// Counts a connection as long as it is there.
pub(crate) struct Present {
    pub(crate) thread: Rc<Thread>,
    id: u64,
}

impl Present {
    pub(crate) fn new(thread: Rc<Thread>, client: &Client) -> Self {
        thread.recorder.connections.add(1);
        thread.recorder.connected.add(1);
        Self { thread, id: client.id }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.thread.recorder.connected.less(1);
        self.thread.shared.clients.lock().remove(&self.id);
    }
}
