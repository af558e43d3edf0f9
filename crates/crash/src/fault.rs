//! Plants one fault of the medium in what recovery is known to read.

use std::collections::BTreeMap;

use crate::config::FaultKind;
use crate::pending::LINE_WORDS;
use crate::raw::PAGE;
use crate::rng::Rng;
use crate::sim::{OldLine, Sim};

/// Draws before an attempt is given up: recovery may read mostly zeros.
const DRAWS_MAX: usize = 16;
const PAGE_LINES: usize = PAGE / (LINE_WORDS * 8);

/// Plants a fault in a freshly reset memory; says what it is. `reads` are ranges of lines, both ends included.
pub(crate) fn plant(
    child: &Sim,
    program: &Sim,
    reads: &[(u32, u32)],
    kinds: &[FaultKind],
    rng: &mut Rng,
) -> Option<String> {
    if kinds.is_empty() {
        return None;
    }
    let line = |rng: &mut Rng| {
        let (first, last) = reads[rng.index(reads.len())];
        first + rng.below(u64::from(last - first) + 1) as u32
    };
    let kind = kinds[rng.index(kinds.len())];
    child.is_planted(kind);
    match kind {
        FaultKind::Poison => {
            let line = line(rng);
            child.poison(line);
            Some(format!("the line at offset {} is poisoned", u64::from(line) * 64))
        }
        FaultKind::Flip => {
            // Words in use tell more than zeros.
            let mut at = (0, 0);
            for _ in 0..DRAWS_MAX {
                let word = line(rng) as usize * LINE_WORDS + rng.index(LINE_WORDS);
                at = (word, read(child, word)?);
                if at.1 != 0 {
                    break;
                }
            }
            let bit = rng.below(64);
            child.corrupt(at.0, at.1 ^ 1 << bit);
            Some(format!("bit {bit} of the word at offset {} is flipped, {:#x} was right", at.0 * 8, at.1))
        }
        FaultKind::Stuck => {
            let old = program.old_lines();
            for _ in 0..if old.is_empty() { 0 } else { DRAWS_MAX } {
                let OldLine { line, content, .. } = old[rng.index(old.len())];
                let is_read = reads.iter().any(|&(first, last)| (first..=last).contains(&line));
                let words = line as usize * LINE_WORDS..(line as usize + 1) * LINE_WORDS;
                if !is_read || words.clone().zip(content).all(|(w, old)| read(child, w) == Some(old)) {
                    continue;
                }
                words.zip(content).for_each(|(word, old)| child.corrupt(word, old));
                return Some(format!("the line at offset {} shows an earlier content", u64::from(line) * 64));
            }
            None
        }
        FaultKind::Page => {
            let old = program.old_lines();
            let page_of = |line: u32| line as usize / PAGE_LINES;
            for _ in 0..if old.is_empty() { 0 } else { DRAWS_MAX } {
                let since = old[rng.index(old.len())];
                let page = page_of(since.line);
                if !reads.iter().any(|&(first, last)| (page_of(first)..=page_of(last)).contains(&page)) {
                    continue;
                }
                // Of each line the oldest of these.
                let mut was = BTreeMap::new();
                for old in old.iter().filter(|old| old.barrier >= since.barrier && page_of(old.line) == page) {
                    was.entry(old.line).or_insert(old.content);
                }
                let words = |line: u32| line as usize * LINE_WORDS..(line as usize + 1) * LINE_WORDS;
                let other = |(line, content): (&u32, &[u64; LINE_WORDS])| {
                    words(*line).zip(content).filter(|(word, old)| read(child, *word) != Some(**old)).count()
                };
                if was.iter().map(other).sum::<usize>() == 0 {
                    continue;
                }
                let all = was.iter().flat_map(|(line, content)| words(*line).zip(content));
                all.for_each(|(word, old)| child.corrupt(word, *old));
                return Some(format!("the page at offset {} shows an earlier content", page * PAGE));
            }
            None
        }
    }
}

/// A word as recovery would find it; the access decides what is open there.
fn read(child: &Sim, word: usize) -> Option<u64> {
    child.load(word as u64 * 8).ok()
}
