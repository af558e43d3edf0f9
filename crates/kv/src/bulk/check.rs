//! Is everything there, and as it was written?

use std::fmt;

use crate::error::{Key, Result};
use crate::index::Stretch;
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::media::word::Word;
use crate::media::{checksum, key};
use crate::raw::Claim;
use crate::store::Store;
use crate::versions::Versions;
use crate::writers::writer::Dead;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// Keys with a whole value.
    pub keys: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// What is wrong, the first hundred.
    pub problems: Vec<Problem>,
    /// How much is wrong.
    pub count: u64,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What the index leads to it for, as far as that can be told.
    pub key: Option<Key>,
    /// Keys from here on are in the same leaf.
    pub leaf: Key,
    /// Where in the pool.
    pub offset: u64,
    /// What is wrong.
    pub why: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record at byte {}: {}; ", self.offset, self.why)?;
        match &self.key {
            Some(key) => write!(f, "its key reads {key}"),
            None => write!(f, "its key is one of those from {} on", self.leaf),
        }
    }
}

impl Checked {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.count == 0
    }
}

impl Store {
    /// Reads every key's newest version and holds it against its checksum; others use the store meanwhile. The index itself was checked when the store was opened: each
    /// of its nodes has a checksum, too. `progress` is told after each leaf how many keys are done.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.put(b"apples", b"17")?;
    /// let checked = store.check(|_| ())?;
    /// assert!(checked.is_sound() && checked.keys == 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`](crate::Error::TooMany).
    pub fn check(&self, mut progress: impl FnMut(u64)) -> Result<Checked> {
        let core = &*self.core;
        let mut checked = Checked::default();
        let mut from: Option<Vec<u8>> = Some(Vec::new());
        while let Some(key) = from.take() {
            // A pin for each leaf: a check of hours keeps nothing from being freed.
            let pin = core.versions.pin()?;
            let stretch = core.versions.index.locate(&pin, &key);
            let mut words = Vec::new();
            if !core.versions.index.leaf(stretch.spot).words(stretch.spot.layout, &mut words) {
                from = Some(key);
                continue;
            }
            words.iter().for_each(|word| check_word(&core.versions, *word, stretch, &mut checked));
            progress(checked.keys);
            from = stretch.to.map(<[u8]>::to_vec);
        }
        Ok(checked)
    }

    /// Takes keys out of the index whose newest version is damaged: they are gone, and what is left is sound. Returns which. Make a [backup](Self::backup) of
    /// what is whole, or a copy of the file, first.
    ///
    /// # Errors
    /// Those of a checkpoint.
    pub fn drop_damaged(&self) -> Result<Vec<Problem>> {
        let core = &*self.core;
        let mut dropped = Vec::new();
        loop {
            let checked = self.check(|_| ())?;
            if checked.is_sound() {
                break;
            }
            let pin = core.versions.pin()?;
            for problem in checked.problems {
                if let Some(word) = core.versions.index.forget(&pin, &problem.leaf.0, problem.offset) {
                    let unlinked = core.versions.now();
                    core.maintenance.retire(Dead { word, unlinked });
                }
                dropped.push(problem);
            }
        }
        if !dropped.is_empty() {
            core.checkpointing().checkpoint()?;
        }
        Ok(dropped)
    }
}

fn check_word(versions: &Versions, word: Word, stretch: Stretch<'_>, checked: &mut Checked) {
    match look_at(versions, word, stretch) {
        Ok(record) => {
            checked.keys += u64::from(!word.is_tombstone());
            checked.bytes += record.header.len();
        }
        Err((key, why)) => {
            checked.count += 1;
            if checked.problems.len() < 100 {
                let leaf = Key(stretch.from.to_vec());
                checked.problems.push(Problem { key, leaf, offset: word.offset(), why });
            }
        }
    }
}

/// The record of a word, if it is what the word says.
fn look_at<'v>(
    versions: &'v Versions,
    word: Word,
    stretch: Stretch<'_>,
) -> Result<Record<'v>, (Option<Key>, &'static str)> {
    let segment = versions.space.number(word.offset());
    let Some(Use::Log { writer, sequence, .. }) = segment.map(|segment| versions.space.used(segment)) else {
        return Err((None, "it is in no log"));
    };
    let record = Record::at(Claim::Pinned, versions, versions.pool(), word.offset())
        .map_err(|_| (None, "its lengths cannot be"))?;
    if !record.is_checksummed(versions.medium.key(), checksum::location(word.offset(), writer, sequence)) {
        return Err((None, "it does not match its checksum"));
    }
    let key = record.key();
    if crate::media::word::tag(key::hash(key)) != word.tag()
        || key < stretch.from
        || stretch.to.is_some_and(|to| key >= to)
    {
        return Err((Some(Key(key.to_vec())), "it is not of a key of the leaf that leads to it"));
    }
    Ok(record)
}
