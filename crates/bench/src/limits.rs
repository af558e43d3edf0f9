//! What this machine can do at best: `cairn bench limits`.
//!
//! [`processor`] measures what needs no pool (checksums, atomics), [`media`] what a pool's operations cost in one
//! persistence domain, [`alloc`] what allocation adds to a commit. The engines' reports show each as a multiple of these.

pub mod alloc;
pub mod media;
pub mod processor;

use std::path::{Path, PathBuf};

use pmem::{Domain, DomainChoice, Latency, Options};

use crate::{Error, Plan, Result, Row, run};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "limits";

/// Where to measure, and how much.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The directories for the pools; each gets one pool in the domain that is found there.
    pub dirs: Vec<PathBuf>,
    /// How much to measure.
    pub plan: Plan,
    /// The persistence domain of the pools.
    pub domain: DomainChoice,
    /// Slower media to imitate.
    pub latency: Option<Latency>,
}

impl Limits {
    /// Memory (`/dev/shm`, if there is one) and the disk behind the system's temporary directory.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        let memory = Path::new("/dev/shm");
        let dirs = memory.is_dir().then(|| memory.to_owned()).into_iter().chain([disk()]).collect();
        Self { dirs, plan, domain: DomainChoice::Auto, latency: None }
    }

    /// Measures the processor, then each directory.
    ///
    /// # Errors
    /// A pool cannot be made in a directory, or fails.
    pub fn measure(&self) -> Result<Vec<Row>> {
        let mut rows = run(&self.plan, processor::sides())?;
        for dir in &self.dirs {
            rows.extend(self.measure_dir(dir)?);
        }
        Ok(rows)
    }

    fn measure_dir(&self, dir: &Path) -> Result<Vec<Row>> {
        // The folder goes, with the pool in it, however this ends.
        let folder = tempfile::Builder::new().prefix("cairn-limits-").tempdir_in(dir).map_err(|source| Error::Io {
            op: "make a temporary directory",
            path: dir.to_owned(),
            source,
        })?;
        let options = Options::new().size(media::AREA_BYTES).layout("bench-limits").domain(self.domain);
        let options = self.latency.map_or(options.clone(), |latency| options.latency(latency));
        let create = |name| options.clone().create(folder.path().join(name));
        let pool = create("limits.cairn")?;
        let sides = match pool.domain() {
            Domain::File => media::file_sides(&pool, dir)?,
            _ => {
                let mut sides = media::memory_sides(&pool, dir)?;
                // A pool of its own: the directory of one is too small for the regions of all sides.
                sides.extend(alloc::sides(&create("alloc.cairn")?, dir)?);
                sides
            }
        };
        run(&self.plan, sides)
    }
}

/// The temporary directory that lies on a disk: `/var/tmp` does where `/tmp` may be memory.
pub(crate) fn disk() -> PathBuf {
    let var_tmp = PathBuf::from("/var/tmp");
    if var_tmp.is_dir() { var_tmp } else { std::env::temp_dir() }
}

fn row(op: &str) -> Row {
    Row::new(EXPERIMENT, "none").param("op", op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_gives_a_row() {
        let plan = Plan { batch_time: std::time::Duration::from_micros(20), ..Plan::quick() };
        let dirs =
            if Path::new("/dev/shm").is_dir() { vec![PathBuf::from("/dev/shm")] } else { vec![std::env::temp_dir()] };
        let rows = Limits { dirs, ..Limits::here(plan) }.measure().unwrap();
        assert!(rows.iter().all(|row| row.ops_per_s > 0.0 && row.rounds == 5));
        for row in rows.iter().filter(|row| row.domain.is_some()) {
            // A flush of 16 random lines is 16 operations and one barrier; a commit pair is two; and a tiny batch is rounded up to a
            // whole number for each of up to four threads.
            assert!(row.barriers_per_op.is_some_and(|barriers| barriers > 0.0 && barriers <= 8.0), "{row:?}");
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Limits::here(Plan::quick()).measure_dir(Path::new("/nonexistent"));
        assert!(error.unwrap_err().to_string().contains("/nonexistent"));
    }
}
