//! Removes elements that nobody owns any more: of collections that were removed as a whole, and of those that have expired. Has the store do the same with
//! what has expired, if it does not by itself.
//!
//! Everything it needs stands in the store ([`data`](crate::data)), so a crash delays it, and loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tx::Keys;

use crate::data::{DUE, ELEMENTS, GARBAGE, Head};
use crate::engine::{Error, Result, Tx};
use crate::sabotage::Step;
use crate::shared::{Shared, now};

/// Elements that one transaction removes.
const AT_ONCE: usize = 256;
/// Between two looks, if there is nothing to do.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let worker = shared.clone();
        let worked = tokio::task::spawn_blocking(move || step(&worker, now())).await;
        match worked {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => tokio::time::sleep(PAUSE).await,
            // A removal waits for what this makes room for; that was said.
            Ok(Err(error)) if shared.gate.hidden().is_some() => {
                tracing::debug!("elements of removed collections stay for now: {error}");
                tokio::time::sleep(PAUSE).await;
            }
            Ok(Err(error)) => {
                tracing::warn!("elements of removed collections stay for now: {error}");
                tokio::time::sleep(PAUSE * 20).await;
            }
            Err(_) => return,
        }
    }
}

/// Removes some; false if there are none.
pub(crate) fn step(shared: &Shared, now: u64) -> Result<bool> {
    match shared.end_unfinished() {
        // What is removed here makes room for it.
        Ok(()) | Err(Error::Full(_) | Error::Memory(_) | Error::Limit(_)) => {}
        Err(error) => return Err(error),
    }
    if !shared.ids.are_drawn() {
        match shared.ids.draw_again(&*shared.engine, shared.sabotage) {
            Ok(()) | Err(Error::Full(_) | Error::Memory(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut most = AT_ONCE;
    let (worked, gone) = loop {
        match reap(shared, now, most) {
            // A full store may have room for a few.
            Err(Error::Full(_) | Error::Limit(_)) if most > 1 => most /= 2,
            reaped => break reaped?,
        }
    };
    shared.reaped.fetch_add(gone as u64, Relaxed);
    Ok(shared.engine.sweep(now)? || worked)
}

/// Removes so many elements at most; whether there were any, and how many.
fn reap(shared: &Shared, now: u64, most: usize) -> Result<(bool, usize)> {
    let (mut worked, mut gone) = (false, 0);
    shared.engine.write(&mut |tx| {
        (worked, gone) = (false, 0);
        if let Some((garbage, _)) = first(tx, Keys::prefix(&[GARBAGE]))? {
            worked = true;
            gone = sweep(tx, garbage.get(1..9), &garbage, most)?;
            return Ok(());
        }
        let until = [&[DUE], &now.to_be_bytes()[..]].concat();
        if let Some((due, owner)) = first(tx, Keys::prefix(&[DUE]).until(&until))? {
            worked = true;
            let id = due.get(9..17);
            let head = tx.get(&owner)?.and_then(Head::read);
            // Who was told to stay, or to go later, has another note or none.
            let owned = head.is_some_and(|head| Some(&head.id.to_be_bytes()[..]) == id);
            if owned && !shared.sabotage.skips(Step::OwnerSpared) {
                return tx.delete(&due).map(drop);
            }
            gone = sweep(tx, id, &due, most)?;
        }
        Ok(())
    })?;
    Ok((worked, gone))
}

/// Removes some elements of an id, and tells how many; and the note about them when there are no more.
fn sweep(tx: &mut dyn Tx, id: Option<&[u8]>, note: &[u8], most: usize) -> Result<usize> {
    let mut keys = Vec::new();
    if let Some(id) = id {
        tx.scan(Keys::prefix(&[&[ELEMENTS], id].concat()), &mut |key, _| {
            keys.push(key.to_vec());
            if keys.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    for key in &keys {
        tx.delete(key)?;
    }
    if keys.len() < most {
        tx.delete(note)?;
    }
    Ok(keys.len())
}

fn first(tx: &dyn Tx, keys: Keys) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut found = None;
    tx.scan(keys, &mut |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        ControlFlow::Break(())
    })?;
    Ok(found)
}
