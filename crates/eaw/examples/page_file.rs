//! A page file without a double-write buffer.
//!
//! A database that overwrites a page in place may find half of it after a crash, so it writes each page twice: to a double-write buffer first, then in place, with a barrier
//! behind each and behind the note that the buffer counts. Here the same pages are written both ways, and to an array: one barrier, and never half a page.
//!
//! `cargo run --release -p cairn-eaw --example page_file [FOLDER]`; on tmpfs, or on a disk.

use std::path::PathBuf;
use std::time::Instant;

use eaw::array::Options;
use pmem::{Area, DomainChoice, TwoSlot};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 9;

/// A page file with a double-write buffer: three barriers for a page.
struct Doubled {
    pages: Area,
    buffer: Area,
    /// Which page the buffer holds; 0: none.
    note: TwoSlot<u64>,
}

impl Doubled {
    fn write(&mut self, number: u64, page: &[u8]) -> Result<(), Failure> {
        self.buffer.copy_nt(0, page)?;
        self.buffer.drain()?;
        self.note.update(&(number + 1))?;
        let at = number * page.len() as u64;
        self.pages.copy_nt(at, page)?;
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

fn main() -> Result<(), Failure> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("page_file.{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let done = measure(&folder);
    std::fs::remove_dir_all(&folder)?;
    done
}

fn measure(folder: &std::path::Path) -> Result<(), Failure> {
    let medium = pmem::Options::new().domain(DomainChoice::Auto);
    println!("{:>8} {:>14} {:>14} {:>22}", "page", "twice, ns", "array, ns", "times as fast");
    for bytes in [512_u64, 4096, 16384] {
        let pool = medium.clone().size(1 << 20).create(folder.join(format!("double{bytes}")))?;
        let mut doubled = Doubled {
            pages: pool.add_region("pages", 1024 * bytes)?.into_area()?,
            buffer: pool.add_region("buffer", bytes)?.into_area()?,
            note: TwoSlot::create(pool.add_region("note", TwoSlot::<u64>::SIZE)?.into_area()?, &0)?,
        };
        let array = Options::new().pool(medium.clone()).create(&[folder.join(format!("array{bytes}"))])?;
        let pages = array.create_file("pages", 1024 * bytes)?;
        let page = vec![7; bytes as usize];
        let slow = array.stats().syncs > 0 && format!("{}", pool.domain()).contains("file");
        let writes = if slow { 200 } else { 20_000 };
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let twice = time(writes, |n| doubled.write(n, &page))?;
            let once = time(writes, |n| Ok(array.atomic_write(&pages, n * bytes, &page)?))?;
            all.push((twice, once, twice / once));
        }
        all.sort_by(|a, b| a.2.total_cmp(&b.2));
        let (twice, once, ratio) = all[ROUNDS / 2];
        println!("{bytes:>8} {twice:>14.0} {once:>14.0} {ratio:>8.2} ({:.2} to {:.2})", all[0].2, all[ROUNDS - 1].2);
        array.close()?;
    }
    Ok(())
}
