//! A page file without a double-write buffer.
//!
//! A database that overwrites a page in place may find half of it after a crash, so it writes each page twice: to a double-write buffer first, then in place, with a barrier
//! behind each and behind the note that the buffer counts. Here the same pages are written both ways, and to an array: one barrier, and never half a page.
//!
//! `cargo run --release -p cairn-eaw --example page_file [FOLDER]`; on tmpfs, or on a disk.

use std::path::PathBuf;
use std::time::Instant;

use eaw::array::{Array, File, Options};
use pmem::{Area, DomainChoice, TwoSlot};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 9;

/// A page file with a double-write buffer: three barriers for a page.
struct Doubled {
    pages: Area,
    /// Of two pages, in turn: the one that the note is of stays whole until the next note.
    buffer: Area,
    /// Twice the number of the page that counts, and where in the buffer it is.
    note: TwoSlot<u64>,
    turn: u64,
}

impl Doubled {
    fn write(&mut self, number: u64, page: &[u8]) -> Result<(), Failure> {
        let bytes = page.len() as u64;
        self.turn ^= 1;
        self.buffer.copy_nt(self.turn * bytes, page)?;
        self.buffer.drain()?;
        self.note.update(&((number << 1) | self.turn))?;
        self.pages.copy_nt(number * bytes, page)?;
        self.pages.drain()?;
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn time(writes: u64, mut write: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    for n in 0..writes {
        write(n * 7919 % 1024)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / writes as f64)
}

/// How long until a page is durable, when others may be told. That it gets to its place in the file is done between.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn durable(array: &Array, pages: &File, page: &[u8], writes: u64) -> Result<f64, Failure> {
    let (mut all, mut n) = (0, 0);
    let together = (16384 / page.len()).clamp(1, 16); // for the clock's sake
    while n < writes {
        let mut committed = Vec::with_capacity(together);
        let start = Instant::now();
        for _ in 0..together {
            let mut tx = array.begin()?;
            tx.log_write(pages, n * 7919 % 1024 * page.len() as u64, page)?;
            committed.push(tx.commit()?);
            n += 1;
        }
        all += start.elapsed().as_nanos();
    }
    Ok(all as f64 / n as f64)
}

fn main() -> Result<(), Failure> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("page_file.{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let done = measure(&folder);
    std::fs::remove_dir_all(&folder)?;
    done
}

/// Three times for each round: the double-write buffer's, until a page is durable, until it is stored.
type Rounds = Vec<[f64; 3]>;

fn measure(folder: &std::path::Path) -> Result<(), Failure> {
    let medium = pmem::Options::new().domain(DomainChoice::Auto);
    println!(
        "{:>12} {:>10} {:>10} {:>24} {:>10} {:>24}",
        "page", "twice, ns", "durable", "times as fast", "and stored", "times as fast"
    );
    for bytes in [512_u64, 4096, 16384] {
        let pool = medium.clone().size(1 << 20).create(folder.join(format!("double{bytes}")))?;
        let mut doubled = Doubled {
            pages: pool.add_region("pages", 1024 * bytes)?.into_area()?,
            buffer: pool.add_region("buffer", 2 * bytes)?.into_area()?,
            note: TwoSlot::create(pool.add_region("note", TwoSlot::<u64>::SIZE)?.into_area()?, &0)?,
            turn: 0,
        };
        for whole in [false, true] {
            let options = Options::new().pool(medium.clone()).whole_writes(whole);
            let array = options.create(&[folder.join(format!("array{bytes}{whole}"))])?;
            let pages = array.create_file("pages", 1024 * bytes)?;
            let page = vec![7; bytes as usize];
            array.atomic_write(&pages, 0, &page)?;
            if whole && array.status().last > 0 {
                continue; // this file takes no pages whole
            }
            let writes = if array.stats().syncs > 0 { 200 } else { 20_000 };
            let mut rounds = Rounds::new();
            for round in 0..=ROUNDS {
                let twice = time(writes, |n| doubled.write(n, &page))?;
                let stored = time(writes, |n| Ok(array.atomic_write(&pages, n * bytes, &page)?))?;
                let durable = if whole { stored } else { durable(&array, &pages, &page, writes)? };
                if round > 0 {
                    rounds.push([twice, durable, stored]); // not the one that touches all pages for the first time
                }
            }
            print(&format!("{bytes}{}", if whole { ", whole" } else { "" }), &rounds);
            array.close()?;
        }
    }
    Ok(())
}

fn print(what: &str, rounds: &Rounds) {
    let column = |of: fn(&[f64; 3]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        (values[0], values[ROUNDS / 2], values[ROUNDS - 1])
    };
    let spread = |(least, middle, most): (f64, f64, f64)| format!("{middle:.2} ({least:.2} to {most:.2})");
    println!(
        "{what:>12} {:>10.0} {:>10.0} {:>24} {:>10.0} {:>24}",
        column(|round| round[0]).1,
        column(|round| round[1]).1,
        spread(column(|round| round[0] / round[1])),
        column(|round| round[2]).1,
        spread(column(|round| round[0] / round[2])),
    );
}
