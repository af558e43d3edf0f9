//! A store is made: two regions, and an empty checkpoint in the first.

use pmem::{Area, Pool, Region};

use crate::core::Core;
use crate::durable::Persistence;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::isolation::Concurrency;
use crate::maintenance::Maintenance;
use crate::maintenance::checkpointer::Checkpointer;
use crate::media::cell::{Cell, PAGE};
use crate::media::checkpoint::{Checkpoint, FORMAT, FORMAT_1, WRITERS};
use crate::media::regions::{NAME, REGION_KIND, TABLE};
use crate::media::watermark::{self, Watermark};
use crate::medium::Medium;
use crate::options::Options;
use crate::space::Space;
use crate::versions::Versions;
use crate::writers::writer::Writers;

/// Segments of a new store.
pub(super) const SEGMENTS: u64 = 8;
/// Bytes before the table: the checkpoint, and behind it the watermarks.
pub(super) const fn cell_bytes(format: u32) -> u64 {
    if format == FORMAT_1 { PAGE } else { WATERMARKS_AT + watermark::BYTES }
}

/// Where the watermarks are, from the start of the table's region.
const WATERMARKS_AT: u64 = 2 * PAGE;

/// Bytes of the first region in a new store. The table has room for 32 GiB if segments have their usual length: where it grows, the data get a
/// further extent, and only the last one shrinks.
pub(super) fn table_bytes(segment: u64) -> u64 {
    cell_bytes(FORMAT) + (segment / 4).clamp(4096, 256 << 10)
}

/// Makes a store in `pool`. The checkpoint comes last: without it there is no store.
pub(crate) fn create(pool: &Pool, options: &Options) -> Result<Core> {
    create_as(pool, options, FORMAT)
}

/// The same, in this format.
pub(super) fn create_as(pool: &Pool, options: &Options, format: u32) -> Result<Core> {
    let table = region(pool, TABLE, table_bytes(options.segment))?;
    let data = region(pool, NAME, SEGMENTS * options.segment)?;
    let (cell, table) = split(table, format)?;
    let offset = cell.offset();
    let empty = Checkpoint {
        format,
        root: 0,
        segment_bytes: options.segment,
        number: 1,
        clock: 1,
        commit_number: 0,
        entries: 0,
        marks: [0; WRITERS],
        links: [0; WRITERS],
        root_checksum: 0,
    };
    let cell = Cell::create(cell, &empty)?;
    let space = Space::new(pool, options, data, table)?;
    space.set_free(|_| true);
    assemble(pool, options, &empty, Index::new(pool), space, (offset, Checkpointer::new(cell)))
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
pub(super) fn split(mut table: Region, format: u32) -> Result<(Area, Region)> {
    let cell = table.split_front(cell_bytes(format))?;
    Ok((cell, table))
}

pub(super) fn assemble(
    pool: &Pool,
    options: &Options,
    checkpoint: &Checkpoint,
    index: Index,
    space: Space,
    (cell, checkpointer): (u64, Checkpointer),
) -> Result<Core> {
    let key = pool.checksum_key(space.offset(0));
    let writers = Writers::new(checkpoint, pool.generation() as u16, options.groups(pool.domain()));
    if checkpoint.format > FORMAT_1 {
        for (number, writer) in writers.all.iter().enumerate() {
            let watermark = Watermark::read(pool, &key, cell + WATERMARKS_AT, number, options.unmarked_max());
            let watermark = match watermark {
                // Then they say nothing, and stay as they are.
                Err(Error::Pool(pmem::Error::Unreadable { .. })) if options.salvage => None,
                other => Some(other?),
            };
            writer.log.lock().set_watermark(watermark);
        }
    }
    let concurrency = Concurrency::new(checkpoint.clock, options.transactions, options.orders(pool.domain()));
    let medium = Medium::new(pool, key, failpoints(options));
    let versions = Versions::new(medium, concurrency, index, writers, space, options.verify);
    let maintenance = Maintenance::new(checkpointer, options);
    let persistence = Persistence::new(options.durability, checkpoint.commit_number);
    Ok(Core::new(options, versions, maintenance, persistence))
}

#[cfg(feature = "failpoints")]
pub(super) fn failpoints(options: &Options) -> crate::failpoints::Failpoints {
    crate::failpoints::Failpoints(options.without)
}

#[cfg(not(feature = "failpoints"))]
pub(super) fn failpoints(_: &Options) -> crate::failpoints::Failpoints {
    crate::failpoints::Failpoints::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    /// Stores of format 1 are used as they are, closed and killed; a backup has this format.
    #[test]
    fn a_store_of_format_1_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = Options::new().segment_bytes(16 << 10).background(false);
        let pool = options.pool.clone().size(options.least()).engine(NAME, [0; 64]).create(&path).unwrap();
        let mut store = Store::start(create_as(&pool, &options, FORMAT_1).unwrap()).unwrap();
        drop(pool);
        for n in 0..300_u32 {
            store.put(&n.to_be_bytes(), &[n as u8; 50]).unwrap();
            if n % 100 == 50 {
                if n < 100 {
                    store.close().unwrap()
                } else {
                    store.abandon()
                }
                store = options.open(&path).unwrap();
                assert_eq!(store.core.maintenance.checkpointer().checkpoint().format, FORMAT_1);
                assert!((0..=n).all(|n| store.get(&n.to_be_bytes()).unwrap() == Some(vec![n as u8; 50])), "{n}");
            }
        }
        store.checkpoint().unwrap();
        let backup = dir.path().join("backup");
        assert_eq!(store.backup(&backup).unwrap().pairs, 300);
        let copy = options.open(&backup).unwrap();
        assert_eq!(copy.core.maintenance.checkpointer().checkpoint().format, FORMAT);
        assert!(copy.check(|_| ()).unwrap().is_sound());
        assert_eq!(copy.get(&7_u32.to_be_bytes()).unwrap(), Some(vec![7; 50]));
    }
}
