//! A transaction of the reference engine: copies of what it read and changed, compared with the newest versions at commit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use elsa::FrozenBTreeMap;
use pmem::PPtr;
use pmem::sync::switch_point;

use super::buffer::Buffer;
use super::{Bug, Commit, Object, ROOT, Reference, State, Version};
use crate::transaction::Nested;
use crate::{
    Clock, Doom, Engine, Error, Isolation, NestedTop, Range, Result, Savepoint, Savepoints, Timestamp, Transaction,
};

/// A transaction of [`Reference`].
pub struct ReferenceTx<'e> {
    engine: &'e Reference,
    begin: Begin,
    /// By first byte. Entries stay where they are while the transaction is borrowed.
    locals: FrozenBTreeMap<u64, Box<Local>>,
    doom: RefCell<Option<Doom>>,
    /// For [`Bug::DirtyWrite`]: what was changed since it leaked last.
    written: RefCell<Vec<u64>>,
    /// Savepoints, oldest first, with what the transaction knew.
    saved: Vec<(Savepoint, BTreeMap<u64, Local>)>,
    /// Objects of the outer transactions of this nested top action, and whether they have changed them.
    outer: BTreeMap<u64, bool>,
    /// Objects that nested top actions of it have changed.
    beneath: Vec<u64>,
    lifted: u32,
    not_send: PhantomData<*const ()>,
}

/// How it began. The thread is asked for here, not at a conflict: a number asked for later might be one that another thread had
/// when it committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) number: u64,
    pub(super) moment: Timestamp,
    pub(super) thread: usize,
    pub(super) isolation: Isolation,
}

/// What the transaction knows of an object.
#[derive(Clone, Debug)]
struct Local {
    data: Arc<Buffer>,
    /// What it was when the transaction saw or made it.
    was: Arc<Buffer>,
    /// The version it read; `None` if it made the object.
    seen: Option<Timestamp>,
    change: Option<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Written,
    Freed,
}

/// Bytes inside of an object.
struct Part {
    start: u64,
    at: usize,
    len: usize,
}

impl<'e> ReferenceTx<'e> {
    pub(super) fn new(engine: &'e Reference, begin: Begin) -> Self {
        Self {
            engine,
            begin,
            locals: FrozenBTreeMap::new(),
            doom: RefCell::new(None),
            written: RefCell::default(),
            saved: Vec::new(),
            outer: BTreeMap::new(),
            beneath: Vec::new(),
            lifted: 0,
            not_send: PhantomData,
        }
    }

    /// Every error dooms.
    fn note<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result {
            self.set_doom(Doom::from(e));
        }
        result
    }

    /// Finds the object and makes a local of it.
    fn find(&self, ptr: PPtr<u8>, len: u64) -> Result<(Part, &Local)> {
        let mut state = self.engine.state.lock();
        self.leak(&mut state);
        let (start, object) = state.locate(self.engine.tag, ptr, len)?;
        if self.outer.get(&start) == Some(&true) {
            return Err(Error::OuterWrites { offset: start });
        }
        let local = match self.locals.get(&start) {
            Some(local) => local,
            None => self.locals.insert(start, Box::new(self.see(start, object, ptr)?)),
        };
        if local.change == Some(Change::Freed) {
            return Err(Error::Freed { offset: start });
        }
        Ok((Part { start, at: (ptr.offset() - start) as usize, len: len as usize }, local))
    }

    /// The version of the object that this transaction sees.
    fn see(&self, start: u64, object: &Object, ptr: PPtr<u8>) -> Result<Local> {
        let newest = self.engine.has(Bug::ReadCommitted) || self.engine.has(Bug::DirtyWrite);
        let version = if newest { object.newest() } else { object.seen_at(self.begin.moment) };
        match version {
            Some(Version { at, data: Some(data), .. }) => {
                Ok(Local { data: data.clone(), was: data.clone(), seen: Some(*at), change: None })
            }
            Some(Version { data: None, .. }) => {
                Err(pmem::Error::BadPointer { ptr: ptr.raw(), why: "to a freed object" }.into())
            }
            // Made by a transaction that runs, or committed after this one began.
            None => Err(self.conflict(start, object.newest().map_or(object.maker, |version| version.by))),
        }
    }

    fn conflict(&self, offset: u64, with: usize) -> Error {
        if with == self.begin.thread { Error::OwnConflict { offset } } else { Error::Conflict { offset } }
    }

    /// A local that [`find`](Self::find) has made.
    fn local_mut(&mut self, start: u64) -> Result<&mut Local> {
        self.locals.as_mut().get_mut(&start).map(|local| &mut **local).ok_or(Error::Freed { offset: start })
    }

    fn free_at(&mut self, ptr: PPtr<u8>) -> Result<()> {
        let (part, _) = self.find(ptr, 0)?;
        if part.at != 0 || part.start == ROOT {
            let why = if part.at != 0 { "not to the first byte of its object" } else { "to the root cell" };
            return Err(pmem::Error::BadPointer { ptr: ptr.raw(), why }.into());
        }
        self.local_mut(part.start)?.change = Some(Change::Freed);
        Ok(())
    }

    /// Parts of distinct objects, in order of these, each with its index among the ranges.
    fn parts(&self, ranges: &[Range]) -> Result<Vec<(Part, usize)>> {
        let mut parts = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            parts.push((self.find(range.at, range.len)?.0, index));
        }
        parts.sort_by_key(|(part, _)| part.start);
        match parts.array_windows().find(|[a, b]| a.0.start == b.0.start) {
            Some([(twice, _), _]) => Err(Error::Overlap { offset: twice.start }),
            None => Ok(parts),
        }
    }

    /// What this transaction relies on is still so.
    fn validate(&self, state: &State, locals: &BTreeMap<u64, Box<Local>>) -> Result<()> {
        let changes = locals.values().any(|local| local.change.is_some() || local.seen.is_none());
        let skipped = |local: &Local| match local.change {
            Some(_) => self.engine.has(Bug::LostUpdate) || self.engine.has(Bug::DirtyWrite),
            None => self.begin.isolation == Isolation::Snapshot || self.engine.has(Bug::Unvalidated),
        };
        for (&start, local) in locals.iter().filter(|(_, local)| changes && !skipped(local)) {
            let Some(seen) = local.seen else { continue };
            match state.objects.get(&start).and_then(Object::newest) {
                Some(newest) if newest.at == seen => {}
                Some(newest) => return Err(self.conflict(start, newest.by)),
                None => return Err(Error::Conflict { offset: start }),
            }
        }
        Ok(())
    }

    /// Commits, and says when.
    fn finish(&mut self) -> Result<Timestamp> {
        if let Some(doom) = self.doom() {
            return Err(Error::Doomed { first: doom.first });
        }
        let engine = self.engine;
        let mut state = engine.state.lock();
        self.leak(&mut state);
        let locals = std::mem::take(self.locals.as_mut());
        if let Err(e) = self.validate(&state, &locals) {
            *self.locals.as_mut() = locals;
            return Err(e);
        }
        let before = engine.clock.now();
        let (mut at, by) = (engine.clock.tick(), self.begin.thread);
        for (start, local) in locals {
            match (local.seen, local.change) {
                (None, Some(Change::Freed)) => state.unreserve(start),
                (_, Some(Change::Freed)) => state.install(start, Version { at, by, data: None }),
                (None, _) | (_, Some(Change::Written)) => {
                    state.install(start, Version { at, by, data: Some(local.data) });
                }
                (Some(_), None) => {}
            }
            if engine.has(Bug::TornCommit) {
                drop(state);
                switch_point();
                std::thread::yield_now();
                state = engine.state.lock();
                at = engine.clock.tick();
            }
        }
        state.last_commit = Commit { before, by };
        Ok(at)
    }

    /// [`Bug::DirtyWrite`].
    fn leak(&self, state: &mut State) {
        if self.engine.has(Bug::DirtyWrite) {
            for start in self.written.take() {
                if let Some(Local { data, change: Some(Change::Written), seen: Some(_), .. }) = self.locals.get(&start)
                {
                    let at = self.engine.clock.tick();
                    state.install(start, Version { at, by: usize::MAX, data: Some(Arc::new(Buffer::clone(data))) });
                }
            }
        }
    }
}

impl std::fmt::Debug for ReferenceTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReferenceTx").field(&self.begin).finish()
    }
}

impl Transaction for ReferenceTx<'_> {
    fn isolation(&self) -> Isolation {
        self.begin.isolation
    }

    fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        let (part, local) = self.note(self.find(ptr, len))?;
        Ok(&local.data.bytes()[part.at..][..part.len])
    }

    fn bytes_mut(&mut self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]> {
        let (part, _) = self.note(self.find(ptr, len))?;
        self.written.get_mut().push(part.start);
        let local = self.local_mut(part.start)?;
        local.change = Some(Change::Written);
        Ok(&mut Arc::make_mut(&mut local.data).bytes_mut()[part.at..][..part.len])
    }

    fn bytes_mut_many(&mut self, ranges: &[Range]) -> Result<Vec<&mut [u8]>> {
        let parts = self.note(self.parts(ranges))?;
        let mut locals = self.locals.as_mut().iter_mut();
        let mut found = Vec::with_capacity(parts.len());
        for (part, index) in parts {
            if let Some((_, local)) = locals.find(|(start, _)| **start == part.start) {
                local.change = Some(Change::Written);
                self.written.get_mut().push(part.start);
                found.push((index, &mut Arc::make_mut(&mut local.data).bytes_mut()[part.at..][..part.len]));
            }
        }
        found.sort_by_key(|(index, _)| *index);
        Ok(found.into_iter().map(|(_, bytes)| bytes).collect())
    }

    fn intend(&mut self, ranges: &[Range]) -> Result<()> {
        let found = ranges.iter().try_for_each(|range| self.find(range.at, range.len).map(|_| ()));
        self.note(found)
    }

    fn alloc_bytes(&mut self, len: u64, align: u64) -> Result<PPtr<u8>> {
        let reserved = self.engine.state.lock().reserve(len, align, self.engine.capacity);
        let (start, room) = self.note(reserved)?;
        let data = Arc::new(Buffer::zeroed(start, room, align));
        self.locals.insert(start, Box::new(Local { was: data.clone(), data, seen: None, change: None }));
        Ok(PPtr::new(self.engine.tag, start))
    }

    fn free_bytes(&mut self, ptr: PPtr<u8>) -> Result<()> {
        let freed = self.free_at(ptr);
        self.note(freed)
    }

    fn room(&self, ptr: PPtr<u8>) -> Result<u64> {
        let (part, local) = self.note(self.find(ptr, 0))?;
        Ok((local.data.bytes().len() - part.at) as u64)
    }

    fn root_cell(&self) -> PPtr<[u64; 2]> {
        PPtr::new(self.engine.tag, ROOT)
    }

    fn doom(&self) -> Option<Doom> {
        self.doom.borrow().clone()
    }

    fn set_doom(&self, doom: Doom) {
        self.doom.borrow_mut().get_or_insert(doom);
    }

    fn commit(mut self) -> Result<()> {
        self.finish().map(drop)
    }

    fn abort(self) -> Result<()> {
        Ok(())
    }
}

impl ReferenceTx<'_> {
    /// An error that was rolled back from does not doom any longer, unless it was one conflict too many.
    fn lift(&mut self) -> Result<()> {
        if let Some(Doom { conflict: Some(offset), .. }) = self.doom() {
            self.lifted += 1;
            if self.lifted > Self::LIFTED {
                return Err(Error::Conflict { offset });
            }
        }
        *self.doom.get_mut() = None;
        Ok(())
    }

    /// What doomed a nested top action dooms this transaction if it is one conflict too many.
    fn failed_inside<E>(&mut self, doom: Option<Doom>, error: E) -> E {
        if let Some(doom) = doom.filter(|doom| doom.conflict.is_some()) {
            self.set_doom(doom);
            let _ = self.lift(); // it is doomed still, and will say so
        }
        error
    }
}

impl Savepoints for ReferenceTx<'_> {
    fn savepoint(&mut self) -> Result<Savepoint> {
        if let Some(doom) = self.doom() {
            return Err(Error::Doomed { first: doom.first });
        }
        let savepoint = Savepoint::new();
        let known = self.locals.as_mut().iter().map(|(start, local)| (*start, Local::clone(local))).collect();
        self.saved.push((savepoint, known));
        Ok(savepoint)
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.saved.iter().position(|(saved, _)| *saved == savepoint);
        let last = self.saved.len().checked_sub(1).filter(|_| self.engine.has(Bug::AnySavepoint));
        let at = self.note(at.or(last).ok_or(Error::NoSavepoint))?;
        if !self.engine.has(Bug::StaysDoomed) {
            self.lift()?;
        }
        if self.engine.has(Bug::NoWayBack) {
            return Ok(());
        }
        self.saved.truncate(at + 1);
        let known = &self.saved[at].1;
        let locals = std::mem::take(self.locals.as_mut());
        for (start, mut local) in locals {
            match known.get(&start) {
                Some(known) => local = Box::new(known.clone()),
                None if local.seen.and(local.change).is_some() && self.engine.has(Bug::SeenGoes) => continue,
                // What it has seen since stays seen.
                None if local.seen.is_some() => (local.data, local.change) = (local.was.clone(), None),
                None => {
                    self.engine.state.lock().unreserve(start);
                    continue;
                }
            }
            self.locals.as_mut().insert(start, local);
        }
        Ok(())
    }
}

impl NestedTop for ReferenceTx<'_> {
    fn nested_top<R, E>(&mut self, f: impl FnOnce(&mut Self) -> Result<R, E>) -> Result<R, E>
    where
        E: From<Error>,
    {
        if let Some(doom) = self.doom() {
            return Err(Error::Doomed { first: doom.first }.into());
        }
        if self.engine.has(Bug::NoAction) {
            return f(self);
        }
        let mut inner = self.engine.begin(self.begin.isolation)?;
        inner.outer = self.outer.clone();
        for (start, local) in self.locals.as_mut().iter() {
            *inner.outer.entry(*start).or_default() |= local.change.is_some() || local.seen.is_none();
        }
        // What the outer one has read may be older than what this one reads: then the outer one has a conflict when it commits.
        let mut guard = Nested { tx: self, returned: false };
        let result = f(&mut inner);
        guard.returned = true;
        drop(guard);
        let (after, beneath) = (inner.changes(), inner.beneath.clone());
        let (value, at) = match (result, inner.doom()) {
            (Ok(value), None) => match inner.finish() {
                Ok(at) => (value, at),
                Err(e) => return Err(self.failed_inside(Some(Doom::from(&e)), e.into())),
            },
            (Ok(_), Some(doom)) => {
                let error = doom.conflict.map(|offset| Error::Conflict { offset });
                let error = error.unwrap_or_else(|| Error::Doomed { first: doom.first.clone() });
                return Err(self.failed_inside(Some(doom), error.into()));
            }
            (Err(e), doom) => return Err(self.failed_inside(doom, e)),
        };
        drop(inner);
        // The outer transaction sees it, and need not fear it.
        if self.engine.has(Bug::Unseen) {
            return Ok(value);
        }
        let state = self.engine.state.lock();
        for start in after.into_iter().chain(beneath) {
            let version = state.objects.get(&start).and_then(|object| object.seen_at(at));
            if let Some(Version { at, data: Some(data), .. }) = version {
                let local = Local { data: data.clone(), was: data.clone(), seen: Some(*at), change: None };
                let known = self.saved.iter_mut().map(|(_, known)| known);
                known.for_each(|known| drop(known.insert(start, local.clone())));
                self.locals.as_mut().insert(start, Box::new(local));
            }
            self.beneath.push(start);
        }
        Ok(value)
    }
}

impl ReferenceTx<'_> {
    /// The objects that it has changed.
    fn changes(&mut self) -> Vec<u64> {
        let changed = |local: &Local| local.change.is_some() || local.seen.is_none();
        self.locals.as_mut().iter().filter(|(_, local)| changed(local)).map(|(start, _)| *start).collect()
    }
}

impl Drop for ReferenceTx<'_> {
    /// Whatever is still local goes.
    fn drop(&mut self) {
        let mut state = self.engine.state.lock();
        for (&start, local) in self.locals.as_mut().iter() {
            if local.seen.is_none() {
                state.unreserve(start);
            }
        }
        state.active.remove(&self.begin.number);
        if !self.engine.has(Bug::Stale) {
            state.prune();
        }
    }
}
