//! Tells of keys that have expired. The store removes them in silence and in its own time, so while somebody wants to be told, the server remembers when which key expires.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tx::Keys;

use super::{Event, Told, class};
use crate::data::DATABASES;
use crate::engine::Result;
use crate::shared::{Shared, now};

/// Between two looks at what is due.
const PAUSE: Duration = Duration::from_millis(50);
/// Keys that are looked at in one transaction.
const AT_ONCE: usize = 1000;

/// When keys, as they are in the store, expire.
#[derive(Default)]
pub(super) struct Due {
    moments: BTreeMap<(u64, Vec<u8>), ()>,
    keys: BTreeMap<Vec<u8>, u64>,
    /// While the store is looked through: keys that have changed, and databases that were emptied, since a look began.
    touched: Option<(BTreeSet<Vec<u8>>, BTreeSet<u8>)>,
}

impl Due {
    /// What a transaction has changed.
    pub(super) fn learn(&mut self, changes: &[(Vec<u8>, Option<u64>)], emptied: &[u8]) {
        if let Some((keys, databases)) = &mut self.touched {
            keys.extend(changes.iter().map(|(key, _)| key.clone()));
            databases.extend(emptied);
        }
        for db in emptied {
            let all: Vec<_> = self.keys.range(vec![*db]..vec![db + 1]).map(|(key, _)| key.clone()).collect();
            all.iter().for_each(|key| self.forget(key));
        }
        for (key, moment) in changes {
            self.forget(key);
            if let Some(moment) = moment {
                self.add(key, *moment);
            }
        }
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(moment) = self.keys.remove(key) {
            self.moments.remove(&(moment, key.to_vec()));
        }
    }

    /// Unless it is known.
    fn add(&mut self, key: &[u8], moment: u64) {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_vec(), moment);
            self.moments.insert((moment, key.to_vec()), ());
        }
    }

    /// What a look has found, which began when `touched` was set, unless more is known of it since.
    fn found(&mut self, all: Vec<(Vec<u8>, u64)>) {
        let (keys, databases) = self.touched.take().unwrap_or_default();
        for (key, moment) in all {
            if !keys.contains(&key) && !key.first().is_some_and(|db| databases.contains(db)) {
                self.add(&key, moment);
            }
        }
    }

    /// Takes out some that are due.
    fn take(&mut self, now: u64) -> Vec<Vec<u8>> {
        let due = self.moments.range(..(now + 1, Vec::new())).take(AT_ONCE);
        let keys: Vec<Vec<u8>> = due.map(|((_, key), ())| key.clone()).collect();
        keys.iter().for_each(|key| self.forget(key));
        keys
    }
}

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        if !shared.events.wants(class::EXPIRED) {
            shared.events.line.lock().due = Due::default();
            shared.events.changed.notified().await;
            continue;
        }
        let (worker, changes) = (shared.clone(), shared.events.changes.load(Relaxed));
        // From here on every change is learnt; what was there before is looked for.
        shared.events.line.lock().due = Due::default();
        if !matches!(tokio::task::spawn_blocking(move || seed(&worker)).await, Ok(Ok(()))) {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        while shared.events.wants(class::EXPIRED) && shared.events.changes.load(Relaxed) == changes {
            let due = shared.events.line.lock().due.take(now());
            if due.is_empty() {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let worker = shared.clone();
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || tell(&worker, &due)).await {
                tracing::warn!("that keys have expired was not told: {error}");
            }
        }
    }
}

/// All keys that are to expire.
fn seed(shared: &Shared) -> Result<()> {
    let mut next = vec![0];
    while let Some(from) = Some(std::mem::take(&mut next)).filter(|from| !from.is_empty()) {
        // The line is not held while the store is looked at: who waits for it may hold what this waits for.
        shared.events.line.lock().due.touched = Some(Default::default());
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
        shared.events.line.lock().due.found(found);
    }
    Ok(())
}

/// Tells of those that are gone; what was set anew in the meantime is kept for later.
fn tell(shared: &Arc<Shared>, due: &[Vec<u8>]) -> Result<()> {
    let (mut gone, mut later) = (Vec::new(), Vec::new());
    shared.look(&mut |tx| {
        (gone, later) = (Vec::new(), Vec::new());
        for key in due {
            match tx.get(key)? {
                None => gone.push(Event { class: class::EXPIRED, name: "expired", key: key.clone() }),
                Some(_) => later.extend(tx.expires(key)?.map(|moment| (key.clone(), moment))),
            }
        }
        Ok(())
    })?;
    let mut line = shared.events.line.lock();
    later.iter().for_each(|(key, moment)| line.due.add(key, *moment));
    drop(line);
    if let Some(ticket) = shared.events.ticket(shared, Told { events: gone, ..Told::default() }) {
        ticket.tell();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_due_once_and_at_their_last_moment() {
        let mut due = Due::default();
        let key = |text: &str| text.as_bytes().to_vec();
        due.learn(&[(key("\0a"), Some(5)), (key("\0b"), Some(6)), (key("\x01c"), Some(5))], &[]);
        due.learn(&[(key("\0a"), Some(7))], &[]);
        due.add(b"\0a", 5);
        assert_eq!(due.take(6), [key("\x01c"), key("\0b")]);
        assert_eq!(due.take(6), Vec::<Vec<u8>>::new());
        due.learn(&[(key("\x01d"), Some(1)), (key("\x02e"), Some(1))], &[0, 1]);
        due.learn(&[], &[1]);
        due.learn(&[(key("\x02e"), None)], &[]);
        assert!(due.take(u64::MAX - 1).is_empty() && due.keys.is_empty());
    }

    #[test]
    fn what_a_look_has_found_is_older_than_what_was_told_meanwhile() {
        let mut due = Due { touched: Some(Default::default()), ..Due::default() };
        let key = |text: &str| text.as_bytes().to_vec();
        due.learn(&[(key("\0a"), None), (key("\0b"), Some(9))], &[2]);
        due.found(["\0a", "\0b", "\0c", "\x02d"].map(|text| (key(text), 1)).to_vec());
        assert_eq!(due.take(1), [key("\0c")]);
        assert_eq!(due.take(9), [key("\0b")]);
        assert!(due.keys.is_empty() && due.touched.is_none());
    }
}
