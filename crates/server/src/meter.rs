//! What commands take, by what they ask of the store: what would keep a thread that serves connections busy for long is given up there, and run again on one that serves none.
//!
//! It is counted, not measured: whatever else the machine does, a command is given up at the same point.

use std::cell::Cell;
use std::ops::ControlFlow;

use tx::Keys;

use crate::engine::{Error, Result, Tx, Visit};

/// What a command may take on a thread that serves others, about, in nanoseconds.
pub(crate) const LONG: u64 = 2_000_000;

/// What these take, about, in nanoseconds: a pair that a scan passes by, one that is looked up, one that is set or deleted, with its share of the commit. In a store of some millions that
/// lies in memory; measured as the time that the serving thread had on a processor.
pub(crate) const PAIR: u64 = 400;
const GET: u64 = 400;
/// What an argument takes, whatever becomes of it.
pub(crate) const ARGUMENT: u64 = 50;
const PUT: u64 = 1500;
const DELETE: u64 = 1000;
/// What a byte takes that is read, and copied into a reply; and one that is written.
pub(crate) const READ_BYTE: u64 = 2;
pub(crate) const WRITE_BYTE: u64 = 4;

/// Whether it has come to its end, which is where it [takes](LONG) too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Nanoseconds of all that was counted.
    pub(crate) nanos: u64,
    /// Of that, what the requests before it took.
    pub(crate) before: u64,
}

impl Spent {
    /// Another request begins: what was counted belongs to those that are answered.
    pub(crate) fn begin_request(&mut self) {
        self.before = self.nanos;
    }
}

/// A transaction that counts what it is asked for, and fails with [`Error::TooLong`] when that is too much.
pub(crate) struct Metered<'t> {
    tx: &'t mut dyn Tx,
    nanos: Cell<u64>,
    most: u64,
}

impl<'t> Metered<'t> {
    /// One goes on with what was counted. On a thread that serves no connections nothing is too much.
    pub(crate) fn new(tx: &'t mut dyn Tx, spent: Spent, is_apart: bool) -> Self {
        let most = if is_apart { u64::MAX } else { spent.before.saturating_add(LONG) };
        Self { tx, nanos: Cell::new(spent.nanos), most }
    }

    /// Nanoseconds that were counted.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.get()
    }

    /// False if that is too much.
    #[inline]
    fn add(&self, nanos: u64) -> bool {
        self.nanos.set(self.nanos.get().saturating_add(nanos));
        self.nanos.get() <= self.most
    }

    fn spend(&self, nanos: u64) -> Result<()> {
        if self.add(nanos) { Ok(()) } else { Err(Error::TooLong) }
    }
}

impl Tx for Metered<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.spend(GET)?;
        let found = self.tx.get(key)?;
        // Only now is it known how long it is: a long one is not copied here, at least.
        self.spend(READ_BYTE * found.map_or(0, <[u8]>::len) as u64)?;
        Ok(found)
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.spend(PUT + WRITE_BYTE * (key.len() + value.len()) as u64)?;
        self.tx.put(key, value, expires)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.spend(DELETE)?;
        self.tx.delete(key)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        self.spend(GET)?;
        self.tx.expires(key)
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        self.spend(GET)?;
        self.tx.version(key)
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        let mut over = !self.add(GET);
        if !over {
            self.tx.scan(keys, &mut |key, value| {
                over = !self.add(PAIR + READ_BYTE * value.len() as u64);
                if over { ControlFlow::Break(()) } else { visit(key, value) }
            })?;
        }
        if over { Err(Error::TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remove::tests::Pairs;

    fn pairs(count: u32) -> Pairs {
        let mut pairs = Pairs::default();
        (0..count).for_each(|n| pairs.put(&n.to_be_bytes(), &[0; 8], None).unwrap());
        pairs
    }

    /// How many steps a request has until it is given up, after one that has had `first` of them.
    fn steps(first: usize, is_apart: bool, mut step: impl FnMut(&mut dyn Tx) -> Result<()>) -> Option<usize> {
        let mut pairs = pairs(1);
        let mut spent = Spent::default();
        let mut metered = Metered::new(&mut pairs, spent, is_apart);
        (0..first).for_each(|_| step(&mut metered).unwrap());
        spent.nanos = metered.nanos();
        spent.begin_request();
        let mut metered = Metered::new(&mut pairs, spent, is_apart);
        (0..20_000).find(|_| step(&mut metered) == Err(Error::TooLong))
    }

    #[test]
    fn every_call_is_counted_and_each_request_begins_anew() {
        let get = |tx: &mut dyn Tx| tx.get(b"none").map(drop);
        let put = |tx: &mut dyn Tx| tx.put(b"k", &[0; 100], None);
        let delete = |tx: &mut dyn Tx| tx.delete(b"none").map(drop);
        let moment = |tx: &mut dyn Tx| tx.expires(b"none").map(drop);
        let version = |tx: &mut dyn Tx| tx.version(b"none").map(drop);
        let scan = |tx: &mut dyn Tx| tx.scan(Keys::from(&[]), &mut |_, _| ControlFlow::Break(()));
        let all: [fn(&mut dyn Tx) -> Result<()>; 6] = [get, put, delete, moment, version, scan];
        for (at, step) in all.into_iter().enumerate() {
            let count = steps(0, false, step);
            assert!(count.is_some_and(|count| (500..10_000).contains(&count)), "{at}: {count:?}");
            assert_eq!(steps(400, false, step), count, "{at}");
            assert_eq!(steps(0, true, step), None, "{at}");
        }
        let mut pairs = pairs(20_000);
        let all = |metered: &Metered<'_>| metered.scan(Keys::from(&[]), &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(all(&Metered::new(&mut pairs, Spent::default(), false)), Err(Error::TooLong));
        assert_eq!(all(&Metered::new(&mut pairs, Spent::default(), true)), Ok(()));
    }

    #[test]
    fn long_values_are_counted_by_their_bytes() {
        let put = |tx: &mut dyn Tx| tx.put(b"k", &[0; 64 << 10], None);
        assert_eq!(steps(0, false, put), Some(7));
        let both = |tx: &mut dyn Tx| tx.get(b"long").map(drop);
        let mut pairs = Pairs::default();
        pairs.put(b"long", &vec![0; 400 << 10], None).unwrap();
        let mut metered = Metered::new(&mut pairs, Spent::default(), false);
        assert_eq!((0..9).find(|_| both(&mut metered).is_err()), Some(2));
    }
}
