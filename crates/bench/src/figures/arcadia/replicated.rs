//! Figures of a log with copies elsewhere: 6(a), 6(c), 6(d), 7(b), 9.

use log::FlushOrder;

use super::{PAPER, row};
use crate::experiments::log_replicate::{ORDERS, verdicts};
use crate::experiments::{LogReplicate, LogTakeover, Placement, RocksdbWal, Transport};
use crate::figures::{Setting, Shown, param};
use crate::log_sides::Way;
use crate::plot::{Line, Lines};
use crate::table::{number, pivot, scaled};
use crate::{Result, Row, Watch};

/// The way in which all of them append, but for what says otherwise.
const TRANSPORT: Transport = Transport::Tcp;
const ONE_MACHINE: &str = "all copies are on this machine, over the loopback interface, and share its processors";

fn setup(setting: &Setting, number: &str) -> LogReplicate {
    LogReplicate {
        placements: vec![Placement::Both],
        transports: vec![TRANSPORT],
        bytes: setting.cases(&[64, 256, 1024, 4096], &[64, 1024]),
        room: if setting.quick { 4 << 20 } else { 16 << 20 },
        dir: setting.dir.clone(),
        row: row(number),
        ..LogReplicate::here(setting.plan)
    }
}

/// 6(a).
pub(super) fn orders(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let orders: Vec<FlushOrder> = ORDERS.iter().map(|(_, order)| *order).collect();
    let what = LogReplicate { orders, backups: vec![1], ways: vec![Way::Sync], ..setup(setting, "6a") };
    let rows = what.measure(watch)?;
    let order = |row: &Row| match param(row, "order").as_str() {
        "beside" => "parallel".to_owned(),
        "after" => "remote first".to_owned(),
        _ => "local first".to_owned(),
    };
    let cell = |row: &Row| {
        let times = row.ratio.map_or_else(String::new, |ratio| format!(" ({:.2})", 1.0 / ratio.median.max(1e-9)));
        format!("{}, p99 {}{times}", micros(row), row.p99_ns.map_or_else(String::new, |ns| number(ns / 1e3)))
    };
    let table = pivot(&rows, "µs, bytes", |row| param(row, "bytes"), order, cell);
    let lines = lines(&rows, "µs of an append by flush order", "bytes", "bytes", order, |row| {
        row.ns_per_op.map(|ns| ns.median / 1e3)
    });
    let text = format!(
        "{table}\none backup; in brackets: how many times as long as parallel, in the same rounds; {ONE_MACHINE}"
    );
    Ok(Shown { text, rows, lines: Some(lines) })
}

/// 6(c).
pub(super) fn misses(_: &Setting, _: &dyn Watch) -> Result<Shown> {
    let text = "not shown: no hardware counters are read here. TCP copies what it sends while it is sent, so that no network card reads it \
                later: what the paper's misses come from is not there.";
    Ok(Shown::new(text.into(), Vec::new()))
}

/// 6(d).
pub(super) fn backups(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let rows = setting.once(&format!("{PAPER} 6d"), || setup(setting, "6d").measure(watch))?;
    let who = |row: &Row| format!("{} {}", param(row, "backups"), param(row, "policy"));
    let bytes = |row: &Row| param(row, "bytes");
    let rates = pivot(&rows, "records/s, backups", who, bytes, |row| scaled(row.ops_per_s));
    let waits: Vec<Row> = rows.iter().filter(|row| param(row, "policy") == "sync").cloned().collect();
    let tail = |row: &Row| {
        let quantile = |ns: Option<f64>| ns.map_or_else(String::new, |ns| number(ns / 1e3));
        format!("{} / {}", quantile(row.p50_ns), quantile(row.p99_ns))
    };
    let times = pivot(&waits, "µs p50 / p99, backups", |row| param(row, "backups"), bytes, tail);
    let lines = lines(
        &rows,
        "records/s by backups, 1 KiB",
        "backups",
        "backups",
        |row| param(row, "policy"),
        |row| (param(row, "bytes") == "1024").then_some(row.ops_per_s),
    );
    let asked = verdicts(&rows).join("\n");
    Ok(Shown { text: format!("{rates}\n{times}\n{asked}\n{ONE_MACHINE}"), rows, lines: Some(lines) })
}

/// 7(b).
pub(super) fn recovery(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let live = setting.cases(&[16_u64 << 20, 64 << 20, 256 << 20], &[2 << 20, 8 << 20]);
    let what = LogTakeover { live, dir: setting.dir.clone(), row: row("7b"), ..LogTakeover::here(setting.plan) };
    let rows = what.measure(watch)?;
    let ms = |row: &Row| row.ns_per_op.map(|ns| ns.median / 1e6);
    let mib = |row: &Row| row.params.get("live").and_then(serde_json::Value::as_u64).unwrap_or(0) >> 20;
    let own = |row: &Row| match param(row, "own_copy").as_str() {
        "alone" => "no backups".to_owned(),
        "there" => "own copy there".to_owned(),
        "lost" => "own copy lost".to_owned(),
        _ => "never an own copy".to_owned(),
    };
    let cell = |row: &Row| {
        let rate = scaled(row.bytes_per_s.unwrap_or(0.0));
        format!("{} ({rate}B/s)", ms(row).map_or_else(String::new, number))
    };
    let table = pivot(&rows, "ms, live MiB", |row| mib(row).to_string(), own, cell);
    let mut lines = lines(&rows, "ms to open and read", "live MiB", "live", own, ms);
    for point in lines.lines.iter_mut().flat_map(|line| &mut line.points) {
        point.0 /= f64::from(1 << 20);
    }
    let text = format!(
        "{table}\ntwo backups, any one copy may be lost, since a log of one backup cannot be led without it; a lost copy is filled from a backup; {ONE_MACHINE}"
    );
    Ok(Shown { text, rows, lines: Some(lines) })
}

/// 9.
pub(super) fn rocksdb(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let mut what = RocksdbWal {
        value_bytes: setting.cases(&[128, 256, 512, 1024], &[128, 1024]),
        threads: vec![1],
        dir: setting.dir.clone(),
        row: row("9"),
        ..RocksdbWal::here(setting.plan)
    };
    if setting.quick {
        (what.log_bytes, what.warm_bytes) = (64 << 20, 8 << 20);
    }
    let rows = what.measure(watch)?;
    let case = |row: &Row| format!("{} {}", param(row, "order"), param(row, "value_bytes"));
    let log = |row: &Row| param(row, "log");
    let cell = |row: &Row| match (&row.missing, row.ratio) {
        (Some(_), _) => "not in this build".to_owned(),
        (None, Some(ratio)) => format!("{} ({:.2})", micros(row), ratio.median),
        (None, None) => micros(row),
    };
    let table = pivot(&rows, "µs of a put, bytes", case, log, cell);
    let missing = if cfg!(feature = "peers") { "" } else { "; make setup-peers, then build with --features peers" };
    let text = format!(
        "{table}\none thread, each put durable; in brackets: how many times as fast as RocksDB's own log (a file that grows), in the same rounds; recycled: its own, in files used again; \
         cairn+backup: a copy in another process, over tcp; {ONE_MACHINE}{missing}"
    );
    Ok(Shown { text, rows, lines: None })
}

fn micros(row: &Row) -> String {
    row.ns_per_op.map_or_else(String::new, |ns| number(ns.median / 1e3))
}

/// A line for each of `whose`, over a parameter.
fn lines(
    rows: &[Row],
    title: &str,
    across: &str,
    over: &str,
    whose: impl Fn(&Row) -> String,
    value: impl Fn(&Row) -> Option<f64>,
) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let at = row.params.get(over).and_then(serde_json::Value::as_f64);
        let Some(point) = at.zip(value(row)) else { continue };
        let name = whose(row);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    Lines { title: title.to_owned(), across: across.to_owned(), lines }
}
