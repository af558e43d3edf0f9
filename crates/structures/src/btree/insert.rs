//! Put: into a leaf that has room, or with splits from there upwards.

use pmem::PPtr;
use tx::{Range, Result, Transaction};

use super::BTree;
use super::image::{Image, Record, cost};
use super::layout::{VALUE_LEN, separator};
use super::node::{Bad, Node, Value};
use super::patch::Patch;
use super::path::{Leaf, Path, Step, bad};
use crate::media::{VALUE_MAX, behind, damaged, held, limit, word};

/// From this length on a value begins on a line.
const LINE_FROM: usize = 128;

impl BTree {
    pub(super) fn put_pair<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        limit("bytes of a key", key.len(), self.key_max.into())?;
        limit("bytes of a value", value.len(), VALUE_MAX)?;
        let Leaf { path, step, node, found } = self.path(tx, key)?;
        if found {
            let old = Old::of(&node, &step, key.len()).map_err(bad(step.at))?;
            self.replace(tx, path, old, key, value)?;
            return Ok(true);
        }
        match Patch::insertion(&node, step.index, key, self.tail_len(value.len())).map_err(bad(step.at))? {
            Some(patch) => {
                let tail = self.tail(tx, value)?;
                patch.apply(tx, step.at, key, &tail)?;
            }
            None => {
                let tail = self.tail(tx, value)?;
                self.place(tx, path, false, key, &tail)?;
            }
        }
        Ok(false)
    }

    /// Adds what putting a new key with a value of that length changes in its leaf, if that has room.
    pub(super) fn declare_insertion<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        key: &[u8],
        value_len: usize,
        ranges: &mut Vec<Range>,
    ) -> Result<()> {
        let Leaf { step, node, found, .. } = self.path(tx, key)?;
        let tail = self.tail_len(value_len);
        if !found && let Some(patch) = Patch::insertion(&node, step.index, key, tail).map_err(bad(step.at))? {
            patch.declare(step.at, key.len() + tail, ranges);
        }
        Ok(())
    }

    /// Bytes behind a key with a value of that length.
    fn tail_len(&self, value_len: usize) -> usize {
        let kept = value_len <= self.shape.inline_max as usize;
        VALUE_LEN + if kept { value_len } else { size_of::<PPtr<u8>>() }
    }

    /// What belongs to a key in its leaf; a long value gets its block.
    pub(super) fn tail<X: Transaction + ?Sized>(&self, tx: &mut X, value: &[u8]) -> Result<Vec<u8>> {
        let mut tail = (value.len() as u32).to_le_bytes().to_vec();
        if value.len() <= self.shape.inline_max as usize {
            tail.extend_from_slice(value);
        } else {
            let align = if value.len() >= LINE_FROM { pmem::LINE } else { 8 };
            let at = tx.alloc_bytes(value.len() as u64, align)?;
            tx.put_bytes(at, value)?;
            tail.extend_from_slice(&at.raw().to_le_bytes());
        }
        Ok(tail)
    }

    fn replace<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        path: Path,
        old: Old,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let len = value.len() as u64;
        if len == old.len {
            if let Some(at) = old.block.or((len > 0).then(|| behind(old.tail, VALUE_LEN as u64))) {
                tx.put_bytes(at, value)?;
            }
            return Ok(());
        }
        if let Some(at) = old.block.filter(|_| value.len() > self.shape.inline_max as usize) {
            let room = held("value", at, tx.room(at))?;
            // A block that would be more than half empty goes back.
            if len <= room && len * 2 >= room {
                let value_len = Range::new(old.tail, VALUE_LEN as u64);
                tx.intend(&[value_len, Range::new(at, len)])?;
                tx.bytes_mut(value_len.at, value_len.len)?.copy_from_slice(&(len as u32).to_le_bytes());
                tx.put_bytes(at, value)?;
                return Ok(());
            }
        }
        let tail = self.tail(tx, value)?;
        self.place(tx, path, true, key, &tail)?;
        old.block.map_or(Ok(()), |at| tx.free_bytes(at))
    }

    /// Puts a record where the path leads, instead of the one there if `replace`.
    fn place<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        mut path: Path,
        replace: bool,
        key: &[u8],
        tail: &[u8],
    ) -> Result<()> {
        // A caller that inserts in order leaves full nodes behind.
        let last = path.at_the_end && !replace;
        let (mut key, mut tail) = (key.to_vec(), tail.to_vec());
        let mut changed: Vec<(PPtr<u8>, Image)> = Vec::new();
        while let Some(step) = path.pop() {
            let why = bad(step.at);
            let mut image = Image::of(&self.again(tx, &step)?);
            if replace && step.level == 0 {
                image.remove(step.index).map_err(&why)?;
            }
            if image.insert(step.index, &key, &tail).map_err(&why)? {
                changed.push((step.at, image));
                break;
            }
            let split = Split::of(&image, step.index, (&key, &tail), last).map_err(&why)?;
            let right = self.alloc(tx, &split.right)?;
            if step.at == self.top {
                // The top stays where it is: both halves move out of it.
                let left = self.alloc(tx, &split.left)?;
                let level = step.level + 1;
                if self.shape.capacity(level) == 0 {
                    return Err(damaged("B+tree node", step.at, "the tree is too high"));
                }
                let child = right.raw().to_le_bytes();
                let top = Image::build(self.shape, level, left, &[(&split.between, &child)]).map_err(&why)?;
                changed.push((step.at, top));
                break;
            }
            (key, tail) = (split.between, right.raw().to_le_bytes().to_vec());
            changed.push((step.at, Split::shortened(split.left, split.kept, image).map_err(&why)?));
        }
        let changed: Vec<_> = changed.iter().map(|(at, image)| (*at, image)).collect();
        self.store(tx, &changed)
    }
}

/// A value that is replaced.
struct Old {
    /// Its length in the leaf, and what follows that.
    tail: PPtr<u8>,
    len: u64,
    /// Where it is, if not in the leaf.
    block: Option<PPtr<u8>>,
}

impl Old {
    fn of(leaf: &Node<'_>, step: &Step, key_len: usize) -> Result<Self, Bad> {
        let tail = behind(step.at, u64::from(leaf.slot(step.index)?.at) + key_len as u64);
        Ok(match leaf.value(step.index)? {
            Value::Inline(value) => Self { tail, len: value.len() as u64, block: None },
            Value::Block { at, len } => Self { tail, len, block: Some(at) },
        })
    }
}

/// A full node and one more record, in two halves.
struct Split {
    left: Image,
    right: Image,
    /// Lower bound of the keys in `right`.
    between: Vec<u8>,
    /// Records of the full node that stay there, if the new one is not among them.
    kept: Option<usize>,
}

impl Split {
    fn of(image: &Image, index: usize, record: Record<'_>, last: bool) -> Result<Self, Bad> {
        let node = image.node();
        let (shape, level) = (node.shape, node.header.level);
        let mut records = image.records()?;
        records.insert(index, record);
        if records.len() < 3 {
            return Err("full with fewer than two records");
        }
        let at = if last { records.len() - if level == 0 { 1 } else { 2 } } else { half(&records) };
        let (left, right) = records.split_at(at);
        let (first, between, right) = cut(level, left, right)?;
        Ok(Self {
            left: Image::build(shape, level, node.header.first, left)?,
            right: Image::build(shape, level, first, right)?,
            between: between.to_vec(),
            kept: (index >= at).then_some(at),
        })
    }

    /// The full node after the split: where nothing came in, forgetting the right half is enough.
    fn shortened(left: Image, kept: Option<usize>, mut full: Image) -> Result<Image, Bad> {
        let Some(kept) = kept else { return Ok(left) };
        full.truncate(kept)?;
        Ok(full)
    }
}

/// What [`cut`] makes of a right run of records.
type Cut<'r> = (PPtr<u8>, &'r [u8], &'r [Record<'r>]);

/// Between two runs of records: the right one's leftmost child, the key that divides them, and the records of the right one.
pub(super) fn cut<'r>(level: u16, left: &[Record<'r>], right: &'r [Record<'r>]) -> Result<Cut<'r>, Bad> {
    match (level, left, right) {
        (0, [.., (before, _)], [(after, _), ..]) => Ok((PPtr::NULL, separator(before, after), right)),
        (1.., [_, ..], [(between, child), rest @ ..]) => {
            let child = word(child, 0).ok_or("a record lies outside")?;
            Ok((PPtr::from_raw(child), between, rest))
        }
        _ => Err("too few records to divide"),
    }
}

/// How many of at least two records make half of their bytes; neither half is empty.
pub(super) fn half(records: &[Record<'_>]) -> usize {
    let total: usize = records.iter().map(|&record| cost(record)).sum();
    let mut left = 0;
    let mut fits = |&record: &Record<'_>| {
        let before = left;
        left += cost(record);
        // Past the middle if more than half of this record lies behind it.
        before + left <= total
    };
    records.iter().take_while(|record| fits(record)).count().clamp(1, records.len() - 1)
}
