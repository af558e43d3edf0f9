//! Threads for work that waits long, or runs long: those that serve are not to wait for it. How much of it there may be at one time, [`work`](crate::work) says.
//!
//! Work that finds no place waits for one, in order, and takes no thread meanwhile. No class waits for places of another: those that wait for what a long script holds must not
//! keep it from being run, nor ended.

use std::sync::Arc;

use crate::attempt::run_at_once;
use crate::engine::Error;
use crate::metrics::Recorder;
use crate::shared::Shared;
use crate::work::{Class, Work};

/// Runs it to its end.
pub(crate) async fn run(shared: &Arc<Shared>, recorder: &Recorder, mut work: Box<dyn Work>) -> Box<dyn Work> {
    if !work.leaves() {
        let permits = &shared.elsewhere;
        let permit = match work.class() {
            // One that takes long waits for none that wait: where there is no permit it is one that runs long.
            Class::Script if work.is_heavy() && !work.waits() => match permits.heavy_scripts.try_acquire() {
                Ok(permit) => Some(permit),
                Err(_) => return run_long(shared, recorder, work).await,
            },
            Class::Script => permits.scripts.acquire().await.ok(),
            Class::Data => permits.data.acquire().await.ok(),
            Class::Flush => None,
        };
        work = on_a_thread(shared, recorder, work).await;
        drop(permit);
    }
    if work.leaves() { run_long(shared, recorder, work).await } else { work }
}

/// It waits for a place as long as it may run.
async fn run_long(shared: &Arc<Shared>, recorder: &Recorder, mut work: Box<dyn Work>) -> Box<dyn Work> {
    let limit = shared.settings().script_time;
    let mut stop = shared.stop.subscribe();
    let permit = tokio::select! {
        permit = tokio::time::timeout(limit, shared.elsewhere.long.acquire()) => permit.ok(),
        _ = stop.wait_for(|stops| *stops) => None,
    };
    if *stop.borrow() {
        work.fail(&Error::Other("the server stops; nothing is written".to_owned()));
    } else if permit.is_some() {
        work.stay(Some(shared.scripts.begin_long(limit)));
        work = on_a_thread(shared, recorder, work).await;
    } else {
        work.fail(&Error::Other("too many scripts run long; try again later, or end them".to_owned()));
    }
    work.stay(None);
    work
}

/// On a thread that serves no connections: once, with all that it has to wait for.
pub(crate) async fn on_a_thread(shared: &Arc<Shared>, recorder: &Recorder, mut work: Box<dyn Work>) -> Box<dyn Work> {
    let (shared, commands) = (shared.clone(), recorder.calls.len());
    let run = tokio::task::spawn_blocking(move || {
        // Counters have one writer: this thread's are added there.
        let own = Recorder::new(commands, 0);
        crate::script::apart(|| {
            run_at_once(&shared, &own, &mut *work);
            if !work.leaves() {
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
