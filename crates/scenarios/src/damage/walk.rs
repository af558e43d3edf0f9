//! Opens a pool and reads everything in it.

use std::sync::Arc;

use crash::Sim;
use pmem::{Error, Objects, PPtr, Pool, Result, Ring, Tail, TwoSlot};

use super::contents::{CHECKSUMMED, Object, SLOTS, Table, Value, options};

/// What stands in a pool, or why it cannot be read; `None` where it was not looked at.
#[derive(Debug, Default)]
pub struct Found {
    pub(crate) pool: Option<Result<PoolFound>>,
    pub(crate) cells: Vec<Result<(Value, pmem::SlotState)>>,
    pub(crate) checksummed: Vec<Result<Vec<u8>>>,
    pub(crate) ring: Option<Result<RingFound>>,
    pub(crate) tail: Option<Result<Tail>>,
    pub(crate) root: Option<Result<PPtr<Table>>>,
    pub(crate) objects: Vec<Result<Vec<u8>>>,
    /// Offset and length of each live block.
    pub(crate) blocks: Option<Result<Vec<(u64, u64)>>>,
    /// Blocks that the allocator gave out when asked.
    pub(crate) reserved: Vec<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct PoolFound {
    /// Everything that `info` tells and that an open does not change.
    pub(crate) info: String,
    pub(crate) generation: u64,
    pub(crate) was_clean: bool,
    pub(crate) repaired: bool,
}

#[derive(Debug)]
pub(crate) struct RingFound {
    /// Position and payload.
    pub(crate) records: Vec<(u64, Vec<u8>)>,
    pub(crate) tail: Tail,
    /// Position behind the last, and below which all was retired.
    pub(crate) end: u64,
    pub(crate) retired: u64,
    pub(crate) mark: pmem::SlotState,
}

/// Opens and reads all. A structure that fails does not keep the others from being looked at.
pub(crate) fn walk(sim: &Arc<Sim>, expected: &[Object]) -> Found {
    let mut found = Found::default();
    let pool = match options().open_on(sim.clone()) {
        Ok(pool) => pool,
        Err(e) => {
            found.pool = Some(Err(e));
            return found;
        }
    };
    let mut info = pool.info();
    let generation = std::mem::take(&mut info.generation);
    let was_clean = std::mem::take(&mut info.was_clean);
    let info = format!("{info:?} {:?}", pool.engine_options());
    found.pool = Some(Ok(PoolFound { info, generation, was_clean, repaired: pool.was_repaired() }));
    found.cells = cells(&pool).unwrap_or_else(|e| vec![Err(e)]);
    found.checksummed = checksummed(&pool).unwrap_or_else(|e| vec![Err(e)]);
    found.ring = Some(ring(&pool));
    match Objects::open(&pool) {
        Ok(objects) => look_into(&objects, expected, &mut found),
        Err(e) => found.tail = Some(Err(e)),
    }
    found
}

fn cells(pool: &Pool) -> Result<Vec<Result<(Value, pmem::SlotState)>>> {
    let (single, mirrored) = pool.region("cells")?.into_area()?.split_at(TwoSlot::<Value>::SIZE)?;
    let read = |area| TwoSlot::<Value>::open(area).map(|(cell, other_slot)| (cell.get(), other_slot));
    Ok(vec![read(single), read(mirrored)])
}

fn checksummed(pool: &Pool) -> Result<Vec<Result<Vec<u8>>>> {
    let area = pool.region("checksummed")?.into_area()?;
    Ok(CHECKSUMMED.iter().map(|&(at, kind, _)| area.read_checksummed(at, kind, 1).map(<[u8]>::to_vec)).collect())
}

fn ring(pool: &Pool) -> Result<RingFound> {
    let (ring, found) = Ring::open(pool.region("ring")?.into_area()?)?;
    let record = |r: &pmem::RingRecord| Ok((r.position.get(), ring.payload(r)?.to_vec()));
    Ok(RingFound {
        records: found.records.iter().map(record).collect::<Result<_>>()?,
        tail: found.tail,
        end: found.end.get(),
        retired: found.retired.get(),
        mark: found.mark,
    })
}

fn look_into(objects: &Objects, expected: &[Object], found: &mut Found) {
    found.tail = Some(Ok(objects.tail()));
    let session = objects.lock();
    found.objects = expected.iter().map(|o| session.bytes(o.ptr, o.len).map(<[u8]>::to_vec)).collect();
    let root = session.root::<Table>();
    if let Ok(root) = root
        && let Ok(table) = session.get(root)
    {
        // Pointers as they stand there, forged ones too: whatever they are, reading them is an error or some object's bytes.
        for slot in 0..SLOTS {
            let _ = session.bytes(table.slots[slot], table.lens[slot]);
        }
    }
    found.root = Some(root);
    let mut blocks = Vec::new();
    let listed = objects.heap().live_blocks(|offset, len| {
        blocks.push((offset, len));
        Ok(())
    });
    found.blocks = Some(listed.map(|_| blocks));
    drop(session);
    // What the allocator holds for free: blocks of several sizes, all held at once.
    let mut held = Vec::new();
    for len in [24, 100, 500, 24, 700, 1500, 4000] {
        match objects.reserve(len, 8) {
            Ok(block) => held.push((block, len)),
            Err(
                Error::NoSpace { .. } | Error::Reserve { .. } | Error::DirectoryFull { .. } | Error::Damaged { .. },
            ) => {}
            Err(e) => found.tail = Some(Err(e)),
        }
    }
    found.reserved = held.iter().map(|(block, len)| (block.ptr::<u8>().offset(), *len)).collect();
}
