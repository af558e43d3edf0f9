//! What the workload does: transactions over a few cells, made at random or written down.

use crash::Rng;
use heap::Policy;

/// Words of each cell. Small ones share lines, the last ones cross them; the very last is larger than a log holds.
pub const CELLS: [usize; 6] = [1, 2, 2, 5, 16, 80];
/// Cells that random workloads use.
const USUAL: usize = 5;
/// Stands for a cell's pointer to its node.
pub const NODE: usize = usize::MAX;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Words `from..from + count` of a cell get the transaction's number, or this value.
    Words(usize, usize, usize, Option<u64>),
    /// All words of a cell, by one `put_bytes`: of the longest one, longer than what a new object may be.
    Put(usize),
    /// The same; then these words are read, or changed, in the same transaction.
    PutThen(usize, usize, usize, Then),
    /// Every word of a cell is read: the transactions that wrote what it holds are durable when this one is.
    Look(usize),
    /// Every second word of a cell: as many ranges as that.
    Comb(usize),
    /// The cell gets a new node of this many bytes; the old one is freed.
    Node(usize, u64),
    /// The same, but its bytes behind the header are left as they come: zero.
    Bare(usize, u64),
    /// The cell's node is written again, where it is; if there is none, there will be one.
    Refill(usize),
    /// The cell's node is freed.
    Unlink(usize),
}

impl Edit {
    /// The cell it changes.
    pub fn cell(&self) -> usize {
        match *self {
            Edit::Words(cell, ..)
            | Edit::Put(cell)
            | Edit::PutThen(cell, ..)
            | Edit::Look(cell)
            | Edit::Comb(cell)
            | Edit::Node(cell, _)
            | Edit::Bare(cell, _)
            | Edit::Refill(cell)
            | Edit::Unlink(cell) => cell,
        }
    }

    /// All words of a cell.
    pub fn whole(cell: usize) -> Self {
        Edit::Words(cell, 0, CELLS[cell], None)
    }
}

/// What follows a `put_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The words are read, and written by one after the other with what was read.
    Read,
    /// They get one more than the transaction's number.
    Change,
    /// The same before the `put_bytes`, which has the last word.
    Before,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It commits.
    Commit,
    /// It aborts.
    Abort,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A transaction in this slot, or a later one; with its changes declared first, or not.
    Change(usize, Vec<Edit>, bool, End),
    /// A transaction that changes, while it is open lets others change and commit, one after the other, changes more, and ends.
    Around(Vec<Edit>, Vec<Vec<Edit>>, Vec<Edit>, End),
    /// Declares these changes, and commits without them.
    Declare(Vec<Edit>),
    /// Applies everything.
    Apply,
    /// Compares main and backup.
    Scrub,
    /// Makes the heap larger.
    Grow,
    /// Drops everything and opens again, perhaps under another policy; with one thread only.
    Restart(Option<Policy>),
    /// The same behind a clean close.
    Close(Option<Policy>),
}

impl Op {
    /// A transaction in slot 0 that commits.
    pub fn commit(edits: Vec<Edit>) -> Self {
        Op::Change(0, edits, false, End::Commit)
    }

    /// A transaction in slot 0 that aborts.
    pub fn abort(edits: Vec<Edit>) -> Self {
        Op::Change(0, edits, false, End::Abort)
    }

    /// A transaction in this slot that commits.
    pub fn commit_in(slot: usize, edits: Vec<Edit>) -> Self {
        Op::Change(slot, edits, false, End::Commit)
    }
}

/// A random workload.
pub(super) fn random(rng: &mut Rng, policy: Policy, threads: usize) -> Vec<(usize, Op)> {
    let atomic = policy != Policy::None;
    // A hot cell: rewritten by its slot, taken over by others.
    let hot = rng.index(USUAL);
    let mut ops = Vec::new();
    for _ in 0..12 {
        let thread = rng.index(threads);
        let slot = rng.index(3) / 2;
        let end = if atomic && rng.below(5) == 0 { End::Abort } else { End::Commit };
        let op = match rng.below(16) {
            0..=8 => Op::Change(slot, edits(rng, atomic, hot), rng.below(3) == 0, end),
            9 if rng.below(4) == 0 => Op::Declare(vec![Edit::whole(hot)]),
            9 | 10 => Op::Change(slot, vec![Edit::whole(hot)], false, end),
            11 | 12 => {
                let (first, second) = (edits(rng, atomic, hot), edits(rng, atomic, hot));
                let mut after = edits(rng, atomic, hot);
                // Numbers of transactions grow with the order of their locks: no other transaction may have had these cells meanwhile.
                after.retain(|e| threads == 1 && second.iter().all(|s| s.cell() != e.cell()));
                Op::Around(first, vec![second], after, end)
            }
            13 => [Op::Apply, Op::Scrub][rng.index(2)].clone(),
            14 if threads == 1 && rng.below(2) == 0 => match rng.below(4) {
                0 if atomic => Op::Restart(Some(other(rng))),
                1 if atomic => Op::Close(Some(other(rng))),
                2 => Op::Close(None),
                _ => Op::Restart(None),
            },
            14 if rng.below(3) == 0 => Op::Grow,
            15 if rng.below(2) == 0 => Op::Change(slot, long(rng, atomic, hot), rng.below(2) == 0, end),
            _ => Op::Change(slot, vec![Edit::Comb(CELLS.len() - 1)], rng.below(2) == 0, end),
        };
        ops.push((thread, op));
    }
    ops
}

/// One that rolls back: without that a crash may leave half an allocation.
fn other(rng: &mut Rng) -> Policy {
    [Policy::Undo, Policy::InPlace, Policy::InPlacePartial, Policy::Eaw][rng.index(4)]
}

/// The longest cell by `put_bytes`, and something beside.
fn long(rng: &mut Rng, atomic: bool, hot: usize) -> Vec<Edit> {
    let (cell, from) = (CELLS.len() - 1, rng.index(CELLS[CELLS.len() - 1] - 4));
    let then = [Then::Read, Then::Change, Then::Before][rng.index(3)];
    let first = if rng.below(2) == 0 { Edit::Put(cell) } else { Edit::PutThen(cell, from, 1 + rng.index(4), then) };
    let second = if atomic && rng.below(2) == 0 { Edit::Look(hot) } else { Edit::whole(hot) };
    // In front of the words, and changed before them: one range with them.
    let joined = atomic && rng.below(4) == 0;
    joined.then_some(Edit::Node(cell, 16)).into_iter().chain([first, second]).collect()
}

fn edits(rng: &mut Rng, nodes: bool, hot: usize) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..=rng.index(3) {
        let cell = if rng.below(3) == 0 { hot } else { rng.index(USUAL) };
        if edits.iter().any(|e| e.cell() == cell) {
            continue;
        }
        let words = CELLS[cell];
        edits.push(match rng.below(8) {
            0 if nodes => Edit::Bare(cell, 16 + [8, 100][rng.index(2)]),
            1 if nodes => Edit::Node(cell, 16 + [0, 8, 100, 700][rng.index(4)]),
            2 if nodes => [Edit::Unlink(cell), Edit::Refill(cell)][rng.index(2)].clone(),
            3 => {
                let from = rng.index(words);
                // Few values: bytes come back by chance.
                Edit::Words(cell, from, 1 + rng.index(words - from), Some(1 + rng.below(2)))
            }
            _ => Edit::whole(cell),
        });
    }
    edits
}
