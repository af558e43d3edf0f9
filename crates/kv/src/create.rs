//! A store is made: two regions, and an empty checkpoint in the first.

use pmem::{Area, Pool, Region, TwoSlot};

use crate::active::Active;
use crate::bounded::Durability;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::locks::Locks;
use crate::media::{Checkpoint, FORMAT, FORMAT_1, WRITERS};
use crate::options::{NAME, Options, REGION_KIND};
use crate::settle::Settler;
use crate::space::Space;
use crate::writer::Writers;

/// Segments of a new store.
pub(crate) const SEGMENTS: u64 = 8;
/// Bytes for the checkpoint, before the table.
pub(crate) const fn cell_bytes(format: u32) -> u64 {
    if format == FORMAT_1 { PAGE } else { 2 * PAGE }
}

const PAGE: u64 = 4096;
const TOGETHER: u64 = TwoSlot::<Checkpoint>::SIZE / 2;

/// Bytes of the first region in a new store. The table has room for 32 GiB if segments have their usual length: where it grows, the data get a
/// further extent, and only the last one shrinks.
pub(crate) fn table_bytes(segment: u64) -> u64 {
    cell_bytes(FORMAT) + (segment / 4).clamp(4096, 256 << 10)
}

/// Its name.
pub(crate) const TABLE: &str = "kv.table";

const _: () = assert!(TwoSlot::<Checkpoint>::SIZE <= PAGE);

/// Makes a store in `pool`. The checkpoint comes last: without it there is no store.
pub(crate) fn create(pool: &Pool, options: &Options) -> Result<Core> {
    let table = region(pool, TABLE, table_bytes(options.segment))?;
    let data = region(pool, NAME, SEGMENTS * options.segment)?;
    let (cell, table) = split(table, FORMAT)?;
    let empty = Checkpoint {
        format: FORMAT,
        root: 0,
        segment_bytes: options.segment,
        number: 1,
        clock: 1,
        commit_number: 0,
        entries: 0,
        marks: [0; WRITERS],
        links: [0; WRITERS],
    };
    let mut cell = TwoSlot::create_apart(cell, PAGE, &empty)?;
    cell.update_mirrored(&empty)?;
    let space = Space::new(pool, options.segment, data, table)?;
    space.set_free(|_| true);
    Ok(assemble(pool, options, &empty, Index::new(pool), space, Settler::new(cell)))
}

/// The region of that name, new or left by a crash.
fn region(pool: &Pool, name: &str, len: u64) -> Result<Region> {
    match pool.add_region_as(name, len, REGION_KIND, 0) {
        Err(pmem::Error::RegionExists { .. }) => {
            let region = pool.region(name)?;
            let exists = || Error::Pool(pmem::Error::RegionExists { name: name.to_owned() });
            let first = region.areas().first().ok_or_else(exists)?;
            // What a crash left of one that was being made holds nothing.
            let empty = first.bytes(0, cell_bytes(FORMAT).min(first.len()) as usize)?.iter().all(|byte| *byte == 0);
            if region.kind() == REGION_KIND.code() && empty { Ok(region) } else { Err(exists()) }
        }
        other => Ok(other?),
    }
}

/// Erases a checkpoint that was cut short. No barrier: whatever a crash leaves of old and new bytes is one that was cut short.
pub(crate) fn clear(pool: &Pool) -> Result<()> {
    let (mut cell, _) = split(pool.region(TABLE)?, FORMAT)?;
    cell.clear()?;
    Ok(())
}

/// The cell of the checkpoint, and the table behind it.
pub(crate) fn split(mut table: Region, format: u32) -> Result<(Area, Region)> {
    let cell = table.split_front(cell_bytes(format))?;
    Ok((cell, table))
}

/// The format of the store whose table this is, by its newest whole checkpoint; this build's if there is none. Changes nothing.
pub(crate) fn format(table: &Region) -> u32 {
    let Some(first) = table.areas().first() else { return FORMAT };
    let apart = TwoSlot::<Checkpoint>::look_apart(first, PAGE);
    match (apart, TwoSlot::<Checkpoint>::look_apart(first, TOGETHER)) {
        (Ok((checkpoint, _)), _) if checkpoint.format > FORMAT_1 => checkpoint.format,
        (_, Ok((checkpoint, _))) => checkpoint.format,
        _ => FORMAT,
    }
}

/// Opens the cell of a store of this format.
pub(crate) fn open_cell(cell: Area, format: u32) -> pmem::Result<TwoSlot<Checkpoint>> {
    let stride = if format == FORMAT_1 { TOGETHER } else { PAGE };
    TwoSlot::open_apart(cell, stride).map(|opened| opened.0)
}

/// True if no checkpoint was ever whole here, and nothing came behind one: the making was cut short. The second copy is written when the first is whole, and the
/// table when both are; so a page that is lost does not look like this.
pub(crate) fn is_unmade(table: &Region) -> bool {
    let Some(first) = table.areas().first() else { return false };
    let zero = |at: u64, len: u64| {
        let len = len.min(first.len().saturating_sub(at));
        first.bytes(at, len as usize).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    let whole = [PAGE, TOGETHER].iter().any(|stride| TwoSlot::<Checkpoint>::look_apart(first, *stride).is_ok());
    !whole && zero(TOGETHER, first.len())
}

pub(crate) fn assemble(
    pool: &Pool,
    options: &Options,
    checkpoint: &Checkpoint,
    index: Index,
    space: Space,
    settler: Settler,
) -> Core {
    let place = space.offset(0);
    Core {
        this: std::sync::Weak::new(),
        pool: pool.clone(),
        key: pool.seal_key(place),
        generation: pool.generation() as u16,
        options: options.clone(),
        active: Active::new(checkpoint.clock, options.transactions, options.orders(pool.domain())),
        locks: Locks::new(options.transactions),
        index,
        writers: Writers::new(checkpoint, pool.generation() as u16, options.groups(pool.domain())),
        group: crate::group::Group::default(),
        order: crate::order::Order::default(),
        space,
        settler: pmem::sync::Mutex::new(settler),
        bound: crate::bounded::Bound::new(options.durability, checkpoint.commit_number),
        replicated: (options.durability == Durability::Replicated).then(crate::replicated::Replicated::default),
        sabotage: sabotage(options),
        salvaged: crate::salvaged::Salvaged::default(),
        written: crate::active::OwnLine(0.into()),
        settled: 0.into(),
        settle_at: options.settle.min(crate::settle::LEAST).into(),
        cramped: pmem::sync::Mutex::new(None),
        ages: crate::active::OwnLine(1.into()),
        counters: crate::stats::Counters::default(),
        queue: crate::queue::Queue::new(),
        keeper: crate::keeper::Signal::default(),
        committers: crate::later::Committers::default(),
        unfinished: false.into(),
        // The first sweep finds out.
        expiring: true.into(),
    }
}

#[cfg(feature = "sabotage")]
fn sabotage(options: &Options) -> crate::sabotage::Sabotage {
    crate::sabotage::Sabotage(options.without)
}

#[cfg(not(feature = "sabotage"))]
fn sabotage(_: &Options) -> crate::sabotage::Sabotage {
    crate::sabotage::Sabotage::default()
}
