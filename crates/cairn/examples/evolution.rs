//! From version 1 of a program's structs to version 2: customers get a balance. In batches, so that it may be interrupted at any moment.
//!
//! `cargo run -p cairn --example evolution [FILE [DIE]]`; with `DIE` the second program is killed in the middle of that batch.

use std::error::Error;
use std::path::{Path, PathBuf};

use cairn::heap::{Heap, Options};
use cairn::pmem::{PPtr, Persist};
use cairn::tx::{self, Batch, Engine, Evolving, Isolation::Serializable, Typed, evolve};

/// The structs as version 1 had them, under the names they had: these are part of what the pool remembers.
mod v1 {
    use super::{PPtr, Persist};

    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    pub struct Customers {
        pub first: PPtr<Customer>,
        pub count: u64,
    }

    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    pub struct Customer {
        pub number: u64,
        pub next: PPtr<Customer>,
    }
}

/// Where everything is found. It changes whenever anything below it does: what a pointer points to is no part of its layout.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Customers {
    first: PPtr<Customer>,
    count: u64,
    version: u64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Customer {
    number: u64,
    balance: i64,
    next: PPtr<Customer>,
}

const CUSTOMERS: u64 = 1000;
const BATCH: u64 = 64;
/// What every customer gets.
const BALANCE: i64 = 10;

/// What version 1 did.
fn version_1(path: &Path) -> Result<(), Box<dyn Error>> {
    let heap = Heap::create(path, &Options::new().bytes(1 << 20))?;
    heap.transact(Serializable, |tx| -> tx::Result<()> {
        let mut first = PPtr::NULL;
        for number in 1..=CUSTOMERS {
            first = tx.alloc(&v1::Customer { number, next: first })?;
        }
        let root = tx.alloc(&v1::Customers { first, count: CUSTOMERS })?;
        tx.set_root(root)
    })?;
    Ok(heap.close()?)
}

/// Moves a batch from the front of the old list to the front of the new one.
fn step<X: Typed>(tx: &mut X, at: &Evolving<v1::Customers, Customers>) -> tx::Result<Batch> {
    let (mut old, mut new) = (*tx.read(at.old)?, *tx.read(at.new)?);
    if old.first.is_null() {
        return Ok(Batch::Last);
    }
    let mut moved = 0;
    while moved < BATCH && !old.first.is_null() {
        let next = tx.read(old.first)?.next;
        new.first =
            tx.replace(old.first, |customer| Customer { number: customer.number, balance: BALANCE, next: new.first })?;
        old.first = next;
        (old.count, new.count, moved) = (old.count - 1, new.count + 1, moved + 1);
    }
    *tx.write(at.old)? = old;
    *tx.write(at.new)? = new;
    Ok(Batch::More(moved))
}

/// What version 2 does at each start.
fn version_2(path: &Path, die: Option<u64>) -> Result<(), Box<dyn Error>> {
    let heap = Heap::open(path, &Options::new())?;
    let mut batches = 0;
    let taken = evolve(
        &heap,
        |_, _| Ok(Customers { first: PPtr::NULL, count: 0, version: 2 }),
        |tx, at| {
            let batch = step(tx, at)?;
            if at.done > 0 && batches == 0 {
                println!("goes on behind customer {}", at.done);
            }
            batches += 1;
            if Some(batches) == die {
                std::process::abort(); // everything of this batch is done, and it is not committed
            }
            Ok(batch)
        },
    )?;
    println!("version 2 after {taken} transactions");

    let (customers, sum) = heap.transact(Serializable, |tx| -> tx::Result<_> {
        let root = *tx.read(tx.root::<Customers>()?)?;
        let (mut at, mut customers, mut sum) = (root.first, 0, 0);
        while !at.is_null() {
            let customer = tx.read(at)?;
            (at, customers, sum) = (customer.next, customers + 1, sum + customer.balance);
        }
        assert_eq!(customers, root.count);
        Ok((customers, sum))
    })?;
    println!("{customers} customers with {sum} in all");
    println!("{} objects", heap.live_blocks(|_, _| {})?.live_blocks);
    Ok(heap.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().map_or(std::env::temp_dir().join("evolution.cairn"), PathBuf::from);
    let die = args.next().and_then(|die| die.to_str()?.parse().ok());
    if !path.exists() {
        version_1(&path)?;
        println!("version 1: {CUSTOMERS} customers");
    }
    version_2(&path, die)
}
