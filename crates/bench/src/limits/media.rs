//! Barriers, flushes and copies of a pool. Every side has an area of its own, so that none warms another's lines.

use std::path::Path;

use pmem::{Area, LINE, Pool};

use super::processor::in_parallel;
use super::row;
use crate::{Result, Row, Side, clock};

/// Bytes of one record.
const RECORD_BYTES: [usize; 4] = [64, 256, 1024, 4096];
/// Lines flushed before one drain.
const FLUSHED_LINES: [u64; 5] = [1, 2, 4, 8, 16];
/// Bytes streamed before one drain.
const STREAM_BYTES: usize = 1 << 20;
/// Lines picked at random before one drain.
const RANDOM_LINES: u64 = 16;
/// Threads whose drains may share a sync.
const SHARING: usize = 4;

/// Bytes of a side's area: a few records, so that lines written again were written a while ago.
pub(super) const AREA_BYTES: u64 = 1 << 20;
/// Bytes of an area larger than the caches close to a core.
const WIDE_BYTES: u64 = 32 << 20;

/// Hands out areas of one pool.
struct Areas<'a> {
    pool: &'a Pool,
    dir: String,
    made: usize,
}

impl<'a> Areas<'a> {
    fn new(pool: &'a Pool, dir: &Path) -> Self {
        Self { pool, dir: dir.display().to_string(), made: 0 }
    }

    /// An area whose pages are all present.
    fn area(&mut self, bytes: u64) -> Result<Area> {
        self.made += 1;
        let mut area = self.pool.add_region(&format!("side-{}", self.made), bytes)?.into_area()?;
        let _ = area.clear()?;
        let _ = area.drain()?;
        Ok(area)
    }

    fn row(&self, op: &str) -> Row {
        row(op).param("dir", self.dir.clone())
    }
}

/// What ordinary loads and stores on persistent or emulated memory cost.
///
/// # Errors
/// Those of the pool.
pub fn memory_sides(pool: &Pool, dir: &Path) -> Result<Vec<Side<'static>>> {
    let mut areas = Areas::new(pool, dir);
    let mut sides = vec![drain_alone(&mut areas)?];
    for bytes in RECORD_BYTES {
        sides.push(persist(&mut areas, bytes)?);
        sides.push(copy_nt(&mut areas, "copy_nt+drain", bytes, AREA_BYTES)?);
    }
    for lines in FLUSHED_LINES {
        sides.push(flush_lines(&mut areas, lines)?);
    }
    sides.push(copy_nt(&mut areas, "stream", STREAM_BYTES, WIDE_BYTES)?);
    sides.push(flush_random(&mut areas)?);
    Ok(sides)
}

/// What a file costs: one sync, alone and shared.
///
/// # Errors
/// Those of the pool.
pub fn file_sides(pool: &Pool, dir: &Path) -> Result<Vec<Side<'static>>> {
    let mut areas = Areas::new(pool, dir);
    let mut sides = vec![drain_alone(&mut areas)?];
    for bytes in RECORD_BYTES {
        sides.push(persist(&mut areas, bytes)?);
    }
    sides.push(persist_shared(&mut areas, 1)?);
    sides.push(persist_shared(&mut areas, SHARING)?);
    sides.push(copy_nt(&mut areas, "stream", STREAM_BYTES, WIDE_BYTES)?);
    Ok(sides)
}

/// A drain with nothing to wait for.
fn drain_alone(areas: &mut Areas<'_>) -> Result<Side<'static>> {
    let area = areas.area(AREA_BYTES)?;
    let work = move |batch| {
        clock::time(|| {
            for _ in 0..batch {
                let _ = area.drain()?;
            }
            Ok(())
        })
    };
    Ok(Side::new(areas.row("drain"), work).counted(areas.pool))
}

/// One record after the other: stored, flushed, drained.
fn persist(areas: &mut Areas<'_>, bytes: usize) -> Result<Side<'static>> {
    let mut area = areas.area(AREA_BYTES)?;
    let mut records = Walk::new(bytes, AREA_BYTES);
    let work = move |batch| clock::time(|| persist_records(&mut area, &mut records, batch));
    let row = areas.row("store+flush+drain").param("bytes", bytes);
    Ok(Side::new(row, work).op_bytes(bytes as u64).counted(areas.pool))
}

/// As [`persist`] with records of one line, by several threads at once, each in an area of its own.
fn persist_shared(areas: &mut Areas<'_>, threads: usize) -> Result<Side<'static>> {
    let mut shares = Vec::new();
    for _ in 0..threads {
        shares.push((areas.area(AREA_BYTES)?, Walk::new(LINE as usize, AREA_BYTES)));
    }
    let work = move |batch: u64| {
        let share = batch.div_ceil(threads as u64);
        let work = shares.iter_mut().map(|(area, records)| move || persist_records(area, records, share));
        in_parallel(work.collect())
    };
    let row = areas.row("shared store+flush+drain").param("bytes", LINE).threads(threads);
    Ok(Side::new(row, work).op_bytes(LINE).counted(areas.pool))
}

fn persist_records(area: &mut Area, records: &mut Walk, count: u64) -> Result<()> {
    for i in 0..count {
        let at = records.next();
        area.bytes_mut(at, records.step)?.fill(i as u8);
        let _ = area.persist(at, records.step as u64)?;
    }
    Ok(())
}

/// One record after the other, past the cache where that is faster, each drained.
fn copy_nt(areas: &mut Areas<'_>, op: &str, bytes: usize, area_bytes: u64) -> Result<Side<'static>> {
    let mut area = areas.area(area_bytes)?;
    let mut records = Walk::new(bytes, area_bytes);
    let data = vec![0xa5; bytes];
    let work = move |batch| {
        clock::time(|| {
            for _ in 0..batch {
                let _ = area.copy_nt(records.next(), &data)?;
                let _ = area.drain()?;
            }
            Ok(())
        })
    };
    let row = areas.row(op).param("bytes", bytes);
    Ok(Side::new(row, work).op_bytes(bytes as u64).counted(areas.pool))
}

/// One word stored in each of `lines` lines, all flushed, one drain.
fn flush_lines(areas: &mut Areas<'_>, lines: u64) -> Result<Side<'static>> {
    let mut area = areas.area(AREA_BYTES)?;
    let bytes = lines * LINE;
    let mut groups = Walk::new(bytes as usize, AREA_BYTES);
    let work = move |batch| {
        clock::time(|| {
            for i in 0..batch {
                let at = groups.next();
                for line in 0..lines {
                    area.put(at + line * LINE, &i)?;
                }
                let _ = area.persist(at, bytes)?;
            }
            Ok(())
        })
    };
    Ok(Side::new(areas.row("flush lines").param("lines", lines), work).counted(areas.pool))
}

/// One operation is one line anywhere; a drain after every few of them.
fn flush_random(areas: &mut Areas<'_>) -> Result<Side<'static>> {
    let mut area = areas.area(WIDE_BYTES)?;
    let lines = WIDE_BYTES / LINE;
    let mut state = 1_u64;
    let work = move |batch: u64| {
        // Whole groups only, so that the counted cost is the same for any batch.
        let groups = batch.div_ceil(RANDOM_LINES);
        let time = clock::time(|| {
            for _ in 0..groups {
                for _ in 0..RANDOM_LINES {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let at = ((state >> 33) % lines) * LINE;
                    area.put(at, &state)?;
                    let _ = area.flush(at, LINE)?;
                }
                let _ = area.drain()?;
            }
            Ok(())
        })?;
        Ok(time.mul_f64(batch as f64 / (groups * RANDOM_LINES) as f64))
    };
    let row = areas.row("flush random lines").param("lines", RANDOM_LINES);
    Ok(Side::new(row, work).counted(areas.pool))
}

/// Offsets `0, step, 2 × step, …` below `end`, and again from 0.
struct Walk {
    step: usize,
    end: u64,
    at: u64,
}

impl Walk {
    fn new(step: usize, end: u64) -> Self {
        Self { step, end, at: 0 }
    }

    fn next(&mut self) -> u64 {
        let at = self.at;
        self.at += self.step as u64;
        if self.at + self.step as u64 > self.end {
            self.at = 0;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use pmem::{DomainChoice, Options};

    use super::*;
    use crate::{Plan, run};

    #[test]
    fn walk_stays_inside() {
        let mut walk = Walk::new(96, 300);
        let seen: Vec<u64> = (0..5).map(|_| walk.next()).collect();
        assert_eq!(seen, [0, 96, 192, 0, 96]);
    }

    #[test]
    fn a_file_pool_has_its_own_limits() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().size(AREA_BYTES).domain(DomainChoice::File);
        let pool = options.create(dir.path().join("limits")).unwrap();
        let plan = Plan { batch_time: std::time::Duration::from_micros(50), ..Plan::quick() };
        let rows = run(&plan, file_sides(&pool, dir.path()).unwrap()).unwrap();
        let shared = rows.iter().find(|row| row.threads == SHARING).unwrap();
        assert!(shared.barriers_per_op >= Some(1.0), "each thread waits for its own: {shared:?}");
        let single = rows.iter().find(|row| row.params["op"] == "store+flush+drain").unwrap();
        assert_eq!(single.barriers_per_op, Some(1.0));
    }
}
