//! What a crash right now could leave of a memory.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{OldLine, Sim, State, UNDECIDED, word_at};
use crate::hash::mix_pair;
use crate::image::{Cached, Image, Unit};
use crate::raw::BLOCK_WORDS;

impl Sim {
    /// A hash of all that a crash now could leave.
    pub(crate) fn crash_key(&self) -> u64 {
        let state = self.state.lock();
        let mut key = mix_pair(state.media_hash, state.pending.hash(self.model));
        key = mix_pair(key, self.len.load(Relaxed));
        key = state.lens.iter().fold(mix_pair(key, state.media_len), |k, &len| mix_pair(k, len));
        let open = |unit: &Unit| unit.words().next().is_some_and(|w| self.is_open(w));
        for unit in state.image.units.iter().filter(|u| open(u)) {
            let options = &state.image.values[unit.start as usize..][..unit.arity as usize * unit.width()];
            key ^= options.iter().fold(u64::from(unit.line) << 8 | u64::from(unit.mask), |k, &v| mix_pair(k, v));
        }
        key
    }

    /// How many images a program's crash now could leave, were every word read.
    pub(crate) fn crash_width(&self) -> f64 {
        let state = self.state.lock();
        let lens = 1.0 + state.lens.len() as f64;
        state.pending.lines().iter().fold(lens, |width, line| width * line.width(self.model))
    }

    /// All images that a crash now could leave.
    pub(crate) fn crash_image(&self) -> Image {
        let state = self.state.lock();
        let mut image = Image { hash: state.media_hash, ..Image::default() };
        if self.recovering {
            image.base = Arc::clone(&state.image.base);
            let mut blocks: Vec<u32> = state.image.overlay.iter().map(|(block, _)| *block).collect();
            blocks.extend(&state.touched);
            blocks.sort_unstable();
            blocks.dedup();
            image.overlay =
                blocks.iter().map(|&block| (block, Box::new(self.media_block(&state, block as usize)))).collect();
        } else {
            let blocks = 0..self.granted.len();
            image.base = Arc::new(blocks.flat_map(|block| self.media_block(&state, block)).collect());
        }
        for line in state.pending.lines() {
            let media = image.line(line.index);
            image.add_line(line, &media, self.model);
        }
        self.inherit_open(&state, &mut image);
        image.lens = match self.len.load(Relaxed) {
            UNDECIDED => state.image.lens.clone(),
            _ => std::iter::once(state.media_len).chain(state.lens.iter().copied()).collect(),
        };
        let newest = image.lens.last().copied();
        image.lens.sort_unstable();
        image.lens.dedup();
        if let Some(at) = image.lens.iter().position(|&l| Some(l) == newest) {
            image.lens[at..].rotate_left(1);
        }
        // What lies beyond the longest file there may be is gone.
        let end = image.lens.iter().max().map_or(0, |&len| word_at(len));
        image.units.retain(|unit| unit.words().next().is_some_and(|w| w < end));
        image.checksum();
        image
    }

    /// What a process finds that starts after this one was killed; `None` when it is what a power failure leaves too.
    /// `crash` is the image of a power failure at this very moment.
    pub(crate) fn kill_image(&self, crash: &Image, flushed_outlives: bool) -> Option<Image> {
        let state = self.state.lock();
        if state.pending.is_empty() && state.lens.is_empty() {
            return None;
        }
        let len = self.len.load(Relaxed);
        let mut image = Image {
            base: Arc::clone(&crash.base),
            overlay: crash.overlay.clone(),
            hash: crash.hash,
            lens: if len == UNDECIDED { state.image.lens.clone() } else { vec![state.media_len] },
            ..Image::default()
        };
        let mut lines = Vec::new();
        for line in state.pending.lines() {
            let left = if flushed_outlives {
                line.outlive(self.model, |word, value| image.put(word, value))
            } else {
                line.clone()
            };
            if !left.changes.is_empty() {
                lines.push(left);
            }
        }
        if lines.is_empty() && state.lens.is_empty() {
            return None;
        }
        let len = (len != UNDECIDED).then(|| (len, state.lens.clone()));
        image.cached = Some(Cached { lines, interval: state.interval, len });
        self.inherit_open(&state, &mut image);
        image.checksum();
        Some(image)
    }

    /// Units that an earlier power failure left open, and that were not read or written since.
    fn inherit_open(&self, state: &State, image: &mut Image) {
        for unit in &state.image.units {
            if unit.words().all(|w| self.is_open(w) && !state.pending.holds(w)) {
                image.inherit(&state.image, unit);
            }
        }
    }

    /// What the media surely has of a block.
    fn media_block(&self, state: &State, block: usize) -> [u64; BLOCK_WORDS] {
        let mut content = [0u64; BLOCK_WORDS];
        if self.granted[block].load(Relaxed) {
            content.copy_from_slice(&state.media[block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS]);
        } else {
            self.memory.read_block(block, &mut content);
        }
        content
    }

    fn is_open(&self, word: usize) -> bool {
        self.open[word / 64].load(Relaxed) & (1 << (word % 64)) != 0
    }

    /// Earlier contents of lines, oldest first.
    pub(crate) fn old_lines(&self) -> Vec<OldLine> {
        self.state.lock().old_lines.iter().copied().collect()
    }
}
