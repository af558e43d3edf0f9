//! Entries of a table, in order.

use tx::Keys;

use super::{KeyCode, Reader, Table, ValueCode};
use crate::error::Result;
use crate::txn::scan::Scan;

/// Entries of a table, in order: see [`Table::scan`].
pub struct Entries<'t, R, K: ?Sized, V: ?Sized> {
    table: Table<K, V>,
    tx: &'t R,
    keys: Keys,
    /// From the first step on.
    scan: Option<Scan<'t>>,
    /// The table is of other types.
    ended: bool,
}

impl<'t, R: Reader, K: ?Sized, V: ?Sized> Entries<'t, R, K, V> {
    pub(super) fn new(table: Table<K, V>, tx: &'t R, keys: Keys) -> Self {
        Self { table, tx, keys, scan: None, ended: false }
    }

    /// Largest key first. Begins anew, if it has begun.
    #[must_use]
    pub fn reverse(self) -> Self {
        Self { keys: self.keys.reverse(), scan: None, ..self }
    }
}

impl<'t, R: Reader, K: KeyCode + ?Sized, V: ValueCode + ?Sized> Iterator for Entries<'t, R, K, V> {
    type Item = Result<(K::Owned, V::Value<'t>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.scan.is_none()
            && let Err(error) = self.table.agree(self.tx)
        {
            self.ended = true;
            return Some(Err(error));
        }
        let scan = self.scan.get_or_insert_with(|| self.tx.pairs(self.keys.clone()));
        let entry = |(key, value): (&[u8], &'t [u8])| Ok((self.table.key(key)?, self.table.value(key, value)?));
        Some(scan.next()?.and_then(entry))
    }
}

impl<R, K: ?Sized, V: ?Sized> std::fmt::Debug for Entries<'_, R, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entries of {:?}", self.table)
    }
}
