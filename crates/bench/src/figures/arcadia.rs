//! *Arcadia: A Fast and Reliable Persistent Memory Replicated Log*: figures 5 to 10.

mod append;
mod breakdown;
mod map;
mod recovery;
mod replicated;
mod window;

use super::{Figure, Setting, Shown};
use crate::log_sides::{Appender, Policy};
use crate::{Result, Row, Watch};

/// Those that one machine can show, or must say why not.
pub const FIGURES: &[Figure] = &[
    Figure {
        number: "5a",
        title: "latency of an append, one thread, by record size",
        claim: "Arcadia is the fastest at every size, up to 6 times as fast as PMDK and 8 times as fast as FLEX: no \
                tail is updated",
        measure: append::latency,
    },
    Figure {
        number: "5b",
        title: "where the time of a 1 KiB append goes",
        claim: "FLEX and PMDK spend most of it on flushes, because each append updates the tail behind a fence of \
                its own; Arcadia pays for a checksum instead",
        measure: breakdown::breakdown,
    },
    Figure {
        number: "5c",
        title: "throughput by threads, one log",
        claim: "FLEX and PMDK are flat, behind one lock; Arcadia rises up to 4 threads, and loses a little beyond",
        measure: append::threads,
    },
    Figure {
        number: "5d",
        title: "throughput of tenants, a log and a thread each, by record size",
        claim: "Arcadia is the fastest at every size; with larger records all come close to the bandwidth of the \
                memory",
        measure: append::tenants,
    },
    Figure {
        number: "6a",
        title: "latency of an append to a log with a backup, by flush order and record size",
        claim: "parallel is the slowest, remote first the fastest: a flush at the same time evicts what the network \
                card is about to read",
        measure: replicated::orders,
    },
    Figure {
        number: "6c",
        title: "misses of the last-level cache by flush order",
        claim: "remote first has the fewest",
        measure: replicated::misses,
    },
    Figure {
        number: "6d",
        title: "throughput by backups",
        claim: "the first backup costs a great deal, a second and a third little: they are written to at the same \
                time",
        measure: replicated::backups,
    },
    Figure {
        number: "7a",
        title: "recovery, by the bytes that are live",
        claim: "Arcadia and FLEX take the same time, linear in the size, because both verify checksums; PMDK \
                verifies nothing and is faster",
        measure: recovery::recovery,
    },
    Figure {
        number: "7b",
        title: "recovery with a backup, by the bytes that are live",
        claim: "slower where the primary copy is lost and made again from the backup, below 500 ms for 256 MiB; \
                linear in both cases",
        measure: replicated::recovery,
    },
    Figure {
        number: "8a",
        title: "throughput of the force policies, by threads",
        claim: "group commit loses 30 % at 16 threads, for its shared counter; frequency does not, and leaves a \
                window of comparable size (group 128 and frequency 8, 256 and 16, at 16 threads)",
        measure: append::policies,
    },
    Figure {
        number: "8b",
        title: "misses of the first-level cache under the force policies",
        claim: "group commit misses much more often than frequency: all threads write one counter",
        measure: misses,
    },
    Figure {
        number: "8c",
        title: "size of the vulnerability window, frequency 8",
        claim: "mostly small, and far below its bound of frequency times threads",
        measure: |setting, watch| window::window(setting, watch, "8c", 8),
    },
    Figure {
        number: "8d",
        title: "size of the vulnerability window, frequency 16",
        claim: "as in 8c",
        measure: |setting, watch| window::window(setting, watch, "8d", 16),
    },
    Figure {
        number: "9",
        title: "puts of RocksDB with this log as its write-ahead log",
        claim: "local mode up to 38 % less latency and 62 % more throughput than FLEX; with one backup still ahead of \
                FLEX without any for sequential puts, level for random ones",
        measure: replicated::rocksdb,
    },
    Figure {
        number: "10",
        title: "an ordered map in memory with a logical log of its read-modify-writes",
        claim: "with Masstree: frequency is the fastest, up to 65 % faster than Query Fresh, with the smallest \
                window; group commit loses at 8 and 16 threads",
        measure: map::map,
    },
];

const PAPER: &str = "arcadia";

fn row(number: &str) -> Row {
    super::row(PAPER, number)
}

const OURS: Appender = Appender::Log(Policy::Sync);

fn misses(_: &Setting, _: &dyn Watch) -> Result<Shown> {
    let text = "not shown: no hardware counters are read here, and virtual machines rarely have any. What is counted instead: one shared \
                word is written for each record under group commit, none for the policy alone under frequency; 8a has what that costs.";
    Ok(Shown::new(text.into(), Vec::new()))
}

#[cfg(test)]
mod tests;
