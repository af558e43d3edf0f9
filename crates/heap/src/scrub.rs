//! Looks for bytes that went bad at rest, and repairs the copy that is wrong.
//!
//! | live bytes of a page: main = backup | the backup's checksum | action |
//! |---|---|---|
//! | equal | as kept | none |
//! | equal | not as kept, or none kept | kept anew: the page was written since |
//! | different | as kept | main is wrong: backup to main |
//! | different | not as kept | the backup is wrong: main to backup, if a checksum was kept since the last write; else an error |
//!
//! A copy that cannot be read is wrong, whatever it holds. Free bytes may differ.
//!
//! # Beside transactions
//!
//! A zone is looked at while it is clean and kept so: nobody settles in it, so its backup stands still; nobody commits an allocation in it; and who
//! writes to an object of it waits. Blocks may still be freed there, and a free one be taken for a log, which enters no zone. So of main only blocks that
//! are live on media are looked at, one by one, each while its lock is held, shared: then it is not freed. To be repaired it is locked as by a
//! writer. A block that is locked otherwise, and a zone that a transaction is in, are left alone, and the zone is counted as busy.

use pmem::{Error as PoolError, Found, PPtr};
use tx::{Error, Result};

use crate::core::Core;
use crate::lock;
use crate::options::Policy;
use crate::raw::{self, Claim, Word};
use crate::record::Bytes;
use crate::zones::{Mark, PAGE};

/// What scrubbing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Zones looked at.
    pub zones: u64,
    /// Zones that are, or hold an object that is, in use: not looked at, or not at all of it.
    pub busy: u64,
    /// Bytes of main repaired from the backup.
    pub main_repaired: u64,
    /// Bytes of the backup repaired from main.
    pub backup_repaired: u64,
}

impl Scrubbed {
    fn repaired(&self) -> u64 {
        self.main_repaired + self.backup_repaired
    }
}

/// Pages that are told of.
const UNCLEAR_MAX: usize = 64;
/// No block is shorter.
const BLOCK_MIN: u64 = 16;

/// Repairs what it finds, if it is to; else says what it would repair. Fails if of some page nothing tells what is right.
pub(crate) fn run(core: &Core, repair: bool) -> Result<Scrubbed> {
    let (found, unclear) = look(core, repair)?;
    unclear.into_iter().next().map_or(Ok(found), Err)
}

/// The same; and the pages of which nothing tells what is right, up to so many.
pub(crate) fn look(core: &Core, repair: bool) -> Result<(Scrubbed, Vec<Error>)> {
    let mut scrub = Scrub { core, repair, found: Scrubbed::default(), unclear: Vec::new() };
    if core.policy != Policy::InPlace {
        return Ok((scrub.found, scrub.unclear));
    }
    for zone in 0..core.main.len().div_ceil(core.zones.bytes()) as u32 {
        let settle = |seen: &mut dyn FnMut(&_)| core.settle_all(seen);
        let whole = core.zones.while_clean(zone, &core.active, settle, || scrub.zone(zone))?;
        scrub.found.zones += u64::from(whole.is_some());
        scrub.found.busy += u64::from(whole != Some(true));
    }
    Ok((scrub.found, scrub.unclear))
}

struct Scrub<'a> {
    core: &'a Core,
    repair: bool,
    found: Scrubbed,
    /// The first pages of which nothing tells what is right. The others are looked at all the same.
    unclear: Vec<Error>,
}

/// A page of the line, and what its backup holds.
struct Page {
    at: u64,
    len: u64,
    backup: Option<Vec<u8>>,
    as_kept: bool,
    /// A checksum was kept since the last write.
    summed: bool,
}

impl Scrub<'_> {
    /// Of a clean zone, kept so. False if something in it is in use.
    fn zone(&mut self, zone: u32) -> Result<bool> {
        let core = self.core;
        let start = u64::from(zone) * core.zones.bytes();
        let end = (start + core.zones.bytes()).min(core.backup.len());
        let summed = core.zones.mark(zone)? == Mark::Summed;
        let (mut whole, mut clear, mut as_kept) = (true, true, true);
        let (mut sums, repaired) = (Vec::new(), self.found.repaired());
        for (number, at) in (start..end).step_by(PAGE as usize).enumerate() {
            let len = PAGE.min(end - at);
            let backup = readable(core.backup_bytes(at, len))?;
            let sum = backup.as_ref().map(|bytes| core.zones.sum_of(bytes));
            let kept = core.zones.sum(zone, number as u64)?;
            let mut page = Page { at, len, backup, as_kept: sum == Some(kept), summed };
            let before = self.found.backup_repaired;
            match self.page(&mut page) {
                Ok(all) => whole &= all,
                Err(unclear @ Error::Damaged { what: "page", .. }) => {
                    clear = false;
                    if self.unclear.len() < UNCLEAR_MAX {
                        self.unclear.push(unclear);
                    }
                }
                Err(e) => return Err(e),
            }
            as_kept &= page.as_kept;
            sums.push(match sum {
                Some(sum) if self.found.backup_repaired == before || !self.repair => sum,
                _ => core.zones.sum_of(&readable(core.backup_bytes(at, len))?.unwrap_or_default()),
            });
        }
        if self.repair && whole && clear && !(summed && as_kept) {
            core.zones.set_sums(zone, &sums)?;
            core.pool.drain()?; // what was repaired, too
            core.zones.set_mark(zone, Mark::Summed)?;
            core.pool.drain()?;
        } else if self.repair && self.found.repaired() > repaired {
            core.pool.drain()?;
        }
        Ok(whole)
    }

    /// Every live block of the page. False if one is in use.
    fn page(&mut self, page: &mut Page) -> Result<bool> {
        let (alloc, tag) = (&self.core.alloc, self.core.pool.tag());
        let (mut at, mut whole) = (page.at, true);
        let mut looked_at = None;
        while at < page.at + page.len {
            let Some((offset, _)) = self.core.main.place(at) else { break }; // the backup may be longer
            let ptr = PPtr::<u8>::new(tag, offset);
            let chunk = at / alloc.chunk_size();
            let found = match alloc.find_known(ptr, 0) {
                // Once for each chunk, which may not have been looked at since the heap was opened.
                None if looked_at.replace(chunk) != Some(chunk) => match alloc.find(ptr, 0) {
                    Ok(found) => Some(found),
                    Err(PoolError::BadPointer { .. }) => None,
                    Err(e) => return Err(e.into()),
                },
                known => known,
            };
            let Some(found) = found else {
                at += BLOCK_MIN - offset % BLOCK_MIN;
                continue;
            };
            let block_end = at + (found.block().offset() + found.block().len() - offset);
            let from = at - (offset - found.block().offset()).min(at - page.at);
            let end = block_end.min(page.at + page.len);
            whole &= self.block(page, &found, from, end)?;
            at = end;
        }
        Ok(whole)
    }

    /// The bytes from `from` to `end` of the line, which lie in a block that was live just now. False if it is in use.
    fn block(&mut self, page: &mut Page, found: &Found<'_>, from: u64, end: u64) -> Result<bool> {
        let (block, word) = (found.block(), Word::at(found));
        // Reserved only: of a transaction that has not come to write, or of a log.
        if !self.core.alloc.is_published(&block)? {
            return Ok(true);
        }
        if lock::try_read(word.get()).is_err() {
            return Ok(false);
        }
        let (mut outcome, mut written) = (Ok(true), false);
        // Else it has been freed meanwhile.
        if found.is_current() && self.core.alloc.is_published(&block).unwrap_or(false) {
            outcome = self.compare(page, word, (from, end), &mut written);
        }
        match written {
            true => lock::end_write(word.get()),
            false => lock::end_read(word.get()),
        }
        outcome
    }

    /// Of a block that is locked, shared. `written` becomes true if it is locked as by a writer.
    fn compare(&mut self, page: &mut Page, word: Word, (from, end): (u64, u64), written: &mut bool) -> Result<bool> {
        let core = self.core;
        let Some((offset, _)) = core.main.place(from) else { return Ok(true) };
        let (range, at) = ((offset, end - from), (from - page.at) as usize..(end - page.at) as usize);
        let main = readable(raw::bytes(Claim::Reader, &core.pool, range.0, range.1))?;
        let backup = page.backup.as_ref().map(|bytes| &bytes[at]);
        match (main, backup) {
            (Some(main), Some(backup)) if main == backup => Ok(true),
            (main, Some(_)) if page.as_kept || main.is_none() => {
                self.found.main_repaired += range.1;
                if self.repair {
                    *written = self.lock_alone(word);
                    if !*written {
                        self.found.main_repaired -= range.1;
                        return Ok(false);
                    }
                    core.copy_from_backup(range.0, range.1)?;
                }
                Ok(true)
            }
            (Some(_), backup) if page.summed || backup.is_none() => {
                self.found.backup_repaired += range.1;
                page.as_kept = false;
                if self.repair {
                    core.copy_to_backup(range.0, range.1)?;
                }
                Ok(true)
            }
            _ => Err(differ(range)),
        }
    }

    /// From the only reader to the writer.
    fn lock_alone(&self, word: Word) -> bool {
        let slots = &self.core.slots;
        // The slot only names who writes; a slot that is not ours could be taken for another's transaction.
        slots.claim(pmem::thread_number()).is_some_and(|slot| {
            let ours = lock::try_upgrade(word.get(), slot).is_ok();
            slots.release(slot);
            ours
        })
    }
}

fn differ((offset, _): Bytes) -> Error {
    let why = "main and backup differ, and neither is as the kept checksum says".into();
    Error::Damaged { what: "page", offset, why }
}

fn readable<T>(bytes: Result<T>) -> Result<Option<T>> {
    match bytes {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Pool(PoolError::Unreadable { .. })) => Ok(None),
        Err(e) => Err(e),
    }
}
