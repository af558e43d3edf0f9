//! What checkpoints need to know of each other.

use std::collections::HashMap;

use crate::checkpoint::nodes::Nodes;
use crate::media::cell::Cell;
use crate::media::checkpoint::WRITERS;
use crate::media::mark::Mark;
use crate::space::Space;
use crate::writers::writer::{Dead, Tombstone};

/// The thread that holds it makes a checkpoint.
pub(crate) struct Checkpointer {
    pub(crate) cell: Cell,
    pub(crate) nodes: Nodes,
    /// The lists of the last checkpoint, by their first leaf.
    pub(crate) chunks: HashMap<u32, List>,
    pub(crate) roots: Vec<u32>,
    /// Lengths of fences that do not stand in their node alone.
    pub(crate) long: HashMap<u32, u32>,
    /// Behind the marks of the durable checkpoint, to be freed when out of reach.
    pub(crate) ripe: Vec<Dead>,
    /// Not yet behind them.
    pub(crate) unripe: Vec<Dead>,
    pub(crate) tombstones: Vec<Tombstone>,
    /// By a checkpoint that failed.
    pub(crate) gathered: Gathered,
    /// Segments, and what they were taken for, that hold one long record alone: to move it gains nothing.
    pub(crate) alone: HashMap<u32, u32>,
    /// Whatever gains anything is moved.
    pub(crate) rescue: bool,
    /// Nodes of the index in memory, and when they were replaced.
    pub(crate) retired: Vec<(u64, Box<dyn Send>)>,
    /// For each log, the last place that the checkpoint which was opened leads to: it was durable by then.
    pub(crate) proven: Vec<Option<Mark>>,
    /// Versions that salvaging has left out of it, since their keys are corrupt.
    pub(crate) left_out: u64,
}

/// The node with the leaves of a chunk.
pub(crate) struct List {
    pub(crate) leaves: Vec<u32>,
    /// Their checksum.
    pub(crate) children: u64,
    pub(crate) node: u32,
    pub(crate) checksum: u64,
}

/// What a checkpoint has gathered on its way.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) marks: Vec<Mark>,
    pub(crate) links: Vec<u16>,
    pub(crate) dead: Vec<Dead>,
    pub(crate) tombstones: Vec<Tombstone>,
    /// Nodes that the last checkpoint named and this one does not.
    pub(crate) left: Vec<u32>,
    /// Nodes of chunks in order, and their checksums.
    pub(crate) lists: Vec<(u32, u64)>,
    pub(crate) chunks: HashMap<u32, List>,
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

    /// Says how many nodes there are, for the reserve, which keeps room for them.
    pub(crate) fn note_nodes(&self, space: &Space) {
        let more = self.long.values().map(|span| u64::from(span - 1)).sum();
        space.reserve.note_nodes(self.nodes.room(space.segment_bytes), more);
    }

    /// What opening found to be superseded, and tombstones: as if the last checkpoint had left them.
    pub(crate) fn inherit(&mut self, dead: Vec<Dead>, tombstones: Vec<Tombstone>) {
        self.unripe.extend(dead);
        self.tombstones.extend(tombstones);
    }

    /// The mark that recovery would begin at.
    pub(crate) fn mark(&self, writer: usize) -> Mark {
        Mark::from_word(self.cell.get().marks[writer])
    }
}
