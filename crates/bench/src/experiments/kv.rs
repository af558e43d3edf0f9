//! `kv`: one put per transaction, and YCSB A to F, on stores of keys and values.

use crate::experiments::ycsb::generated;
use crate::kv_sides::{Field, KvRoom, Loaded, StoreKind};
use crate::rounds::ROUNDS_BESIDE;
use crate::workload::{Hashed, Values, Workload, Ycsb};
use crate::{Result, Row, Spread, Watch, machine};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "kv";

/// What to measure: all combinations.
#[derive(Clone, Debug)]
pub struct KvRun {
    /// Mixes.
    pub workloads: Vec<Workload>,
    /// Keys at first.
    pub keys: Vec<u64>,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: Vec<u32>,
}

impl Default for KvRun {
    fn default() -> Self {
        Self {
            workloads: Workload::WITH_PUT.to_vec(),
            keys: vec![100_000],
            key_bytes: 24,
            value_bytes: vec![100, 1024],
        }
    }
}

/// Stores with what is in them.
#[derive(Clone, Copy)]
struct Case {
    keys: u64,
    value_bytes: u32,
}

impl KvRun {
    /// Measures.
    ///
    /// # Errors
    /// Those of the stores; one that loses a key.
    pub fn measure(&self, field: &Field, watch: &dyn Watch) -> Result<Vec<Row>> {
        let groups = self.workloads.len() * self.keys.len() * self.value_bytes.len() * field.threads.len();
        watch.begin(EXPERIMENT, (groups * field.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for keys in self.keys.iter().copied() {
            for value_bytes in self.value_bytes.iter().copied() {
                let case = Case { keys, value_bytes };
                // Those that leave the keys as they are can have one store after the other.
                let (growing, steady): (Vec<_>, Vec<_>) = self.workloads.iter().partition(|all| all.inserts());
                let all = |workloads: &[Workload]| -> Vec<(usize, Workload)> {
                    let threads = field.threads.iter();
                    threads.flat_map(|threads| workloads.iter().map(|workload| (*threads, *workload))).collect()
                };
                rows.extend(self.compare(field, case, &all(&steady), watch)?);
                for one in all(&growing) {
                    rows.extend(self.compare(field, case, &[one], watch)?);
                }
            }
        }
        Ok(rows)
    }

    /// On one set of stores.
    fn compare(&self, field: &Field, case: Case, runs: &[(usize, Workload)], watch: &dyn Watch) -> Result<Vec<Row>> {
        let Some(threads_max) = runs.iter().map(|(threads, _)| *threads).max() else { return Ok(vec![]) };
        let Case { keys, value_bytes } = case;
        let inserts =
            if runs.iter().any(|(_, workload)| workload.inserts()) { inserts_max(field, threads_max) } else { 0 };
        let room = KvRoom { pairs: keys + inserts, key_bytes: self.key_bytes, value_bytes, sessions: threads_max + 1 };
        let names = Hashed::new(self.key_bytes)?;
        let values = Values::new(value_bytes as usize, field.seed);
        let mut stand = field.stand(room, |_| Ok(()))?;
        let base = Row::new(EXPERIMENT, "")
            .param("keys", keys)
            .param("key_bytes", self.key_bytes)
            .param("value_bytes", value_bytes);
        let loaded = stand.load(keys, &names, &values, value_bytes)?;
        let mut rows = loads(field, &base, keys, loaded);
        // Twice: a store that writes to new places has made its room by then, and one that fills one file after the other has done so.
        stand.load(keys, &names, &values, value_bytes)?;
        for (threads, workload) in runs.iter().copied() {
            let ycsb = Ycsb::new(workload, keys).value_bytes(value_bytes);
            let row = base
                .clone()
                .threads(threads)
                .param("workload", workload.name())
                .param("distribution", ycsb.chosen().name());
            let takes_part = |who: StoreKind| match workload.scans() && !who.is_ordered() {
                true => Err("a hash map has no order to scan in".to_owned()),
                false => Ok(vec![None]),
            };
            rows.extend(field.compare(&stand, &row, watch, takes_part, |side, crew, _| {
                let sessions = (0..threads).map(|_| side.session()).collect::<Result<Vec<_>>>()?;
                let streams = (field.seed..).take(threads).map(|seed| ycsb.stream(seed)).collect();
                Ok(generated(crew, sessions, &names, &values, streams))
            })?);
        }
        Ok(rows)
    }
}

/// What it took each store to be filled, once, in large transactions where it has some.
fn loads(field: &Field, base: &Row, keys: u64, loaded: Vec<Loaded>) -> Vec<Row> {
    let base = base.clone().param("workload", "load").param("distribution", "in turn");
    let base_line = match field.baseline {
        Some(wanted) => loaded.iter().find(|one| one.who == wanted),
        None => loaded.iter().find(|one| one.who.is_peer()).or(loaded.first()),
    };
    let base_line = base_line.map(|one| (one.who.name().to_owned(), one.time));
    let live =
        keys * ["key_bytes", "value_bytes"].iter().filter_map(|name| base.params.get(*name)?.as_u64()).sum::<u64>();
    let row = |one: Loaded| {
        let ns = one.time.as_nanos() as f64 / keys.max(1) as f64;
        Row {
            engine: one.who.name().into(),
            domain: one.domain,
            medium: machine::medium(&field.dir),
            machine: machine::describe(),
            rounds: 1,
            ops: keys,
            seconds: one.time.as_secs_f64(),
            ops_per_s: 1e9 / ns.max(1e-3),
            ns_per_op: Spread::of(&[ns]),
            baseline: base_line.as_ref().map(|(name, _)| name.clone()),
            ratio: base_line
                .as_ref()
                .and_then(|(_, time)| Spread::of(&[time.as_secs_f64() / one.time.as_secs_f64().max(1e-9)])),
            file_bytes: Some(one.file),
            of_live: Some(one.file as f64 / live.max(1) as f64),
            dram_per_key: one.dram.map(|bytes| bytes as f64 / keys.max(1) as f64),
            ..base.clone()
        }
    };
    loaded.into_iter().map(row).collect()
}

/// More than any store inserts in all rounds, at 5 % of its operations, each of 100 ns, of as many threads as there may be cores.
fn inserts_max(field: &Field, threads: usize) -> u64 {
    let rounds = field.plan.rounds() as u64 + ROUNDS_BESIDE;
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(threads) as u64;
    let batch_time = field.plan.by(threads).batch_time;
    batch_time.as_nanos() as u64 / 100 * cores * rounds / 20 + 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    #[test]
    fn a_row_for_everybody_in_every_case() {
        let plan = Plan { batch_time: std::time::Duration::from_micros(100), ..Plan::quick() };
        let field = Field { who: StoreKind::OURS.into_iter().chain(StoreKind::peers()).collect(), ..Field::here(plan) };
        let workloads = Workload::EVERY.to_vec();
        let run = KvRun { workloads, keys: vec![300], value_bytes: vec![64], ..KvRun::default() };
        let rows = run.measure(&field, &()).unwrap();
        let (loads, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.params["workload"] == "load");
        assert!(loads.iter().all(|row| row.ops == 300 && row.of_live > Some(0.0)), "{loads:?}");
        assert_eq!(rows.len(), 2 * 9 * field.who.len());
        for row in &rows {
            let who: StoreKind = row.engine.parse().unwrap();
            let scans = row.params["workload"] != "E" || who.is_ordered();
            let there = scans && (!who.is_peer() || cfg!(feature = "peers"));
            assert_eq!((row.missing.is_none(), row.ops > 0), (there, there), "{row:?}");
            let writes = row.params["workload"] == "put" && there;
            if who.is_peer() && writes && !matches!(who, StoreKind::Pmemobj(_)) && row.threads == 1 {
                assert!(row.syncs_per_op >= Some(1.0), "{row:?}");
            }
            if !who.is_peer() && writes {
                assert!(row.barriers_per_op >= Some(1.0), "{row:?}");
            }
        }
    }
}
