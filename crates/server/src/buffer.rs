//! Bytes that are freed where no connection waits for it: the system takes back 64 MiB in several milliseconds.

use std::ops::{Deref, DerefMut};

use tokio::runtime::Handle;

use crate::apart::is_apart;

/// From here on memory is freed on another thread.
const LARGE: usize = 1 << 20;
/// The allocator asks the system for blocks longer than this one by one: they grow without being copied, and pages that are not used take no memory.
const MAPPED: usize = (32 << 20) + 1;

/// Frees it: on a thread that serves no connections if it has more than [`LARGE`] bytes.
pub(crate) fn free<T: Send + 'static>(items: Vec<T>) {
    if items.capacity().saturating_mul(size_of::<T>()) > LARGE
        && !is_apart()
        && let Ok(runtime) = Handle::try_current()
    {
        drop(runtime.spawn_blocking(move || drop(items)));
    }
}

/// Bytes, which may be very many.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Gives the memory back if it has room for more than so many bytes. It is empty then.
    pub(crate) fn reset(&mut self, kept: usize) {
        self.0.clear();
        if self.0.capacity() > kept {
            free(std::mem::take(&mut self.0));
        }
    }

    /// Makes room for bytes that were announced and need not come: as much as has come, or, of one that is long already, for all of them, in pages that are not there until they are used.
    pub(crate) fn expect(&mut self, wanted: usize, least: usize) {
        if self.0.capacity() - self.0.len() >= wanted {
            return;
        }
        let mapped = wanted.max(MAPPED.saturating_sub(self.0.len()));
        if self.0.len() < LARGE || self.0.try_reserve_exact(mapped).is_err() {
            self.0.reserve(wanted.min(self.0.len().max(least)));
        }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        free(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_grows_with_what_has_come() {
        let mut buffer = Buffer::new();
        buffer.expect(1 << 30, 4096);
        assert!((4096..1 << 20).contains(&buffer.capacity()), "{}", buffer.capacity());
        buffer.resize(LARGE, 0);
        buffer.expect(50 << 20, 4096);
        assert!(buffer.capacity() >= 51 << 20);
        let room = buffer.as_ptr();
        buffer.resize(51 << 20, 1);
        assert_eq!(buffer.as_ptr(), room, "nothing is copied");
        buffer.reset(4096);
        assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
    }

    #[test]
    fn what_is_large_is_freed_elsewhere() {
        struct Here(std::sync::mpsc::Sender<bool>, std::thread::ThreadId, [u8; 1 << 10]);
        impl Drop for Here {
            fn drop(&mut self) {
                let is_here = std::thread::current().id() == self.1 && self.2[0] == 0;
                self.0.send(is_here).unwrap();
            }
        }
        let (freed, heard) = std::sync::mpsc::channel();
        let items = |count: usize| -> Vec<Here> {
            (0..count).map(|_| Here(freed.clone(), std::thread::current().id(), [0; 1 << 10])).collect()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        free(items(2000));
        assert!(heard.recv().unwrap(), "there is no other thread");
        heard.try_iter().for_each(drop);
        let _in = runtime.enter();
        free(items(1));
        assert!(heard.recv().unwrap(), "it is small");
        free(items(2000));
        assert!(!heard.recv().unwrap());
    }
}
