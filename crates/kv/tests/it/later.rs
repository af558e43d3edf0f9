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

/// Commits that begin while the first is held before its sync, for longer in each round: where a sync takes no time, and a machine is busy, each might be over before the next begins.
#[test]
fn commits_under_way_at_once_share_syncs_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_a_file(&dir);
    const COMMITS: u64 = 300;
    let shares = (1..=20_u64).any(|round| {
        let before = store.stats().pool.syncs;
        let (begun, all_begun) = std::sync::mpsc::channel();
        let all_begun = std::sync::Mutex::new(all_begun);
        let hold = move || {
            let _: Result<(), _> = all_begun.lock().unwrap().recv();
            std::thread::sleep(std::time::Duration::from_millis(round * round));
        };
        let times = runtime().block_on(async {
            let mut hold = Some(hold);
            let commits: Vec<_> = (0..COMMITS)
                .map(|n| {
                    let mut tx = store.begin(Isolation::Serializable).unwrap();
                    tx.put(&key(n), b"value").unwrap();
                    tokio::spawn(match hold.take() {
                        Some(hold) => tx.commit_async_told(move |_| hold()),
                        None => tx.commit_async(),
                    })
                })
                .collect();
            drop(begun);
            let mut times = Vec::new();
            for commit in commits {
                times.push(commit.await.unwrap().unwrap());
            }
            times
        });
        let syncs = store.stats().pool.syncs - before;
        assert!((1..=COMMITS).contains(&syncs), "{syncs} syncs for {COMMITS} commits");
        times.iter().for_each(|at| assert!(at.get() > 0));
        syncs < COMMITS
    });
    assert!(shares, "each has its own sync");
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

/// One that meets a conflict has no place in the order, and is told of none.
#[test]
fn a_commit_tells_of_its_place_in_the_order_and_a_conflict_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_a_file(&dir);
    let mut first = store.begin(Isolation::Serializable).unwrap();
    let mut second = store.begin(Isolation::Serializable).unwrap();
    assert!(second.get(&key(1)).unwrap().is_none());
    first.put(&key(1), b"").unwrap();
    second.put(&key(2), b"").unwrap();
    let told = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let syncs = store.stats().pool.syncs;
    for (tx, is_committed) in [(first, true), (second, false)] {
        let hears = told.clone();
        let result = tx.commit_async_told(move |stage| hears.lock().push(stage)).wait();
        assert_eq!(result.is_ok(), is_committed, "{result:?}");
    }
    assert_eq!(*told.lock(), [kv::Stage::Ordered]);
    assert!(store.stats().pool.syncs > syncs);
}

/// What it tells is the caller's, and no other commit waits for it, nor ends by it.
#[test]
fn a_commit_goes_on_when_what_it_tells_panics() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_a_file(&dir);
    let commit = |n: u64| {
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        tx.put(&key(n), b"").unwrap();
        tx
    };
    commit(1).commit_async_told(|_| panic!("as a test has it")).wait().unwrap();
    commit(2).commit_async().wait().unwrap();
    assert!((1..3).all(|n| store.get(&key(n)).unwrap().is_some()));
}
