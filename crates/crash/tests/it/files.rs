//! The file model: syncs that fail, disks that are full, sectors that tear.

use std::sync::Arc;

use crash::{Ack, Config, Error, Model, Sim, Violation, run, run_failing_drains};
use pmem::{Options, Pool};

use crate::tiny::{Bug, Tiny, config, found, log, observing, read, tiny};

fn file() -> Config {
    config().model(Model::File { sector: 512 })
}

#[test]
fn a_file_needs_no_flush() {
    run(log(Bug::NoSlotFlush), &file()).expect_clean();
    run(log(Bug::NoCountFlush), &file()).expect_clean();
    found(&run(log(Bug::NoSlotDrain), &file()), "torn");
    found(&run(log(Bug::NoCountDrain), &file()), "acknowledged and lost");
}

/// Writes a value; when the sync fails it gives up, or (the bug) syncs again and believes that.
fn writer(retries: bool) -> Tiny {
    tiny(
        [1, 2, 3],
        move |sim, value, ack: &Ack<u64>| {
            let ticket = ack.begin(value);
            sim.store(value * 64, value)?;
            match sim.drain() {
                Err(_) if retries => sim.drain()?,
                other => other?,
            }
            ack.commit(ticket);
            Ok(())
        },
        |sim, history| {
            for &value in &history.acknowledged {
                if read(sim, value * 64)? != value {
                    return Err(Violation::new(format!("{value} is lost")));
                }
            }
            Ok(history.acknowledged.clone())
        },
    )
}

#[test]
fn a_failed_sync_is_not_healed_by_the_next_one() {
    for n in 1..=3 {
        run(writer(false), &file().fail_drain(n)).expect_clean();
        let report = run(writer(true), &file().fail_drain(n));
        found(&report, "is lost");
    }
}

#[test]
fn a_full_disk_is_an_error_that_the_program_must_stand() {
    let grower = |careful: bool| {
        tiny(
            [1, 2, 3],
            move |sim, value, ack| {
                let ticket = ack.begin(value);
                if let Err(error) = sim.set_len(4096 * (value + 1)) {
                    assert!(careful, "the disk is full");
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                    ack.abort(ticket);
                    return Ok(());
                }
                sim.store(4096 * value, value)?;
                sim.drain()?;
                ack.commit(ticket);
                Ok(())
            },
            |sim, history| {
                for &value in &history.acknowledged {
                    if read(sim, 4096 * value)? != value {
                        return Err(Violation::new(format!("{value} is lost")));
                    }
                }
                Ok(history.acknowledged.clone())
            },
        )
    };
    let report = run(grower(true), &file().disk_full(12 * 1024));
    report.expect_clean();
    assert!(report.is_complete(), "{report}");
    found(&run(grower(false), &file().disk_full(12 * 1024)), "the disk is full");
    run(grower(false), &file()).expect_clean();
}

#[test]
fn a_lost_growth_is_found() {
    // Acknowledged before the sync.
    let early = tiny(
        [1],
        |sim, value, ack| {
            let ticket = ack.begin(value);
            sim.set_len(8192)?;
            ack.commit(ticket);
            Ok(sim.drain()?)
        },
        |sim, history| {
            if !history.acknowledged.is_empty() && sim.length() < 8192 {
                return Err(Violation::new("came back short"));
            }
            Ok(vec![sim.length()])
        },
    );
    let report = run(early, &file());
    let violation = found(&report, "came back short");
    assert_eq!(violation.trail[0].lost[0].offset, None, "{report}");
    assert_eq!((violation.trail[0].lost[0].left, violation.trail[0].lost[0].stored), (4096, 8192));
}

#[test]
fn a_shrunk_file_may_come_back_long_but_its_tail_is_old_or_zero() {
    let step = |sim: &Arc<Sim>, _: u64, _: &_| -> Result<(), Error> {
        sim.set_len(8192)?;
        sim.store(4096, 7)?;
        sim.flush(4096, 8);
        sim.drain()?;
        sim.set_len(4096)?;
        sim.drain()?;
        sim.set_len(8192)?;
        Ok(sim.drain()?)
    };
    for model in [Model::Words, Model::File { sector: 4096 }] {
        let check = |sim: &Arc<Sim>, _: &_| {
            let tail = if sim.length() == 8192 { read(sim, 4096)? } else { 0 };
            if tail == 0 || tail == 7 { Ok(vec![sim.length(), tail]) } else { Err(Violation::new("garbage")) }
        };
        let report = run(tiny([0], step, check), &observing().model(model));
        report.expect_clean();
        assert!(report.is_complete(), "{report}");
    }
}

#[test]
fn sectors_tear_by_word() {
    let sector = || {
        tiny(
            [1],
            |sim, value, _| {
                (0..64).try_for_each(|word| sim.store(word * 8, value))?;
                Ok(sim.drain()?)
            },
            |sim, _| {
                let words = (0..64).map(|w| read(sim, w * 8)).collect::<Result<Vec<_>, _>>()?;
                let whole = words.iter().all(|&w| w == words[0]);
                if whole { Ok(words) } else { Err(Violation::new("torn sector")) }
            },
        )
    };
    found(&run(sector(), &file()), "torn sector");
}

/// A counter in a pool. A failed sync makes the program open the pool again; what it reads then it takes for durable.
fn reopening() -> Tiny {
    fn open(sim: &Arc<Sim>) -> pmem::Result<(Pool, pmem::Area)> {
        let pool = Options::new().open_on(Arc::clone(sim) as _)?;
        let area = pool.region("counter")?.into_area()?;
        Ok((pool, area))
    }
    let step = |sim: &Arc<Sim>, _: u64, ack: &Ack<u64>| {
        if sim.length() == 4096 {
            let pool = Options::new().size(16 << 10).create_on(Arc::clone(sim) as _)?;
            pool.add_region("counter", 4096)?;
        }
        let (_pool, mut area) = match open(sim) {
            Err(_) => open(sim)?,
            opened => opened?,
        };
        let seen = *area.get::<u64>(0)?;
        ack.commit(ack.begin(seen));
        area.put(0, &(seen + 1))?;
        if area.persist(0, 8).is_err() {
            drop((_pool, area));
            let (_pool, area) = open(sim)?;
            ack.commit(ack.begin(*area.get::<u64>(0)?));
        }
        Ok(())
    };
    let check = |sim: &Arc<Sim>, history: &crash::History<u64>| {
        if history.acknowledged.is_empty() {
            return Ok(vec![]);
        }
        let (_pool, area) = open(sim).map_err(Violation::detected)?;
        let value = *area.get::<u64>(0).map_err(Violation::detected)?;
        match history.acknowledged.last() {
            Some(&last) if value < last => Err(Violation::new(format!("{last} is lost"))),
            _ => Ok(vec![value]),
        }
    };
    tiny([1, 2, 3], step, check)
}

#[test]
fn a_pool_opened_after_a_failed_sync_reads_what_the_medium_has() {
    for kills in [false, true] {
        let scenario = Tiny { capacity: 64 << 10, ..reopening() };
        let reports = run_failing_drains(scenario, &file().kills(kills).depth(2), 60);
        assert!(reports.len() > 5, "{} drains", reports.len());
        reports.iter().for_each(crash::Report::expect_clean);
    }
}

/// The same right on the memory, where only the program can forget.
#[test]
fn who_trusts_the_cache_after_a_failed_sync_is_found() {
    let reader = |forgets: bool| {
        tiny(
            [1, 2, 3],
            move |sim, value, ack: &Ack<u64>| {
                sim.store(0, value)?;
                if sim.drain().is_err() && forgets {
                    sim.forget_cached();
                }
                let seen = sim.load(0)?;
                sim.store(8, seen)?;
                sim.drain()?;
                ack.commit(ack.begin(seen));
                Ok(())
            },
            |sim, history| {
                let value = read(sim, 0)?;
                match history.acknowledged.last() {
                    Some(&last) if value < last => Err(Violation::new(format!("{last} is lost"))),
                    _ => Ok(vec![value]),
                }
            },
        )
    };
    let config = file().kills(false);
    found(&run(reader(false), &config.clone().fail_drain(3)), "2 is lost");
    run(reader(true), &config.clone().fail_drain(3)).expect_clean();
}
