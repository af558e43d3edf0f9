//! What the heap has: a map of keys, and a map of the last requests of each client.
//!
//! The root cell leads to both. A client has [`WIDTH`] cells: the request with number `n` is in cell `n mod WIDTH`, so that as many may be under way. A cell is the number (8 bytes) and the reply as it was sent.

use std::num::NonZeroU64;

use chain::clients::{Verdict, cell_of, judge};
use pmem::PPtr;
use server::reply::Reply;
use structures::{HashMap, HashMapOptions, HashRoot, Map as _};
use tx::{Transaction, Typed};

use crate::request::{Change, integer};

/// Cells of a client.
const WIDTH: NonZeroU64 = NonZeroU64::new(16).expect("it is not zero");
/// Pairs that maps have room for at once; both grow.
const PAIRS: u64 = 4000;

/// Both maps, as a transaction has them.
#[derive(Clone, Copy)]
pub(crate) struct Maps {
    keys: HashMap,
    cells: HashMap,
}

impl Maps {
    /// Those of the heap; none if no change has made them.
    pub(crate) fn find<X: Transaction>(tx: &X) -> tx::Result<Option<Self>> {
        let [keys, cells] = *tx.read(tx.root_cell())?;
        if keys == 0 {
            return Ok(None);
        }
        let [keys, cells] = [keys, cells].map(PPtr::<HashRoot>::from_raw);
        Ok(Some(Self { keys: HashMap::open(tx, keys)?, cells: HashMap::open(tx, cells)? }))
    }

    /// Those of the heap; made by the first change of all. `seed` is one that no stranger knows.
    pub(crate) fn open<X: Transaction>(tx: &mut X, seed: u64) -> tx::Result<Self> {
        if let Some(found) = Self::find(tx)? {
            return Ok(found);
        }
        let options = HashMapOptions::new().capacity(PAIRS).seed(seed);
        let made = Self { keys: HashMap::create(tx, &options)?, cells: HashMap::create(tx, &options)? };
        *tx.write(tx.root_cell())? = [made.keys.root().raw(), made.cells.root().raw()];
        Ok(made)
    }

    pub(crate) fn get<X: Transaction>(&self, tx: &X, key: &[u8]) -> tx::Result<Option<Vec<u8>>> {
        Ok(self.keys.get(tx, key)?.map(<[u8]>::to_vec))
    }

    /// Carries out a change; what is replied.
    pub(crate) fn change<X: Transaction>(&self, tx: &mut X, change: &Change<'_>) -> tx::Result<Reply> {
        let mut reply = Reply::new();
        match *change {
            Change::Set { key, value } => {
                self.keys.put(tx, key, value)?;
                reply.ok();
            }
            Change::Delete { key } => reply.int(i64::from(self.keys.delete(tx, key)?)),
            Change::Add { key, by } => {
                match self.number(tx, key)?.and_then(|now| now.checked_add(by).ok_or_else(out_of_range)) {
                    Ok(sum) => {
                        self.put_number(tx, key, sum)?;
                        reply.int(sum);
                    }
                    Err(why) => reply.error(&why),
                }
            }
            Change::Transfer { from, to, amount } => self.transfer(tx, from, to, amount, &mut reply)?,
        }
        Ok(reply)
    }

    fn transfer<X: Transaction>(
        &self,
        tx: &mut X,
        from: &[u8],
        to: &[u8],
        amount: i64,
        reply: &mut Reply,
    ) -> tx::Result<()> {
        let (left, right) = (self.number(tx, from)?, self.number(tx, to)?);
        let is_same = from == to;
        let sum = right
            .and_then(|right| if is_same { Ok(right) } else { right.checked_add(amount).ok_or_else(out_of_range) });
        match left.and_then(|has| Ok((has, sum?))) {
            Err(why) => reply.error(&why),
            Ok((has, _)) if has < amount => {
                reply.error(&format!("INSUFFICIENT there is {has}, and {amount} was to go; nothing has changed"));
            }
            Ok((has, _)) if is_same => reply.int(has),
            Ok((has, sum)) => {
                self.put_number(tx, from, has - amount)?;
                self.put_number(tx, to, sum)?;
                reply.int(has - amount);
            }
        }
        Ok(())
    }

    /// The change with this number of a client, once: a retry finds the reply.
    pub(crate) fn once<X: Transaction>(
        &self,
        tx: &mut X,
        client: u64,
        number: u64,
        change: &Change<'_>,
    ) -> tx::Result<Vec<u8>> {
        let cell = cell(client, cell_of(number, WIDTH));
        let found = self.cells.get(tx, &cell)?.and_then(|found| found.split_first_chunk::<8>());
        let last = found.map_or(0, |(last, _)| u64::from_le_bytes(*last));
        match judge(number, last) {
            Verdict::Stored => return Ok(found.map(|(_, reply)| reply.to_vec()).unwrap_or_default()),
            Verdict::Stale => {
                let mut reply = Reply::new();
                let text = format!(
                    "STALE request {number} of client {client} is older than {last}, whose reply took its place; numbers rise, and {WIDTH} are kept"
                );
                reply.error(&text);
                return Ok(reply.bytes().to_vec());
            }
            Verdict::New => {}
        }
        let reply = self.change(tx, change)?;
        let stored = [&number.to_le_bytes()[..], reply.bytes()].concat();
        self.cells.put(tx, &cell, &stored)?;
        Ok(reply.bytes().to_vec())
    }

    /// Removes a client's cells; how many it had.
    pub(crate) fn forget<X: Transaction>(&self, tx: &mut X, client: u64) -> tx::Result<i64> {
        let mut gone = 0;
        for at in 0..WIDTH.get() {
            gone += i64::from(self.cells.delete(tx, &cell(client, at))?);
        }
        Ok(gone)
    }

    /// What a key has, as a number; 0 if it has nothing.
    fn number<X: Transaction>(&self, tx: &X, key: &[u8]) -> tx::Result<Result<i64, String>> {
        Ok(self.keys.get(tx, key)?.map_or(Ok(0), integer))
    }

    fn put_number<X: Transaction>(&self, tx: &mut X, key: &[u8], number: i64) -> tx::Result<()> {
        self.keys.put(tx, key, number.to_string().as_bytes()).map(drop)
    }
}

fn out_of_range() -> String {
    "ERR increment or decrement would overflow".to_owned()
}

fn cell(client: u64, at: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&client.to_be_bytes());
    key[8..].copy_from_slice(&at.to_be_bytes());
    key
}
