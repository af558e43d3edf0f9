//! `MEMORY`: what keys take in the store, and what the server takes of memory and of its file.

use std::ops::ControlFlow;

use tx::Keys;

use super::flag::READ;
use super::second::second;
use super::{Command, Context, KeysAt, Outcome, SYNTAX, data, int, is};
use crate::data::{Head, Kind};
use crate::info::resident_bytes;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::shared::Shared;

pub(super) const COMMANDS: &[Command] = &[data("memory", -2, READ, KeysAt::Range(2, 2, 1), memory)];

const HELP: [&str; 14] = [
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return memory problems reports.",
    "MALLOC-STATS",
    "    Return internal statistics report from the memory allocator.",
    "PURGE",
    "    Attempt to purge dirty pages for reclamation by the allocator.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
    "HELP",
    "    Prints this help.",
];

/// Elements that are looked at if nothing is said.
const SAMPLES: u64 = 5;
/// Pairs of a stream's groups that are looked at, if not all are asked for.
const OF_GROUPS: u64 = 1024;

fn memory(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    match second(args)? {
        "usage" => usage(c, args)?,
        "stats" => stats(c.shared, c.reply),
        "doctor" => c.reply.verbatim(&report(c.shared)),
        "malloc-stats" => c.reply.verbatim("Stats not supported for the current allocator"),
        // The allocator keeps no dirty pages that it could be asked to give back.
        "purge" => c.reply.ok(),
        _ => {
            c.reply.array(HELP.len());
            HELP.iter().for_each(|line| c.reply.simple(line));
        }
    }
    Ok(())
}

// ---- of a key -----------------------------------------------------------------------------------------------------

fn usage(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (mut samples, mut at) = (SAMPLES, 3);
    while at < args.len() {
        if !is(args.get(at), "SAMPLES") || at + 1 == args.len() {
            return Err(SYNTAX.into());
        }
        samples = u64::try_from(int(args.get(at + 1))?).map_err(|_| SYNTAX)?;
        at += 2;
    }
    // All of them.
    let samples = if samples == 0 { u64::MAX } else { samples };
    let key = c.key(args.get(2));
    let Some((len, head)) = c.tx.get(&key)?.map(|value| (value.len(), Head::read(value))) else {
        c.reply.null();
        return Ok(());
    };
    let expires = c.tx.expires(&key)?.is_some();
    let mut bytes = c.shared.engine.record_bytes(key.len(), len, expires);
    if let Some(head) = head {
        bytes = bytes.saturating_add(elements(c, &head, samples)?);
    }
    c.reply.int(i64::try_from(bytes).unwrap_or(i64::MAX));
    Ok(())
}

/// Bytes of all elements, by those of some.
fn elements(c: &Context<'_>, head: &Head, samples: u64) -> Outcome<u64> {
    let of = |part: &[u8]| some(c, head.elements(&[part]), samples).map(|found| found.of(head.count));
    match head.kind {
        Kind::Sorted => Ok(of(&[0])?.saturating_add(of(&[1])?)),
        Kind::Stream => {
            let mut bytes = of(&[0])?;
            // How many pairs its groups have is not known: that many are looked at, and more are not counted.
            for part in [1, 2, 3] {
                let found = some(c, head.elements(&[&[part]]), samples.max(OF_GROUPS))?;
                bytes = bytes.saturating_add(found.bytes);
            }
            Ok(bytes)
        }
        _ => of(&[]),
    }
}

/// Pairs that were looked at.
#[derive(Default)]
struct Found {
    pairs: u64,
    bytes: u64,
}

impl Found {
    /// Of so many pairs, if they are like these.
    fn of(&self, count: u64) -> u64 {
        let all = u128::from(self.bytes) * u128::from(count) / u128::from(self.pairs.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

fn some(c: &Context<'_>, keys: Keys, most: u64) -> Outcome<Found> {
    let mut found = Found::default();
    c.scan(keys, &mut |key, value| {
        found.pairs += 1;
        found.bytes += c.shared.engine.record_bytes(key.len(), value.len(), false);
        if found.pairs < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

// ---- of the server ------------------------------------------------------------------------------------------------

/// The most memory that the process has had, by what the system says.
fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn stats(shared: &Shared, reply: &mut Reply) {
    let (counts, excess) = (shared.engine.counts(), shared.engine.excess());
    let resident = resident_bytes();
    let peak = peak_bytes().max(resident);
    let numbers = [
        ("peak.allocated", peak),
        ("total.allocated", resident),
        // There is nothing of these.
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", shared.scripts.count().1 as u64),
        ("overhead.total", counts.index_bytes),
        ("dataset.bytes", counts.live_bytes),
        ("cairn.index.bytes", counts.index_bytes),
        ("cairn.index.max", shared.settings().memory),
        ("cairn.file.bytes", counts.file_bytes),
        ("cairn.pairs", counts.entries),
        ("cairn.excess.bytes", excess.bytes),
        ("cairn.excess.keys", excess.keys),
    ];
    reply.map(numbers.len() + 1);
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(i64::try_from(number).unwrap_or(i64::MAX));
    }
    reply.bulk(b"peak.percentage");
    reply.double(resident as f64 * 100.0 / peak.max(1) as f64);
}

/// What is wrong with the room there is, and what to do about it.
fn report(shared: &Shared) -> String {
    let (counts, excess, most) = (shared.engine.counts(), shared.engine.excess(), shared.settings().memory);
    let mut found = Vec::new();
    if let Err(why) = shared.takes_writes() {
        found.push(format!("Writes are or were refused: {why}"));
    }
    if excess.bytes > 0 {
        found.push(format!(
            "The file has {} bytes more of live records than it should: next: delete keys, raise --max-size, or set a policy of eviction",
            excess.bytes
        ));
    }
    if excess.keys > 0 {
        found.push(format!(
            "The index of keys takes {} of {most} bytes of memory: next: delete keys, raise --max-memory, or set a policy of eviction",
            counts.index_bytes
        ));
    }
    if shared.gate.hidden().is_some() {
        found.push("A removal waits for room, and writes are refused until it has some: next: delete keys".to_owned());
    }
    if found.is_empty() {
        return "I can't find any memory issue in your instance: there is room for records and for keys.\n".to_owned();
    }
    found.iter().fold("Problems were found:\n\n".to_owned(), |all, one| all + " * " + one + "\n")
}
