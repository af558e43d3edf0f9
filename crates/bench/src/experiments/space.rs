//! `kv-space`: what the files of a store take while a few keys are overwritten again and again.

use crate::contest::folder;
use crate::kv_sides::{Field, KvRoom, StoreKind, fill, taken};
use crate::table::{pivot, scaled};
use crate::workload::{Hashed, Names, Random, Values};
use crate::{Error, Result, Row, Spread, Watch, clock, machine};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "kv-space";

/// What to measure.
#[derive(Clone, Debug)]
pub struct KvSpace {
    /// Keys.
    pub keys: u64,
    /// Overwrites, one per transaction.
    pub overwrites: u64,
    /// How often the files are looked at, at regular distances.
    pub looks: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: u32,
}

impl Default for KvSpace {
    fn default() -> Self {
        Self { keys: 10_000, overwrites: 1_000_000, looks: 10, key_bytes: 24, value_bytes: 1024 }
    }
}

impl KvSpace {
    /// Measures one after the other: a row for each look, with what the files take.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn measure(&self, field: &Field, watch: &dyn Watch) -> Result<Vec<Row>> {
        watch.begin(EXPERIMENT, field.who.len() as u64 * self.looks);
        let mut rows = Vec::new();
        for who in field.who.iter().copied() {
            rows.extend(self.one(who, field, watch)?);
        }
        Ok(rows)
    }

    fn one(&self, who: StoreKind, field: &Field, watch: &dyn Watch) -> Result<Vec<Row>> {
        let row = Row::new(EXPERIMENT, who.name()).param("keys", self.keys).param("key_bytes", self.key_bytes);
        let row = row.param("value_bytes", self.value_bytes);
        let room = KvRoom { pairs: self.keys, key_bytes: self.key_bytes, value_bytes: self.value_bytes, sessions: 1 };
        let dir = folder(&field.dir)?;
        let side = match who.open(dir.path(), room)? {
            Ok(side) => side,
            Err(why) => return Ok(vec![row.missing(&why)]),
        };
        let names = Hashed::new(self.key_bytes)?;
        let values = Values::new(self.value_bytes as usize, field.seed);
        let name = |key| names.name(key, &mut names.buffer()).to_vec();
        let mut session = side.session()?;
        fill(who, &mut *session, (0..self.keys).map(|key| (name(key), values.get(key, self.value_bytes))))?;

        let (mut random, mut rows) = (Random::new(field.seed), Vec::new());
        let each = (self.overwrites / self.looks.max(1)).max(1);
        for look in 1..=self.looks {
            let (done, time) = clock::timed(|| {
                let mut buffer = names.buffer();
                (0..each).try_for_each(|at| {
                    let key = names.name(random.below(self.keys), &mut buffer);
                    let found = session.put(key, values.get(look * each + at, self.value_bytes))?;
                    if found.pairs == 1 {
                        Ok(())
                    } else {
                        Err(Error::Wrong { who: who.name().into(), what: "put nothing".into() })
                    }
                })
            });
            done?;
            let ns = time.as_nanos() as f64 / each as f64;
            let mut row = row.clone().param("overwrites", look * each);
            row.file_bytes = Some(taken(dir.path())?);
            row.of_live = row.file_bytes.map(|bytes| bytes as f64 / room.bytes() as f64);
            (row.ops, row.seconds, row.rounds) = (each, time.as_secs_f64(), 1);
            row.ns_per_op = Spread::of(&[ns]);
            row.ops_per_s = 1e9 / ns.max(1e-3);
            row.domain = side.domain();
            row.machine = machine::describe();
            rows.push(row);
            watch.step();
        }
        Ok(rows)
    }
}

/// What files take, by overwrites and store, in all and as a multiple of keys and values.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let overwrites = |row: &Row| row.params.get("overwrites").map_or_else(String::new, ToString::to_string);
    let cell = |row: &Row| {
        let bytes = row.file_bytes.map_or_else(String::new, |bytes| format!("{}B", scaled(bytes as f64)));
        let times = row.of_live.map_or_else(String::new, |times| format!(" ({times:.1})"));
        bytes + &times
    };
    let there: Vec<Row> = rows.iter().filter(|row| row.missing.is_none()).cloned().collect();
    let missing = rows.iter().filter_map(|row| Some(format!("{} is missing: {}", row.engine, row.missing.as_ref()?)));
    let table = pivot(&there, "overwrites", overwrites, |row| row.engine.clone(), cell);
    let note = "in brackets: as a multiple of the bytes of keys and values".to_owned();
    [table, note].into_iter().chain(missing).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    #[test]
    fn files_are_looked_at_as_often_as_asked() {
        let who: Vec<_> = StoreKind::OURS.into_iter().chain(StoreKind::peers()).collect();
        let field = Field { who: who.clone(), ..Field::here(Plan::quick()) };
        let what = KvSpace { keys: 50, overwrites: 300, looks: 3, ..KvSpace::default() };
        let rows = what.measure(&field, &()).unwrap();
        for who in who {
            let of: Vec<_> = rows.iter().filter(|row| row.engine == who.name()).collect();
            let there = cfg!(feature = "peers") || !who.is_peer();
            assert_eq!(of.len(), if there { 3 } else { 1 });
            // A memtable of 50 KiB is not in a file, but its log is.
            assert!(of.iter().all(|row| !there || (row.of_live > Some(0.9) && row.ops == 100)), "{of:?}");
        }
        let text = table(&rows);
        assert!(text.contains("btree") && text.contains("\n 200 ") && text.contains("300"), "{text}");
        assert_eq!(text.contains("lmdb is missing"), !cfg!(feature = "peers"), "{text}");
    }
}
