//! The program inside the guest of the power-cut tests (`tools/vm`) that works on a heap.
//!
//! ```text
//! vm_heap_worker DIR POLICY [--need A,B,C] [--created] [--domain NAME] [--verify-only] [--no-sync]
//! ```
//!
//! It opens or makes a heap in `DIR` and demands that what was acknowledged before is in it (`--need`: transactions of each writer). Then writers commit
//! one transaction after the other until the power is cut, and say `ack WRITER NUMBER` when one has returned. What a transaction
//! does follows from its number, so the newest number found tells everything that must be there, to the byte; and a total that all
//! writers share tells that none of them is there by half.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use heap::{Heap, Options, Policy};
use pmem::{HeapOptions, PPtr, Persist};
use tx::{Engine, Error, Isolation, Transaction, Typed};

const WRITERS: usize = 3;
/// Of each writer. Each is written at least once in as many transactions.
const CELLS: u64 = 23;
/// Past the checksum's break-even, and over several zones.
const LONG: usize = 1000;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Root {
    /// Of transactions that count for all writers.
    total: PPtr<u64>,
    writers: [PPtr<Writer>; WRITERS],
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Writer {
    /// Of its last transaction.
    number: u64,
    long: PPtr<[u64; LONG]>,
    cells: [PPtr<Cell>; CELLS as usize],
}

/// All but the node is the number of the last transaction that wrote it.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Cell {
    number: u64,
    node: PPtr<u8>,
    rest: [u64; 11],
}

// ---- what a transaction does ----------------------------------------------------------------------------------------

fn cells_of(number: u64) -> [u64; 3] {
    [0, 3, 11].map(|n| (number * 7 + n) % CELLS)
}

/// The cell that gets a new node.
fn renews(number: u64) -> Option<u64> {
    number.is_multiple_of(2).then(|| cells_of(number)[0])
}

fn node_len(number: u64) -> u64 {
    24 + number * 37 % 400
}

fn is_long(number: u64) -> bool {
    number.is_multiple_of(16)
}

/// Writers meet here, and nowhere else.
fn is_shared(number: u64) -> bool {
    number.is_multiple_of(4)
}

/// The last of the transactions up to `number` that is such, 0 if none is.
fn last(number: u64, is: impl Fn(u64) -> bool) -> u64 {
    (1..=number).rev().take(2 * CELLS as usize).find(|n| is(*n)).unwrap_or(0)
}

fn write(tx: &mut heap::Tx<'_>, root: &Root, writer: usize, number: u64) -> tx::Result<()> {
    let own = *tx.read(root.writers[writer])?;
    for cell in cells_of(number) {
        let at = own.cells[cell as usize];
        let mut node = tx.read(at)?.node;
        if renews(number) == Some(cell) {
            if !node.is_null() {
                tx.free_bytes(node)?;
            }
            let len = node_len(number);
            node = tx.alloc_bytes(len, 8)?;
            tx.bytes_mut(node, len)?.fill(number as u8);
        }
        *tx.write(at)? = Cell { number, node, rest: [number; 11] };
    }
    if is_long(number) {
        *tx.write(own.long)? = [number; LONG];
    }
    *tx.write(root.writers[writer].cast::<u64>())? = number;
    if is_shared(number) {
        *tx.write(root.total)? += 1;
    }
    Ok(())
}

/// Commits transactions for ever; some are rolled back first.
fn work(heap: &Heap, root: &Root, writer: usize, newest: u64) -> Result<(), String> {
    for number in newest + 1.. {
        if number.is_multiple_of(5) {
            let mut tx = heap.begin(Isolation::Strict).map_err(text)?;
            match write(&mut tx, root, writer, number + 1000) {
                Ok(()) | Err(Error::Conflict { .. }) => tx.abort().map_err(text)?,
                Err(e) => return Err(text(e)),
            }
        }
        loop {
            match heap.transact(Isolation::Strict, |tx| write(tx, root, writer, number)) {
                Ok(()) => break,
                Err(Error::GaveUp { .. }) => {}
                Err(e) => return Err(text(e)),
            }
        }
        println!("ack {writer} {number}");
    }
    Ok(())
}

// ---- what must be there ---------------------------------------------------------------------------------------------

fn demand(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("DAMAGED {}", what())) }
}

/// Checks all that the writer has, adds it to `reachable`, and returns the number of its last transaction.
fn verify(tx: &heap::Tx<'_>, root: &Root, writer: usize, reachable: &mut BTreeSet<u64>) -> Result<u64, String> {
    let Writer { number, long, cells } = *tx.read(root.writers[writer]).map_err(text)?;
    reachable.extend([root.writers[writer].offset(), long.offset()]);
    let expected = last(number, is_long);
    demand(*tx.read(long).map_err(text)? == [expected; LONG], || format!("the long one of {writer} at {number}"))?;
    for (cell, &at) in (0..).zip(&cells) {
        let Cell { number: found, node, rest } = *tx.read(at).map_err(text)?;
        let expected = last(number, |n| cells_of(n).contains(&cell));
        let what = || format!("cell {cell} of {writer} at {number}: {found} {rest:?}, not {expected}");
        demand((found, rest) == (expected, [expected; 11]), what)?;
        reachable.insert(at.offset());
        let renewed = last(number, |n| renews(n) == Some(cell));
        let what = || format!("the node of cell {cell} of {writer} at {number}, of {renewed}");
        demand(node.is_null() == (renewed == 0), what)?;
        if renewed > 0 {
            let bytes = tx.bytes(node, node_len(renewed)).map_err(|e| format!("DAMAGED {}: {e}", what()))?;
            demand(bytes.iter().all(|b| *b == renewed as u8), what)?;
            reachable.insert(node.offset());
        }
    }
    Ok(number)
}

fn verify_all(heap: &Heap, root: &Root) -> Result<[u64; WRITERS], String> {
    let tx = heap.begin(Isolation::Strict).map_err(text)?;
    let root_at = tx.root::<Root>().map_err(text)?;
    let mut reachable = BTreeSet::from([tx.root_cell().offset(), root_at.offset(), root.total.offset()]);
    let mut found = [0; WRITERS];
    for (writer, number) in found.iter_mut().enumerate() {
        *number = verify(&tx, root, writer, &mut reachable)?;
    }
    let (total, shared) = (*tx.read(root.total).map_err(text)?, found.iter().map(|n| n / 4).sum::<u64>());
    demand(total == shared, || format!("the total is {total}, not {shared}, at {found:?}"))?;
    drop(tx);
    let mut live = BTreeSet::new();
    heap.live_blocks(|offset, _| {
        live.insert(offset);
    })
    .map_err(text)?;
    demand(live == reachable, || format!("{} blocks are live, {} reachable", live.len(), reachable.len()))?;
    Ok(found)
}

// ---- the pool -------------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Arguments {
    directory: PathBuf,
    policy: Policy,
    need: [u64; WRITERS],
    created: bool,
    domain: Option<String>,
    verify_only: bool,
    no_sync: bool,
}

fn parse() -> Result<Arguments, String> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or(format!("{what} is missing"));
    let (directory, policy) = (next("directory")?.into(), next("policy")?.parse()?);
    let mut arguments = Arguments { directory, policy, ..Arguments::default() };
    while let Ok(word) = next("") {
        match word.as_str() {
            "--need" => {
                let list = next("list after --need")?;
                let numbers: Vec<u64> = list.split(',').map_while(|n| n.parse().ok()).collect();
                arguments.need =
                    numbers.try_into().map_err(|_| format!("--need {list}: one number for each writer"))?;
            }
            "--domain" => arguments.domain = Some(next("name after --domain")?),
            "--created" => arguments.created = true,
            "--verify-only" => arguments.verify_only = true,
            "--no-sync" => arguments.no_sync = true,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Small everywhere, so that everything happens often.
fn options(policy: Policy) -> Result<Options, String> {
    let blocks = HeapOptions::chunk_bytes(16 << 10).map_err(|e| e.to_string())?;
    let options = Options::new().policy(policy).blocks(blocks).bytes(512 << 10).slots(8).log_bytes(16 << 10);
    Ok(options.zone_bytes(4096).recovery_budget(12 * 4096).batch(3).checksum_max(1024))
}

fn make(heap: &Heap) -> tx::Result<()> {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        let total = tx.alloc(&0)?;
        let mut writers = [PPtr::NULL; WRITERS];
        for writer in &mut writers {
            let mut cells = [PPtr::NULL; CELLS as usize];
            for cell in &mut cells {
                *cell = tx.alloc(&Cell { number: 0, node: PPtr::NULL, rest: [0; 11] })?;
            }
            let long = tx.alloc(&[0; LONG])?;
            *writer = tx.alloc(&Writer { number: 0, long, cells })?;
        }
        let root = tx.alloc(&Root { total, writers })?;
        tx.set_root(root)
    })
}

/// The heap in the directory, with its root; made if there is none, which must not be so if that was acknowledged.
fn open_or_make(arguments: &Arguments) -> Result<(Heap, Root), String> {
    let path = arguments.directory.join("heap.cairn");
    let options = options(arguments.policy)?;
    let root = |heap: &Heap| heap.transact(Isolation::Strict, |tx| Ok(*tx.read(tx.root::<Root>()?)?));
    if path.exists() || arguments.created {
        let found = Heap::open(&path, &options).and_then(|heap| Ok((root(&heap)?, heap)));
        match found {
            Ok((root, heap)) => return Ok((heap, root)),
            Err(e) if arguments.created => return Err(format!("LOST {e}")),
            Err(_) => std::fs::remove_file(&path).map_err(|e| e.to_string())?, // the power went while it was made
        }
    }
    let heap = Heap::create(&path, &options).map_err(text)?;
    make(&heap).map_err(text)?;
    let root = root(&heap).map_err(text)?;
    println!("created");
    Ok((heap, root))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let (heap, root) = open_or_make(arguments)?;
    let domain = heap.pool().domain().to_string();
    println!("domain {domain}");
    if arguments.domain.as_ref().is_some_and(|expected| *expected != domain) {
        return Err(format!("the domain detected is {domain}"));
    }
    let found = verify_all(&heap, &root)?;
    if found.iter().zip(&arguments.need).any(|(found, need)| found < need) {
        return Err(format!("LOST found {found:?}, acknowledged {:?}", arguments.need));
    }
    println!("found {}", found.map(|n| n.to_string()).join(" "));
    if arguments.verify_only {
        return heap.close().map_err(text);
    }
    if arguments.no_sync {
        stub_out_drains()?;
    }
    std::thread::scope(|scope| {
        let (heap, root) = (&heap, &root);
        let threads: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || work(heap, root, w, found[w]))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

#[cfg(feature = "no-drains")]
fn stub_out_drains() -> Result<(), String> {
    pmem::failpoints::ignore_drains(true);
    Ok(())
}

#[cfg(not(feature = "no-drains"))]
fn stub_out_drains() -> Result<(), String> {
    Err("--no-sync needs the feature `no-drains`".into())
}

fn main() -> ExitCode {
    match parse().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // LOST and DAMAGED are verdicts about the heap; anything else is trouble on the way.
            let verdict = ["LOST", "DAMAGED"].iter().any(|v| message.starts_with(v));
            println!("{}{message}", if verdict { "" } else { "ERROR " });
            ExitCode::FAILURE
        }
    }
}
