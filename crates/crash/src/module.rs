//! A memory module that forgets what was not persistent when its power fails: for simulators of several machines, which play thousands of power failures and
//! look at one outcome of each. For all outcomes of one, see [`explore`](crate::explore).

#[expect(unsafe_code, reason = "a promise to `pmem`")]
mod raw;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::raw::{Memory, PAGE};
use crate::rng::Rng;

const LINE_WORDS: u64 = 8;

/// Simulated persistent memory of one machine. `pmem` opens pools on it (`Options::create_on`, `Options::open_on`), one at a time.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// let module = crash::Module::new(64 << 10);
/// let pool = pmem::Options::new().size(16 << 10).create_on(module.clone())?;
/// let mut area = pool.add_region("r", 4096)?.into_area()?;
/// area.put(0, &7u64)?;
/// area.persist(0, 8)?;
/// area.put(64, &7u64)?; // never flushed
/// drop((area, pool));
/// module.fail_power(&mut crash::Rng::seeded(1));
/// let pool = pmem::Options::new().open_on(module)?;
/// assert_eq!(*pool.region("r")?.into_area()?.get::<u64>(0)?, 7);
/// # Ok(()) }
/// ```
pub struct Module {
    memory: Memory,
    capacity: u64,
    len: AtomicU64,
    media: Mutex<Media>,
}

struct Media {
    /// What is persistent, word by word.
    words: Vec<u64>,
    /// Lines on their way, as they were when they were flushed.
    flushed: Vec<(u64, [u64; LINE_WORDS as usize])>,
    drains: u64,
}

impl Module {
    /// An empty one, with room for so many bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Arc<Self> {
        let pages = usize::try_from(capacity).map_or(1, |c| c.div_ceil(PAGE)).max(1);
        let media = Media { words: vec![0; pages * PAGE / 8], flushed: Vec::new(), drains: 0 };
        Arc::new(Self {
            memory: Memory::new(pages),
            capacity: (pages * PAGE) as u64,
            len: AtomicU64::new(0),
            media: Mutex::new(media),
        })
    }

    /// The power fails, and comes back. Each word that is not persistent keeps its value, one that was on its way, or the persistent one. No pool may be open.
    pub fn fail_power(&self, rng: &mut Rng) {
        let mut media = self.media.lock();
        let flushed = std::mem::take(&mut media.flushed);
        for (line, words) in flushed {
            for (word, &value) in (line * LINE_WORDS..).zip(&words) {
                if rng.chance(1, 2) {
                    media.words[word as usize] = value;
                }
            }
        }
        for (word, persistent) in media.words.iter_mut().enumerate() {
            let present = self.memory.load(word);
            if present != *persistent {
                if rng.chance(1, 2) {
                    *persistent = present;
                }
                self.memory.store(word, *persistent);
            }
        }
    }

    /// Flips bits of the word at `offset`, as a fault of the medium does. No pool may use it just then.
    pub fn damage(&self, offset: u64, flip: u64) {
        let word = (offset / 8) as usize;
        let value = self.memory.load(word) ^ flip;
        self.memory.store(word, value);
        self.media.lock().words[word] = value;
    }

    /// Barriers so far.
    pub fn drains(&self) -> u64 {
        self.media.lock().drains
    }

    fn length(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        if len > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        let line_bytes = LINE_WORDS * 8;
        let mut media = self.media.lock();
        for line in offset / line_bytes..(offset + len).div_ceil(line_bytes).min(self.capacity / line_bytes) {
            let words = std::array::from_fn(|at| self.memory.load((line * LINE_WORDS) as usize + at));
            media.flushed.push((line, words));
        }
    }

    fn finish_write_back(&self) {
        let mut media = self.media.lock();
        for (line, words) in std::mem::take(&mut media.flushed) {
            let first = (line * LINE_WORDS) as usize;
            media.words[first..first + words.len()].copy_from_slice(&words);
        }
        media.drains += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drained_stays_and_the_rest_may_go() {
        let (mut kept, mut flushed, mut stored) = (0, 0, 0);
        for seed in 0..64 {
            let module = Module::new(4096);
            for (word, drains) in [(0, true), (8, false)] {
                module.memory.store(word, 1);
                module.start_write_back(word as u64 * 8, 8);
                if drains {
                    module.finish_write_back();
                }
            }
            module.memory.store(16, 1);
            module.fail_power(&mut Rng::seeded(seed));
            kept += module.memory.load(0);
            flushed += module.memory.load(8);
            stored += module.memory.load(16);
        }
        assert_eq!(kept, 64);
        assert!((1..64).contains(&flushed) && (1..64).contains(&stored), "{flushed} {stored}");
    }
}
