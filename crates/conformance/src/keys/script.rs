//! Transactions that take steps by script, and what came of them.

use std::ops::ControlFlow;

use tx::{Error, ErrorKind, Isolation, Keys, Kv, KvTx, Result};

use super::Subject;

/// A key and a number, as scripts use them.
pub(super) type Pair = (String, i64);

/// Two pairs to begin with, as in Hermitage.
pub(super) const TWO: &[(&str, i64)] = &[("1", 10), ("2", 20)];

/// Runs a script at each level of the subject, on a store with these pairs.
pub(super) fn each_level<S: Subject>(s: &S, begin: &[(&str, i64)], script: impl Fn(&Stage<'_, S>)) {
    for &level in s.levels() {
        let store = s.fresh();
        // Not the first commits of the store.
        for (key, value) in [("zz", 1)].iter().chain(begin) {
            must(&store, |tx| tx.put(key.as_bytes(), value.to_string().as_bytes()).map(drop));
        }
        must(&store, |tx| tx.delete(b"zz").map(drop));
        let real_time = s.real_time() || level == Isolation::Strict;
        script(&Stage { store: &store, level, kept: s.kept(level), real_time, skews: s.skews() });
    }
}

/// Runs it at the strongest level; it must succeed.
#[track_caller]
pub(super) fn must<'s, K: Kv, R>(store: &'s K, f: impl FnMut(&mut K::Tx<'s>) -> Result<R>) -> R {
    match store.transact(Isolation::Strict, f) {
        Ok(value) => value,
        Err(e) => panic!("should have worked: {e}"),
    }
}

/// True for errors that say: not at the same time as the other one. Scripts play all transactions on one thread.
pub(super) fn is_conflict(e: &Error) -> bool {
    e.kind() == ErrorKind::Retry || matches!(e, Error::OwnConflict { .. })
}

/// All pairs of `keys`.
pub(super) fn pairs<X: KvTx>(tx: &X, keys: &Keys) -> Result<Vec<Pair>> {
    let mut found = Vec::new();
    tx.scan(keys, &mut |key, value| {
        found.push((String::from_utf8_lossy(key).into_owned(), number(value)));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn number(value: &[u8]) -> i64 {
    match String::from_utf8_lossy(value).parse() {
        Ok(number) => number,
        Err(_) => panic!("a value that nobody wrote: {value:?}"),
    }
}

pub(super) fn owned(pairs: &[(&str, i64)]) -> Vec<Pair> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value)).collect()
}

/// A store, and the level of the script's transactions.
pub(super) struct Stage<'s, S: Subject> {
    store: &'s S::Store,
    pub(super) level: Isolation,
    pub(super) kept: Isolation,
    /// A transaction that begins after a commit sees it.
    pub(super) real_time: bool,
    skews: bool,
}

impl<'s, S: Subject> Stage<'s, S> {
    #[track_caller]
    pub(super) fn begin(&self) -> Actor<'s, S> {
        match self.store.begin(self.level) {
            Ok(tx) => {
                Actor { tx: Some(tx), level: self.level, wrong: None, late: false, saw_later: false, committed: false }
            }
            Err(e) => panic!("at {}: no transaction: {e}", self.level),
        }
    }

    pub(super) fn actors<const N: usize>(&self) -> [Actor<'s, S>; N] {
        std::array::from_fn(|_| self.begin())
    }

    /// The store has one of these contents.
    #[track_caller]
    pub(super) fn ends_as(&self, allowed: &[&[(&str, i64)]]) {
        let found = must(self.store, |tx| pairs(tx, &Keys::all()));
        assert!(allowed.iter().any(|pairs| found == owned(pairs)), "at {}: {found:?}, allowed {allowed:?}", self.level);
    }

    /// Write skew of these: forbidden above snapshot.
    #[track_caller]
    pub(super) fn skew(&self, actors: &[&Actor<'s, S>]) {
        let all = actors.iter().all(|actor| actor.committed);
        if self.kept >= Isolation::Serializable {
            assert!(!all, "at {}: all committed, in no order", self.level);
        } else if self.skews {
            assert!(all, "at {}: readers have cost a writer its commit", self.level);
        }
    }

    /// No level allows that all commit.
    #[track_caller]
    pub(super) fn not_all(&self, actors: &[&Actor<'s, S>]) {
        assert!(!actors.iter().all(|actor| actor.committed), "at {}: all committed", self.level);
    }
}

/// A transaction of a script. One that has met a conflict takes no more steps.
pub(super) struct Actor<'s, S: Subject> {
    tx: Option<<S::Store as Kv>::Tx<'s>>,
    level: Isolation,
    /// What it must not have seen, if it commits.
    wrong: Option<String>,
    /// It began before, but looks only after another one's commit: it may see it.
    pub(super) late: bool,
    /// And it did.
    pub(super) saw_later: bool,
    pub(super) committed: bool,
}

impl<'s, S: Subject> Actor<'s, S> {
    #[track_caller]
    fn step<R>(&mut self, f: impl FnOnce(&mut <S::Store as Kv>::Tx<'s>) -> Result<R>) -> Option<R> {
        let tx = self.tx.as_mut()?;
        match f(tx) {
            Ok(value) => Some(value),
            Err(e) => {
                assert!(is_conflict(&e), "at {}: not a conflict: {e}", self.level);
                assert!(tx.doom().is_some(), "at {}: an error does not show as doom", self.level);
                let late = self.tx.take().map(KvTx::commit);
                assert!(matches!(late, Some(Err(_))), "at {}: committed after an error", self.level);
                None
            }
        }
    }

    #[track_caller]
    pub(super) fn get(&mut self, key: &str) -> Option<Option<i64>> {
        self.step(|tx| Ok(tx.get(key.as_bytes())?.map(number)))
    }

    #[track_caller]
    pub(super) fn put(&mut self, key: &str, value: i64) -> Option<bool> {
        self.step(|tx| tx.put(key.as_bytes(), value.to_string().as_bytes()))
    }

    #[track_caller]
    pub(super) fn delete(&mut self, key: &str) -> Option<bool> {
        self.step(|tx| tx.delete(key.as_bytes()))
    }

    #[track_caller]
    pub(super) fn scan(&mut self, keys: &Keys) -> Option<Vec<Pair>> {
        self.step(|tx| pairs(tx, keys))
    }

    /// Scans, and stops at the first pair, which is this one.
    #[track_caller]
    pub(super) fn sees_first(&mut self, keys: &Keys, pair: (&str, i64)) {
        let seen = self.step(|tx| {
            let mut first = None;
            tx.scan(keys, &mut |key, value| {
                assert!(first.is_none(), "a scan goes on after it was stopped");
                first = Some((String::from_utf8_lossy(key).into_owned(), number(value)));
                ControlFlow::Break(())
            })?;
            Ok(first)
        });
        self.expect("the first pair", seen, &[Some((pair.0.to_owned(), pair.1))]);
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, seen: Option<T>, expected: &[T]) {
        if let Some(seen) = seen
            && !expected.contains(&seen)
        {
            if self.late {
                self.saw_later = true;
                return;
            }
            self.wrong.get_or_insert(format!("{what} was {seen:?}, allowed {expected:?}"));
        }
    }

    /// The key has this value, or the transaction will not commit.
    #[track_caller]
    pub(super) fn sees(&mut self, key: &str, value: impl Into<Option<i64>>) {
        let seen = self.get(key);
        self.expect(key, seen, &[value.into()]);
    }

    /// These are the pairs.
    #[track_caller]
    pub(super) fn sees_all(&mut self, keys: &Keys, pairs: &[(&str, i64)]) {
        self.sees_one_of(keys, &[pairs]);
    }

    /// These are, or these.
    #[track_caller]
    pub(super) fn sees_one_of(&mut self, keys: &Keys, allowed: &[&[(&str, i64)]]) {
        let seen = self.scan(keys);
        let allowed: Vec<_> = allowed.iter().map(|pairs| owned(pairs)).collect();
        self.expect("a scan", seen, &allowed);
    }

    #[track_caller]
    pub(super) fn commit(&mut self) {
        let Some(tx) = self.tx.take() else { return };
        match tx.commit() {
            Ok(()) => self.committed = true,
            Err(e) => assert!(is_conflict(&e), "at {}: not a conflict: {e}", self.level),
        }
        if let (true, Some(wrong)) = (self.committed, &self.wrong) {
            panic!("at {}: committed, but {wrong}", self.level);
        }
    }

    #[track_caller]
    pub(super) fn abort(&mut self) {
        if let Some(Err(e)) = self.tx.take().map(KvTx::abort) {
            panic!("at {}: does not abort: {e}", self.level);
        }
    }
}
