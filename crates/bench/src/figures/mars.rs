//! *From ARIES to MARS* (SOSP 2013), section 5: figures 3 to 8, and the table of figure 6.
//!
//! The paper's array is an SSD with loggers of its own; here it is `eaw::array` in a pool, and SoftAtomic is what a program does without it: log, commit record and place, a
//! barrier behind each. Structures are ours, their engines policies of `heap`; software atomicity is undo logging there.

mod memcachedb;
mod swaps;
mod writes;

use heap::Policy;

use super::{Figure, Setting, Shown, param, row};
use crate::contest::Contest;
use crate::engines::Contestant;
use crate::experiments::{Shape, Structures};
use crate::plot::{Line, Lines};
use crate::table::{contestant, pivot, plain_table, scaled};
use crate::{Result, Row, Watch};
use writes::Until;

const PAPER: &str = "mars";

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        number: "3",
        title: "latency of an atomic write of 512 B, until it is durable (C) and until it is in its place (WB)",
        claim: "SoftAtomic waits three times for the device, LogWrite and Commit once less 41 %, AtomicWrite 42 % less \
                again: close to a plain write",
        measure: latency,
    },
    Figure {
        number: "4",
        title: "bytes a second that are written atomically, by size",
        claim: "2 to 3.8 times SoftAtomic; AtomicWrite of less than 4 kB has 92 % of the plain writes' bandwidth",
        measure: bandwidth,
    },
    Figure {
        number: "5",
        title: "bytes a second that go to the medium, log and all, by size",
        claim: "SoftAtomic spends half of the link on its log; the array logs inside, up to 5 GB/s",
        measure: inside,
    },
    Figure {
        number: "6",
        title: "swaps of two records, MARS beside ARIES, by size and threads",
        claim: "3.7 times as fast at 4 kB, 3.1 at 16, 3 at 64; 21 907, 10 352 and 3808 swaps a second by one thread, 144 201, 43 569 and 11 583 by 16; MARS \
                scales, ARIES declines from 8 threads on",
        measure: swaps,
    },
    Figure {
        number: "7a",
        title: "B+tree, half asked and half changed: operations a second, by threads",
        claim: "13 % behind unsafe, on average with the hash table; software atomicity 28 to 46 %",
        measure: |setting, watch| structure(setting, watch, "7a", Shape::BTree),
    },
    Figure {
        number: "7b",
        title: "hash table, half asked and half changed: operations a second, by threads",
        claim: "11 % behind unsafe at 16 threads, software atomicity 46 %",
        measure: |setting, watch| structure(setting, watch, "7b", Shape::HashMap),
    },
    Figure {
        number: "7c",
        title: "six degrees, paths searched and edges changed: operations a second, by threads",
        claim: "21 % behind unsafe: its transactions are longer and change several nodes",
        measure: |setting, watch| structure(setting, watch, "7c", Shape::Graph),
    },
    Figure {
        number: "8",
        title: "a server of memcached's protocol over a hash table, half asked and half set: requests a second, by clients",
        claim: "with 8 clients 41 % behind DRAM and 15 % behind unsafe, 1.7 times software atomicity, 3.8 times Berkeley DB",
        measure: served,
    },
];

fn latency(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let durable = writes::measure(setting, watch, row(PAPER, "3"), &[512], Until::Durable)?;
    let stored = writes::measure(setting, watch, row(PAPER, "3"), &[512], Until::InPlace)?;
    let mut table = plain_table();
    table.set_header(["", "", "C, ns", "times SoftAtomic", "WB, ns", "times SoftAtomic", "barriers"]);
    for row in &stored {
        let is_same = |other: &&Row| (&other.engine, &other.medium) == (&row.engine, &row.medium);
        let early = durable.iter().find(is_same);
        let barriers = row.barriers_per_op.map_or_else(String::new, |barriers| format!("{barriers:.0}"));
        table.add_row([
            row.medium.clone().unwrap_or_default(),
            row.engine.clone(),
            early.map_or_else(String::new, ns),
            early.map_or_else(String::new, times),
            ns(row),
            times(row),
            barriers,
        ]);
    }
    Ok(Shown::new(table.trim_fmt(), durable.into_iter().chain(stored).collect()))
}

fn bandwidth(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let rows = by_size(setting, watch)?;
    let text = pivot(&rows, "MB/s", case, |row| row.engine.clone(), |row| megabytes(row.bytes_per_s));
    let lines = lines("bytes/s", "bytes", &rows, |row| row.bytes_per_s, |row| row.params["bytes"].as_f64());
    Ok(Shown { lines: Some(lines), ..Shown::new(text, rows) })
}

/// Of the same writes. On a disk what the file system and the device make of them is not counted: whole blocks, and its own log.
fn inside(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let rows = by_size(setting, watch)?;
    let rate = |row: &Row| row.media_bytes_per_op.map(|bytes| bytes * row.ops_per_s);
    let cell = |row: &Row| {
        let each = row.write_amplification.map_or_else(String::new, |each| format!(" ({each:.2})"));
        megabytes(rate(row)) + &each
    };
    let text = pivot(&rows, "MB/s (for each byte)", case, |row| row.engine.clone(), cell);
    let lines = lines("bytes/s on the medium", "bytes", &rows, rate, |row| row.params["bytes"].as_f64());
    Ok(Shown { lines: Some(lines), ..Shown::new(text, rows) })
}

/// Measured once for both figures.
fn by_size(setting: &Setting, watch: &dyn Watch) -> Result<Vec<Row>> {
    setting.once("mars 4,5", || {
        let sizes = setting.cases(&[512, 4 << 10, 16 << 10, 64 << 10, 512 << 10], &[512, 16 << 10]);
        writes::measure(setting, watch, row(PAPER, "4,5"), &sizes, Until::InPlace)
    })
}

fn swaps(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let rows = swaps::measure(setting, watch, &row(PAPER, "6"))?;
    let cell = |row: &Row| {
        let ratio = row.ratio.filter(|_| row.engine != "aries");
        scaled(row.ops_per_s)
            + &ratio.map_or_else(String::new, |r| format!(" ({:.2}: {:.2} to {:.2})", r.median, r.min, r.max))
    };
    let line = |row: &Row| format!("{}, {} threads", case(row), row.threads);
    let swaps = pivot(&rows, "swaps/s (times ARIES)", line, |row| row.engine.clone(), cell);
    let each = |row: &Row| {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        format!("{}, {}", number(row.barriers_per_op), number(row.write_amplification))
    };
    let ours: Vec<Row> = rows.iter().filter(|row| row.barriers_per_op.is_some()).cloned().collect();
    let costs = pivot(&ours, "barriers, bytes for each byte", line, |row| row.engine.clone(), each);
    Ok(Shown::new(format!("{swaps}\n\n{costs}"), rows))
}

fn structure(setting: &Setting, watch: &dyn Watch, number: &'static str, shape: Shape) -> Result<Shown> {
    let all = setting.cases(&[1, 2, 4, 8, 16], &[1, 2]);
    let keys = if setting.quick { 2000 } else { 50_000 };
    let what = Structures { shapes: vec![shape], keys, value_bytes: 1024, ..Structures::default() };
    let measure = |who: &[Policy], threads: &[usize]| {
        let who = who.iter().copied().map(Contestant::Heap).collect();
        let (dir, threads) = (setting.dir.clone(), threads.to_vec());
        what.measure(&Contest { dir, who, threads, ..Contest::here(setting.plan) }, watch)
    };
    // Two threads may meet in a node that is to be split, and one has to go back: what has no atomicity cannot.
    let together = if shape == Shape::BTree { 1 } else { all.len() };
    let mut rows = measure(&[Policy::None, Policy::Eaw, Policy::Undo], &all[..together])?;
    if together < all.len() {
        rows.extend(measure(&[Policy::Eaw, Policy::Undo], &all[together..])?);
    }
    let rows: Vec<Row> = rows.into_iter().map(|row| row.param("paper", PAPER).param("figure", number)).collect();
    let cell = |row: &Row| {
        let ratio = row.ratio.map_or_else(String::new, |ratio| format!(" ({:.2})", ratio.median));
        scaled(row.ops_per_s) + &ratio
    };
    let corner = "operations/s (of unsafe: none; without it, of eaw), threads";
    let text = pivot(&rows, corner, |row| row.threads.to_string(), contestant, cell);
    let lines = lines("operations/s", "threads", &rows, |row| Some(row.ops_per_s), |row| Some(row.threads as f64));
    Ok(Shown { lines: Some(lines), ..Shown::new(text, rows) })
}

fn served(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let rows = memcachedb::measure(setting, watch, &row(PAPER, "8"))?;
    let cell = |row: &Row| {
        let ratio = row.ratio.map_or_else(String::new, |r| format!(" ({:.2}: {:.2} to {:.2})", r.median, r.min, r.max));
        scaled(row.ops_per_s) + &ratio
    };
    let corner = "requests/s (of DRAM), clients";
    let text = pivot(&rows, corner, |row| row.threads.to_string(), |row| row.engine.clone(), cell);
    let lines = lines("requests/s", "clients", &rows, |row| Some(row.ops_per_s), |row| Some(row.threads as f64));
    Ok(Shown { lines: Some(lines), ..Shown::new(text, rows) })
}

fn case(row: &Row) -> String {
    format!("{}, {} B", row.medium.as_deref().unwrap_or_default(), param(row, "bytes"))
}

fn ns(row: &Row) -> String {
    row.ns_per_op.map_or_else(String::new, |ns| format!("{:.0}", ns.median))
}

fn times(row: &Row) -> String {
    row.ratio.map_or_else(String::new, |r| format!("{:.2} ({:.2} to {:.2})", r.median, r.min, r.max))
}

fn megabytes(per_second: Option<f64>) -> String {
    per_second.map_or_else(String::new, |bytes| format!("{:.0}", bytes / 1e6))
}

/// One for each engine and medium.
fn lines(
    title: &str,
    across: &str,
    rows: &[Row],
    up: impl Fn(&Row) -> Option<f64>,
    right: impl Fn(&Row) -> Option<f64>,
) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(point) = right(row).zip(up(row)) else { continue };
        let name = match &row.medium {
            Some(medium) => format!("{}, {medium}", contestant(row)),
            None => contestant(row),
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    Lines { title: title.into(), across: across.into(), lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    fn shown(number: &str) -> Shown {
        let plan = Plan { batch_time: std::time::Duration::from_micros(100), ..Plan::quick() };
        let setting = Setting { plan, ..Setting::here(true) };
        FIGURES.iter().find(|figure| figure.number == number).unwrap().measure(&setting, &()).unwrap()
    }

    /// What they cost is counted, and is what the papers say: three barriers, or one.
    #[test]
    fn atomicity_has_its_price_in_barriers() {
        let Shown { text, rows, .. } = shown("3");
        let barriers = |engine: &str| {
            let rows = rows.iter().filter(|row| row.engine == engine);
            rows.map(|row| row.barriers_per_op.unwrap().round()).collect::<Vec<_>>()
        };
        assert_eq!(barriers("plain"), [1.0]);
        assert_eq!(barriers("soft-atomic"), [3.0, 3.0]);
        assert_eq!(barriers("log-write+commit"), [1.0, 1.0]);
        assert_eq!(barriers("atomic-write"), [1.0]);
        assert!(text.contains("times SoftAtomic"), "{text}");
    }

    #[test]
    fn sizes_are_shown_from_outside_and_inside() {
        let outside = shown("4");
        assert!(outside.text.contains("16384 B") && outside.text.contains("atomic-write"), "{}", outside.text);
        let soft = |row: &&Row| row.engine == "soft-atomic";
        let inside = shown("5");
        for row in inside.rows.iter().filter(soft) {
            assert!(row.write_amplification.unwrap() > 2.0, "{row:?}");
        }
        assert!(inside.lines.unwrap().lines.iter().any(|line| line.points.len() == 2));
    }

    #[test]
    fn swaps_are_of_both_stores() {
        let Shown { text, rows, .. } = shown("6");
        let peers = [peers::Peer::BerkeleyDb, peers::Peer::Sqlite].iter().filter(|peer| peer.is_compiled()).count();
        assert_eq!(rows.len(), 4 * (2 + peers));
        assert!(rows.iter().all(|row| row.ops_per_s > 0.0 && row.barriers_per_op.unwrap_or(1.0) > 0.4), "{text}");
        assert!(rows.iter().all(|row| row.baseline.as_deref() == Some("aries")));
    }

    #[test]
    fn a_server_is_held_against_one_in_dram() {
        let Shown { text, rows, .. } = shown("8");
        let bdb = usize::from(peers::Peer::BerkeleyDb.is_compiled());
        assert_eq!(rows.len(), 2 * (4 + bdb), "{text}");
        assert!(rows.iter().all(|row| row.baseline.as_deref() == Some("dram") && row.ops_per_s > 0.0));
        // How many there are is up to which requests came: these may be a few.
        let counts = |row: &&Row| row.barriers_per_op.is_some();
        assert_eq!(rows.iter().filter(counts).count(), 2 * 3, "{text}");
    }

    #[test]
    fn structures_are_held_against_unsafe_ones() {
        let Shown { text, rows, .. } = shown("7b");
        assert_eq!(rows.len(), 6);
        assert!(rows.iter().all(|row| row.baseline.as_deref() == Some("none")), "{text}");
        let Shown { text, rows, .. } = shown("7a");
        let baselines: Vec<_> = rows.iter().filter_map(|row| row.baseline.as_deref()).collect();
        assert_eq!(baselines, ["none", "none", "none", "eaw", "eaw"], "{text}");
    }
}
