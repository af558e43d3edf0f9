//! Cells that say what a heap is, each with its two slots on two pages: the loss of a page, or one that goes back to what it held, leaves the other slot.
//!
//! Heaps of earlier builds have both slots on one page, and a region of one page for them; they keep that, and what such a heap gets later is like it.

use pmem::{Area, Persist, Pool, Region, SlotState, TwoSlot};
use tx::Result;

use crate::regions::{PAGE, STATE};

/// Bytes of the region of a cell of this type.
pub(crate) fn region_bytes<T: Persist>(apart: bool) -> u64 {
    if apart { TwoSlot::<T>::size_apart(PAGE) } else { TwoSlot::<T>::SIZE }
}

/// Bytes from one slot to the other in a region as large as that.
fn stride<T: Persist>(area: &Area) -> u64 {
    if area.len() >= region_bytes::<T>(true) { PAGE } else { TwoSlot::<T>::SIZE / 2 }
}

/// Whether the cells of the pool's heap have their slots on two pages.
pub(crate) fn are_apart(pool: &Pool) -> bool {
    pool.info().regions.iter().any(|region| region.name == STATE && region.len > PAGE)
}

pub(crate) fn create<T: Persist>(region: Region, value: &T) -> Result<TwoSlot<T>> {
    let area = region.into_area()?;
    let stride = stride::<T>(&area);
    Ok(TwoSlot::create_apart(area, stride, value)?)
}

pub(crate) fn open<T: Persist>(region: Region) -> Result<(TwoSlot<T>, SlotState)> {
    let area = region.into_area()?;
    let stride = stride::<T>(&area);
    Ok(TwoSlot::open_apart(area, stride)?)
}
