//! Procedures whose calls are logged.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mvcc::{Mvcc, Options, Step};
use pmem::{DomainChoice, ErrorKind, PPtr, bytes_of, from_bytes};
use tx::{Engine, Error, Isolation, Procedure, Result, Transaction, Typed};

type Sums = [u64; 64];

/// Adds to all of them; what it returns is the last one.
struct Raise;

impl Procedure for Raise {
    const NAME: &'static str = "raise";
    type Args = (PPtr<Sums>, u64);
    type Output = u64;

    fn run<X: Transaction>(tx: &mut X, &(sums, by): &Self::Args) -> Result<u64> {
        let sums = tx.write(sums)?;
        sums.iter_mut().for_each(|sum| *sum += by);
        Ok(sums[63])
    }

    fn encode((sums, by): &Self::Args, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(bytes_of(sums));
        out.extend_from_slice(bytes_of(by));
        true
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        let args = args.split_at_checked(8).and_then(|(at, by)| Some((from_bytes(at)?, from_bytes(by)?)));
        Self::run(tx, &args.ok_or(Error::Aborted { reason: "no arguments".into() })?).map(drop)
    }
}

/// Pushes a new object in front of a list, whose head is the root.
struct Push;

impl Procedure for Push {
    const NAME: &'static str = "push";
    type Args = u64;
    type Output = ();

    fn run<X: Transaction>(tx: &mut X, value: &u64) -> Result<()> {
        let root = tx.root_cell().cast::<[u64; 2]>();
        let head = tx.read(root)?[0];
        let mut node = [*value; 64];
        node[0] = head;
        let made = tx.alloc(&node)?;
        tx.write(root)?[0] = made.offset();
        Ok(())
    }

    fn encode(value: &u64, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(bytes_of(value));
        true
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        Self::run(tx, &from_bytes(args).ok_or(Error::Aborted { reason: "no argument".into() })?)
    }
}

fn without() -> Options {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    Options::new().bytes(1 << 20).slots(3).background(false).pool(pool)
}

fn options() -> Options {
    without().procedure::<Raise>().procedure::<Push>()
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn with_sums(path: &Path, options: &Options) -> (Mvcc, PPtr<Sums>) {
    let store = Mvcc::create(path, options).unwrap();
    let sums = store.transact(Isolation::Serializable, |tx| tx.alloc(&[0u64; 64])).unwrap();
    store.write_back().unwrap();
    (store, sums)
}

fn read(store: &Mvcc, at: PPtr<Sums>) -> Sums {
    *store.begin(Isolation::Snapshot).unwrap().read(at).unwrap()
}

fn list(store: &Mvcc) -> Vec<u64> {
    let tx = store.begin(Isolation::Snapshot).unwrap();
    let mut next = tx.read(tx.root_cell()).unwrap()[0];
    let mut values = Vec::new();
    while next != 0 {
        let node = tx.read(PPtr::<Sums>::new(store.pool().tag(), next)).unwrap();
        values.push(node[63]);
        next = node[0];
    }
    values
}

#[test]
fn a_call_has_one_barrier_and_one_line() {
    let dir = memory();
    let (store, sums) = with_sums(&dir.path().join("s"), &options());
    let before = store.pool().stats();
    assert_eq!(store.call::<Raise>(&(sums, 3)).unwrap(), 3);
    let stats = store.pool().stats() - before;
    assert_eq!((stats.drains, stats.flushed_lines, stats.nt_bytes), (1, 0, 64), "eight lines by values");
    let before = store.pool().stats();
    store.call::<Push>(&9).unwrap();
    let stats = store.pool().stats() - before;
    assert_eq!((stats.drains, stats.flushed_lines, stats.nt_bytes), (1, 0, 128), "and no line of a new object");
    // Called again and again, it is copied and written back once.
    for _ in 1..100 {
        store.call::<Raise>(&(sums, 1)).unwrap();
    }
    let before = (store.pool().stats(), store.stats());
    assert!(store.write_back().unwrap());
    let (stats, after) = (store.pool().stats() - before.0, store.stats());
    assert_eq!((after.calls, after.copied - before.1.copied), (101, 512 + 16), "the sums, and the root's cell");
    assert_eq!(after.written_back - before.1.written_back, 512 + 16);
    assert_eq!(stats.drains, 6, "one more than a pass without calls has");
    store.close().unwrap();
}

#[test]
fn calls_and_values_come_back_in_their_order() {
    let dir = memory();
    let path = dir.path().join("s");
    let (mut store, sums) = with_sums(&path, &options());
    let mut wanted = [0u64; 64];
    let mut pushed = Vec::new();
    for round in 0..30u64 {
        let mut call = |by| {
            store.call::<Raise>(&(sums, by)).unwrap();
            wanted.iter_mut().for_each(|sum| *sum += by);
        };
        call(1 + round);
        call(100);
        store.transact(Isolation::Snapshot, |tx| tx.write(sums).map(|sums| sums[5] *= 2)).unwrap();
        wanted[5] *= 2;
        store.call::<Push>(&round).unwrap();
        pushed.insert(0, round);
        if round % 4 == 0 {
            store.write_back().unwrap();
        }
        if round % 5 == 0 {
            store.call::<Raise>(&(sums, 7)).unwrap();
            wanted.iter_mut().for_each(|sum| *sum += 7);
        }
        if round % 3 == 0 {
            store.abandon();
            store = Mvcc::open(&path, &options()).unwrap();
        }
        assert_eq!((read(&store, sums), list(&store)), (wanted, pushed.clone()), "{round}");
    }
    store.close().unwrap();
    let store = Mvcc::open(&path, &without()).unwrap(); // no log has a call
    assert_eq!((read(&store, sums), list(&store)), (wanted, pushed));
    store.close().unwrap();
}

macro_rules! as_raise {
    ($name:ident, $text:expr) => {
        struct $name;

        impl Procedure for $name {
            const NAME: &'static str = $text;
            type Args = <Raise as Procedure>::Args;
            type Output = u64;

            fn run<X: Transaction>(tx: &mut X, args: &Self::Args) -> Result<u64> {
                Raise::run(tx, args)
            }
        }
    };
}

as_raise!(Nameless, "");
as_raise!(SlotState, "raise");

/// Has another version.
struct Newer;

impl Procedure for Newer {
    const NAME: &'static str = Raise::NAME;
    const VERSION: u32 = 2;
    type Args = <Raise as Procedure>::Args;
    type Output = u64;

    fn run<X: Transaction>(tx: &mut X, args: &Self::Args) -> Result<u64> {
        Raise::run(tx, args)
    }
}

#[test]
fn a_call_that_nobody_knows_stops_the_open_and_changes_nothing() {
    let dir = memory();
    let path = dir.path().join("s");
    let (store, sums) = with_sums(&path, &options());
    store.call::<Raise>(&(sums, 3)).unwrap();
    store.abandon();
    let bytes = std::fs::read(&path).unwrap();
    for others in [without(), without().procedure::<Push>(), without().procedure::<Newer>()] {
        let error = Mvcc::open(&path, &others).expect_err("a call that is not known");
        assert!(matches!(&error, Error::Replay { name, version: 1, .. } if name == "raise"), "{error}");
        assert!(error.kind() == ErrorKind::Misuse && error.to_string().contains("register that procedure"), "{error}");
        let now = std::fs::read(&path).unwrap();
        // Behind the pool's own header, which says that it was opened.
        let differs: Vec<_> = (8192..now.len()).filter(|&at| now[at] != bytes[at]).collect();
        assert!(now.len() == bytes.len() && differs.is_empty(), "{differs:?}");
    }
    let store = Mvcc::open(&path, &options()).unwrap();
    assert_eq!((read(&store, sums), store.recovery().replayed), ([3; 64], 1));
    store.close().unwrap();
}

static SEED: AtomicU64 = AtomicU64::new(1);

/// Depends on more than its arguments.
struct Drawn;

impl Procedure for Drawn {
    const NAME: &'static str = "drawn";
    type Args = (PPtr<Sums>, u64);
    type Output = u64;

    fn run<X: Transaction>(tx: &mut X, &(sums, by): &Self::Args) -> Result<u64> {
        Raise::run(tx, &(sums, by * SEED.load(Relaxed)))
    }

    fn encode(args: &Self::Args, out: &mut Vec<u8>) -> bool {
        Raise::encode(args, out)
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        let args = args.split_at_checked(8).and_then(|(at, by)| Some((from_bytes(at)?, from_bytes(by)?)));
        Self::run(tx, &args.ok_or(Error::Aborted { reason: "no arguments".into() })?).map(drop)
    }
}

#[test]
fn a_call_that_does_something_else_stops_the_open() {
    let dir = memory();
    let path = dir.path().join("s");
    let options = options().procedure::<Drawn>();
    let (store, sums) = with_sums(&path, &options);
    store.call::<Raise>(&(sums, 3)).unwrap();
    store.call::<Drawn>(&(sums, 10)).unwrap();
    store.abandon();
    SEED.store(2, Relaxed);
    for _ in 0..2 {
        let error = Mvcc::open(&path, &options).expect_err("another sum");
        assert!(
            matches!(&error, Error::Replay { name, why, .. } if name == "drawn" && why.contains("else")),
            "{error}"
        );
    }
    SEED.store(1, Relaxed);
    let store = Mvcc::open(&path, &options).unwrap();
    assert_eq!(read(&store, sums), [13; 64]);
    store.close().unwrap();
}

#[test]
fn what_has_no_room_is_logged_by_values() {
    let dir = memory();
    let path = dir.path().join("s");
    let options = options().copy_bytes(4096); // for three times 512 bytes
    let (store, sums) = with_sums(&path, &options);
    let reader = store.begin(Isolation::Snapshot).unwrap(); // no pass gets by
    for _ in 0..100 {
        store.call::<Raise>(&(sums, 1)).unwrap();
    }
    drop(reader);
    let calls = store.stats().calls;
    assert_eq!(calls, 3);
    store.abandon();
    let store = Mvcc::open(&path, &options).unwrap();
    assert_eq!(read(&store, sums), [100; 64]);
    store.close().unwrap();
}

/// Frees what it has allocated: an address that is in no record.
struct Brief;

impl Procedure for Brief {
    const NAME: &'static str = "brief";
    type Args = (PPtr<Sums>, u64);
    type Output = ();

    fn run<X: Transaction>(tx: &mut X, &(sums, by): &Self::Args) -> Result<()> {
        let brief = tx.alloc(&[by; 8])?;
        Raise::run(tx, &(sums, brief.offset()))?;
        tx.free(brief)
    }

    fn encode(args: &Self::Args, out: &mut Vec<u8>) -> bool {
        Raise::encode(args, out)
    }
}

#[test]
fn an_object_that_comes_and_goes_is_logged_by_values() {
    let dir = memory();
    let path = dir.path().join("s");
    let (store, sums) = with_sums(&path, &options().procedure::<Brief>());
    store.call::<Brief>(&(sums, 3)).unwrap();
    assert_eq!(store.stats().calls, 0);
    let was = read(&store, sums);
    store.abandon();
    let store = Mvcc::open(&path, &without()).unwrap();
    assert_eq!(read(&store, sums), was);
    store.close().unwrap();
}

#[test]
fn bad_options_are_told() {
    let dir = memory();
    let path = dir.path().join("s");
    let many = (0..33).fold(without(), |options, _| options.procedure::<Raise>());
    let twice = || without().procedure::<Raise>();
    for options in [many, without().procedure::<Nameless>(), without().copy_bytes(100), without().copy_bytes(4096 + 8)]
    {
        assert!(matches!(Mvcc::create(&path, &options), Err(Error::Limit { .. })));
        assert!(!path.exists());
    }
    assert!(matches!(Mvcc::create(&path, &twice().procedure::<SlotState>()), Err(Error::Replay { .. })));
    Mvcc::create(&path, &twice().procedure::<Raise>()).unwrap().close().unwrap();
}

/// Bytes stored to the medium for each byte of the copies that transactions make of objects (TimeStone §5.3.1).
fn amplification(objects: u64, hot: u64) -> f64 {
    let dir = memory();
    let options = options().bytes(4 << 20);
    let store = Mvcc::create(dir.path().join("s"), &options).unwrap();
    let make = |_| store.transact(Isolation::Serializable, |tx| tx.alloc(&[0u64; 64])).unwrap();
    let all: Vec<PPtr<Sums>> = (0..objects).map(make).collect();
    store.write_back().unwrap();
    let before = store.pool().stats();
    for n in 0..10_000u64 {
        // Seven of eight go to the hot ones.
        let at = if n % 8 == 0 { n / 8 % objects } else { n % hot };
        store.call::<Raise>(&(all[at as usize], 1)).unwrap();
    }
    store.write_back().unwrap();
    let stats = store.pool().stats() - before;
    store.close().unwrap();
    (stats.flushed_lines * 64 + stats.nt_bytes) as f64 / (10_000.0 * 512.0)
}

#[test]
fn media_bytes_fall_with_skew() {
    let all = [(1000, 1000), (1000, 300), (1000, 100), (100, 10)].map(|(objects, hot)| amplification(objects, hot));
    println!("{all:?}");
    assert!(all.is_sorted_by(|more, less| more > less), "{all:?}");
    assert!(all[1] < 1.0 && all[3] < 0.3, "{all:?}");
}

/// Copies that are done with, while calls behind them are run again, which need as much room.
fn copies_pile_up(options: &Options) -> Result<()> {
    let dir = memory();
    let path = dir.path().join("s");
    let (mut store, first) = with_sums(&path, options);
    let mut all = vec![first];
    let more =
        store.transact(Isolation::Serializable, |tx| (1..7).map(|_| tx.alloc(&[0; 64])).collect::<Result<Vec<_>>>());
    all.extend(more?);
    store.write_back()?;
    let other = store.transact(Isolation::Serializable, |tx| tx.alloc(&0u64))?;
    let lasting = |store: &Mvcc| -> Result<()> {
        let reader = store.begin(Isolation::Snapshot)?;
        store.transact(Isolation::Serializable, |tx| tx.write(other).map(|number| *number += 1))?;
        assert!(!store.write_back()?, "the pass waits for the reader, and no other one copies what is called now");
        all.iter().try_for_each(|&sums| store.call::<Raise>(&(sums, 1)).map(drop))?;
        reader.abort()
    };
    for _ in 0..20 {
        // So that the others do not begin where the log does, and end where it ends.
        all[..2].iter().try_for_each(|&sums| store.call::<Raise>(&(sums, 1)).map(drop))?;
        store.write_back()?;
        lasting(&store)?;
        store.write_back()?;
        lasting(&store)?;
        store.abandon();
        store = Mvcc::open(&path, options)?;
    }
    store.close()
}

#[test]
fn copies_that_are_done_with_are_in_nobodys_way() {
    let options = options().copy_bytes(8192);
    copies_pile_up(&options).unwrap();
    let error = copies_pile_up(&options.without(Step::RetireCopies)).expect_err("no room");
    assert!(error.to_string().contains("ring"), "{error}");
}
