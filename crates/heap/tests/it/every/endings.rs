//! Transactions, and how they end.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use heap::{Policy, Tx};
use pmem::{Error as PoolError, PPtr};
use tx::{Engine, Error, Isolation, RetryPolicy, Transaction, Typed};

use super::model::{Contents, Effect};
use super::operations::{KINDS, Kind};
use super::thread::{Mode, Own, Thread};

impl Thread<'_> {
    /// A few operations; errors that the others explain are none.
    fn acts(&mut self, tx: &mut Tx<'_>) -> tx::Result<()> {
        self.own = Own::default();
        for _ in 0..1 + self.rng.below(self.swarm.most) {
            if let Err(e) = self.act(tx) {
                self.explain(&e);
                return Err(e);
            }
        }
        match self.own.lost {
            true => Err(tx.refuse("another object")),
            false => Ok(()),
        }
    }

    pub(super) fn explain(&self, e: &Error) {
        match e {
            Error::Conflict { .. } | Error::BackupFull { .. } | Error::Freed { .. } | Error::Aborted { .. } => {}
            Error::Pool(PoolError::BadPointer { ptr, .. }) => {
                let offset = PPtr::<u8>::from_raw(*ptr).offset();
                let world = self.world();
                let may = world.model.allowed(offset).iter().any(|contents| contents.is_none());
                assert!(may || !world.model.objects.contains_key(&offset), "object {offset} is lost: {e}");
            }
            Error::Pool(PoolError::HeapFull { .. }) if self.mode == Mode::Full => {}
            Error::NoRollback if self.heap.policy() == Policy::None => {}
            Error::Pool(PoolError::Sync { .. } | PoolError::Poisoned) if self.mode == Mode::FailingDrain => {
                self.world().failed = true;
            }
            e => panic!("{e}"),
        }
    }

    fn isolation(&mut self) -> Isolation {
        Isolation::ALL[self.more.below(3) as usize]
    }

    /// The transaction is about to be rolled back. Where that cannot be done, what it has written stays, and its objects too.
    fn leaves(&mut self) -> Option<u64> {
        if self.heap.policy() != Policy::None {
            return None;
        }
        let own = &self.own;
        let changed = own.changed.iter().filter(|at| !own.fresh.contains(at));
        let left = changed.filter_map(|at| {
            let contents = own.seen[at].as_ref().or_else(|| own.freed.get(at))?;
            Some((*at, Some(contents.clone())))
        });
        Some(self.doubt(left.collect()))
    }

    fn left(&mut self, number: Option<u64>) {
        number.into_iter().for_each(|number| self.decided(number, true));
    }

    /// From now on it may be durable.
    fn in_doubt(&mut self) -> u64 {
        let changes = self.own.changed.iter().filter(|at| {
            let made_and_freed = self.own.fresh.contains(at) && self.own.seen[at].is_none();
            !made_and_freed
        });
        self.doubt(changes.map(|at| (*at, self.own.seen[at].clone())).collect())
    }

    pub(super) fn doubt(&self, changes: BTreeMap<u64, Contents>) -> u64 {
        let mut world = self.world();
        world.model.next += 1;
        let number = world.model.next;
        world.model.doubts.push(Effect { number, changes });
        number
    }

    /// After a failed drain it is not known.
    pub(super) fn decided_by<R>(&mut self, number: u64, outcome: &tx::Result<R>) {
        match outcome {
            Err(Error::Pool(PoolError::Sync { .. } | PoolError::Poisoned)) => {}
            other => self.decided(number, other.is_ok()),
        }
    }

    fn decided(&mut self, number: u64, committed: bool) {
        let mut world = self.world();
        let at = world.model.doubts.iter().position(|effect| effect.number == number).unwrap();
        let effect = world.model.doubts.remove(at);
        if committed {
            world.model.apply(&effect);
        }
    }

    pub(super) fn transaction(&mut self) {
        let end = match self.rng.below(2) {
            0 => Kind::Commit,
            _ => self.swarm.one(&mut self.rng, &KINDS[Kind::Commit as usize..Kind::Apply as usize]),
        };
        match end {
            Kind::Transact => self.transact(),
            Kind::Panic => {
                let (heap, isolation, mut left) = (self.heap, self.isolation(), None);
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    heap.transact_with(isolation, RetryPolicy::default().attempts(1), |tx| -> tx::Result<()> {
                        let _ = self.acts(tx);
                        self.world().ends(self.number, end);
                        left = self.leaves();
                        resume_unwind(Box::new(end)) // without a message
                    })
                }));
                self.left(left);
                assert!(caught.is_err_and(|panic| panic.is::<Kind>()), "a panic that was not meant");
            }
            _ => self.end(end),
        }
        self.world().ended(self.number, end);
    }

    fn end(&mut self, end: Kind) {
        let isolation = self.isolation();
        let mut tx = self.heap.begin(isolation).unwrap();
        assert_eq!(tx.isolation(), Isolation::Strict); // it holds its locks to the end
        let done = self.acts(&mut tx);
        let outcome = match (end, done) {
            (Kind::Drop, _) => {
                self.world().ends(self.number, end);
                let left = self.leaves();
                drop(tx);
                self.left(left);
                Ok(())
            }
            (Kind::FailedCommit, _) => {
                match self.rng.below(3) {
                    0 => drop(tx.refuse("on purpose")),
                    1 => assert!(tx.nested(|_| Err::<(), _>(Error::Aborted { reason: "on purpose".into() })).is_err()),
                    _ => tx.set_doom(tx::Doom::from(&Error::Aborted { reason: "on purpose".into() })),
                }
                assert!(tx.doom().is_some());
                self.world().ends(self.number, end);
                let left = self.leaves();
                let ended = tx.commit();
                self.left(left);
                match ended {
                    Err(Error::Doomed { .. }) => Ok(()),
                    Err(e @ (Error::NoRollback | Error::Pool(_))) => Err(e),
                    other => panic!("a doomed transaction ends with {other:?}"),
                }
            }
            (Kind::Commit, Ok(())) => {
                self.world().ends(self.number, end);
                let number = self.in_doubt();
                let committed = tx.commit();
                self.decided_by(number, &committed);
                committed
            }
            _ => {
                self.world().ends(self.number, Kind::Abort);
                let left = self.leaves();
                let ended = tx.abort();
                self.left(left);
                ended
            }
        };
        if let Err(e) = outcome {
            self.explain(&e);
        }
    }

    fn transact(&mut self) {
        let (mut number, mut left) = (None, None);
        let (heap, isolation) = (self.heap, self.isolation());
        let done = heap.transact_with(isolation, RetryPolicy::default().attempts(2), |tx| -> tx::Result<()> {
            if let Some(number) = number.take() {
                self.decided(number, false); // it met a conflict
            }
            self.left(left.take());
            if let Err(e) = self.acts(tx) {
                left = self.leaves();
                return Err(e);
            }
            self.world().ends(self.number, Kind::Transact);
            number = Some(self.in_doubt());
            Ok(())
        });
        self.left(left);
        let Some(number) = number else { return }; // the error was explained at once
        self.decided_by(number, &done);
        match done {
            Ok(()) | Err(Error::GaveUp { .. }) => {}
            Err(e) => self.explain(&e),
        }
    }
}
