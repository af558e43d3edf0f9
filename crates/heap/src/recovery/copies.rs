//! A partial backup: the copies that a crash left, and main as they are.

use pmem::Error as PoolError;
use tx::{Error, Result};

use crate::copies::{Catalog, Copied, HEADER, UNIT, WHOLE, join};
use crate::core::Core;
use crate::failpoints::Step;
use crate::follower::Follower;
use crate::raw::{self, Claim};
use crate::record::{Bytes, is_short};
use crate::regions::PAGE;

use super::outcome::Recovery;
use super::records::check_range;

/// The copies that a crash left, in the order of main.
#[derive(Default)]
pub(super) struct Left {
    copies: Vec<Copied>,
}

/// Finds the copies that count, and makes them sure, persistently after the next drain.
///
/// | tag | proof | it is |
/// |---|---|---|
/// | right | sure, or checksums its bytes | a copy |
/// | right | another | one that was being made: its object was not written. Or one that is damaged: it is in doubt |
/// | wrong | sure | a copy of something unknown: damaged |
/// | wrong | another | nothing |
pub(super) fn find(core: &Core, recovery: &mut Recovery) -> Result<Left> {
    let mut left = Left::default();
    let (Some(copies), Follower::Copies(_, cell)) = (&core.copies, &*core.growing.lock()) else { return Ok(left) };
    if cell.get().open == 0 {
        return Ok(left);
    }
    let catalog = &copies.catalog;
    let (mut at, mut proven) = (0, Vec::new());
    while let Some((start, rest)) = catalog.line.offset(at) {
        if start % PAGE == 0 && rest >= PAGE && is_zero(core, start)? {
            at += PAGE; // no copy begins here
            continue;
        }
        if rest < HEADER {
            at += rest;
            continue;
        }
        let [offset, len, proof, tag] = header(core, start)?;
        let copy = Copied { offset, len, at: start + HEADER };
        let whole = len > 0 && len <= WHOLE && Catalog::space(len) <= rest && tag == catalog.tag(at, offset, len);
        if proof == 0 || !whole && proof != catalog.sure(at) {
            at += UNIT;
            continue;
        }
        if !whole {
            let why = "what it is of is not to be read any more".into();
            return Err(Error::Damaged { what: "copy of an object", offset: start, why });
        }
        let checksummed = || -> Result<bool> {
            // nothing else uses the heap during recovery.
            let bytes = raw::bytes(Claim::Recovery, core, &core.pool, copy.at, len)?;
            Ok(proof == catalog.checksummed(tag, bytes))
        };
        if proof != catalog.sure(at) && !core.failpoints.skips(Step::CopyChecksum) && !checksummed()? {
            recovery.copies_in_doubt.push(start);
            at += UNIT;
            continue;
        }
        check_range(core, (offset, len), start)?;
        left.copies.push(copy);
        proven.push((at, copy, proof == catalog.sure(at)));
        at += Catalog::space(len);
    }
    if !core.pool.is_read_only() {
        make_sure(core, catalog, &proven)?;
    }
    left.copies.sort_unstable_by_key(|copy| copy.offset);
    if let Some(two) = left.copies.windows(2).find(|two| two[0].offset + two[0].len > two[1].offset) {
        let why = format!("there are two, at {} and {}", two[0].at, two[1].at);
        return Err(Error::Damaged { what: "copy of an object", offset: two[0].offset, why });
    }
    recovery.copies += left.copies.len() as u64;
    Ok(left)
}

/// One barrier, none if every copy is sure already.
fn make_sure(core: &Core, catalog: &Catalog, proven: &[(u64, Copied, bool)]) -> Result<()> {
    for (_, copy, sure) in proven {
        // A killed process may have left it in a cache only: the checksum with its bytes, or the word that made it sure behind their barrier. That
        // word is durable with the barrier in front of whatever changes the copy, or main.
        core.pool.flush(copy.at - HEADER, if *sure { HEADER } else { HEADER + copy.len })?;
    }
    if proven.iter().any(|(.., sure)| !sure) {
        core.pool.drain()?;
    }
    for (at, copy, _) in proven.iter().filter(|(.., sure)| !sure) {
        let proof = copy.at - HEADER + 16;
        // nothing else uses the heap during recovery.
        raw::bytes_mut(Claim::Recovery, core, &core.pool, proof, 8)?.copy_from_slice(&catalog.sure(*at).to_le_bytes());
        core.pool.flush(proof, 8)?; // before the records are gone that tell of changes of it
    }
    Ok(())
}

fn is_zero(core: &Core, start: u64) -> Result<bool> {
    // nothing else uses the heap during recovery.
    Ok(raw::bytes(Claim::Recovery, core, &core.pool, start, PAGE)?.iter().all(|byte| *byte == 0))
}

fn header(core: &Core, start: u64) -> Result<[u64; 4]> {
    // nothing else uses the heap during recovery.
    let bytes = raw::bytes(Claim::Recovery, core, &core.pool, start, HEADER)?;
    Ok(pmem::from_bytes(bytes).unwrap_or_default())
}

impl Left {
    /// What a transaction that is durable has written goes to the copies, and what its record carries of objects without one, to main.
    pub(super) fn forward(&self, core: &Core, ranges: &[Bytes], mut carried: &[u8]) -> Result<()> {
        let put = |start, bytes: &[u8]| -> Result<()> {
            // nothing else uses the heap during recovery.
            raw::bytes_mut(Claim::Recovery, core, &core.pool, start, bytes.len() as u64)?.copy_from_slice(bytes);
            core.pool.flush(start, bytes.len() as u64)?;
            Ok(())
        };
        for &(offset, len) in ranges {
            let short = is_short(&(offset, len));
            let (image, after) = carried.split_at(if short { len as usize } else { 0 });
            carried = after;
            let first = self.copies.partition_point(|copy| copy.offset + copy.len <= offset);
            let mut done = offset;
            let new = |from: u64, to: u64| match short && from < to && !core.failpoints.skips(Step::CarriedNew) {
                true => put(from, &image[(from - offset) as usize..(to - offset) as usize]),
                false => Ok(()),
            };
            join(std::iter::once(((offset, len), ())), self.copies[first..].iter().copied(), |(), main, copy, n| {
                new(done, main)?;
                done = main + n;
                match short {
                    true => put(copy, &image[(main - offset) as usize..(main + n - offset) as usize]),
                    // as above; a copy lies in another region.
                    false => raw::copy(Claim::Recovery, &core.pool, main, copy, n),
                }
            })?;
            new(done, offset + len)?;
        }
        Ok(())
    }

    /// Makes main what the copies are. One barrier, none if there is no copy.
    pub(super) fn restore(&self, core: &Core, recovery: &mut Recovery) -> Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        if core.pool.is_read_only() {
            return Err(PoolError::NeedsRecovery { path: core.pool.path().to_owned() }.into());
        }
        for &Copied { offset, len, at } in &self.copies {
            // What is equal may be so in a cache only.
            core.pool.flush(offset, len)?;
            // nothing else uses the heap during recovery; the slices end before anything is written.
            let same = raw::bytes(Claim::Recovery, core, &core.pool, offset, len)?
                == raw::bytes(Claim::Recovery, core, &core.pool, at, len)?;
            if !same {
                raw::copy(Claim::Recovery, &core.pool, at, offset, len)?;
                recovery.restored_bytes += len;
            }
        }
        core.pool.drain()?; // before the copies are void
        Ok(())
    }
}
