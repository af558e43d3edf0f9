//! Whether what a heap holds is a whole tree.

use std::ops::ControlFlow;

use heap::Heap;
use pmem::{PPtr, Persist};
use structures::{BTree, Map, Report};
use tx::{Engine, Error, Isolation, Result, Transaction, Typed};

use super::transaction::Stored;
use super::{MAGIC, NAME, Root};

/// What the heap's root says, and the tree it leads to.
pub(super) fn root<X: Transaction + ?Sized>(tx: &X, ptr: PPtr<Root>) -> Result<(Root, BTree)> {
    let damaged = |why| Error::Damaged { what: "root", offset: ptr.offset(), why };
    let root = match tx.read(ptr) {
        Err(Error::Pool(error @ (pmem::Error::BadPointer { .. } | pmem::Error::Unaligned { .. }))) => {
            return Err(damaged(error.to_string()));
        }
        found => *found?,
    };
    if root.magic != MAGIC || root.key_max == 0 {
        return Err(damaged(format!("no root of a tree says {root:?}")));
    }
    Ok((root, BTree::open(tx, root.tree)?))
}

/// Walks the tree of a heap that [`Tree`](super::Tree) made, and every value in it; `None` if the heap is another program's. It takes memory for each block, about
/// a hundred bytes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data.cairn");
/// use server::engine::Engine;
/// use server::tree::{Options, Tree, verify};
///
/// let tree = Tree::open_or_create(&path, &Options::new().bytes(1 << 20))?;
/// tree.write(&mut |tx| tx.put(b"apples", b"17", None))?;
/// assert_eq!(verify(tree.heap())?.map(|report| report.entries), Some(1));
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`tx::Error::Damaged`] names the first thing that is wrong.
pub fn verify(heap: &Heap) -> Result<Option<Report>> {
    // With no object but the root cell it is one that was being made.
    let is_ours = heap.pool().info().engine == NAME && heap.live_blocks(|_, _| {})?.live_blocks > 1;
    let tx = heap.begin(Isolation::Strict)?;
    if tx.root_layout()? != Some(Root::LAYOUT.hash) {
        let why = "a server made this heap, and its root leads to no tree".into();
        let lost = Error::Damaged { what: "root", offset: tx.root_cell().offset(), why };
        return if is_ours { Err(lost) } else { Ok(None) };
    }
    let (_, tree) = root(&tx, tx.root()?)?;
    let report = tree.verify(&tx)?;
    let mut bad = None;
    tree.for_each(&tx, |key, value| match Stored::read(value) {
        Ok(_) => ControlFlow::Continue(()),
        Err(_) => {
            let key = key.escape_ascii();
            bad = Some(format!("the value of key \"{key}\" has {} bytes, and so no header", value.len()));
            ControlFlow::Break(())
        }
    })?;
    match bad {
        Some(why) => Err(Error::Damaged { what: "B+tree", offset: tree.root().offset(), why }),
        None => Ok(Some(report)),
    }
}
