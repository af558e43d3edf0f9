//! When which key expires, as far as it is known: the store removes keys in silence and in its own time, so while these are wanted, the server remembers.

use std::collections::{BTreeMap, BTreeSet};

use super::Expiry;

/// Keys that are looked at in one transaction.
pub(crate) const AT_ONCE: usize = 1000;

/// When keys, as they are in the store, expire.
#[derive(Default)]
pub(super) struct Due {
    moments: BTreeMap<(u64, Vec<u8>), ()>,
    keys: BTreeMap<Vec<u8>, u64>,
    /// While the store is looked through: keys that have changed, and databases that were emptied, since a look began.
    pub(super) touched: Option<(BTreeSet<Vec<u8>>, BTreeSet<u8>)>,
}

impl Due {
    /// What a transaction has changed, and what a look has not found: the keys that are known to have expired by that. A key that a transaction has not found was removed by none before it, or that would be
    /// known here.
    pub(super) fn learn(
        &mut self,
        changes: &[Expiry],
        missing: &[(Vec<u8>, u64)],
        emptied: &[(usize, u8)],
    ) -> Vec<Vec<u8>> {
        if let Some((keys, databases)) = &mut self.touched {
            keys.extend(changes.iter().map(|change| change.key.clone()));
            databases.extend(emptied.iter().map(|(_, db)| *db));
        }
        let mut expired = Vec::new();
        for (key, moment) in missing {
            if self.keys.get(key) == Some(moment) {
                self.forget(key);
                expired.push(key.clone());
            }
        }
        let mut emptied = emptied.iter().peekable();
        for (at, Expiry { key, was_there, moment }) in changes.iter().enumerate() {
            // What is not there since it was removed has not expired.
            while let Some((_, db)) = emptied.next_if(|(behind, _)| *behind <= at) {
                self.forget_all(*db);
            }
            if self.forget(key) && !was_there {
                expired.push(key.clone());
            }
            if let Some(moment) = moment {
                self.add(key, *moment);
            }
        }
        emptied.for_each(|(_, db)| self.forget_all(*db));
        expired
    }

    fn forget_all(&mut self, db: u8) {
        let all: Vec<_> = self.keys.range(vec![db]..vec![db + 1]).map(|(key, _)| key.clone()).collect();
        for key in all {
            self.forget(&key);
        }
    }

    /// True if it was known.
    fn forget(&mut self, key: &[u8]) -> bool {
        let known = self.keys.remove(key);
        known.is_some_and(|moment| self.moments.remove(&(moment, key.to_vec())).is_some())
    }

    /// Unless it is known.
    fn add(&mut self, key: &[u8], moment: u64) {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_vec(), moment);
            self.moments.insert((moment, key.to_vec()), ());
        }
    }

    /// What a look has found, which began when `touched` was set, unless more is known of it since; nothing of one that began before all was forgotten.
    pub(super) fn found(&mut self, all: Vec<(Vec<u8>, u64)>) {
        let Some((keys, databases)) = self.touched.take() else { return };
        for (key, moment) in all {
            if !keys.contains(&key) && !key.first().is_some_and(|db| databases.contains(db)) {
                self.add(&key, moment);
            }
        }
    }

    /// Some that are due, and when they were.
    pub(super) fn some(&self, now: u64) -> Vec<(Vec<u8>, u64)> {
        let due = self.moments.range(..(now + 1, Vec::new())).take(AT_ONCE);
        due.map(|((moment, key), ())| (key.clone(), *moment)).collect()
    }

    /// A key that was due is there, and expires then, if it does.
    pub(super) fn delay(&mut self, key: &[u8], was: u64, moment: Option<u64>) {
        if self.keys.get(key) == Some(&was) {
            self.forget(key);
            if let Some(moment) = moment {
                self.add(key, moment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    fn change(text: &str, was_there: bool, moment: Option<u64>) -> Expiry {
        Expiry { key: key(text), was_there, moment }
    }

    /// All is forgotten while a look is under way: what that has found may be gone since, and no change would have noted it.
    #[test]
    fn a_look_that_began_before_all_was_forgotten_adds_nothing() {
        let mut due = Due { touched: Some(Default::default()), ..Due::default() };
        due.found(vec![(key("a"), 5)]);
        assert_eq!(due.some(9), [(key("a"), 5)]);
        due.touched = Some(Default::default());
        due = Due::default();
        due.found(vec![(key("b"), 6)]);
        assert_eq!(due.some(9), []);
    }

    fn missing(due: &mut Due, now: u64) -> Vec<Vec<u8>> {
        let some = due.some(now);
        due.learn(&[], &some, &[])
    }

    #[test]
    fn keys_are_due_once_and_at_their_last_moment() {
        let mut due = Due::default();
        let made = ["\0a", "\0b", "\x01c"].map(|text| change(text, false, Some(5 + u64::from(text == "\0b"))));
        assert!(due.learn(&made, &[], &[]).is_empty());
        assert!(due.learn(&[change("\0a", true, Some(7))], &[], &[]).is_empty(), "it was there");
        due.add(b"\0a", 5);
        let some = due.some(6);
        assert_eq!(missing(&mut due, 6), [key("\x01c"), key("\0b")]);
        assert!(due.learn(&[], &some, &[]).is_empty() && due.some(6).is_empty());
        let made = ["\x01d", "\x02e"].map(|text| change(text, false, Some(1)));
        due.learn(&made, &[], &[(0, 0), (2, 1)]);
        due.learn(&[], &[], &[(0, 1)]);
        due.learn(&[change("\x02e", true, None)], &[], &[]);
        assert!(due.some(u64::MAX - 1).is_empty() && due.keys.is_empty());
    }

    #[test]
    fn who_makes_a_key_anew_is_told_behind_its_end() {
        let mut due = Due::default();
        due.learn(&[change("\0a", false, Some(5))], &[], &[]);
        let looked = due.some(6);
        // A change that did not find it says that it had expired, and the look that was on its way says nothing.
        assert_eq!(due.learn(&[change("\0a", false, Some(9))], &[], &[]), [key("\0a")]);
        assert!(due.learn(&[], &looked, &[]).is_empty());
        // One that overwrites or removes it before does not; nor one that makes what was removed.
        assert!(due.learn(&[change("\0a", true, None), change("\0a", false, Some(12))], &[], &[]).is_empty());
        due.delay(b"\0a", 9, Some(20));
        assert_eq!(due.some(12), [(key("\0a"), 12)], "more is known since");
        due.delay(b"\0a", 12, Some(20));
        assert!(due.some(19).is_empty() && due.some(20).len() == 1);
    }

    /// A transaction makes a key that expires, empties the database, and makes the key again.
    #[test]
    fn what_was_removed_with_its_database_has_not_expired() {
        let mut due = Due::default();
        let changes = [change("\0a", false, Some(5)), change("\0a", false, None), change("\0b", false, Some(6))];
        assert!(due.learn(&changes, &[], &[(1, 0)]).is_empty());
        assert_eq!(missing(&mut due, 9), [key("\0b")]);
        due.learn(&[change("\0c", false, Some(5))], &[], &[]);
        // It had expired before the transaction.
        let changes = [change("\0c", false, Some(9))];
        assert_eq!(due.learn(&changes, &[], &[(1, 0)]), [key("\0c")]);
        assert!(due.keys.is_empty() && due.moments.is_empty());
    }

    #[test]
    fn what_a_look_has_found_is_older_than_what_was_told_meanwhile() {
        let mut due = Due { touched: Some(Default::default()), ..Due::default() };
        due.learn(&[change("\0a", true, None), change("\0b", true, Some(9))], &[], &[(0, 2)]);
        due.found(["\0a", "\0b", "\0c", "\x02d"].map(|text| (key(text), 1)).to_vec());
        assert_eq!(missing(&mut due, 1), [key("\0c")]);
        assert_eq!(missing(&mut due, 9), [key("\0b")]);
        assert!(due.keys.is_empty() && due.touched.is_none());
    }
}
