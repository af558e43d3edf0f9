//! The index of the last checkpoint.

use pmem::Pool;

use crate::Step;
use crate::error::{Error, Result};
use crate::index::{Index, SLOTS};
use crate::maintenance::checkpointer::Checkpointer;
use crate::maintenance::nodes;
use crate::media::checkpoint::Checkpoint;
use crate::media::key;
use crate::media::mark::Mark;
use crate::media::node::{self, CHUNK, FANOUT, LEAF, Node, ROOT};
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::media::word::{Word, tag};
use crate::open::create::failpoints;
use crate::options::{Options, Part};
use crate::raw::Claim;
use crate::space::Space;
use crate::writers::writer::Tombstone;

pub(super) fn load(
    pool: &Pool,
    options: &Options,
    space: &Space,
    checkpoint: &Checkpoint,
    checkpointer: &mut Checkpointer,
    index: &mut Index,
) -> Result<()> {
    let key = &pool.checksum_key(space.offset(0));
    let mut chunks = Vec::new();
    let mut root = checkpoint.root;
    let mut entries = 0;
    let mut last: Option<Vec<u8>> = None;
    let proves = checkpoint.proves_nodes() && !failpoints(options).skips(Step::ProveNodes);
    // Of the root that was read last: where it is, what it says of those it names, and their checksums, but for that of the next one.
    let mut before: Option<(u32, u64, Vec<u64>)> = None;
    while root != 0 {
        take(checkpointer, space, root, 1)?;
        let (node, _) = nodes::read(pool, key, space, root, ROOT)?;
        match before.take() {
            None if proves && node.checksum != checkpoint.root_checksum => return Err(stale(space, root)),
            Some((at, children, checksums))
                if proves
                    && children != Node::children(key, ROOT, checksums.iter().copied().chain([node.checksum])) =>
            {
                return Err(stale(space, at));
            }
            _ => {}
        }
        checkpointer.load_root(root);
        let mut list_checksums = Vec::with_capacity(FANOUT);
        let of_root = node;
        for list in of_root.numbers() {
            take(checkpointer, space, list, 1)?;
            let (node, _) = nodes::read(pool, key, space, list, CHUNK)?;
            let (list_checksum, children) = (node.checksum, node.children);
            list_checksums.push(list_checksum);
            let numbers: Vec<u32> = node.numbers().collect();
            let mut chunk = Vec::with_capacity(FANOUT);
            let mut checksums = Vec::with_capacity(FANOUT);
            for number in &numbers {
                if number / node::per_segment(space.segment_bytes) >= space.count() {
                    return Err(damaged(space, list, "it leads nowhere"));
                }
                let (node, fence) = nodes::read(pool, key, space, *number, LEAF)?;
                if node.checkpoint > checkpoint.number {
                    return Err(damaged(space, *number, "it is newer than the checkpoint"));
                }
                if last.as_ref().map_or(!fence.is_empty(), |last| *last >= fence) || node.count as usize > SLOTS {
                    return Err(damaged(space, *number, "its first key is out of order"));
                }
                let span = Node::span(fence.len());
                take(checkpointer, space, *number, span)?;
                entries += u64::from(node.count);
                chunk.push((fence.clone(), load_leaf(pool, options, space, index, checkpointer, *number, &node)?));
                checksums.push(node.checksum);
                last = Some(fence);
            }
            if numbers.is_empty() {
                return Err(damaged(space, list, "it is empty"));
            }
            if proves && children != Node::children(key, CHUNK, checksums.into_iter()) {
                return Err(stale(space, list));
            }
            checkpointer.load_list(list, numbers, children, list_checksum);
            chunks.push(chunk);
            options.progress.tell(Part::Index, entries, checkpoint.entries.max(entries));
        }
        before = Some((root, of_root.children, list_checksums));
        root = of_root.next;
    }
    if let Some((at, children, checksums)) = before
        && proves
        && children != Node::children(key, ROOT, checksums.into_iter())
    {
        return Err(stale(space, at));
    }
    if chunks.is_empty() {
        return Err(damaged(space, checkpoint.root, "it is empty"));
    }
    index.load(chunks, entries - checkpointer.left_out());
    Ok(())
}

fn load_leaf(
    pool: &Pool,
    options: &Options,
    space: &Space,
    index: &Index,
    checkpointer: &mut Checkpointer,
    number: u32,
    node: &Node,
) -> Result<u32> {
    let mut words: Vec<Word> = node.words().collect();
    if options.salvage && !pool.is_read_only() {
        // A leaf with such a key cannot be split when logs are read.
        let is_known = |word: &Word| {
            let record = Record::at(Claim::Opening, pool, pool, word.offset());
            record.is_ok_and(|record| tag(key::hash(record.key())) == word.tag())
        };
        let before = words.len();
        words.retain(is_known);
        checkpointer.leave_out((before - words.len()) as u64);
    }
    for word in words.iter().copied() {
        let segment = space.number(word.offset()).map(|segment| (segment, space.used(segment)));
        let Some((segment, Use::Log { writer, sequence, .. })) = segment else {
            return Err(damaged(space, number, "it leads to a place that is in no log"));
        };
        let mark = Mark { sequence, at: word.offset() - space.offset(segment) };
        checkpointer.load_reached(writer, mark);
        space.add_live(segment, word.space());
        if word.is_tombstone() {
            // One that cannot be read stays.
            if let Ok(record) = Record::at(Claim::Opening, pool, pool, word.offset()) {
                checkpointer.load_tombstone(Tombstone {
                    key: record.key().into(),
                    word,
                    ts: record.header.ts,
                    unlinked: 0,
                });
            }
        }
    }
    let leaf = index.leaves.add();
    let made = index.leaves.get(leaf);
    if let Some(mut locked) = made.lock(made.layout()) {
        locked.fill(words.iter().copied());
    }
    if words.len() < node.count as usize {
        index.leaves.mark_dirty(leaf); // the next checkpoint leaves them out, too
    }
    made.set_node(number);
    made.checksum.store(node.checksum, std::sync::atomic::Ordering::Relaxed);
    Ok(leaf)
}

fn take(checkpointer: &mut Checkpointer, space: &Space, number: u32, count: u32) -> Result<()> {
    let per = node::per_segment(space.segment_bytes);
    let exists = number / per < space.count() && space.used(number / per) == Use::Nodes;
    if exists && checkpointer.load_node(space, number, count) {
        Ok(())
    } else {
        Err(damaged(space, number, "what leads to it leads nowhere, or twice to one place"))
    }
}

/// It, or one that it leads to, is not the one that was written last.
fn stale(space: &Space, number: u32) -> Error {
    damaged(
        space,
        number,
        "it, or a node that it names, is not of this checkpoint: a page went back to an earlier state",
    )
}

fn damaged(space: &Space, number: u32, why: &str) -> Error {
    Error::Damaged { what: "node of the index", offset: nodes::offset(space, number), why: why.to_owned() }
}
