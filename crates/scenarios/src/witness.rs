//! Notes what a check has seen, persistently, before it goes on: a later crash must not change it.
//!
//! An operation in doubt may be there or not; but once a recovered program has been seen with it or without it, that is how it stays.

use crash::Violation;
use pmem::{Area, Pool};

const REGION: &str = "witness";

/// Makes the region, in `setup`.
pub(crate) fn create(pool: &Pool) -> pmem::Result<()> {
    pool.add_region(REGION, 4096).map(|_| ())
}

/// Holds `seen` against what an earlier check saw, then writes it down.
pub(crate) fn note(pool: &Pool, seen: u64) -> Result<(), Violation> {
    let mut area: Area = pool.region(REGION).and_then(|r| r.into_area()).map_err(Violation::detected)?;
    let before: u64 = *area.get(0).map_err(Violation::detected)?;
    if before == 0 {
        return area.publish(0, seen + 1).map(|_| ()).map_err(Violation::detected);
    }
    if before != seen + 1 {
        return Err(Violation::new(format!("an earlier recovery saw {}, this one {seen}", before - 1)));
    }
    Ok(())
}
