//! What users see of a store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod backup;
mod costs;
mod damage;
mod dropped;
mod earlier;
mod every;
mod exact;
mod failpoints;
mod feed;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
mod format_1;
mod full;
mod full_copies;
mod full_log;
mod isolation;
mod kill;
mod later;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
mod limits;
mod model;
mod mutations;
mod orders;
mod replicated;
mod scans;
mod space;
mod sweep;
mod tables;
mod threads;
mod unpublished;

/// A directory in memory, if there is one: syncs of a disk are not what most tests are about.
fn memory() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}
