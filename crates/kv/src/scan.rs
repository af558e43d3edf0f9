//! Ranges, leaf by leaf.

use std::ops::Bound;

use crate::error::Result;
use crate::index::{Listed, Stretch, lower};
use crate::isolation::active::Pin;
use crate::media::record::Record;
use crate::media::word::Word;
use crate::raw::Claim;
use crate::threads::signal::Signal;
use crate::time::Now;
use crate::versions::Versions;

/// Which keys.
pub(crate) type Range = tx::Keys;

/// Goes through the keys of a range as they were when the clock stood at `limit`.
pub(crate) struct Scanner<'p> {
    versions: &'p Versions,
    /// To be woken when enough leaves are scattered.
    background: &'p Signal,
    pin: &'p Pin<'p>,
    limit: u64,
    now: &'p Now,
    own: Option<usize>,
    range: Range,
    position: Position<'p>,
    /// The present leaf, in order of keys.
    leaf: Listed,
    /// What is left of it.
    left: std::ops::Range<usize>,
    /// Which keys it is for.
    stretch: Option<Stretch<'p>>,
    /// All of a leaf is held against its checksums before anything of it is believed.
    verify: bool,
    /// Has what it finds scattered written together: see `maintenance::neighbours`.
    gathers: bool,
}

/// Records asked for ahead of their use.
const AHEAD: usize = 16;
/// So many scattered leaves are worth a turn of the background thread.
pub(crate) const WORTHWHILE: u64 = 64;
/// Levels of a binary search whose keys are asked for before it begins.
const LEVELS: u32 = 3;

/// Which leaf is next.
enum Position<'p> {
    /// That of this key.
    At(Vec<u8>),
    /// That of the keys before this one, or of the last ones.
    Before(Option<Vec<u8>>),
    /// This one, if it still stands for these keys.
    Here(Stretch<'p>),
    End,
}

impl<'p> Scanner<'p> {
    pub(crate) fn new(
        versions: &'p Versions,
        background: &'p Signal,
        pin: &'p Pin<'p>,
        limit: u64,
        now: &'p Now,
        own: Option<usize>,
        range: Range,
    ) -> Self {
        let position = match (range.reverse, &range.from, &range.to) {
            (false, Bound::Unbounded, _) => Position::At(Vec::new()),
            (false, Bound::Included(key) | Bound::Excluded(key), _) | (true, _, Bound::Included(key)) => {
                Position::At(key.clone())
            }
            (true, _, Bound::Excluded(key)) => Position::Before(Some(key.clone())),
            (true, _, Bound::Unbounded) => Position::Before(None),
        };
        Self {
            versions,
            background,
            pin,
            limit,
            now,
            own,
            range,
            position,
            leaf: Listed::new(),
            left: 0..0,
            stretch: None,
            verify: versions.verifies(),
            gathers: !versions.pool().is_read_only(),
        }
    }

    /// Believes nothing that does not match its checksum, and reads once.
    pub(crate) fn verified(self) -> Self {
        Self { verify: true, gathers: false, ..self }
    }

    /// The next record.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'p>>> {
        loop {
            while let Some(word) = self.next_word() {
                let Some(record) = self.versions.version(self.pin, word, self.limit)? else { continue };
                let (key, reverse) = (record.key(), self.range.reverse);
                let (behind_from, before_to) = (self.is_behind_from(key), self.is_before_to(key));
                // What is corrupt must not end a scan.
                if !(behind_from && before_to) && self.stretch.is_some_and(|stretch| !stretch.has(key)) {
                    return Err(crate::media::record::damaged(
                        record.offset,
                        "it is not of a key of the leaf that leads to it",
                    ));
                }
                if if reverse { !behind_from } else { !before_to } {
                    self.left = 0..0;
                    self.position = Position::End;
                } else if behind_from && before_to && record.is_live(self.now) {
                    return Ok(Some(record));
                }
            }
            if matches!(self.position, Position::End) {
                return Ok(None);
            }
            self.read_leaf()?;
        }
    }

    /// The next version of the present leaf.
    #[inline]
    fn next_word(&mut self) -> Option<Word> {
        if self.left.len() == AHEAD
            && let Position::Here(next) = &self.position
        {
            let index = &self.versions.index;
            index.leaf(next.spot).first_words(self.range.reverse, AHEAD, |word| index.prefetch(word));
        }
        let (at, ahead) = if self.range.reverse {
            (self.left.next_back()?, self.left.end.checked_sub(AHEAD).filter(|at| *at >= self.left.start))
        } else {
            (self.left.next()?, Some(self.left.start + AHEAD - 1).filter(|at| *at < self.left.end))
        };
        if let Some(ahead) = ahead {
            self.versions.index.prefetch(self.leaf.slots[ahead].0);
        }
        Some(self.leaf.slots[at].0)
    }

    fn is_behind_from(&self, key: &[u8]) -> bool {
        match &self.range.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from.as_slice(),
            Bound::Excluded(from) => key > from.as_slice(),
        }
    }

    fn is_before_to(&self, key: &[u8]) -> bool {
        match &self.range.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
        }
    }

    /// The versions of this leaf are far from each other.
    #[cold]
    fn note_scattered(&self, leaf: u32) {
        if self.versions.index.leaves.mark_scattered(leaf).is_some_and(|all| all % WORTHWHILE == 0) {
            self.background.wake();
        }
    }

    #[inline(never)]
    fn read_leaf(&mut self) -> Result<()> {
        let index = &self.versions.index;
        let stretch: Stretch<'p> = loop {
            let stretch = match &self.position {
                Position::At(key) => index.locate(self.pin, key),
                Position::Before(key) => index.locate_before(self.pin, key.as_deref()),
                Position::Here(stretch) => *stretch,
                Position::End => return Ok(()),
            };
            self.versions.await_pending(index.leaf(stretch.spot), self.limit, self.own, None);
            if index.in_order(self.pin, stretch.spot, &mut self.leaf)? {
                break stretch;
            }
            if let Position::Here(stretch) = &self.position {
                self.position = if self.range.reverse {
                    Position::Before(stretch.to.map(<[u8]>::to_vec))
                } else {
                    Position::At(stretch.from.to_vec())
                };
            }
        };
        if self.gathers && self.pin.looks() && self.leaf.is_scattered() {
            self.note_scattered(stretch.spot.leaf);
        }
        let slots = &self.leaf.slots;
        if self.verify {
            slots.iter().try_for_each(|(word, _)| {
                let record = Record::at(Claim::Pinned, self.pin, self.versions.pool(), word.offset())?;
                self.versions.verify(record)
            })?;
        }
        let pin = self.pin;
        let key = |word: Word| index.key(pin, word);
        let lower = |slots: &[(Word, u8)], before: &dyn Fn(&[u8]) -> bool| {
            prefetch_probes(slots, LEVELS, &|word| index.prefetch_key(word));
            lower(slots, |(word, _)| Ok(before(key(*word)?)))
        };
        self.left = 0..slots.len();
        // A leaf may have more keys than were asked for: it is the first one, or has taken in others since.
        match &self.position {
            Position::At(from) if !self.range.reverse && stretch.from < from.as_slice() => {
                self.left.start = lower(slots, &|key| key < from.as_slice())?;
            }
            Position::At(to) if self.range.reverse => {
                self.left.end = lower(slots, &|key| key <= to.as_slice())?;
            }
            Position::Before(Some(to)) if stretch.to.is_none_or(|end| end > to.as_slice()) => {
                self.left.end = lower(slots, &|key| key < to.as_slice())?;
            }
            _ => {}
        }
        let soon = self.left.len().min(AHEAD);
        let soon = if self.range.reverse { self.left.end - soon } else { self.left.start }..;
        slots[soon].iter().take(AHEAD).for_each(|(word, _)| index.prefetch(*word));
        self.position = self.next_position(stretch);
        self.stretch = Some(stretch);
        Ok(())
    }

    fn next_position(&self, stretch: Stretch<'p>) -> Position<'p> {
        let more = if self.range.reverse {
            !stretch.from.is_empty()
                && match &self.range.from {
                    Bound::Unbounded => true,
                    Bound::Included(from) | Bound::Excluded(from) => stretch.from > from.as_slice(),
                }
        } else {
            stretch.to.is_some_and(|to| self.is_before_to(to))
        };
        let next = stretch.neighbour(self.range.reverse);
        match (more, next) {
            (false, _) => Position::End,
            (true, Some(next)) => {
                self.versions.index.prefetch_leaf(next.spot);
                Position::Here(next)
            }
            (true, None) if self.range.reverse => Position::Before(Some(stretch.from.to_vec())),
            (true, None) => stretch.to.map_or(Position::End, |to| Position::At(to.to_vec())),
        }
    }
}

/// Asks for the keys that a binary search looks at first, whichever way it goes: one miss instead of one behind the other.
fn prefetch_probes(slots: &[(Word, u8)], levels: u32, prefetch: &impl Fn(Word)) {
    let (before, from) = slots.split_at(0_usize.midpoint(slots.len()));
    if let Some(((word, _), behind)) = from.split_first()
        && levels > 0
    {
        prefetch(*word);
        prefetch_probes(before, levels - 1, prefetch);
        prefetch_probes(behind, levels - 1, prefetch);
    }
}
