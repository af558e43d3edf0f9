//! Writes of so many bytes to places drawn in turn, each whole or not at all but for the plain ones.

use std::path::{Path, PathBuf};
use std::time::Duration;

use eaw::array::{Array, Committed, File, Options};
use pmem::{Area, LINE, Pool};

use super::Setting;
use crate::limits::disk;
use crate::{Error, Result, Row, Side, Watch, clock, machine, run_watched};

/// What is timed of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until it is durable, and others may be told. The rest is done between.
    Durable,
    /// Until its bytes are in their place.
    InPlace,
}

impl Until {
    fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::InPlace => "in target",
        }
    }
}

/// In memory and, if there is time, on a disk; each size in rounds of its own.
pub(super) fn measure(
    setting: &Setting,
    watch: &dyn Watch,
    row: Row,
    sizes: &[usize],
    until: Until,
) -> Result<Vec<Row>> {
    let dirs: Vec<PathBuf> = setting.cases(&[setting.dir.clone(), disk()], std::slice::from_ref(&setting.dir));
    watch.begin("atomic writes", (dirs.len() * sizes.len() * setting.plan.rounds()) as u64);
    let mut rows = Vec::new();
    for dir in &dirs {
        for bytes in sizes {
            let folder = tempfile::Builder::new()
                .prefix("cairn-bench-")
                .tempdir_in(dir)
                .map_err(|source| Error::Io { op: "make a temporary directory", path: dir.clone(), source })?;
            let row = row.clone().param("bytes", *bytes).param("until", until.name());
            let row = Row { medium: machine::medium(dir), ..row };
            let sides = sides(folder.path(), *bytes, &row, until)?;
            let soft = sides.iter().position(|side| side.engine() == SOFT);
            rows.extend(run_watched(&setting.plan, sides, soft, watch)?);
        }
    }
    Ok(rows)
}

const SOFT: &str = "soft-atomic";

fn sides(folder: &Path, bytes: usize, row: &Row, until: Until) -> Result<Vec<Side<'static>>> {
    let target = Target { folder, bytes };
    let side = |name: &str, pool: &Pool, work: Box<dyn FnMut(u64) -> Result<Duration>>| {
        let row = Row { engine: name.into(), ..row.clone() };
        Side::new(row, work).counted(pool).op_bytes(bytes as u64)
    };
    let mut sides = Vec::new();
    if until == Until::InPlace {
        let (pool, mut plain) = target.plain()?;
        sides.push(side("plain", &pool, Box::new(move |batch| plain.write(batch))));
    }
    let (pool, mut soft) = target.soft()?;
    sides.push(side(SOFT, &pool, Box::new(move |batch| soft.write(batch, until))));
    let (pool, mut array) = target.array("logged", false)?;
    sides.push(side("log-write+commit", &pool, Box::new(move |batch| array.commit(batch, until))));
    if until == Until::InPlace {
        let (pool, mut array) = target.array("atomic", false)?;
        sides.push(side("atomic-write", &pool, Box::new(move |batch| array.atomic(batch))));
    }
    let (pool, mut array) = target.array("whole", true)?;
    if array.takes_whole()? {
        sides.push(side("whole-write", &pool, Box::new(move |batch| array.atomic(batch))));
    }
    Ok(sides)
}

/// So many writes are under way together where some of their work is not timed: a clock must not be read too often.
const TOGETHER_MAX: u64 = 16;

/// Where the contestants' files are, and how large a write is.
struct Target<'a> {
    folder: &'a Path,
    bytes: usize,
}

impl Target<'_> {
    fn pages(&self) -> u64 {
        ((32 << 20) / self.bytes as u64).min(1024)
    }

    /// Of so many writes' bytes beside the pages.
    fn pool(&self, name: &str, beside: u64) -> Result<Pool> {
        let size = (self.pages() + beside) * self.bytes as u64 + (4 << 20);
        Ok(pmem::Options::new().size(size).create(self.folder.join(name))?)
    }

    fn targets(&self) -> Targets {
        Targets { data: vec![7; self.bytes], pages: self.pages(), next: 0 }
    }

    fn area(&self, pool: &Pool, name: &str, pages: u64) -> Result<Area> {
        let mut area = pool.add_region(name, pages * self.bytes as u64)?.into_area()?;
        let _ = area.clear()?; // all pages present
        let _ = area.drain()?;
        Ok(area)
    }

    fn plain(&self) -> Result<(Pool, Plain)> {
        let pool = self.pool("plain", 0)?;
        let plain = Plain { area: self.area(&pool, "pages", self.pages())?, targets: self.targets() };
        Ok((pool, plain))
    }

    fn soft(&self) -> Result<(Pool, Soft)> {
        let pool = self.pool("soft", SLOTS)?;
        let mut records = pool.add_region("records", SLOTS * LINE)?.into_area()?;
        let _ = records.clear()?;
        let _ = records.drain()?;
        let (log, area) = (self.area(&pool, "log", SLOTS)?, self.area(&pool, "pages", self.pages())?);
        Ok((pool, Soft { log, records, area, sequence: 0, targets: self.targets() }))
    }

    fn array(&self, name: &str, whole: bool) -> Result<(Pool, Pages)> {
        let pool = self.pool(name, 0)?;
        let array = Options::new().whole_writes(whole).create_in(std::slice::from_ref(&pool))?;
        let file = array.create_file("pages", self.pages() * self.bytes as u64)?;
        let mut pages = Pages { array, file, targets: self.targets() };
        if !whole {
            pages.atomic(pages.targets.pages)?; // all present, as above
        }
        Ok((pool, pages))
    }
}

/// What is written, and where next.
struct Targets {
    data: Vec<u8>,
    pages: u64,
    next: u64,
}

impl Targets {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next * 7919 % self.pages * self.data.len() as u64
    }

    fn together(&self) -> u64 {
        ((16 << 10) / self.data.len() as u64).clamp(1, TOGETHER_MAX)
    }
}

/// To its place, durably; a crash may leave half of it.
struct Plain {
    area: Area,
    targets: Targets,
}

impl Plain {
    fn write(&mut self, batch: u64) -> Result<Duration> {
        clock::time(|| {
            for _ in 0..batch {
                let at = self.targets.next();
                let _ = self.area.copy_nt(at, &self.targets.data)?;
                let _ = self.area.drain()?;
            }
            Ok(())
        })
    }
}

/// Slots of the log: a slot is taken again when no record that counts is in it.
const SLOTS: u64 = 2 * TOGETHER_MAX;

/// Atomic in software: to a log, a record that it counts, to its place, with a barrier behind each. After a crash the last [`TOGETHER_MAX`] records count.
struct Soft {
    log: Area,
    /// A word in a line of its own for each slot: the number of the write, and its page.
    records: Area,
    area: Area,
    sequence: u64,
    targets: Targets,
}

impl Soft {
    fn write(&mut self, batch: u64, until: Until) -> Result<Duration> {
        if until == Until::InPlace {
            return clock::time(|| {
                for _ in 0..batch {
                    let at = self.commit()?;
                    self.store(at)?;
                }
                Ok(())
            });
        }
        let (mut left, mut time) = (batch, Duration::ZERO);
        while left > 0 {
            let together = self.targets.together().min(left);
            let mut committed = [0; TOGETHER_MAX as usize];
            let committed = &mut committed[..together as usize];
            time += clock::time(|| {
                for at in &mut *committed {
                    *at = self.commit()?;
                }
                Ok(())
            })?;
            for at in committed {
                self.store(*at)?;
            }
            left -= together;
        }
        Ok(time)
    }

    /// Returns where the bytes belong.
    fn commit(&mut self) -> Result<u64> {
        let (at, bytes) = (self.targets.next(), self.targets.data.len() as u64);
        self.sequence += 1;
        let slot = self.sequence % SLOTS;
        let _ = self.log.copy_nt(slot * bytes, &self.targets.data)?;
        let _ = self.log.drain()?;
        self.records.put(slot * LINE, &((self.sequence << 16) | (at / bytes)))?;
        let _ = self.records.persist(slot * LINE, 8)?;
        Ok(at)
    }

    fn store(&mut self, at: u64) -> Result<()> {
        let _ = self.area.copy_nt(at, &self.targets.data)?;
        let _ = self.area.drain()?;
        Ok(())
    }
}

/// A file of an array.
struct Pages {
    array: Array,
    file: File,
    targets: Targets,
}

impl Pages {
    fn atomic(&mut self, batch: u64) -> Result<Duration> {
        clock::time(|| {
            for _ in 0..batch {
                let at = self.targets.next();
                self.array.atomic_write(&self.file, at, &self.targets.data)?;
            }
            Ok(())
        })
    }

    /// Whether an atomic write goes to its place at once.
    fn takes_whole(&mut self) -> Result<bool> {
        self.atomic(1)?;
        Ok(self.array.status().last == 0)
    }

    fn commit(&mut self, batch: u64, until: Until) -> Result<Duration> {
        let (mut left, mut time) = (batch, Duration::ZERO);
        while left > 0 {
            let together = self.targets.together().min(left);
            let mut watch = clock::Stopwatch::start();
            let mut committed: Vec<Committed<'_>> = Vec::with_capacity(together as usize);
            for _ in 0..together {
                let at = self.targets.next();
                let mut tx = self.array.begin()?;
                tx.log_write(&self.file, at, &self.targets.data)?;
                let durable = tx.commit()?;
                if until == Until::Durable {
                    committed.push(durable);
                }
            }
            time += watch.lap();
            left -= together;
        }
        Ok(time)
    }
}
