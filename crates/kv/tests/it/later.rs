//! Commits that are awaited.

use kv::{Isolation, Options, Store};
use pmem::DomainChoice;

fn on_a_file(dir: &tempfile::TempDir) -> Store {
    let pool = pmem::Options::new().domain(DomainChoice::File);
    Options::new().pool(pool).background(false).create(dir.path().join("store")).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn commits_under_way_at_once_share_syncs_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_a_file(&dir);
    const COMMITS: u64 = 300;
    let before = store.stats().pool.syncs;
    let times = runtime().block_on(async {
        let commits: Vec<_> = (0..COMMITS)
            .map(|n| {
                let mut tx = store.begin(Isolation::Serializable).unwrap();
                tx.put(&key(n), b"value").unwrap();
                tokio::spawn(tx.commit_async())
            })
            .collect();
        let mut times = Vec::new();
        for commit in commits {
            times.push(commit.await.unwrap().unwrap());
        }
        times
    });
    let syncs = store.stats().pool.syncs - before;
    assert!((1..COMMITS).contains(&syncs), "{syncs} syncs for {COMMITS} commits");
    times.iter().for_each(|at| assert!(at.get() > 0));
    store.abandon();
    let store = Options::new().open(dir.path().join("store")).unwrap();
    assert!((0..COMMITS).all(|n| store.get(&key(n)).unwrap().is_some()));
}

#[test]
fn an_awaited_commit_tells_of_its_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_a_file(&dir);
    let mut first = store.begin(Isolation::Serializable).unwrap();
    let mut second = store.begin(Isolation::Serializable).unwrap();
    assert!(first.get(&key(2)).unwrap().is_none() && second.get(&key(1)).unwrap().is_none());
    first.put(&key(1), b"").unwrap();
    second.put(&key(2), b"").unwrap();
    let results = runtime().block_on(async { [first.commit_async().await, second.commit_async().await] });
    assert!(results[0].is_ok() && results[1].as_ref().is_err_and(kv::Error::is_conflict), "{results:?}");
}

#[test]
fn a_commit_comes_to_its_end_though_nobody_looks() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_a_file(&dir);
    for n in 0..20 {
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        tx.put(&key(n), b"value").unwrap();
        drop(tx.commit_async());
    }
    // A caller that waits for a key that is being written needs no thread but the store's.
    store.put(&key(0), b"later").unwrap();
    let mut last = store.begin(Isolation::Serializable).unwrap();
    last.put(b"last", b"").unwrap();
    last.commit_async().wait().unwrap();
    store.abandon();
    // The threads that commit for others may hold it a little longer.
    let store = loop {
        match Options::new().open(dir.path().join("store")) {
            Err(kv::Error::Pool(pmem::Error::AlreadyOpen { .. } | pmem::Error::Busy { .. })) => {
                std::thread::yield_now()
            }
            other => break other.unwrap(),
        }
    };
    assert_eq!(store.get(&key(0)).unwrap().as_deref(), Some(&b"later"[..]));
    assert!((1..20).all(|n| store.get(&key(n)).unwrap().is_some()));
}

#[test]
fn a_store_can_be_closed_when_its_commits_were_awaited() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..20 {
        let store = Options::new().open_or_create(dir.path().join("store")).unwrap();
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        tx.put(&key(n), b"value").unwrap();
        tx.commit_async().wait().unwrap();
        store.close().unwrap();
    }
}

#[test]
fn where_barriers_are_short_the_result_is_there_at_once() {
    let dir = crate::memory();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let store = Options::new().pool(pool).create(dir.path().join("store")).unwrap();
    let mut tx = store.begin(Isolation::Serializable).unwrap();
    tx.put(&key(1), b"value").unwrap();
    let commit = tx.commit_async();
    assert_eq!(format!("{commit:?}"), "Commit(done)");
    assert!(store.get(&key(1)).unwrap().is_some());
    commit.wait().unwrap();
}
