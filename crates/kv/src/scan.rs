//! Ranges, leaf by leaf.

use std::ops::Bound;

use crate::active::Pin;
use crate::core::Core;
use crate::error::Result;
use crate::index::Stretch;
use crate::record::Record;
use crate::time::Now;
use crate::word::Word;

/// Which keys.
pub(crate) type Range = tx::Keys;

/// Goes through the keys of a range as they were when the clock stood at `limit`.
pub(crate) struct Scanner<'p> {
    core: &'p Core,
    pin: &'p Pin<'p>,
    limit: u64,
    now: &'p Now,
    own: Option<usize>,
    range: Range,
    place: Place,
    words: Vec<Word>,
    /// What is left of the present leaf, last first.
    rows: Vec<Record<'p>>,
}

/// Which leaf is next.
enum Place {
    /// That of this key.
    At(Vec<u8>),
    /// That of the keys before this one, or of the last ones.
    Before(Option<Vec<u8>>),
    End,
}

impl<'p> Scanner<'p> {
    pub(crate) fn new(
        core: &'p Core,
        pin: &'p Pin<'p>,
        limit: u64,
        now: &'p Now,
        own: Option<usize>,
        range: Range,
    ) -> Self {
        let place = match (range.reverse, &range.from, &range.to) {
            (false, Bound::Unbounded, _) => Place::At(Vec::new()),
            (false, Bound::Included(key) | Bound::Excluded(key), _) | (true, _, Bound::Included(key)) => {
                Place::At(key.clone())
            }
            (true, _, Bound::Excluded(key)) => Place::Before(Some(key.clone())),
            (true, _, Bound::Unbounded) => Place::Before(None),
        };
        Self { core, pin, limit, now, own, range, place, words: Vec::new(), rows: Vec::new() }
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'p>>> {
        loop {
            if let Some(record) = self.rows.pop() {
                return Ok(Some(record));
            }
            if matches!(self.place, Place::End) {
                return Ok(None);
            }
            self.read_leaf()?;
        }
    }

    fn read_leaf(&mut self) -> Result<()> {
        let index = &self.core.index;
        let stretch: Stretch<'p> = loop {
            let stretch = match &self.place {
                Place::At(key) => index.locate(self.pin, key),
                Place::Before(key) => index.locate_before(self.pin, key.as_deref()),
                Place::End => return Ok(()),
            };
            let leaf = index.leaf(stretch.spot);
            self.core.await_pending(leaf, self.limit, self.own, None);
            if leaf.words(stretch.spot.layout, &mut self.words) {
                break stretch;
            }
        };
        for word in &self.words {
            let Some(record) = self.core.version(*word, self.limit)? else { continue };
            if record.is_live(self.now) && self.range.contains(record.key()) {
                self.rows.push(record);
            }
        }
        if self.range.reverse {
            self.rows.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        } else {
            self.rows.sort_unstable_by(|a, b| b.key().cmp(a.key()));
        }
        self.place = self.next_place(stretch);
        Ok(())
    }

    fn next_place(&self, stretch: Stretch<'p>) -> Place {
        if self.range.reverse {
            let more = match &self.range.from {
                Bound::Unbounded => true,
                Bound::Included(from) | Bound::Excluded(from) => stretch.from > from.as_slice(),
            };
            return if more && !stretch.from.is_empty() {
                Place::Before(Some(stretch.from.to_vec()))
            } else {
                Place::End
            };
        }
        let Some(to) = stretch.to else { return Place::End };
        let more = match &self.range.to {
            Bound::Unbounded => true,
            Bound::Included(end) => to <= end.as_slice(),
            Bound::Excluded(end) => to < end.as_slice(),
        };
        if more { Place::At(to.to_vec()) } else { Place::End }
    }
}
