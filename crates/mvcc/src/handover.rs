//! A store that takes over the objects of another engine.
//!
//! Until they are its own nothing here is of any meaning, whatever an earlier store has left: so there is no order among the steps, and each can be done again.

use pmem::{Allocator, Ring, TwoSlot};
use tx::{Handover, Result};

use crate::mvcc::Mvcc;
use crate::options::{LAYOUT, Options};
use crate::procedures::Names;
use crate::recovery;
use crate::state::{COPIES, LOGS, MAIN, NAMES, PAGE, STATE, State};

impl Mvcc {
    /// Takes over the objects that another engine has given up, with all that they hold, and their root: afterwards they are a store with several versions of each, in the same pool. No object is
    /// copied. A crash leaves either engine with all of them, and the other one with nothing. After an error they are as they were, and the pool is closed.
    ///
    /// Sizes, of slots and logs, are those of the options, or those of the store that the pool had earlier.
    ///
    /// # Errors
    /// [`pmem::Error::RegionExists`] if the pool has such a store besides; [`pmem::Error::NoSpace`], [`pmem::Error::DirectoryFull`] and their like if there is no room for the logs;
    /// [`Error::Limit`](tx::Error::Limit).
    pub fn take_over(from: Handover, options: &Options) -> Result<Self> {
        let pool = from.pass(MAIN, LAYOUT, |from| prepare(from, options))?;
        Self::open_in(&pool, options)
    }
}

fn prepare(from: &Handover, options: &Options) -> Result<()> {
    options.check()?;
    drop(Allocator::open(from.pool(), from.region())?); // it can be
    let cell = from.part(STATE, TwoSlot::<State>::size_apart(PAGE))?.into_area()?;
    // Of the sizes that an earlier store had its regions are.
    let earlier = TwoSlot::<State>::look_apart(&cell, PAGE).ok().map(|(state, _)| state).filter(State::is_sound);
    // Records of its time that the medium brings back are done with.
    let past = earlier.map_or(0, |state| state.durable);
    let state = State {
        slots: earlier.map_or(options.slots as u64, |state| state.slots),
        log_bytes: earlier.map_or(options.log_bytes, |state| state.log_bytes),
        root: from.root(),
        durable: past,
        written: past,
        between: 0,
        copy_bytes: earlier.map_or(options.copy_bytes, |state| state.copy_bytes),
        copied: 0,
    };
    TwoSlot::create_apart(cell, PAGE, &state)?.update_mirrored(&state)?;
    let logs = from.part(LOGS, state.slots.saturating_mul(state.log_bytes))?.into_area()?;
    let mut areas = recovery::split(logs, state.slots, state.log_bytes)?;
    areas.push(from.part(COPIES, state.copy_bytes)?.into_area()?);
    areas.into_iter().try_for_each(|area| Ring::create(area).map(drop))?; // empty, whatever they held
    let names = from.part(NAMES, TwoSlot::<Names>::size_apart(PAGE))?.into_area()?;
    TwoSlot::create_apart(names, PAGE, &Names::of(&options.known()))?;
    Ok(())
}
