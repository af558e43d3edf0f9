//! Transactions with several versions of each object. Two workloads: [`EveryVersion`], where actors of one thread take turns, whose oracle knows what each of them, and each snapshot
//! that is held, sees to the byte, and which of them meets a conflict; and [`Crossed`], where two threads meet in every step of a commit.

mod calls;
mod check;
mod crossed;
mod every;

use std::sync::Arc;

use crash::{Error, Sim};
use mvcc::{Mvcc, Options};
use pmem::{HeapOptions, Pool};

pub use crossed::{Crossed, Op as CrossedOp};
pub use every::{Act, EveryVersion, Kind, Op};

/// Slots of the store.
const SLOTS: usize = 4;
const CHUNKS: u64 = 8;

/// Small enough that logs are full after a few commits.
fn options() -> Result<Options, Error> {
    let blocks = HeapOptions::chunk_bytes(4096)?;
    let options = Options::new().blocks(blocks).bytes(blocks.region_bytes(CHUNKS)).max_bytes(64 << 10);
    let options = options.slots(SLOTS).log_bytes(4096).copy_bytes(4096).background(false);
    let options = options.procedure::<calls::Mix>().procedure::<calls::Fill>();
    Ok(options.procedure::<calls::Spawn>().procedure::<calls::Replace>())
}

fn open(sim: &Arc<Sim>, options: &Options) -> Result<(Mvcc, Pool), Error> {
    let pool = pmem::Options::new().open_on(sim.clone())?;
    Ok((Mvcc::open_in(&pool, options)?, pool))
}
