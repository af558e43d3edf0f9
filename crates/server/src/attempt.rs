//! Attempts at a transaction, until it is durable or given up: what is tried when there is no room, and what is told when nothing helps.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tx::{Backoff, RetryPolicy};

use crate::apart::{is_apart, may_wait};
use crate::clock::Watch;
use crate::engine::{Error, Result, Tx};
use crate::events;
use crate::evict::{Tries, make_room};
use crate::failpoints::Step;
use crate::metrics::Recorder;
use crate::remove::{Brief, Hiding, Inside};
use crate::shared::{Changing, Shared};
use crate::work::{PutOff, Work};

/// Bytes of deletions from which on a transaction that may find no room goes in steps at once: some thousand keys.
const LARGE: u64 = 256 << 10;

/// Attempts that meet conflicts on a thread that serves connections, and for how long more of them begin. Others of its kind are out of the way by then; what takes longer is waited for
/// elsewhere.
const HERE: u32 = 16;
const HERE_FOR: Duration = Duration::from_micros(500);

/// A bug in a command is that request's answer, and not the end of those that wait with it.
fn attempt_safely(shared: &Shared, work: &mut dyn Work, tx: &mut dyn Tx) -> Result<()> {
    std::panic::catch_unwind(AssertUnwindSafe(|| work.attempt(tx))).unwrap_or_else(|_| {
        tracing::error!("a command has panicked, which is a bug; its transaction is given up");
        let error = Error::Other("internal error: see the server's log".to_owned());
        if shared.failpoints.skips(Step::PanicGivesUp) {
            work.fail(&error);
            return Ok(());
        }
        Err(error)
    })
}

/// Once a barrier has failed, transactions fail for reasons that follow from it, as conflicts with one that never ends. That is what is to be told.
fn reason(shared: &Shared, error: Error) -> Error {
    shared.engine.healthy().err().unwrap_or(error)
}

/// The client is told that its write may be there: were it run again, it would be refused, and be told that nothing is written.
pub(crate) fn end_in_doubt(shared: &Shared, work: &mut dyn Work, error: &Error) {
    if !shared.failpoints.skips(Step::FailureTold) {
        work.end_in_doubt(error);
    }
}

/// Why steps ended early. Those before were durable, and the answer is for all of them.
fn reason_of_steps(shared: &Shared, error: Error) -> Error {
    match reason(shared, error) {
        Error::Stopped(why) => Error::InDoubt(why),
        other => other,
    }
}

/// The same for a caller inside the gate, without what no client is to see. With somewhere to say so, it ends when it has taken much out.
pub(crate) fn attempt_inside(
    shared: &Shared,
    work: &mut dyn Work,
    tx: &mut dyn Tx,
    inside: &Inside<'_>,
    ended: Option<&Cell<bool>>,
) -> Result<()> {
    match (inside.hidden(), ended) {
        (Some(hidden), _) => attempt_safely(shared, work, &mut Hiding::new(tx, hidden)),
        (None, Some(ended)) => attempt_safely(shared, work, &mut Brief::new(tx, LARGE, ended)),
        (None, None) => attempt_safely(shared, work, tx),
    }
}

/// The same for a caller that is alone inside the gate.
fn attempt_alone(shared: &Shared, work: &mut dyn Work, tx: &mut dyn Tx, changing: &Changing<'_>) -> Result<()> {
    shared.databases.begin();
    match changing.hidden() {
        Some(hidden) => attempt_safely(shared, work, &mut Hiding::new(tx, &hidden)),
        None => attempt_safely(shared, work, tx),
    }
}

/// How a transaction is inside the gate.
enum Entered<'s> {
    Beside(Inside<'s>),
    Alone(Changing<'s>),
}

/// Work that has to wait for others is run on a thread where it may: true if it is to be, and this is none.
fn must_leave(work: &mut dyn Work) -> bool {
    if may_wait() {
        return false;
    }
    work.put_off(PutOff::Waits);
    work.is_heavy()
}

/// That is the answer, unless it is to be run elsewhere. It may be known to be heavy, and fail before its first attempt: where it runs elsewhere already, there is no other place.
fn give_up(work: &mut dyn Work, error: &Error) {
    if work.is_heavy() && !is_apart() {
        work.put_off(PutOff::TakesLong);
    } else if !work.leaves() {
        work.fail(error);
    }
}

/// Runs it on this thread.
pub(crate) fn run_at_once(shared: &Shared, recorder: &Recorder, work: &mut dyn Work) {
    // Whether it may be found to be for steps before all of it was tried in vain.
    let mut brief = true;
    let mut tries = Tries::default();
    // Whether it has said that no other transaction may be inside.
    let mut alone = false;
    // None where it may wait for other transactions, however long they take.
    let policy = RetryPolicy::default().attempts(HERE).deadline(HERE_FOR);
    let mut tries_here = (!may_wait()).then(|| Backoff::new(policy));
    // The engine makes room where it may wait: once.
    let mut makes_room = false;
    loop {
        let mut attempts = 0;
        let writes = work.writes();
        // Work that runs long would keep all others outside of the gate.
        let steps = !work.is_long() && !alone;
        let (one, ended) = (brief && steps && writes && work.is_one(), Cell::new(false));
        let entered = if alone {
            Entered::Alone(shared.close_for_databases())
        } else if let Some(inside) = shared.try_enter() {
            work.has_entered(0);
            Entered::Beside(inside)
        } else if must_leave(work) {
            return;
        } else {
            let began = Watch::start();
            let inside = shared.enter();
            work.has_entered(began.nanos());
            Entered::Beside(inside)
        };
        let mut attempt = |tx: &mut dyn Tx| {
            attempts += 1;
            let brief = one && (attempts > 1 || shared.was_full_lately());
            match &entered {
                Entered::Beside(inside) => attempt_inside(shared, work, tx, inside, brief.then_some(&ended)),
                Entered::Alone(changing) => attempt_alone(shared, work, tx, changing),
            }
        };
        let began = writes.then(Watch::start);
        let here = tries_here.as_mut().filter(|_| !alone && !std::mem::take(&mut makes_room));
        let result = match (writes, here.is_some()) {
            (true, true) => shared.engine.try_write(&mut attempt),
            (true, false) => shared.engine.write(&mut attempt),
            (false, true) => shared.engine.try_read(&mut attempt),
            (false, false) => shared.engine.read(&mut attempt),
        };
        match entered {
            Entered::Beside(inside) => drop(inside),
            Entered::Alone(changing) => changing.end(&result),
        }
        if let (Some(began), Ok(())) = (began, &result) {
            shared.note_commit(recorder, began.nanos());
        }
        if let Some(tries) = here {
            match &result {
                // A read of a store that keeps versions meets none; it has found that it must write.
                Err(Error::Conflict(_)) if writes || shared.engine.waits() => {
                    recorder.conflicts.add(1);
                    if !tries.wait() {
                        if must_leave(work) {
                            return;
                        }
                        tries_here = None;
                    }
                    continue;
                }
                Err(Error::Full(_) | Error::Memory(_) | Error::LogFull(_)) if writes && !ended.get() => {
                    makes_room = true;
                    continue;
                }
                _ => {}
            }
        }
        recorder.transactions.add(1);
        recorder.conflicts.add(u64::saturating_sub(attempts, 1));
        if writes {
            let no_room = matches!(result, Err(Error::Full(_) | Error::Memory(_)));
            if no_room && !work.is_long() && !work.leaves() && make_room(shared, work.bytes(), &mut tries) {
                continue;
            }
            if matches!(result, Err(Error::Full(_) | Error::LogFull(_))) {
                shared.note_full();
            }
        }
        match result {
            Ok(()) => return,
            Err(error @ Error::InDoubt(_)) if writes => return end_in_doubt(shared, work, &error),
            Err(Error::TooLong) if work.is_heavy() => return work.put_off(PutOff::TakesLong),
            Err(_) if ended.get() => match in_steps(shared, work, true) {
                Ok(true) => return,
                Ok(false) => brief = false,
                Err(Error::Alone) => alone = true,
                Err(Error::Again | Error::Conflict(_) | Error::Flush(_)) => {}
                Err(error) => return give_up(work, &reason_of_steps(shared, error)),
            },
            Err(Error::Again) => {}
            Err(_) if work.narrow() => {}
            Err(Error::Alone | Error::Flush(_)) if steps && must_leave(work) => return,
            Err(Error::Alone) if steps => alone = true,
            Err(Error::Flush(databases)) => match shared.flush_in_steps(&databases) {
                Ok(()) => {
                    work.flushed();
                    if let Some(itself) = shared.itself.upgrade() {
                        events::emptied(&itself, &databases);
                    }
                    return;
                }
                Err(error) => return give_up(work, &reason_of_steps(shared, error)),
            },
            Err(_) if shared.failpoints.skips(Step::FailureTold) => return,
            Err(full @ (Error::Full(_) | Error::LogFull(_))) if writes && steps => {
                match in_steps(shared, work, false) {
                    Ok(true) => return,
                    Ok(false) => return give_up(work, &reason(shared, full)),
                    Err(Error::Alone) => alone = true,
                    Err(Error::Again | Error::Conflict(_) | Error::Flush(_)) => {}
                    Err(error) => return give_up(work, &reason_of_steps(shared, error)),
                }
            }
            Err(error) => return give_up(work, &reason(shared, error)),
        }
    }
}

fn in_steps(shared: &Shared, work: &mut dyn Work, is_worth_it: bool) -> Result<bool> {
    shared.in_steps(is_worth_it, &mut |tx| attempt_safely(shared, work, tx))
}
