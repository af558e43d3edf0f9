//! Checkpoints: by them the index on media follows the one in memory; then what is no longer needed is freed.
//!
//! A checkpoint writes each leaf that has changed to a new node, the lists that lead there; a barrier; and names them in the cell, one copy after the
//! other, with a barrier each. However many commits. What the old checkpoint named is not touched before that. It also names, for each writer, the mark up to which its log is in the
//! leaves: recovery reads on from there.
//!
//! *Retire before free*: a version is freed when a durable checkpoint no longer leads to it but to its superseder, or has that before the marks, and no reader
//! can reach it any more. A tombstone leaves the index only behind a durable checkpoint that has it: then the next one, the first without it, has marks behind
//! everything older. Else a record of an older version, in another writer's log, would bring the key back.

use std::sync::atomic::Ordering::Relaxed;

use pmem::sync::switch_point;

use crate::Step;
use crate::error::Result;
use crate::index::NO_NODE;
use crate::isolation::active::Pin;
use crate::maintenance::Checkpointing;
use crate::maintenance::checkpointer::{Checkpointer, Gathered, List};
use crate::maintenance::due::Lag;
use crate::maintenance::nodes;
use crate::media::checkpoint::{Checkpoint, WRITERS};
use crate::media::mark::Mark;
use crate::media::node::{self, CHUNK, FANOUT, FENCE_INLINE, Node, ROOT};
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::media::word::Word;
use crate::raw::Claim;
use crate::writers::writer::Dead;

impl Checkpointing<'_> {
    /// So many bytes of records were written: enough of them, and it is time for a checkpoint.
    #[cold]
    pub(crate) fn account(&self, bytes: u64) {
        let background = &self.maintenance.background;
        self.versions.note_leaves();
        if self.versions.space.wants_background() {
            background.wake();
        }
        let lag = self.maintenance.due.add(bytes);
        // Committers wait a little, again and again, for a background thread that cannot keep up, which takes less time than a checkpoint; behind one that makes none
        // they do it themselves, or there would be no end to it.
        match lag {
            Lag::NotDue => {}
            Lag::Due if background.is_running() => background.call(),
            Lag::Late if background.is_running() => background.call_and_wait(),
            _ => {
                if let Err(error) = self.checkpoint() {
                    tracing::warn!(%error, "a checkpoint failed; commits go on as long as there is room");
                }
            }
        }
    }

    /// Makes a checkpoint of everything committed so far, and frees what is no longer needed. Three barriers.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.checkpoint_for(false)
    }

    /// The same for a transaction that was refused room to take data out: everything moves that gains anything. The caller has nothing locked, or that would
    /// stay behind.
    pub(crate) fn rescue(&self) -> Result<()> {
        self.checkpoint_for(true)
    }

    fn checkpoint_for(&self, rescue: bool) -> Result<()> {
        let mut checkpointer = self.maintenance.checkpointer();
        checkpointer.rescue = rescue;
        self.versions.pool().check_usable()?;
        self.versions.space.ask_again();
        // What a checkpoint that failed had gathered is for this one.
        let mut gathered = std::mem::take(&mut checkpointer.gathered);
        gathered.left.append(&mut self.versions.index.take_left());
        if let Err(error) = self.write_checkpoint(&mut checkpointer, &mut gathered) {
            let Gathered { dead, tombstones, left, chunks, .. } = gathered;
            checkpointer.gathered = Gathered { dead, tombstones, left, ..Gathered::default() };
            checkpointer.chunks.extend(chunks);
            checkpointer.nodes.far = None;
            // What it has taken comes back only with the next one.
            checkpointer.note_nodes(&self.versions.space);
            self.versions.pool().drain()?; // the next one takes these nodes as they are, and another thread may make it
            return Err(error);
        }
        self.reclaim(&mut checkpointer, gathered)
    }

    fn write_checkpoint(&self, checkpointer: &mut Checkpointer, gathered: &mut Gathered) -> Result<()> {
        let written = self.maintenance.due.written();
        let pin = self.versions.concurrency.active.pin_for_upkeep()?;
        if !self.versions.skips(Step::MarksFirst) {
            self.gather(checkpointer, gathered);
        }
        let number = checkpointer.cell.get().number + 1;
        self.write_leaves(checkpointer, &pin, number, gathered)?;
        if self.versions.skips(Step::MarksFirst) {
            self.gather(checkpointer, gathered);
        }
        let (root, root_checksum) = self.write_roots(checkpointer, number, gathered)?;
        // What is in the leaves is durable before they are named.
        if !self.versions.skips(Step::ForceFirst) {
            self.persistence.force(self.versions)?;
        }
        let commit_number = self.persistence.forced();
        if !self.versions.skips(Step::CheckpointBarrier) {
            self.versions.pool().drain()?;
        }
        let mut marks = [0; WRITERS];
        let mut links = [0; WRITERS];
        marks.iter_mut().zip(&gathered.marks).for_each(|(word, mark)| *word = mark.to_word());
        links.iter_mut().zip(&gathered.links).for_each(|(kept, link)| *kept = *link);
        let checkpoint = Checkpoint {
            root,
            number,
            clock: if self.versions.skips(Step::RestoreClock) { 1 } else { self.versions.now() },
            commit_number,
            entries: self.versions.index.entries(),
            marks,
            links,
            root_checksum,
            ..checkpointer.cell.get()
        };
        checkpointer.cell.update(&checkpoint)?;
        self.maintenance.due.is_checkpointed(written);
        crate::stats::add(&self.maintenance.checkpoints, 1);
        checkpointer.chunks = std::mem::take(&mut gathered.chunks);
        for node in std::mem::take(&mut gathered.left) {
            let count = checkpointer.long.remove(&node).unwrap_or(1);
            checkpointer.nodes.free(&self.versions.space, node, count);
        }
        Ok(())
    }

    /// Takes each writer's mark and what it superseded, while no thread commits through it. A commit holds its log until it is in the index, so whatever is
    /// before the marks is in the leaves, which are read after this. The log of groups comes first: a transaction that has records in it by then holds its own
    /// until they are in the index.
    fn gather(&self, checkpointer: &Checkpointer, gathered: &mut Gathered) {
        let late = usize::from(self.versions.skips(Step::GroupsMarkFirst));
        gathered.marks = vec![Mark::from_word(0); WRITERS];
        gathered.links = vec![0; WRITERS];
        let short = checkpointer.rescue || self.versions.space.is_short();
        for number in (late..WRITERS).chain(0..late) {
            let mut log = self.versions.writers.get(number).log.lock();
            // Nothing came since the last checkpoint: its thread may be gone.
            let idle = log.segment().filter(|_| log.mark() == checkpointer.mark(number));
            let ends = |segment| {
                // Nothing moves out of one that a writer fills.
                let is_full = short && log.is_filled(&self.versions.space);
                self.versions.space.live(segment) == 0 || checkpointer.nodes.is_far(segment) || is_full
            };
            if log.was_cut() && !self.versions.skips(Step::FreshSegments) || idle.is_some_and(ends) {
                log.end_segment(&self.versions.space);
            }
            (gathered.marks[number], gathered.links[number]) = (log.mark(), log.link());
            log.take_superseded(&mut gathered.dead, &mut gathered.tombstones);
        }
    }

    // ---- what is written --------------------------------------------------------------------------------------

    fn write_leaves(
        &self,
        checkpointer: &mut Checkpointer,
        pin: &Pin<'_>,
        number: u64,
        gathered: &mut Gathered,
    ) -> Result<()> {
        let mut from = Some(Vec::new());
        let mut words = Vec::new();
        let per = node::per_segment(self.versions.space.segment_bytes);
        while let Some(key) = from.take() {
            let (mut list, mut checksums) = (Vec::with_capacity(FANOUT), Vec::with_capacity(FANOUT));
            // A thread that splits leaves does not wait for this. A leaf that is split behind this has changed, and waits for the next checkpoint with all it
            // has then.
            let mut next = Some(self.versions.index.locate(pin, &key));
            while let Some(stretch) = next {
                let leaf = self.versions.index.leaf(stretch.spot);
                let old = leaf.node();
                let dirty = self.versions.index.leaves.take_dirty(stretch.spot.leaf);
                switch_point();
                let mut node = old;
                if dirty || old == NO_NODE || checkpointer.nodes.is_far(old / per) {
                    if !leaf.words(stretch.spot.layout, &mut words) && !self.versions.skips(Step::LookAgain) {
                        // It was split: what it stood for is found from its first key on.
                        self.versions.index.leaves.mark_dirty(stretch.spot.leaf);
                        from = Some(stretch.from.to_vec());
                        break;
                    }
                    // What is not written now has changed still, whatever becomes of this checkpoint.
                    let written = self.write_leaf(checkpointer, number, stretch.from, &words, old);
                    let (at, checksum) =
                        written.inspect_err(|_| self.versions.index.leaves.mark_dirty(stretch.spot.leaf))?;
                    node = at;
                    leaf.set_node(node);
                    leaf.checksum.store(checksum, Relaxed);
                    if old != NO_NODE {
                        gathered.left.push(old);
                    }
                }
                list.push(node);
                checksums.push(leaf.checksum.load(Relaxed));
                next = stretch.neighbour(false);
                if next.is_none() {
                    from = stretch.to.map(<[u8]>::to_vec);
                }
            }
            if !list.is_empty() {
                let children = self.children(checkpointer, CHUNK, checksums.into_iter());
                self.write_list(checkpointer, number, list, children, gathered)?;
            }
        }
        // Lists of the last checkpoint that were not found again.
        gathered.left.extend(checkpointer.chunks.drain().map(|(_, list)| list.node));
        Ok(())
    }

    /// What a node keeps of those it names.
    fn children(&self, checkpointer: &Checkpointer, kind: u32, checksums: impl Iterator<Item = u64>) -> u64 {
        if checkpointer.cell.get().proves_nodes() {
            Node::children(self.versions.medium.key(), kind, checksums)
        } else {
            0
        }
    }

    /// Returns where it is, and its checksum.
    fn write_leaf(
        &self,
        checkpointer: &mut Checkpointer,
        number: u64,
        fence: &[u8],
        words: &[Word],
        old: u32,
    ) -> Result<(u32, u64)> {
        let span = Node::span(fence.len());
        let at = if self.versions.skips(Step::CopyNodes) && old != NO_NODE {
            old
        } else {
            checkpointer.nodes.take(&self.versions.space, span)?
        };
        if span > 1 {
            checkpointer.long.insert(at, span);
        }
        let mut node = Node::leaf(number, fence, words);
        let rest = fence.get(FENCE_INLINE..).unwrap_or_default();
        let checksum =
            nodes::write(self.versions.pool(), self.versions.medium.key(), &self.versions.space, at, &mut node, rest)?;
        Ok((at, checksum))
    }

    /// Writes the list of a chunk, unless it is as it was.
    fn write_list(
        &self,
        checkpointer: &mut Checkpointer,
        number: u64,
        leaves: Vec<u32>,
        children: u64,
        gathered: &mut Gathered,
    ) -> Result<()> {
        let first = leaves.first().copied().unwrap_or(NO_NODE);
        let per = node::per_segment(self.versions.space.segment_bytes);
        if let Some(was) = checkpointer.chunks.remove(&first) {
            if was.leaves == leaves && was.children == children && !checkpointer.nodes.is_far(was.node / per) {
                gathered.lists.push((was.node, was.checksum));
                gathered.chunks.insert(first, was);
                return Ok(());
            }
            gathered.left.push(was.node);
        }
        let at = checkpointer.nodes.take(&self.versions.space, 1)?;
        let mut node = Node::list(number, CHUNK, &leaves, 0, children);
        let checksum =
            nodes::write(self.versions.pool(), self.versions.medium.key(), &self.versions.space, at, &mut node, &[])?;
        gathered.lists.push((at, checksum));
        gathered.chunks.insert(first, List { leaves, children, node: at, checksum });
        Ok(())
    }

    /// Writes the list of lists, from its end; returns where it begins, and the checksum there.
    fn write_roots(&self, checkpointer: &mut Checkpointer, number: u64, gathered: &mut Gathered) -> Result<(u32, u64)> {
        gathered.left.append(&mut checkpointer.roots);
        let (mut next, mut next_checksum) = (0, None);
        for lists in gathered.lists.chunks(FANOUT).rev() {
            let mut at = checkpointer.nodes.take(&self.versions.space, 1)?;
            if at == 0 {
                // Node 0 means that there is none: it stays taken.
                at = checkpointer.nodes.take(&self.versions.space, 1)?;
            }
            let children = self.children(checkpointer, ROOT, lists.iter().map(|list| list.1).chain(next_checksum));
            let numbers: Vec<u32> = lists.iter().map(|list| list.0).collect();
            let mut node = Node::list(number, ROOT, &numbers, next, children);
            next_checksum = Some(nodes::write(
                self.versions.pool(),
                self.versions.medium.key(),
                &self.versions.space,
                at,
                &mut node,
                &[],
            )?);
            checkpointer.roots.push(at);
            next = at;
        }
        Ok((next, next_checksum.unwrap_or(0)))
    }

    // ---- what is freed ----------------------------------------------------------------------------------------

    fn reclaim(&self, checkpointer: &mut Checkpointer, gathered: Gathered) -> Result<()> {
        // What was unlinked since the last checkpoint is now behind a durable one.
        let mut unripe = std::mem::take(&mut checkpointer.unripe);
        checkpointer.ripe.append(&mut unripe);
        checkpointer.ripe.extend(gathered.dead);
        let retired = self.versions.index.take_retired();
        // Read behind them: a reader that may still reach them is pinned by now.
        let now = self.versions.now();
        checkpointer.retired.extend(retired.into_iter().map(|old| (now, Box::new(old) as Box<dyn Send>)));
        // A transaction that begins from here on has a later snapshot than anything unlinked so far.
        self.versions.concurrency.tick_in_order();
        let oldest =
            if self.versions.skips(Step::AwaitReaders) { u64::MAX } else { self.versions.concurrency.active.oldest() };
        let mut held = 0;
        checkpointer.ripe.retain(|dead| {
            let wait = dead.unlinked >= oldest;
            if wait {
                held += dead.word.space();
            } else {
                self.versions.space.sub_live(dead.word);
            }
            wait
        });
        self.versions.space.set_held(held);
        checkpointer.retired.retain(|(since, _)| *since >= oldest);
        checkpointer.tombstones.extend(gathered.tombstones);
        self.drop_tombstones(checkpointer, oldest)?;
        checkpointer.nodes.give_back(&self.versions.space);
        checkpointer.note_nodes(&self.versions.space);
        self.versions.note_leaves();
        self.free_segments(checkpointer);
        self.maintenance.due.adapt(self.versions.space.usage().live);
        let moved = self.move_versions(checkpointer);
        self.maintenance.set_unfinished(!checkpointer.unripe.is_empty());
        match moved {
            Ok(()) | Err(crate::Error::Full { .. }) => self.versions.space.shrink(),
            other => other,
        }
    }

    /// Moves what stands alone, and then what is scanned together.
    fn move_versions(&self, checkpointer: &mut Checkpointer) -> Result<()> {
        let pin = self.versions.concurrency.active.pin_for_upkeep()?;
        let left = self.compact(checkpointer, &pin)?;
        if checkpointer.rescue { Ok(()) } else { self.gather_neighbours(checkpointer, &pin, left) }
    }

    /// Takes tombstones out of the index that the checkpoint has, and whose older versions are out of every reader's sight.
    fn drop_tombstones(&self, checkpointer: &mut Checkpointer, oldest: u64) -> Result<()> {
        let pin = self.versions.concurrency.active.pin_for_upkeep()?;
        let mut kept = Vec::new();
        let mut thin = Vec::new();
        for tombstone in std::mem::take(&mut checkpointer.tombstones) {
            if tombstone.unlinked >= oldest {
                kept.push(tombstone);
                continue;
            }
            // Under the key's lock: a transaction that is about to supersede it has seen it, and gives it up itself.
            let hash = crate::media::key::hash(&tombstone.key);
            if self.versions.concurrency.try_lock(hash, &pin) != crate::isolation::locks::Tried::Taken {
                kept.push(tombstone);
                continue;
            }
            // One that was superseded while it waited here has left its offset, which a later one may have got: that is not out of every reader's sight.
            let there = Record::at(Claim::Pinned, &pin, self.versions.pool(), tombstone.word.offset());
            let is_it =
                there.is_ok_and(|record| record.header.ts == tombstone.ts) || self.versions.skips(Step::KnowTombstones);
            let removed =
                is_it && self.versions.index.remove(&pin, &tombstone.key, hash, tombstone.word).unwrap_or(false);
            self.versions.concurrency.unlock(hash, &pin);
            if removed {
                // The durable checkpoint still leads to it.
                checkpointer.unripe.push(Dead { word: tombstone.word, unlinked: self.versions.now() });
                thin.push(tombstone.key);
            }
        }
        checkpointer.tombstones = kept;
        thin.sort_unstable();
        let mut merged = false;
        for key in thin.chunk_by(|a, b| a == b) {
            merged |= self.versions.index.merge(&pin, &key[0])?;
        }
        if merged {
            self.versions.index.merge_chunks(&pin);
        }
        Ok(())
    }

    /// Frees segments in which nothing is live and that are behind the marks.
    fn free_segments(&self, checkpointer: &Checkpointer) {
        for number in 0..self.versions.space.count() {
            let Use::Log { writer, sequence, .. } = self.versions.space.used(number) else { continue };
            if self.versions.space.live(number) > 0 || sequence >= checkpointer.mark(writer).sequence {
                continue;
            }
            let run = self.versions.space.run(number) as u32;
            (number..number + run).for_each(|number| self.versions.space.give_back(number));
        }
    }
}
