//! What is done by the file alone, beside the log's own process and beside its closing and opening: following it, opening a copy of it as a crash leaves it,
//! converting that.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::{Error, Follower, Log, Lsn, Options};
use pmem::sync::{Scheduler, set_scheduler, switch_point};

use super::model::World;
use super::operations::Kind;
use crate::basics::records;
use crate::support::Rng;

/// A follower, and how far it is.
struct Tail {
    follower: Follower,
    eager: bool,
    /// It gives nothing before this record, and misses nothing from the other on.
    least: u64,
    from: u64,
    /// What it passed over before this record is none of its loss: it was told to.
    skipped: u64,
}

impl Tail {
    /// From where on it misses nothing when it gives this record.
    fn misses_from(&self, lsn: u64) -> u64 {
        if lsn >= self.skipped { self.from.max(self.skipped) } else { self.from }
    }
}

pub struct Outside {
    world: Mutex<World>,
    tails: Mutex<Vec<Tail>>,
    path: PathBuf,
    options: Options,
    frequency: u32,
    id: Mutex<u64>,
}

/// As one step, whatever else is under way.
fn at_once<R>(f: impl FnOnce() -> R) -> R {
    /// Under the scheduler again, also if this panics: what is dropped then may need a lock of a thread that waits for its turn.
    struct Again(Option<Arc<dyn Scheduler>>);
    impl Drop for Again {
        fn drop(&mut self) {
            set_scheduler(self.0.take());
        }
    }
    let _again = Again(set_scheduler(None));
    f()
}

impl Outside {
    pub fn new(world: World, path: PathBuf, options: Options, frequency: u32) -> Self {
        let (world, id) = (Mutex::new(world), Mutex::new(0));
        Self { world, tails: Mutex::new(Vec::new()), path, options, frequency, id }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        // Another thread's panic is told already.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_world(self) -> World {
        self.world.into_inner().unwrap()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn frequency(&self) -> u32 {
        self.frequency
    }

    pub fn id(&self) -> u64 {
        *self.id.lock().unwrap()
    }

    pub fn is_of(&self, log: &Log) {
        *self.id.lock().unwrap() = log.id();
    }

    pub fn once(&self, thread: usize, kind: Kind, rng: &mut Rng) {
        self.world().begins(thread, kind);
        switch_point();
        match kind {
            Kind::Refused => at_once(|| {
                let refused = self.options.open(&self.path);
                assert!(matches!(refused, Err(Error::Pool(pmem::Error::AlreadyOpen { .. }))), "{refused:?}");
                assert!(self.options.create(&self.path).is_err());
            }),
            Kind::Kill => at_once(|| self.kill(rng)),
            Kind::Convert => at_once(|| self.convert()),
            Kind::FollowerOpen => {
                let tail = self.open(rng);
                let mut tails = self.tails.lock().unwrap();
                if tails.len() > 3 {
                    let at = rng.below(tails.len() as u64) as usize;
                    tails.swap_remove(at);
                }
                tails.push(tail);
            }
            _ => {
                let tail = {
                    let mut tails = self.tails.lock().unwrap();
                    let at = rng.below(tails.len().max(1) as u64) as usize;
                    (at < tails.len()).then(|| tails.swap_remove(at))
                };
                let mut tail = tail.unwrap_or_else(|| self.open(rng));
                self.follow(&mut tail, kind, rng);
                self.tails.lock().unwrap().push(tail);
            }
        }
        switch_point();
        self.world().ends(thread, kind);
    }

    // ---- following --------------------------------------------------------------------------------------------

    fn open(&self, rng: &mut Rng) -> Tail {
        let eager = rng.below(3) == 0;
        let follower = match rng.below(2) {
            0 => Follower::open(&self.path).unwrap(),
            _ => Follower::open_in(&self.path, log::NAME).unwrap(),
        };
        let head = follower.head().get();
        assert!(head <= self.world().model.surely_needed());
        Tail { follower: if eager { follower.eager() } else { follower }, eager, least: head, from: head, skipped: 0 }
    }

    fn follow(&self, tail: &mut Tail, kind: Kind, rng: &mut Rng) {
        match kind {
            Kind::FollowerNext => (0..=rng.below(4)).for_each(|_| {
                let _: bool = self.follower_reads(tail, None);
            }),
            Kind::FollowerWait => {
                let limit = std::time::Duration::from_micros([0, 0, 0, 60][rng.below(4) as usize]);
                self.follower_reads(tail, Some(limit));
            }
            Kind::FollowerSkip => {
                // At the end, where it finds what is complete behind a record that is not.
                if !self.follower_reads(tail, None)
                    && let Some(found) = tail.follower.skip_lost().unwrap()
                {
                    tail.skipped = found.get();
                }
            }
            Kind::FollowerFrom => {
                let wanted = 1 + rng.below(self.world().model.last_there() + 2);
                match tail.follower.from(Lsn::new(wanted)) {
                    Ok(()) => (tail.least, tail.from, tail.skipped) = (wanted, wanted, 0),
                    Err(Error::Overtaken { head, .. }) => assert!(head.get() > wanted),
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                let Tail { follower, .. } = tail;
                let stats = follower.stats();
                let mut world = self.world();
                assert!(follower.head().get() <= world.model.surely_needed(), "{stats:?}");
                world.model.is_durable(stats.forced.get());
                assert!(follower.position() >= Lsn::new(1) && follower.ahead() as u64 <= world.model.last_there() + 64);
                assert!(!follower.is_closed() || stats.forced.get() + 1 >= follower.head().get());
            }
        }
    }

    /// The next record; false if there is none for now.
    fn follower_reads(&self, tail: &mut Tail, wait: Option<std::time::Duration>) -> bool {
        loop {
            let found = match wait {
                None => tail.follower.next(),
                Some(limit) => tail.follower.wait(limit),
            };
            let mut world = self.world();
            match found {
                Ok(Some((lsn, payload))) if tail.eager => world.model.reads_early(lsn.get(), &payload),
                Ok(Some((lsn, payload))) => {
                    let lsn = lsn.get();
                    assert!(lsn >= tail.least, "record {lsn} is given from {}", tail.least);
                    world.model.nothing_between(tail.misses_from(lsn), lsn, "a follower");
                    world.model.reads(lsn, &payload);
                    (tail.least, tail.from) = (lsn + 1, lsn + 1);
                }
                Ok(None) => return false,
                Err(Error::Overtaken { wanted, head }) => {
                    assert!(wanted < head && head.get() <= world.model.surely_needed(), "overtaken at {head}");
                    drop(world);
                    match tail.follower.from(head) {
                        Ok(()) => (tail.least, tail.from, tail.skipped) = (head.get(), head.get(), 0),
                        Err(Error::Overtaken { .. }) => {} // again, meanwhile
                        Err(error) => panic!("{error}"),
                    }
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            return true;
        }
    }

    /// The log is closed: followers read it to its end.
    pub fn all_is_followed(&self) {
        for mut tail in std::mem::take(&mut *self.tails.lock().unwrap()) {
            while self.follower_reads(&mut tail, None) {}
            if !tail.eager {
                let world = self.world();
                let end = world.model.durable + 1;
                world.model.nothing_between(tail.misses_from(end), end, "a follower of a closed log");
            }
        }
    }

    // ---- crashes ----------------------------------------------------------------------------------------------

    fn copy(&self) -> [PathBuf; 2] {
        let number = {
            let mut world = self.world();
            world.files += 1;
            world.files
        };
        let copies = ["killed", "new"].map(|name| self.path.with_file_name(format!("{name}{number}")));
        std::fs::copy(&self.path, &copies[0]).unwrap();
        copies
    }

    fn kill(&self, rng: &mut Rng) {
        let [copy, _] = self.copy();
        let (log, found) = self.options.open(&copy).unwrap();
        let all = records(&log);
        self.world().model.check_opened(found.head.get(), found.next.get(), &all, "a killed log");
        assert_eq!(found.records, all.len() as u64);
        if rng.below(2) == 0 {
            // It goes on where it ended.
            match log.append(b"goes on") {
                Ok(lsn) => assert_eq!(lsn, found.next),
                Err(Error::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            log.close().unwrap();
        } else {
            log.abandon();
        }
        std::fs::remove_file(copy).unwrap();
    }

    fn convert(&self) {
        let [copy, new] = self.copy();
        let converted = self.options.convert(&copy, &new).unwrap();
        let (log, found) = self.options.open(&new).unwrap();
        let all = records(&log);
        assert_eq!((converted.head, converted.next), (found.head, found.next));
        assert_eq!(converted.records, all.len() as u64);
        self.world().model.check_opened(found.head.get(), found.next.get(), &all, "a converted log");
        log.close().unwrap();
        [copy, new].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    }
}
