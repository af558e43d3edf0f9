//! A bank on a chain: accounts that money goes between, and for each client a cell that says which of its requests was carried out last, and the reply.

use chain::Node;
use chain::clients::{Verdict, judge};
use pmem::PPtr;
use tx::{Engine, Isolation::Strict, Transaction, Typed};

pub const ACCOUNTS: usize = 8;
pub const CLIENTS: usize = 4;
pub const START: u64 = 1000;

/// Accounts, then cells: sequence number and reply.
type Table = [u64; ACCOUNTS + CLIENTS];

fn table<X: Transaction>(tx: &mut X) -> tx::Result<Table> {
    let [at, _] = *tx.read(tx.root_cell())?;
    if at != 0 {
        return tx.read(PPtr::<Table>::from_raw(at)).copied();
    }
    let mut table = [0; ACCOUNTS + CLIENTS];
    for (index, cell) in table.iter_mut().enumerate() {
        *cell = if index < ACCOUNTS { tx.alloc(&START)?.raw() } else { tx.alloc(&[0u64; 2])?.raw() };
    }
    let made = tx.alloc(&table)?;
    *tx.write(tx.root_cell())? = [made.raw(), 0];
    Ok(table)
}

/// Request `sequence` of a client: an amount goes from one account to another. What the first one has then; none: the request is an old one.
pub fn transfer(node: &Node, client: usize, sequence: u64, from: usize, to: usize) -> tx::Result<Option<u64>> {
    let transfer = |tx: &mut chain::NodeTx<'_>| -> tx::Result<Option<u64>> {
        let table = table(tx)?;
        let cell = PPtr::<[u64; 2]>::from_raw(table[ACCOUNTS + client]);
        let [last, reply] = *tx.read(cell)?;
        match judge(sequence, last) {
            Verdict::Stored => return Ok(Some(reply)),
            Verdict::Stale => return Ok(None),
            Verdict::New => {}
        }
        let [from, to] = [from, to].map(|index| PPtr::<u64>::from_raw(table[index]));
        let amount = (*tx.read(from)?).min(sequence % 7 + 1);
        *tx.write(from)? -= amount;
        *tx.write(to)? += amount;
        let left = *tx.read(from)?;
        *tx.write(cell)? = [sequence, left];
        Ok(Some(left))
    };
    let timeout = tx::RetryPolicy::default().deadline(std::time::Duration::from_secs(5));
    node.transact_with(Strict, timeout, transfer)
}

/// What all accounts have, and the last request of each client: at the head or at the tail.
pub fn sums(node: &Node) -> tx::Result<(u64, [u64; CLIENTS])> {
    let sums = |tx: &mut chain::NodeTx<'_>| -> tx::Result<_> {
        let table = table(tx)?;
        let mut sum = 0;
        for cell in &table[..ACCOUNTS] {
            sum += *tx.read(PPtr::<u64>::from_raw(*cell))?;
        }
        let mut last = [0; CLIENTS];
        for (client, last) in last.iter_mut().enumerate() {
            *last = tx.read(PPtr::<[u64; 2]>::from_raw(table[ACCOUNTS + client]))?[0];
        }
        Ok((sum, last))
    };
    let timeout = tx::RetryPolicy::default().deadline(std::time::Duration::from_secs(5));
    node.transact_with(Strict, timeout, sums)
}
