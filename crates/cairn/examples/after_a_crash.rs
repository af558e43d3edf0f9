//! Opening after a crash: a second process is killed in the middle of a transaction; the first one opens what it left.
//!
//! `cargo run -p cairn --example after_a_crash [FILE]`

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cairn::heap::{Heap, Options, Policy};
use cairn::pmem::Persist;
use cairn::tx::{self, Engine, Isolation::Serializable, Typed};

/// Two sides that always weigh the same, except in the middle of a transaction.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
struct Scales {
    left: u64,
    right: u64,
}

fn options() -> Options {
    Options::new().policy(Policy::InPlace).bytes(1 << 20)
}

/// Adds one to both sides; `pause` is called in between.
fn add(heap: &Heap, mut pause: impl FnMut()) -> tx::Result<()> {
    heap.transact(Serializable, |tx| {
        let scales = tx.root::<Scales>()?;
        tx.write(scales)?.left += 1;
        pause();
        tx.write(scales)?.right += 1;
        Ok(())
    })
}

/// What the second process does.
fn victim(path: &Path) -> Result<(), Box<dyn Error>> {
    let heap = Heap::open(path, &options())?;
    for _ in 0..7 {
        add(&heap, || {})?;
    }
    add(&heap, || {
        println!("in the middle");
        loop {
            std::thread::park(); // until it is killed
        }
    })?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().map_or(std::env::temp_dir().join("after-a-crash.cairn"), PathBuf::from);
    if args.next().is_some_and(|word| word == "victim") {
        return victim(&path);
    }
    if path.exists() {
        std::fs::remove_file(&path)?; // from a run before
    }
    let heap = Heap::create(&path, &options())?;
    heap.transact(Serializable, |tx| -> tx::Result<()> {
        let scales = tx.alloc(&Scales { left: 0, right: 0 })?;
        tx.set_root(scales)
    })?;
    heap.close()?;

    let mut child = Command::new(std::env::current_exe()?).arg(&path).arg("victim").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    child.kill()?; // SIGKILL: nothing of it runs any more
    println!("killed {}", line.trim());
    child.wait()?;

    let heap = Heap::open(&path, &options())?; // recovers
    let found = heap.recovery();
    println!("clean: {}", found.was_clean());
    println!("bytes taken back: {}", found.restored_bytes);
    let scales = heap.transact(Serializable, |tx| tx.read(tx.root::<Scales>()?).copied())?;
    println!("{scales:?}");
    Ok(heap.close()?)
}
