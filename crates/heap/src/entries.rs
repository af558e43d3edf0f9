//! What a transaction of policy `eaw` writes, in DRAM until its commit: editable redo entries (MARS, SOSP 2013, §3.1).
//!
//! The first write to a range makes an entry, which the transaction edits from then on, and its reads are answered from. Entries do not overlap: a write that lies across
//! some gets an entry of its own, with what they held, and they keep what is left of them. A read that lies across gets a copy of what it would see, which dies with the next
//! change of the transaction.
//!
//! A [savepoint](tx::Savepoints) remembers the list of entries. Behind it they are edited no longer: the first write makes a new one, so that the old one is there to go back to.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use tx::Result;

use crate::raw::Aligned;
use crate::record::{Bytes, covers};

/// An entry: a range of main, and where its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) range: Bytes,
    at: usize,
    /// Savepoints that were set before it was made.
    level: u32,
}

impl Run {
    /// The part of it from `start` to `end`.
    fn part(&self, start: u64, end: u64) -> Self {
        Self { range: (start, end - start), at: self.at + (start - self.range.0) as usize, ..*self }
    }

    fn end(&self) -> u64 {
        self.range.0 + self.range.1
    }
}

/// Entries that do not overlap: few in a list, more in a tree.
#[derive(Clone, Default)]
struct Runs {
    few: Vec<Run>,
    /// By where they begin; empty while they are few.
    many: BTreeMap<u64, Run>,
}

const FEW: usize = 64;

impl Runs {
    fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// The entry that covers the range.
    #[inline]
    fn covering(&self, (offset, len): Bytes) -> Option<Run> {
        match self.many.is_empty() {
            true => self.few.iter().rev().find(|run| covers(run.range, offset, len)).copied(),
            false => self.last_before(offset + 1).filter(|run| covers(run.range, offset, len)),
        }
    }

    fn last_before(&self, end: u64) -> Option<Run> {
        self.many.range(..end).next_back().map(|(_, run)| *run)
    }

    /// Some entry that overlaps with the range.
    fn overlapping(&self, (offset, len): Bytes) -> Option<Run> {
        match self.many.is_empty() {
            true => self.few.iter().rev().find(|run| run.range.0 < offset + len && offset < run.end()).copied(),
            false => self.last_before(offset + len).filter(|run| offset < run.end()),
        }
    }

    fn insert(&mut self, run: Run) {
        if self.many.is_empty() && self.few.len() < FEW {
            return self.few.push(run);
        }
        self.many.extend(self.few.drain(..).map(|run| (run.range.0, run)));
        self.many.insert(run.range.0, run);
    }

    fn remove(&mut self, start: u64) {
        match self.many.is_empty() {
            true => self.few.retain(|run| run.range.0 != start),
            false => drop(self.many.remove(&start)),
        }
    }

    /// Calls `f` with every entry that overlaps with the range, in no order.
    fn each(&self, (offset, len): Bytes, mut f: impl FnMut(&Run)) {
        let end = offset + len;
        self.few.iter().filter(|run| run.range.0 < end && offset < run.end()).for_each(&mut f);
        let before = self.many.range(..end).rev().map(|(_, run)| run);
        before.take_while(|run| offset < run.end()).for_each(f);
    }

    /// Takes the range out of all entries.
    fn cut(&mut self, range: Bytes) {
        let end = range.0 + range.1;
        while let Some(run) = self.overlapping(range) {
            self.remove(run.range.0);
            if run.range.0 < range.0 {
                self.insert(run.part(run.range.0, range.0));
            }
            if end < run.end() {
                self.insert(run.part(end, run.end()));
            }
        }
    }
}

/// The entries of a transaction.
#[derive(Default)]
pub(crate) struct Entries {
    runs: Runs,
    bytes: Aligned,
    /// Those of `bytes` that were given out, those of entries that are gone among them; and those of entries.
    used: usize,
    live: usize,
    /// For reads that lie across entries.
    merged: Vec<(Bytes, Aligned, usize)>,
    /// Of each savepoint, the entries there were.
    saved: Vec<Saved>,
}

struct Saved {
    runs: Runs,
    live: usize,
}

/// Bytes of entries that are gone are given up when there are this many, and four times as many as of entries.
const GARBAGE: usize = 64 << 10;
/// Bytes whose memory is kept for the next transaction.
const KEEP: usize = 64 << 10;
/// Largest alignment of an object.
const ALIGN_MAX: u32 = 12;

/// At multiples of what an object can lie that is this long, and here.
#[inline]
fn align(range: Bytes) -> usize {
    1 << (range.0 | range.1).trailing_zeros().min(ALIGN_MAX)
}

/// Whether a reference to the range is aligned if its bytes are at `at`: all bytes begin at a multiple of every alignment.
#[inline]
fn is_aligned(range: Bytes, at: usize) -> bool {
    at.wrapping_sub(range.0 as usize).is_multiple_of(align(range))
}

/// The first place from `from` on at which a range may lie: as in main, within a line and more if an object there may need that.
#[inline]
fn aligned_from(range: Bytes, from: usize) -> usize {
    let step = align(range).max(pmem::LINE as usize);
    from + (range.0 as usize).wrapping_sub(from) % step
}

impl Entries {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The entry for a range, to be edited. If `whole`, all of it will be overwritten, and what it holds is not needed; else `main` gives that. `any` says that there may
    /// be entries which overlap. The bytes stay where they are until another entry is made; a range that has been asked for once has its entry until [`tidy`](Self::tidy) or a
    /// savepoint.
    #[inline]
    pub(crate) fn edit<'a>(
        &mut self,
        range: Bytes,
        (any, whole): (bool, bool),
        main: impl FnOnce() -> Result<&'a [u8]>,
    ) -> Result<NonNull<u8>> {
        let level = self.saved.len() as u32;
        if any && let Some(run) = self.runs.covering(range).filter(|run| run.level == level) {
            let at = run.at + (range.0 - run.range.0) as usize;
            if is_aligned(range, at) {
                if !self.merged.is_empty() {
                    self.merged.clear();
                }
                return Ok(self.bytes.at(at));
            }
        }
        self.make(range, any, whole, main)
    }

    fn make<'a>(
        &mut self,
        range: Bytes,
        any: bool,
        whole: bool,
        main: impl FnOnce() -> Result<&'a [u8]>,
    ) -> Result<NonNull<u8>> {
        self.merged.clear();
        let at = self.slot(range);
        if !whole {
            self.bytes.slice_mut(at, range.1 as usize).copy_from_slice(main()?);
        }
        if any {
            if !whole {
                overlay(&self.runs, range, |from, to, len| self.bytes.copy_within(from, at + to, len));
            }
            self.live -= overlap(&self.runs, range);
            self.runs.cut(range);
        }
        self.runs.insert(Run { range, at, level: self.saved.len() as u32 });
        self.live += range.1 as usize;
        Ok(self.bytes.at(at))
    }

    /// Room for a range, aligned as there.
    fn slot(&mut self, range: Bytes) -> usize {
        let at = aligned_from(range, self.used);
        self.used = at + range.1 as usize;
        self.bytes.reserve(self.used);
        at
    }

    /// What the transaction sees of a range, if it has written some of it. The bytes stay where they are until the
    /// transaction changes something.
    pub(crate) fn look<'a>(
        &mut self,
        range: Bytes,
        main: impl FnOnce() -> Result<&'a [u8]>,
    ) -> Result<Option<NonNull<u8>>> {
        if let Some(run) = self.runs.covering(range) {
            let at = run.at + (range.0 - run.range.0) as usize;
            if is_aligned(range, at) {
                return Ok(Some(self.bytes.at(at)));
            }
        }
        if range.1 == 0 || self.runs.overlapping(range).is_none() {
            return Ok(None);
        }
        for (copied, bytes, at) in &mut self.merged {
            if covers(*copied, range.0, range.1) {
                let at = *at + (range.0 - copied.0) as usize;
                if is_aligned(range, at) {
                    return Ok(Some(bytes.at(at)));
                }
            }
        }
        let (mut copy, at, len) = (Aligned::default(), aligned_from(range, 0), range.1 as usize);
        copy.reserve(at + len);
        copy.slice_mut(at, len).copy_from_slice(main()?);
        overlay(&self.runs, range, |from, to, len| {
            copy.slice_mut(at + to, len).copy_from_slice(self.bytes.slice(from, len));
        });
        let bytes = copy.at(at);
        self.merged.push((range, copy, at));
        Ok(Some(bytes))
    }

    /// Gives up what was written to a range.
    pub(crate) fn forget(&mut self, range: Bytes) {
        self.merged.clear();
        self.live -= overlap(&self.runs, range);
        self.runs.cut(range);
    }

    /// The same, and calls `f` with the pieces of it.
    pub(crate) fn take(&mut self, range: Bytes, mut f: impl FnMut(Bytes, &[u8]) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        self.runs.each(range, |run| {
            let part = run.part(run.range.0.max(range.0), run.end().min(range.0 + range.1));
            let bytes = self.bytes.slice(part.at, part.range.1 as usize);
            outcome = std::mem::replace(&mut outcome, Ok(())).and_then(|()| f(part.range, bytes));
        });
        self.forget(range);
        outcome
    }

    /// All entries, in the order of main.
    #[inline]
    pub(crate) fn in_order(&mut self) -> impl Iterator<Item = (Bytes, &[u8])> + Clone {
        if !self.runs.many.is_empty() {
            self.runs.few = std::mem::take(&mut self.runs.many).into_values().collect();
        } else if self.runs.few.len() > 1 {
            self.runs.few.sort_unstable_by_key(|run| run.range);
        }
        self.ordered()
    }

    /// The same, once they are in order.
    #[inline]
    pub(crate) fn ordered(&self) -> impl Iterator<Item = (Bytes, &[u8])> + Clone {
        self.runs.few.iter().map(|run| (run.range, self.bytes.slice(run.at, run.range.1 as usize)))
    }

    /// Gives up the bytes of entries that are gone, if they are many. Between two changes: an entry may lie elsewhere then, and be aligned for less.
    #[inline]
    pub(crate) fn tidy(&mut self) {
        if self.used > GARBAGE && self.used > 4 * self.live && self.saved.is_empty() {
            self.merged.clear();
            self.compact();
        }
    }

    #[cold]
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.bytes);
        self.used = 0;
        let runs = std::mem::take(&mut self.runs);
        for run in runs.few.into_iter().chain(runs.many.into_values()) {
            let at = self.slot(run.range);
            self.bytes.slice_mut(at, run.range.1 as usize).copy_from_slice(old.slice(run.at, run.range.1 as usize));
            self.runs.insert(Run { at, ..run });
        }
    }

    // ---- savepoints -------------------------------------------------------------------------------------------------

    pub(crate) fn save(&mut self) {
        self.merged.clear();
        self.saved.push(Saved { runs: self.runs.clone(), live: self.live });
    }

    /// What it was at the savepoint before which `level` others were set. It stays, those behind it go.
    pub(crate) fn go_back(&mut self, level: usize) {
        self.merged.clear();
        self.saved.truncate(level + 1);
        if let Some(saved) = self.saved.last() {
            (self.runs, self.live) = (saved.runs.clone(), saved.live);
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.used == 0 && self.saved.is_empty() {
            return;
        }
        self.runs.few.clear();
        self.runs.many.clear();
        self.merged.clear();
        self.saved.clear();
        (self.used, self.live) = (0, 0);
        self.bytes.give_up_beyond(KEEP);
        if self.runs.few.capacity() > KEEP / size_of::<Run>() {
            self.runs.few = Vec::new();
        }
    }
}

/// Calls `f` with (where, to where in the range, how many) for the bytes of entries in a range.
fn overlay(runs: &Runs, range: Bytes, mut f: impl FnMut(usize, usize, usize)) {
    runs.each(range, |run| {
        let part = run.part(run.range.0.max(range.0), run.end().min(range.0 + range.1));
        f(part.at, (part.range.0 - range.0) as usize, part.range.1 as usize);
    });
}

/// Bytes of entries in a range.
fn overlap(runs: &Runs, range: Bytes) -> usize {
    let mut bytes = 0;
    overlay(runs, range, |_, _, len| bytes += len);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

    use proptest::prelude::*;

    use super::*;

    const MAIN: u64 = 4096;

    #[derive(Clone, Debug)]
    enum Op {
        Edit(Bytes, u8),
        Put(Bytes, u8),
        Look(Bytes),
        Forget(Bytes),
        Save,
        Back(usize),
    }

    fn range() -> impl Strategy<Value = Bytes> {
        prop_oneof![
            (0..MAIN - 300, 1..300_u64),
            (0..MAIN / 64, 0..3_u32).prop_map(|(line, n)| ((line * 64) & !((64 << n) - 1), 64 << n)),
            (0..MAIN / 8, Just(8_u64)).prop_map(|(word, len)| (word * 8, len)),
        ]
        .prop_map(|(offset, len)| (offset, len.min(MAIN - offset)))
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (range(), any::<u8>()).prop_map(|(range, byte)| Op::Edit(range, byte)),
            3 => (range(), any::<u8>()).prop_map(|(range, byte)| Op::Put(range, byte)),
            6 => range().prop_map(Op::Look),
            1 => range().prop_map(Op::Forget),
            1 => Just(Op::Save),
            1 => (0..4_usize).prop_map(Op::Back),
        ]
    }

    /// The bytes at a pointer that was handed out just now.
    fn held(entries: &mut Entries, bytes: NonNull<u8>, len: u64) -> Vec<u8> {
        let of = |lines: &mut Aligned| {
            let at = bytes.addr().get().checked_sub(lines.at(0).addr().get())?;
            (at + len as usize <= lines.len()).then(|| lines.slice(at, len as usize).to_vec())
        };
        of(&mut entries.bytes).or_else(|| entries.merged.iter_mut().find_map(|(_, lines, _)| of(lines))).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// What is read is what a plain array holds, at an address that is aligned as in main; the entries never overlap.
        #[test]
        fn entries_are_as_an_array(ops in proptest::collection::vec(op(), 1..120), base in 0..64_u64) {
            let base = base * 4096;
            let main: Vec<u8> = (0..MAIN).map(|n| n as u8).collect();
            let mut model = main.clone();
            let mut saved: Vec<Vec<u8>> = Vec::new();
            let mut entries = Entries::default();
            for op in ops {
                let of = |(offset, len): Bytes| offset as usize..(offset + len) as usize;
                match op {
                    Op::Edit(range, byte) | Op::Put(range, byte) => {
                        let whole = matches!(op, Op::Put(..));
                        let at = (base + range.0, range.1);
                        if byte.is_multiple_of(4) {
                            entries.tidy();
                        }
                        let bytes = entries.edit(at, (true, whole), || Ok(&main[of(range)])).unwrap();
                        let offset = bytes.addr().get() - entries.bytes.at(0).addr().get();
                        prop_assert!(is_aligned(at, bytes.addr().get()));
                        let now = entries.bytes.slice_mut(offset, range.1 as usize);
                        if !whole {
                            prop_assert_eq!(&*now, &model[of(range)]);
                        }
                        now.fill(byte);
                        model[of(range)].fill(byte);
                    }
                    Op::Look(range) => {
                        let at = (base + range.0, range.1);
                        let found = entries.look(at, || Ok(&main[of(range)])).unwrap();
                        if let Some(bytes) = found {
                            prop_assert!(is_aligned(at, bytes.addr().get()));
                            prop_assert_eq!(held(&mut entries, bytes, range.1), &model[of(range)]);
                        } else {
                            prop_assert_eq!(&main[of(range)], &model[of(range)]);
                        }
                    }
                    Op::Forget(range) if saved.is_empty() => {
                        entries.forget((base + range.0, range.1));
                        model[of(range)].copy_from_slice(&main[of(range)]);
                    }
                    Op::Forget(_) => {}
                    Op::Save => {
                        entries.save();
                        saved.push(model.clone());
                    }
                    Op::Back(level) if level < saved.len() => {
                        entries.go_back(level);
                        saved.truncate(level + 1);
                        model.clone_from(&saved[level]);
                    }
                    Op::Back(_) => {}
                }
            }
            let mut all = main.clone();
            let mut end = 0;
            let live = entries.live;
            let mut bytes_of_all = 0;
            for ((offset, len), bytes) in entries.in_order() {
                prop_assert!(offset >= end);
                end = offset + len;
                bytes_of_all += bytes.len();
                let from = (offset - base) as usize;
                all[from..from + bytes.len()].copy_from_slice(bytes);
            }
            prop_assert_eq!(live, bytes_of_all);
            prop_assert_eq!(all, model);
        }
    }

    /// A transaction that writes the same object for ever takes no more memory.
    #[test]
    fn what_is_gone_is_given_up() {
        let main = [0; 256];
        let mut entries = Entries::default();
        for n in 0..100_000 {
            let offset = n % 2 * 32;
            entries.tidy();
            entries.edit((offset, 64), (true, false), || Ok(&main[..64])).unwrap();
        }
        assert!(entries.bytes.len() < 4 * GARBAGE, "{}", entries.bytes.len());
        assert_eq!(entries.in_order().count(), 2);
    }
}
