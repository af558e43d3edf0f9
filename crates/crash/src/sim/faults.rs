//! What the device does wrong: syncs that failed, lines that cannot be read, words with another value.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::{Sim, State};
use crate::config::{FaultKind, Model};
use crate::hash::mix;
use crate::pending::LINE_WORDS;
use crate::raw::{BLOCK_WORDS, PAGE};

impl Sim {
    // ---- after a sync that failed ----

    /// What the page cache has is synced, and what an earlier, failed sync gave up is dropped: from here on the program reads what
    /// the medium has. The model takes it that nothing of what was given up arrived. A program that opens a file that was not closed has to do
    /// this before trusting what it reads; `pmem` does, and opening a pool on this memory includes it. Other models have no such cache.
    pub fn forget_cached(&self) {
        if !matches!(self.model, Model::File { .. }) {
            return;
        }
        self.any_given_up.store(false, Relaxed);
        let mut guard = self.state.lock();
        self.compare(&mut guard);
        self.resolve(&mut guard, u64::MAX);
        let State { media, shadow, pending, .. } = &mut *guard;
        for line in pending.lines() {
            for word in line.changes.iter().map(|c| line.index as usize * LINE_WORDS + usize::from(c.word)) {
                self.memory.store(word, media[word]);
                shadow[word] = media[word];
            }
        }
        pending.clear();
    }

    /// A page of a file whose sync failed counts as clean. Storing to it makes it dirty, even if the value is the same.
    #[cold]
    pub(super) fn write_again(&self, first: usize, last: usize) {
        const PAGE_WORDS: usize = PAGE / 8;
        self.state.lock().pending.rewrite(first / PAGE_WORDS * PAGE_WORDS..(last / PAGE_WORDS + 1) * PAGE_WORDS);
    }

    // ---- faults of the medium ----

    #[cold]
    pub(super) fn watch(&self, offset: u64, end: u64) -> io::Result<()> {
        let (first, last) = (offset / 64, (end - 1) / 64);
        self.state.lock().reads.push((first as u32, last as u32));
        let poisoned = self.poisoned.load(Relaxed);
        if (first..=last).contains(&poisoned) {
            return Err(io::Error::other(format!("the line at offset {} is poisoned", poisoned * 64)));
        }
        Ok(())
    }

    /// The fault of the medium that a check finds, if one was planted: the promise may be a weaker one then.
    pub fn planted(&self) -> Option<FaultKind> {
        self.state.lock().planted
    }

    pub(crate) fn is_planted(&self, kind: FaultKind) {
        self.state.lock().planted = Some(kind);
    }

    pub(crate) fn record_reads(&self) {
        self.watched.store(true, Relaxed);
    }

    pub(crate) fn poison(&self, line: u32) {
        self.watched.store(true, Relaxed);
        self.poisoned.store(u64::from(line), Relaxed);
    }

    /// Gives a word another value, behind the program's back.
    pub(crate) fn corrupt(&self, word: usize, value: u64) {
        let mut state = self.state.lock();
        state.mark_touched(word / BLOCK_WORDS);
        state.leaf_hash ^= mix(word, self.memory.load(word)) ^ mix(word, value);
        state.media_hash ^= mix(word, self.memory.load(word)) ^ mix(word, value);
        self.memory.store(word, value);
    }
}
