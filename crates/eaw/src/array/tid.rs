//! Transaction IDs: each names a line in the table of every member.

use std::sync::Arc;

use pmem::sync::Mutex;

/// Those that are free.
pub(crate) struct Tids {
    free: Arc<Mutex<Vec<u32>>>,
    pub(crate) count: u32,
}

/// One that is in use: from the beginning of a transaction until no member needs its log any more.
pub(crate) struct Tid {
    pub(crate) number: u32,
    free: Arc<Mutex<Vec<u32>>>,
}

impl Tids {
    pub(crate) fn new(count: u32) -> Self {
        Self { free: Arc::new(Mutex::new((0..count).rev().collect())), count }
    }

    pub(crate) fn take(&self) -> Option<Arc<Tid>> {
        let number = self.free.lock().pop()?;
        Some(Arc::new(Tid { number, free: Arc::clone(&self.free) }))
    }

    pub(crate) fn free(&self) -> usize {
        self.free.lock().len()
    }
}

impl Drop for Tid {
    fn drop(&mut self) {
        self.free.lock().push(self.number);
    }
}
