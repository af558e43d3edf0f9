//! What the program has stored and the media may not have yet.

use crate::config::Model;
use crate::hash::mix_pair;

/// Words of one line.
pub(crate) const LINE_WORDS: usize = 8;
const NONE: u32 = u32::MAX;

/// A word got a new value between two events.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Which word of the line.
    pub(crate) word: u8,
    /// A failed sync gave this change up: no later drain brings it back, though it may have reached the media.
    lost: bool,
    /// The events between which it happened.
    pub(crate) interval: u32,
    /// The new value.
    pub(crate) value: u64,
    /// Threads that have put it in flight.
    pub(crate) threads: u64,
}

/// The changes of one line, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) index: u32,
    pub(crate) changes: Vec<Change>,
}

impl Line {
    /// How many contents the media may have of it, about.
    pub(crate) fn width(&self, model: Model) -> f64 {
        if matches!(model, Model::Lines) {
            return 1.0 + self.changes.len() as f64;
        }
        let of_word = |word| 1 + self.changes.iter().filter(|c| c.word == word).count();
        (0..LINE_WORDS as u8).map(|word| of_word(word) as f64).product()
    }
}

impl Line {
    /// What is in flight reaches the media; `persist(word, value)` is told the value the media has now.
    fn persist(&mut self, model: Model, in_flight: impl Fn(&Change) -> bool, mut persist: impl FnMut(usize, u64)) {
        let first_word = self.index as usize * LINE_WORDS;
        let mut upto = [0usize; LINE_WORDS];
        for (i, change) in self.changes.iter().enumerate().filter(|(_, c)| !c.lost && in_flight(c)) {
            upto[usize::from(change.word)] = i + 1;
        }
        if matches!(model, Model::Lines) {
            // A line reaches the media as a prefix of its stores: the last change in flight takes all before it along.
            upto = [*upto.iter().max().unwrap_or(&0); LINE_WORDS];
        }
        let mut at = 0;
        self.changes.retain(|c| {
            let gone = at < upto[usize::from(c.word)];
            at += 1;
            if gone {
                persist(first_word + usize::from(c.word), c.value);
            }
            !gone
        });
    }

    /// What is left of it when its process is killed: a flush needs no thread to wait for it. A file's pages stay where they are.
    pub(crate) fn outlive(&self, model: Model, persist: impl FnMut(usize, u64)) -> Self {
        let mut line = self.clone();
        line.persist(model, |c| c.threads != 0, persist);
        line
    }
}

/// All lines with changes. Lines keep their allocations when they become clean.
#[derive(Debug)]
pub(crate) struct Pending {
    lines: Vec<Line>,
    live: usize,
    slots: Vec<u32>,
}

impl Pending {
    pub(crate) fn new(words: usize) -> Self {
        Self { lines: Vec::new(), live: 0, slots: vec![NONE; words.div_ceil(LINE_WORDS)] }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines[..self.live]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub(crate) fn clear(&mut self) {
        for line in &mut self.lines[..self.live] {
            self.slots[line.index as usize] = NONE;
            line.changes.clear();
        }
        self.live = 0;
    }

    pub(crate) fn push(&mut self, word: usize, value: u64, interval: u32) {
        let index = word / LINE_WORDS;
        let change = Change { word: (word % LINE_WORDS) as u8, lost: false, interval, value, threads: 0 };
        self.line_mut(index).changes.push(change);
    }

    /// Takes over a line of a process that was killed, of which nothing is in flight any more. Pages that a failed
    /// sync gave up stay clean in the page cache; a processor's cache knows no such thing, the line can be flushed again.
    pub(crate) fn adopt(&mut self, line: &Line, model: Model) {
        let file = matches!(model, Model::File { .. });
        let changes = line.changes.iter().map(|c| Change { threads: 0, lost: c.lost && file, ..c.clone() });
        self.line_mut(line.index as usize).changes.extend(changes);
    }

    fn line_mut(&mut self, index: usize) -> &mut Line {
        if self.slots[index] == NONE {
            if self.live == self.lines.len() {
                self.lines.push(Line::default());
            }
            self.slots[index] = self.live as u32;
            self.lines[self.live].index = index as u32;
            self.live += 1;
        }
        &mut self.lines[self.slots[index] as usize]
    }

    pub(crate) fn holds(&self, word: usize) -> bool {
        match self.slots[word / LINE_WORDS] {
            NONE => false,
            slot => self.lines[slot as usize].changes.iter().any(|c| usize::from(c.word) == word % LINE_WORDS),
        }
    }

    /// The present content of the lines from `first` to `last` is in flight for the threads of `mask`, also what a failed drain gave up:
    /// see [`adopt`](Self::adopt).
    pub(crate) fn flush(&mut self, first: usize, last: usize, mask: u64, model: Model) {
        for line in &mut self.lines[..self.live] {
            if (first..=last).contains(&(line.index as usize)) {
                mark_newest(line, mask, model);
            }
        }
    }

    /// What the threads of `mask` have in flight leaves the pending set: `persist(word, value)` is told the value the media has now.
    pub(crate) fn drain(&mut self, mask: u64, model: Model, mut persist: impl FnMut(usize, u64)) {
        for slot in (0..self.live).rev() {
            let line = &mut self.lines[slot];
            line.persist(model, |c| matches!(model, Model::File { .. }) || c.threads & mask != 0, &mut persist);
            if line.changes.is_empty() {
                self.retire(slot);
            }
        }
    }

    /// These words are stored again: what a failed sync gave up there is dirty once more.
    pub(crate) fn rewrite(&mut self, words: std::ops::Range<usize>) {
        for line in &mut self.lines[..self.live] {
            let start = line.index as usize * LINE_WORDS;
            let again = line.changes.iter_mut().filter(|c| words.contains(&(start + usize::from(c.word))));
            again.for_each(|change| change.lost = false);
        }
    }

    /// A sync failed: what it would have made persistent never will be by a later one.
    pub(crate) fn fail(&mut self, mask: u64, model: Model) {
        for line in &mut self.lines[..self.live] {
            for change in &mut line.changes {
                change.lost |= matches!(model, Model::File { .. }) || change.threads & mask != 0;
            }
        }
    }

    pub(crate) fn any_lost(&self) -> bool {
        self.lines().iter().any(|line| line.changes.iter().any(|change| change.lost))
    }

    /// Forgets the changes of the words from `first` on: they are cut off.
    pub(crate) fn truncate(&mut self, first: usize) {
        self.forget(first..usize::MAX);
    }

    /// Forgets the changes of these words.
    pub(crate) fn forget(&mut self, words: std::ops::Range<usize>) {
        for slot in (0..self.live).rev() {
            let line = &mut self.lines[slot];
            let start = line.index as usize * LINE_WORDS;
            line.changes.retain(|c| !words.contains(&(start + usize::from(c.word))));
            if line.changes.is_empty() {
                self.retire(slot);
            }
        }
    }

    fn retire(&mut self, slot: usize) {
        self.slots[self.lines[slot].index as usize] = NONE;
        self.live -= 1;
        self.lines.swap(slot, self.live);
        if slot < self.live {
            self.slots[self.lines[slot].index as usize] = slot as u32;
        }
    }

    /// Equal for equal sets of changes, whatever the order of the lines.
    pub(crate) fn hash(&self, model: Model) -> u64 {
        let mut sum = 0;
        for line in self.lines() {
            let mut content = u64::from(line.index) + 1;
            let mut interval = 0;
            for change in &line.changes {
                // Which changes share an interval matters only where a line keeps their order.
                let later = matches!(model, Model::Lines) && change.interval != interval;
                interval = change.interval;
                // What a failed sync gave up, only a process that finds it in the cache can tell.
                let slot = u64::from(change.word) + 1 + (u64::from(change.lost) << 8);
                content = mix_pair(content ^ u64::from(later), mix_pair(slot, change.value));
            }
            sum ^= mix_pair(content, 0x5851_F42D_4C95_7F2D);
        }
        sum
    }
}

fn mark_newest(line: &mut Line, mask: u64, model: Model) {
    if matches!(model, Model::Lines) {
        if let Some(last) = line.changes.last_mut() {
            last.threads |= mask;
            last.lost = false;
        }
        return;
    }
    let mut seen = 0u8;
    for change in line.changes.iter_mut().rev() {
        let bit = 1 << change.word;
        if seen & bit == 0 {
            seen |= bit;
            change.threads |= mask;
            change.lost = false;
        }
    }
}
