//! `worst-case`: one object is updated over and over, so that each transaction waits for what the one before left behind (Kamino-Tx
//! §7.1). Each thread has an object of its own, as in the paper, or all fight for one.

use super::overwrite::overwriters;
use crate::contest::Contest;
use crate::engines::Room;
use crate::{Result, Row, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "worst-case";

/// What to measure.
#[derive(Clone, Debug)]
pub struct WorstCase {
    /// Bytes of the object.
    pub bytes: Vec<usize>,
}

impl Default for WorstCase {
    fn default() -> Self {
        Self { bytes: vec![64, 256, 1024, 4096] }
    }
}

impl WorstCase {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        let shared = contest.threads.iter().filter(|threads| **threads > 1).count();
        let groups = self.bytes.len() * (contest.threads.len() + shared);
        watch.begin(EXPERIMENT, (groups * contest.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for threads in &contest.threads {
            for bytes in &self.bytes {
                rows.extend(compare(contest, *threads, *bytes, false, watch)?);
                if *threads > 1 {
                    rows.extend(compare(contest, *threads, *bytes, true, watch)?);
                }
            }
        }
        Ok(rows)
    }
}

fn compare(contest: &Contest, threads: usize, bytes: usize, shared: bool, watch: &dyn Watch) -> Result<Vec<Row>> {
    let object = if shared { "shared" } else { "own" };
    let row = Row::new(EXPERIMENT, "").param("bytes", bytes).param("object", object).threads(threads);
    let arena = contest.arena(Room {
        bytes: (threads * bytes) as u64,
        stored: (threads * bytes) as u64,
        blocks: threads as u64,
        threads,
    })?;
    contest.compare(&arena, &row, watch, |_, made, crew, row| {
        Ok(overwriters(made, crew, row, [1, 1, bytes], shared, contest.seed)?.op_bytes(bytes as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::testing::tiny;
    use crate::engines::Contestant;

    #[test]
    fn own_and_shared_objects() {
        let contest = tiny(&[Contestant::Reference], &[1, 2]);
        let rows = WorstCase { bytes: vec![64] }.measure(&contest, &()).unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.threads, row.params["object"].as_str().unwrap())).collect();
        assert_eq!(found, [(1, "own"), (2, "own"), (2, "shared")]);
        assert!(rows.iter().all(|row| row.ops_per_s > 0.0 && row.p50_ns.is_some()));
    }
}
