//! Explores every built-in scenario.

mod aries;
mod array;
mod chain;
mod damage;
mod deep;
mod every;
mod graph;
mod heap;
mod heap_damage;
mod heap_mutation;
mod heap_own;
mod kv;
mod limits;
mod log;
mod log_replicated;
mod mars;
mod missed;
mod mutation;
mod plain;
mod structures;
mod versioned;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crash::{Config, Model};
use scenarios::Named;

fn config(seed: u64) -> Config {
    Config::seeded(seed).budget(30_000).point_budget(800)
}

fn clean(named: &Named, config: &Config) {
    let report = named.run(config);
    println!("{} {:?} seed {}: {report}", named.name, config.model, config.seed);
    assert!(report.violation().is_none(), "{}: {report}", named.name);
}

/// Runs `f` for the numbers up to `end`, on two threads.
fn in_parallel(end: usize, f: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let at = next.fetch_add(1, Relaxed)
            && at < end
        {
            f(at);
        }
    };
    std::thread::scope(|scope| [(); 2].map(|()| scope.spawn(work)).map(|thread| thread.join().expect("no panic")));
}

macro_rules! scenarios {
    ($($test:ident: $name:literal;)*) => {$(
        mod $test {
            use super::*;

            fn named() -> &'static Named {
                scenarios::ALL.iter().find(|n| n.name == $name).expect("built in")
            }

            #[test]
            fn words() {
                for seed in 1..3 {
                    clean(named(), &config(seed));
                }
            }

            /// Few images a crash point, so that every one is reached.
            #[test]
            fn wide() {
                clean(named(), &Config::seeded(6).budget(30_000).point_budget(60).nested_budget(16));
            }

            #[test]
            fn lines() {
                clean(named(), &config(4).model(Model::Lines));
            }

            #[test]
            fn file() {
                clean(named(), &config(5).model(Model::File { sector: 512 }));
            }
        }
    )*};
}

/// Recovery makes durable what it found in a cache before it relies on it: the process dies with its last stores not flushed, wherever it flushes.
fn killed_in_front_of_flushes() {
    let names = [
        "heap-partial",
        "heap-partial-2",
        "heap-intents",
        "heap-intents-2",
        "heap-inplace-2",
        "heap-undo",
        "heap-eaw",
        "log-2",
        "kv-2",
        "mvcc-every",
        "mvcc-calls",
        "mvcc-2",
    ];
    in_parallel(names.len(), |at| {
        let named = scenarios::ALL.iter().find(|n| n.name == names[at]).expect("built in");
        let config = Config::seeded(1).budget(8_000).schedules(8).point_budget(64).nested_budget(64);
        clean(named, &config.nested_share(60));
    });
}

/// Bit flips and unreadable lines: a clear error, or nothing lost. Not for single cells, whose older value is all that is left, nor for objects,
/// whose contents carry no checksum at rest.
#[test]
fn faults_of_the_medium() {
    let kinds = vec![crash::FaultKind::Flip, crash::FaultKind::Poison];
    for named in scenarios::ALL.iter().filter(|n| ["checksummed", "ring", "header", "log", "log-2"].contains(&n.name)) {
        for seed in 20..24 {
            let config = Config::seeded(seed).depth(1).budget(30_000).point_budget(50).faults(200);
            let report = named.run(&config.fault_kinds(kinds.clone()));
            println!("{} seed {seed}: {report}", named.name);
            assert!(report.violation().is_none(), "{}: {report}", named.name);
            assert!(report.faults_detected > 0, "{}: no fault was ever detected", named.name);
        }
    }
}

/// What each scenario says that it withstands, a little of it; `cairn crash --faults` plants more.
#[test]
fn faults_that_are_withstood() {
    let is_one = |name: &str| {
        ["log", "kv", "heap", "ring", "checksummed"].iter().any(|start| name.starts_with(start))
            || name == "btree-partial"
    };
    let all: Vec<_> = scenarios::ALL.iter().filter(|named| is_one(named.name)).collect();
    let detected = AtomicUsize::new(0);
    in_parallel(all.len(), |at| {
        let config = Config::seeded(51).depth(1).budget(120).schedules(3).point_budget(6).faults(8);
        let report = all[at].run(&config.fault_kinds(all[at].withstands().to_vec()));
        assert!(report.violation().is_none(), "{}: {report}", all[at].name);
        assert!(report.faults > 50, "{}: {report}", all[at].name);
        detected.fetch_add(report.faults_detected as usize, Relaxed);
    });
    assert!(detected.into_inner() > 1_000);
}

/// A cell whose newer value cannot be read shows the older one, which is what makes a single cell no promise of it: that is seen.
#[test]
fn a_fault_that_is_not_withstood_is_seen() {
    let named = scenarios::ALL.iter().find(|named| named.name == "two-slot").expect("built in");
    let config = Config::seeded(1).depth(1).budget(400).schedules(2).faults(24).stop_at_first(false);
    let report = named.run(&config.fault_kinds(vec![crash::FaultKind::Poison]));
    assert!(report.violations.len() > 1, "{report}");
    assert!(report.violations.iter().all(|violation| violation.fault.is_some()), "{report}");
}

/// The disk is full at once, and later and later.
#[test]
fn full_disks() {
    let names = ["resize", "kv", "kv-every", "log-every", "heap-inplace", "heap-every-partial", "btree-inplace"];
    in_parallel(names.len(), |at| {
        let named = scenarios::ALL.iter().find(|n| n.name == names[at]).expect("built in");
        let reports = named.run_full_disks(&Config::seeded(3).depth(1).budget(60).point_budget(4));
        assert!(reports.len() > 3, "{}", named.name);
        for report in &reports {
            assert!(report.violation().is_none(), "{}: {report}", named.name);
        }
        // The program went further where there was more room.
        let (first, last) = (reports[0].drains, reports[reports.len() - 1].drains);
        assert!(
            first <= last && (first < last || !["resize", "kv"].contains(&named.name)),
            "{}: {first} {last}",
            named.name
        );
    });
}

/// A writer is killed when it has just wrapped around: the record that fills the ring's end leads to the next, and is in a cache alone.
#[test]
fn a_ring_found_wrapped_around_in_a_cache() {
    use scenarios::JournalOp::{Append, Reclaim, Retire};
    // Fourteen lines: two of them are left for a record of three.
    let mut ops = vec![Append(vec![100]); 4];
    ops.extend([Retire, Reclaim, Append(vec![100])]);
    let report = crash::run(scenarios::Journal::script(ops), &Config::seeded(1).budget(20_000));
    assert!(report.violation().is_none(), "{report}");
    assert!(report.points > 0 && report.unexplored == 0, "{report}");
}

/// Each drain fails once; for structures see there. An open of the pool after it, in the same process or after a kill, takes only for durable what is.
fn failing_drains() {
    let all: Vec<_> = scenarios::ALL.iter().filter(|named| !structures::is_one(named)).collect();
    in_parallel(2 * all.len(), |at| {
        let (named, model) = (all[at / 2], [Model::Words, Model::File { sector: 512 }][at % 2]);
        // Each recovery of the one is a takeover; the others drain more than anything else.
        let (budget, most) = match named.name {
            "log-leader" => (60, 60),
            name if name.contains("-every") => (40, 10),
            _ => (400, 60),
        };
        let config = Config::seeded(31).depth(1).budget(budget).point_budget(8).model(model);
        let reports = named.run_failing_drains(&config, most);
        assert!(reports.len() > 3, "{}: {} drains", named.name, reports.len());
        for report in reports {
            assert!(report.violation().is_none(), "{}: {report}", named.name);
        }
    });
}

scenarios! {
    two_slot: "two-slot";
    checksummed: "checksummed";
    ring: "ring";
    header: "header";
    resize: "resize";
    objects: "objects";
    objects_2: "objects-2";
    log_alone: "log";
    log_2: "log-2";
    log_freq: "log-freq";
    log_freq_2: "log-freq-2";
    array_alone: "array";
    array_2: "array-2";
    array_whole: "array-whole";
    array_late: "array-late";
    array_late_2: "array-late-2";
    mars_alone: "mars";
    mars_2: "mars-2";
    mars_placed: "mars-placed";
    mars_placed_2: "mars-placed-2";
    aries_alone: "aries";
    aries_2: "aries-2";
    mvcc_every: "mvcc-every";
    mvcc_calls: "mvcc-calls";
    mvcc_2: "mvcc-2";
    mvcc_handover: "mvcc-handover";
}
