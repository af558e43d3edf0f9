//! A partial backup as it is made, opened, and begun anew.

use pmem::{Error as PoolError, Pool, Region, TwoSlot};
use tx::{Error, Result};

use crate::cell;
use crate::copies::Copies;
use crate::failpoints::Step;
use crate::follower::{CopiesState, Follower};
use crate::ground::Ground;
use crate::growth::grow_to;
use crate::options::MILLION;
use crate::regions::{COPIES, COPIES_STATE, PAGE, areas};
use crate::space::Space;

/// The regions of a partial backup: those of an earlier time, or new ones, to be made large enough by [`Ground::begin_copies`].
pub(crate) fn regions(pool: &Pool, share: u64) -> Result<(Region, TwoSlot<CopiesState>)> {
    let state = match pool.region(COPIES_STATE) {
        // Not whole if it was being made when a change of policy was cut short: no policy that is in force needs it.
        Ok(region) => match open_state(region) {
            Err(Error::Damaged { .. } | Error::Pool(PoolError::Damaged { .. })) => {
                make_state(pool, pool.region(COPIES_STATE)?, share)?
            }
            other => other?,
        },
        Err(PoolError::NoRegion { .. }) => {
            let bytes = cell::region_bytes::<CopiesState>(cell::are_apart(pool));
            make_state(pool, pool.add_region(COPIES_STATE, bytes)?, share)?
        }
        Err(e) => return Err(e.into()),
    };
    let region = match pool.region(COPIES) {
        Err(PoolError::NoRegion { .. }) => pool.add_region(COPIES, PAGE)?,
        found => found?,
    };
    Ok((region, state))
}

fn make_state(pool: &Pool, region: Region, share: u64) -> Result<TwoSlot<CopiesState>> {
    // Past every epoch there may have been: one for each opening.
    let epoch = pool.generation() << 16;
    cell::create(region, &CopiesState { epoch, share, open: 0 })
}

/// What is there of a partial backup.
pub(crate) fn open_state(region: Region) -> Result<TwoSlot<CopiesState>> {
    let (cell, _) = cell::open::<CopiesState>(region)?;
    let state = cell.get();
    match state.is_sound() {
        true => Ok(cell),
        false => Err(Error::Damaged { what: "state of copies", offset: 0, why: format!("no copies have {state:?}") }),
    }
}

/// By default half of the heap is copied.
pub(crate) const SHARE: u64 = MILLION / 2;

impl Ground {
    /// Voids all copies and begins anew, with the share that is wanted. Main is as it should be.
    pub(crate) fn begin_copies(&mut self, share: Option<u64>) -> Result<()> {
        let Follower::Copies(region, cell) = self.growing.get_mut() else { return Ok(()) };
        let before = cell.get();
        let epoch = before.epoch + u64::from(!self.failpoints.skips(Step::Epoch));
        let state = CopiesState { epoch, share: share.unwrap_or(before.share), open: 1 };
        // Larger before the old copies are void, smaller behind that: until then recovery may need them.
        grow_to(&self.pool, region, state.bytes(self.main.len()))?;
        cell.update_mirrored(&state)?;
        cut_to(&self.pool, region, state.bytes(self.main.len()))?;
        let line = Space::new();
        line.update(areas(region));
        let copies = Copies::new(&self.pool, state.epoch, line, self.failpoints);
        copies.extend(state.bytes(self.main.len()))?;
        self.copies = Some(copies);
        Ok(())
    }

    /// Main is as it should be, and all of it is durable: the next opening needs no copy.
    pub(crate) fn end_copies(&self) -> Result<()> {
        if self.pool.is_read_only() {
            return Ok(());
        }
        if let Follower::Copies(_, cell) = &mut *self.growing.lock() {
            let state = cell.get();
            cell.update_mirrored(&CopiesState { open: 0, ..state })?;
        }
        Ok(())
    }
}

/// Gives back what a region has more, if it is the last.
fn cut_to(pool: &Pool, region: &mut Region, bytes: u64) -> Result<()> {
    let less = region.len().saturating_sub(bytes.max(1).next_multiple_of(PAGE));
    if less > 0 {
        pool.cut_region(region, less)?;
    }
    Ok(())
}
