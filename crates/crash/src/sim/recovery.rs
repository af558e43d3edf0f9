//! A memory as a recovery finds it: an image whose open words get their values when they are first read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{NO_LINE, Sim, State, UNDECIDED, word_at};
use crate::decide::{Choice, LENGTH_UNIT, Policy};
use crate::hash::{mix, mix_pair};
use crate::image::{Cached, Image};
use crate::pending::LINE_WORDS;
use crate::raw::BLOCK_WORDS;

impl Sim {
    /// Makes this image the one to recover.
    pub(crate) fn mount(&self, image: Arc<Image>) {
        self.restore_touched();
        let mut state = self.state.lock();
        let write = |block: usize| {
            if let Some(content) = image.block(block) {
                self.memory.write_block(block, content);
            }
        };
        if Arc::ptr_eq(&state.image.base, &image.base) {
            let differing = state.image.overlay.iter().chain(&image.overlay);
            differing.for_each(|(block, _)| write(*block as usize));
        } else {
            (0..self.granted.len()).for_each(write);
        }
        state.image = image;
    }

    /// Writes the whole image again, after a store that the model could not see.
    pub(crate) fn remount(&self) {
        let image = self.image();
        for block in 0..self.granted.len() {
            if let Some(content) = image.block(block) {
                self.memory.write_block(block, content);
            }
        }
    }

    /// Back to the image as the crash left it, everything open again.
    pub(crate) fn reset(&self, policy: Policy) {
        self.restore_touched();
        let mut state = self.state.lock();
        let image = Arc::clone(&state.image);
        for &(word, _) in &image.open {
            self.open[word as usize / 64].fetch_or(1 << (word % 64), Relaxed);
        }
        self.any_open.store(!image.open.is_empty(), Relaxed);
        state.media_hash = image.hash;
        state.leaf_hash = image.hash;
        state.lens.clear();
        state.media_len = image.lens[0];
        self.len.store(if image.lens.len() == 1 { image.lens[0] } else { UNDECIDED }, Relaxed);
        state.decider.reset(policy);
        state.reads.clear();
        state.planted = None;
        self.watched.store(false, Relaxed);
        self.poisoned.store(NO_LINE, Relaxed);
        self.any_given_up.store(false, Relaxed);
        if let Some(cached) = &image.cached {
            self.refill(&mut state, cached);
        }
    }

    /// Makes the memory what the killed process had stored, ahead of the media.
    fn refill(&self, state: &mut State, cached: &Cached) {
        for line in &cached.lines {
            let first = line.index as usize * LINE_WORDS;
            self.grant(state, first / BLOCK_WORDS);
            for change in &line.changes {
                let word = first + usize::from(change.word);
                state.leaf_hash ^= mix(word, self.memory.load(word)) ^ mix(word, change.value);
                self.memory.store(word, change.value);
                state.shadow[word] = change.value;
            }
            state.pending.adopt(line, self.model);
        }
        state.interval = cached.interval;
        self.any_given_up.store(state.pending.any_lost(), Relaxed);
        if let Some((len, lens)) = &cached.len {
            self.len.store(*len, Relaxed);
            state.lens.clone_from(lens);
        }
    }

    fn restore_touched(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for block in state.touched.drain(..) {
            state.is_touched[block as usize] = false;
            if let Some(content) = state.image.block(block as usize) {
                self.memory.write_block(block as usize, content);
            }
        }
        state.forget_blocks(&self.granted);
        for (first, last) in state.trace.drain(..) {
            self.seen[first as usize / 64..=last as usize / 64].iter().for_each(|bits| bits.store(0, Relaxed));
        }
        for &(word, _) in &state.image.open {
            self.open[word as usize / 64].fetch_and(!(1 << (word % 64)), Relaxed);
        }
    }

    /// A second crash right after a recovery: `all` says whether everything it stored arrived, or only what it drained.
    pub(crate) fn reboot(&self, all: bool) {
        let mut state = self.state.lock();
        if !all {
            for &block in &state.blocks {
                let first = block as usize * BLOCK_WORDS;
                self.memory.write_block(block as usize, &state.media[first..first + BLOCK_WORDS]);
            }
        }
        state.forget_blocks(&self.granted);
        if self.len.load(Relaxed) != UNDECIDED {
            match state.lens.pop() {
                Some(newest) if all => state.media_len = newest,
                _ => {}
            }
            self.len.store(state.media_len, Relaxed);
        }
        state.lens.clear();
        state.decider.freeze();
    }

    /// Hash of the image as decided so far.
    pub(crate) fn leaf_hash(&self) -> u64 {
        let state = self.state.lock();
        mix_pair(state.leaf_hash, self.len.load(Relaxed))
    }

    /// What recovery has read so far, unless it is one that will not be looked up, and the hash to look it up by.
    pub(crate) fn trace<R>(&self, see: impl FnOnce(&[(u32, u32)], u64) -> R) -> Option<R> {
        let state = self.state.lock();
        let &[len] = &state.image.lens[..] else { return None };
        Some(see(&state.trace, mix_pair(state.leaf_hash, len)))
    }

    /// Takes down what recovery reads, in the order in which it first does.
    #[inline]
    pub(super) fn trace_range(&self, first: usize, last: usize) {
        let mut new = false;
        for block in first / 64..=last / 64 {
            let bits = bits_within(block, first, last);
            let seen = self.seen[block].load(Relaxed);
            if seen & bits != bits {
                self.seen[block].store(seen | bits, Relaxed);
                new = true;
            }
        }
        if new {
            self.state.lock().trace.push((first as u32, last as u32));
        }
    }

    /// What recovery left: `(hash of the media, hash of the memory)`; `None` when it stored nothing.
    pub(crate) fn outcome(&self) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        self.compare(&mut state);
        let mut memory = state.media_hash;
        for line in state.pending.lines() {
            for word in (0..LINE_WORDS).map(|w| line.index as usize * LINE_WORDS + w) {
                memory ^= mix(word, state.media[word]) ^ mix(word, state.shadow[word]);
            }
        }
        let wrote = state.media_hash != state.leaf_hash || !state.pending.is_empty() || !state.lens.is_empty();
        let media = mix_pair(state.media_hash, state.media_len);
        let len = self.len.load(Relaxed);
        wrote.then_some((media, mix_pair(memory, len)))
    }

    /// An address that was stored to without write access: the explorer could not have seen it.
    pub(crate) fn stray_store(&self) -> Option<u64> {
        let state = self.state.lock();
        let mut now = [0u64; BLOCK_WORDS];
        for block in (0..self.granted.len()).filter(|&block| !state.is_touched[block]) {
            let Some(content) = state.image.block(block) else { continue };
            self.memory.read_block(block, &mut now);
            if let Some(word) = (0..BLOCK_WORDS).find(|&w| now[w] != content[w]) {
                return Some(((block * BLOCK_WORDS + word) * 8) as u64);
            }
        }
        None
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        Arc::clone(&self.state.lock().image)
    }

    pub(crate) fn choices(&self) -> Vec<Choice> {
        self.state.lock().decider.taken.clone()
    }

    pub(super) fn decide_len(&self) -> u64 {
        let mut state = self.state.lock();
        let image = Arc::clone(&state.image);
        let arity = image.lens.len() as u32;
        let length = Choice { unit: LENGTH_UNIT, group: LENGTH_UNIT, option: 0, arity, newest: arity - 1 };
        let option = state.decider.decide(length);
        let len = image.lens[option as usize];
        state.media_len = len;
        for word in word_at(len)..self.capacity as usize / 8 {
            let value = self.memory.load(word);
            if value != 0 {
                state.mark_touched(word / BLOCK_WORDS);
                self.memory.store(word, 0);
                state.media_hash ^= mix(word, value);
                state.leaf_hash ^= mix(word, value);
            }
        }
        for &(word, _) in image.open.iter().filter(|&&(w, _)| w as usize >= word_at(len)) {
            self.open[word as usize / 64].fetch_and(!(1 << (word % 64)), Relaxed);
        }
        self.len.store(len, Relaxed);
        len
    }

    #[inline]
    pub(super) fn decide_range(&self, first: usize, last: usize) {
        for block in first / 64..=last / 64 {
            while let bits @ 1.. = self.open[block].load(Relaxed) & bits_within(block, first, last) {
                self.decide_word(block * 64 + bits.trailing_zeros() as usize);
            }
        }
    }

    #[cold]
    fn decide_word(&self, word: usize) {
        let mut state = self.state.lock();
        let image = Arc::clone(&state.image);
        let Some(at) = image.unit_of(word) else {
            self.open[word / 64].fetch_and(!(1 << (word % 64)), Relaxed);
            return;
        };
        let unit = &image.units[at];
        let option = state.decider.decide(image.choice(at as u32, self.model.group_bytes()));
        for (word, &value) in unit.words().zip(image.option(unit, option)) {
            self.open[word / 64].fetch_and(!(1 << (word % 64)), Relaxed);
            let old = self.memory.load(word);
            if value == old {
                continue;
            }
            state.mark_touched(word / BLOCK_WORDS);
            self.memory.store(word, value);
            let change = mix(word, old) ^ mix(word, value);
            state.media_hash ^= change;
            state.leaf_hash ^= change;
            if self.granted[word / BLOCK_WORDS].load(Relaxed) {
                state.shadow[word] = value;
                state.media[word] = value;
            }
        }
    }
}

/// The words from `first` to `last` among the 64 of a block of bits.
#[inline]
fn bits_within(block: usize, first: usize, last: usize) -> u64 {
    let from = if block == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
    let to = if block == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
    from & to
}
