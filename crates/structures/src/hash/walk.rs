//! All blocks of a map, each once: whatever leads to a bucket twice leads to a wrong place once, and the bucket tells.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::HashMap;
use super::find::misplaced;
use super::layout::{Bucket, HASH_BITS, NODE_LOG2_MAX, is_last, prefix, tag_of};
use crate::map::Report;
use crate::media::{Circle, Link, damaged, held};

/// What a walk meets.
enum Item {
    Block { what: &'static str, at: PPtr<u8>, depth: u32 },
    Slot(Slot),
}

/// A link to an entry.
struct Slot {
    entry: PPtr<u8>,
    tag: u16,
    /// What the hash begins with, and how many bits that is.
    path: u64,
    used: u32,
    /// First bit of the directory block's own.
    base: u32,
    depth: u32,
}

/// Part of the directory that is walked.
#[derive(Clone, Copy)]
struct Part {
    base: u32,
    path: u64,
    depth: u32,
}

type Flow = Result<ControlFlow<()>>;
type Meet<'a> = &'a mut dyn FnMut(Item) -> Flow;

const GO_ON: Flow = Ok(ControlFlow::Continue(()));

/// Goes on unless the visitor has seen enough.
macro_rules! step {
    ($flow:expr) => {
        if $flow?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    };
}

impl HashMap {
    fn walk<X: Transaction + ?Sized>(&self, tx: &X, meet: Meet<'_>) -> Result<()> {
        self.walk_pages(tx, meet).map(drop)
    }

    fn walk_pages<X: Transaction + ?Sized>(&self, tx: &X, meet: Meet<'_>) -> Flow {
        step!(meet(Item::Block { what: "hash map", at: self.root.cast(), depth: 0 }));
        for (index, &page) in self.pages[..1 << self.page_bits].iter().enumerate() {
            let at = PPtr::<u8>::new(self.tag(), page);
            step!(meet(Item::Block { what: "directory page", at, depth: 1 }));
            let words = held("directory page", at, tx.bytes(at, 8 << self.slot_bits))?;
            for (slot, word) in links(words).enumerate().filter(|(_, word)| !word.is_null()) {
                let path = top(index as u64, 0, self.page_bits) | top(slot as u64, self.page_bits, self.slot_bits);
                let part = Part { base: self.page_end(), path, depth: 2 };
                if word.bits() == 0 {
                    step!(self.walk_chain(tx, word.ptr(self.tag()), 0, part, meet));
                } else {
                    step!(self.walk_node(tx, word, part, meet));
                }
            }
        }
        GO_ON
    }

    fn walk_node<X: Transaction + ?Sized>(&self, tx: &X, link: Link, part: Part, meet: Meet<'_>) -> Flow {
        let (at, log2) = (link.ptr::<u8>(self.tag()), u32::from(link.bits()));
        if log2 > NODE_LOG2_MAX || part.base + NODE_LOG2_MAX > HASH_BITS {
            return Err(damaged("directory node", at, format!("no node has 2^{log2} words at bit {}", part.base)));
        }
        step!(meet(Item::Block { what: "directory node", at, depth: part.depth }));
        let words: Vec<Link> = links(held("directory node", at, tx.bytes(at, 8 << log2))?).collect();
        let mut index = 0;
        while index < words.len() {
            let (word, path) = (words[index], part.path | top(index as u64, part.base, log2));
            let next = Part { path, depth: part.depth + 1, ..part };
            let width = match word.bits() {
                0 => {
                    let first = word.ptr::<Bucket>(self.tag());
                    let bucket = held("bucket", first, tx.read(first))?;
                    let depth = bucket.depth().filter(|&depth| depth <= log2).ok_or_else(|| misplaced(first))?;
                    let width = 1 << (log2 - depth);
                    if index % width != 0 || words[index..index + width].iter().any(|&other| other != word) {
                        return Err(damaged("directory node", at, "its words do not agree with the depth of a bucket"));
                    }
                    step!(self.walk_chain(tx, first, depth, next, meet));
                    width
                }
                _ if log2 == NODE_LOG2_MAX => {
                    step!(self.walk_node(tx, word, Part { base: part.base + NODE_LOG2_MAX, ..next }, meet));
                    1
                }
                _ => return Err(damaged("directory node", at, "leads to a node but is not full")),
            };
            index += width;
        }
        GO_ON
    }

    /// A bucket with `depth` bits of its node, and those chained to it.
    fn walk_chain<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        first: PPtr<Bucket>,
        depth: u32,
        part: Part,
        meet: Meet<'_>,
    ) -> Flow {
        let used = part.base + depth;
        let (mut at, mut blocks, mut circle) = (first, part.depth, Circle::new());
        while !at.is_null() {
            if circle.closes(at.raw()) {
                return Err(damaged("bucket", at, "its chain is a circle"));
            }
            step!(meet(Item::Block { what: "bucket", at: at.cast(), depth: blocks }));
            let bucket = held("bucket", at, tx.read(at))?;
            if bucket.depth() != Some(depth) || bucket.path != prefix(part.path, used) {
                return Err(misplaced(at));
            }
            if at != first && self.grows && !is_last(part.base, depth) {
                return Err(damaged("bucket", at, "chained where it could have been split"));
            }
            blocks += 1;
            for link in bucket.slots.map(Link).into_iter().filter(|link| !link.is_null()) {
                let (entry, tag) = (link.ptr(self.tag()), link.bits());
                step!(meet(Item::Slot(Slot { entry, tag, path: bucket.path, used, base: part.base, depth: blocks })));
            }
            at = bucket.next(self.tag());
        }
        GO_ON
    }

    pub(super) fn visit_pairs<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk(tx, &mut |item| match item {
            Item::Slot(slot) => self.entry(tx, slot.entry).map(|entry| visit(entry.key, entry.value)),
            Item::Block { .. } => GO_ON,
        })
    }

    /// Calls `meet` with the place of each entry.
    pub(crate) fn each_offset<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        mut meet: impl FnMut(PPtr<u8>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(tx, &mut |item| match item {
            Item::Slot(slot) => meet(slot.entry),
            Item::Block { .. } => GO_ON,
        })
    }

    pub(super) fn count<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64> {
        let mut count = 0;
        self.walk(tx, &mut |item| {
            count += u64::from(matches!(item, Item::Slot(_)));
            GO_ON
        })?;
        Ok(count)
    }

    pub(super) fn free_all<X: Transaction + ?Sized>(&self, tx: &mut X) -> Result<()> {
        self.all_blocks(tx)?.into_iter().try_for_each(|block| tx.free_bytes(block))
    }

    pub(super) fn all_blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        let mut blocks = BTreeSet::new();
        self.walk(tx, &mut |item| {
            blocks.insert(match item {
                Item::Block { at, .. } => at.raw(),
                Item::Slot(slot) => slot.entry.raw(),
            });
            GO_ON
        })?;
        Ok(blocks.into_iter().map(PPtr::from_raw).collect())
    }

    pub(super) fn check<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        let root = held("hash map", self.root, tx.read(self.root))?;
        if root.seed != self.seed || root.pages != self.pages {
            return Err(damaged("hash map", self.root, "its root is not what it was when the map was opened"));
        }
        let mut report = Report::default();
        let mut seen = BTreeSet::new();
        let mut bucket: (u64, BTreeSet<&[u8]>) = (0, BTreeSet::new());
        self.walk(tx, &mut |item| {
            let (what, at, depth) = match item {
                Item::Block { what, at, depth } => (what, at, depth),
                Item::Slot(Slot { entry, depth, .. }) => ("entry", entry, depth),
            };
            if !seen.insert(at.raw()) {
                return Err(damaged(what, at, "in use twice"));
            }
            report.blocks += 1;
            report.block_bytes += held(what, at, tx.room(at))?;
            report.depth = report.depth.max(depth);
            let Item::Slot(slot) = item else { return GO_ON };

            let entry = self.entry(tx, at)?;
            let hash = self.hash(entry.key);
            if prefix(hash, slot.used) != slot.path || tag_of(hash, slot.base) != slot.tag {
                return Err(damaged(what, at, "its key belongs elsewhere"));
            }
            if bucket.0 != slot.path {
                bucket = (slot.path, BTreeSet::new());
            }
            if !bucket.1.insert(entry.key) {
                return Err(damaged(what, at, "its key is there twice"));
            }
            report.entries += 1;
            report.key_bytes += entry.key.len() as u64;
            report.value_bytes += entry.value.len() as u64;
            GO_ON
        })?;
        Ok(report)
    }
}

/// `count` bits at bit `from` of a hash.
fn top(value: u64, from: u32, count: u32) -> u64 {
    if count == 0 { 0 } else { value << (HASH_BITS - count) >> from }
}

fn links(words: &[u8]) -> impl Iterator<Item = Link> {
    words
        .chunks_exact(8)
        .map(|word| Link(u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])))
}
