//! A transaction of the head, or one that only reads, at the tail.
//!
//! It locks what it looks at, in the state machine, and works on copies in DRAM. Its changes are its record; nothing of it is on the medium, or in the heap, before the record is. So an abort
//! leaves nothing behind, and the head needs no backup, as the other members.
//!
//! At the tail it locks nothing, sends nothing and waits for nothing: a record that writes what it has read overtakes it, and it has a conflict at its next access, or at its commit. So what it has read is
//! always of one moment, and a commit says that this moment was before the lease ended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;

use elsa::FrozenBTreeMap;
use pmem::PPtr;
use tx::{Doom, Isolation, Range, Transaction};

use super::{Node, Ticket};
use crate::error::refused;
use crate::image::{ALIGN_MAX, ROOT, ROOT_LEN, TAG, map_byte, pointer};
use crate::node::core::queue_bytes;
use crate::size::SizeCode;
use crate::writes::Writes;
use crate::{Entry, Error, Number, Object, Refusal, TransactionId, ViewId};

/// A transaction of a [`Node`].
pub struct NodeTx<'n> {
    node: &'n Node,
    transaction: TransactionId,
    /// Of the copy that it began on.
    epoch: u64,
    at_tail: bool,
    /// By first byte. Entries stay where they are while the transaction is borrowed.
    locals: FrozenBTreeMap<u64, Box<Local>>,
    /// Blocks of its own: length by first byte.
    made: RefCell<BTreeMap<u64, u64>>,
    doom: RefCell<Option<Doom>>,
    not_send: PhantomData<*const ()>,
}

/// What the transaction knows of an object.
struct Local {
    data: tx::Buffer,
    made: bool,
    /// It is locked for writing; otherwise for reading.
    writes: Cell<bool>,
    /// Ranges that were handed out to be changed.
    dirty: Vec<(u64, u64)>,
    freed: bool,
}

/// Bytes inside of an object.
struct Part {
    start: u64,
    at: usize,
    len: usize,
}

fn bad(ptr: PPtr<u8>, why: &'static str) -> tx::Error {
    tx::Error::Pool(pmem::Error::BadPointer { ptr: ptr.raw(), why })
}

impl<'n> NodeTx<'n> {
    pub(super) fn new(node: &'n Node, transaction: TransactionId, epoch: u64, at_tail: bool) -> Self {
        Self {
            node,
            transaction,
            epoch,
            at_tail,
            locals: FrozenBTreeMap::new(),
            made: RefCell::default(),
            doom: RefCell::default(),
            not_send: PhantomData,
        }
    }

    /// Every error dooms.
    fn note<T>(&self, result: tx::Result<T>) -> tx::Result<T> {
        if let Err(error) = &result {
            self.set_doom(Doom::from(error));
        }
        result
    }

    /// The block that a pointer leads into.
    fn locate(&self, ptr: PPtr<u8>) -> tx::Result<(u64, u64)> {
        if ptr.tag() != TAG {
            return Err(bad(ptr, if ptr.is_null() { "null" } else { "of another pool" }));
        }
        let offset = ptr.offset();
        if (ROOT..ROOT + ROOT_LEN).contains(&offset) {
            return Ok((ROOT, ROOT_LEN));
        }
        let own = self.made.borrow().range(..=offset).next_back().map(|(&start, &len)| (start, len));
        if let Some((start, len)) = own.filter(|(start, len)| offset - start < *len) {
            return Ok((start, len));
        }
        let image = self.node.image.lock();
        if let Some(found) = image.blocks.find(offset) {
            return Ok(found);
        }
        // Made by a transaction that runs, or whose record is on its way.
        match image.blocks.find_reserved(offset) {
            Some(start) => Err(tx::Error::Conflict { offset: start }),
            None => {
                drop(image);
                Err(self.missing(ptr, "into no object"))
            }
        }
    }

    /// What the transaction looks for is not there: the pointer is bad, or what it was read from is no more: a record has overtaken the transaction, or the copy was voided, and this is another one.
    fn missing(&self, ptr: PPtr<u8>, why: &'static str) -> tx::Error {
        let core = self.node.core.lock();
        match core.check_seen(self.transaction, ptr.offset()) {
            Err(error) => error,
            Ok(()) if core.epoch() == self.epoch => bad(ptr, why),
            Ok(()) => refused(Refusal::NotHere, ptr.offset()),
        }
    }

    /// Finds the object and makes a local of it.
    fn find(&self, ptr: PPtr<u8>, len: u64) -> tx::Result<(Part, &Local)> {
        let (start, room) = self.locate(ptr)?;
        if ptr.offset() - start >= room || len > room - (ptr.offset() - start) {
            return Err(self.missing(ptr, "over the end of its object"));
        }
        let local = match self.locals.get(&start) {
            Some(local) => local,
            None => self.locals.insert(start, Box::new(self.see(start, room, ptr)?)),
        };
        if local.freed {
            return Err(tx::Error::Freed { offset: start });
        }
        Ok((Part { start, at: (ptr.offset() - start) as usize, len: len as usize }, local))
    }

    /// The object as it is: under a lock, or, at the tail, of one moment with all that was read before.
    fn see(&self, start: u64, room: u64, ptr: PPtr<u8>) -> tx::Result<Local> {
        self.lock(start, false)?;
        let data = {
            let image = self.node.image.lock();
            if start != ROOT && image.blocks.find(start) != Some((start, room)) {
                drop(image);
                return Err(self.missing(ptr, "to a freed object"));
            }
            let align = 1 << start.trailing_zeros().min(ALIGN_MAX.trailing_zeros());
            let mut data = tx::Buffer::zeroed(start, room, align);
            data.bytes_mut().copy_from_slice(image.bytes(start, room)?);
            data
        };
        // The copy may have been voided, and what was read be half of another.
        let core = self.node.core.lock();
        if core.epoch() != self.epoch {
            return Err(refused(Refusal::NotHere, start));
        }
        core.check_seen(self.transaction, start)?;
        drop(core);
        Ok(Local { data, made: false, writes: Cell::new(false), dirty: Vec::new(), freed: false })
    }

    fn lock(&self, start: u64, write: bool) -> tx::Result<()> {
        let now = self.node.now();
        self.node.core.lock().lock(now, self.transaction, start, write)
    }

    fn lock_to_write(&self, start: u64, local: &Local) -> tx::Result<()> {
        if !local.writes.get() {
            self.lock(start, true)?;
            local.writes.set(true);
        }
        Ok(())
    }

    /// Finds the object, and locks it for writing.
    fn find_to_write(&self, ptr: PPtr<u8>, len: u64) -> tx::Result<Part> {
        let (part, local) = self.find(ptr, len)?;
        self.lock_to_write(part.start, local)?;
        Ok(part)
    }

    fn local_mut(&mut self, start: u64) -> tx::Result<&mut Local> {
        self.locals.as_mut().get_mut(&start).map(|local| &mut **local).ok_or(tx::Error::Freed { offset: start })
    }

    fn parts(&self, ranges: &[Range]) -> tx::Result<Vec<(Part, usize)>> {
        let mut parts = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            parts.push((self.find_to_write(range.at, range.len)?, index));
        }
        parts.sort_by_key(|(part, _)| part.start);
        match parts.array_windows().find(|[a, b]| a.0.start == b.0.start) {
            Some([(twice, _), _]) => Err(tx::Error::Overlap { offset: twice.start }),
            None => Ok(parts),
        }
    }

    fn reserve(&self, len: u64, align: u64) -> tx::Result<(u64, u64)> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            let limit = pmem::Error::Limit { what: "alignment of an object", found: align, min: 1, max: ALIGN_MAX };
            return Err(limit.into());
        }
        // Held while space is taken: a copy that is voided now has other blocks.
        let core = self.node.core.lock();
        if core.epoch() != self.epoch || core.allocates_in().is_none() {
            let later = core.replica.serves().is_some() && !self.at_tail;
            return Err(refused(if later { Refusal::Pending } else { Refusal::NotHere }, 0));
        }
        let reserved = self.node.image.lock().blocks.reserve(len, align);
        reserved.ok_or_else(|| pmem::Error::HeapFull { bytes: len }.into())
    }

    fn alloc(&mut self, len: u64, align: u64) -> tx::Result<PPtr<u8>> {
        let (start, room) = self.reserve(len, align)?;
        self.made.get_mut().insert(start, room);
        self.lock(start, true)?;
        let data = tx::Buffer::zeroed(start, room, align);
        let local = Local { data, made: true, writes: Cell::new(true), dirty: Vec::new(), freed: false };
        self.locals.as_mut().insert(start, Box::new(local));
        Ok(pointer(start))
    }

    fn free(&mut self, ptr: PPtr<u8>) -> tx::Result<()> {
        let (part, _) = self.find(ptr, 0)?;
        if part.at != 0 || part.start == ROOT {
            return Err(bad(
                ptr,
                if part.at != 0 { "not to the first byte of its object" } else { "to the root cell" },
            ));
        }
        self.find_to_write(ptr, 0)?;
        self.local_mut(part.start)?.freed = true;
        Ok(())
    }

    /// True at the tail: it changes nothing.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.at_tail
    }

    // ---- the end ----------------------------------------------------------------------------------------------

    /// What it has changed, as a record.
    fn writes(&mut self) -> Writes {
        let mut writes = Writes::default();
        for (&start, local) in self.locals.as_mut().iter_mut() {
            let room = local.data.bytes().len() as u64;
            match (local.made, local.freed) {
                (true, true) => continue,
                (false, true) => {
                    writes.put(map_byte(start), &[0]);
                    continue;
                }
                (true, false) => {
                    let code = SizeCode::of(room).map_or(0, SizeCode::byte);
                    writes.put(map_byte(start), &[code]);
                    writes.zero(start, room);
                }
                (false, false) => {}
            }
            local.dirty.sort_unstable();
            let mut through = 0;
            for &(at, len) in &local.dirty {
                let (from, end) = (at.max(through), at + len);
                if from < end {
                    writes.put(start + from, &local.data.bytes()[from as usize..end as usize]);
                    through = end;
                }
            }
        }
        writes
    }

    /// Commits here, and sends it along the chain: what it has changed is refused to all until every member has it. Others can be run meanwhile.
    ///
    /// # Errors
    /// As [`commit`](Transaction::commit): nothing has changed.
    pub fn submit(mut self) -> tx::Result<Option<Ticket>> {
        self.finish()
    }

    fn finish(&mut self) -> tx::Result<Option<Ticket>> {
        if let Some(doom) = self.doom() {
            return Err(tx::Error::Doomed { first: doom.first });
        }
        let (node, now) = (self.node, self.node.now());
        let writes = self.writes();
        let (mut read, mut written) = (Vec::new(), 0);
        for (&start, local) in self.locals.as_mut().iter() {
            if local.writes.get() { written += 1 } else { read.push(Object(start)) }
        }
        if writes.len() == 0 {
            if !read.is_empty() || written > 0 {
                node.core.lock().has_read(now, self.transaction, self.epoch, read)?;
            }
            return Ok(None);
        }
        let entry = Entry { number: Number { view: ViewId(0), n: 0 }, objects: vec![Object(0); written] };
        let bytes = queue_bytes(&entry, writes.len());
        if bytes > node.record_max {
            return Err(Error::TooLarge { bytes, max: node.record_max }.into());
        }
        let mut core = node.core.lock();
        core.check_runs()?;
        if !core.has_room(bytes, node.queue_max) {
            return Err(tx::Error::Conflict { offset: 0 });
        }
        let ticket = core.commit(now, self.transaction, writes.into_bytes())?;
        node.work.notify_one();
        // Blocks are the record's from now on, but those that are not in it.
        drop(core);
        let unused: Vec<u64> = self
            .locals
            .as_mut()
            .iter()
            .filter(|(_, local)| local.made && local.freed)
            .map(|(start, _)| *start)
            .collect();
        self.made.get_mut().retain(|start, _| unused.contains(start));
        Ok(Some(ticket))
    }
}

impl std::fmt::Debug for NodeTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeTx").field(&self.transaction).finish()
    }
}

impl Transaction for NodeTx<'_> {
    fn isolation(&self) -> Isolation {
        Isolation::Strict
    }

    fn bytes(&self, ptr: PPtr<u8>, len: u64) -> tx::Result<&[u8]> {
        let (part, local) = self.note(self.find(ptr, len))?;
        Ok(&local.data.bytes()[part.at..][..part.len])
    }

    fn bytes_mut(&mut self, ptr: PPtr<u8>, len: u64) -> tx::Result<&mut [u8]> {
        let part = self.note(self.find_to_write(ptr, len))?;
        let local = self.local_mut(part.start)?;
        local.dirty.push((part.at as u64, len));
        Ok(&mut local.data.bytes_mut()[part.at..][..part.len])
    }

    fn bytes_mut_many(&mut self, ranges: &[Range]) -> tx::Result<Vec<&mut [u8]>> {
        let parts = self.note(self.parts(ranges))?;
        let mut locals = self.locals.as_mut().iter_mut();
        let mut found = Vec::with_capacity(parts.len());
        for (part, index) in parts {
            if let Some((_, local)) = locals.find(|(start, _)| **start == part.start) {
                local.dirty.push((part.at as u64, part.len as u64));
                found.push((index, &mut local.data.bytes_mut()[part.at..][..part.len]));
            }
        }
        found.sort_by_key(|(index, _)| *index);
        Ok(found.into_iter().map(|(_, bytes)| bytes).collect())
    }

    fn intend(&mut self, ranges: &[Range]) -> tx::Result<()> {
        let found = ranges.iter().try_for_each(|range| self.find_to_write(range.at, range.len).map(|_| ()));
        self.note(found)
    }

    fn alloc_bytes(&mut self, len: u64, align: u64) -> tx::Result<PPtr<u8>> {
        let made = self.alloc(len, align);
        self.note(made)
    }

    fn free_bytes(&mut self, ptr: PPtr<u8>) -> tx::Result<()> {
        let freed = self.free(ptr);
        self.note(freed)
    }

    fn room(&self, ptr: PPtr<u8>) -> tx::Result<u64> {
        let (part, local) = self.note(self.find(ptr, 0))?;
        Ok((local.data.bytes().len() - part.at) as u64)
    }

    fn root_cell(&self) -> PPtr<[u64; 2]> {
        pointer(ROOT)
    }

    fn doom(&self) -> Option<Doom> {
        self.doom.borrow().clone()
    }

    fn set_doom(&self, doom: Doom) {
        self.doom.borrow_mut().get_or_insert(doom);
    }

    /// # Errors
    /// As [`Transaction::commit`]; [`Error::Unknown`] and [`Error::Stopped`]: it may have happened or not.
    fn commit(mut self) -> tx::Result<()> {
        let ticket = self.finish()?;
        if self.node.alone {
            self.node.pump(false);
        }
        match ticket {
            Some(ticket) => Ok(ticket.wait(self.node.timeout)?),
            None => Ok(()),
        }
    }

    fn abort(self) -> tx::Result<()> {
        Ok(())
    }
}

impl Drop for NodeTx<'_> {
    /// Whatever is its alone goes.
    fn drop(&mut self) {
        let made = std::mem::take(self.made.get_mut());
        let mut core = self.node.core.lock();
        if core.epoch() == self.epoch && !made.is_empty() {
            let mut image = self.node.image.lock();
            made.into_keys().for_each(|start| image.blocks.unreserve(start));
        }
        core.abort(self.node.now(), self.transaction);
    }
}
