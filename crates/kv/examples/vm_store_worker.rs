//! The program inside the guest of the power-cut tests (`tools/vm`) that works on a store.
//!
//! It opens or makes a store in `DIR` and demands that what was acknowledged before is in it (`--need`: transactions of each writer). Then writers commit one
//! transaction after the other until the power is cut, and say `ack WRITER NUMBER` when one has returned. What a transaction does follows from its number,
//! so the newest number found tells everything that must be there, to the byte; and a total that all writers share tells that none of them is there by half.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kv::{Isolation, Keys, Options, Store, Transaction};

const WRITERS: usize = 3;
/// Keys of each writer. Each is written at least once in as many transactions.
const CELLS: u64 = 23;

#[derive(Parser)]
struct Arguments {
    directory: PathBuf,
    /// What the store is opened as: `durable` is all there is.
    mode: String,
    /// The numbers acknowledged, of each writer.
    #[arg(long, value_delimiter = ',', default_value = "0,0,0")]
    need: Vec<u64>,
    /// It was acknowledged that the store was made.
    #[arg(long)]
    created: bool,
    /// The domain it must have.
    #[arg(long)]
    domain: Option<String>,
    /// Writes nothing.
    #[arg(long)]
    verify_only: bool,
    /// Leaves every sync out: data must get lost.
    #[arg(long)]
    no_sync: bool,
}

// ---- what a transaction does ----------------------------------------------------------------------------------------

fn cells_of(number: u64) -> [u64; 3] {
    [0, 3, 11].map(|n| (number * 7 + n) % CELLS)
}

/// What transaction `number` makes of a cell.
fn value(number: u64, cell: u64) -> Option<Vec<u8>> {
    let len = [20, 100, 400, 3000][((number + cell) % 4) as usize];
    let words = std::iter::repeat_n(number * 31 + cell, len / 8);
    (!(number + cell).is_multiple_of(5)).then(|| words.flat_map(u64::to_le_bytes).collect())
}

/// Writers meet here, and nowhere else.
fn is_shared(number: u64) -> bool {
    number.is_multiple_of(4)
}

fn cell_key(writer: usize, cell: u64) -> Vec<u8> {
    format!("cell/{writer}/{cell:02}").into_bytes()
}

fn number_key(writer: usize) -> Vec<u8> {
    format!("number/{writer}").into_bytes()
}

const TOTAL: &[u8] = b"total";

fn word(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn write(tx: &mut Transaction<'_>, writer: usize, number: u64) -> kv::Result<()> {
    for cell in cells_of(number) {
        match value(number, cell) {
            Some(value) => tx.put(&cell_key(writer, cell), &value)?,
            None => tx.delete(&cell_key(writer, cell))?,
        };
    }
    tx.put(&number_key(writer), &number.to_le_bytes())?;
    if is_shared(number) {
        let total = word(tx.get(TOTAL)?);
        tx.put(TOTAL, &(total + 1).to_le_bytes())?;
    }
    Ok(())
}

/// Commits transactions for ever; some are given up first.
fn work(store: &Store, writer: usize, newest: u64) -> Result<(), String> {
    for number in newest + 1.. {
        if number.is_multiple_of(5) {
            let mut tx = store.begin(Isolation::Serializable).map_err(text)?;
            match write(&mut tx, writer, number + 1000) {
                Err(error) if !error.is_conflict() => return Err(text(error)),
                _ => tx.abort(),
            }
        }
        store.transact(|tx| write(tx, writer, number)).map_err(text)?;
        println!("ack {writer} {number}");
    }
    Ok(())
}

// ---- what must be there ---------------------------------------------------------------------------------------------

/// All that is there, against what the newest numbers say; returns these.
fn verify(store: &Store) -> Result<[u64; WRITERS], String> {
    let snapshot = store.snapshot().map_err(text)?;
    let pairs = snapshot.scan(Keys::all()).map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())));
    let all = pairs.collect::<kv::Result<BTreeMap<_, _>>>().map_err(|error| format!("DAMAGED {error}"))?;
    let read = |key: &[u8]| word(all.get(key).map(Vec::as_slice));
    let found: [u64; WRITERS] = std::array::from_fn(|writer| read(&number_key(writer)));
    let mut right = BTreeMap::new();
    for (writer, &number) in found.iter().enumerate() {
        if number > 0 {
            right.insert(number_key(writer), number.to_le_bytes().to_vec());
        }
        for cell in 0..CELLS {
            let last = (1..=number).rev().take(CELLS as usize).find(|n| cells_of(*n).contains(&cell));
            if let Some(value) = last.and_then(|last| value(last, cell)) {
                right.insert(cell_key(writer, cell), value);
            }
        }
    }
    let total = found.iter().map(|number| number / 4).sum::<u64>();
    if total > 0 {
        right.insert(TOTAL.to_vec(), total.to_le_bytes().to_vec());
    }
    if all != right {
        let wrong = all.keys().chain(right.keys()).find(|key| all.get(*key) != right.get(*key));
        return Err(format!("DAMAGED at {found:?}: {:?}", wrong.map(|key| key.escape_ascii().to_string())));
    }
    let checked = store.check(|_| ()).map_err(text)?;
    if checked.is_sound() { Ok(found) } else { Err(format!("DAMAGED {:?}", checked.problems)) }
}

// ---- the store ------------------------------------------------------------------------------------------------------

/// The store in the directory; made if there is none, which must not be so if that was acknowledged.
fn open_or_make(arguments: &Arguments) -> Result<Store, String> {
    let path = arguments.directory.join("store.cairn");
    // Small, so that everything happens often.
    let options = Options::new().segment_bytes(16 << 10).checkpoint_bytes(128 << 10);
    if path.exists() || arguments.created {
        match options.open(&path) {
            Ok(store) => return Ok(store),
            Err(error) if arguments.created => return Err(format!("LOST {error}")),
            Err(_) => std::fs::remove_file(&path).map_err(|e| e.to_string())?, // the power went while it was made
        }
    }
    let store = options.create(&path).map_err(text)?;
    println!("created");
    Ok(store)
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.mode != "durable" || arguments.need.len() != WRITERS {
        return Err("usage: DIR durable [--need A,B,C]".into());
    }
    let store = open_or_make(arguments)?;
    let domain = store.effective_durability().to_string();
    println!("domain {domain}");
    if arguments.domain.as_ref().is_some_and(|expected| *expected != domain) {
        return Err(format!("the domain detected is {domain}"));
    }
    let found = verify(&store)?;
    if found.iter().zip(&arguments.need).any(|(found, need)| found < need) {
        return Err(format!("LOST found {found:?}, acknowledged {:?}", arguments.need));
    }
    println!("found {}", found.map(|n| n.to_string()).join(" "));
    if arguments.verify_only {
        return store.close().map_err(text);
    }
    if arguments.no_sync {
        stub_out_drains()?;
    }
    std::thread::scope(|scope| {
        let store = &store;
        let threads: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || work(store, w, found[w]))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

fn text(error: kv::Error) -> String {
    error.to_string()
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
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // LOST and DAMAGED are verdicts about the store; anything else is trouble on the way.
            let verdict = ["LOST", "DAMAGED"].iter().any(|v| message.starts_with(v));
            println!("{}{message}", if verdict { "" } else { "ERROR " });
            ExitCode::FAILURE
        }
    }
}
