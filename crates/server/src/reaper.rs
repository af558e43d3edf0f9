//! Removes elements that have no owner any more: of collections that were removed as a whole, and of those that have expired. Has the store do the same with
//! what has expired, if it does not by itself.
//!
//! Everything it needs stands in the store ([`data`](crate::data)), so a crash delays it, and loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tx::Keys;

use crate::clock::{Watch, now};
use crate::data::{DUE, ELEMENTS, GARBAGE, Head, PARTS, notes};
use crate::engine::{Error, Result, Tx};
use crate::latency::event;
use crate::shared::Shared;

/// Elements that one transaction removes.
const AT_ONCE: usize = 256;
/// Between two looks, if there is nothing to do, and behind a first refusal; each further one doubles it.
const PAUSE: Duration = Duration::from_millis(500);
/// Up to here.
const REST: Duration = Duration::from_secs(10);

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut rest = PAUSE;
    loop {
        if shared.pauses.held().is_some() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let worker = shared.clone();
        let worked = tokio::task::spawn_blocking(move || {
            // A pause that begins now waits for it.
            let Some(_under_way) = worker.pauses.enter_now() else { return Ok(false) };
            let began = Watch::start();
            let worked = step(&worker, now());
            worker.latency.note(event::EXPIRE_CYCLE, began.nanos());
            worked
        })
        .await;
        if matches!(worked, Ok(Ok(_))) {
            rest = PAUSE;
        }
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
                tokio::time::sleep(rest).await;
                rest = (2 * rest).min(REST);
            }
            Err(_) => return,
        }
    }
}

/// Removes some; false if there are none.
pub(crate) fn step(shared: &Shared, now: u64) -> Result<bool> {
    match shared.end_unfinished() {
        // What is removed here makes room for it.
        Ok(()) | Err(Error::Full(_) | Error::Memory(_) | Error::LogFull(_) | Error::Limit(_)) => {}
        Err(error) => return Err(error),
    }
    if !shared.ids.are_drawn() {
        match shared.ids.draw_again(&*shared.engine, shared.failpoints) {
            Ok(()) | Err(Error::Full(_) | Error::Memory(_) | Error::LogFull(_)) => {}
            Err(error) => return Err(error),
        }
    }
    check_old_notes(shared, now)?;
    let mut most = AT_ONCE;
    let (worked, gone) = loop {
        match reap(shared, now, most) {
            // A full store may have room for a few.
            Err(Error::Full(_) | Error::LogFull(_) | Error::Limit(_)) if most > 1 => most /= 2,
            reaped => break reaped?,
        }
    };
    shared.reaped.fetch_add(gone as u64, Relaxed);
    Ok(shared.engine.sweep(now)? || worked)
}

/// Before a note of an older version counts, all of them are looked at; in a full store what else is removed makes room for that.
fn check_old_notes(shared: &Shared, now: u64) -> Result<()> {
    if shared.notes_wait.lock().is_some_and(|since| Duration::from_nanos(since.nanos()) < REST) {
        return Ok(());
    }
    let mut is_due = false;
    shared.engine.read(&mut |tx| {
        is_due = first_due(tx, now)?.is_some_and(|(note, _)| notes::is_old(&note));
        Ok(())
    })?;
    if !is_due {
        return Ok(());
    }
    let checked = notes::check_old(&*shared.engine, AT_ONCE);
    let no_room = matches!(checked, Err(Error::Full(_) | Error::Memory(_) | Error::LogFull(_) | Error::Limit(_)));
    // All notes, and perhaps all keys, were looked at for nothing: not again for a while.
    *shared.notes_wait.lock() = no_room.then(Watch::start);
    if no_room { Ok(()) } else { checked }
}

fn reap(shared: &Shared, now: u64, most: usize) -> Result<(bool, usize)> {
    let mut done = (false, 0);
    shared.engine.write(&mut |tx| {
        done = remove_some(tx, now, most)?;
        Ok(())
    })?;
    Ok(done)
}

/// Removes so many elements and notes at most; whether there were any, and how many elements. Many small collections go together: one a transaction would
/// keep a full store full for seconds.
fn remove_some(tx: &mut dyn Tx, now: u64, most: usize) -> Result<(bool, usize)> {
    let (mut left, mut gone) = (most, 0);
    while left > 0 {
        let Some((note, id)) = next(tx, now)? else { break };
        let swept = sweep(tx, id.as_deref(), left)?;
        gone += swept;
        left -= swept;
        if left > 0 {
            tx.delete(&note)?;
            left -= 1;
        }
    }
    Ok((left < most, gone))
}

/// A key, and what the keys of elements begin with that go with it, if any do: an id, and perhaps more.
type Note = (Vec<u8>, Option<Vec<u8>>);

/// A note that is due, and whose elements have no owner.
fn next(tx: &dyn Tx, now: u64) -> Result<Option<Note>> {
    if let Some((garbage, _)) = first(tx, Keys::prefix(&[GARBAGE]))? {
        let id = garbage.get(1..9).map(<[u8]>::to_vec);
        return Ok(Some((garbage, id)));
    }
    if let Some((part, _)) = first(tx, Keys::prefix(&[PARTS]))? {
        let elements = part.get(1..).map(<[u8]>::to_vec).filter(|begin| begin.len() > 8);
        return Ok(Some((part, elements)));
    }
    let Some((due, owner)) = first_due(tx, now)?.filter(|(note, _)| !notes::is_old(note)) else { return Ok(None) };
    let Some((moment, id)) = notes::named(&due) else { return Ok(Some((due, None))) };
    let head = tx.get(&owner)?.and_then(Head::read).filter(|head| head.id == id);
    // A clock that was set back in between: it is not due yet.
    if head.is_some_and(|head| head.expires() == Some(moment)) {
        return Ok(None);
    }
    let id = if head.is_some() { None } else { Some(id.to_be_bytes().to_vec()) };
    Ok(Some((due, id)))
}

/// The note that was due first.
fn first_due(tx: &dyn Tx, now: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    first(tx, Keys::prefix(&[DUE]).until(&[&[DUE], &now.to_be_bytes()[..]].concat()))
}

/// Removes some elements of an id, and tells how many.
fn sweep(tx: &mut dyn Tx, id: Option<&[u8]>, most: usize) -> Result<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remove::tests::Pairs;

    /// To find out what old notes are about all keys may be looked at: not twice a second in a store that stays full.
    #[test]
    fn old_notes_rest_when_there_was_no_room_to_replace_them() {
        use std::sync::atomic::Ordering::SeqCst;
        let dir = tempfile::tempdir().unwrap();
        let engine = notes::tests::Refusing::create(&dir.path().join("s"));
        let (refusals, reads) = (engine.refusals.clone(), engine.reads.clone());
        let shared = crate::shared::tests::shared(Box::new(engine));
        notes::tests::write_old(&*shared.engine, 5, 300);
        refusals.store(usize::MAX, SeqCst);
        reads.store(0, SeqCst);
        for _ in 0..3 {
            check_old_notes(&shared, 1000).unwrap();
        }
        assert_eq!(reads.load(SeqCst), 2, "whether one is due, and all of them, once");
        // When the rest is over, and there is room.
        refusals.store(0, SeqCst);
        *shared.notes_wait.lock() = None;
        check_old_notes(&shared, 1000).unwrap();
        assert_eq!(reads.load(SeqCst), 4);
        check_old_notes(&shared, 1000).unwrap();
        assert!(reads.load(SeqCst) == 5 && shared.notes_wait.lock().is_none());
    }

    /// Of as many collections as fit into one transaction; what is larger than one goes on in the next.
    #[test]
    fn small_collections_go_together() {
        let mut pairs = Pairs::default();
        let (notes, each, large) = (40_u64, 5_u64, 900_u64);
        for id in 0..=notes {
            pairs.put(&[&[GARBAGE], &id.to_be_bytes()[..]].concat(), &[], None).unwrap();
            for element in 0..if id == notes { large } else { each } {
                let key = [&[ELEMENTS], &id.to_be_bytes()[..], &element.to_be_bytes()].concat();
                pairs.put(&key, &[], None).unwrap();
            }
        }
        let most = AT_ONCE;
        let (mut steps, mut gone) = (0, 0);
        loop {
            let before = pairs.len();
            let (worked, some) = remove_some(&mut pairs, 0, most).unwrap();
            assert!(before - pairs.len() <= most, "no more than {most} at once");
            (steps, gone) = (steps + u64::from(worked), gone + some as u64);
            if !worked {
                break;
            }
        }
        assert_eq!((gone, pairs.len()), (notes * each + large, 0));
        assert_eq!(steps, (notes * (each + 1) + large + 1).div_ceil(most as u64), "each transaction is full");
        // One at a time, too: what a full store may have room for.
        pairs.put(&[&[GARBAGE], &7_u64.to_be_bytes()[..]].concat(), &[], None).unwrap();
        pairs.put(&[&[ELEMENTS], &7_u64.to_be_bytes()[..], b"e"].concat(), &[], None).unwrap();
        let one = |pairs: &mut Pairs| remove_some(pairs, 0, 1).unwrap();
        assert_eq!([one(&mut pairs), one(&mut pairs), one(&mut pairs)], [(true, 1), (true, 0), (false, 0)]);
    }

    #[test]
    fn what_has_an_owner_is_spared() {
        let head = Head::new(crate::data::Kind::Set, 7).expiring(Some(5));
        // Its clock is behind; its note does not hold; it is gone.
        for (owner, worked, gone, left) in
            [(Some(head), false, 0, 3), (Some(head.expiring(None)), true, 0, 2), (None, true, 1, 0)]
        {
            let mut pairs = Pairs::default();
            pairs.put(&head.element(&[b"e"]), &[], None).unwrap();
            notes::write(&mut pairs, b"\0key", &head).unwrap();
            owner.map_or(Ok(()), |head| pairs.put(b"\0key", &head.write(), None)).unwrap();
            assert_eq!((remove_some(&mut pairs, 6, AT_ONCE).unwrap(), pairs.len()), ((worked, gone), left));
        }
    }
}
