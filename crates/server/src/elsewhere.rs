//! Threads for work that waits long, or runs long: those that serve are not to wait for it. How much of it there may be at one time, [`work`](crate::work) says.
//!
//! Work that finds no place waits for one, in order, and takes no thread meanwhile. No class waits for places of another: those that wait for what a long script holds must not
//! keep it from being run, nor ended.

use std::sync::Arc;

use crate::apart::Apart;
use crate::attempt::run_at_once;
use crate::clock::Watch;
use crate::engine::Error;
use crate::metrics::Recorder;
use crate::scripts::Long;
use crate::shared::Shared;
use crate::work::{Class, Work};

/// Runs it to its end.
pub(crate) async fn run(shared: &Arc<Shared>, recorder: &Recorder, mut work: Box<dyn Work>) -> Box<dyn Work> {
    let permits = &shared.elsewhere;
    let is_busy = work.class() == Class::Script && work.is_heavy() && !work.waits() && !work.leaves();
    if is_busy {
        let limit = shared.settings().script_time;
        let Ok(permit) = tokio::time::timeout(limit, permits.heavy_scripts.acquire()).await else {
            return run_long(shared, recorder, work).await;
        };
        work = on_a_thread(shared, recorder, work, Apart::Busy).await;
        drop(permit);
    }
    if !work.leaves() && (!is_busy || work.waits()) {
        let permit = match work.class() {
            Class::Script => permits.scripts.acquire().await.ok(),
            Class::Data => permits.data.acquire().await.ok(),
            Class::Flush => None,
        };
        work = on_a_thread(shared, recorder, work, Apart::Waiting).await;
        drop(permit);
    }
    if work.leaves() { run_long(shared, recorder, work).await } else { work }
}

/// It waits for a place as long as it may run: for one of those that only run, and if it meets what another one holds, for one of those that wait.
async fn run_long(shared: &Arc<Shared>, recorder: &Recorder, mut work: Box<dyn Work>) -> Box<dyn Work> {
    let (limit, permits) = (shared.settings().script_time, &shared.elsewhere);
    // One for both, so that who ends it ends it.
    let mut long: Option<Arc<Long>> = None;
    for (places, what) in [(&permits.long, Apart::Busy), (&permits.long_waiting, Apart::Waiting)] {
        let (mut stop, asked) = (shared.stop.subscribe(), Watch::start());
        let permit = tokio::select! {
            permit = tokio::time::timeout(limit, places.acquire()) => permit.ok(),
            _ = stop.wait_for(|stops| *stops) => None,
        };
        if *stop.borrow() {
            work.fail(&Error::Other("the server stops; nothing is written".to_owned()));
        } else if permit.is_some() {
            match &long {
                Some(long) => long.has_entered(asked.nanos()),
                None => long = Some(shared.scripts.begin_long(limit)),
            }
            work.stay(long.clone());
            work = on_a_thread(shared, recorder, work, what).await;
        } else {
            work.fail(&Error::Other("too many scripts run long; try again later, or end them".to_owned()));
        }
        work.stay(None);
        if !work.waits() {
            break;
        }
    }
    work
}

/// On a thread that serves no connections: once, with all that it has to wait for, if it may.
async fn on_a_thread(shared: &Arc<Shared>, recorder: &Recorder, mut work: Box<dyn Work>, what: Apart) -> Box<dyn Work> {
    let (shared, commands) = (shared.clone(), recorder.calls.len());
    let run = tokio::task::spawn_blocking(move || {
        // Counters have one writer: this thread's are added there.
        let own = Recorder::new(commands, 0);
        crate::script::apart(what, || {
            run_at_once(&shared, &own, &mut *work);
            if !work.leaves() && !work.waits() {
                work.ended_apart();
            }
        });
        (work, own)
    });
    match run.await {
        Ok((work, own)) => {
            recorder.merge(&own);
            recorder.apart.add(1);
            work
        }
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
