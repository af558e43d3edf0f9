//! From one layout of persistent structs to the next, in batches, each a transaction.
//!
//! The root cell holds the hash of the root's layout, so it says how far a pool is:
//!
//! | the root is | the pool | what [`evolve`] does |
//! |---|---|---|
//! | null | new | nothing |
//! | of the new type | is there | nothing |
//! | of the old type | as the old program left it | makes the new root beside it, and an [`Evolving`] that names both the root |
//! | an [`Evolving`] of the two | on its way | the next batch; behind the last, the new root is the root |
//! | anything else | another program's | [`WrongLayout`](pmem::Error::WrongLayout) |
//!
//! Every row is left by one transaction: a crash is followed by the row where it was. The old program refuses a pool that is on its way, and one that is there.

use pmem::{PPtr, Persist};

use crate::{Engine, Error, Isolation, Result, Typed};

/// The root on its way, on media.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Evolution {
    old: PPtr<u8>,
    new: PPtr<u8>,
    old_layout: u64,
    new_layout: u64,
    done: u64,
}

/// A pool between two layouts: what a step of [`evolve`] works on.
#[derive(Debug)]
pub struct Evolving<Old, New> {
    /// The root of the old layout. What has been moved is no longer reached from it, or is told apart by `done`.
    pub old: PPtr<Old>,
    /// The root of the new layout.
    pub new: PPtr<New>,
    /// Sum of what the steps so far have returned with [`Batch::More`].
    pub done: u64,
}

/// What a step of [`evolve`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many objects were moved; there may be more.
    More(u64),
    /// Nothing is left to be moved, and nothing needs the old root.
    Last,
}

/// Brings a pool whose root is an `Old` to a root that is a `New`; goes on where a crash interrupted it. Returns how many transactions that took, 0 if the pool has
/// a `New` already, or no root yet. Call it after each open, and before anything else.
///
/// `begin` makes the value of the new root, with nothing moved yet. `step` moves a batch, small enough for one transaction: it takes objects out of the old root's
/// structure, makes their successors ([`Typed::replace`]) and puts them into the new one's. The old root is freed behind the last.
///
/// The hash is of the root's type alone, its name and its fields: of what it points to it says nothing. So a root changes, if only by a `version`, when anything below
/// it does.
///
/// ```
/// use pmem::Persist;
/// use tx::{Batch, Engine, Isolation::Serializable, Reference, Typed, evolve};
///
/// mod v1 {
///     #[derive(Clone, Copy, pmem::Persist)]
///     #[repr(C)]
///     pub struct Counter { pub visits: u32, pub _reserved: u32 }
/// }
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Counter { visits: u64, errors: u64 }
///
/// let engine = Reference::new();
/// engine.transact(Serializable, |tx| -> tx::Result<()> { // the old program
///     let counter = tx.alloc(&v1::Counter { visits: 17, _reserved: 0 })?;
///     tx.set_root(counter)
/// })?;
///
/// let taken = evolve(
///     &engine,
///     |tx, old| Ok(Counter { visits: tx.read::<v1::Counter>(old)?.visits.into(), errors: 0 }),
///     |_, _| Ok(Batch::Last),
/// )?;
/// assert_eq!(taken, 2);
/// let visits = engine.transact(Serializable, |tx| -> tx::Result<_> { Ok(tx.read(tx.root::<Counter>()?)?.visits) })?;
/// assert_eq!(visits, 17);
/// # Ok::<(), tx::Error>(())
/// ```
///
/// # Errors
/// [`pmem::Error::WrongLayout`] if the root is neither; what `begin` and `step` return, whose transaction is taken back then: call it again to go on.
pub fn evolve<E: Engine, Old: Persist, New: Persist>(
    engine: &E,
    mut begin: impl FnMut(&mut E::Tx<'_>, PPtr<Old>) -> Result<New>,
    mut step: impl FnMut(&mut E::Tx<'_>, &Evolving<Old, New>) -> Result<Batch>,
) -> Result<u64> {
    for taken in 0.. {
        let there = engine.transact(Isolation::Serializable, |tx| -> Result<bool> {
            let Some(layout) = tx.root_layout()? else { return Ok(true) };
            if layout == const { New::LAYOUT.hash } {
                return Ok(true);
            }
            if layout == const { Old::LAYOUT.hash } {
                let old = tx.root::<Old>()?;
                let new = begin(tx, old)?;
                let new = tx.alloc(&new)?;
                let evolution = Evolution {
                    old: old.cast(),
                    new: new.cast(),
                    old_layout: const { Old::LAYOUT.hash },
                    new_layout: const { New::LAYOUT.hash },
                    done: 0,
                };
                let root = tx.alloc(&evolution)?;
                tx.set_root(root)?;
                return Ok(false);
            }
            go_on(tx, &mut step)
        })?;
        if there {
            return Ok(taken);
        }
    }
    Ok(0) // a number that does not end
}

/// One batch of what was begun. False: that the pool is there is for the next look to find.
fn go_on<X: Typed, Old: Persist, New: Persist>(
    tx: &mut X,
    step: &mut impl FnMut(&mut X, &Evolving<Old, New>) -> Result<Batch>,
) -> Result<bool> {
    let root = tx.root::<Evolution>()?;
    let evolution = *tx.read(root)?;
    if (evolution.old_layout, evolution.new_layout) != const { (Old::LAYOUT.hash, New::LAYOUT.hash) } {
        let Evolution { old_layout, new_layout, .. } = evolution;
        return Err(Error::Pool(pmem::Error::WrongLayout {
            what: "root type",
            found: format!("on its way from {old_layout:016x} to {new_layout:016x}"),
            expected: format!("on its way from {:016x} to {:016x}", Old::LAYOUT.hash, New::LAYOUT.hash),
        }));
    }
    let evolving = Evolving { old: evolution.old.cast(), new: evolution.new.cast(), done: evolution.done };
    match step(tx, &evolving)? {
        Batch::More(moved) => tx.write(root)?.done += moved,
        Batch::Last => {
            tx.set_root(evolving.new)?;
            tx.free(evolving.old)?;
            tx.free(root)?;
        }
    }
    Ok(false)
}
