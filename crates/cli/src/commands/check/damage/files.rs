//! Small files of every kind, what is in them, and what can become of their bytes.

use std::ops::ControlFlow;
use std::path::Path;

use heap::{Heap, Policy};
use pmem::{Allocator, HeapOptions, PPtr, Persist, RegionKind, Ring};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;
use server::engine::Engine as _;
use server::tree::Tree;
use structures::{BTree, BTreeOptions, Map, Structure};
use tx::{Engine, Isolation, Transaction, Typed};

pub const PAGE: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Regions that no engine owns: bytes, a ring, an allocator.
    Pool,
    HeapInPlace,
    HeapPartial,
    HeapUndo,
    HeapEaw,
    /// Several versions of each object.
    Versions,
    /// A B+tree in a heap with undo, whose nodes have no checksum.
    Tree,
    /// The tree of a server.
    Served,
    Store,
    Log,
    /// A copy of a log on several machines.
    Copy,
}

pub const KINDS: [Kind; 11] = [
    Kind::Pool,
    Kind::HeapInPlace,
    Kind::HeapPartial,
    Kind::HeapUndo,
    Kind::HeapEaw,
    Kind::Versions,
    Kind::Tree,
    Kind::Served,
    Kind::Store,
    Kind::Log,
    Kind::Copy,
];

/// What is read out of a file: names and values.
pub type Data = Vec<(Vec<u8>, Vec<u8>)>;

/// A file, closed or as a killed process leaves it, with earlier states of it.
pub struct Sample {
    pub kind: Kind,
    pub closed: bool,
    pub bytes: Vec<u8>,
    pub data: Data,
    older: Vec<Vec<u8>>,
}

impl Sample {
    /// Makes one at `path`, and removes it.
    pub fn make(kind: Kind, closed: bool, path: &Path) -> Self {
        drop(std::fs::remove_file(path));
        let mut older = Vec::new();
        match kind {
            Kind::Pool => pool(path, closed, &mut older),
            Kind::HeapInPlace => heap(path, closed, Policy::InPlace, &mut older),
            Kind::HeapPartial => heap(path, closed, Policy::InPlacePartial, &mut older),
            Kind::HeapUndo => heap(path, closed, Policy::Undo, &mut older),
            Kind::HeapEaw => heap(path, closed, Policy::Eaw, &mut older),
            Kind::Versions => versions(path, closed, &mut older),
            Kind::Tree => tree(path, closed, &mut older),
            Kind::Served => served(path, closed, &mut older),
            Kind::Store => store(path, closed, &mut older),
            Kind::Log => log(path, closed, &mut older),
            Kind::Copy => copy(path, closed, &mut older),
        }
        let bytes = if closed { std::fs::read(path).unwrap() } else { older.pop().unwrap() };
        std::fs::write(path, &bytes).unwrap();
        let data = read(kind, path, closed).unwrap_or_else(|error| panic!("{kind:?}, closed: {closed}: {error:?}"));
        std::fs::remove_file(path).unwrap();
        Self { kind, closed, bytes, data, older }
    }
}

// ---- made -----------------------------------------------------------------------------------------------------------

/// The file as a crash at this moment leaves it.
fn note(path: &Path, older: &mut Vec<Vec<u8>>) {
    older.push(std::fs::read(path).unwrap());
}

fn pool(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    let pool = pmem::Options::new().size(1 << 18).create(path).unwrap();
    pool.add_region("raw", 8192).unwrap();
    let area = pool.add_region_as("ring", 8192, RegionKind::Ring, 0).unwrap().into_area().unwrap();
    let mut ring = Ring::create(area).unwrap();
    let heap = Allocator::create(&pool, "blocks", 1 << 16, HeapOptions::default()).unwrap();
    for n in 0..20_u8 {
        ring.append(&[&vec![n; 10 + usize::from(n) * 3]]).unwrap();
        ring.force().unwrap();
        if n % 5 == 0 {
            note(path, older);
        }
    }
    note(path, older);
    drop(ring);
    heap.close().unwrap();
    if closed {
        pool.close().unwrap();
    }
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Node {
    next: PPtr<Node>,
    value: [u64; 15],
}

fn heap(path: &Path, closed: bool, policy: Policy, older: &mut Vec<Vec<u8>>) {
    let options = heap::Options::new().policy(policy).bytes(1 << 18).slots(2).log_bytes(4096).zone_bytes(4096);
    let heap = Heap::create(path, &options.coordinator(false)).unwrap();
    nodes(&heap, path, older);
    if closed {
        heap.close().unwrap();
    }
}

/// A list of nodes, some of which are changed.
fn nodes(engine: &impl Engine, path: &Path, older: &mut Vec<Vec<u8>>) {
    let mut last = PPtr::NULL;
    for n in 0..40_u64 {
        last = engine
            .transact(Isolation::Strict, |tx| {
                let node = tx.alloc(&Node { next: last, value: [n; 15] })?;
                tx.set_root(node)?;
                Ok::<_, tx::Error>(node)
            })
            .unwrap();
        if n % 10 == 9 {
            engine
                .transact(Isolation::Strict, |tx| {
                    tx.write(last)?.value[0] += 1000;
                    Ok::<_, tx::Error>(())
                })
                .unwrap();
            note(path, older);
        }
    }
}

fn versions(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    let options = mvcc::Options::new().bytes(1 << 18).slots(2).log_bytes(4096).copy_bytes(4096);
    let store = options.background(false).create(path).unwrap();
    nodes(&store, path, older);
    if closed {
        store.close().unwrap();
    }
}

fn tree(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    let options = heap::Options::new().policy(Policy::Undo).bytes(1 << 17).slots(2).log_bytes(4096);
    let heap = Heap::create(path, &options.coordinator(false)).unwrap();
    let tree = heap
        .transact(Isolation::Strict, |tx| {
            let tree = BTree::create(tx, &BTreeOptions::new().key_max(16).node_bytes(256, 256))?;
            tx.set_root(tree.root())?;
            Ok::<_, tx::Error>(tree)
        })
        .unwrap();
    for n in 0..80 {
        let (key, value) = pair(n);
        heap.transact(Isolation::Strict, |tx| tree.put(tx, &key, &value)).unwrap();
        if n % 20 == 19 {
            note(path, older);
        }
    }
    if closed {
        heap.close().unwrap();
    }
}

fn serving() -> server::tree::Options {
    server::tree::Options::new().bytes(1 << 17).slots(1)
}

fn served(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    for part in 0..4 {
        let tree = Tree::open_or_create(path, &serving()).unwrap();
        for n in part * 20..(part + 1) * 20 {
            let (key, value) = pair(n);
            tree.write(&mut |tx| tx.put(&key, &value, None)).unwrap();
        }
        Box::new(tree).close().unwrap();
        note(path, older); // closed, since something runs beside an open one
    }
    if !closed {
        // All zones are dirty, and no thread applies anything to them meanwhile.
        let heap = Heap::open(path, &heap::Options::new().coordinator(false)).unwrap();
        let mut blocks = Vec::new();
        heap.live_blocks(|offset, _| blocks.push(offset)).unwrap();
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        for offset in blocks {
            tx.bytes_mut(PPtr::new(heap.pool().tag(), offset), 8).unwrap();
        }
        note(path, older);
        tx.abort().unwrap();
    }
}

/// Commits of the store: each but the last one puts a pair.
pub const COMMITS: usize = 121;

fn pair(n: usize) -> (Vec<u8>, Vec<u8>) {
    (format!("key{:02}", n % 40).into_bytes(), format!("the value {n} {}", "x".repeat(n % 50)).into_bytes())
}

const DELETED: &[u8] = b"key07";

/// What so many commits leave in the store.
pub fn stored(commits: usize) -> Data {
    let mut pairs: std::collections::BTreeMap<_, _> = (0..commits.min(COMMITS - 1)).map(pair).collect();
    if commits == COMMITS {
        pairs.remove(DELETED);
    }
    pairs.into_iter().collect()
}

fn store(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    let store = kv::Options::new().segment_bytes(4096).background(false).create(path).unwrap();
    for n in 0..COMMITS - 1 {
        let (key, value) = pair(n);
        store.put(&key, &value).unwrap();
        if n % 40 == 20 {
            store.checkpoint().unwrap();
        }
        if n % 20 == 19 {
            note(path, older);
        }
    }
    store.delete(DELETED).unwrap();
    note(path, older);
    if closed {
        store.close().unwrap();
    }
}

fn log(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    let log = log::Options::new().bytes(16 << 10).segment_bytes(2048).idle(None).create(path).unwrap();
    for n in 0..60_u8 {
        log.append(&vec![n; 20 + usize::from(n % 9) * 11]).unwrap();
        if n % 15 == 14 {
            note(path, older);
        }
    }
    note(path, older);
    if closed {
        log.close().unwrap();
    }
}

/// Served in this process, with a leader that has no copy of its own.
fn copy(path: &Path, closed: bool, older: &mut Vec<Vec<u8>>) {
    let secret = log::fabric::Secret::new(b"what all of them know").unwrap();
    let trust = log::fabric::Options { secret: Some(secret), ..Default::default() };
    let replica = log::Replica::serve(path, "127.0.0.1:0", trust.clone()).unwrap();
    let replicas = log::Replicas::new().trust(trust).at(&replica.address().unwrap().to_string());
    let options = log::Options::new().bytes(16 << 10).segment_bytes(2048).idle(None);
    let log = options.create_replicated(&replicas).unwrap();
    for n in 0..60_u8 {
        log.append(&vec![n; 20 + usize::from(n % 9) * 11]).unwrap();
        if n % 15 == 14 {
            note(path, older);
        }
    }
    note(path, older);
    log.close().unwrap();
    if closed {
        replica.stop().unwrap();
    }
}

// ---- read -----------------------------------------------------------------------------------------------------------

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Unread {
    /// Its own open or check says so.
    Rejected(String),
    /// What is in it leads to nothing: a program would find out.
    Lost,
}

impl<E: std::error::Error> From<E> for Unread {
    fn from(error: E) -> Self {
        Self::Rejected(error.to_string())
    }
}

/// Opens the file as its own kind does, which recovers it if it was not closed, checks all of it, and reads all that is in it.
pub fn read(kind: Kind, path: &Path, closed: bool) -> Result<Data, Unread> {
    if kind == Kind::Served {
        return of_served(path);
    }
    let options = pmem::Options::new();
    let pool = if closed { options.open_read_only(path) } else { options.open(path) };
    let pool = pool?;
    let mut data = match kind {
        Kind::Pool => of_pool(&pool)?,
        Kind::HeapInPlace | Kind::HeapPartial | Kind::HeapUndo | Kind::HeapEaw => of_heap(&pool)?,
        Kind::Versions => of_versions(&pool)?,
        Kind::Tree => of_tree(&pool)?,
        Kind::Served => Data::new(), // above
        Kind::Store => of_store(&pool)?,
        Kind::Log => of_log(&pool)?,
        Kind::Copy => of_copy(&pool)?,
    };
    data.sort();
    Ok(data)
}

fn of_pool(pool: &pmem::Pool) -> pmem::Result<Data> {
    let (_, found) = Ring::open(pool.region("ring")?.into_area()?)?;
    let heap = Allocator::open(pool, "blocks")?;
    let used = heap.live_blocks(|_, _| Ok(()))?;
    pool.region("raw")?;
    let record = |(n, record): (usize, &pmem::RingRecord)| {
        (format!("ring {n:03}").into_bytes(), format!("{:?} to {:?}", record.position, record.end).into_bytes())
    };
    let mut data: Data = found.records.iter().enumerate().map(record).collect();
    data.push((b"blocks".to_vec(), used.live_blocks.to_le_bytes().to_vec()));
    Ok(data)
}

/// The heap, and all that its own check looks at.
fn checked(pool: &pmem::Pool) -> Result<Heap, Unread> {
    let heap = Heap::open_in(pool, &heap::Options::new().coordinator(false))?;
    let (found, unclear) = heap.compare_all()?;
    heap.live_blocks(|_, _| {})?;
    if let Some(error) = unclear.into_iter().next() {
        return Err(error.into());
    }
    if found.main_repaired + found.backup_repaired > 0 {
        let why = format!("{} and {} bytes differ", found.main_repaired, found.backup_repaired);
        return Err(Unread::Rejected(why));
    }
    Ok(heap)
}

fn of_tree(pool: &pmem::Pool) -> Result<Data, Unread> {
    let heap = checked(pool)?;
    let tx = heap.begin(Isolation::Strict)?;
    let Some(Structure::BTree(tree)) = Structure::at_root(&tx)? else { return Err(Unread::Lost) };
    tree.verify(&tx)?;
    let mut data = Data::new();
    tree.for_each(&tx, |key, value| {
        data.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(data)
}

/// As it is served.
fn of_served(path: &Path) -> Result<Data, Unread> {
    let tree = Tree::open_or_create(path, &serving())?;
    server::tree::verify(tree.heap())?;
    let mut data = Data::new();
    tree.read(&mut |tx| {
        data.clear();
        tx.scan(tx::Keys::all(), &mut |key, value| {
            data.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
    })?;
    Ok(data)
}

fn of_heap(pool: &pmem::Pool) -> Result<Data, Unread> {
    of_nodes(&checked(pool)?)
}

fn of_versions(pool: &pmem::Pool) -> Result<Data, Unread> {
    let store = mvcc::Mvcc::open_in(pool, &mvcc::Options::new().background(false))?;
    store.live_blocks(|_, _| {})?;
    of_nodes(&store)
}

fn of_nodes(engine: &impl Engine) -> Result<Data, Unread> {
    let tx = engine.begin(Isolation::Strict)?;
    let (mut data, mut at) = (Vec::new(), tx.root::<Node>().map_err(|_| Unread::Lost)?);
    while !at.is_null() && data.len() < 1000 {
        let node = *tx.read(at).map_err(|_| Unread::Lost)?;
        data.push((at.offset().to_le_bytes().to_vec(), pmem::bytes_of(&node.value).to_vec()));
        at = node.next;
    }
    Ok(data)
}

fn of_store(pool: &pmem::Pool) -> kv::Result<Data> {
    let store = kv::Options::new().background(false).verify(true).open_in(pool)?;
    let checked = store.check(|_| ())?;
    if let Some(problem) = checked.problems.first() {
        return Err(kv::Error::Damaged { what: "record", offset: problem.offset, why: problem.to_string() });
    }
    let snapshot = store.snapshot()?;
    snapshot.scan(kv::Keys::all()).map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

fn of_log(pool: &pmem::Pool) -> log::Result<Data> {
    let (log, _) = log::Options::new().idle(None).open_in(pool, log::NAME)?;
    let (mut records, mut data) = (log.iter(), Vec::new());
    while let Some(record) = records.next()? {
        data.push((record.lsn.get().to_be_bytes().to_vec(), record.payload.to_vec()));
    }
    Ok(data)
}

/// Its records are its leader's to read: how many there are.
fn of_copy(pool: &pmem::Pool) -> log::Result<Data> {
    let Some(found) = log::check_replica(pool, log::NAME)? else { return Ok(Vec::new()) };
    Ok((0..found.records).map(|n| (n.to_be_bytes().to_vec(), Vec::new())).collect())
}

// ---- damaged --------------------------------------------------------------------------------------------------------

/// Something that happens to bytes at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    Bit {
        at: usize,
        bit: u8,
    },
    /// 64 bytes of anything.
    Line {
        at: usize,
        seed: u8,
    },
    /// A page that reads as zeros.
    Zeroed {
        page: usize,
    },
    Cut {
        len: usize,
    },
    /// A page that was written where another one belongs.
    Moved {
        from: usize,
        to: usize,
    },
    /// A page as it was earlier: a write that was lost.
    Older {
        state: usize,
        page: usize,
    },
}

impl Mutation {
    pub const NAMES: [&'static str; 6] = ["bit", "line", "zeroed", "cut", "moved", "older"];

    /// One of this sort, where there is something.
    pub fn draw(rng: &mut Xoshiro256PlusPlus, sort: usize, sample: &Sample) -> Self {
        let mut below = |limit: usize| (rng.next_u64() % limit.max(1) as u64) as usize;
        let used: Vec<usize> =
            sample.bytes.chunks(PAGE).enumerate().filter(|(_, page)| !is_zero(page)).map(|p| p.0).collect();
        let page = used[below(used.len())];
        let at = page * PAGE + below(PAGE);
        match sort {
            0 => Self::Bit { at, bit: below(8) as u8 },
            1 => Self::Line { at: at / 64 * 64, seed: below(256) as u8 },
            2 => Self::Zeroed { page },
            3 => Self::Cut { len: below(sample.bytes.len()) },
            4 => Self::Moved { from: used[below(used.len())], to: page },
            _ => Self::Older { state: below(sample.older.len()), page },
        }
    }

    pub fn apply(self, sample: &Sample) -> Vec<u8> {
        let mut bytes = sample.bytes.clone();
        let page_of = |bytes: &[u8], page: usize| bytes.get(page * PAGE..(page + 1) * PAGE).map(<[u8]>::to_vec);
        match self {
            Self::Bit { at, bit } => bytes[at] ^= 1 << bit,
            Self::Line { at, seed } => {
                for (n, byte) in bytes[at..at + 64].iter_mut().enumerate() {
                    *byte = seed.wrapping_add((n as u8).wrapping_mul(seed | 1));
                }
            }
            Self::Zeroed { page } => bytes[page * PAGE..(page + 1) * PAGE].fill(0),
            Self::Cut { len } => bytes.truncate(len),
            Self::Moved { from, to } => bytes.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE),
            Self::Older { state, page } => {
                let older = page_of(&sample.older[state], page).unwrap_or_else(|| vec![0; PAGE]);
                bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(&older);
            }
        }
        bytes
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
