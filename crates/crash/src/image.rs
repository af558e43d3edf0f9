//! What a crash may leave: the media's content, and for what is undecided the values it may have.

use std::sync::Arc;

use crate::config::Model;
use crate::decide::Choice;
use crate::hash::mix;
use crate::pending::{LINE_WORDS, Line};
use crate::raw::BLOCK_WORDS;

/// More states of one line than this are not told apart (only the line model gets there, after many rewrites).
const OPTIONS_MAX: usize = 1024;

/// What has an open content at the crash: a word, or in the line model the changed words of a line.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) line: u32,
    /// The words of the line that are open, as a bit set.
    pub(crate) mask: u8,
    /// Start of the options in [`Image::values`]; the first one is what the media has.
    pub(crate) start: u32,
    pub(crate) arity: u32,
    /// The option that is the program's last value.
    newest: u32,
    /// The last value was flushed.
    pub(crate) flushed: bool,
}

impl Unit {
    /// The words, as indices into the memory.
    pub(crate) fn words(&self) -> impl Iterator<Item = usize> + use<> {
        let (line, mask) = (self.line as usize, self.mask);
        (0..LINE_WORDS).filter(move |w| mask & (1 << w) != 0).map(move |w| line * LINE_WORDS + w)
    }

    pub(crate) fn width(&self) -> usize {
        self.mask.count_ones() as usize
    }
}

/// What outlives a process that is killed, as long as the power stays.
#[derive(Debug)]
pub(crate) struct Cached {
    /// Stored, and not on the media.
    pub(crate) lines: Vec<Line>,
    /// The last interval of these changes.
    pub(crate) interval: u32,
    /// Length of the file, and its lengths not yet on the media; `None` while it was not asked for.
    pub(crate) len: Option<(u64, Vec<u64>)>,
}

/// All images of one crash point.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// The media, with open words at the value that is surely older than all their changes. Shared by the images that
    /// crashes inside a recovery leave: they differ in few blocks.
    pub(crate) base: Arc<Vec<u64>>,
    /// Pages that differ from the base, in order.
    pub(crate) overlay: Vec<(u32, Box<[u64; BLOCK_WORDS]>)>,
    pub(crate) hash: u64,
    pub(crate) units: Vec<Unit>,
    pub(crate) values: Vec<u64>,
    /// Possible lengths of the file; the last one is the program's.
    pub(crate) lens: Vec<u64>,
    /// The unit of each open word, by word.
    pub(crate) open: Vec<(u32, u32)>,
    /// A process was killed, and nothing else happened: the media is as described above, the memory is ahead of it.
    pub(crate) cached: Option<Cached>,
}

impl Image {
    /// Content of a block, if the memory has so many.
    pub(crate) fn block(&self, block: usize) -> Option<&[u64]> {
        match self.overlay.binary_search_by_key(&(block as u32), |(p, _)| *p) {
            Ok(at) => Some(&self.overlay[at].1[..]),
            Err(_) => self.base.get(block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS),
        }
    }

    /// The media has another value in this word.
    pub(crate) fn put(&mut self, word: usize, value: u64) {
        let (block, at) = (word / BLOCK_WORDS, word % BLOCK_WORDS);
        let slot = match self.overlay.binary_search_by_key(&(block as u32), |(b, _)| *b) {
            Ok(slot) => slot,
            Err(slot) => {
                let mut content = Box::new([0; BLOCK_WORDS]);
                if let Some(base) = self.block(block) {
                    content.copy_from_slice(base);
                }
                self.overlay.insert(slot, (block as u32, content));
                slot
            }
        };
        let old = std::mem::replace(&mut self.overlay[slot].1[at], value);
        self.hash ^= mix(word, old) ^ mix(word, value);
    }

    /// The line's words on the media.
    pub(crate) fn line(&self, index: u32) -> [u64; LINE_WORDS] {
        let first = index as usize * LINE_WORDS;
        let mut words = [0; LINE_WORDS];
        if let Some(block) = self.block(first / BLOCK_WORDS) {
            words.copy_from_slice(&block[first % BLOCK_WORDS..first % BLOCK_WORDS + LINE_WORDS]);
        }
        words
    }

    pub(crate) fn unit_of(&self, word: usize) -> Option<usize> {
        let at = self.open.binary_search_by_key(&(word as u32), |&(w, _)| w).ok()?;
        Some(self.open[at].1 as usize)
    }

    /// The values of the unit's words in this option.
    pub(crate) fn option(&self, unit: &Unit, option: u32) -> &[u64] {
        let start = unit.start as usize + option as usize * unit.width();
        &self.values[start..start + unit.width()]
    }

    /// A branch at this unit, with its first option.
    pub(crate) fn choice(&self, unit: u32, group_bytes: u64) -> Choice {
        let at = &self.units[unit as usize];
        let first = u64::from(at.line) * LINE_WORDS as u64 + u64::from(at.mask.trailing_zeros());
        let group = (first * 8 / group_bytes) as u32;
        Choice { unit, group, option: 0, arity: at.arity, newest: at.newest }
    }

    /// What this branch changes in the hash of the image.
    pub(crate) fn change(&self, choice: &Choice) -> u64 {
        if choice.option == 0 {
            return 0;
        }
        let unit = &self.units[choice.unit as usize];
        let (old, new) = (self.option(unit, 0), self.option(unit, choice.option));
        unit.words()
            .zip(old.iter().zip(new))
            .fold(0, |hash, (word, (&old, &new))| hash ^ mix(word, old) ^ mix(word, new))
    }

    /// Adds the open units of a line with changes; `media` is what the media has there.
    pub(crate) fn add_line(&mut self, line: &Line, media: &[u64; LINE_WORDS], model: Model) {
        if matches!(model, Model::Lines) {
            self.add_whole_line(line, media);
            return;
        }
        for word in 0..LINE_WORDS as u8 {
            let start = self.values.len();
            self.values.push(media[usize::from(word)]);
            let mut newest = 0;
            let mut flushed = false;
            for change in line.changes.iter().filter(|c| c.word == word) {
                let known = self.values[start..].iter().position(|&v| v == change.value);
                newest = known.unwrap_or(self.values.len() - start);
                if known.is_none() {
                    self.values.push(change.value);
                }
                flushed = change.threads != 0;
            }
            let arity = self.values.len() - start;
            self.push_unit(Unit {
                line: line.index,
                mask: 1 << word,
                start: start as u32,
                arity: arity as u32,
                newest: newest as u32,
                flushed,
            });
        }
    }

    /// x86: the stores to a line reach it in program order; between two events the order is not known, so any subset of
    /// the last interval that arrived.
    fn add_whole_line(&mut self, line: &Line, media: &[u64; LINE_WORDS]) {
        let mask = line.changes.iter().fold(0u8, |m, c| m | 1 << c.word);
        let mut states: Vec<[u64; LINE_WORDS]> = vec![*media];
        let mut resolved = *media;
        for group in line.changes.chunk_by(|a, b| a.interval == b.interval) {
            for subset in 1u32..1 << group.len() {
                let mut state = resolved;
                for (_, change) in group.iter().enumerate().filter(|(i, _)| subset & (1 << i) != 0) {
                    state[usize::from(change.word)] = change.value;
                }
                if states.len() < OPTIONS_MAX && !states.contains(&state) {
                    states.push(state);
                }
            }
            group.iter().for_each(|c| resolved[usize::from(c.word)] = c.value);
        }
        let newest = states.iter().position(|s| *s == resolved).unwrap_or_else(|| {
            states.push(resolved);
            states.len() - 1
        });
        let unit = Unit {
            line: line.index,
            mask,
            start: self.values.len() as u32,
            arity: states.len() as u32,
            newest: newest as u32,
            flushed: line.changes.last().is_some_and(|c| c.threads != 0),
        };
        for state in &states {
            self.values.extend((0..LINE_WORDS).filter(|w| mask & (1 << w) != 0).map(|w| state[w]));
        }
        self.push_unit(unit);
    }

    fn push_unit(&mut self, unit: Unit) {
        if unit.arity < 2 {
            self.values.truncate(unit.start as usize);
        } else {
            self.units.push(unit);
        }
    }

    /// Takes over a unit that an earlier crash left open and that was not read since.
    pub(crate) fn inherit(&mut self, from: &Image, unit: &Unit) {
        let start = self.values.len() as u32;
        let end = unit.start as usize + unit.arity as usize * unit.width();
        self.values.extend_from_slice(&from.values[unit.start as usize..end]);
        self.units.push(Unit { start, ..unit.clone() });
    }

    /// Orders the units and indexes their words.
    pub(crate) fn checksum(&mut self) {
        self.units.sort_by_key(|u| (u.line, u.mask));
        self.open.clear();
        for (at, unit) in self.units.iter().enumerate() {
            self.open.extend(unit.words().map(|w| (w as u32, at as u32)));
        }
        self.open.sort_unstable();
    }
}
