//! Runs the operations of a workload against an open heap.

use std::sync::atomic::Ordering::Relaxed;

use crash::{Ack, Error};
use heap::{Heap, Policy, Tx};
use pmem::PPtr;
use tx::{Engine, Isolation, Range, Transaction};

use super::op::{CELLS, Edit, End, NODE, Op, Then};
use super::{Live, Root};

/// What a transaction promises: its number, and the value of each word it wrote, by cell and word.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Grows in the order in which transactions lock what they share.
    pub number: u64,
    /// Cell, word, value.
    pub words: Vec<(usize, usize, u64)>,
    /// Numbers of transactions whose words it has seen: it is there only if they are.
    pub saw: Vec<u64>,
}

/// Bytes at the start of a node: its number and its length.
pub(super) const NODE_HEADER: u64 = 16;
/// Above the length of a node whose rest is zero.
pub(super) const BARE_SHIFT: u32 = 32;

/// The rest of a node.
pub(super) fn fill(bytes: &mut [u8], number: u64) {
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (number as usize).wrapping_mul(13).wrapping_add(i) as u8; // the number may be damaged
    }
}

/// Where a word of a cell is; the pointer to the node stands before the words.
pub(super) fn place(root: &Root, cell: usize, word: usize) -> PPtr<u8> {
    let at = root.cells[cell];
    PPtr::new(at.tag(), at.offset() + if word == NODE { 0 } else { 8 * (1 + word as u64) })
}

fn words(edit: &Edit) -> Vec<usize> {
    match *edit {
        Edit::Words(_, from, count, _) => (from..from + count).collect(),
        Edit::Put(cell) | Edit::PutThen(cell, ..) | Edit::Look(cell) => (0..CELLS[cell]).collect(),
        Edit::Comb(cell) => (0..CELLS[cell]).step_by(2).collect(),
        Edit::Node(..) | Edit::Bare(..) | Edit::Refill(_) | Edit::Unlink(_) => vec![NODE],
    }
}

/// The bytes that the edit writes, as few ranges as they make.
fn ranges(root: &Root, edit: &Edit) -> Vec<Range> {
    match *edit {
        Edit::Words(cell, from, count, _) => vec![Range::new(place(root, cell, from), 8 * count as u64)],
        Edit::Put(cell) | Edit::PutThen(cell, ..) | Edit::Look(cell) => {
            vec![Range::new(place(root, cell, 0), 8 * CELLS[cell] as u64)]
        }
        _ => words(edit).into_iter().map(|w| Range::new(place(root, edit.cell(), w), 8)).collect(),
    }
}

fn value(edit: &Edit, word: usize, number: u64) -> u64 {
    match edit {
        Edit::Words(.., Some(value)) => *value,
        Edit::PutThen(_, from, count, Then::Change) if (*from..from + count).contains(&word) => number + CHANGED,
        Edit::Unlink(_) => 0,
        _ => number,
    }
}

/// What changed words get more than others.
pub(super) const CHANGED: u64 = 1 << 40;

fn effect<'a>(number: u64, edits: impl Iterator<Item = &'a Edit>, saw: Vec<u64>) -> Effect {
    let written = edits.filter(|edit| !matches!(edit, Edit::Look(_)));
    let of = |edit: &'a Edit| words(edit).into_iter().map(move |word| (edit.cell(), word, value(edit, word, number)));
    Effect { number, words: written.flat_map(of).collect(), saw }
}

/// The numbers of those whose words the transaction sees in the cells that it looks at.
fn look<'a>(tx: &Tx<'_>, root: &Root, edits: impl Iterator<Item = &'a Edit>) -> tx::Result<Vec<u64>> {
    let mut saw = Vec::new();
    for edit in edits.filter(|edit| matches!(edit, Edit::Look(_))) {
        for word in words(edit) {
            let bytes = tx.bytes(place(root, edit.cell(), word), 8)?;
            saw.push(bytes.try_into().map_or(0, u64::from_le_bytes) % CHANGED);
        }
    }
    Ok(saw)
}

fn conflict(error: &tx::Error) -> bool {
    use tx::Error::{Conflict, NoSlot, OwnConflict};
    matches!(error, Conflict { .. } | OwnConflict { .. } | NoSlot { .. })
}

/// Locks what the edits write, so that the transaction's number can be taken.
fn lock(tx: &mut Tx<'_>, root: &Root, edits: &[Edit], declare: bool) -> tx::Result<()> {
    let looks = |edit: &&Edit| matches!(edit, Edit::Look(_));
    let all: Vec<Range> = edits.iter().filter(|e| !looks(e)).flat_map(|e| ranges(root, e)).collect();
    look(tx, root, edits.iter())?;
    if declare {
        return tx.intend(&all);
    }
    // Readers that become writers later.
    all.iter().try_for_each(|range| tx.bytes(range.at, range.len).map(|_| ()))
}

fn apply(tx: &mut Tx<'_>, root: &Root, edits: &[Edit], number: u64) -> tx::Result<()> {
    for edit in edits {
        let value = value(edit, NODE, number).to_le_bytes();
        match *edit {
            Edit::Look(_) => {}
            Edit::Put(cell) => tx.put_bytes(place(root, cell, 0), &value.repeat(CELLS[cell]))?,
            Edit::PutThen(cell, from, count, then) => {
                let (at, some) = (place(root, cell, 0), Range::new(place(root, cell, from), 8 * count as u64));
                let (all, changed) = (value.repeat(CELLS[cell]), (number + CHANGED).to_le_bytes().repeat(count));
                if then == Then::Before {
                    tx.bytes_mut(some.at, some.len)?.copy_from_slice(&changed);
                }
                tx.put_bytes(at, &all)?;
                match then {
                    Then::Read => {
                        let now = tx.bytes(some.at, some.len)?.to_vec();
                        tx.bytes_mut(some.at, some.len)?.copy_from_slice(&now);
                    }
                    Then::Change => tx.bytes_mut(some.at, some.len)?.copy_from_slice(&changed),
                    Then::Before => {}
                }
            }
            Edit::Words(..) | Edit::Comb(_) => {
                for range in ranges(root, edit) {
                    for word in tx.bytes_mut(range.at, range.len)?.chunks_exact_mut(8) {
                        word.copy_from_slice(&value);
                    }
                }
            }
            Edit::Node(cell, _) | Edit::Bare(cell, _) | Edit::Refill(cell) | Edit::Unlink(cell) => {
                let at = place(root, cell, NODE);
                let old = tx.bytes(at, 8)?.try_into().map_or(0, u64::from_le_bytes);
                if old != 0 && matches!(edit, Edit::Refill(_)) {
                    refill(tx, PPtr::from_raw(old), number)?;
                    continue;
                }
                let mut new = PPtr::<u8>::NULL;
                let len = match *edit {
                    Edit::Node(_, len) | Edit::Bare(_, len) => Some(len),
                    Edit::Refill(_) => Some(NODE_HEADER + 8),
                    _ => None,
                };
                if let Some(len) = len {
                    new = tx.alloc_bytes(len, 8)?;
                    let bare = matches!(edit, Edit::Bare(..));
                    let written = if bare { NODE_HEADER } else { len };
                    let (header, rest) = tx.bytes_mut(new, written)?.split_at_mut(NODE_HEADER as usize);
                    header[..8].copy_from_slice(&value);
                    header[8..].copy_from_slice(&(len | u64::from(bare) << BARE_SHIFT).to_le_bytes());
                    fill(rest, number);
                }
                tx.bytes_mut(at, 8)?.copy_from_slice(&new.raw().to_le_bytes());
                if old != 0 {
                    tx.free_bytes(PPtr::from_raw(old))?;
                }
            }
        }
    }
    Ok(())
}

fn refill(tx: &mut Tx<'_>, node: PPtr<u8>, number: u64) -> tx::Result<()> {
    let word = tx.bytes(node, NODE_HEADER)?[8..].try_into().map_or(0, u64::from_le_bytes);
    let len = word & ((1 << BARE_SHIFT) - 1);
    let mut bytes = vec![0; len as usize];
    let (header, rest) = bytes.split_at_mut(NODE_HEADER as usize);
    header[..8].copy_from_slice(&number.to_le_bytes());
    header[8..].copy_from_slice(&len.to_le_bytes());
    fill(rest, number);
    if number.is_multiple_of(2) {
        return tx.put_bytes(node, &bytes);
    }
    tx.bytes_mut(node, len)?.copy_from_slice(&bytes);
    Ok(())
}

/// What is rolled back is in doubt from its commit on; no crash may show anything of it before, nor of what aborts.
fn end(tx: Tx<'_>, how: End, ack: &Ack<Effect>, begin: impl FnOnce() -> crash::Ticket) -> tx::Result<()> {
    if how == End::Abort {
        return tx.abort();
    }
    let ticket = begin();
    match tx.commit() {
        Ok(()) => ack.commit(ticket),
        Err(e) => {
            if conflict(&e) {
                ack.abort(ticket);
            }
            return Err(e);
        }
    }
    Ok(())
}

/// One attempt; `during` runs while the transaction is open.
fn attempt(
    (live, heap, ack): (&Live, &Heap, &Ack<Effect>),
    (slot, declare, how): (usize, bool, End),
    (first, after): (&[Edit], &[Edit]),
    during: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    // Those before it are taken meanwhile.
    let _taken: Vec<Tx<'_>> = (0..slot).map(|_| heap.begin(Isolation::Strict)).collect::<tx::Result<_>>()?;
    let mut tx = heap.begin(Isolation::Strict)?;
    lock(&mut tx, &live.root, first, declare)?;
    let number = live.next.fetch_add(1, Relaxed);
    let saw = look(&tx, &live.root, first.iter())?;
    let begin = || ack.begin(effect(number, first.iter().chain(after), saw.clone()));
    // Nothing is rolled back there.
    let early = (heap.policy() == Policy::None).then(begin);
    let done = apply(&mut tx, &live.root, first, number).map_err(Error::from);
    let done = done.and_then(|()| during()).and_then(|()| Ok(apply(&mut tx, &live.root, after, number)?));
    live.sim.observe(); // what is taken back right away may have reached the media
    match done {
        Ok(()) => Ok(end(tx, how, ack, || early.unwrap_or_else(begin))?),
        Err(e) => {
            tx.abort()?;
            early.into_iter().for_each(|ticket| ack.abort(ticket));
            Err(e)
        }
    }
}

fn again(left: &mut u32, outcome: Result<(), Error>) -> Result<bool, Error> {
    match outcome {
        Ok(()) => Ok(false),
        Err(e) if e.downcast_ref::<tx::Error>().is_some_and(conflict) => {
            pmem::sync::switch_point(); // the rollback has let others go on: no thread waits
            *left -= 1;
            Ok(*left > 0)
        }
        Err(e) if full(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

fn full(error: &Error) -> bool {
    use pmem::Error::{HeapFull, NoSpace, Reserve};
    matches!(
        error.downcast_ref::<tx::Error>(),
        Some(tx::Error::BackupFull { .. } | tx::Error::Pool(HeapFull { .. } | NoSpace { .. } | Reserve { .. }))
    )
}

pub(super) fn run(live: &Live, heap: &Heap, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
    // Without rollback nothing is aborted, and a transaction that meets a conflict halfway has lost.
    let ends = |how: End| if heap.policy() == Policy::None { End::Commit } else { how };
    let mut left = 6;
    match op {
        Op::Change(slot, edits, declare, how) => {
            let declare = *declare || heap.policy() == Policy::None;
            while again(&mut left, attempt((live, heap, ack), (*slot, declare, ends(*how)), (edits, &[]), || Ok(())))? {
            }
        }
        Op::Around(first, second, after, how) => {
            let inner =
                |edits: &Vec<Edit>| attempt((live, heap, ack), (0, false, End::Commit), (edits, &[]), || Ok(()));
            let lenient = |edits| match inner(edits) {
                Err(e) if e.downcast_ref::<tx::Error>().is_some_and(conflict) || full(&e) => Ok(()),
                other => other,
            };
            let during = || second.iter().try_for_each(lenient);
            let outcome = attempt((live, heap, ack), (0, true, ends(*how)), (first, after), during);
            again(&mut 1, outcome)?;
        }
        Op::Declare(edits) => {
            let all: Vec<Range> = edits.iter().flat_map(|e| ranges(&live.root, e)).collect();
            let declare = || -> tx::Result<()> {
                let mut tx = heap.begin(Isolation::Strict)?;
                tx.intend(&all)?;
                tx.commit()
            };
            while again(&mut left, declare().map_err(Error::from))? {}
        }
        Op::Apply => heap.apply_pending()?,
        Op::Scrub => {
            heap.scrub()?;
        }
        Op::Grow => {
            if let Err(e) = heap.grow(1).map_err(Error::from)
                && !full(&e)
            {
                return Err(e);
            }
        }
        Op::Restart(_) | Op::Close(_) => {}
    }
    Ok(())
}
