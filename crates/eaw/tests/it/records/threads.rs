//! Money goes between accounts and from one table to another, by several threads; all that read together see as much as there was at first.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use eaw::aries::Aries;
use eaw::mars::Mars;
use eaw::records::{RecordId, RecordTx, Records, Table};
use pmem::ErrorKind;

use super::Kind;

const ACCOUNTS: u64 = 12;
const EACH: u64 = 100;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 300;

/// The balance, in records of different lengths.
fn record(balance: u64, len: u64) -> Vec<u8> {
    let mut bytes = balance.to_le_bytes().to_vec();
    bytes.resize(8 + len as usize, 7);
    bytes
}

fn balance(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn transfer<S: Records>(store: &S, table: Table, accounts: &[RecordId], random: u64) -> eaw::Result<()> {
    let [from, to] = [random % ACCOUNTS, random / 16 % ACCOUNTS].map(|n| accounts[n as usize]);
    if from == to {
        return Ok(());
    }
    let mut tx = store.begin()?;
    let mut bytes = Vec::new();
    // Some say at once that they are going to write, others only read at first.
    let mut read = |tx: &mut S::Tx<'_>, id| {
        if random & 1 << 20 == 0 { tx.read(table, id, &mut bytes) } else { tx.read_for_update(table, id, &mut bytes) }
            .map(|()| balance(&bytes))
    };
    let (has, gets) = (read(&mut tx, from)?, read(&mut tx, to)?);
    let amount = (random >> 24) % (has + 1);
    let len = (random >> 32) % 300;
    tx.update(table, from, &record(has - amount, len))?;
    let savepoint = tx.savepoint();
    tx.update(table, to, &record(gets, 9000))?;
    tx.rollback_to(savepoint)?;
    tx.update(table, to, &record(gets + amount, 299 - len))?;
    if random & 1 << 21 == 0 { tx.commit() } else { tx.abort() }
}

fn sum<S: Records>(store: &S, table: Table) -> eaw::Result<u64> {
    let mut sum = 0;
    store.begin()?.scan(table, &mut |_, bytes| sum += balance(bytes))?;
    Ok(sum)
}

/// Until it is neither a victim nor late.
fn retried<R>(retries: &AtomicU64, mut act: impl FnMut() -> eaw::Result<R>) -> R {
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) if error.kind() == ErrorKind::Retry => _ = retries.fetch_add(1, Relaxed),
            Err(error) => panic!("{error}"),
        }
    }
}

/// One thread less.
struct Over<'a>(&'a AtomicU64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn transfers<S: Kind>() {
    let dir = tempfile::tempdir().unwrap();
    let store = S::create(dir.path());
    let table = store.create_table("accounts").unwrap();
    let mut tx = store.begin().unwrap();
    let accounts: Vec<_> = (0..ACCOUNTS).map(|_| tx.insert(table, &record(EACH, 0)).unwrap()).collect();
    tx.commit().unwrap();
    let (retries, left) = (AtomicU64::new(0), AtomicU64::new(THREADS));
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (store, accounts, retries, left) = (&store, &accounts, &retries, &left);
            threads.spawn(move || {
                let _over = Over(left); // failed or not
                let mut random = thread + 1;
                for _ in 0..TRANSFERS {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    retried(retries, || transfer(store, table, accounts, random >> 8));
                }
            });
        }
        while left.load(Relaxed) > 0 {
            assert_eq!(retried(&retries, || sum(&store, table)), ACCOUNTS * EACH);
        }
    });
    assert_eq!(sum(&store, table).unwrap(), ACCOUNTS * EACH);
    store.abandon();
    let store = S::open(dir.path());
    assert_eq!(sum(&store, table).unwrap(), ACCOUNTS * EACH);
}

#[test]
fn money_stays_in_mars() {
    transfers::<Mars>();
}

#[test]
fn money_stays_in_aries() {
    transfers::<Aries>();
}
