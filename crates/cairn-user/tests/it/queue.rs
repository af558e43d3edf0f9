//! A queue of jobs in plain keys: workers lease a job for a while, and it comes back if they do not finish it.

use std::error::Error;
use std::time::Duration;

use cairn::Store;
use cairn::kv::Result;

fn push(store: &Store, number: u64, job: &str) -> Result<bool> {
    store.put(format!("job/{number:08}"), job)
}

/// The oldest job that no worker has leased.
fn lease(store: &Store, worker: &str, time: Duration) -> Result<Option<(String, String)>> {
    for entry in store.prefix("job/")? {
        let (key, job) = entry?;
        let (name, job) = (String::from_utf8_lossy(&key).into_owned(), String::from_utf8_lossy(&job).into_owned());
        let lease = format!("lease/{name}");
        let taken = store.transact(|tx| {
            // The job may be done, or leased, since the scan.
            if tx.get(&key)?.is_none() || tx.get(&lease)?.is_some() {
                return Ok(false);
            }
            tx.put_for(&lease, worker, time)?;
            Ok(true)
        })?;
        if taken {
            return Ok(Some((name, job)));
        }
    }
    Ok(None)
}

fn finish(store: &Store, name: &str) -> Result<()> {
    store.transact(|tx| {
        tx.delete(name)?;
        tx.delete(format!("lease/{name}"))?;
        Ok(())
    })
}

#[test]
fn jobs_are_leased_once_and_come_back() -> std::result::Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("jobs.cairn");
    let store = Store::open(&path)?;
    for (number, job) in [(2, "iron"), (1, "wash"), (3, "fold")] {
        push(&store, number, job)?;
    }
    let hour = Duration::from_secs(3600);
    let (first, job) = lease(&store, "a", hour)?.ok_or("no job")?;
    assert_eq!((&first[..], &job[..]), ("job/00000001", "wash"));
    // A lease of no time is over at once: the next worker gets the same job.
    for worker in ["b", "c"] {
        let time = if worker == "b" { Duration::ZERO } else { hour };
        assert_eq!(lease(&store, worker, time)?.map(|(_, job)| job).as_deref(), Some("iron"), "{worker}");
    }
    finish(&store, &first)?;
    drop(store); // closes it

    let store = Store::open_read_only(&path)?;
    let jobs: Result<Vec<_>> = store.prefix("job/")?.rev().map(|entry| Ok(entry?.1)).collect();
    assert_eq!(jobs?, [&b"fold"[..], b"iron"]);
    // What went wrong, and what to do, for a person.
    let error = push(&store, 4, "mangle").unwrap_err();
    assert_eq!(error.kind(), cairn::pmem::ErrorKind::Misuse, "{error}");
    assert_eq!(error.advice(), "change the call: running it again does not help");
    Ok(())
}
