//! What is compared on keys and values, where and how long.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tx::Isolation;

use super::files;
use super::{KvRoom, KvSide, Session, Step, StoreKind};
use crate::contest::{folder, memory};
use crate::crew::{Crew, with_crew};
use crate::workload::{Names, Values};
use crate::{Batch, Plan, Result, Row, Side, Watch, clock, machine, run_watched};

/// The part of an experiment that does not depend on which it is.
#[derive(Clone, Debug)]
pub struct Field {
    /// Where stores go.
    pub dir: PathBuf,
    /// The stores that take part, in the order of the rows.
    pub who: Vec<StoreKind>,
    /// The one that the others are compared with; by default the first peer, else the first.
    pub baseline: Option<StoreKind>,
    /// Numbers of threads, one after the other.
    pub threads: Vec<usize>,
    /// How much to measure.
    pub plan: Plan,
    /// The same seed does the same.
    pub seed: u64,
}

/// Stores that are open. Their files go with them.
pub(crate) struct Stand {
    /// Declared before the folder, so that stores are closed before their files go.
    pub(crate) open: Vec<(StoreKind, Box<dyn KvSide>)>,
    missing: Vec<(StoreKind, String)>,
    folder: TempDir,
}

/// What filling a store took.
pub(crate) struct Loaded {
    pub(crate) who: StoreKind,
    pub(crate) time: Duration,
    /// Bytes of anonymous memory that the process has more than before; what one store gave back another may have got.
    pub(crate) dram: Option<u64>,
    /// Bytes that its files take of the device.
    pub(crate) file: u64,
    pub(crate) domain: Option<String>,
}

/// Bytes of memory of the process that no file is behind.
fn anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Most bytes that are put in one transaction while a store is filled.
const LOAD_BYTES: usize = 64 << 10;

/// Why a store is left out.
const VOLATILE: &str = "it does not wait for the device at each commit, so that its times would say nothing";

/// Whether each of some commits waits for the device, where nothing else makes them durable, as far as that can be counted.
fn is_durable(side: &dyn KvSide) -> Result<bool> {
    const COMMITS: u64 = 8;
    const KEY: &[u8] = b"user of nobody else's"; // as long as names are, which some trees ask for
    let Some(before) = peers::syncs().filter(|_| side.domain().is_some_and(|name| name == FILE)) else {
        return Ok(true);
    };
    let mut session = side.session()?;
    (0..COMMITS).try_for_each(|_| session.put(KEY, KEY).map(|_| ()))?;
    let counted = peers::syncs().unwrap_or(before) - before;
    session.delete(KEY)?;
    Ok(counted >= COMMITS)
}

/// The domain in which commits wait for the device.
const FILE: &str = "file";

impl Field {
    /// Ours, in memory if there is some, by one and two threads.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        let who = StoreKind::OURS.to_vec();
        Self { dir: memory(), who, baseline: None, threads: vec![1, 2], plan, seed: 1 }
    }

    /// Opens all stores that `may`; the others are missing for the reason it gives.
    pub(crate) fn stand(&self, room: KvRoom, may: impl Fn(StoreKind) -> Result<(), String>) -> Result<Stand> {
        let folder = folder(&self.dir)?;
        let pair = 100 + room.key_bytes as u64 + u64::from(room.value_bytes);
        files::use_memory(folder.path(), 4 * room.pairs * pair * self.who.len() as u64)?;
        let (mut open, mut missing) = (Vec::new(), Vec::new());
        for who in self.who.iter().copied() {
            if let Err(why) = may(who) {
                missing.push((who, why));
                continue;
            }
            match who.open(&folder.path().join(who.name()), room)? {
                Ok(side) if who.is_peer() && !is_durable(&*side)? => missing.push((who, VOLATILE.into())),
                Ok(side) => open.push((who, side)),
                Err(why) => missing.push((who, why)),
            }
        }
        Ok(Stand { open, missing, folder })
    }

    /// One comparison: measures what `work` makes of each store, once for each isolation that `takes_part` says (`None` if there is no choice);
    /// a store that does not take part is missing, for the reason it gives. `row` is what rows begin as.
    pub(crate) fn compare<'env>(
        &self,
        stand: &'env Stand,
        row: &Row,
        watch: &dyn Watch,
        takes_part: impl Fn(StoreKind) -> Result<Vec<Option<Isolation>>, String>,
        work: impl for<'c> Fn(&'env dyn KvSide, &'c Crew<'env>, Option<Isolation>) -> Result<Work<'c>>,
    ) -> Result<Vec<Row>> {
        let row = Row { medium: machine::medium(&self.dir), ..row.clone() };
        let named = |who: StoreKind| Row { engine: who.name().into(), ..row.clone() };
        let mut missing: Vec<_> = stand.missing.iter().map(|(who, why)| named(*who).missing(why)).collect();
        let mut rows = with_crew(row.threads, |crew| {
            let (mut sides, mut whose) = (Vec::new(), Vec::new());
            for (who, side) in &stand.open {
                let levels = match takes_part(*who) {
                    Ok(levels) => levels,
                    Err(why) => {
                        missing.push(named(*who).missing(&why));
                        continue;
                    }
                };
                for level in levels {
                    let row = Row { domain: side.domain(), ..named(*who) };
                    let row = level.into_iter().fold(row, |row, level| row.param("isolation", level.name()));
                    sides.push(Side::new(row, counted(&**side, work(&**side, crew, level)?)));
                    whose.push(*who);
                }
            }
            run_watched(&self.plan.by(row.threads), sides, self.baseline(&whose), watch)
        })?;
        rows.append(&mut missing);
        Ok(rows)
    }

    /// Which of those the others are compared with.
    fn baseline(&self, whose: &[StoreKind]) -> Option<usize> {
        match self.baseline {
            Some(wanted) => whose.iter().position(|who| *who == wanted),
            None => whose.iter().position(|who| who.is_peer()).or(Some(0)),
        }
    }
}

/// Does that many operations.
pub(crate) type Work<'c> = Box<dyn FnMut(u64) -> Result<Batch> + 'c>;

/// Counts what the work costs: our pools by themselves, of others the calls with which the process waits for the device. What others do
/// in the background of a side's turn is counted, and timed, with it.
fn counted<'c>(side: &'c dyn KvSide, mut work: Work<'c>) -> impl FnMut(u64) -> Result<Batch> + 'c {
    move |ops| {
        let (stats, syncs) = (side.stats(), peers::syncs());
        let batch = work(ops)?;
        let counts = side.stats().zip(stats).map(|(after, before)| after - before);
        let syncs = peers::syncs().zip(syncs).map(|(after, before)| after - before).filter(|_| counts.is_none());
        Ok(Batch { counts, syncs, ..batch })
    }
}

impl Stand {
    /// Fills all stores with keys 0 to `keys`; what each took for it. Another system that cannot keep them is missing from then on.
    pub(crate) fn load(&mut self, keys: u64, names: &impl Names, values: &Values, bytes: u32) -> Result<Vec<Loaded>> {
        let name = |key| names.name(key, &mut names.buffer()).to_vec();
        let mut loaded = Vec::new();
        for (who, side) in std::mem::take(&mut self.open) {
            let before = anonymous();
            let pairs = (0..keys).map(|key| (name(key), values.get(key, bytes)));
            let time = match clock::time(|| fill(who, &mut *side.session()?, pairs)) {
                Err(error) if who.is_peer() => {
                    self.missing.push((who, format!("it cannot be filled: {error}")));
                    continue;
                }
                time => time?,
            };
            let dram = anonymous().zip(before).map(|(after, before)| after.saturating_sub(before));
            let file = files::taken(&self.folder.path().join(who.name()))?;
            loaded.push(Loaded { who, time, dram, file, domain: side.domain() });
            self.open.push((who, side));
        }
        Ok(loaded)
    }

    /// Fills all stores with the same pairs.
    pub(crate) fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>, P: Iterator<Item = (K, V)>>(
        &self,
        pairs: impl Fn() -> P,
    ) -> Result<()> {
        self.open.iter().try_for_each(|(who, side)| fill(*who, &mut *side.session()?, pairs()))
    }
}

/// In large transactions, where there are some.
pub(crate) fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    who: StoreKind,
    session: &mut dyn Session,
    pairs: impl Iterator<Item = (K, V)>,
) -> Result<()> {
    let Some(isolation) = who.levels().first().copied() else {
        for (key, value) in pairs {
            session.put(key.as_ref(), value.as_ref())?;
        }
        return Ok(());
    };
    let mut some: Vec<(K, V)> = Vec::new();
    let mut bytes = 0;
    let mut put = |some: &mut Vec<(K, V)>| -> Result<()> {
        let steps: Vec<_> =
            some.iter().map(|(key, value)| Step { key: key.as_ref(), put: Some(value.as_ref()) }).collect();
        session.transaction(isolation, &steps, &mut [])?;
        drop(steps);
        some.clear();
        Ok(())
    };
    for (key, value) in pairs {
        bytes += key.as_ref().len() + value.as_ref().len();
        some.push((key, value));
        if bytes >= LOAD_BYTES {
            put(&mut some)?;
            bytes = 0;
        }
    }
    if some.is_empty() { Ok(()) } else { put(&mut some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Found, Store};

    /// Says that it is durable, and keeps nothing.
    struct Liar;

    impl KvSide for Liar {
        fn session(&self) -> Result<Box<dyn Session + '_>> {
            Ok(Box::new(Liar))
        }
        fn stats(&self) -> Option<pmem::Stats> {
            None
        }
        fn domain(&self) -> Option<String> {
            Some(pmem::Domain::File.to_string())
        }
    }

    impl Session for Liar {
        fn attempt(&mut self, _: Isolation, _: &[Step<'_>], _: &mut [u8]) -> Result<Option<u64>> {
            Ok(Some(0))
        }
    }

    impl Store for Liar {
        fn get(&mut self, _: &[u8], _: &mut [u8]) -> Result<Found> {
            Ok(Found::default())
        }
        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<Found> {
            Ok(Found::default())
        }
        fn read_modify_write(&mut self, _: &[u8], _: &mut [u8], _: &[u8]) -> Result<Found> {
            Ok(Found::default())
        }
        fn delete(&mut self, _: &[u8]) -> Result<Found> {
            Ok(Found::default())
        }
        fn scan(&mut self, _: &[u8], _: usize, _: &mut [u8]) -> Result<Found> {
            Ok(Found::default())
        }
    }

    /// Has no room.
    struct Full;

    impl KvSide for Full {
        fn session(&self) -> Result<Box<dyn Session + '_>> {
            Err(crate::Error::Parameter("no room".into()))
        }
        fn stats(&self) -> Option<pmem::Stats> {
            None
        }
        fn domain(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_peer_that_cannot_keep_the_keys_does_not_end_the_run() {
        let field = Field { who: vec![], ..Field::here(Plan::quick()) };
        let room = KvRoom { pairs: 10, key_bytes: 24, value_bytes: 8, sessions: 1 };
        let mut stand = field.stand(room, |_| Ok(())).unwrap();
        let peer = StoreKind::Peer(peers::Peer::ALL[0]);
        let who: [(StoreKind, Box<dyn KvSide>); 2] = [(peer, Box::new(Full)), (StoreKind::Kv, Box::new(Liar))];
        stand.open.extend(who);
        std::fs::create_dir(stand.folder.path().join(StoreKind::Kv.name())).unwrap();
        let (names, values) = (crate::workload::Hashed::new(24).unwrap(), Values::new(8, 1));
        let loaded = stand.load(10, &names, &values, 8).unwrap();
        assert_eq!(loaded.iter().map(|one| one.who).collect::<Vec<_>>(), [StoreKind::Kv]);
        assert_eq!(stand.open.len(), 1);
        assert!(stand.missing[0].0 == peer && stand.missing[0].1.contains("no room"), "{:?}", stand.missing);
        stand.open.push((StoreKind::Kv, Box::new(Full)));
        assert!(stand.load(10, &names, &values, 8).is_err(), "ours must not fail");
    }

    /// Other tests sync too, which can hide it once, not always.
    #[test]
    fn who_does_not_sync_is_found_out() {
        let counted = peers::syncs().is_some();
        let durable = (0..1000).all(|_| is_durable(&Liar).unwrap());
        assert_eq!(durable, !counted, "where nothing is counted, nothing is known");
    }
}
