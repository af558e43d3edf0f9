//! A partial backup as it is made, opened, recovered and changed in size.

use pmem::{Error as PoolError, Persist, Pool, Region, TwoSlot};
use tx::{Error, Result};

use crate::cell;
use crate::copies::{Copied, Copies, HEADER, UNIT, WHOLE, join};
use crate::core::{COPIES, COPIES_STATE, Core, Follower, areas};
use crate::failpoints::Step;
use crate::options::{MILLION, Options};
use crate::raw::{self, Claim};
use crate::record::{Bytes, is_short};
use crate::recovery::Recovery;
use crate::space::Space;
use crate::zones::PAGE;

/// What a partial backup says about itself, in a cell of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct CopiesState {
    /// Of the checksums: another one for each opening.
    pub(crate) epoch: u64,
    /// Its share of the bytes for objects, in millionths.
    pub(crate) share: u64,
    /// 1 from opening to closing: main may differ from copies.
    pub(crate) open: u64,
}

impl CopiesState {
    pub(crate) fn is_sound(&self) -> bool {
        (1..=MILLION).contains(&self.share) && self.open <= 1 && self.epoch < 1 << 48
    }

    fn bytes(&self, main: u64) -> u64 {
        (u128::from(main) * u128::from(self.share) / u128::from(MILLION)) as u64
    }
}

/// The regions of a partial backup: those of an earlier time, or new ones, to be made large enough by [`Core::begin_copies`].
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

impl Core {
    /// Voids all copies and begins anew, with the share that is wanted. Main is as it should be.
    pub(crate) fn begin_copies(&mut self, options: &Options) -> Result<()> {
        let Follower::Copies(region, cell) = self.growing.get_mut() else { return Ok(()) };
        let before = cell.get();
        let epoch = before.epoch + u64::from(!self.failpoints.skips(Step::Epoch));
        let state = CopiesState { epoch, share: options.share().unwrap_or(before.share), open: 1 };
        // Larger before the old copies are void, smaller behind that: until then recovery may need them.
        grow_to(&self.pool, region, state.bytes(self.main.len()))?;
        cell.update_mirrored(&state)?;
        cut_to(&self.pool, region, state.bytes(self.main.len()))?;
        let line = Space::new();
        line.update(areas(region));
        let copies = Copies::new(&self.pool, state.epoch, line, self.failpoints);
        copies.arena.lock().extend(&copies, state.bytes(self.main.len()))?;
        self.copies = Some(copies);
        Ok(())
    }

    /// The copies are as large a share of main as before it grew.
    pub(crate) fn follow_by_share(&self, region: &mut Region, state: &CopiesState) -> Result<()> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let wanted = state.bytes(self.main.len());
        grow_to(&self.pool, region, wanted)?;
        copies.line.update(areas(region));
        copies.arena.lock().extend(copies, wanted)
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

/// Makes a region at least so large; if there is no space for that, the copies are fewer.
fn grow_to(pool: &Pool, region: &mut Region, bytes: u64) -> Result<()> {
    let more = bytes.next_multiple_of(PAGE).saturating_sub(region.len());
    match if more > 0 { pool.grow_region(region, more) } else { Ok(()) } {
        Ok(()) | Err(PoolError::NoSpace { .. } | PoolError::Reserve { .. } | PoolError::DirectoryFull { .. }) => Ok(()),
        Err(e) => Err(e.into()),
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

// ---- recovery -------------------------------------------------------------------------------------------------------

/// The copies that a crash left, in the order of main.
#[derive(Default)]
pub(crate) struct Left {
    copies: Vec<Copied>,
}

/// Finds the copies that count, and makes them sure, persistently after the next drain.
///
/// | tag | proof | it is |
/// |---|---|---|
/// | right | sure, or checksums its bytes | a copy |
/// | right | another | one that was being made: its object was not written. Or one that is damaged: it is in doubt |
/// | wrong | sure | a copy of nobody knows what: damaged |
/// | wrong | another | nothing |
pub(crate) fn find(core: &Core, recovery: &mut Recovery) -> Result<Left> {
    let mut left = Left::default();
    let (Some(copies), Follower::Copies(_, cell)) = (&core.copies, &*core.growing.lock()) else { return Ok(left) };
    if cell.get().open == 0 {
        return Ok(left);
    }
    let (mut at, mut proven) = (0, Vec::new());
    while let Some((place, rest)) = copies.line.place(at) {
        if place % PAGE == 0 && rest >= PAGE && is_zero(core, place)? {
            at += PAGE; // no copy begins here
            continue;
        }
        if rest < HEADER {
            at += rest;
            continue;
        }
        let [offset, len, proof, tag] = header(core, place)?;
        let copy = Copied { offset, len, at: place + HEADER };
        let whole = len > 0 && len <= WHOLE && Copies::space(len) <= rest && tag == copies.tag(at, offset, len);
        if proof == 0 || !whole && proof != copies.sure(at) {
            at += UNIT;
            continue;
        }
        if !whole {
            let why = "what it is of is not to be read any more".into();
            return Err(Error::Damaged { what: "copy of an object", offset: place, why });
        }
        let checksummed = || -> Result<bool> {
            // nobody else has the heap during recovery.
            let bytes = raw::bytes(Claim::Recovery, core, &core.pool, copy.at, len)?;
            Ok(proof == copies.checksummed(tag, bytes))
        };
        if proof != copies.sure(at) && !core.failpoints.skips(Step::CopyChecksum) && !checksummed()? {
            recovery.copies_in_doubt.push(place);
            at += UNIT;
            continue;
        }
        crate::recovery::check_range(core, (offset, len), place)?;
        left.copies.push(copy);
        proven.push((at, copy, proof == copies.sure(at)));
        at += Copies::space(len);
    }
    if !core.pool.is_read_only() {
        make_sure(core, copies, &proven)?;
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
fn make_sure(core: &Core, copies: &Copies, proven: &[(u64, Copied, bool)]) -> Result<()> {
    for (_, copy, sure) in proven {
        // A killed process may have left it in a cache only: the checksum with its bytes, or the word that made it sure behind their barrier. That
        // word is durable with the barrier in front of whatever changes the copy, or main.
        core.pool.flush(copy.at - HEADER, if *sure { HEADER } else { HEADER + copy.len })?;
    }
    if proven.iter().any(|(.., sure)| !sure) {
        core.pool.drain()?;
    }
    for (at, copy, _) in proven.iter().filter(|(.., sure)| !sure) {
        let place = copy.at - HEADER + 16;
        // nobody else has the heap during recovery.
        raw::bytes_mut(Claim::Recovery, core, &core.pool, place, 8)?.copy_from_slice(&copies.sure(*at).to_le_bytes());
        core.pool.flush(place, 8)?; // before the records are gone that tell of changes of it
    }
    Ok(())
}

fn is_zero(core: &Core, place: u64) -> Result<bool> {
    // nobody else has the heap during recovery.
    Ok(raw::bytes(Claim::Recovery, core, &core.pool, place, PAGE)?.iter().all(|byte| *byte == 0))
}

fn header(core: &Core, place: u64) -> Result<[u64; 4]> {
    // nobody else has the heap during recovery.
    let bytes = raw::bytes(Claim::Recovery, core, &core.pool, place, HEADER)?;
    Ok(pmem::from_bytes(bytes).unwrap_or_default())
}

impl Left {
    /// What a transaction that is durable has written goes to the copies, and what its record carries of objects without one, to main.
    pub(crate) fn forward(&self, core: &Core, ranges: &[Bytes], mut carried: &[u8]) -> Result<()> {
        let put = |place, bytes: &[u8]| -> Result<()> {
            // nobody else has the heap during recovery.
            raw::bytes_mut(Claim::Recovery, core, &core.pool, place, bytes.len() as u64)?.copy_from_slice(bytes);
            core.pool.flush(place, bytes.len() as u64)?;
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
    pub(crate) fn restore(&self, core: &Core, recovery: &mut Recovery) -> Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        if core.pool.is_read_only() {
            return Err(PoolError::NeedsRecovery { path: core.pool.path().to_owned() }.into());
        }
        for &Copied { offset, len, at } in &self.copies {
            // What is equal may be so in a cache only.
            core.pool.flush(offset, len)?;
            // nobody else has the heap during recovery; the slices end before anything is written.
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
