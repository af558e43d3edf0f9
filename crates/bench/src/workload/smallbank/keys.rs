//! Accounts as keys and values of one store: a letter for the table, then a name or a number.

use std::ops::ControlFlow;

use tx::{Isolation, Keys, Kv, KvTx};

use super::procedures::{self, Accounts, Procedure, Table, missing};
use super::{AT_FIRST, Bank, Books, Done, Name, Open, done, name};
use crate::Result;
use crate::target::ISOLATION;

/// A bank in a store.
pub(crate) struct InKeys<'s, K> {
    store: &'s K,
    isolation: Isolation,
}

/// Customers that are made in one transaction.
const AT_ONCE: u64 = 64;

impl<'s, K: Kv> InKeys<'s, K> {
    /// Makes a bank in an empty store.
    pub(crate) fn populate(store: &'s K, bank: &Bank) -> tx::Result<Self> {
        let mut from = 0;
        while from < bank.customers {
            let to = bank.customers.min(from + AT_ONCE);
            store.transact(ISOLATION, |tx| -> tx::Result<()> {
                for customer in from..to {
                    tx.put(&named(&name(customer)), &customer.to_le_bytes())?;
                    tx.put(&key(Table::Savings, customer), &AT_FIRST.to_le_bytes())?;
                    tx.put(&key(Table::Checking, customer), &AT_FIRST.to_le_bytes())?;
                }
                Ok(())
            })?;
            from = to;
        }
        Ok(Self { store, isolation: ISOLATION })
    }
}

impl<K: Kv + Sync> Open for InKeys<'_, K> {
    fn run(&self, procedure: &Procedure) -> Result<Done> {
        let mut tries = 0;
        let outcome = self.store.transact(self.isolation, |tx| {
            tries += 1;
            procedures::run(&mut View(tx), procedure)
        });
        done(outcome, tries)
    }

    fn books(&self) -> Result<Books> {
        Ok(self.store.transact(self.isolation, |tx| -> tx::Result<Books> {
            let mut books = Books { least_savings: i64::MAX, ..Books::default() };
            for (prefix, is_savings) in [(SAVINGS, true), (CHECKING, false)] {
                tx.scan(&Keys::prefix(&[prefix]), &mut |_, value| {
                    let balance = number(Some(value)).unwrap_or(i64::MIN); // is noticed
                    books.accounts += 1;
                    books.money = books.money.wrapping_add(balance);
                    books.least_savings = books.least_savings.min(if is_savings { balance } else { i64::MAX });
                    ControlFlow::Continue(())
                })?;
            }
            Ok(books)
        })?)
    }
}

/// A transaction's view.
pub(super) struct View<'t, T>(pub(super) &'t mut T);

impl<T: KvTx> Accounts for View<'_, T> {
    type At = [u8; 9];

    fn find(&self, name: &Name) -> tx::Result<u64> {
        number(self.0.get(&named(name))?).map(i64::cast_unsigned)
    }

    fn account(&self, table: Table, customer: u64) -> tx::Result<[u8; 9]> {
        Ok(key(table, customer))
    }

    fn read(&self, at: [u8; 9]) -> tx::Result<i64> {
        number(self.0.get(&at)?)
    }

    fn write(&mut self, changes: &[([u8; 9], i64)]) -> tx::Result<()> {
        changes.iter().try_for_each(|(at, balance)| self.0.put(at, &balance.to_le_bytes()).map(drop))
    }
}

const SAVINGS: u8 = b's';
const CHECKING: u8 = b'c';

fn key(table: Table, customer: u64) -> [u8; 9] {
    let mut key = [if table == Table::Savings { SAVINGS } else { CHECKING }; 9];
    key[1..].copy_from_slice(&customer.to_be_bytes());
    key
}

fn named(name: &Name) -> [u8; 17] {
    let mut key = [b'a'; 17];
    key[1..].copy_from_slice(name);
    key
}

fn number(value: Option<&[u8]>) -> tx::Result<i64> {
    let bytes = value.and_then(|value| value.try_into().ok());
    bytes.map(i64::from_le_bytes).ok_or_else(|| missing("customer"))
}
