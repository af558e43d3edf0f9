//! 5(b): the parts of one append, each timed alone, less what reading the clock takes.

use std::time::Duration;

use super::row;
use crate::clock::Stopwatch;
use crate::contest::folder;
use crate::experiments::log_append::appended;
use crate::figures::{Setting, Shown, param};
use crate::log_sides::{Appender, Flex, LogSide, Ours, Policy};
use crate::table::{number, plain_table, right};
use crate::workload::Values;
use crate::{Result, Row, Spread, Watch};

const RECORD: usize = 1024;
const ROOM: u64 = 8 << 20;

/// The part that is all of them: one call.
const WHOLE: &str = "append";

/// Names and times of an append's parts, added up over some appends.
type Parts<const N: usize> = [(&'static str, Duration); N];

type Measure<'a> = Box<dyn FnMut(u64) -> Result<Vec<(&'static str, Duration)>> + 'a>;

/// Sums of the parts of `count` appends.
fn sums<const N: usize>(
    count: u64,
    mut one: impl FnMut(u64) -> Result<Parts<N>>,
) -> Result<Vec<(&'static str, Duration)>> {
    let mut sums: Vec<(&'static str, Duration)> = Vec::with_capacity(N);
    for number in 0..count {
        let parts = one(number)?;
        if sums.is_empty() {
            sums.extend(parts);
        } else {
            sums.iter_mut().zip(parts).for_each(|(sum, part)| sum.1 += part.1);
        }
    }
    Ok(sums)
}

pub(super) fn breakdown(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let count = if setting.quick { 300 } else { 3000 };
    let folder = folder(&setting.dir)?;
    let values = Values::new(RECORD, 1);
    let value = |number| values.get(number, RECORD as u32);
    let ours = Ours::create(&folder.path().join("parts"), ROOM, Policy::Sync, 1)?;
    let flex = Flex::create(&folder.path().join("flex-parts"), ROOM)?;
    let whole = [super::OURS, Appender::Bare, Appender::Pmemlog, Appender::Pwrite];
    let logs = whole.map(|who| Ok((who, who.make(folder.path(), ROOM, 1)?)));
    let logs = logs.into_iter().collect::<Result<Vec<_>>>()?;
    let (mut sides, mut missing): (Vec<(Appender, Measure<'_>)>, _) = (Vec::new(), Vec::new());
    sides.push((
        super::OURS,
        Box::new(|count| {
            ours.clean()?;
            sums(count, |number| our_parts(&ours, value(number)))
        }),
    ));
    sides.push((
        Appender::Flex,
        Box::new(|count| {
            flex.clean()?;
            sums(count, |number| flex_parts(&flex, value(number)))
        }),
    ));
    for (who, made) in &logs {
        let log = match made {
            Ok(log) => log,
            Err(why) => {
                missing.push(appended(&row("5b"), *who, 1).missing(why));
                continue;
            }
        };
        let mut writer = log.writer(0)?;
        sides.push((
            *who,
            Box::new(move |count| {
                log.clean()?;
                sums(count, |number| {
                    let mut watch = Stopwatch::start();
                    writer.append(value(number))?;
                    Ok([(WHOLE, watch.lap())])
                })
            }),
        ));
    }
    let mut rows = rounds(setting, watch, sides, count)?;
    rows.extend(missing);
    Ok(Shown::new(text(&rows), rows))
}

fn our_parts(ours: &Ours, record: &[u8]) -> Result<Parts<4>> {
    let mut watch = Stopwatch::start();
    let mut reservation = ours.log().reserve(record.len())?;
    let reserve = watch.lap();
    reservation.copy(0, record);
    let copy = watch.lap();
    let lsn = reservation.lsn();
    reservation.complete()?;
    let complete = watch.lap();
    ours.force(lsn)?;
    Ok([("reserve", reserve), ("copy", copy), ("complete", complete), ("force", watch.lap())])
}

fn flex_parts(flex: &Flex, record: &[u8]) -> Result<Parts<4>> {
    let parts = flex.append_in_parts(record)?;
    Ok([("lock", parts.lock), ("header", parts.header), ("payload", parts.payload), ("tail", parts.tail)])
}

/// All sides in turn, as everywhere.
fn rounds(
    setting: &Setting,
    watch: &dyn Watch,
    mut sides: Vec<(Appender, Measure<'_>)>,
    count: u64,
) -> Result<Vec<Row>> {
    watch.begin("figure 5b", setting.plan.rounds() as u64);
    for (_, measure) in &mut sides {
        measure(count)?; // warm
    }
    let mut times: Vec<Vec<(&'static str, Vec<f64>)>> = vec![Vec::new(); sides.len()];
    for _ in 0..setting.plan.rounds() {
        for ((_, measure), times) in sides.iter_mut().zip(&mut times) {
            let clock = Stopwatch::cost().as_nanos() as f64;
            for (name, sum) in measure(count)? {
                let ns = (sum.as_nanos() as f64 / count as f64 - clock).max(0.0);
                match times.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, all)) => all.push(ns),
                    None => times.push((name, vec![ns])),
                }
            }
        }
        watch.step();
    }
    let machine = crate::machine::describe();
    let mut rows = Vec::new();
    for ((who, _), parts) in sides.iter().zip(times) {
        for (part, ns) in parts {
            let row = appended(&row("5b"), *who, 1).param("bytes", RECORD).param("part", part);
            let (rounds, ops) = (ns.len(), ns.len() as u64 * count);
            rows.push(Row { ns_per_op: Spread::of(&ns), rounds, ops, machine: machine.clone(), ..row });
        }
    }
    Ok(rows)
}

fn text(rows: &[Row]) -> String {
    let mut table = plain_table();
    table.set_header(vec!["who", "part", "ns", "share"]);
    for row in rows {
        let ns = |row: &Row| row.ns_per_op.map_or(0.0, |ns| ns.median);
        let parts = rows.iter().filter(|other| other.engine == row.engine && param(other, "part") != WHOLE);
        let whole: f64 = parts.map(ns).sum();
        if row.missing.is_some() {
            table.add_row([row.engine.clone(), "missing".into()]);
            continue;
        }
        let share = format!("{:.0} %", 100.0 * ns(row) / whole.max(1e-3));
        let share = if param(row, "part") == WHOLE { String::new() } else { share };
        table.add_row([right(&row.engine), right(param(row, "part")), right(number(ns(row))), right(share)]);
    }
    let parts = "append is one call; libpmemlog: copy, barrier, tail, barrier, and a lock around them; ours: past the cache, where reserve, copy, \
                 complete and force take the record through it. A clock is read between parts, so that the processor overlaps less of them.";
    format!("{}\n{parts}", table.trim_fmt())
}
