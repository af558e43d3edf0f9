//! A bank whose clerks move money while something else is done to the engine, a backup for example. Whatever state of it is found later, no transfer is there by half.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;

use pmem::{PPtr, Persist, bytes_of, from_bytes};
use tx::{Engine, Error, Isolation, Procedure, Result, ToRange, Transaction, Typed};

use super::support::{begin, ok, run};
use crate::rng::Rng;

/// Accounts of a bank.
pub const ACCOUNTS: usize = 1000;
/// Clerks, each a thread.
pub const CLERKS: usize = 2;
/// Objects of a bank: accounts, their receipts, what each clerk has done, and the bank.
pub const OBJECTS: u64 = (2 * ACCOUNTS + CLERKS + 1) as u64;
const FIRST: i64 = 100;

/// The object at the root.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub struct Bank {
    /// Each has as much at first.
    pub accounts: [PPtr<Account>; ACCOUNTS],
    /// The number of the last transfer of each clerk.
    pub clerks: [PPtr<[u64; 8]>; CLERKS],
}

/// The money of one owner.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub struct Account {
    /// May be less than nothing.
    pub balance: i64,
    receipt: PPtr<Receipt>,
    /// All the balance: an account is long enough to be checksummed, and to be torn.
    copies: [i64; 30],
}

#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
struct Receipt {
    balance: i64,
    account: u64,
}

/// One transfer, which an engine may log as a call.
pub struct Transfer;

/// From which account to which, and by which clerk.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub struct Order {
    from: u64,
    to: u64,
    sum: i64,
    clerk: u64,
    number: u64,
    with_receipts: u64,
}

impl Procedure for Transfer {
    const NAME: &'static str = "transfer";
    type Args = Order;
    type Output = ();

    fn run<X: Transaction>(tx: &mut X, order: &Order) -> Result<()> {
        let bank = *tx.read(tx.root::<Bank>()?)?;
        let (from, to) = (bank.accounts[order.from as usize], bank.accounts[order.to as usize]);
        let clerk = bank.clerks[order.clerk as usize];
        tx.intend(&[from.range(), to.range(), clerk.range()])?;
        for (at, place, sum) in [(order.from, from, -order.sum), (order.to, to, order.sum)] {
            let account = tx.write(place)?;
            account.balance += sum;
            account.copies = [account.balance; 30];
            let (balance, old) = (account.balance, account.receipt);
            if order.with_receipts == 1 {
                tx.free(old)?;
                let receipt = tx.alloc(&Receipt { balance, account: at })?;
                tx.write(place)?.receipt = receipt;
            } else {
                tx.write(old)?.balance = balance;
            }
        }
        tx.write(clerk)?[0] = order.number;
        Ok(())
    }

    fn encode(order: &Order, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(bytes_of(order));
        true
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        Self::run(tx, &from_bytes(args).ok_or(Error::Aborted { reason: "no order".into() })?)
    }
}

/// Makes one at the root.
pub fn make<E: Engine>(engine: &E) {
    run(engine, |tx| {
        let mut bank = Bank { accounts: [PPtr::NULL; ACCOUNTS], clerks: [PPtr::NULL; CLERKS] };
        for (number, account) in (0..).zip(&mut bank.accounts) {
            let receipt = tx.alloc(&Receipt { balance: FIRST, account: number })?;
            *account = tx.alloc(&Account { balance: FIRST, receipt, copies: [FIRST; 30] })?;
        }
        for clerk in &mut bank.clerks {
            *clerk = tx.alloc(&[0; 8])?;
        }
        let bank = tx.alloc(&bank)?;
        tx.set_root(bank)
    });
}

/// The one at the root.
pub fn the_bank<E: Engine>(engine: &E) -> Bank {
    run(engine, |tx| tx.read(tx.root::<Bank>()?).copied())
}

/// The last number of each clerk; or what is wrong.
///
/// # Errors
/// An account is torn, or money is gone.
pub fn audit<E: Engine>(engine: &E) -> std::result::Result<[u64; CLERKS], String> {
    let (bank, tx) = (the_bank(engine), begin(engine));
    let mut sum = 0;
    for (number, &account) in (0..).zip(&bank.accounts) {
        let Account { balance, receipt, copies } = *tx.read(account).map_err(|e| e.to_string())?;
        let receipt = *tx.read(receipt).map_err(|e| e.to_string())?;
        if copies != [balance; 30] || (receipt.balance, receipt.account) != (balance, number) {
            return Err(format!("account {number} is torn"));
        }
        sum += balance;
    }
    if sum != FIRST * ACCOUNTS as i64 {
        return Err(format!("{sum} in all"));
    }
    Ok(bank.clerks.map(|clerk| ok(tx.read(clerk))[0]))
}

/// One transfer: as a call, at some level, or taken back.
fn transfer<E: Engine>(engine: &E, order: &Order, way: u64) -> Result<bool> {
    if way == 0 {
        return engine.call::<Transfer>(order).map(|()| true);
    }
    let mut tx = engine.begin(Isolation::ALL[way as usize % 3])?;
    Transfer::run(&mut tx, order)?;
    match way {
        1 => tx.abort().map(|()| false),
        _ => tx.commit().map(|()| true),
    }
}

/// Runs the clerks while `f` does; they tell what was acknowledged.
pub fn while_busy<E: Engine + Sync, R>(engine: &E, f: impl FnOnce(&[AtomicU64; CLERKS]) -> R) -> R {
    let stop = AtomicBool::new(false);
    let acknowledged = [const { AtomicU64::new(0) }; CLERKS];
    thread::scope(|scope| {
        for clerk in 0..CLERKS {
            let (stop, acknowledged) = (&stop, &acknowledged[clerk]);
            scope.spawn(move || {
                let mut rng = Rng::seeded(clerk as u64);
                while !stop.load(Relaxed) {
                    let number = acknowledged.load(Relaxed) + 1;
                    let from = rng.below(ACCOUNTS as u64);
                    let to = (from + 1 + rng.below(ACCOUNTS as u64 - 1)) % ACCOUNTS as u64;
                    let (sum, with_receipts, clerk) = (rng.below(7) as i64, rng.below(2), clerk as u64);
                    match transfer(engine, &Order { from, to, sum, clerk, number, with_receipts }, rng.below(8)) {
                        Ok(true) => acknowledged.store(number, SeqCst),
                        Ok(false) | Err(Error::Conflict { .. } | Error::NoSlot { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
        let _stops = Stops(&stop); // when `f` panics, too
        f(&acknowledged)
    })
}

/// Says when it is dropped that something is over.
#[derive(Debug)]
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Until the clerks have done so much more together.
pub fn wait_for(acknowledged: &[AtomicU64; CLERKS], more: u64) {
    let sum = || acknowledged.iter().map(|n| n.load(SeqCst)).sum::<u64>();
    let before = sum();
    while sum() < before + more {
        thread::yield_now();
    }
}
