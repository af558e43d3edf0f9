//! Figures that are appends of one kind or another: 5(a), 5(c), 5(d), 8(a).

use super::{OURS, row};
use crate::experiments::LogAppend;
use crate::figures::{Setting, Shown, param};
use crate::log_sides::{Appender, Policy};
use crate::table::{named, number, pivot, scaled};
use crate::{Result, Row, Watch};

/// All of them, ours held against each.
fn everybody() -> Vec<Appender> {
    [Appender::Bare, OURS].into_iter().chain(Appender::OTHERS).collect()
}

fn setup(setting: &Setting, number: &str) -> LogAppend {
    LogAppend {
        who: everybody(),
        baseline: Some(OURS),
        dir: setting.dir.clone(),
        row: row(number),
        room: if setting.quick { 16 << 20 } else { 64 << 20 },
        ..LogAppend::here(setting.plan)
    }
}

/// 5(a).
pub(super) fn latency(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let sizes = setting.cases(&[64, 128, 256, 512, 1024, 2048, 4096], &[64, 1024, 4096]);
    let what = LogAppend { bytes: sizes, threads: vec![1], ..setup(setting, "5a") };
    let rows = what.measure(watch)?;
    let table = pivot(&rows, "ns, bytes", |row| param(row, "bytes"), named, times_of_ours);
    Ok(Shown::new(format!("{table}\nin brackets: how many times as long as log sync, in the same rounds"), rows))
}

/// 5(c).
pub(super) fn threads(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let what = LogAppend { bytes: vec![1024], threads: counts(setting), ..setup(setting, "5c") };
    let rows = what.measure(watch)?;
    Ok(Shown::new(pivot(&rows, "records/s, threads", |row| row.threads.to_string(), named, rate), rows))
}

/// 5(d).
pub(super) fn tenants(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let (bytes, tenants) = if setting.quick { (vec![64, 1024], 4) } else { (vec![64, 128, 512, 1024, 2048, 4096], 16) };
    let room = if setting.quick { 16 << 20 } else { 128 << 20 };
    let what = LogAppend { bytes, threads: vec![tenants], tenants: true, room, ..setup(setting, "5d") };
    let rows = what.measure(watch)?;
    let cell = |row: &Row| row.bytes_per_s.map_or_else(String::new, |bytes| format!("{}B", scaled(bytes)));
    let table = pivot(&rows, "bytes/s, bytes", |row| param(row, "bytes"), named, cell);
    Ok(Shown::new(format!("{table}\n{tenants} tenants"), rows))
}

/// 8(a).
pub(super) fn policies(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let policies = [Policy::Sync, Policy::Frequency(8), Policy::Frequency(16), Policy::Group(128), Policy::Group(256)];
    let who = policies.map(Appender::Log).to_vec();
    let what = LogAppend { who, bytes: vec![64], threads: counts(setting), ..setup(setting, "8a") };
    let rows = what.measure(watch)?;
    let rates = pivot(&rows, "records/s, threads", |row| row.threads.to_string(), named, rate);
    let windows = pivot(&rows, "window, threads", |row| row.threads.to_string(), named, |row| param(row, "window"));
    Ok(Shown::new(format!("{rates}\n{windows}\nrecords of 64 bytes"), rows))
}

/// More threads than cores take turns on them.
pub(super) fn counts(setting: &Setting) -> Vec<usize> {
    setting.cases(&[1, 2, 4, 8, 16], &[1, 2, 4])
}

pub(super) fn rate(row: &Row) -> String {
    scaled(row.ops_per_s)
}

fn times_of_ours(row: &Row) -> String {
    let time = row.ns_per_op.map_or_else(String::new, |ns| number(ns.median));
    let times = row.ratio.map_or_else(String::new, |ratio| format!(" ({:.2})", 1.0 / ratio.median.max(1e-9)));
    time + &times
}
