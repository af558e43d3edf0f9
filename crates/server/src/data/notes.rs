//! Notes of what expires, for the [reaper](crate::reaper): the store forgets the head of a collection by itself, its elements are swept by these.
//!
//! **A collection whose head says that it expires at a moment has the note of that moment, with its key, and no other note has its id.** Each transaction that
//! changes the moment or the key keeps that true. So where a note is due and its key does not have the id, nothing has it. Versions before 2026-11-28 left the
//! note of the moment before when a key was told to stay, or to expire later, and did not take it along when the key was renamed. Their notes are shorter by a
//! byte, and are [looked at](check_old) before the first of them counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tx::Keys;

use super::{DATABASES, DUE, ELEMENTS, Head};
use crate::engine::{Engine, Error, Result, Tx};

/// Bytes of a note's key, and of one by an older version.
const LEN: usize = 1 + 8 + 8 + 1;
const OLD: usize = LEN - 1;

/// The key of the note that this collection expires at a moment.
fn note(moment: u64, id: u64) -> [u8; LEN] {
    let mut note = [1; LEN];
    note[0] = DUE;
    note[1..9].copy_from_slice(&moment.to_be_bytes());
    note[9..17].copy_from_slice(&id.to_be_bytes());
    note
}

/// The moment and id that a note's key names.
pub(crate) fn named(note: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| note.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    Some((number(1)?, number(9)?))
}

/// Whether it is by a version that left notes behind.
pub(crate) fn is_old(note: &[u8]) -> bool {
    note.len() == OLD
}

/// The head expires when it says, at this key.
pub(crate) fn write(tx: &mut dyn Tx, key: &[u8], head: &Head) -> Result<()> {
    head.expires().map_or(Ok(()), |moment| tx.put(&note(moment, head.id), key, None))
}

/// What the head says no longer holds.
pub(crate) fn remove(tx: &mut dyn Tx, head: &Head) -> Result<()> {
    if let Some(moment) = head.expires() {
        let note = note(moment, head.id);
        tx.delete(&note)?;
        tx.delete(&note[..OLD])?;
    }
    Ok(())
}

/// Looks at the notes of older versions, and replaces them, `most` in a transaction, by notes that hold. Where there is no room for so many, there may be for fewer; if for none, those before it are replaced.
///
/// Where a note's key does not have the id, and there are elements with it, the collection has expired, or has another key. All heads are read to tell which, in one snapshot: an id
/// that no head has then gets none afterwards.
pub(crate) fn check_old(engine: &dyn Engine, mut most: usize) -> Result<()> {
    // By note: whether its key has the id; if not, whether there are elements.
    let (mut notes, mut doubtful) = (BTreeMap::new(), BTreeSet::new());
    engine.read(&mut |tx| {
        (notes, doubtful) = (BTreeMap::new(), BTreeSet::new());
        let mut found = Vec::new();
        tx.scan(Keys::prefix(&[DUE]), &mut |note, key| {
            if is_old(note) {
                found.push((note.to_vec(), key.to_vec()));
            }
            ControlFlow::Continue(())
        })?;
        for (note, key) in found {
            let Some((_, id)) = named(&note) else { continue };
            let is_owned = has(tx, &key, id)?;
            if !is_owned && has_elements(tx, id)? {
                doubtful.insert(id);
            }
            notes.insert(note, is_owned);
        }
        if doubtful.is_empty() {
            return Ok(());
        }
        tx.scan(Keys::all().until(&[DATABASES]), &mut |_, value| {
            if let Some(head) = Head::read(value) {
                doubtful.remove(&head.id);
            }
            ControlFlow::Continue(())
        })
    })?;
    let notes: Vec<_> = notes.into_iter().collect();
    let mut left = &notes[..];
    while !left.is_empty() {
        let (some, behind) = left.split_at(most.clamp(1, left.len()));
        let replaced = engine
            .write(&mut |tx| some.iter().try_for_each(|(note, was_owned)| replace(tx, note, *was_owned, &doubtful)));
        match replaced {
            Err(Error::Full(_) | Error::LogFull(_) | Error::Limit(_)) if most > 1 => most /= 2,
            replaced => {
                replaced?;
                left = behind;
            }
        }
    }
    Ok(())
}

/// Replaces one by what holds. `was_owned` and `orphans` are of a snapshot before: since then this version has kept notes for what it changed, and removed this one with them.
fn replace(tx: &mut dyn Tx, old: &[u8], was_owned: bool, orphans: &BTreeSet<u64>) -> Result<()> {
    let Some(key) = tx.get(old)?.map(<[u8]>::to_vec) else { return Ok(()) };
    let (moment, id) = named(old).ok_or_else(|| Error::Damaged("a note of what expires is too short".to_owned()))?;
    let head = tx.get(&key)?.and_then(Head::read).filter(|head| head.id == id);
    let holds = match head {
        Some(head) => head.expires() == Some(moment),
        // It has expired in between, unless it was renamed, which has written the note.
        None if was_owned => tx.get(&note(moment, id))?.is_none(),
        None => orphans.contains(&id),
    };
    tx.delete(old)?;
    if holds { tx.put(&note(moment, id), &key, None) } else { Ok(()) }
}

/// Whether the collection at a key has this id.
fn has(tx: &dyn Tx, key: &[u8], id: u64) -> Result<bool> {
    Ok(tx.get(key)?.and_then(Head::read).is_some_and(|head| head.id == id))
}

fn has_elements(tx: &dyn Tx, id: u64) -> Result<bool> {
    let mut found = false;
    tx.scan(Keys::prefix(&[&[ELEMENTS], &id.to_be_bytes()[..]].concat()), &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::data::Kind;
    use crate::engine::{Commit, Counts, Kv, Run};

    /// A store that has no room for the next transactions that write, so many of them, and counts those that read.
    pub(crate) struct Refusing {
        store: Kv,
        pub(crate) refusals: Arc<AtomicUsize>,
        pub(crate) reads: Arc<AtomicUsize>,
    }

    impl Refusing {
        pub(crate) fn create(path: &Path) -> Self {
            let store = Kv::new(kv::Options::new().create(path).unwrap());
            Self { store, refusals: Arc::default(), reads: Arc::default() }
        }
    }

    impl Engine for Refusing {
        fn read(&self, run: Run<'_>) -> Result<()> {
            self.reads.fetch_add(1, SeqCst);
            self.store.read(run)
        }
        fn write(&self, run: Run<'_>) -> Result<()> {
            let refuses = self.refusals.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            if refuses { Err(Error::Full("a test takes all the room".to_owned())) } else { self.store.write(run) }
        }
        fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
            self.store.write_once(run, here)
        }
        fn is_slow(&self) -> bool {
            self.store.is_slow()
        }
        fn key_max(&self) -> usize {
            self.store.key_max()
        }
        fn value_max(&self) -> usize {
            self.store.value_max()
        }
        fn healthy(&self) -> Result<()> {
            self.store.healthy()
        }
        fn counts(&self) -> Counts {
            self.store.counts()
        }
        fn close(self: Box<Self>) -> Result<()> {
            Box::new(self.store).close()
        }
    }

    /// Writes old notes about collections that are not there, due at this moment and the next ones.
    pub(crate) fn write_old(engine: &dyn Engine, moment: u64, count: u64) {
        let write = |tx: &mut dyn Tx| (0..count).try_for_each(|n| tx.put(&note(moment + n, n)[..OLD], b"\0gone", None));
        engine.write(&mut |tx| write(tx)).unwrap();
    }

    /// In a full store all of it is looked at once, however few notes there is room for at one time.
    #[test]
    fn fewer_notes_are_replaced_at_one_time_where_there_is_little_room() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Refusing::create(&dir.path().join("s"));
        write_old(&engine, 1 << 50, 5);
        engine.refusals.store(3, SeqCst);
        check_old(&engine, 8).unwrap();
        assert_eq!(engine.reads.load(SeqCst), 1);
        let is_empty = |engine: &Refusing| {
            let mut is_empty = true;
            let look = &mut |_: &[u8], _: &[u8]| {
                is_empty = false;
                ControlFlow::Break(())
            };
            engine.store.read(&mut |tx| tx.scan(Keys::prefix(&[DUE]), look)).unwrap();
            is_empty
        };
        assert!(is_empty(&engine));
        // If there is none at all, they stay.
        write_old(&engine, 1 << 50, 5);
        engine.refusals.store(usize::MAX, SeqCst);
        assert!(matches!(check_old(&engine, 8), Err(Error::Full(_))));
        assert!(!is_empty(&engine) && engine.reads.load(SeqCst) == 2);
    }

    /// A collection with an element and an old note, of which each may be missing.
    struct Left {
        id: u64,
        noted_at: &'static [u8],
        head_at: Option<&'static [u8]>,
        expires: Option<u64>,
        has_elements: bool,
        holds: bool,
    }

    #[test]
    fn old_notes_are_replaced_where_they_hold() {
        let moment = 1 << 50;
        let dir = tempfile::tempdir().unwrap();
        let engine = Kv::new(kv::Options::new().create(dir.path().join("s")).unwrap());
        let left =
            |id, noted_at, head_at, expires| Left { id, noted_at, head_at, expires, has_elements: true, holds: false };
        let all = [
            Left { holds: true, ..left(1, b"\0expires", Some(b"\0expires"), Some(moment)) },
            left(2, b"\0stays", Some(b"\0stays"), None),
            left(3, b"\0later", Some(b"\0later"), Some(moment + 1)),
            left(4, b"\0before", Some(b"\x0fbehind"), None),
            left(5, b"\0before2", Some(b"\x01behind"), Some(moment + 2)),
            Left { holds: true, ..left(6, b"\0expired", None, None) },
            Left { has_elements: false, ..left(7, b"\0deleted", None, None) },
        ];
        engine
            .write(&mut |tx| {
                for left in &all {
                    let head = Head::new(Kind::Hash, left.id).expiring(left.expires);
                    tx.put(&note(moment, left.id)[..OLD], left.noted_at, None)?;
                    left.head_at.map_or(Ok(()), |key| tx.put(key, &head.write(), left.expires))?;
                    if left.has_elements {
                        tx.put(&head.element(&[b"e"]), b"v", None)?;
                    }
                }
                Ok(())
            })
            .unwrap();
        check_old(&engine, 2).unwrap();
        let mut found = BTreeMap::new();
        engine
            .read(&mut |tx| {
                tx.scan(Keys::prefix(&[DUE]), &mut |note, key| {
                    found.insert(note.to_vec(), key.to_vec());
                    ControlFlow::Continue(())
                })
            })
            .unwrap();
        let wanted =
            all.iter().filter(|left| left.holds).map(|left| (note(moment, left.id).to_vec(), left.noted_at.to_vec()));
        assert_eq!(found, wanted.collect());
    }

    /// Between the snapshot and the transaction that replaces its note, this version has changed what it was about.
    #[test]
    fn what_has_changed_since_the_snapshot_is_not_undone() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Kv::new(kv::Options::new().create(dir.path().join("s")).unwrap());
        let (moment, key, id) = (1 << 50, &b"\0k"[..], 9);
        let old = &note(moment, id)[..OLD];
        for (renamed, expected) in [(true, &b"\0n"[..]), (false, key)] {
            engine
                .write(&mut |tx| {
                    tx.put(old, key, None)?;
                    tx.delete(&note(moment, id))?;
                    if renamed { tx.put(&note(moment, id), b"\0n", None) } else { Ok(()) }
                })
                .unwrap();
            engine.write(&mut |tx| replace(tx, old, true, &BTreeSet::new())).unwrap();
            engine
                .read(&mut |tx| {
                    assert_eq!((tx.get(old)?, tx.get(&note(moment, id))?), (None, Some(expected)));
                    Ok(())
                })
                .unwrap();
        }
        // Told to stay: it took the note along.
        engine
            .write(&mut |tx| {
                remove(tx, &Head::new(Kind::Hash, id).expiring(Some(moment)))?;
                replace(tx, old, true, &BTreeSet::new())?;
                assert_eq!((tx.get(old)?, tx.get(&note(moment, id))?), (None, None));
                Ok(())
            })
            .unwrap();
    }
}
