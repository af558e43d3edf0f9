use super::*;

const ROOM: Room = Room { bytes: 1 << 20, sessions: 4 };

fn there() -> impl Iterator<Item = Peer> {
    Peer::ALL.into_iter().filter(|peer| peer.is_compiled())
}

fn value(session: &mut dyn Session, key: &[u8]) -> Option<Vec<u8>> {
    let mut out = [0; 64];
    session.get(key, &mut out).unwrap().map(|bytes| out[..bytes].to_vec())
}

#[test]
fn names_are_distinct_and_parse() {
    for peer in Peer::ALL {
        assert_eq!(peer.name().parse(), Ok(peer));
    }
    assert!("sled".parse::<Peer>().unwrap_err().contains("lmdb-writemap"));
}

#[test]
fn what_is_not_in_the_build_is_none() {
    let dir = tempfile::tempdir().unwrap();
    for peer in Peer::ALL {
        let dir = dir.path().join(peer.name());
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(peer.open(&dir, ROOM).unwrap().is_some(), peer.is_compiled(), "{peer}");
    }
}

#[test]
fn single_operations_and_what_is_there_after_opening_again() {
    for peer in there() {
        let dir = tempfile::tempdir().unwrap();
        {
            let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
            let session = &mut *store.session().unwrap();
            for key in 0..100_u8 {
                session.put(&[b'k', key], &[key; 30]).unwrap();
            }
            session.put(b"k\x07", b"seven").unwrap();
            session.delete(b"k\x09").unwrap();
            session.delete(b"never").unwrap();
            assert_eq!(value(session, b"k\x07").unwrap(), b"seven", "{peer}");
            let mut out = [0; 64];
            assert_eq!(session.scan(b"k\x08", 3, &mut out).unwrap(), 3, "{peer}");
            assert_eq!(out[..30], [11; 30], "{peer}: 8, 10, 11");
            assert_eq!(session.scan(b"k\x60", 10, &mut out).unwrap(), 4, "{peer}: 96 to 99");
        }
        let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
        let session = &mut *store.session().unwrap();
        assert_eq!(value(session, b"k\x07").unwrap(), b"seven", "{peer}");
        assert_eq!((value(session, b"k\x09"), value(session, b"never")), (None, None), "{peer}");
    }
}

#[test]
fn values_are_cut_to_the_room_there_is() {
    for peer in there() {
        let dir = tempfile::tempdir().unwrap();
        let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
        let session = &mut *store.session().unwrap();
        session.put(b"key", b"a long value").unwrap();
        let mut out = [b'.'; 8];
        assert_eq!(session.get(b"key", &mut out[..6]).unwrap(), Some(12), "{peer}");
        assert_eq!(&out, b"a long..", "{peer}");
    }
}

#[test]
fn transactions_are_whole_or_nothing() {
    for (peer, level) in there().flat_map(|peer| peer.levels().iter().map(move |level| (peer, *level))) {
        let dir = tempfile::tempdir().unwrap();
        let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
        let session = &mut *store.session().unwrap();
        let how = How { level, read_only: false };
        session.put(b"a", b"1").unwrap();
        session
            .transact(how, &mut |tx| {
                let mut out = [0; 8];
                assert_eq!(tx.get(b"a", &mut out)?, Some(1));
                tx.put(b"a", b"2")?;
                tx.put(b"b", b"3")?;
                assert_eq!((tx.get(b"b", &mut out)?, out[0]), (Some(1), b'3'), "{peer}: its own");
                tx.delete(b"a")?;
                assert_eq!(tx.get(b"a", &mut out)?, None);
                assert_eq!(tx.scan(b"a", 10, &mut out)?, 1);
                Ok(())
            })
            .unwrap();
        assert_eq!((value(session, b"a"), value(session, b"b").as_deref()), (None, Some(&b"3"[..])), "{peer}");

        let failed = session.transact(how, &mut |tx| {
            tx.put(b"b", b"4")?;
            tx.put(b"c", b"5")?;
            Err(crate::Error::of("test", 0, "enough".into()))
        });
        assert!(failed.unwrap_err().to_string().contains("enough"));
        assert_eq!((value(session, b"b").as_deref(), value(session, b"c")), (Some(&b"3"[..]), None), "{peer}");

        let mut read = None;
        session
            .transact(How { read_only: true, ..how }, &mut |tx| {
                let mut out = [0; 8];
                read = tx.get(b"b", &mut out)?.map(|_| out[0]);
                assert_eq!(tx.scan(b"a", 10, &mut out)?, 1);
                Ok(())
            })
            .unwrap();
        assert_eq!(read, Some(b'3'), "{peer}");
    }
}

/// Four threads add to one counter; a conflict is tried again.
#[test]
fn no_increment_is_lost() {
    for (peer, level) in there().flat_map(|peer| peer.levels().iter().map(move |level| (peer, *level))) {
        let dir = tempfile::tempdir().unwrap();
        let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
        store.session().unwrap().put(b"n", &0_u64.to_le_bytes()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let session = &mut *store.session().unwrap();
                    for _ in 0..50 {
                        while let Err(error) = session.transact(How { level, read_only: false }, &mut |tx| {
                            let mut n = [0; 8];
                            tx.get(b"n", &mut n)?;
                            tx.put(b"n", &(u64::from_le_bytes(n) + 1).to_le_bytes())
                        }) {
                            assert!(error.is_conflict(), "{peer}: {error}");
                        }
                    }
                });
            }
        });
        let n = value(&mut *store.session().unwrap(), b"n").unwrap();
        assert_eq!(n, 200_u64.to_le_bytes(), "{peer} {level:?}");
    }
}

/// Each of two reads what the other writes: as if one after the other, not both may commit. `false` if they did.
fn skew_is_prevented(peer: Peer, level: Level) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
    let how = How { level, read_only: false };
    let met = std::sync::Barrier::new(2);
    store.session().unwrap().put(b"a", b"1").unwrap();
    store.session().unwrap().put(b"b", b"1").unwrap();
    let one = |reads: &'static [u8], writes: &'static [u8]| {
        let session = &mut *store.session().unwrap();
        session
            .transact(how, &mut |tx| {
                tx.get(reads, &mut [0; 8])?;
                met.wait();
                tx.put(writes, b"0")
            })
            .is_ok()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| one(b"b", b"a"));
        let first = one(b"a", b"b");
        !(other.join().unwrap() && first)
    })
}

/// A side that is called serializable is.
#[test]
fn write_skew() {
    // One writer at a time would wait at the barrier for ever.
    for peer in there().filter(|peer| !peer.has_one_writer()) {
        for level in peer.levels() {
            assert_eq!(skew_is_prevented(peer, *level), *level == Level::Serializable, "{peer} {level:?}");
        }
    }
}

/// A store that does not wait for the device at each commit is not durable.
#[cfg(feature = "syncs")]
#[test]
fn every_commit_syncs() {
    // Other tests of this process sync too: this counts in a process of its own.
    const ALONE: &str = "PEERS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kv::tests::every_commit_syncs", "--test-threads=1"])
            .env(ALONE, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    for peer in there() {
        let dir = tempfile::tempdir().unwrap();
        let store = peer.open(dir.path(), ROOM).unwrap().unwrap();
        let session = &mut *store.session().unwrap();
        session.put(b"first", b"1").unwrap();
        let before = crate::syncs().unwrap();
        for key in 0..20_u8 {
            session.put(&[key], &[key; 100]).unwrap();
        }
        let puts = crate::syncs().unwrap() - before;
        for _ in 0..20 {
            session.get(b"first", &mut [0; 8]).unwrap();
        }
        let gets = crate::syncs().unwrap() - before - puts;
        println!("{peer}: {puts} syncs of 20 puts, {gets} of 20 gets");
        assert!(puts >= 20, "{peer}: {puts} syncs of 20 puts");
        assert!(gets <= 1, "{peer}: {gets} syncs of 20 gets");
    }
}
