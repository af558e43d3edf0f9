//! The scenarios of `cairn crash`: small programs on this library's own structures, with what they promise.

mod growth;
mod publish;
mod two_slot;

use std::sync::Arc;

use crash::{Config, MutationReport, Report, Sim, Violation};
use pmem::{Options, Pool};

/// A scenario by name.
pub struct Builtin {
    /// On the command line and in reports.
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// Explores it.
    pub explore: fn(&Config) -> Report,
    /// Explores it again without each of its barriers.
    pub mutate: fn(&Config) -> MutationReport,
}

macro_rules! builtin {
    ($name:literal, $scenario:expr, $about:literal) => {
        Builtin {
            name: $name,
            about: $about,
            explore: |config| crash::run($scenario, config),
            mutate: |config| crash::mutate($scenario, config),
        }
    };
}

/// All of them.
pub const ALL: &[Builtin] = &[
    builtin!("publish", publish::Publish, "a record, drained, then the one word that makes it valid"),
    builtin!("two-slot", two_slot::TwoSlotUpdates, "a two-slot cell: updated, mirrored and staged in turn"),
    builtin!(
        "growth",
        growth::Growth,
        "regions added and grown, the pool shrunk and closed cleanly: the header's updates"
    ),
];

/// Bytes of a scenario's pool: small is fast.
const POOL_BYTES: u64 = 32 << 10;

fn create(sim: &Arc<Sim>) -> pmem::Result<Pool> {
    Options::new().size(POOL_BYTES).create_on(Arc::clone(sim) as Arc<dyn pmem::sim::Medium>)
}

fn open(sim: &Arc<Sim>) -> pmem::Result<Pool> {
    Options::new().open_on(Arc::clone(sim) as Arc<dyn pmem::sim::Medium>)
}

/// Recovery refused the image.
fn refused(error: pmem::Error) -> Violation {
    Violation::detected(error)
}
