//! `cairn kv stats`.

use std::io::{self, Write};
use std::process::ExitCode;

use kv::{Keys, Stats, Store};
use serde::Serialize;

use super::super::{Outcome, print_json};
use super::print::finish;
use crate::args::StatsOfStore;
use crate::failure::Failure;
use crate::output::Standard;
use crate::size;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
pub struct StatsJson {
    keys: u64,
    /// How many of them expire.
    expiring: u64,
    key_bytes: u64,
    value_bytes: u64,
    longest_key: u64,
    longest_value: u64,
    file_bytes: u64,
    live_bytes: u64,
    segment_bytes: u64,
    segments: u64,
    free_segments: u64,
    index_segments: u64,
    index_bytes: u64,
    clock: u64,
}

pub fn run(args: &StatsOfStore) -> Outcome {
    let stats =
        super::read(&args.source, |store| collect(store).map_err(|error| Failure::kv(&args.source.path, &error)))?;
    if args.json {
        print_json(&stats)?;
    } else {
        return finish(print(&mut Standard, &stats));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads every key.
pub fn collect(store: &Store) -> kv::Result<StatsJson> {
    let Stats {
        file_bytes, live_bytes, segment_bytes, segments, free_segments, index_segments, index_bytes, now, ..
    } = store.stats();
    let (mut keys, mut expiring, mut key_bytes, mut value_bytes) = (0, 0, 0, 0);
    let (mut longest_key, mut longest_value) = (0, 0);
    let snapshot = store.snapshot()?;
    let mut pairs = snapshot.scan(Keys::all());
    while let Some((key, value)) = pairs.next().transpose()? {
        let (key, value) = (key.len() as u64, value.len() as u64);
        keys += 1;
        expiring += u64::from(pairs.expires().is_some());
        (key_bytes, value_bytes) = (key_bytes + key, value_bytes + value);
        (longest_key, longest_value) = (longest_key.max(key), longest_value.max(value));
    }
    Ok(StatsJson {
        keys,
        expiring,
        key_bytes,
        value_bytes,
        longest_key,
        longest_value,
        file_bytes,
        live_bytes,
        segment_bytes,
        segments,
        free_segments,
        index_segments,
        index_bytes,
        clock: now.get(),
    })
}

pub fn print(out: &mut impl Write, stats: &StatsJson) -> io::Result<()> {
    let StatsJson { keys, expiring, segments, free_segments, index_segments, clock, .. } = stats;
    let per_key = stats.index_bytes as f64 / (*keys).max(1) as f64;
    writeln!(
        out,
        "keys      {keys} with {}, the longest {}",
        size::human(stats.key_bytes),
        size::human(stats.longest_key)
    )?;
    writeln!(out, "values    {}, the longest {}", size::human(stats.value_bytes), size::human(stats.longest_value))?;
    writeln!(out, "expiring  {expiring} keys")?;
    writeln!(out, "file      {}, of which {} is needed", size::human(stats.file_bytes), size::human(stats.live_bytes))?;
    writeln!(
        out,
        "segments  {segments} of {}: {free_segments} free, {index_segments} for the index",
        size::human(stats.segment_bytes)
    )?;
    writeln!(out, "memory    {} for the index, {per_key:.1} bytes per key", size::human(stats.index_bytes))?;
    writeln!(out, "clock     t{clock}")
}
