//! The store that leads, as its program sees it: the copies of its log.

use log::Lsn;

use crate::durable::logged::HEAD;
use crate::error::{Error, Result};
use crate::store::Store;

impl Store {
    /// The other copies of the log of a store that leads, in no order: id, how it is doing, through which record it has all. None of any other store.
    #[must_use]
    pub fn copies(&self) -> Vec<(u64, log::ReplicaHealth, Lsn)> {
        self.core.persistence.leading().map(|leading| leading.log().replicas()).unwrap_or_default()
    }

    /// Takes a copy of the log in, one that was given up or a new one, while the store is used: see [`Log::join`](log::Log::join). With a new follower there, give it a [seed](Self::seed) first.
    ///
    /// # Errors
    /// Those of [`Log::join`](log::Log::join); [`Error::Follows`]; [`Error::NotReplicated`].
    pub fn join(&self, address: &str, trust: &log::fabric::Options) -> Result<()> {
        Ok(self.core.persistence.leading()?.log().join(address, trust)?)
    }

    /// A copy of the log may be back at this address: see [`Log::expect_at`](log::Log::expect_at). Nothing for a store that does not lead.
    pub fn expect_copy_at(&self, address: &str) {
        if let Ok(leading) = self.core.persistence.leading() {
            leading.log().expect_at(address);
        }
    }

    /// A copy of the log, by its [id](Self::copies), is lost for good: see [`Log::remove`](log::Log::remove).
    ///
    /// # Errors
    /// [`Error::NoSuchCopy`]; those of [`Log::remove`](log::Log::remove); [`Error::Follows`]; [`Error::NotReplicated`].
    pub fn remove_copy(&self, id: u64) -> Result<()> {
        let log = self.core.persistence.leading()?.log();
        let copies = log.members().0;
        if !copies.contains(&id) {
            return Err(Error::NoSuchCopy { id, copies });
        }
        Ok(log.remove(id)?)
    }

    /// Bytes of the longest transaction of a store that leads, which is one record of its log: its keys and values, and 16 for each of them. A segment of the log
    /// ([`log::Options`]) holds it; more are [`Error::TransactionTooLong`]. None of any other store.
    #[must_use]
    pub fn transaction_max(&self) -> Option<usize> {
        self.core.persistence.leading().map(|leading| leading.log().payload_max() as usize - HEAD).ok()
    }

    /// No other leader can be elected for so long from now: see [`Log::lead_for`](log::Log::lead_for). Nothing for a store that follows, or is its own.
    pub fn lead_for(&self, left: std::time::Duration) {
        if let Ok(leading) = self.core.persistence.leading() {
            leading.log().lead_for(left);
        }
    }

    /// Another one leads, or may: nothing more is committed by this store, and a caller that waits for a commit hears that it is in doubt. See
    /// [`Log::fence`](log::Log::fence). Nothing for a store that does not lead.
    pub fn fence(&self) {
        if let Ok(leading) = self.core.persistence.leading() {
            leading.log().fence();
        }
    }

    /// An error once this store cannot commit any more: too few copies of its log are left, or another one leads. It shows at the next commit by itself; a store that
    /// only reads asks.
    ///
    /// # Errors
    /// Those of [`Log::check_leading`](log::Log::check_leading); [`Error::Follows`]; [`Error::LogInDoubt`] behind a commit that was.
    pub fn check_leading(&self) -> Result<()> {
        if !self.core.persistence.is_replicated() {
            return Ok(()); // it is its own
        }
        let leading = self.core.persistence.leading()?;
        leading.log().check_leading()?;
        leading.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;
    use crate::durable::logged::{CHANGE, Commit};
    use crate::options::Options;
    use crate::txn::later::Commit as Awaited;
    use crate::writers::work::Stage;

    /// The numbers of the commits that the log has, of a store that leads.
    fn in_log(store: &Store) -> Vec<u64> {
        let mut records = store.core.persistence.leading().unwrap().log().iter();
        let commit = || records.next().unwrap().map(|record| Commit::decode(record.payload).unwrap().number);
        std::iter::from_fn(commit).collect()
    }

    /// Barriers of a store, and of this machine's copy of its log.
    fn barriers(store: &Store) -> (u64, u64) {
        let log = store.core.persistence.leading().unwrap().log().pool();
        (store.core.versions.pool().stats().drains, log.stats().drains)
    }

    #[test]
    fn a_commit_has_one_barrier_in_the_log_and_none_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log"));
        let log = log::Options::new().bytes(1 << 20).idle(None);
        let options = Options::new().background(false).replicated(&copies, &log);
        let store = options.create(dir.path().join("store")).unwrap();
        store.put(b"first", b"").unwrap();
        let before = barriers(&store);
        for n in 0..100_u32 {
            store.put(&n.to_be_bytes(), b"value").unwrap();
        }
        assert_eq!(barriers(&store), (before.0, before.1 + 100));
        let batch = (0..50_u32).fold(crate::Batch::new(), |mut batch, n| {
            batch.put(&n.to_be_bytes(), b"other");
            batch
        });
        store.write(&batch).unwrap();
        assert_eq!(barriers(&store), (before.0, before.1 + 101), "however many keys");
        store.sync().unwrap();
        assert_eq!(barriers(&store), (before.0 + 1, before.1 + 101), "all that waits");
    }

    /// The numbers of the commits that a log has when it was cleaned up as far as it can be, and whether a store without any of them leads then.
    fn cleaned_up(without: Option<Step>) -> (Vec<u64>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log"));
        let options = Options { without, ..Options::new() };
        let options = options.replicated(&copies, &log::Options::new().bytes(64 << 10).idle(None));
        let store = options.create(dir.path().join("store")).unwrap();
        for n in 0..10_u8 {
            store.put(&[n], &[n; 2000]).unwrap();
        }
        let core = &store.core;
        core.persistence.trim(&core.versions, core.persistence.leading().unwrap(), true).unwrap();
        core.persistence.leading().unwrap().log().reclaim().unwrap(); // now, and not when the space is needed
        let numbers = in_log(&store);
        store.close().unwrap();
        let leads = match options.open_or_create(dir.path().join("other")) {
            Err(Error::Behind { has: 0, first: 10 }) => false,
            other => other.map(|_| true).unwrap(),
        };
        (numbers, leads)
    }

    #[test]
    fn a_log_that_is_cleaned_up_keeps_its_last_commit() {
        assert_eq!(cleaned_up(None), (vec![10], false));
        assert_eq!(cleaned_up(Some(Step::KeepLastCommit)), (vec![], true), "ten commits are lost, and nobody was told");
    }

    #[test]
    fn whoever_awaits_a_commit_does_not_wait_for_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log"));
        let options = Options::new().replicated(&copies, &log::Options::new().bytes(1 << 20));
        let store = options.create(dir.path().join("store")).unwrap();
        let commit = |key: &[u8], len: usize| {
            let mut tx = store.begin(tx::Isolation::Serializable).unwrap();
            tx.put(key, &vec![7; len]).unwrap();
            tx.commit_async()
        };
        let order = store.core.persistence.leading().unwrap().hold_order();
        let commits = [b"one", b"two"].map(|key| commit(key, 5));
        assert!(commits.iter().all(Awaited::is_running), "no commit gets a number meanwhile");
        drop(order);
        assert!(commits.into_iter().all(|commit| commit.wait().is_ok()));
        assert_eq!(store.get(b"two").unwrap().as_deref(), Some(&[7; 5][..]));
        // One that is told of its stages, which cost nothing.
        let before = barriers(&store);
        let told = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut tx = store.begin(tx::Isolation::Serializable).unwrap();
        tx.put(b"three", b"").unwrap();
        let hears = told.clone();
        tx.commit_async_told(move |stage| hears.lock().push(stage)).wait().unwrap();
        assert_eq!(*told.lock(), [Stage::Ordered, Stage::Here]);
        assert_eq!(barriers(&store), (before.0, before.1 + 1));
        // As long as can be, and one byte more.
        let most = store.transaction_max().unwrap() - CHANGE - 3;
        commit(b"key", most).wait().unwrap();
        assert!(matches!(commit(b"key", most + 1).wait(), Err(Error::TransactionTooLong { .. })));
    }
}
