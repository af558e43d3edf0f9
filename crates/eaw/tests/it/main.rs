//! The array on real files.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod costs;
mod earlier;
mod errors;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
mod late;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
mod marks;
mod model;
mod placed;
mod processes;
mod records;
mod threads;
mod version_1;
mod whole;

use std::path::{Path, PathBuf};

use eaw::array::{Array, Options};
use pmem::DomainChoice;

/// Two members in a folder.
fn members(dir: &Path) -> [PathBuf; 2] {
    ["one", "other"].map(|name| dir.join(name))
}

/// Small, on memory.
fn options() -> Options {
    Options::new().log_bytes(1 << 20).pool(pmem::Options::new().domain(DomainChoice::Emulated))
}

fn create(dir: &Path, options: &Options) -> Array {
    let array = options.create(&members(dir)).expect("works");
    array.create_file("pages", 1 << 20).expect("works");
    array
}

fn read(array: &Array, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    array.read(&array.file("pages").expect("works"), offset, &mut bytes).expect("works");
    bytes
}
