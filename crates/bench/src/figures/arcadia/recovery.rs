//! 7(a): the log is opened, and a function that does nothing called for each record.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use super::row;
use crate::contest::folder;
use crate::experiments::log_append::appended;
use crate::figures::{Setting, Shown};
use crate::log_sides::{Appender, Flex, LogSide as _, Ours, Policy, options};
use crate::table::{pivot, scaled};
use crate::workload::Values;
use crate::{Error, Result, Row, Side, Watch, clock, run_watched};

const RECORD: usize = 1024;
/// Bytes that a log has room for beside its records, in parts of them: headers, and what does not fit.
const SPARE: u64 = 4;

/// Recovers what is at the path, and counts the records.
type Recover = Box<dyn Fn() -> Result<u64>>;

pub(super) fn recovery(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let sizes = setting.cases(&[16_u64 << 20, 64 << 20, 256 << 20], &[2 << 20, 8 << 20]);
    let room = sizes.iter().max().map_or(0, |largest| largest + largest / SPARE);
    watch.begin("figure 7a", (sizes.len() * setting.plan.rounds()) as u64);
    let mut rows = Vec::new();
    for live in sizes {
        let records = live / RECORD as u64;
        let folder = folder(&setting.dir)?;
        let (mut sides, mut missing) = (Vec::new(), Vec::new());
        for who in [Appender::Bare, super::OURS, Appender::Flex, Appender::Pmemlog] {
            let row = appended(&row("7a"), who, 1).param("bytes", RECORD).param("live", live).param("room", room);
            match filled(who, folder.path(), room, records)? {
                Ok(recover) => sides.push(side(row, recover, records).op_bytes(live)),
                Err(why) => missing.push(row.missing(&why)),
            }
        }
        rows.extend(run_watched(&setting.plan, sides, Some(0), watch)?);
        rows.extend(missing);
    }
    Ok(Shown::new(text(&rows), rows))
}

fn text(rows: &[Row]) -> String {
    let cell = |row: &Row| {
        let ms = row.ns_per_op.map_or(0.0, |ns| ns.median / 1e6);
        format!("{ms:.2} ({}B/s)", scaled(row.bytes_per_s.unwrap_or(0.0)))
    };
    let mib = |row: &Row, name| row.params.get(name).and_then(|bytes| bytes.as_u64()).unwrap_or(0) >> 20;
    let line = |row: &Row| format!("{} of {}", mib(row, "live"), mib(row, "room"));
    let table = pivot(rows, "ms, live MiB", line, |row| row.engine.clone(), cell);
    format!(
        "{table}\nbare: the live bytes mapped and checksummed, without looking for records; records of {RECORD} bytes"
    )
}

fn side(row: Row, recover: Recover, records: u64) -> Side<'static> {
    let who = row.engine.clone();
    Side::new(row, move |batch| {
        let mut time = std::time::Duration::ZERO;
        for _ in 0..batch {
            let (found, took) = clock::timed(&recover);
            let found = found?;
            if found != records {
                let what = format!("recovered {found} records of {records}");
                return Err(Error::Wrong { who: who.clone(), what });
            }
            time += took;
        }
        Ok(time)
    })
}

/// Writes the records and leaves the log as a crash would, as far as a process can; returns how it is recovered.
fn filled(who: Appender, dir: &Path, room: u64, records: u64) -> Result<Result<Recover, String>> {
    let path = dir.join(who.name());
    let values = Values::new(RECORD, 1);
    let value = |number| values.get(number, RECORD as u32);
    Ok(Ok(match who {
        Appender::Log(_) => {
            let log = Ours::create(&path, room, Policy::Group(256), 1)?;
            (0..records).try_for_each(|number| log.append(value(number)))?;
            log.log().pool().abandon(); // and it is not closed when it goes
            drop(log);
            Box::new(move || recover_ours(&path, room))
        }
        Appender::Flex => {
            let log = Flex::create(&path, room)?;
            let mut writer = log.writer(0)?;
            (0..records).try_for_each(|number| writer.append(value(number)))?;
            Box::new(move || {
                let mut count = 0;
                Flex::recover(&path, |payload| count += u64::from(!black_box(payload).is_empty()))?;
                Ok(count)
            })
        }
        Appender::Pmemlog => return pmemlog(path, room, records),
        _ => {
            let pool = pmem::Options::new().size(1 << 20).create(&path)?;
            let mut area = pool.add_region("bare", records * RECORD as u64)?.into_area()?;
            for number in 0..records {
                let _ = area.copy_nt(number * RECORD as u64, value(number))?;
            }
            let _ = area.drain()?;
            Box::new(move || {
                let area = pmem::Options::new().open(&path)?.region("bare")?.into_area()?;
                let each =
                    |number| Ok::<_, Error>(black_box(pmem::crc32c(&[area.bytes(number * RECORD as u64, RECORD)?])));
                (0..records).try_for_each(|number| each(number).map(|_| ()))?;
                Ok(records)
            })
        }
    }))
}

fn recover_ours(path: &Path, room: u64) -> Result<u64> {
    let (log, _) = options(room, Policy::Sync, 1).open(path)?;
    log.pool().abandon(); // the next one recovers it, too
    let (mut records, mut count) = (log.iter(), 0);
    while let Some(record) = records.next()? {
        count += u64::from(!black_box(record.payload).is_empty());
    }
    Ok(count)
}

#[cfg(feature = "peers")]
fn pmemlog(path: PathBuf, room: u64, records: u64) -> Result<Result<Recover, String>> {
    use peers::Pmemlog;
    let values = Values::new(RECORD, 1);
    let log = Pmemlog::create(&path, room as usize)?;
    for number in 0..records {
        log.append(values.get(number, RECORD as u32))?;
    }
    log.close();
    Ok(Ok(Box::new(move || {
        let mut count = 0;
        Pmemlog::open(&path)?.walk(RECORD, |payload| {
            count += u64::from(!black_box(payload).is_empty());
            true
        });
        Ok(count)
    })))
}

#[cfg(not(feature = "peers"))]
fn pmemlog(_: PathBuf, _: u64, _: u64) -> Result<Result<Recover, String>> {
    Ok(Err(crate::engines::NOT_COMPILED.into()))
}
