//! Accounts as objects of their own, to which three maps lead: from names to numbers, from numbers to savings and to checking.

use std::ops::ControlFlow;

use pmem::{PPtr, Persist};
use structures::Map;
use tx::{Engine, ToRange, Transaction, Typed};

use super::procedures::{self, Accounts, Procedure, Table, missing};
use super::{AT_FIRST, Bank, Books, Done, Name, Open, done, name};
use crate::Result;
use crate::target::ISOLATION;

/// A row of either table.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(crate) struct Account {
    balance: i64,
    customer: u64,
}

/// A bank in an engine.
#[derive(Clone, Copy)]
pub(crate) struct InObjects<'e, E, M> {
    engine: &'e E,
    names: M,
    savings: M,
    checking: M,
}

/// Customers that are made in one transaction.
const AT_ONCE: u64 = 64;

impl<'e, E: Engine, M: Map> InObjects<'e, E, M> {
    /// Makes a bank of maps that `map` makes.
    pub(crate) fn populate(
        engine: &'e E,
        bank: &Bank,
        map: impl Fn(&mut E::Tx<'_>) -> tx::Result<M>,
    ) -> tx::Result<Self> {
        let new = || engine.transact(ISOLATION, |tx| map(tx));
        let made = Self { engine, names: new()?, savings: new()?, checking: new()? };
        let mut from = 0;
        while from < bank.customers {
            let to = bank.customers.min(from + AT_ONCE);
            engine.transact(ISOLATION, |tx| (from..to).try_for_each(|customer| made.add(tx, customer)))?;
            from = to;
        }
        Ok(made)
    }

    fn add<X: Transaction>(&self, tx: &mut X, customer: u64) -> tx::Result<()> {
        self.names.put(tx, &name(customer), &customer.to_le_bytes())?;
        for map in [self.savings, self.checking] {
            let at = tx.alloc(&Account { balance: AT_FIRST, customer })?;
            map.put(tx, &customer.to_be_bytes(), &at.raw().to_le_bytes())?;
        }
        Ok(())
    }
}

impl<E: Engine + Sync, M: Map + Sync> Open for InObjects<'_, E, M> {
    fn run(&self, procedure: &Procedure) -> Result<Done> {
        let mut tries = 0;
        let outcome = self.engine.transact(ISOLATION, |tx| {
            tries += 1;
            procedures::run(&mut View { tx, bank: self }, procedure)
        });
        done(outcome, tries)
    }

    fn books(&self) -> Result<Books> {
        Ok(self.engine.transact(ISOLATION, |tx| -> tx::Result<Books> {
            let mut books = Books { least_savings: i64::MAX, ..Books::default() };
            for (map, is_savings) in [(self.savings, true), (self.checking, false)] {
                map.verify(tx)?;
                let mut all = Vec::new();
                map.for_each(tx, |_, value| {
                    all.push(number(Some(value)));
                    ControlFlow::Continue(())
                })?;
                for at in all {
                    let balance = tx.read(PPtr::<Account>::from_raw(at?))?.balance;
                    books.accounts += 1;
                    books.money += balance;
                    books.least_savings = books.least_savings.min(if is_savings { balance } else { i64::MAX });
                }
            }
            Ok(books)
        })?)
    }
}

/// A transaction's view.
struct View<'t, 'e, X, E, M> {
    tx: &'t mut X,
    bank: &'t InObjects<'e, E, M>,
}

impl<X: Transaction, E, M: Map> Accounts for View<'_, '_, X, E, M> {
    type At = PPtr<i64>;

    fn find(&self, name: &Name) -> tx::Result<u64> {
        number(self.bank.names.get(self.tx, name)?)
    }

    fn account(&self, table: Table, customer: u64) -> tx::Result<PPtr<i64>> {
        let map = match table {
            Table::Savings => self.bank.savings,
            Table::Checking => self.bank.checking,
        };
        let at = PPtr::<Account>::from_raw(number(map.get(self.tx, &customer.to_be_bytes())?)?);
        Ok(tx::field!(Account, balance).of(at))
    }

    fn read(&self, at: PPtr<i64>) -> tx::Result<i64> {
        self.tx.read(at).copied()
    }

    fn write(&mut self, changes: &[(PPtr<i64>, i64)]) -> tx::Result<()> {
        if changes.len() > 1 {
            // No procedure changes more than three.
            let mut ranges = [changes[0].0.range(); 3];
            ranges.iter_mut().zip(changes).for_each(|(to, (at, _))| *to = at.range());
            self.tx.intend(&ranges[..changes.len()])?;
        }
        changes.iter().try_for_each(|(at, balance)| {
            *self.tx.write(*at)? = *balance;
            Ok(())
        })
    }
}

fn number(value: Option<&[u8]>) -> tx::Result<u64> {
    let bytes = value.and_then(|value| value.try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or_else(|| missing("customer"))
}
