//! Tells of keys that have expired, as long as these events are wanted: of those that are due it looks which are gone.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tx::Keys;

use crate::clock::now;
use crate::config::class;
use crate::data::DATABASES;
use crate::engine::Result;
use crate::events::{AT_ONCE, Told};
use crate::shared::Shared;

/// Between two looks at what is due.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        if !shared.events.wants(class::EXPIRED) {
            shared.events.changed().await;
            continue;
        }
        let (worker, changes) = (shared.clone(), shared.events.changes());
        if !matches!(tokio::task::spawn_blocking(move || seed(&worker)).await, Ok(Ok(()))) {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        while shared.events.wants(class::EXPIRED) && shared.events.changes() == changes {
            if shared.pauses.held().is_some() {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let due = shared.events.due(now());
            let first = due.first().cloned();
            let is_all = due.len() < AT_ONCE;
            let worker = shared.clone();
            let told = match first {
                None => Ok(Ok(())),
                Some(_) => {
                    let told = move || {
                        // A pause that begins now waits for it.
                        let Some(_under_way) = worker.pauses.enter_now() else { return Ok(()) };
                        tell(&worker, &due)
                    };
                    tokio::task::spawn_blocking(told).await
                }
            };
            if let Ok(Err(error)) = told {
                tracing::warn!("that keys have expired was not told yet: {error}");
            }
            // Some may be told only when transactions in front of them are committed.
            let waits = || shared.events.due(now()).first() == first.as_ref();
            if is_all || waits() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// All keys that are to expire.
fn seed(shared: &Shared) -> Result<()> {
    let mut next = vec![0];
    while let Some(from) = Some(std::mem::take(&mut next)).filter(|from| !from.is_empty()) {
        // The line is not held while the store is looked at: a thread that waits for it may hold what this waits for.
        shared.events.begin_look();
        let mut found = Vec::new();
        shared.look(&mut |tx| {
            let (mut failed, mut seen) = (None, 0);
            (found, next) = (Vec::new(), Vec::new());
            tx.scan(Keys::from(&from).until(&[DATABASES]), &mut |key, _| {
                if seen == AT_ONCE {
                    next = key.to_vec();
                    return ControlFlow::Break(());
                }
                seen += 1;
                match tx.expires(key) {
                    Ok(Some(moment)) => found.push((key.to_vec(), moment)),
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
                ControlFlow::Continue(())
            })?;
            failed.map_or(Ok(()), Err)
        })?;
        shared.events.found(found);
    }
    Ok(())
}

/// Tells of those that are gone. Its place in line is behind all that the look has seen: what one of these has done to a key is known when its turn comes. A key that is there again was
/// made anew by one of these, which tells that it had expired, and must still know it.
fn tell(shared: &Arc<Shared>, due: &[(Vec<u8>, u64)]) -> Result<()> {
    let (mut missing, mut delayed) = (Vec::new(), Vec::new());
    shared.look(&mut |tx| {
        (missing, delayed) = (Vec::new(), Vec::new());
        for (key, moment) in due {
            match tx.get(key)? {
                None => missing.push((key.clone(), *moment)),
                Some(_) => delayed.push((key.clone(), *moment, tx.expires(key)?)),
            }
        }
        Ok(())
    })?;
    if let Some(ticket) = shared.events.ticket(shared, Told::of_look(missing, delayed, shared.databases.now())) {
        ticket.tell();
    }
    Ok(())
}
