//! Delete: nodes that run empty are unlinked, nodes that are nearly empty are merged with a neighbour or get records from it.

use pmem::PPtr;
use tx::{Range, Result, Transaction};

use super::BTree;
use super::image::{Image, Record, cost};
use super::insert::{cut, half};
use super::layout::HEADER;
use super::node::{Bad, Value};
use super::patch::Patch;
use super::path::{Leaf, Step, bad};

/// A node below this share of its bytes looks for a neighbour.
const LOW: usize = 4;

/// What became of a node.
enum After {
    Changed(Image),
    /// Nothing is left in it or below it.
    Empty,
}

impl BTree {
    /// Adds what deleting the key changes in its leaf, if that stays full enough.
    pub(super) fn declare_deletion<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        key: &[u8],
        ranges: &mut Vec<Range>,
    ) -> Result<()> {
        let Leaf { step, node, found, .. } = self.path(tx, key)?;
        if found && let Some(patch) = Patch::removal(&node, step.index).map_err(bad(step.at))? {
            patch.declare(step.at, 0, ranges);
        }
        Ok(())
    }

    pub(super) fn delete_key<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        let Leaf { mut path, mut step, node, found } = self.path(tx, key)?;
        if !found {
            return Ok(false);
        }
        let why = bad(step.at);
        let block = match node.value(step.index).map_err(&why)? {
            Value::Block { at, .. } => Some(at),
            Value::Inline(_) => None,
        };
        if let Some(patch) =
            Patch::removal(&node, step.index).map_err(&why)?.filter(|patch| patch.used() * LOW >= node.bytes.len())
        {
            patch.apply(tx, step.at, &[], &[])?;
            return self.free_value(tx, block).map(|()| true);
        }
        let mut image = Image::of(&node);
        image.remove(step.index).map_err(&why)?;
        self.free_value(tx, block)?;
        path.pop();

        let mut after = if image.count() == 0 { After::Empty } else { After::Changed(image) };
        while let Some(parent) = path.pop() {
            after = match after {
                After::Empty => self.unlink(tx, &step, &parent)?,
                After::Changed(image) if image.used() * LOW >= image.bytes().len() => {
                    self.store(tx, &[(step.at, &image)])?;
                    return Ok(true);
                }
                After::Changed(image) => match self.join(tx, &step, image, &parent)? {
                    Some(after) => after,
                    None => return Ok(true),
                },
            };
            step = parent;
        }
        self.lower_top(tx, after)?;
        Ok(true)
    }

    fn free_value<X: Transaction + ?Sized>(&self, tx: &mut X, block: Option<PPtr<u8>>) -> Result<()> {
        block.map_or(Ok(()), |at| tx.free_bytes(at))
    }

    /// Frees an empty node; its parent without it.
    fn unlink<X: Transaction + ?Sized>(&self, tx: &mut X, empty: &Step, parent: &Step) -> Result<After> {
        tx.free_bytes(empty.at)?;
        let mut image = Image::of(&self.again(tx, parent)?);
        if image.count() == 0 {
            return Ok(After::Empty);
        }
        image.remove_child(parent.index).map_err(bad(parent.at))?;
        Ok(After::Changed(image))
    }

    /// Merges a node with a neighbour, if both fit in one: the parent has a child less. Else gives it part of the neighbour's records.
    fn join<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        step: &Step,
        image: Image,
        parent: &Step,
    ) -> Result<Option<After>> {
        let why = bad(parent.at);
        let mut above = Image::of(&self.again(tx, parent)?);
        if above.count() == 0 {
            self.store(tx, &[(step.at, &image)])?;
            return Ok(None);
        }
        // The neighbour to the right, but for the last child.
        let index = parent.index.min(above.count() - 1);
        let other_index = if index == parent.index { index + 1 } else { index };
        let other_at = above.node().child(other_index).map_err(&why)?;
        let other = Image::of(&self.node(tx, other_at, step.level)?);
        let (left_at, right_at) = if index == parent.index { (step.at, other_at) } else { (other_at, step.at) };
        let (left, right) = if index == parent.index { (&image, &other) } else { (&other, &image) };

        let between = above.node().key(index).map_err(&why)?.to_vec();
        let joint = Joint::of(left, right, &between).map_err(bad(left_at))?;
        let all = joint.records();
        if let Some(whole) = joint.whole(&all).map_err(bad(left_at))? {
            above.remove(index).map_err(&why)?;
            self.store(tx, &[(left_at, &whole)])?;
            tx.free_bytes(right_at)?;
            return Ok(Some(After::Changed(above)));
        }
        let (left, right, between) = joint.halves(&all).map_err(bad(left_at))?;
        above.remove(index).map_err(&why)?;
        if above.insert(index, &between, &right_at.raw().to_le_bytes()).map_err(&why)? {
            self.store(tx, &[(left_at, &left), (right_at, &right), (parent.at, &above)])?;
        } else {
            // The parent has no room for the longer key: the node stays as small as it is.
            self.store(tx, &[(step.at, &image)])?;
        }
        Ok(None)
    }

    /// A top node with one child takes that child's place.
    fn lower_top<X: Transaction + ?Sized>(&self, tx: &mut X, after: After) -> Result<()> {
        let mut image = match after {
            After::Changed(image) => image,
            After::Empty => Image::new(self.shape, 0, PPtr::NULL),
        };
        while image.level() > 0 && image.count() == 0 {
            let child = image.node().child(0).map_err(bad(self.top))?;
            let node = self.node(tx, child, image.level() - 1)?;
            let records = (0..node.count()).map(|index| node.record(index)).collect::<Result<Vec<_>, Bad>>();
            let records = records.map_err(bad(child))?;
            image = Image::build(self.shape, node.header.level, node.header.first, &records).map_err(bad(child))?;
            tx.free_bytes(child)?;
        }
        self.store(tx, &[(self.top, &image)])
    }
}

/// Two neighbours, to become one or to share anew.
struct Joint<'n> {
    left: &'n Image,
    right: &'n Image,
    /// For inner nodes the key between them with the right one's leftmost child.
    middle: Option<(&'n [u8], [u8; 8])>,
    from: (Vec<Record<'n>>, Vec<Record<'n>>),
}

impl<'n> Joint<'n> {
    fn of(left: &'n Image, right: &'n Image, between: &'n [u8]) -> Result<Self, Bad> {
        let first = right.node().header.first.raw().to_le_bytes();
        let middle = (left.level() > 0).then_some((between, first));
        Ok(Self { left, right, middle, from: (left.records()?, right.records()?) })
    }

    fn records(&self) -> Vec<Record<'_>> {
        let middle = self.middle.as_ref().map(|(key, child)| (*key, &child[..]));
        self.from.0.iter().copied().chain(middle).chain(self.from.1.iter().copied()).collect()
    }

    fn build(&self, first: PPtr<u8>, records: &[Record<'_>]) -> Result<Image, Bad> {
        Image::build(self.left.node().shape, self.left.level(), first, records)
    }

    /// Both in one, if an eighth of it stays free.
    fn whole(&self, all: &[Record<'_>]) -> Result<Option<Image>, Bad> {
        let used = HEADER + all.iter().map(|&record| cost(record)).sum::<usize>();
        let capacity = self.right.bytes().len();
        let fits = used <= capacity - capacity / 8;
        fits.then(|| self.build(self.left.node().header.first, all)).transpose()
    }

    fn halves(&self, all: &[Record<'_>]) -> Result<(Image, Image, Vec<u8>), Bad> {
        if all.len() < 2 {
            return Err("full with fewer than two records");
        }
        let (left, right) = all.split_at(half(all));
        let (first, between, right) = cut(self.left.level(), left, right)?;
        Ok((self.build(self.left.node().header.first, left)?, self.build(first, right)?, between.to_vec()))
    }
}
