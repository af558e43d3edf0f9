//! What a program or a recovery does to the medium: accesses, flushes, drains, new lengths.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use pmem::sim::Site;

use super::{OldLine, Sim, State, thread_mask, word_at};
use crate::config::{Kind, Model};
use crate::hash::mix;
use crate::pending::LINE_WORDS;
use crate::raw::{BLOCK, BLOCK_WORDS};

/// Earlier contents of lines that are kept for faults.
const OLD_LINES_MAX: usize = 512;
const LINE_BYTES: u64 = LINE_WORDS as u64 * 8;

impl Sim {
    #[inline]
    pub(super) fn touch(&self, offset: u64, len: u64, write: bool) -> io::Result<()> {
        let end = offset.saturating_add(len);
        if end > self.length() {
            return Err(beyond(offset, len, self.length()));
        }
        if !self.recovering || len == 0 {
            return Ok(());
        }
        if self.watched.load(Relaxed) {
            self.watch(offset, end)?;
        }
        let (first, last) = (word_at(offset), word_at(end - 1));
        self.trace_range(first, last);
        if self.any_open.load(Relaxed) {
            self.decide_range(first, last);
        }
        if write {
            if self.any_given_up.load(Relaxed) {
                self.write_again(first, last);
            }
            for block in first / BLOCK_WORDS..=last / BLOCK_WORDS {
                if !self.granted[block].load(Relaxed) {
                    self.grant(&mut self.state.lock(), block);
                }
            }
        }
        Ok(())
    }

    pub(super) fn start_write_back(&self, offset: u64, len: u64, site: Site) {
        if len == 0 || self.is_muted(Kind::Flush, site) {
            return;
        }
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::Flush, site);
        if !matches!(self.model, Model::File { .. }) {
            let last = word_at(offset.saturating_add(len - 1)) / LINE_WORDS;
            self.state.lock().pending.flush(word_at(offset) / LINE_WORDS, last, thread_mask(), self.model);
        }
    }

    pub(super) fn finish_write_back(&self, site: Site) -> io::Result<()> {
        if self.is_muted(Kind::Drain, site) {
            return Ok(());
        }
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::Drain, site);
        let mut state = self.state.lock();
        if state.armed {
            state.drains += 1;
            if self.plays.fail_drain == Some(state.drains) {
                state.pending.fail(thread_mask(), self.model);
                state.lens.clear();
                self.any_given_up.store(state.pending.any_lost(), Relaxed);
                return Err(io::Error::other("input/output error (EIO) played by the explorer: the sync failed"));
            }
        }
        self.resolve(&mut state, thread_mask());
        Ok(())
    }

    /// A file alone does it, with a power of two of lines, at a multiple of that.
    pub(super) fn store_whole(&self, offset: u64, data: &[u8], site: Site) -> io::Result<bool> {
        let len = data.len() as u64;
        let is_one = len.is_power_of_two() && len >= LINE_BYTES && offset.is_multiple_of(len);
        if !is_one || !matches!(self.model, Model::File { .. }) {
            return Ok(false);
        }
        self.touch(offset, len, true)?;
        if self.is_muted(Kind::Whole, site) {
            return Ok(true); // it is said to have been done
        }
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::Whole, site);
        let mut state = self.state.lock();
        if state.armed {
            state.drains += 1;
            if self.plays.fail_drain == Some(state.drains) {
                return Err(io::Error::other("input/output error (EIO) played by the explorer: the write failed"));
            }
        }
        let first = word_at(offset);
        let words = first..first + data.len() / 8;
        state.pending.forget(words.clone());
        for (word, bytes) in words.zip(data.chunks_exact(8)) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            let value = u64::from_ne_bytes(value);
            self.memory.store(word, value);
            state.shadow[word] = value;
            state.media_hash ^= mix(word, state.media[word]) ^ mix(word, value);
            state.media[word] = value;
        }
        Ok(true)
    }

    pub(super) fn resize(&self, len: u64, site: Site) -> io::Result<()> {
        let len = len.next_multiple_of(8);
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::SetLen, site);
        let old = self.length();
        let armed = self.state.lock().armed;
        let limit = self.plays.disk_full.filter(|_| armed).unwrap_or(self.capacity).min(self.capacity);
        if len > limit && len > old {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the simulated disk holds {limit} bytes, {len} were asked for"),
            ));
        }
        if len < old && self.recovering {
            self.trace_range(word_at(len), word_at(old - 1));
            self.decide_range(word_at(len), word_at(old - 1));
        }
        let mut state = self.state.lock();
        if len < old {
            self.cut(&mut state, word_at(len), word_at(old));
        } else if !self.recovering {
            (old as usize / BLOCK..(len as usize).div_ceil(BLOCK)).for_each(|block| self.grant(&mut state, block));
        }
        self.len.store(len, Relaxed);
        if matches!(self.model, Model::File { .. }) {
            self.compare(&mut state);
            state.lens.push(len);
        } else {
            state.media_len = len;
        }
        Ok(())
    }

    pub(super) fn note(&self, _site: Site) {
        self.compare(&mut self.state.lock());
    }

    /// Takes up what was stored since the last event.
    pub(crate) fn compare_now(&self) {
        self.compare(&mut self.state.lock());
    }

    pub(super) fn compare(&self, state: &mut State) {
        let State { interval, shadow, blocks, pending, .. } = state;
        *interval += 1;
        let mut now = [0u64; BLOCK_WORDS];
        for &block in blocks.iter() {
            let first = block as usize * BLOCK_WORDS;
            let seen = &mut shadow[first..first + BLOCK_WORDS];
            if !self.memory.differs(block as usize, seen) {
                continue;
            }
            self.memory.read_block(block as usize, &mut now);
            for (at, (seen, &value)) in seen.iter_mut().zip(&now).enumerate().filter(|(_, (s, n))| *s != *n) {
                pending.push(first + at, value, *interval);
                *seen = value;
            }
        }
    }

    pub(super) fn resolve(&self, state: &mut State, mask: u64) {
        let State { media, media_hash, pending, old_lines, .. } = state;
        let barrier = old_lines.back().map_or(1, |last| last.barrier + 1);
        pending.drain(mask, self.model, |word, value| {
            if self.plays.keep_old_lines {
                remember(old_lines, barrier, media, word);
            }
            *media_hash ^= mix(word, media[word]) ^ mix(word, value);
            media[word] = value;
        });
        if let Some(len) = state.lens.pop() {
            state.media_len = len;
            state.lens.clear();
        }
    }

    /// Zeroes the words of a tail that is cut off. Mapped memory changes at once; a file only with its next sync.
    fn cut(&self, state: &mut State, from: usize, to: usize) {
        for block in from / BLOCK_WORDS..to.div_ceil(BLOCK_WORDS) {
            self.grant(state, block);
        }
        let at_once = !matches!(self.model, Model::File { .. });
        for word in from..to {
            self.memory.store(word, 0);
            if at_once {
                state.shadow[word] = 0;
                state.media_hash ^= mix(word, state.media[word]);
                state.media[word] = 0;
            }
        }
        if at_once {
            state.pending.truncate(from);
        }
    }

    /// From here on stores to this block are tracked.
    pub(super) fn grant(&self, state: &mut State, block: usize) {
        if self.granted[block].swap(true, Relaxed) {
            return;
        }
        let mut now = [0u64; BLOCK_WORDS];
        self.memory.read_block(block, &mut now);
        let range = block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS;
        state.shadow[range.clone()].copy_from_slice(&now);
        state.media[range].copy_from_slice(&now);
        state.blocks.push(block as u32);
        state.mark_touched(block);
    }

    fn is_muted(&self, kind: Kind, site: Site) -> bool {
        !self.muted.is_empty() && self.muted.iter().any(|m| m.is(kind, site))
    }

    fn crash_point(&self, kind: Kind, site: Site) {
        // The hook runs without any lock of this model: it reads the model and runs recoveries.
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook.event(self, kind, site);
        }
    }
}

fn remember(old_lines: &mut VecDeque<OldLine>, barrier: u64, media: &[u64], word: usize) {
    let line = word / LINE_WORDS;
    let known = old_lines.iter().rev().take_while(|old| old.barrier == barrier).any(|old| old.line as usize == line);
    if known {
        return;
    }
    let mut content = [0; LINE_WORDS];
    content.copy_from_slice(&media[line * LINE_WORDS..(line + 1) * LINE_WORDS]);
    if old_lines.len() == OLD_LINES_MAX {
        old_lines.pop_front();
    }
    old_lines.push_back(OldLine { barrier, line: line as u32, content });
}

#[cold]
fn beyond(offset: u64, len: u64, file: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{len} bytes at offset {offset} are not inside the file of {file} bytes"),
    )
}
