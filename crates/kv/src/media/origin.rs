//! Of which replicated log a store is made, if it is of any: on media, so that no build opens it as if it were whole without.

use pmem::{Persist, Pool, TwoSlot};

use crate::error::{Error, Result};
use crate::media::regions::REGION_KIND;

/// The region that says of which log a store is made.
const REGION: &str = "kv.log";
/// A page for each copy; a region of one page is of a store in format 1, with both on it.
const REGION_BYTES: u64 = 2 * PAGE;
const PAGE: u64 = 4096;

/// Which log a store is made of.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
struct Origin {
    /// Its id; 0: it was not known yet.
    log: u64,
}

/// Of which log the store in this pool is made, if it is of any.
pub(crate) fn origin(pool: &Pool) -> Result<Option<u64>> {
    let mut region = match pool.region(REGION) {
        Err(pmem::Error::NoRegion { .. }) => return Ok(None),
        other => other?,
    };
    let half = TwoSlot::<Origin>::SIZE / 2;
    let stride = if region.len() < REGION_BYTES { half } else { PAGE };
    let cell = region.split_front(region.len().min(REGION_BYTES))?;
    let second_unwritten = cell.bytes(stride, half as usize)?.iter().all(|byte| *byte == 0);
    match TwoSlot::<Origin>::open_apart(cell, stride) {
        // It was being written when a crash came, and nothing came behind it.
        Err(pmem::Error::Damaged { .. }) if second_unwritten => Ok(None),
        other => Ok(Some(other?.0.get().log)),
    }
}

/// Says so on media, before the first commit out of that log.
pub(crate) fn set_origin(pool: &Pool, log: u64) -> Result<()> {
    match origin(pool)? {
        Some(store) if store == log => return Ok(()),
        Some(store) => return Err(Error::OtherLog { store, log }),
        None => {}
    }
    let mut region = match pool.add_region_as(REGION, REGION_BYTES, REGION_KIND, 0) {
        Err(pmem::Error::RegionExists { .. }) => pool.region(REGION)?,
        other => other?,
    };
    let half = TwoSlot::<Origin>::SIZE / 2;
    let stride = if region.len() < REGION_BYTES { half } else { PAGE };
    let cell = region.split_front(region.len().min(REGION_BYTES))?;
    let mut cell = TwoSlot::create_apart(cell, stride, &Origin { log })?;
    cell.update_mirrored(&Origin { log })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Claim;

    /// Cut off anywhere, the making of the mark leaves one or none, and it can be made again.
    #[test]
    fn a_mark_that_was_cut_short_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("pool")).unwrap();
        set_origin(&pool, 7).unwrap();
        let size = TwoSlot::<Origin>::size_apart(PAGE);
        let whole = pool.region(REGION).unwrap().areas()[0].bytes(0, size as usize).unwrap().to_vec();
        let mut found = [0; 2];
        for len in 0..=whole.len() {
            let mut region = pool.region(REGION).unwrap();
            let cell = region.split_front(REGION_BYTES).unwrap();
            if len > 200 && len < PAGE as usize - 100 {
                continue;
            }
            let mut cut = whole.clone();
            cut[len..].fill(0);
            crate::raw::copy(Claim::Opening, &pool, cell.offset(), &cut).unwrap();
            drop((region, cell));
            // Once the second copy is begun, the first one is whole.
            match origin(&pool).unwrap() {
                None => found[0] += 1,
                Some(log) => {
                    assert_eq!(log, 7);
                    found[1] += 1;
                }
            }
            set_origin(&pool, 7).unwrap();
            assert_eq!(origin(&pool).unwrap(), Some(7));
        }
        assert!(found[0] > 8 && found[1] > 100, "{found:?}");
        assert!(matches!(set_origin(&pool, 8), Err(Error::OtherLog { store: 7, log: 8 })));
    }
}
