//! `kv-open`: how long it takes to open a store whose process was killed, until the first value is read.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::contest::folder;
use crate::kv_sides::{Field, KvRoom, KvSide, StoreKind, as_killed, fill, taken};
use crate::workload::{Hashed, Names, Random, Values};
use crate::{Batch, Error, Plan, Result, Row, Side, Watch, clock, run_watched};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "kv-open";

/// What to measure.
#[derive(Clone, Debug)]
pub struct KvOpen {
    /// Keys in the store.
    pub keys: Vec<u64>,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: u32,
}

impl Default for KvOpen {
    fn default() -> Self {
        Self { keys: vec![100_000, 1_000_000], key_bytes: 24, value_bytes: 100 }
    }
}

/// Keys that are put again right before the process is killed.
const LAST: u64 = 100;

impl KvOpen {
    /// Measures.
    ///
    /// # Errors
    /// Those of the stores; one that has lost something.
    pub fn measure(&self, field: &Field, watch: &dyn Watch) -> Result<Vec<Row>> {
        watch.begin(EXPERIMENT, (self.keys.len() * field.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for keys in self.keys.iter().copied() {
            rows.extend(self.compare(field, keys, watch)?);
        }
        Ok(rows)
    }

    fn compare(&self, field: &Field, keys: u64, watch: &dyn Watch) -> Result<Vec<Row>> {
        let row = |who: StoreKind| {
            let row = Row::new(EXPERIMENT, who.name()).param("keys", keys).param("key_bytes", self.key_bytes);
            row.param("value_bytes", self.value_bytes)
        };
        let dirs = folder(&field.dir)?;
        let room = KvRoom { pairs: keys, key_bytes: self.key_bytes, value_bytes: self.value_bytes, sessions: 2 };
        let case = Case {
            room,
            names: Hashed::new(self.key_bytes)?,
            values: Values::new(self.value_bytes as usize, field.seed),
            dirs,
        };
        let (mut sides, mut missing) = (Vec::new(), Vec::new());
        for who in field.who.iter().copied() {
            match case.kill(who)? {
                Err(why) => missing.push(row(who).missing(&why)),
                Ok(domain) => {
                    let mut random = Random::new(field.seed);
                    let row = Row { domain, ..row(who) };
                    let case = &case;
                    // Every other time one of those that were put last.
                    let mut last = false;
                    let key = move || {
                        last = !last;
                        random.below(if last { LAST.min(keys) } else { keys })
                    };
                    let mut key = key;
                    sides.push((who, Side::new(row, move |_| case.open(who, key()))));
                }
            }
        }
        let baseline = sides.iter().position(|(who, _)| field.baseline.map_or(who.is_peer(), |wanted| *who == wanted));
        // One opening is a round: a store that is open needs no second one.
        let plan = Plan { batch_time: Duration::from_nanos(1), ..field.plan };
        let mut rows =
            run_watched(&plan, sides.into_iter().map(|(_, side)| side).collect(), baseline.or(Some(0)), watch)?;
        rows.append(&mut missing);
        Ok(rows)
    }
}

struct Case {
    room: KvRoom,
    names: Hashed,
    values: Values,
    dirs: TempDir,
}

impl Case {
    fn name(&self, key: u64) -> Vec<u8> {
        self.names.name(key, &mut self.names.buffer()).to_vec()
    }

    /// What a key has in the end; the last ones got another value than at first.
    fn value(&self, key: u64) -> &[u8] {
        self.values.get(if key < LAST { key + 1 } else { key }, self.room.value_bytes)
    }

    /// Makes what is left of a store whose process was killed; tells its domain.
    fn kill(&self, who: StoreKind) -> Result<Result<Option<String>, String>> {
        let (alive, killed) = (self.dirs.path().join("alive"), self.dirs.path().join(who.name()));
        let side = match who.open(&alive, self.room)? {
            Ok(side) => side,
            Err(why) => return Ok(Err(why)),
        };
        let pair = |key| (self.name(key), self.values.get(key, self.room.value_bytes));
        let mut session = side.session()?;
        fill(who, &mut *session, (0..self.room.pairs).map(pair))?;
        for key in 0..LAST.min(self.room.pairs) {
            session.put(&self.name(key), self.value(key))?;
        }
        self.copy_at_rest(&*side, &alive, &killed)?;
        let domain = side.domain();
        drop(session);
        drop(side);
        self.remove("alive")?;
        Ok(Ok(domain))
    }

    /// Copies until nothing was written meanwhile: a process is killed at one time, not while its files are read one by one.
    fn copy_at_rest(&self, side: &dyn KvSide, from: &Path, to: &Path) -> Result<()> {
        const TRIES: u64 = 100;
        let state = || -> Result<_> { Ok((side.stats(), peers::syncs(), taken(from)?)) };
        for attempt in 1..=TRIES {
            let before = state()?;
            as_killed(from, to)?;
            if state()? == before {
                return Ok(());
            }
            std::fs::remove_dir_all(to).map_err(|source| Error::Io {
                op: "remove the directory",
                path: to.to_owned(),
                source,
            })?;
            std::thread::sleep(Duration::from_millis(attempt));
        }
        Err(Error::Wrong { who: "the store".into(), what: "it writes on and on though nobody uses it".into() })
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.dirs.path().join(name);
        std::fs::remove_dir_all(&path).map_err(|source| Error::Io { op: "remove the directory", path, source })
    }

    /// Opens what is left, in a copy of it, and reads the key's value.
    fn open(&self, who: StoreKind, key: u64) -> Result<Batch> {
        let path = self.dirs.path().join("opened");
        as_killed(&self.dirs.path().join(who.name()), &path)?;
        let mut out = vec![0; self.room.value_bytes as usize];
        let name = self.name(key);
        let (opened, time) = clock::timed(|| -> Result<_> {
            let side = who.open(&path, self.room)?.map_err(Error::Parameter)?;
            let found = side.session()?.get(&name, &mut out)?;
            Ok((side, found.pairs))
        });
        let (side, found) = opened?;
        if found == 0 || out != self.value(key) {
            return Err(Error::Wrong {
                who: who.name().into(),
                what: format!("key {key} is not what it was when the process was killed"),
            });
        }
        drop(side);
        self.remove("opened")?;
        Ok(Batch { time, ops: Some(1), ..Batch::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_opens_what_was_killed() {
        let who: Vec<_> = StoreKind::OURS.into_iter().chain(StoreKind::peers()).collect();
        let field = Field { who: who.clone(), ..Field::here(Plan::quick()) };
        let rows = KvOpen { keys: vec![500], ..KvOpen::default() }.measure(&field, &()).unwrap();
        assert_eq!(rows.len(), who.len());
        for row in &rows {
            let there = cfg!(feature = "peers") || !row.engine.parse::<StoreKind>().unwrap().is_peer();
            assert_eq!((row.missing.is_none(), row.rounds), (there, if there { 5 } else { 0 }), "{row:?}");
            assert_eq!(row.ops, row.rounds as u64);
        }
    }
}
