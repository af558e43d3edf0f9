//! A pool that opened is used: everything is written to, closed, and read again.

use std::sync::Arc;

use crash::Sim;
use pmem::{Action, Objects, PPtr, Pool, Result, Ring, TwoSlot};

use super::contents::{SLOTS, Table, Value, options};

const NEW: &[u8] = b"written after the damage";
const NEW_VALUE: Value = [0x5afe; 10];

/// Writes, closes, opens and reads; says what is not as it was written.
pub(crate) fn use_on(sim: &Arc<Sim>) -> Result<Option<&'static str>> {
    let pool = options().open_on(sim.clone())?;
    write(&pool)?;
    // All others have nothing to recover: a pool with a region that was not claimed stays one to be recovered.
    for region in pool.info().regions {
        drop(pool.region(&region.name)?);
    }
    pool.close()?;
    let pool = options().open_on(sim.clone())?;
    if !pool.was_clean() || pool.was_repaired() {
        return Ok(Some("the header"));
    }
    read(&pool)
}

fn cell(pool: &Pool) -> Result<TwoSlot<Value>> {
    let area = pool.region("cells")?.into_area()?;
    Ok(TwoSlot::open(area.split_at(TwoSlot::<Value>::SIZE)?.0)?.0)
}

fn write(pool: &Pool) -> Result<()> {
    cell(pool)?.update(&NEW_VALUE)?;
    let mut ring = Ring::open(pool.region("ring")?.into_area()?)?.0;
    ring.append(&[NEW])?;
    ring.force()?;
    let objects = Objects::open(pool)?;
    let mut reserved = objects.reserve(NEW.len() as u64, 8)?;
    reserved.bytes_mut()?.copy_from_slice(NEW);
    let new = reserved.ptr::<u8>();
    let mut session = objects.lock();
    let root = session.root::<Table>()?;
    let slot = PPtr::from_raw(root.raw().wrapping_add(8 * (SLOTS as u64 - 1)));
    session.publish(&mut [Action::Alloc(reserved), Action::Set(slot, new.raw())])?;
    drop(session);
    objects.close()
}

fn read(pool: &Pool) -> Result<Option<&'static str>> {
    if cell(pool)?.get() != NEW_VALUE {
        return Ok(Some("the cell"));
    }
    let (ring, found) = Ring::open(pool.region("ring")?.into_area()?)?;
    let last = found.records.last().map(|r| ring.payload(r)).transpose()?;
    if last != Some(NEW) {
        return Ok(Some("the ring"));
    }
    let objects = Objects::open(pool)?;
    let session = objects.lock();
    let new = session.get(session.root::<Table>()?)?.slots[SLOTS - 1];
    Ok((session.bytes(new, NEW.len() as u64)? != NEW).then_some("the object"))
}
