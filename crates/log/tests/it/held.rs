//! A replica that is read where it is served.

use std::time::Duration;

use log::{Cursor, Error, Lsn, Options, Replica, Replicas, check_replica, fabric};

const LONG: Duration = Duration::from_secs(60);

/// A leader waits for the reader before it uses space again; but one that is gone may have moved its head, and the next one begins there.
#[test]
fn what_was_not_read_is_never_passed_over_in_silence() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    let trust = fabric::Options { anyone: true, ..Default::default() };
    let replica = Replica::serve_read(&pool, dir.path().join("replica"), "127.0.0.1:0", trust.clone()).unwrap();
    let address = replica.address().unwrap().to_string();
    let replicas =
        Replicas::new().trust(trust).timeout(LONG).open_timeout(LONG).local(dir.path().join("own")).at(&address);
    let options = Options::new().bytes(64 << 10).segment_bytes(4096).stall_timeout(LONG).pool(pool);
    let log = options.create_replicated(&replicas.clone().write_quorum(2)).unwrap();
    let append = |n: u8| assert!(log.append(&[n; 50]).is_ok());
    let mut cursor = Cursor::default();
    let read =
        |cursor: &mut Cursor| replica.read(cursor, 1 << 20).map(|records| records.into_iter().map(|r| r.0.get()));
    (0..10).for_each(append);
    // The last one is committed when the next one says so.
    let seen: Vec<u64> = read(&mut cursor).unwrap().collect();
    let through = *seen.last().unwrap();
    assert!(through >= 8, "{seen:?}");
    replica.release(Lsn::new(through)).unwrap();
    (10..100).for_each(append);
    log.truncate_to(Lsn::new(90)).unwrap();
    let reclaimed = log.reclaim(); // it tells the replica, which does not agree yet
    log.abandon();

    let (log, found) = options.open_replicated(&replicas).unwrap();
    assert!(found.head.get() > through + 1, "{reclaimed:?}, the new leader begins at {}", found.head);
    log.append(b"one more").unwrap();
    match read(&mut cursor) {
        Ok(mut records) => assert_eq!(records.next(), Some(through + 1), "passed over"),
        Err(Error::Overtaken { wanted, head }) => {
            assert_eq!((wanted.get(), head), (through + 1, found.head));
            assert_eq!(read(&mut Cursor::default()).unwrap().next(), Some(found.head.get()));
        }
        Err(error) => panic!("{error}"),
    }
}

/// What stood in the log before may look like the header of a record that is far too long: no replica that ends there is in doubt for that, or none leads when its leader is lost.
#[test]
fn what_looks_like_a_long_record_is_no_doubt() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    let trust = fabric::Options { anyone: true, ..Default::default() };
    let path = dir.path().join("replica");
    let replica = Replica::serve(&path, "127.0.0.1:0", trust.clone()).unwrap();
    let address = replica.address().unwrap().to_string();
    let replicas =
        Replicas::new().trust(trust).timeout(LONG).open_timeout(LONG).local(dir.path().join("own")).at(&address);
    let options = Options::new().bytes(64 << 10).segment_bytes(4096).stall_timeout(LONG).pool(pool.clone());
    let log = options.create_replicated(&replicas.write_quorum(2)).unwrap();
    // A checksum, a number far ahead, an epoch, data of 80 MiB.
    let fake = |epoch: u32| {
        let words = [u64::MAX, 1 << 40, u64::from(epoch) | 0x1500_0000 << 32];
        words.map(u64::to_le_bytes).concat()
    };
    let payload: Vec<u8> = (0..4).cycle().take(100).flat_map(fake).collect();
    for n in 0..100 {
        let lsn = log.append(&payload).unwrap();
        if n % 8 == 7 {
            log.truncate_to(lsn).unwrap();
        }
    }
    log.abandon();
    replica.stop().unwrap();
    let found = check_replica(&pool.open(&path).unwrap(), log::NAME).unwrap().unwrap();
    assert!(found.records > 0 && !found.in_doubt, "{found:?}");
}
