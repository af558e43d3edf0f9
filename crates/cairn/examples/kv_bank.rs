//! A bank on typed tables of a key-value store: money and journal change together, whatever threads and crashes do.
//!
//! `cargo run -p cairn --example kv_bank [FILE]`; run it twice, the balances stay.

use std::error::Error;
use std::path::PathBuf;

use cairn::kv::{self, Plain, Store, Table};
use cairn::pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    transfers: u64,
}

struct Bank {
    store: Store,
    accounts: Table<str, Plain<Account>>,
    /// By payer and the number of the payment: the payee and the sum.
    journal: Table<(&'static str, u64), str>,
}

const OWNERS: [&str; 4] = ["Ada", "Alan", "Barbara", "Grace"];

impl Bank {
    fn open(path: PathBuf) -> kv::Result<Self> {
        let store = Store::open(path)?; // creates, opens or recovers
        let bank = Self { accounts: store.table("accounts")?, journal: store.table("journal")?, store };
        bank.store.transact(|tx| {
            for owner in OWNERS {
                if bank.accounts.get(tx, owner)?.is_none() {
                    bank.accounts.put(tx, owner, &Account { balance: 100, transfers: 0 })?;
                }
            }
            Ok(())
        })?;
        Ok(bank)
    }

    /// All of it, or nothing; false if there is not enough.
    fn transfer(&self, from: &'static str, to: &str, sum: i64) -> kv::Result<bool> {
        self.store.transact(|tx| {
            let (Some(mut payer), Some(mut payee)) = (self.accounts.get(tx, from)?, self.accounts.get(tx, to)?) else {
                return Ok(false);
            };
            if from == to || payer.balance < sum {
                return Ok(false);
            }
            payer.balance -= sum;
            payer.transfers += 1;
            payee.balance += sum;
            self.accounts.put(tx, from, &payer)?;
            self.accounts.put(tx, to, &payee)?;
            self.journal.put(tx, &(from, payer.transfers), &format!("{sum} to {to}"))?;
            Ok(true)
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or(std::env::temp_dir().join("kv-bank.cairn"), PathBuf::from);
    let bank = Bank::open(path)?;

    // Four clerks at once: one that meets another waits, and tries again.
    let done = std::thread::scope(|scope| {
        let clerk = |first: usize| {
            let bank = &bank;
            let sum = |first: usize, n: usize| (first * n % 11) as i64;
            let transfer =
                move |n: usize| bank.transfer(OWNERS[(first + n) % 4], OWNERS[(first + 3 * n + 1) % 4], sum(first, n));
            move || (0..100).try_fold(0, |done, n| Ok::<_, kv::Error>(done + u32::from(transfer(n)?)))
        };
        let clerks: Vec<_> = (0..4).map(|first| scope.spawn(clerk(first))).collect();
        clerks.into_iter().map(|clerk| clerk.join().unwrap_or(Ok(0))).sum::<kv::Result<u32>>()
    })?;
    println!("{done} transfers by 4 threads");

    // One moment, whatever is transferred meanwhile.
    let now = bank.store.snapshot()?;
    let mut total = 0;
    for entry in bank.accounts.scan(&now) {
        let (owner, account) = entry?;
        let written = bank.journal.prefix(&now, &(owner.as_str(),)).count();
        println!("{owner} has {}; {} transfers, {written} in the journal", account.balance, account.transfers);
        total += account.balance;
    }
    println!("{total} in all");
    drop(now);
    Ok(bank.store.close()?)
}
