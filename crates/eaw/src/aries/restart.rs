//! After a crash: analysis and redo in one pass over the log, then undo.
//!
//! Invariant: what is undone is in the log before it is in a page, and says what is left to be undone; so a restart that is cut short, however often, comes to the same end.

use std::collections::BTreeMap;

use pmem::LINE;

use super::Core;
use super::disk::HEADER;
use super::failpoints::Step;
use super::wal::Entry;
use crate::error::{Error, Result};
use crate::records::session::CATALOG;
use crate::records::space::Location;

/// What a restart did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restart {
    /// Records of the log that were read.
    pub read: u64,
    /// Changes that were made again.
    pub redone: u64,
    /// Transactions that were undone.
    pub losers: u64,
    /// Changes of theirs that were undone.
    pub undone: u64,
    /// Pages that are not what was written, or have lost changes with the end of the log: records of theirs are lost, or as they were before.
    pub damaged: Vec<u64>,
}

/// A change that is to be undone.
struct Loss {
    lsn: u64,
    page: u64,
    at: u32,
    before: Vec<u8>,
}

/// What was logged from `next` on is not to be undone; they are in order.
fn keep_before(losses: &mut Vec<Loss>, next: u64) {
    let left = losses.partition_point(|loss| loss.lsn < next);
    losses.truncate(left);
}

impl Core {
    pub(super) fn restart(&mut self) -> Result<Restart> {
        let mut done = Restart::default();
        let losers = self.analyse_and_redo(&mut done)?;
        self.undo(losers, &mut done)?;
        if done.read > 1 {
            // The next one has less to do.
            self.tidy(0)?;
        }
        Ok(done)
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { path: self.pool.path().to_owned(), what }
    }

    /// The record of the newest checkpoint.
    fn newest_checkpoint(&self) -> Result<(u64, u64, BTreeMap<u64, u64>)> {
        let lsn = self.master.lock().get().checkpoint;
        if lsn == 0 {
            return Ok((1, 1, BTreeMap::new()));
        }
        let mut records = self.wal.log.iter_from(log::Lsn::new(lsn));
        let found = records.next()?.filter(|record| record.lsn.get() == lsn);
        match found.and_then(|record| Entry::decode(record.payload)) {
            Some((_, Entry::Checkpoint { from, begin, dirty })) => Ok((from, begin, dirty.into_iter().collect())),
            _ => Err(self.damaged("checkpoint of a store of records")),
        }
    }

    /// What those did that have not ended, by transaction.
    fn analyse_and_redo(&self, done: &mut Restart) -> Result<BTreeMap<u64, Vec<Loss>>> {
        let (from, begin, dirty) = self.newest_checkpoint()?;
        *self.checkpointed.lock() = from - 1; // so that this restart makes one
        let mut losers: BTreeMap<u64, Vec<Loss>> = BTreeMap::new();
        let mut records = self.wal.log.iter_from(log::Lsn::new(from));
        while let Some(record) = records.next()? {
            let (lsn, payload) = (record.lsn.get(), record.payload);
            let Some((transaction, entry)) = Entry::decode(payload) else {
                return Err(self.damaged("record of the log of a store of records"));
            };
            done.read += 1;
            // Behind the checkpoint any page may lack it; before, those that it lists.
            let may_lack = |page: u64| lsn >= begin || dirty.get(&page).is_some_and(|since| *since <= lsn);
            match entry {
                Entry::Change { page, at, before, after } => {
                    if page >= self.buffer.pages() || at as usize + before.len().max(after.len()) > self.page as usize {
                        return Err(self.damaged("record of the log of a store of records"));
                    }
                    if may_lack(page) {
                        self.redo(page, at, after, lsn, done)?;
                    }
                    losers.entry(transaction).or_default().push(Loss { lsn, page, at, before: before.to_vec() });
                }
                Entry::Compensation { page, at, after, next } => {
                    if may_lack(page) {
                        self.redo(page, at, after, lsn, done)?;
                    }
                    if self.wal.steps.has(Step::Compensations) {
                        keep_before(losers.entry(transaction).or_default(), next);
                    }
                }
                Entry::Nested { next } => keep_before(losers.entry(transaction).or_default(), next),
                Entry::Format { page, slot } if may_lack(page) => {
                    self.with_page(page, done, |held| {
                        let lacks = held.page.lsn() < lsn || held.is_damaged;
                        if lacks {
                            held.format(slot, lsn);
                        }
                        lacks
                    })?;
                }
                Entry::Commit | Entry::End => drop(losers.remove(&transaction)),
                Entry::Format { .. } | Entry::Checkpoint { .. } => {}
            }
        }
        Ok(losers)
    }

    fn redo(&self, page: u64, at: u32, after: &[u8], lsn: u64, done: &mut Restart) -> Result<()> {
        if at as usize + after.len() > self.page as usize {
            return Err(self.damaged("record of the log of a store of records"));
        }
        self.with_page(page, done, |held| {
            // A change would get a damaged page a checksum. To do it again would do no harm, as everything behind it is done again, too.
            let lacks = held.is_sound() && held.page.lsn() < lsn;
            if lacks {
                held.change(at as usize, after, lsn);
            }
            lacks
        })
    }

    /// Counts what `act` says that it did. A damaged page is left alone, and told, but for one that begins anew.
    fn with_page(
        &self,
        page: u64,
        done: &mut Restart,
        act: impl FnOnce(&mut super::buffer::Held) -> bool,
    ) -> Result<()> {
        if page >= self.buffer.pages() {
            return Err(self.damaged("record of the log of a store of records: no such page"));
        }
        let (did, is_damaged) = self.buffer.with(&self.wal, page, |held| {
            let was = held.is_damaged;
            let did = act(held);
            Ok((did, was && held.is_damaged))
        })?;
        if is_damaged && !done.damaged.contains(&page) {
            done.damaged.push(page);
        }
        done.redone += u64::from(did);
        Ok(())
    }

    /// The newest change first, whichever transaction's it is.
    fn undo(&self, mut losers: BTreeMap<u64, Vec<Loss>>, done: &mut Restart) -> Result<()> {
        let mut scratch = Vec::new();
        done.losers = losers.values().filter(|losses| !losses.is_empty()).count() as u64;
        while self.wal.steps.has(Step::Undo) {
            let newest = losers.iter().filter_map(|(number, losses)| Some((losses.last()?.lsn, *number))).max();
            let Some((_, number)) = newest else { break };
            let Some(loss) = losers.get_mut(&number).and_then(Vec::pop) else { break };
            let Loss { lsn, page, at, before } = loss;
            let entry = Entry::Compensation { page, at, after: &before, next: lsn };
            self.buffer.with(&self.wal, page, |held| {
                let own = self.wal.add(number, &entry, &mut scratch)?;
                if held.is_sound() {
                    held.change(at as usize, &before, own);
                }
                Ok(())
            })?;
            done.undone += 1;
        }
        for number in losers.into_keys() {
            self.wal.add(number, &Entry::End, &mut scratch)?;
        }
        Ok(())
    }

    /// Reads all pages: where records are, and which slots are free; and the catalog.
    pub(super) fn find_records(&mut self, damaged: &mut Vec<u64>) -> Result<()> {
        let count = self.buffer.pages();
        let used = self.master.get_mut().get().used;
        let mut lost = 0;
        let mut names: Vec<(u32, String)> = Vec::new();
        // Tables that there are at least: those of records.
        let mut tables_min = 0;
        self.shared.space.get_mut().grow(count);
        for page in 0..count {
            let start = page * self.page;
            let mut found: Vec<(u64, Location)> = Vec::new();
            let mut free = Vec::new();
            let shared = &self.shared;
            let (slot, is_damaged) = self.buffer.with(&self.wal, page, |held| {
                let slot = held.page.slot();
                let is_sound = slot == 0 && page >= used
                    || slot.is_multiple_of(LINE as u32) && (LINE..=self.page - LINE).contains(&u64::from(slot));
                if held.is_damaged || !is_sound || slot == 0 {
                    return Ok((slot, held.is_damaged || !is_sound));
                }
                let mut space = shared.space.lock();
                space.has_slots(page, slot);
                for at in space.slots(page, slot) {
                    let header = &held.page.0[(at - start) as usize..][..HEADER];
                    let (id, rest) = header.split_at(8);
                    let (table, len) = rest.split_at(4);
                    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                    let (id, table, len) = (word(id), word(table) as u32, word(len) as u32);
                    if id == 0 {
                        free.push(at);
                    } else if len as usize + HEADER <= slot as usize {
                        found.push((id, Location { at, table, len }));
                        if table == CATALOG.0 {
                            let said = &held.page.0[(at - start) as usize + HEADER..][..len as usize];
                            let (number, name) = said.split_at_checked(4).unwrap_or_default();
                            names.push((word(number) as u32, String::from_utf8_lossy(name).into_owned()));
                        } else {
                            tables_min = tables_min.max(table as usize + 1);
                        }
                    } else {
                        lost += 1;
                    }
                }
                Ok((slot, false))
            })?;
            let space = self.shared.space.get_mut();
            if is_damaged {
                // Nothing is put there: the page counts as one slot that is never free.
                space.has_slots(page, (self.page - LINE) as u32);
                lost += 1;
                if !damaged.contains(&page) {
                    damaged.push(page);
                }
            } else if slot > 0 {
                free.into_iter().for_each(|at| space.give_slot(at));
                lost += found.into_iter().filter(|(id, location)| !space.found(*id, *location)).count();
            }
        }
        // Those, too, that began anew: what the log has of them is there, what it has lost is not.
        for page in self.buffer.ahead() {
            if !damaged.contains(&page) {
                damaged.push(page);
                lost += 1;
            }
        }
        self.shared.space.get_mut().collect_ids();
        self.shared.damaged = lost;
        names.sort_unstable();
        let tables = self.shared.tables.get_mut();
        let is_whole = (0..).zip(&names).all(|(number, (said, _))| *said == number) && names.len() >= tables_min;
        tables.extend(names.into_iter().map(|(_, name)| name));
        if is_whole { Ok(()) } else { Err(self.damaged("catalog of a store of records")) }
    }
}
