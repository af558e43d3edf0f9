//! What checkpoints need to know of each other.

use std::collections::HashMap;

use crate::maintenance::nodes::Nodes;
use crate::media::cell::Cell;
use crate::media::checkpoint::{Checkpoint, WRITERS};
use crate::media::mark::Mark;
use crate::space::Space;
use crate::writers::writer::{Dead, Tombstone};

/// The thread that holds it makes a checkpoint.
pub(crate) struct Checkpointer {
    pub(super) cell: Cell,
    pub(super) nodes: Nodes,
    /// The lists of the last checkpoint, by their first leaf.
    pub(super) chunks: HashMap<u32, List>,
    pub(super) roots: Vec<u32>,
    /// Lengths of fences that do not stand in their node alone.
    pub(super) long: HashMap<u32, u32>,
    /// Behind the marks of the durable checkpoint, to be freed when out of reach.
    pub(super) ripe: Vec<Dead>,
    /// Not yet behind them.
    pub(super) unripe: Vec<Dead>,
    pub(super) tombstones: Vec<Tombstone>,
    /// By a checkpoint that failed.
    pub(super) gathered: Gathered,
    /// Segments, and what they were taken for, that hold one long record alone: to move it gains nothing.
    pub(super) alone: HashMap<u32, u32>,
    /// Whatever gains anything is moved.
    pub(super) rescue: bool,
    /// Nodes of the index in memory, and when they were replaced.
    pub(super) retired: Vec<(u64, Box<dyn Send>)>,
    /// For each log, the last position that the checkpoint which was opened leads to: it was durable by then.
    proven: Vec<Option<Mark>>,
    /// Versions that salvaging has left out of it, since their keys are corrupt.
    left_out: u64,
}

/// The node with the leaves of a chunk.
pub(super) struct List {
    pub(super) leaves: Vec<u32>,
    /// Their checksum.
    pub(super) children: u64,
    pub(super) node: u32,
    pub(super) checksum: u64,
}

/// What a checkpoint has gathered on its way.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) marks: Vec<Mark>,
    pub(super) links: Vec<u16>,
    pub(super) dead: Vec<Dead>,
    pub(super) tombstones: Vec<Tombstone>,
    /// Nodes that the last checkpoint named and this one does not.
    pub(super) left: Vec<u32>,
    /// Nodes of chunks in order, and their checksums.
    pub(super) lists: Vec<(u32, u64)>,
    pub(super) chunks: HashMap<u32, List>,
}

impl Checkpointer {
    pub(crate) fn new(cell: Cell) -> Self {
        Self {
            cell,
            nodes: Nodes::default(),
            chunks: HashMap::new(),
            roots: Vec::new(),
            long: HashMap::new(),
            ripe: Vec::new(),
            unripe: Vec::new(),
            tombstones: Vec::new(),
            gathered: Gathered::default(),
            alone: HashMap::new(),
            rescue: false,
            retired: Vec::new(),
            proven: vec![None; WRITERS],
            left_out: 0,
        }
    }

    // ---- opening ----------------------------------------------------------------------------------------------

    /// With the same cell, and nothing else of what was found.
    pub(crate) fn emptied(self) -> Self {
        Self::new(self.cell)
    }

    /// The durable checkpoint.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.cell.get()
    }

    /// So many nodes in a row, from this one on, are in use; false if one of them is already.
    pub(crate) fn load_node(&mut self, space: &Space, number: u32, span: u32) -> bool {
        if span > 1 {
            self.long.insert(number, span);
        }
        self.nodes.mark(space, number, span)
    }

    /// The checkpoint's next node of the list of lists.
    pub(crate) fn load_root(&mut self, node: u32) {
        self.roots.push(node);
    }

    /// The node with these leaves; with their checksum, and its own.
    pub(crate) fn load_list(&mut self, node: u32, leaves: Vec<u32>, children: u64, checksum: u64) {
        if let Some(first) = leaves.first() {
            self.chunks.insert(*first, List { leaves, children, node, checksum });
        }
    }

    pub(crate) fn load_tombstone(&mut self, tombstone: Tombstone) {
        self.tombstones.push(tombstone);
    }

    /// The checkpoint leads to this position of a writer's log.
    pub(crate) fn load_reached(&mut self, writer: usize, mark: Mark) {
        let proven = &mut self.proven[writer];
        *proven = (*proven).max(Some(mark));
    }

    /// For each log, the last position that the checkpoint leads to.
    pub(crate) fn take_proven(&mut self) -> Vec<Option<Mark>> {
        std::mem::take(&mut self.proven)
    }

    /// So many versions are left out of the index, since their keys are corrupt.
    pub(crate) fn leave_out(&mut self, versions: u64) {
        self.left_out += versions;
    }

    /// Versions that were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether a segment has nodes in use.
    pub(crate) fn has_nodes(&self, segment: u32) -> bool {
        self.nodes.has_segment(segment)
    }

    /// What opening found to be superseded, and tombstones: as if the last checkpoint had left them.
    pub(crate) fn inherit(&mut self, dead: Vec<Dead>, tombstones: Vec<Tombstone>) {
        self.unripe.extend(dead);
        self.tombstones.extend(tombstones);
    }

    // ---- for the next one -------------------------------------------------------------------------------------

    /// Says how many nodes there are, for the reserve, which keeps room for them.
    pub(super) fn note_nodes(&self, space: &Space) {
        let more = self.long.values().map(|span| u64::from(span - 1)).sum();
        space.reserve.note_nodes(self.nodes.room(space.segment_bytes), more);
    }

    /// The mark that recovery would begin at.
    pub(super) fn mark(&self, writer: usize) -> Mark {
        Mark::from_word(self.cell.get().marks[writer])
    }
}
