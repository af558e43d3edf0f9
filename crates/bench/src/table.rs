//! Rows for people.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, Table};
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

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
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
    let mark = if ns.max > ns.min * WIDE { " wide" } else { "" };
    format!("{}..{}{mark}", number(ns.min), number(ns.max))
}

/// Bytes where the operation has a size, else operations.
fn speed(row: &Row) -> String {
    match row.bytes_per_s {
        Some(bytes) => format!("{}B", scaled(bytes)),
        None => scaled(row.ops_per_s),
    }
}

fn scaled(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{} {unit}", number(value))
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn count(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
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
}
