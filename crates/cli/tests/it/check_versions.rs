//! `cairn check` of objects with several versions.

use std::fs;
use std::path::Path;

use mvcc::{Mvcc, Options};
use pmem::{PPtr, bytes_of, from_bytes};
use structures::{BTree, BTreeOptions, Map};
use tx::{Engine, Error, Isolation, Procedure, Result, Transaction, Typed};

use super::{cairn, temp};

/// Adds one to all of them.
struct Count;

impl Procedure for Count {
    const NAME: &'static str = "count";
    type Args = PPtr<[u64; 64]>;
    type Output = ();

    fn run<X: Transaction>(tx: &mut X, counts: &Self::Args) -> Result<()> {
        tx.write(*counts)?.iter_mut().for_each(|count| *count += 1);
        Ok(())
    }

    fn encode(counts: &Self::Args, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(bytes_of(counts));
        true
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        Self::run(tx, &from_bytes(args).ok_or(Error::Aborted { reason: "no arguments".into() })?)
    }
}

fn options() -> Options {
    Options::new().bytes(1 << 20).slots(2).background(false).procedure::<Count>()
}

fn store(dir: &Path) -> Mvcc {
    let store = Mvcc::create(dir.join("p"), &options()).unwrap();
    let fill = |tx: &mut mvcc::Tx<'_>| -> Result<()> {
        let tree = BTree::create(tx, &BTreeOptions::new())?;
        tx.set_root(tree.root())?;
        (0..100u64).try_for_each(|n| tree.put(tx, &n.to_be_bytes(), b"value").map(drop))
    };
    store.transact(Isolation::Serializable, fill).unwrap();
    store
}

#[test]
fn a_store_that_was_closed_is_walked() {
    let dir = temp();
    store(dir.path()).close().unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("objects with versions: ") && run.out.contains("100 pairs"), "{run:?}");
    let run = cairn(dir.path(), "check --repair p");
    assert!(run.code == 0 && run.out.contains("no second copy"), "{run:?}");
    assert!(Mvcc::open(dir.path().join("p"), &options()).unwrap().recovery().was_clean());
}

#[test]
fn one_that_was_not_is_recovered_on_demand_only() {
    let dir = temp();
    store(dir.path()).abandon();
    let run = cairn(dir.path(), "check p");
    assert!(run.code == 2 && run.failure().1 == "cairn check --recover p", "{run:?}");
    let run = cairn(dir.path(), "check --recover p");
    assert!(run.code == 0 && run.out.contains("note: recovered: 1 transactions"), "{run:?}");
    let run = cairn(dir.path(), "check p");
    assert!(run.code == 0 && run.out.contains("100 pairs"), "closed cleanly by the recovery: {run:?}");
}

/// A closed one as it is, another one recovered on demand only; one whose logs hold calls by its program.
#[test]
fn a_backup_is_made_of_either() {
    let dir = temp();
    let walked = |copy: &str| {
        let run = cairn(dir.path(), &format!("check {copy}"));
        assert!(run.code == 0 && run.out.contains("100 pairs"), "{run:?}");
    };
    store(dir.path()).close().unwrap();
    let run = cairn(dir.path(), "backup p copy");
    assert!(run.code == 0 && run.out.contains("checked as `cairn check` does"), "{run:?}");
    walked("copy");
    Mvcc::open(dir.path().join("p"), &options()).unwrap().abandon();
    let run = cairn(dir.path(), "backup p other");
    assert!(run.code == 2 && run.failure().1 == "cairn backup --recover p other", "{run:?}");
    let run = cairn(dir.path(), "backup --recover p other");
    assert!(run.code == 0 && run.out.contains("objects, opened"), "{run:?}");
    walked("other");
    let again = cairn(dir.path(), "backup --recover p other");
    assert!(again.code == 2 && again.failure().1.contains("choose another path"), "{again:?}");
    walked("p"); // it was closed by that
    let store = Mvcc::open(dir.path().join("p"), &options()).unwrap();
    let counts = store.transact(Isolation::Serializable, |tx| tx.alloc(&[0u64; 64])).unwrap();
    store.call::<Count>(&counts).unwrap();
    store.abandon();
    let run = cairn(dir.path(), "backup --recover p third");
    assert!(run.code == 2 && run.failure().0.contains("procedure `count`, version 1"), "{run:?}");
    assert!(!dir.path().join("third").exists());
}

#[test]
fn calls_are_left_to_their_program() {
    let dir = temp();
    let path = dir.path().join("p");
    let store = Mvcc::create(&path, &options()).unwrap();
    let counts = store.transact(Isolation::Serializable, |tx| tx.alloc(&[0u64; 64])).unwrap();
    store.call::<Count>(&counts).unwrap();
    store.abandon();
    let run = cairn(dir.path(), "check --recover p");
    assert!(run.code == 0 && run.out.contains("procedure `count`, version 1"), "{run:?}");
    assert_eq!(cairn(dir.path(), "check p").code, 2, "it was not closed: {run:?}");
    let store = Mvcc::open(&path, &options()).unwrap();
    assert_eq!(store.begin(Isolation::Snapshot).unwrap().read(counts).unwrap(), &[1; 64]);
}

#[test]
fn what_a_store_would_refuse_is_damage() {
    for region in ["mvcc.state", "mvcc.logs", "mvcc.copies", "mvcc.procedures"] {
        let dir = temp();
        store(dir.path()).close().unwrap();
        let path = dir.path().join("p");
        let pool = pmem::Options::new().open_read_only(&path).unwrap();
        let at = pool.info().regions.into_iter().find(|r| r.name == region).unwrap();
        drop(pool);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at.offset as usize..][..at.len as usize].fill(0x5a);
        fs::write(&path, bytes).unwrap();
        let run = cairn(dir.path(), "check p");
        assert!(run.code == 1 && run.out.contains("damaged: objects with versions: "), "{region}: {run:?}");
    }
}
