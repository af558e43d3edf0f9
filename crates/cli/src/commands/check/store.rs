//! What `cairn check` says of a store of keys and values, and of a log.

use std::path::Path;

use log::Error as LogError;
use pmem::{Pool, PoolInfo};

use super::super::log::doubt;
use super::CheckJson;
use crate::failure::{Failure, is_damage_of_log, is_damage_of_store};
use crate::size;

/// True if there is one.
pub fn is_in(info: &PoolInfo) -> bool {
    info.regions.iter().any(|region| region.kind == kv::REGION_KIND)
}

/// Opens the store as `cairn kv check` does, which recovers it if the pool is open for writing, and holds every record against its checksum. Then it is closed if it is sound.
pub(super) fn look_into(path: &Path, pool: &Pool, report: &mut CheckJson) -> Result<(), Failure> {
    let opened = kv::Options::new().background(false).open_in(pool);
    let looked = opened.and_then(|store| Ok((store.check(|_| ())?, store)));
    let (checked, store) = match looked {
        Ok(looked) => looked,
        Err(error) if is_damage_of_store(&error) => {
            report.finding(format!("store of keys and values: {error}"));
            return Ok(());
        }
        Err(error) => return Err(Failure::kv(path, &error)),
    };
    for problem in &checked.problems {
        report.finding(format!("store of keys and values: {problem}"));
    }
    let untold = checked.count - checked.problems.len() as u64;
    if untold > 0 {
        report.finding(format!("store of keys and values: {untold} more such records"));
    }
    report.checked.push(format!(
        "store of keys and values: {} keys, {}, each record read and whole",
        checked.keys,
        size::human(checked.bytes)
    ));
    match report.sound {
        true => store.close().map_err(|error| Failure::kv(path, &error)),
        false => Ok(()),
    }
}

/// Reads every record of a log, or of a replica of one. A log is recovered if the pool is open for writing, and closed. True if nothing is left for others to recover.
pub(super) fn look_into_log(
    path: &Path,
    pool: &Pool,
    name: &str,
    report: &mut CheckJson,
) -> Result<(Option<String>, bool), Failure> {
    let looked = log::Options::new().idle(None).open_in(pool, name).and_then(|(log, found)| {
        log.close()?;
        Ok(found)
    });
    let error = match looked {
        Ok(found) => {
            if let Some(doubt) = doubt(&found) {
                report.notes.push(format!("{name:?}: {doubt}"));
            }
            let log::Recovered { records, bytes, head, next, .. } = found;
            let what = format!("{records} records of {bytes} bytes, numbers {head} to {next}, not included");
            return Ok((Some(what), true));
        }
        // It is its leader that recovers it.
        Err(LogError::IsReplica { .. }) => match log::check_replica(pool, name) {
            Ok(found) => return Ok((Some(copy(name, found, report)), false)),
            Err(error) => error,
        },
        Err(error) => error,
    };
    if !is_damage_of_log(&error) && !matches!(error, LogError::NotALog { .. }) {
        return Err(Failure::log(path, &error));
    }
    report.finding(format!("log {name:?}: {error}"));
    Ok((None, false))
}

/// What a replica has.
fn copy(name: &str, found: Option<log::CheckedReplica>, report: &mut CheckJson) -> String {
    let Some(found) = found else { return "a new replica, of no log yet".to_owned() };
    if found.in_doubt {
        let next = found.next;
        report.notes.push(format!(
            "{name:?}: record {next} is not whole: the log's leader was writing it, or it was one of the last and is damaged; the other replicas tell when the log is opened"
        ));
    }
    let log::ReplicaStatus { id, log, head, .. } = found.status;
    let (records, bytes, next) = (found.records, found.bytes, found.next);
    format!(
        "replica {id:x} of log {log:x}: {records} records of {bytes} bytes, numbers {head} to {next}, not included; `cairn log replicas` asks all its replicas"
    )
}
