//! *Kamino-Tx* (EuroSys 2017), section 7: figures 12 to 16, and of table 1 what one machine shows.
//!
//! A B+tree of values of 1 KiB under YCSB, as there; fewer pairs (there 10 million), which fit into the same memory. The paper's baseline is libpmemobj's undo logging; ours is
//! `undo`, and `pmemobj` stands beside it where it is in the build. Dollars are not here: figure 16 is by memory.

use heap::Policy;

use super::{Figure, Setting, Shown, param, row};
use crate::contest::Contest;
use crate::engines::{Contestant, Structure};
use crate::experiments::YcsbRun;
use crate::plot::{Line, Lines};
use crate::table::{pivot, plain_table, scaled};
use crate::workload::Workload;
use crate::{Result, Row, Watch};

const PAPER: &str = "kamino";
const UNDO: Contestant = Contestant::Heap(Policy::Undo);
const FULL: Contestant = Contestant::Heap(Policy::InPlace);
const WORKLOADS: [Workload; 5] = [Workload::A, Workload::B, Workload::C, Workload::D, Workload::F];

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        number: "12",
        title: "YCSB: operations a second",
        claim: "in place up to 9.5 times as much as undo logging (NVML), but for C, which only reads",
        measure: |setting, watch| {
            let rows = simple(setting, watch)?;
            let rows: Vec<Row> = rows.into_iter().filter(|row| row.threads > 1).collect();
            let text = pivot(&rows, "operations/s", case, engine, |row| scaled(row.ops_per_s));
            Ok(Shown { lines: Some(by_threads(&rows)), ..Shown::new(text, rows) })
        },
    },
    Figure {
        number: "13",
        title: "YCSB: mean latency",
        claim: "in place up to 2.33 times as fast as undo logging where much is written; level on C",
        measure: |setting, watch| {
            let rows = simple(setting, watch)?;
            let rows: Vec<Row> = rows.into_iter().filter(|row| row.threads == 1).collect();
            Ok(Shown::new(pivot(&rows, "ns, one thread", case, engine, latency), rows))
        },
    },
    Figure {
        number: "14",
        title: "YCSB: mean latency with full and partial backups",
        claim: "higher than expected with a partial one: a coarse lock on its table",
        measure: |setting, watch| {
            let rows = dynamic(setting, watch)?;
            let rows: Vec<Row> = rows.into_iter().filter(|row| row.threads == 1).collect();
            Ok(Shown::new(pivot(&rows, "ns, one thread", case, engine, latency), rows))
        },
    },
    Figure {
        number: "15",
        title: "YCSB: operations a second with full and partial backups",
        claim: "a full one up to 1.5 times as much where much is written; half the memory costs 5 % where much is read",
        measure: |setting, watch| {
            let rows = dynamic(setting, watch)?;
            let text = pivot(&rows, "times undo", case, engine, |row| {
                row.ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median))
            });
            Ok(Shown::new(text, rows))
        },
    },
    Figure {
        number: "16",
        title: "throughput for memory, as undo logging is 1",
        claim: "by dollars: a full backup up to 8.6 where much is written; a partial one may be ahead where much is read",
        measure: |setting, watch| {
            let rows = dynamic(setting, watch)?;
            let rows: Vec<Row> =
                rows.into_iter().filter(|row| ["A", "B"].contains(&&*param(row, "workload"))).collect();
            let text = pivot(&rows, "for each byte", case, engine, |row| {
                let each = row.ratio.zip(row.memory).map(|(ratio, memory)| ratio.median / memory);
                each.map_or_else(String::new, |each| format!("{each:.2}"))
            });
            Ok(Shown::new(text, rows))
        },
    },
    Figure {
        number: "T1",
        title: "memory and latency of one node, with no failure to tolerate (f = 0)",
        claim: "undo: the data, and copying in the latency; in place: twice the data, or 1 + alpha times, and none",
        measure: |setting, watch| {
            let rows = dynamic(setting, watch)?;
            let is_one = |row: &Row| row.threads == 1 && param(row, "workload") == "A";
            let rows: Vec<Row> = rows.into_iter().filter(is_one).collect();
            let mut table = plain_table();
            table.set_header(["", "memory, times the data: paper", "here", "barriers/op", "ns/op (A)"]);
            for row in &rows {
                let shown = |memory: Option<f64>| memory.map_or_else(String::new, |memory| format!("{memory:.2}"));
                let barriers = row.barriers_per_op.map_or_else(String::new, |barriers| format!("{barriers:.2}"));
                table.add_row([
                    row.engine.clone(),
                    shown(promised(&row.engine)),
                    shown(row.memory),
                    barriers,
                    latency(row),
                ]);
            }
            Ok(Shown::new(table.trim_fmt(), rows))
        },
    },
];

/// Undo logging and a full backup.
fn simple(setting: &Setting, watch: &dyn Watch) -> Result<Vec<Row>> {
    let threads = setting.cases(&[1, 2, 4, 8], &[1, 2]);
    ycsb(setting, watch, "12,13", vec![UNDO, FULL, Contestant::Heap(Policy::Eaw), Contestant::Pmemobj], threads)
}

/// The same with partial backups.
fn dynamic(setting: &Setting, watch: &dyn Watch) -> Result<Vec<Row>> {
    let shares = setting.cases(&[1, 3, 5, 7, 9], &[1, 5]).into_iter().map(Contestant::Partial);
    let who = [UNDO, FULL].into_iter().chain(shares).collect();
    ycsb(setting, watch, "14,15,16,T1", who, setting.cases(&[1, 2, 4], &[1]))
}

/// Measured once for all figures that show it.
fn ycsb(
    setting: &Setting,
    watch: &dyn Watch,
    numbers: &str,
    who: Vec<Contestant>,
    threads: Vec<usize>,
) -> Result<Vec<Row>> {
    setting.once(&format!("{PAPER} {numbers}"), || {
        let contest =
            Contest { dir: setting.dir.clone(), who, baseline: Some(UNDO), threads, ..Contest::here(setting.plan) };
        let run = YcsbRun {
            workloads: setting.cases(&WORKLOADS, &[Workload::A, Workload::B]),
            structures: vec![Structure::BTree],
            keys: if setting.quick { 5_000 } else { 100_000 },
            ..YcsbRun::default()
        };
        let figure = row(PAPER, numbers);
        let mut rows = run.measure(&contest, watch)?;
        for row in &mut rows {
            row.experiment.clone_from(&figure.experiment);
            row.params.extend(figure.params.clone());
        }
        Ok(rows)
    })
}

fn case(row: &Row) -> String {
    format!("{}, {} threads", param(row, "workload"), row.threads)
}

fn engine(row: &Row) -> String {
    row.engine.clone()
}

fn latency(row: &Row) -> String {
    row.ns_per_op.map_or_else(String::new, |ns| format!("{:.0}", ns.median * row.threads as f64))
}

/// How many times the data the paper has a contestant keep in memory that lasts, its log not counted.
fn promised(engine: &str) -> Option<f64> {
    match engine.strip_prefix("partial-") {
        Some(alpha) => alpha.parse::<f64>().ok().map(|alpha| 1.0 + alpha),
        None if engine == UNDO.name() => Some(1.0),
        None if engine == FULL.name() => Some(2.0),
        None => None,
    }
}

fn by_threads(rows: &[Row]) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows.iter().filter(|row| row.ns_per_op.is_some()) {
        let (name, point) = (format!("{} {}", param(row, "workload"), row.engine), (row.threads as f64, row.ops_per_s));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    Lines { title: "YCSB, operations/s".into(), across: "threads".into(), lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    /// Two measurements for six figures.
    #[test]
    fn figures_share_their_rows() {
        let plan = Plan { batch_time: std::time::Duration::from_micros(100), ..Plan::quick() };
        let setting = Setting { plan, ..Setting::here(true) };
        let shown: Vec<Shown> = FIGURES.iter().map(|figure| figure.measure(&setting, &()).unwrap()).collect();
        let engines = |at: usize| -> Vec<&str> { shown[at].rows.iter().map(|row| &*row.engine).collect() };
        assert!(engines(0).contains(&"inplace") && !engines(0).contains(&"partial-0.1"));
        assert!(shown[0].rows.iter().all(|row| row.threads == 2) && shown[1].rows.iter().all(|row| row.threads == 1));
        for (at, figure) in shown.iter().enumerate().skip(2) {
            assert!(["undo", "inplace", "partial-0.1", "partial-0.5"].iter().all(|name| engines(at).contains(name)));
            assert!(figure.text.contains("partial-0.5"), "{}", figure.text);
        }
        // Not more than is promised; less where blocks are larger than what is in them.
        for row in &shown[5].rows {
            let (here, promised) = (row.memory.unwrap(), promised(&row.engine).unwrap());
            assert!(here <= promised + 0.01 && here >= 1.0 + (promised - 1.0) / 2.0, "{}: {here}", row.engine);
        }
        assert!(shown[5].text.contains("barriers"), "{}", shown[5].text);
        assert_eq!(shown[3].rows[0].params["figure"], "14,15,16,T1");
    }
}
