//! Looks for bytes that went bad at rest, and repairs the copy that is wrong.
//!
//! | live bytes of a page: main = backup | the zone's checksums | the kept checksum verifies | action |
//! |---|---|---|---|
//! | equal | of the backup as it is | | none; kept anew if it does not verify: free bytes differ |
//! | equal | none, or of an earlier time | | kept anew: the page was written since |
//! | different | of the backup as it is | the backup | main is wrong: backup to main |
//! | different | of the backup as it is | the page with some blocks as main has them | these are wrong in the backup, the others in main |
//! | different | of the backup as it is | neither | an error, and nothing is changed |
//! | different | none, or of an earlier time | | the same |
//!
//! No copy is overwritten but by one that was held against the checksum. (An earlier checksum that verifies proves nothing: a backup's page that went
//! back to what it held then would be believed.) A copy that cannot be read is wrong, whatever it holds. Free bytes may differ.
//!
//! # Beside transactions
//!
//! A zone is looked at while it is clean and kept so: no thread applies in it, so its backup stands still; no transaction commits an allocation in it; and one
//! that writes to an object of it waits. Blocks may still be freed there, and a free one be taken for a log, which enters no zone. So of main only blocks that
//! are live on media are looked at, one by one, each while its lock is held, shared: then it is not freed. To be repaired it is locked as by a
//! writer. A block that is locked otherwise, and a zone that a transaction is in, are left alone, and the zone is counted as busy.

use std::ops::Range;

use pmem::{Error as PoolError, Found, PPtr};
use tx::{Error, Result};

use crate::core::Core;
use crate::ground::read_line;
use crate::lock;
use crate::options::Policy;
use crate::raw::{self, Claim, Word};
use crate::record::Bytes;
use crate::regions::PAGE;
use crate::zones::Mark;

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
/// Of more blocks that differ in one page, not every choice is tried: with few, one that verifies by chance is one in sixteen million.
const TRIED_MAX: usize = 8;

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
        let apply = |seen: &mut dyn FnMut(&_)| core.apply_all(seen);
        let whole = core.zones.while_clean(zone, &core.active, apply, || scrub.zone(zone))?;
        scrub.found.zones += u64::from(whole.is_some());
        scrub.found.busy += u64::from(whole != Some(true));
    }
    Ok((scrub.found, scrub.unclear))
}

/// The checksums to keep of a zone that is being cleaned, with no transaction in it: of its backup's pages. A page of which the copies differ was corrupted in one of
/// them, before the zone was written to or since: it gets a checksum that neither has, so that the one that happened to be looked at here is not taken for
/// right.
pub(crate) fn sums(core: &Core, zone: u32) -> Result<Vec<u32>> {
    let mut scrub = Scrub { core, repair: false, found: Scrubbed::default(), unclear: Vec::new() };
    let start = u64::from(zone) * core.zones.bytes();
    let end = (start + core.zones.bytes()).min(core.backup.len());
    let mut sums = Vec::new();
    for at in (start..end).step_by(PAGE as usize) {
        let len = PAGE.min(end - at);
        let backup = core.backup_bytes(at, len)?;
        let sum = core.zones.sum_of(&backup);
        let main = readable(read_line(&core.pool, &core.main, at, len))?;
        let mut agree = main.is_some_and(|main| main == backup);
        if !agree {
            let mut page = Page { at, len, backup: Some(backup), kept: sum, as_kept: true, summed: false };
            agree = match scrub.page(&mut page) {
                Err(Error::Damaged { what: "page", .. }) => false,
                looked_at => looked_at.map(|_| true)?,
            };
        }
        if !agree {
            tracing::warn!(
                at,
                "main and backup of a page differ though everything is applied: one of them is corrupt, and nothing tells which"
            );
        }
        sums.push(if agree { sum } else { !sum });
    }
    Ok(sums)
}

impl Core {
    /// Applies everything, and cleans all zones, with their checksums.
    pub(crate) fn clean_all(&self) -> Result<()> {
        self.apply_all(&mut |_| {})?;
        if self.policy == Policy::InPlace {
            let sums = |zone| sums(self, zone).map(Some);
            self.zones.clean(usize::MAX, |seen| self.apply_all(seen), sums)?;
        }
        Ok(())
    }
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
    kept: u32,
    /// What its backup holds verifies.
    as_kept: bool,
    /// The checksum is of the backup as it is, or should be.
    summed: bool,
}

/// What was seen of a block's bytes in a page.
enum Seen {
    /// Nothing to be repaired.
    Equal,
    InUse,
    Different(Different),
}

/// Bytes of a block that are not the same in both copies. Locked while this lasts, shared, or as by a writer.
struct Different {
    word: Word,
    written: bool,
    range: Bytes,
    /// Where in the page.
    at: Range<usize>,
    /// What main holds, if it can be read.
    main: Option<Vec<u8>>,
}

impl Drop for Different {
    fn drop(&mut self) {
        match self.written {
            true => lock::end_write(self.word.get()),
            false => lock::end_read(self.word.get()),
        }
    }
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
            let mut page = Page { at, len, backup, kept, as_kept: sum == Some(kept), summed };
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
        let (mut looked_at, mut different) = (None, Vec::new());
        while at < page.at + page.len {
            let Some((offset, _)) = self.core.main.offset(at) else { break }; // the backup may be longer
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
            match self.block(page, &found, from, end)? {
                Seen::Equal => {}
                Seen::InUse => whole = false,
                Seen::Different(block) => different.push(block),
            }
            at = end;
        }
        match different.is_empty() {
            true => Ok(whole),
            false => Ok(self.repair(page, &mut different)? && whole),
        }
    }

    /// The bytes from `from` to `end` of the line, which lie in a block that was live just now.
    fn block(&self, page: &Page, found: &Found<'_>, from: u64, end: u64) -> Result<Seen> {
        let core = self.core;
        let (block, word) = (found.block(), Word::at(found));
        // Reserved only: of a transaction that has not come to write, or of a log.
        if !core.alloc.is_published(&block)? {
            return Ok(Seen::Equal);
        }
        if lock::try_read(word.get()).is_err() {
            return Ok(Seen::InUse);
        }
        let at = (from - page.at) as usize..(end - page.at) as usize;
        let mut seen = Different { word, written: false, range: (0, end - from), at, main: None };
        // Else it has been freed meanwhile.
        if !found.is_current() || !core.alloc.is_published(&block).unwrap_or(false) {
            return Ok(Seen::Equal);
        }
        let Some((offset, _)) = core.main.offset(from) else { return Ok(Seen::Equal) };
        seen.range.0 = offset;
        let main = readable(raw::bytes(Claim::Reader, core, &core.pool, offset, end - from))?;
        let backup = page.backup.as_ref().map(|bytes| &bytes[seen.at.clone()]);
        if main.is_some() && main == backup {
            return Ok(Seen::Equal);
        }
        seen.main = main.map(<[u8]>::to_vec);
        Ok(Seen::Different(seen))
    }

    /// Of the blocks of a page that differ, which are all locked: each becomes what the copy says that was found to be right, or none is touched. False if
    /// one is in use.
    fn repair(&mut self, page: &mut Page, different: &mut [Different]) -> Result<bool> {
        let Some(main_is_right) = self.judge(page, different) else { return Err(differ(different[0].range)) };
        let mut whole = true;
        for (block, main_is_right) in different.iter_mut().zip(main_is_right) {
            let (offset, len) = block.range;
            if main_is_right {
                self.found.backup_repaired += len;
                page.as_kept = false;
                if self.repair {
                    self.core.copy_to_backup(offset, len)?;
                }
                continue;
            }
            if self.repair {
                block.written = self.lock_alone(&block.word);
                if !block.written {
                    whole = false;
                    continue;
                }
                self.core.copy_from_backup(offset, len)?;
            }
            self.found.main_repaired += len;
        }
        Ok(whole)
    }

    /// For each block that differs, whether main is right; nothing if that is not known of all.
    fn judge(&self, page: &Page, different: &[Different]) -> Option<Vec<bool>> {
        let all = |right| Some(vec![right; different.len()]);
        let Some(backup) = &page.backup else {
            return if different.iter().all(|block| block.main.is_some()) { all(true) } else { None };
        };
        if !page.summed {
            return if different.iter().all(|block| block.main.is_none()) { all(false) } else { None };
        }
        if page.as_kept {
            return all(false);
        }
        // All of main first; then some of it, if they are few.
        let masks = match different.len() {
            n if n <= TRIED_MAX => 1..1 << n,
            _ => 0..0,
        };
        std::iter::once(u64::MAX).chain(masks).find_map(|mask| {
            let takes = |n: usize| n >= 64 && mask == u64::MAX || n < 64 && mask & 1 << n != 0;
            let mut bytes = backup.clone();
            for (_, block) in different.iter().enumerate().filter(|(n, _)| takes(*n)) {
                bytes[block.at.clone()].copy_from_slice(block.main.as_ref()?);
            }
            (self.core.zones.sum_of(&bytes) == page.kept).then(|| (0..different.len()).map(takes).collect())
        })
    }

    /// From the only reader to the writer.
    fn lock_alone(&self, word: &Word) -> bool {
        let slots = &self.core.slots;
        // The slot only names the writer; a slot that is not ours could be taken for another's transaction.
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
