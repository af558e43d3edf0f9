//! Rows for people.

use std::collections::BTreeSet;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use serde_json::Value;

use crate::{Row, Spread};

/// A round this much slower than the fastest of its side, as a ratio, is marked: the median then says little.
const WIDE: f64 = 1.5;

/// One line per row: what, where, how long with its spread, how fast, at what counted cost.
#[must_use]
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(vec!["what", "domain", "threads", "ns/op", "min..max", "per second", "barriers", "lines"]);
    for row in rows {
        let time = row.ns_per_op;
        let cells = [
            Cell::new(what(row)),
            Cell::new(row.domain.as_deref().unwrap_or("-")),
            right(row.threads.to_string()),
            right(time.map_or_else(String::new, |ns| number(ns.median))),
            right(time.map_or_else(String::new, spread)),
            right(speed(row)),
            right(row.barriers_per_op.map_or_else(String::new, count)),
            right(row.lines_per_op.map_or_else(String::new, count)),
        ];
        table.add_row(cells);
    }
    table
}

/// Only the header is underlined: the lines of a group stand together.
pub(crate) const GROUPS: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// One line per contestant, in groups of those that were measured together: how long, how many times as fast as the baseline with the
/// spread of that, latencies of sampled operations, and at what counted cost. Above it what all rows have in common, below it why some
/// have no numbers.
#[must_use]
pub fn comparison(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(GROUPS);
    let baseline = rows.iter().find_map(|row| row.baseline.as_deref()).unwrap_or("-");
    let shown = Columns {
        limit: rows.iter().any(|row| row.of_limit.is_some()),
        aborted: rows.iter().any(|row| row.aborts > 0),
        syncs: rows.iter().any(|row| row.syncs_per_op.is_some_and(|syncs| syncs > 0.0)),
        line: rows.iter().any(|row| row.line_ns.is_some()),
        space: rows.iter().any(|row| row.of_live.is_some()),
        cpu: rows.iter().any(|row| row.cpu_ns_per_op.is_some()),
    };
    table.set_header(header(baseline, shown));
    let (common, varying) = split(rows);
    let (mut last, mut notes) = (None, Vec::new());
    for row in rows {
        let group = group(row);
        let first = last.as_ref() != Some(&group);
        if first && last.is_some() {
            table.add_row(vec![""]);
        }
        last = Some(group);
        let case = if first { words(row, &varying) } else { String::new() };
        let mut cells = vec![Cell::new(case), Cell::new(contestant(row))];
        match &row.missing {
            Some(why) => {
                cells.push(right("missing"));
                let note = format!("{} is missing: {why}", row.engine);
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            None => cells.extend(numbers(row, shown)),
        }
        table.add_row(cells);
    }
    let head = rows.first().map_or_else(String::new, |row| format!("{}: {}", row.experiment, words(row, &common)));
    [head, table.trim_fmt()].into_iter().chain(notes).collect::<Vec<_>>().join("\n")
}

/// Those that are not always there.
#[derive(Clone, Copy)]
struct Columns {
    limit: bool,
    aborted: bool,
    syncs: bool,
    line: bool,
    space: bool,
    cpu: bool,
}

fn header(baseline: &str, shown: Columns) -> Vec<Cell> {
    let (ratio, of_cpu) = (&*format!("x {baseline}"), &*format!("CPU of {baseline}'s"));
    let cpu = if shown.cpu { &["CPU ns/op", of_cpu, "min..max"][..] } else { &[] };
    let times = ["ns/op", "min..max", ratio, "min..max"];
    let limit = shown.limit.then_some("of bare");
    let rest = ["per s", "p50", "p99", "p99.9", "max", "barriers", "lines", "bytes", "aborts"];
    let more = [
        shown.aborted.then_some("of all"),
        shown.syncs.then_some("syncs"),
        shown.line.then_some("line ns"),
        shown.space.then_some("x live"),
        shown.space.then_some("DRAM/key"),
    ];
    let more = more.into_iter().flatten();
    let numbers = times.into_iter().chain(cpu.iter().copied()).chain(limit).chain(rest).chain(more).map(right);
    [Cell::new(""), Cell::new("")].into_iter().chain(numbers).collect()
}

/// Parameters that are the same in all rows, and the others.
fn split(rows: &[Row]) -> (Vec<String>, Vec<String>) {
    let names: BTreeSet<&str> = rows.iter().flat_map(parameters).map(|(name, _)| name).collect();
    let names = names.into_iter().filter(|name| !OF_CONTESTANT.contains(name));
    let value = |row: &Row, name: &str| parameters(row).find(|(other, _)| *other == name).map(|(_, value)| value);
    let same = |name: &&str| rows.windows(2).all(|pair| value(&pair[0], name) == value(&pair[1], name));
    let (common, varying): (Vec<&str>, Vec<&str>) = names.partition(same);
    (common.into_iter().map(Into::into).collect(), varying.into_iter().map(Into::into).collect())
}

/// All that tells groups of an experiment apart.
fn parameters(row: &Row) -> impl Iterator<Item = (&str, String)> {
    let structure = row.structure.iter().map(|name| ("structure", name.clone()));
    let params = row.params.iter().map(|(name, value)| (name.as_str(), plain(value)));
    structure.chain(params).chain([("threads", row.threads.to_string())])
}

/// Those of its parameters, `name=value`.
fn words(row: &Row, names: &[String]) -> String {
    let chosen = parameters(row).filter(|(name, _)| names.iter().any(|other| other == name));
    chosen.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn numbers(row: &Row, shown: Columns) -> Vec<Cell> {
    let or_none = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(String::new, show);
    let ratio = |times: Spread| format!("{:.2}..{:.2}{}", times.min, times.max, wide(times));
    let times = [
        row.ns_per_op.map_or_else(String::new, |ns| number(ns.median)),
        row.ns_per_op.map_or_else(String::new, spread),
        row.ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median)),
        row.ratio.map_or_else(String::new, ratio),
    ];
    let cpu = shown.cpu.then(|| {
        [
            row.cpu_ns_per_op.map_or_else(String::new, |ns| number(ns.median)),
            row.cpu_ratio.map_or_else(String::new, |of| format!("{:.2}", of.median)),
            row.cpu_ratio.map_or_else(String::new, ratio),
        ]
    });
    let limit = shown.limit.then(|| row.of_limit.map_or_else(String::new, |times| format!("{:.2}", times.median)));
    let rest = [
        scaled(row.ops_per_s),
        or_none(row.p50_ns, number),
        or_none(row.p99_ns, number),
        or_none(row.p999_ns, number),
        or_none(row.max_ns, number),
        or_none(row.barriers_per_op, count),
        or_none(row.lines_per_op, count),
        or_none(row.media_bytes_per_op, |bytes| format!("{bytes:.0}")),
        row.aborts.to_string(),
    ];
    let aborted = shown.aborted.then(|| or_none(row.abort_rate, |rate| format!("{:.1} %", rate * 100.0)));
    let syncs = shown.syncs.then(|| or_none(row.syncs_per_op, count));
    let line = shown.line.then(|| row.line_ns.map_or_else(String::new, |ns| number(ns.median)));
    let live = shown.space.then(|| or_none(row.of_live, number));
    let dram = shown.space.then(|| or_none(row.dram_per_key, |bytes| format!("{bytes:.0}")));
    let more = [aborted, syncs, line, live, dram].into_iter().flatten();
    times.into_iter().chain(cpu.into_iter().flatten()).chain(limit).chain(rest).chain(more).map(right).collect()
}

/// Parameters that tell contestants apart which were measured together.
pub(crate) const OF_CONTESTANT: [&str; 6] = ["policy", "window", "isolation", "backups", "order", "own_copy"];

/// Which contestant it is: the engine, its policy if that is not what all do, its isolation and its copies if there is a choice, and what that leaves open.
#[must_use]
pub fn contestant(row: &Row) -> String {
    let window = row.params.get("window").and_then(Value::as_u64).filter(|window| *window > 0);
    let window = window.map(|window| format!("(window {window})"));
    [Some(named(row)), window].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// As [`contestant`], without the window.
#[must_use]
pub fn named(row: &Row) -> String {
    let policy = row.params.get("policy").map(plain).filter(|policy| row.engine == "log" || policy != "sync");
    let isolation = row.params.get("isolation").map(plain);
    let backups = row.params.get("backups").map(|backups| match backups.as_u64() {
        Some(1) => "1 backup".to_owned(),
        _ => format!("{} backups", plain(backups)),
    });
    let order = row.params.get("order").map(plain);
    let own = row.params.get("own_copy").map(|own| format!("own copy {}", plain(own)));
    [Some(row.engine.clone()), policy, isolation, backups, order, own]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

/// What rows that were measured together have in common, `name=value`.
#[must_use]
pub fn group(row: &Row) -> String {
    let common = parameters(row).filter(|(name, _)| !OF_CONTESTANT.contains(name));
    common.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn right(text: impl Into<String>) -> Cell {
    Cell::new(text.into()).set_alignment(CellAlignment::Right)
}

/// `engine structure name=value …`, the operation first.
fn what(row: &Row) -> String {
    let mut words = Vec::new();
    if row.engine != "none" {
        words.push(row.engine.clone());
    }
    words.extend(row.structure.clone());
    words.extend(row.params.get("op").map(plain));
    words.extend(
        row.params.iter().filter(|(name, _)| *name != "op").map(|(name, value)| format!("{name}={}", plain(value))),
    );
    words.join(" ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn spread(ns: Spread) -> String {
    format!("{}..{}{}", number(ns.min), number(ns.max), wide(ns))
}

fn wide(spread: Spread) -> &'static str {
    if spread.max > spread.min * WIDE { " wide" } else { "" }
}

/// Bytes where the operation has a size, else operations.
fn speed(row: &Row) -> String {
    match row.bytes_per_s {
        Some(bytes) => format!("{}B", scaled(bytes)),
        None => scaled(row.ops_per_s),
    }
}

pub(crate) fn scaled(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{} {unit}", number(value))
}

/// Three digits that mean something.
pub(crate) fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn count(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A table with a line and a column for each that comes up; those that are missing are named below.
pub(crate) fn pivot(
    rows: &[Row],
    corner: &str,
    line: impl Fn(&Row) -> String,
    column: impl Fn(&Row) -> String,
    cell: impl Fn(&Row) -> String,
) -> String {
    let (mut lines, mut columns, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        for (names, name) in [(&mut lines, line(row)), (&mut columns, column(row))] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let note = row.missing.as_ref().map(|why| format!("{} is missing: {why}", row.engine));
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
    let mut table = plain_table();
    table.set_header([Cell::new(corner)].into_iter().chain(columns.iter().map(right)));
    for name in &lines {
        let cells = columns.iter().map(|wanted| {
            let row = rows.iter().find(|row| line(row) == *name && column(row) == *wanted);
            right(row.filter(|row| row.missing.is_none()).map_or_else(String::new, &cell))
        });
        table.add_row([Cell::new(name)].into_iter().chain(cells));
    }
    [table.trim_fmt()].into_iter().chain(notes).collect::<Vec<_>>().join("\n")
}

/// With neither lines nor columns yet.
pub(crate) fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(GROUPS);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_well() {
        let mut row = Row::new("limits", "none").param("op", "persist").param("bytes", 64);
        row.ns_per_op = Some(Spread { median: 158.4, min: 150.0, max: 310.0 });
        row.bytes_per_s = Some(4.04e8);
        row.barriers_per_op = Some(1.0);
        row.lines_per_op = Some(1.5);
        let text = table(&[row]).to_string();
        let line = text.lines().find(|line| line.contains("persist")).unwrap();
        for part in ["persist bytes=64", "158", "150..310 wide", "404 MB", " 1 ", "1.50"] {
            assert!(line.contains(part), "{part:?} in {line:?}");
        }
    }

    /// The policy says which contestant it is; it is no case of its own.
    #[test]
    fn policies_are_contestants() {
        let row = |engine: &str, policy: &str, window: u64| {
            let row = Row::new("log-append", engine).param("bytes", 64).param("policy", policy);
            Row { of_limit: Spread::of(&[1.75]), ..row.param("window", window) }
        };
        let rows = [row("bare", "sync", 0), row("log", "sync", 0), row("log", "freq:8", 16)];
        assert_eq!(rows.each_ref().map(contestant), ["bare", "log sync", "log freq:8 (window 16)"]);
        assert_eq!(rows.each_ref().map(named), ["bare", "log sync", "log freq:8"]);
        let text = comparison(&rows);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!((lines.len(), lines[0]), (6, "log-append: bytes=64 threads=1"));
        assert!(lines[1].contains("of bare") && lines[5].contains("1.75"), "{text}");
    }

    /// Where the server is a process of its own, what that costs stands beside the time.
    #[test]
    fn cpu_time_is_shown_where_there_is_any() {
        let row = |engine: &str, cpu: Option<f64>, of: f64| Row {
            baseline: Some("redis".into()),
            cpu_ns_per_op: cpu.and_then(|cpu| Spread::of(&[cpu])),
            cpu_ratio: cpu.and_then(|_| Spread::of(&[of, of + 0.01, of + 0.02])),
            ..Row::new("server", engine)
        };
        let text = comparison(&[row("redis", Some(7700.0), 1.0), row("cairn", Some(6160.0), 0.79)]);
        for part in ["CPU ns/op", "CPU of redis's", "7700", "6160", "0.80", "0.79..0.81"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(!comparison(&[row("redis", None, 1.0)]).contains("CPU"));
    }

    #[test]
    fn contestants_stand_together() {
        let mut fast = Row::new("ycsb", "inplace").structure("btree").param("workload", "A").threads(2);
        fast.ns_per_op = Some(Spread { median: 200.0, min: 190.0, max: 210.0 });
        fast.ratio = Some(Spread { median: 2.5, min: 2.25, max: 4.0 });
        fast.baseline = Some("pmemobj".into());
        fast.p99_ns = Some(1234.0);
        fast.aborts = 7;
        let named = |name: &str| Row::new("ycsb", name).structure("btree").threads(2).param("keys", 7);
        let rows = [
            Row { params: named("").param("workload", "A").params, ..fast },
            named("pmemobj").param("workload", "A").missing("no such luck"),
            named("pmemobj").param("workload", "B").missing("no such luck"),
        ];
        let text = comparison(&rows);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "ycsb: structure=btree keys=7 threads=2");
        assert!(lines[1].contains("x pmemobj"), "{text}");
        for part in ["workload=A", "inplace", "200", "2.50", "2.25..4.00 wide", "1234", "7"] {
            assert!(lines[3].contains(part), "{part} in {}", lines[3]);
        }
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[4]), ["pmemobj", "missing"], "the second row of a group does not repeat it");
        assert_eq!((lines[5], words(lines[6])), ("", words("workload=B pmemobj missing")));
        assert_eq!(lines[7..], ["pmemobj is missing: no such luck"], "once");
    }

    #[test]
    fn a_pivot_has_a_cell_for_each_pair() {
        let row = |engine: &str, bytes: u64| Row::new("figures", engine).param("bytes", bytes);
        let rows = [row("log", 64), row("flex", 64).missing("gone"), row("log", 128)];
        let text = pivot(
            &rows,
            "bytes",
            |row| row.params["bytes"].to_string(),
            |row| row.engine.clone(),
            |row| row.params["bytes"].to_string(),
        );
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(words.contains(&vec!["bytes", "log", "flex"]), "{text}");
        assert!(words.contains(&vec!["64", "64"]) && words.contains(&vec!["128", "128"]), "{text}");
        assert_eq!(text.lines().last(), Some("flex is missing: gone"));
    }
}
