//! What handles of logs stand for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use log::{Log, Recovered};

use crate::code::cairn_code::CAIRN_BUSY;
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, give, take};
use crate::types::log::cairn_log;

/// An open log. What was opened from it has it, too.
pub(crate) struct OpenLog {
    pub(crate) log: Log,
    /// What opening it found; nothing of a new one.
    pub(crate) found: Option<Recovered>,
    pub(crate) poisoned: AtomicBool,
}

impl OpenLog {
    /// A handle for a log that was just opened.
    pub(crate) fn give(log: Log, found: Option<Recovered>) -> Result<*mut cairn_log> {
        give(Arc::new(Self { log, found, poisoned: AtomicBool::new(false) }))
    }

    /// Closes the log, and with it the handle, unless something of it is still open.
    pub(crate) fn close(handle: *const cairn_log) -> Result<()> {
        let open = take(handle, |open: &mut Arc<Self>| {
            let in_use = "a reservation or iterator of the log is open; complete, discard or close it first";
            Arc::get_mut(open).map(|_| ()).ok_or_else(|| Failure::new(CAIRN_BUSY, in_use))
        })?;
        match Arc::into_inner(open) {
            Some(open) if !open.poisoned.load(Relaxed) => {
                if let Err(forked @ pmem::Error::Forked) = open.log.pool().check_usable() {
                    return Err(forked.into()); // it is the parent's to close
                }
                Ok(open.log.close()?)
            }
            Some(open) => {
                open.log.abandon(); // the next open recovers it
                Err(Failure::poisoned())
            }
            None => Err(Failure::poisoned()),
        }
    }
}

static LOGS: Slots<Arc<OpenLog>> = Slots::new();
impl Kept for Arc<OpenLog> {
    type C = cairn_log;
    const KIND: u64 = 0;
    const NAME: &'static str = "log";

    fn slots() -> &'static Slots<Self> {
        &LOGS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.poisoned
    }
}
