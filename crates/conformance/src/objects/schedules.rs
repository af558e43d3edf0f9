//! Small transactions under many schedules: at every lock and switch point of the engine another thread may go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Result, Transaction, Typed};

use super::stage::look;
use super::subject::Subject;
use super::support::{numbers, ok, run, set, values};
use crate::check::Check;
use crate::history::{Event, History, Record};
use crate::rng::Rng;
use crate::shuttle::{explore, together};

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    let check = |name, scenario: fn(&S, u64)| {
        Check::shared(
            group,
            name,
            Box::new(move |subject: &Arc<S>| {
                let (subject, round) = (subject.clone(), AtomicU64::new(0));
                explore(1, subject.schedules(), move || scenario(&subject, round.fetch_add(1, Relaxed)));
            }),
        )
        .rolls_back()
    };
    vec![
        check("counter", counter),
        check("transfers", transfers),
        check("histories", histories),
        check("handoff", handoff),
        check("aborts", aborts),
    ]
}

type Thread<'a, R> = Box<dyn FnOnce() -> R + Send + 'a>;

/// Takes turns with the levels.
fn level<S: Subject>(s: &S, round: u64) -> Isolation {
    s.levels()[round as usize % s.levels().len()]
}

fn counter<S: Subject>(s: &S, round: u64) {
    let engine = &s.fresh_scheduled();
    let number = numbers(engine, 1)[0];
    let level = level(s, round);
    let increment = || -> Result<()> {
        for _ in 0..2 {
            engine.transact(level, |tx| {
                let before = *tx.read(number)?;
                tx.write(number).map(|value| *value = before + 1)
            })?;
        }
        Ok(())
    };
    together::<Result<()>>((0..3).map(|_| Box::new(increment) as Thread<'_, _>).collect()).into_iter().for_each(ok);
    assert_eq!(values(engine, &[number]), [6], "at {level}: an increment was lost");
}

fn transfers<S: Subject>(s: &S, round: u64) {
    let engine = &s.fresh_scheduled();
    let accounts = &numbers(engine, 3);
    set(engine, accounts, 10);
    let level = level(s, round);
    let transfer = |from: usize, to: usize| -> Thread<'_, Result<u64>> {
        Box::new(move || {
            engine.transact(level, |tx| {
                *tx.write(accounts[from])? -= 3;
                *tx.write(accounts[to])? += 3;
                Ok(30)
            })
        })
    };
    let sum = || engine.transact(level, |tx| accounts.iter().map(|&a| tx.read(a).copied()).sum());
    let sums = together(vec![transfer(0, 1), transfer(1, 2), Box::new(sum)]);
    for seen in sums {
        assert_eq!(ok(seen), 30, "at {level}: half of a transfer was seen");
    }
    assert_eq!(values(engine, accounts), [7, 10, 13], "at {level}");
}

/// A few random transactions, each tried once.
fn histories<S: Subject>(s: &S, round: u64) {
    let engine = &s.fresh_scheduled();
    let cells = &numbers(engine, 2);
    let moments = &AtomicU64::new(1);
    let level = level(s, round);
    let threads = (0..3).map(|thread| {
        let mut rng = Rng::seeded(round * 3 + thread);
        Box::new(move || {
            let mut written = (thread + 1) * 100;
            let two = [0, 1].map(|number| {
                let name = format!("{thread}.{number}");
                let begin = moments.fetch_add(1, SeqCst);
                let mut events = Vec::new();
                let result = attempt(engine, level, cells, &mut rng, &mut written, &mut events);
                let end = moments.fetch_add(1, SeqCst);
                (Record { name, begin, end, committed: result.is_ok(), events }, result)
            });
            two.into_iter().collect()
        }) as Thread<'_, Vec<_>>
    });
    let (mut transactions, results): (Vec<_>, Vec<_>) = together(threads.collect()).into_iter().flatten().unzip();
    for e in results.into_iter().filter_map(Result::err) {
        assert!(matches!(e, Error::Conflict { .. }), "at {level}: not a conflict: {e}");
    }
    transactions.push(look(engine, cells, moments));
    let history = History { transactions };
    if let Err(anomaly) = history.check(s.kept(level)) {
        panic!("at {level}: {anomaly}\n{history:#?}");
    }
}

fn attempt<E: Engine>(
    engine: &E,
    level: Isolation,
    cells: &[PPtr<u64>],
    rng: &mut Rng,
    written: &mut u64,
    events: &mut Vec<Event>,
) -> Result<()> {
    let mut tx = engine.begin(level)?;
    for _ in 0..1 + rng.below(3) {
        let key = rng.below(cells.len() as u64);
        let cell = cells[key as usize];
        if rng.below(2) == 0 {
            events.push(Event::Read { key, value: *tx.read(cell)? });
        } else {
            *written += 1;
            let old = Some(std::mem::replace(tx.write(cell)?, *written));
            events.push(Event::Write { key, old, new: *written });
        }
    }
    tx.commit()
}

/// One makes objects and hands them over, another one frees them, a third looks.
fn handoff<S: Subject>(s: &S, round: u64) {
    const OBJECTS: u64 = 3;
    let engine = &s.fresh_scheduled();
    let level = level(s, round);
    let cell: PPtr<PPtr<[u64; 4]>> = run(engine, |tx| tx.alloc(&PPtr::NULL));
    let make = || -> Result<u64> {
        for i in 1..=OBJECTS {
            engine.transact(level, |tx| -> Result<()> {
                let old = *tx.read(cell)?;
                if !old.is_null() {
                    tx.free(old)?;
                }
                *tx.write(cell)? = tx.alloc(&[i; 4])?;
                Ok(())
            })?;
        }
        Ok(0)
    };
    let take = || -> Result<u64> {
        for _ in 0..OBJECTS {
            engine.transact(level, |tx| -> Result<()> {
                let object = std::mem::take(tx.write(cell)?);
                if !object.is_null() {
                    tx.write(object)?.fill(0);
                    tx.free(object)?;
                }
                Ok(())
            })?;
        }
        Ok(0)
    };
    let look = || -> Result<u64> {
        engine.transact(level, |tx| {
            let object = *tx.read(cell)?;
            if object.is_null() {
                return Ok(0);
            }
            let [first, rest @ ..] = *tx.read(object)?;
            Ok(if (1..=OBJECTS).contains(&first) && rest == [first; 3] { 0 } else { first })
        })
    };
    for wrong in together::<Result<u64>>(vec![Box::new(make), Box::new(take), Box::new(look)]) {
        assert_eq!(ok(wrong), 0, "at {level}: a freed or half-made object was seen");
    }
    let last = run(engine, |tx| tx.read(cell).copied());
    if !last.is_null() {
        assert_eq!(run(engine, |tx| tx.read(last).copied()), [OBJECTS; 4]);
    }
}

/// Aborts beside commits: nothing of them stays, nothing else goes with them.
fn aborts<S: Subject>(s: &S, round: u64) {
    let engine = &s.fresh_scheduled();
    let numbers = &numbers(engine, 2);
    set(engine, numbers, 1);
    let level = level(s, round);
    let abort = || -> Result<u64> {
        for _ in 0..2 {
            let refused = engine.transact(level, |tx| -> Result<()> {
                *tx.write(numbers[0])? = 100;
                *tx.write(numbers[1])? = 100;
                Err(tx.refuse("on purpose"))
            });
            if !matches!(refused, Err(Error::Aborted { .. })) {
                return refused.map(|()| 100);
            }
        }
        Ok(0)
    };
    let double = |this: usize, other: usize| -> Thread<'_, Result<u64>> {
        Box::new(move || {
            engine.transact(level, |tx| {
                let sum = *tx.read(numbers[this])? + *tx.read(numbers[other])?;
                *tx.write(numbers[this])? += 1;
                Ok(if sum < 4 { 0 } else { sum })
            })
        })
    };
    for wrong in together(vec![Box::new(abort), double(0, 1), double(1, 0)]) {
        assert_eq!(ok(wrong), 0, "at {level}: something of an abort was seen");
    }
    assert_eq!(values(engine, numbers), [2, 2], "at {level}");
}
