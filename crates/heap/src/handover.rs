//! A heap that takes over the objects of another engine.
//!
//! Until they are its own nothing here is of any meaning, whatever an earlier heap has left: so there is no order among the steps, and each can be done again.

use pmem::{Allocator, Ring};
use tx::{Handover, Result};

use crate::assemble::{Parts, State, add_backup, assemble, rebuild};
use crate::cell;
use crate::follower::Follower;
use crate::heap::Heap;
use crate::options::{LAYOUT, Options, Policy};
use crate::partial;
use crate::regions::{LOGS, MAIN, STATE};

impl Heap {
    /// Takes over the objects that another engine has given up, with all that they hold, and their root: afterwards they are a heap, in the same pool, with the policy of the options. No object is
    /// copied, but to a backup. A crash leaves either engine with all of them, and the other one with nothing. After an error they are as they were, and the pool is closed.
    ///
    /// Sizes, of slots, logs and zones, are those of the options, or those of the heap that the pool had earlier.
    ///
    /// # Errors
    /// [`pmem::Error::RegionExists`] if the pool has a heap besides; [`pmem::Error::NoSpace`], [`pmem::Error::DirectoryFull`] and their like if there is no room for logs and backup;
    /// [`Error::Limit`](tx::Error::Limit).
    pub fn take_over(from: Handover, options: &Options) -> Result<Self> {
        let pool = from.pass(MAIN, LAYOUT, |from| prepare(from, options))?;
        Self::open_in(&pool, options)
    }
}

fn prepare(from: &Handover, options: &Options) -> Result<()> {
    options.check()?;
    let pool = from.pool();
    let alloc = Allocator::open(pool, from.region())?;
    // A heap of an earlier format keeps its slots on one page.
    let apart = cell::are_apart(pool) || pool.info().regions.iter().all(|region| region.name != STATE);
    let region = from.part(STATE, cell::region_bytes::<State>(apart))?;
    // Of the sizes that an earlier heap had its regions are.
    let earlier = cell::open::<State>(region).ok().map(|(cell, _)| cell.get()).filter(State::is_sound);
    let policy = options.policy.unwrap_or_default();
    let mut state = State {
        policy: policy.code(),
        backup: 0,
        slots: earlier.map_or(options.slots as u64, |state| state.slots),
        log_bytes: earlier.map_or(options.log_bytes, |state| state.log_bytes),
        zone_bytes: earlier.map_or(options.zone_bytes, |state| state.zone_bytes),
        root: from.root(),
    };
    let mut cell = cell::create(pool.region(STATE)?, &state)?;
    let rings = rings(from, &state)?;
    let backup = match policy {
        Policy::InPlace => add_backup(pool, &alloc, &state)?,
        Policy::InPlacePartial => {
            let (region, copies) = partial::regions(pool, options.share().unwrap_or(partial::SHARE))?;
            Follower::Copies(region, copies)
        }
        Policy::None | Policy::Undo | Policy::Eaw => Follower::Nothing,
    };
    let mut core = assemble(pool, options, policy, &state, Parts { alloc, rings, backup });
    core.ground.begin_copies(options.share())?; // those of an earlier time are void
    if policy == Policy::InPlace {
        core.grow_backup()?;
        rebuild(&core)?;
        state.backup = 1;
    }
    cell.update_mirrored(&state)?;
    let (_, alloc) = core.into_last();
    Ok(alloc.close()?)
}

/// Empty ones, whatever they held.
fn rings(from: &Handover, state: &State) -> Result<Vec<Ring>> {
    let mut rest = from.part(LOGS, state.slots.saturating_mul(state.log_bytes))?.into_area()?;
    let mut rings = Vec::new();
    for _ in 0..state.slots {
        let (area, after) = rest.split_at(state.log_bytes)?;
        rings.push(Ring::create(area)?);
        rest = after;
    }
    Ok(rings)
}
