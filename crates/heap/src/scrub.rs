//! Looks for bytes that went bad at rest, and repairs the copy that is wrong.
//!
//! | live bytes of a page: main = backup | the backup's checksum | action |
//! |---|---|---|
//! | equal | as kept | none |
//! | equal | not as kept, or none kept | kept anew: the page was written since |
//! | different | as kept | main is wrong: backup to main |
//! | different | not as kept | the backup is wrong: main to backup, if a checksum was kept since the last write; else an error |
//!
//! Zones that a transaction is in are left alone and counted. Free bytes may differ.

use pmem::Error as PoolError;
use tx::{Error, Result};

use crate::core::{Core, read_line};
use crate::options::Policy;
use crate::zones::{Mark, PAGE};

/// What scrubbing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Zones looked at.
    pub zones: u64,
    /// Zones in use, not looked at.
    pub busy: u64,
    /// Bytes of main repaired from the backup.
    pub main_repaired: u64,
    /// Bytes of the backup repaired from main.
    pub backup_repaired: u64,
}

pub(crate) fn run(core: &Core) -> Result<Scrubbed> {
    let mut scrubbed = Scrubbed::default();
    if core.policy != Policy::InPlace {
        return Ok(scrubbed);
    }
    // Quiet zones become clean, without new checksums: those of the last cleaning still tell about pages not written since.
    core.zones.clean(usize::MAX, |seen| core.settle_all(seen), |_| Ok(None))?;
    let live = live_lines(core)?;
    let zones = core.main.len().div_ceil(core.zones.bytes());
    for zone in 0..zones as u32 {
        core.zones.with_state(zone, |clean| {
            if !clean {
                scrubbed.busy += 1;
                return Ok(());
            }
            scrubbed.zones += 1;
            scrub_zone(core, zone, &live, &mut scrubbed)
        })?;
    }
    Ok(scrubbed)
}

/// Live blocks as sorted ranges of the line.
fn live_lines(core: &Core) -> Result<Vec<(u64, u64)>> {
    let mut live = Vec::new();
    core.alloc.live_blocks(|offset, len| {
        if let Some(at) = core.main.linear(offset) {
            live.push((at, at + len));
        }
        Ok(())
    })?;
    live.sort_unstable();
    Ok(live)
}

fn scrub_zone(core: &Core, zone: u32, live: &[(u64, u64)], scrubbed: &mut Scrubbed) -> Result<()> {
    let start = u64::from(zone) * core.zones.bytes();
    let end = (start + core.zones.bytes()).min(core.main.len());
    let summed = core.zones.mark(zone)? == Mark::Summed;
    let mut sums = Vec::new();
    for at in (start..end).step_by(PAGE as usize) {
        let len = PAGE.min(end - at);
        let page = (at - start) / PAGE;
        // A page that cannot be read is wrong, whatever it holds.
        let main = readable(read_line(&core.pool, &core.main, at, len))?;
        let backup = readable(read_line(&core.pool, &core.backup, at, len))?;
        let kept = core.zones.sum(zone, page)?;
        let as_kept = backup.as_ref().is_some_and(|b| core.zones.sum_of(b) == kept);
        match (&main, &backup) {
            (Some(m), Some(b)) if same_where_live(m, b, at, live) => {}
            (_, Some(_)) if as_kept || main.is_none() => {
                let (offset, _) = core.main.place(at).ok_or_else(|| differ(at))?;
                core.copy_from_backup(offset, len)?;
                scrubbed.main_repaired += len;
            }
            (Some(_), _) if summed || backup.is_none() => {
                let (offset, _) = core.main.place(at).ok_or_else(|| differ(at))?;
                core.copy_to_backup(offset, len)?;
                scrubbed.backup_repaired += len;
            }
            _ => return Err(differ(core.main.place(at).map_or(at, |p| p.0))),
        }
        sums.push(core.zones.sum_of(&core.backup_bytes(at, len)?));
    }
    core.zones.set_sums(zone, &sums)?;
    core.pool.drain()?;
    core.zones.set_mark(zone, Mark::Summed)?;
    core.pool.drain()?;
    Ok(())
}

fn differ(offset: u64) -> Error {
    let why = "main and backup differ, and neither is as the kept checksum says".into();
    Error::Damaged { what: "page", offset, why }
}

fn readable(bytes: Result<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    match bytes {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Pool(PoolError::Unreadable { .. })) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Compares those bytes of two pages that lie in live blocks.
fn same_where_live(main: &[u8], backup: &[u8], at: u64, live: &[(u64, u64)]) -> bool {
    if main == backup {
        return true;
    }
    let end = at + main.len() as u64;
    let first = live.partition_point(|&(_, block_end)| block_end <= at);
    live[first..].iter().take_while(|&&(block, _)| block < end).all(|&(block, block_end)| {
        let (from, to) = ((block.max(at) - at) as usize, (block_end.min(end) - at) as usize);
        main[from..to] == backup[from..to]
    })
}
