//! The same for a log with replicas, which are served from here: each pair of operations at once, by two threads that begin together.

use std::path::PathBuf;
use std::sync::{Barrier, Mutex, MutexGuard};
use std::time::Duration;

use log::{Cursor, Error, Log, Lsn, Options, Replica, Replicas, check_replica, fabric, look};

use super::model::{Model, State};
use crate::basics::records;
use crate::support::Rng;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Append,
    Reserve,
    ForceNow,
    Post,
    Iter,
    TruncateTo,
    TruncateAll,
    Reclaim,
    Grow,
    Idle,
    Look,
    Rejoin,
    Replace,
    ReplicaRead,
    LookAt,
}

const KINDS: [Kind; 15] = [
    Kind::Append,
    Kind::Reserve,
    Kind::ForceNow,
    Kind::Post,
    Kind::Iter,
    Kind::TruncateTo,
    Kind::TruncateAll,
    Kind::Reclaim,
    Kind::Grow,
    Kind::Idle,
    Kind::Look,
    Kind::Rejoin,
    Kind::Replace,
    Kind::ReplicaRead,
    Kind::LookAt,
];

/// A replica, what was read of it, and how far.
struct Backup {
    replica: Option<Replica>,
    path: PathBuf,
    address: String,
    cursor: Cursor,
}

struct Group {
    dir: tempfile::TempDir,
    backups: [Mutex<Backup>; 2],
    /// One replica is away at a time, or there are too few.
    changing: Mutex<u64>,
    model: Mutex<Model>,
}

fn trust() -> fabric::Options {
    fabric::Options { anyone: true, ..Default::default() }
}

impl Backup {
    fn serve(path: PathBuf, address: &str) -> Self {
        let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let replica = Replica::serve_with(&pool, &path, address, trust()).unwrap();
        let address = replica.address().unwrap().to_string();
        Self { replica: Some(replica), path, address, cursor: Cursor::default() }
    }

    fn replica(&self) -> &Replica {
        self.replica.as_ref().unwrap()
    }
}

impl Group {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let backups = ["0", "1"].map(|name| Mutex::new(Backup::serve(dir.path().join(name), "127.0.0.1:0")));
        Self { dir, backups, changing: Mutex::new(2), model: Mutex::default() }
    }

    /// Those that are served; the leader's own is another one.
    fn replicas(&self) -> Replicas {
        let replicas = Replicas::new().trust(trust()).write_quorum(2).timeout(LONG).open_timeout(LONG);
        self.backups.iter().fold(replicas, |replicas, backup| replicas.at(&backup.lock().unwrap().address))
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    fn append(&self, log: &Log, len: usize, reserves: bool) {
        let state = if reserves { State::Open } else { State::Doubt };
        let (number, payload) = self.model().begin(len, state);
        let appended = if reserves {
            log.reserve(payload.len()).and_then(|mut record| {
                record.copy(0, &payload);
                self.model().set(number, State::Doubt);
                let lsn = record.complete()?;
                log.force(lsn)?;
                Ok(lsn)
            })
        } else {
            log.append(&payload)
        };
        let mut model = self.model();
        match appended {
            Ok(lsn) => {
                model.is_at(number, lsn.get());
                model.set(number, State::There);
                model.is_durable(lsn.get());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn iterate(&self, log: &Log) {
        let least = self.model().needed();
        let mut iter = if least.is_multiple_of(2) { log.iter() } else { log.iter_from(Lsn::new(least)) };
        let mut from = self.model().surely_needed();
        let durable = self.model().durable;
        while let Some(record) = iter.next().unwrap() {
            let (lsn, mut model) = (record.lsn.get(), self.model());
            assert!(lsn >= least);
            model.nothing_between(from, lsn, "an iterator");
            model.reads(lsn, record.payload);
            from = lsn + 1;
        }
        self.model().nothing_between(from, durable + 1, "an iterator");
    }

    fn once(&self, log: &Log, kind: Kind, rng: &mut Rng) {
        let backup = &self.backups[rng.below(2) as usize];
        match kind {
            Kind::Append | Kind::Reserve => {
                (0..3).for_each(|_| self.append(log, rng.below(300) as usize, kind == Kind::Reserve));
            }
            Kind::ForceNow => {
                let Some(lsn) = self.model().some(rng.word()) else { return };
                if rng.below(2) == 0 {
                    assert_eq!(log.force_own(Lsn::new(lsn)).unwrap(), log.own_replica().is_some());
                }
                log.force_now(Lsn::new(lsn)).unwrap();
            }
            Kind::Post => log.post().unwrap(),
            Kind::Iter => self.iterate(log),
            Kind::TruncateTo => {
                let to = log.forced().get().saturating_sub(rng.below(10));
                self.model().discards(1, to);
                log.truncate_to(Lsn::new(to)).unwrap();
                self.model().discarded(1, to);
            }
            Kind::TruncateAll => {
                let first = log.stats().next.get();
                self.model().discards_all();
                log.truncate_all().unwrap();
                let second = log.stats().next.get();
                self.model().discarded_all(first, second);
                self.model().head = 0; // replicas may not know it yet when another takes over
            }
            Kind::Reclaim => log.reclaim().unwrap(),
            Kind::Grow => assert!(matches!(log.grow(1), Err(Error::Replicated { .. }))),
            Kind::Idle => log.idle().unwrap(),
            Kind::Look => {
                assert!((2..=3).contains(&log.members().0.len()) && !log.replicas().is_empty());
                log.lead_for(std::time::Duration::MAX);
                log.check_leading().unwrap();
            }
            Kind::Rejoin => {
                let _changing = self.changing.lock().unwrap();
                let mut backup = backup.lock().unwrap();
                drop(backup.replica.take());
                *backup = Backup::serve(backup.path.clone(), &backup.address);
                log.join(&backup.address, &trust()).unwrap();
            }
            Kind::Replace => {
                let mut changing = self.changing.lock().unwrap();
                let mut backup = backup.lock().unwrap();
                log.remove(backup.replica().status().unwrap().id).unwrap();
                backup.replica.take().unwrap().stop().unwrap();
                *backup = Backup::serve(self.dir.path().join(changing.to_string()), "127.0.0.1:0");
                *changing += 1;
                log.join(&backup.address, &trust()).unwrap();
            }
            Kind::ReplicaRead => {
                let mut backup = backup.lock().unwrap();
                let Backup { replica: Some(replica), cursor, .. } = &mut *backup else { return };
                let seen = replica.news();
                assert!(replica.wait(Duration::ZERO).unwrap() && !replica.is_awaited());
                for (lsn, payload) in replica.read(cursor, 1 << 20).unwrap() {
                    self.model().reads(lsn.get(), &payload);
                    assert!(lsn < cursor.position());
                }
                replica.release(Lsn::new(cursor.position().get() - 1)).unwrap();
                replica.wake();
                replica.await_news(seen, LONG); // it was just woken
            }
            Kind::LookAt => {
                let backup = backup.lock().unwrap(); // it does not go meanwhile
                let status = look(&backup.address, &trust(), LONG).unwrap();
                assert!(status.is_none_or(|status| status.log == log.id()));
            }
        }
    }

    /// Another leader takes it over; the one before is shut out.
    fn is_taken_over(&self, old: Log) -> Log {
        let (log, found) = options().open_replicated(&self.replicas()).unwrap();
        let late = old.append(b"late");
        assert!(matches!(late, Err(Error::Fenced { .. } | Error::QuorumLost { .. })), "{late:?}");
        drop(old);
        self.model().goes_on(found.head.get(), found.next.get(), &records(&log));
        self.model().head = 0;
        log
    }
}

fn options() -> Options {
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    Options::new().bytes(256 << 10).segment_bytes(4096).idle(None).stall_timeout(LONG).pool(pool)
}

#[test]
fn every_operation_of_replicas_beside_every_other() {
    let group = Group::new();
    let log = options().create_replicated(&group.replicas().local(group.dir.path().join("own"))).unwrap();
    let mut rng = Rng(1);
    let pairs = KINDS.iter().enumerate().flat_map(|(at, &a)| KINDS[at..].iter().map(move |&b| (a, b)));
    let mut pairs: Vec<(Kind, Kind)> = pairs.collect();
    for at in (1..pairs.len()).rev() {
        pairs.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for (a, b) in pairs {
        let together = Barrier::new(2);
        std::thread::scope(|threads| {
            for kind in [a, b] {
                let (group, log, together, mut rng) = (&group, &log, &together, Rng(rng.word()));
                threads.spawn(move || {
                    together.wait();
                    group.once(log, kind, &mut rng);
                });
            }
        });
        group.append(&log, 20, false);
    }
    let log = group.is_taken_over(log);
    group.append(&log, 20, false);
    group.iterate(&log);
    log.close().unwrap();
    for backup in &group.backups {
        let mut backup = backup.lock().unwrap();
        backup.replica.take().unwrap().stop().unwrap();
        let pool = pmem::Options::new().engine(log::NAME, [0; 64]).open(&backup.path).unwrap();
        assert!(check_replica(&pool, log::NAME).unwrap().is_some());
    }
}
