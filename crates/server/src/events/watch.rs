//! Tells of keys that have expired. The store removes them in silence and in its own time, so while somebody wants to be told, the server remembers when which key expires.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
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
}

impl Due {
    /// What a transaction has changed.
    pub(super) fn learn(&mut self, changes: &[(Vec<u8>, Option<u64>)], emptied: &[u8]) {
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
        let worker = shared.clone();
        // From here on every change is learnt; what was there before is looked for.
        if !matches!(tokio::task::spawn_blocking(move || seed(&worker)).await, Ok(Ok(()))) {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        while shared.events.wants(class::EXPIRED) {
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
        // Changes that this does not see are learnt behind it, as the line stands still.
        let mut line = shared.events.line.lock();
        shared.look(&mut |tx| {
            let (mut found, mut failed, mut seen) = (Vec::new(), None, 0);
            next = Vec::new();
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
            if let Some(error) = failed {
                return Err(error);
            }
            found.iter().for_each(|(key, moment)| line.due.add(key, *moment));
            Ok(())
        })?;
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
}
