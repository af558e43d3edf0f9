//! The file model: syncs that fail, disks that are full, sectors that tear.

use crash::{Ack, Config, Error, Model, Sim, Violation, run};

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
    let step = |sim: &std::sync::Arc<Sim>, _: u64, _: &_| -> Result<(), Error> {
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
        let check = |sim: &std::sync::Arc<Sim>, _: &_| {
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
