//! 8(c) and 8(d): before a force, how many records are not durable, those counted that others have only reserved.

use std::collections::BTreeMap;

use super::row;
use crate::contest::folder;
use crate::crew::{Crew, Worker, with_crew};
use crate::experiments::log_append::{Laps, appended, records};
use crate::figures::{Setting, Shown};
use crate::log_sides::{Appender, LogSide as _, Ours, Policy};
use crate::table::{plain_table, right};
use crate::workload::Values;
use crate::{Result, Row, Watch};

const RECORD: usize = 64;
const ROOM: u64 = 16 << 20;
/// One in so many records is looked at: looking slows the others down. Prime, so that all phases of a frequency come up.
const GAP: u64 = 7;
/// Lines of the table.
const BINS: u64 = 16;

/// How often the window had which size.
type Sizes = BTreeMap<u64, u64>;

pub(super) fn window(setting: &Setting, watch: &dyn Watch, number: &str, every: u32) -> Result<Shown> {
    let (threads, each) = if setting.quick { (2, 70_000) } else { (8, 700_000) };
    watch.begin("window", 1);
    let folder = folder(&setting.dir)?;
    let log = Ours::create(&folder.path().join("log"), ROOM, Policy::Frequency(every), threads)?;
    let values = Values::new(RECORD, 1);
    let (sizes, time) = with_crew(threads, |crew| sampled(crew, &log, &values, each))?;
    watch.step();
    let bound = log.log().vulnerability_window().bound;
    let samples: u64 = sizes.values().sum();
    let quantiles = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| quantile(&sizes, share));
    let who = Appender::Log(Policy::Frequency(every));
    let mut row = appended(&row(number), who, threads).param("bytes", RECORD).param("bound", bound);
    for (name, size) in ["p50", "p90", "p99", "p99.9", "largest"].into_iter().zip(quantiles) {
        row = row.param(name, size);
    }
    let counts: Vec<Vec<u64>> = sizes.iter().map(|(size, count)| vec![*size, *count]).collect();
    let row = Row {
        ops: samples,
        seconds: time.as_secs_f64(),
        ops_per_s: samples as f64 / time.as_secs_f64().max(1e-9),
        domain: Some(log.domain()),
        machine: crate::machine::describe(),
        rounds: 1,
        ..row.param("sizes", counts)
    };
    let [p50, p90, p99, p999, largest] = quantiles;
    let line = format!(
        "{threads} threads, {samples} samples, bound {bound}: half at most {p50}, 90 % {p90}, 99 % {p99}, 99.9 % {p999}, largest {largest}",
    );
    Ok(Shown::new(format!("{line}\n{}", table(&sizes, bound)), vec![row]))
}

fn sampled<'env>(
    crew: &Crew<'env>,
    log: &'env Ours,
    values: &'env Values,
    each: u64,
) -> Result<(Sizes, std::time::Duration)> {
    let mut workers: Vec<_> =
        (0..crew.size() as u64).map(|number| Sampling { log, values, number, todo: 0, sizes: Sizes::new() }).collect();
    let mut laps = Laps::new(records(ROOM, RECORD), workers.len());
    let time = laps.cut(
        each,
        || log.clean(),
        |now| {
            workers.iter_mut().for_each(|worker| worker.todo = now);
            crew.run(&mut workers)
        },
    )?;
    let mut sizes = Sizes::new();
    for (size, count) in workers.into_iter().flat_map(|worker| worker.sizes) {
        *sizes.entry(size).or_default() += count;
    }
    Ok((sizes, time))
}

struct Sampling<'e> {
    log: &'e Ours,
    values: &'e Values,
    number: u64,
    todo: u64,
    sizes: Sizes,
}

impl Worker for Sampling<'_> {
    fn work(&mut self) -> Result<()> {
        for _ in 0..self.todo {
            let lsn = self.log.unforced(self.values.get(self.number, RECORD as u32))?;
            if self.number.is_multiple_of(GAP) {
                *self.sizes.entry(self.log.log().vulnerability_window().now).or_default() += 1;
            }
            self.log.force(lsn)?;
            self.number += 1;
        }
        Ok(())
    }
}

/// The size that this share of the samples does not exceed.
fn quantile(sizes: &Sizes, share: f64) -> u64 {
    let wanted = (sizes.values().sum::<u64>() as f64 * share).ceil() as u64;
    let mut seen = 0;
    let reaches = |(_, count): &(&u64, &u64)| {
        seen += **count;
        seen >= wanted
    };
    sizes.iter().find(reaches).map_or(0, |(size, _)| *size)
}

/// Sizes up to the bound in lines of equal width, and those above it.
fn table(sizes: &Sizes, bound: u64) -> String {
    let width = bound.div_ceil(BINS).max(1);
    let samples = sizes.values().sum::<u64>().max(1) as f64;
    let mut table = plain_table();
    table.set_header(vec!["window", "samples", "share", ""]);
    let mut line = |name: String, count: u64| {
        let share = count as f64 / samples;
        let bar = "#".repeat((share * 50.0).round() as usize);
        table.add_row([right(name), right(count.to_string()), right(format!("{:.2} %", 100.0 * share)), bar.into()]);
    };
    let mut from = 0;
    while from <= bound {
        let to = (from + width - 1).min(bound);
        line(
            if from == to { from.to_string() } else { format!("{from}..{to}") },
            sizes.range(from..=to).map(|(_, n)| n).sum(),
        );
        from = to + 1;
    }
    line(format!("above {bound}"), sizes.range(bound + 1..).map(|(_, n)| n).sum());
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_lines() {
        let sizes = Sizes::from([(1, 90), (5, 9), (40, 1)]);
        assert_eq!([0.5, 0.9, 0.91, 0.99, 1.0].map(|share| quantile(&sizes, share)), [1, 1, 5, 5, 40]);
        assert_eq!(quantile(&Sizes::new(), 0.5), 0);
        let text = table(&sizes, 32);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words.iter().find(|line| line[0] == "0..1").unwrap()[..3], ["0..1", "90", "90.00"]);
        assert_eq!(words.iter().find(|line| line[0] == "above").unwrap()[..4], ["above", "32", "1", "1.00"], "{text}");
    }
}
