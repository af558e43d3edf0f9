//! A bank: money moves whole or not at all, whatever threads and crashes do.
//!
//! `cargo run -p cairn --example bank [FILE]`; run it twice, the balances stay.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn::heap::{Heap, Options};
use cairn::pmem::{PPtr, Persist};
use cairn::tx::{self, Engine, Isolation::Serializable, ToRange, Transaction, Typed};

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Account {
    number: u64,
    balance: i64,
}

const ACCOUNTS: usize = 8;

/// The root object: where everything is found again.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Bank {
    accounts: [PPtr<Account>; ACCOUNTS],
}

fn found(heap: &Heap) -> tx::Result<()> {
    heap.transact(Serializable, |tx| {
        let mut bank = Bank { accounts: [PPtr::NULL; ACCOUNTS] };
        for (number, account) in (1..).zip(&mut bank.accounts) {
            *account = tx.alloc(&Account { number, balance: 100 })?;
        }
        let bank = tx.alloc(&bank)?;
        tx.set_root(bank)
    })
}

fn transfer(heap: &Heap, from: PPtr<Account>, to: PPtr<Account>, sum: i64) -> tx::Result<()> {
    heap.transact(Serializable, |tx| {
        let Account { number, balance } = *tx.read(from)?;
        if balance < sum {
            return Err(tx.refuse(format!("account {number} has only {balance}")));
        }
        tx.intend(&[from.range(), to.range()])?; // not needed; saves barriers under `undo`
        tx.write(from)?.balance -= sum;
        tx.write(to)?.balance += sum;
        Ok(())
    })
}

fn total(heap: &Heap, bank: &Bank) -> tx::Result<i64> {
    heap.transact(Serializable, |tx| bank.accounts.iter().map(|&account| Ok(tx.read(account)?.balance)).sum())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or(std::env::temp_dir().join("bank.cairn"), PathBuf::from);
    let options = Options::new().bytes(1 << 20);
    let heap = if path.exists() {
        Heap::open(&path, &options)?
    } else {
        let heap = Heap::create(&path, &options)?;
        found(&heap)?;
        heap
    };
    let bank = heap.transact(Serializable, |tx| tx.read(tx.root::<Bank>()?).copied())?;
    println!("{}: {ACCOUNTS} accounts, {} in all", path.display(), total(&heap, &bank)?);

    // Four clerks at once. Two that want the same account at the same time: one of them is rolled back and tries again.
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let clerk = |first: usize| {
            let (heap, bank, refused) = (&heap, &bank, &refused);
            move || -> tx::Result<()> {
                for step in 0..50 {
                    let from = bank.accounts[(first + step) % ACCOUNTS];
                    let to = bank.accounts[(first + 3 * step + 1) % ACCOUNTS];
                    match transfer(heap, from, to, 30) {
                        Err(tx::Error::Aborted { .. }) => _ = refused.fetch_add(1, Relaxed),
                        other => other?,
                    }
                }
                Ok(())
            }
        };
        let clerks: Vec<_> = (0..4).map(|first| scope.spawn(clerk(first))).collect();
        clerks.into_iter().try_for_each(|clerk| clerk.join().unwrap_or(Ok(())))
    })?;
    println!("200 transfers by 4 threads, {} of them refused", refused.into_inner());

    let rich = transfer(&heap, bank.accounts[0], bank.accounts[1], 1_000_000);
    println!("a million more: {}", rich.err().map_or("done".into(), |e| e.to_string()));
    println!("{} in all", total(&heap, &bank)?);
    Ok(heap.close()?)
}
