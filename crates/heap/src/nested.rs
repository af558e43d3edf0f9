//! Policy `eaw`: parts of a transaction that are undone, or committed, alone (MARS, SOSP 2013, §3.1).
//!
//! Nothing of a transaction is in main, so to go back is to have the entries of then ([`entries`](crate::entries)); locks stay, and so does the place of what was allocated
//! since, to the transaction's end.
//!
//! A nested top action has a set of locks and entries of its own, and commits with the slot's log as any other transaction; the entries of the outer transaction are in DRAM,
//! not in that log. An object that the outer transaction has only read may be written: its lock goes over, and comes back when the action is over.

use tx::{Doom, Error, NestedTop, Result, Savepoint, Savepoints};

use crate::locking::Tx;
use crate::options::Policy;
use crate::state::{Saved, Set};

impl Tx<'_> {
    fn supports(&self, what: &'static str) -> Result<()> {
        self.check()?;
        match self.core.policy {
            Policy::Eaw => Ok(()),
            other => self.dooming(Err(Error::Unsupported { engine: other.name(), what })),
        }
    }

    /// An error that was gone back from does not doom any longer: but for a failed drain, and conflicts if there were too many.
    fn lift(&self) -> Result<()> {
        self.core.pool.check_usable()?;
        let conflict = self.state.doom.borrow().as_ref().and_then(|doom| doom.conflict);
        if let Some(offset) = conflict {
            let lifted = &mut self.state.set.borrow_mut().lifted;
            *lifted += 1;
            if *lifted > Self::LIFTED {
                return Err(Error::Conflict { offset });
            }
        }
        self.state.doomed.set(false);
        *self.state.doom.borrow_mut() = None;
        Ok(())
    }

    /// From now on the set is the nested top action's.
    fn enter(&self) {
        let set = &mut *self.state.set.borrow_mut();
        let outer = std::mem::take(set);
        set.outer = Some(Box::new(outer));
    }

    /// Undoes the nested top action. What is left of it after an error stays locked.
    fn undo(&self) -> Result<()> {
        let mut set = self.state.set.borrow_mut();
        let undone = self.core.abort(self.slot, &mut set);
        leave(&mut set);
        undone
    }
}

/// Back to the outer transaction.
fn leave(set: &mut Set) {
    if let Some(outer) = set.outer.take() {
        *set = *outer;
    }
}

impl Savepoints for Tx<'_> {
    fn savepoint(&mut self) -> Result<Savepoint> {
        self.supports("savepoints")?;
        let set = &mut *self.state.set.borrow_mut();
        let saved = Saved { savepoint: Savepoint::new(), held: set.held.len(), freed: set.freed_since.len() };
        set.entries.save();
        set.saved.push(saved);
        Ok(set.saved[set.saved.len() - 1].savepoint)
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let level = self.state.set.borrow().saved.iter().position(|saved| saved.savepoint == savepoint);
        let level = self.dooming(level.ok_or(Error::NoSavepoint))?;
        self.lift()?;
        let set = &mut *self.state.set.borrow_mut();
        let (held, freed) = (set.saved[level].held, set.saved[level].freed);
        set.saved.truncate(level + 1);
        for at in set.freed_since.drain(freed..) {
            let of = &mut set.held[at];
            (of.freed, of.staged) = (false, true); // there may be entries of it again
            set.frees -= 1;
            set.allocs += usize::from(of.fresh);
        }
        // What was allocated since is freed with the transaction; till then it is in no transaction's way.
        for of in set.held[held..].iter_mut().filter(|of| of.fresh && !of.freed) {
            (of.freed, of.staged) = (true, false);
            set.frees += 1;
            set.allocs -= 1;
        }
        set.entries.go_back(level);
        Ok(())
    }
}

impl NestedTop for Tx<'_> {
    fn nested_top<R, E>(&mut self, f: impl FnOnce(&mut Self) -> Result<R, E>) -> Result<R, E>
    where
        E: From<Error>,
    {
        self.supports("nested top actions")?;
        self.enter();
        let mut inside = Inside { tx: self, returned: false };
        let result = f(inside.tx);
        inside.returned = true;
        let tx = &mut *inside.tx;
        let doom = tx.state.doom.borrow().clone();
        let error = match (result, doom) {
            (Ok(value), None) => {
                let mut set = tx.state.set.borrow_mut();
                match tx.core.commit(tx.slot, &mut set) {
                    Ok(()) => {
                        leave(&mut set);
                        return Ok(value);
                    }
                    Err(error) => {
                        drop(set);
                        tx.doom_by(Doom::from(&error));
                        error.into()
                    }
                }
            }
            (Ok(_), Some(Doom { conflict: Some(offset), .. })) => Error::Conflict { offset }.into(),
            (Ok(_), Some(Doom { first, .. })) => Error::Doomed { first }.into(),
            (Err(error), _) => error,
        };
        // After a failed drain nothing is known: its locks stay.
        if tx.core.pool.check_usable().is_err() {
            leave(&mut tx.state.set.borrow_mut());
            return Err(error);
        }
        tx.undo()?;
        if tx.state.doomed.get() {
            let _ = tx.lift(); // if it is doomed still, it will say so
        }
        Err(error)
    }
}

/// Undoes a nested top action that panics, and dooms the outer transaction: a caller may catch that and go on.
struct Inside<'a, 'h> {
    tx: &'a mut Tx<'h>,
    returned: bool,
}

impl Drop for Inside<'_, '_> {
    fn drop(&mut self) {
        if !self.returned {
            let _ = self.tx.undo(); // what could not be undone stays locked
            self.tx.doom_by(Doom { first: "a nested top action panicked".into(), conflict: None });
        }
    }
}
