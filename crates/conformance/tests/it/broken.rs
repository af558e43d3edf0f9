//! The reference engine behind a transaction that is wrong in one way.
//!
//! What needs another isolation than the reference has is a [`tx::Bug`] of the reference itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};
use pmem::PPtr;
use tx::{Doom, Engine, Error, Isolation, Range, Reference, ReferenceTx, Result, Transaction, Typed};

use crate::fault::Fault::{self, *};

pub struct Broken {
    fault: Fault,
    inner: Reference,
    commits: AtomicU64,
    slots: AtomicUsize,
    locked: Mutex<BTreeSet<u64>>,
    busy: Mutex<bool>,
    idle: Condvar,
}

thread_local! {
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

impl Broken {
    pub fn new(fault: Fault) -> Self {
        let inner = match fault {
            Of(bug) => Reference::with_bug(bug),
            _ => Reference::with_capacity(2 * conformance::ROOM),
        };
        let (commits, slots, locked, busy, idle) = Default::default();
        Self { fault, inner, commits, slots, locked, busy, idle }
    }

    /// Whether it would be an error, asked of another transaction, so that none is doomed.
    fn probe(&self, f: impl FnOnce(&mut ReferenceTx<'_>) -> Result<()>) -> Result<()> {
        f(&mut self.inner.begin(Isolation::Strict)?)
    }

    /// Does it in a transaction of its own.
    fn apart<R>(&self, f: impl FnOnce(&mut ReferenceTx<'_>) -> Result<R>) -> Result<R> {
        let mut tx = self.inner.begin(Isolation::Strict)?;
        let result = f(&mut tx)?;
        tx.commit()?;
        Ok(result)
    }
}

impl Engine for Broken {
    type Tx<'a> = BrokenTx<'a>;

    fn name(&self) -> &'static str {
        "broken"
    }

    fn strongest(&self) -> Isolation {
        Isolation::Strict
    }

    fn begin(&self, isolation: Isolation) -> Result<BrokenTx<'_>> {
        let inner = match self.fault {
            SerializableIsSnapshot => Isolation::Snapshot,
            _ => isolation,
        };
        if self.fault == OneAtATime && OPEN.get() > 0 {
            return Err(Error::OwnConflict { offset: 0 });
        }
        if self.fault == SlotsLeak && self.slots.fetch_add(1, SeqCst) >= 30 {
            return Err(Error::NoSlot { slots: 30 });
        }
        if self.fault == Serial {
            if isolation != Isolation::Strict {
                return Err(Error::Isolation { wanted: isolation, offered: Isolation::Strict });
            }
            self.idle.wait_while(&mut self.busy.lock(), |busy| std::mem::replace(busy, true));
        }
        OPEN.set(OPEN.get() + 1);
        Ok(BrokenTx {
            engine: self,
            inner: Some(self.inner.begin(inner)?),
            began: self.commits.load(SeqCst),
            before: Vec::new(),
            freed: Vec::new(),
            puts: Vec::new(),
            doom: RefCell::new(None),
        })
    }
}

pub struct BrokenTx<'e> {
    engine: &'e Broken,
    inner: Option<ReferenceTx<'e>>,
    /// Commits of the engine at the begin.
    began: u64,
    /// What was changed, with the bytes that stood there.
    before: Vec<(PPtr<u8>, Vec<u8>)>,
    freed: Vec<PPtr<u8>>,
    puts: Vec<(PPtr<u8>, Vec<u8>)>,
    doom: RefCell<Option<Doom>>,
}

impl<'e> BrokenTx<'e> {
    fn is(&self, fault: Fault) -> bool {
        self.engine.fault == fault
    }

    fn inner(&self) -> &ReferenceTx<'e> {
        self.inner.as_ref().expect("open")
    }

    fn inner_mut(&mut self) -> &mut ReferenceTx<'e> {
        self.inner.as_mut().expect("open")
    }

    fn note<T>(&self, result: Result<T>) -> Result<T> {
        let result = match result {
            Err(Error::OwnConflict { offset }) if self.is(OwnIsConflict) => Err(Error::Conflict { offset }),
            other => other,
        };
        if let Err(e) = &result {
            *self.doom.borrow_mut() = Some(Doom::from(e));
        }
        result
    }

    /// The pointer as this engine takes it.
    fn take(&self, ptr: PPtr<u8>, len: u64) -> Result<(PPtr<u8>, u64)> {
        let root = self.inner().root_cell().cast();
        let bad = Err(Error::Pool(pmem::Error::BadPointer { ptr: ptr.raw(), why: "refused" }));
        match self.engine.fault {
            NullIsRoot if ptr.is_null() => Ok((root, len.min(16))),
            TagIgnored if !ptr.is_null() => Ok((PPtr::new(root.tag(), ptr.offset()), len)),
            InnerRefused if !ptr.is_null() && !ptr.offset().is_multiple_of(16) => self.note(bad),
            EndIgnored => match self.engine.apart(|tx| tx.room(ptr)) {
                Ok(room) => Ok((ptr, len.min(room))),
                Err(_) => Ok((ptr, len)),
            },
            StrayIsRoot if ptr.tag() == root.tag() && self.engine.probe(|tx| tx.room(ptr).map(drop)).is_err() => {
                Ok((root, len.min(16)))
            }
            _ => Ok((ptr, len)),
        }
    }

    /// Notes what stands there, before it is changed.
    fn remember(&mut self, ptr: PPtr<u8>, len: u64) {
        if let Ok(bytes) = self.inner().bytes(ptr, len) {
            let bytes = bytes.to_vec();
            self.before.push((ptr, bytes));
        }
    }

    fn put_back(&mut self, (ptr, bytes): (PPtr<u8>, Vec<u8>)) {
        if let Ok(to) = self.inner_mut().bytes_mut(ptr, bytes.len() as u64) {
            to.copy_from_slice(&bytes);
        }
    }

    /// Before a commit.
    fn spoil(&mut self) {
        let root: PPtr<u8> = self.inner().root_cell().cast();
        match self.engine.fault {
            PutsLate => std::mem::take(&mut self.puts).into_iter().for_each(|put| self.put_back(put)),
            CommitForgetsLast => {
                let last = self.before.pop();
                last.into_iter().for_each(|last| self.put_back(last));
            }
            CommitForgetsLastOfMany if self.before.len() > 4096 => {
                let last = self.before.pop();
                last.into_iter().for_each(|last| self.put_back(last));
            }
            CommitForgetsRoot => {
                for change in std::mem::take(&mut self.before).into_iter().rev().filter(|(at, _)| *at == root) {
                    self.put_back(change);
                }
            }
            CommitForgetsTail => {
                for (at, bytes) in std::mem::take(&mut self.before) {
                    if let Some(tail) =
                        self.inner_mut().bytes_mut(at, bytes.len() as u64).ok().and_then(|b| b.get_mut(65_536..))
                    {
                        tail.fill(0);
                    }
                }
            }
            _ => {}
        }
    }

    /// Ends without a commit.
    fn roll_back(&mut self, dropped: bool) -> Result<()> {
        let Some(inner) = &self.inner else { return Ok(()) };
        let changed = !self.before.is_empty() || !self.freed.is_empty();
        let root: PPtr<u8> = inner.root_cell().cast();
        let new_root = inner.bytes(root, 16).map(<[u8]>::to_vec).unwrap_or_default();
        match self.engine.fault {
            AbortCommits if !dropped => {
                self.commit_anyway();
            }
            DropCommits if dropped => {
                self.commit_anyway();
            }
            AllocsStay => {
                for change in std::mem::take(&mut self.before).into_iter().rev() {
                    self.put_back(change);
                }
                self.commit_anyway();
            }
            FreesStay => {
                self.inner = None;
                for ptr in std::mem::take(&mut self.freed) {
                    let _ = self.engine.apart(|tx| tx.free(ptr));
                }
            }
            PutsStay => {
                self.inner = None;
                for (at, bytes) in std::mem::take(&mut self.puts) {
                    let _ = self
                        .engine
                        .apart(|tx| tx.bytes_mut(at, bytes.len() as u64).map(|to| to.copy_from_slice(&bytes)));
                }
            }
            RootStays => {
                self.inner = None;
                let _ = self.engine.apart(|tx| tx.bytes_mut(root, 16).map(|to| to.copy_from_slice(&new_root)));
            }
            LocksStay => self.engine.locked.lock().extend(self.before.iter().map(|(at, _)| at.offset())),
            NoRollback | NoRollbackUnsaid => {
                self.commit_anyway();
                if changed && self.is(NoRollback) {
                    return Err(Error::NoRollback);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes go in, whatever the inner transaction thinks of it.
    fn commit_anyway(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if inner.doom().is_none() {
            let _ = inner.commit();
            return;
        }
        let bytes = |ptr: PPtr<u8>, len| inner.bytes(ptr, len).map(<[u8]>::to_vec);
        let changes: Vec<_> =
            self.before.iter().filter_map(|(at, old)| Some((*at, bytes(*at, old.len() as u64).ok()?))).collect();
        drop(inner);
        for (at, new) in changes {
            let _ = self.engine.apart(|tx| tx.bytes_mut(at, new.len() as u64).map(|to| to.copy_from_slice(&new)));
        }
    }
}

impl Transaction for BrokenTx<'_> {
    fn isolation(&self) -> Isolation {
        if self.is(LevelTooLow) { Isolation::Snapshot } else { self.inner().isolation() }
    }

    fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        let (ptr, len) = self.take(ptr, len)?;
        let own = self.before.iter().find(|(at, old)| *at == ptr && old.len() as u64 == len);
        if self.is(OwnWritesHidden)
            && let Some((_, old)) = own
        {
            return Ok(old);
        }
        let rereads = self.is(Rereads) || self.is(RereadsHalf) && ptr.offset() / 32 % 2 == 1;
        if rereads && own.is_none() {
            let newest = self.engine.apart(|tx| tx.bytes(ptr, len).map(<[u8]>::to_vec));
            // As aligned as any number needs it.
            let words: Vec<u64> =
                self.note(newest)?.chunks(8).map(|c| c.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))).collect();
            return Ok(match *words.leak() {
                [ref word] => &pmem::bytes_of(word)[..len as usize],
                _ => self.inner().bytes(ptr, len)?,
            });
        }
        self.note(self.inner().bytes(ptr, len))
    }

    fn bytes_mut(&mut self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]> {
        let (ptr, len) = self.take(ptr, len)?;
        if self.engine.locked.lock().contains(&ptr.offset()) {
            return self.note(Err(Error::Conflict { offset: ptr.offset() }));
        }
        self.remember(ptr, len);
        if self.is(Smear)
            && let Ok(room) = self.inner().room(ptr)
            && let Ok(rest) = self.inner_mut().bytes_mut(ptr, room)
            && let Some(rest) = rest.get_mut(len as usize..)
        {
            rest.fill(0);
        }
        let found = self.inner_mut().bytes_mut(ptr, len).map(drop);
        self.note(found)?;
        self.inner_mut().bytes_mut(ptr, len)
    }

    fn put_bytes(&mut self, ptr: PPtr<u8>, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        match self.engine.fault {
            PutUnchecked if self.engine.probe(|tx| tx.bytes_mut(ptr, len).map(drop)).is_err() => return Ok(()),
            PutsLate | PutsStay => self.puts.push((ptr, data.to_vec())),
            _ => {}
        }
        let late = self.is(PutsLate);
        let bytes = self.bytes_mut(ptr, len)?;
        if !late {
            bytes.copy_from_slice(data);
        }
        Ok(())
    }

    fn bytes_mut_many(&mut self, ranges: &[Range]) -> Result<Vec<&mut [u8]>> {
        let mut taken = Vec::new();
        for range in ranges {
            let (ptr, len) = self.take(range.at, range.len)?;
            self.remember(ptr, len);
            taken.push(Range::new(ptr, len));
        }
        if self.is(ManyOverlap) {
            return Ok(taken.iter().map(|range| &mut *vec![0; range.len as usize].leak()).collect());
        }
        let found = self.inner_mut().bytes_mut_many(&taken).map(drop);
        self.note(found)?;
        let reversed = self.is(ManyReversed);
        let mut many = self.inner_mut().bytes_mut_many(&taken)?;
        if reversed {
            many.reverse();
        }
        Ok(many)
    }

    fn intend(&mut self, ranges: &[Range]) -> Result<()> {
        if self.is(IntendUnchecked) {
            return Ok(());
        }
        for range in ranges {
            let (ptr, len) = self.take(range.at, range.len)?;
            let found = self.inner_mut().intend(&[Range::new(ptr, len)]);
            self.note(found)?;
            if self.is(IntendClears) {
                self.bytes_mut(ptr, len)?.fill(0);
            }
        }
        Ok(())
    }

    fn alloc_bytes(&mut self, len: u64, align: u64) -> Result<PPtr<u8>> {
        let (len, align) = match self.engine.fault {
            AllocAbsurd => (if len > 1 << 40 { 16 } else { len }, align),
            AllocCrooked => (len, if align > 16 { 16 } else { align }),
            _ => (len, align),
        };
        let made = self.inner_mut().alloc_bytes(len, align);
        let made = self.note(made)?;
        if self.is(AllocDirty) {
            self.inner_mut().bytes_mut(made, len)?.fill(0xaa);
        }
        Ok(made)
    }

    fn free_bytes(&mut self, ptr: PPtr<u8>) -> Result<()> {
        let (ptr, _) = self.take(ptr, 0)?;
        if self.is(FreeIgnored) || self.is(FreeAnything) && self.engine.probe(|tx| tx.free(ptr)).is_err() {
            return Ok(());
        }
        let freed = self.inner_mut().free_bytes(ptr);
        self.freed.push(ptr);
        self.note(freed)
    }

    fn room(&self, ptr: PPtr<u8>) -> Result<u64> {
        let (ptr, _) = self.take(ptr, 0)?;
        let room = self.note(self.inner().room(ptr))?;
        Ok(if self.is(RoomLies) { room + 32 } else { room })
    }

    fn root_cell(&self) -> PPtr<[u64; 2]> {
        self.inner().root_cell()
    }

    fn doom(&self) -> Option<Doom> {
        let inner = self.inner().doom();
        match self.engine.fault {
            DoomHidden => None,
            DoomReplaced | OwnIsConflict => self.doom.borrow().clone().or(inner),
            DoomForgetsConflict => inner.map(|doom| Doom { conflict: None, ..doom }),
            _ => inner,
        }
    }

    fn set_doom(&self, doom: Doom) {
        if !self.is(SetDoomIgnored) {
            *self.doom.borrow_mut() = Some(doom.clone());
            self.inner().set_doom(doom);
        }
    }

    fn commit(mut self) -> Result<()> {
        if self.is(NoOverlap) && self.engine.commits.load(SeqCst) != self.began {
            return Err(Error::Conflict { offset: 0 });
        }
        if let Some(doom) = self.inner().doom() {
            if self.is(DoomedCommits) {
                self.commit_anyway();
            }
            if self.is(DoomedSaysYes) {
                return Ok(());
            }
            return Err(Error::Doomed { first: doom.first });
        }
        self.spoil();
        let result = match self.inner.take() {
            Some(inner) => inner.commit(),
            None => Ok(()),
        };
        self.engine.commits.fetch_add(1, SeqCst);
        if self.is(SlotsLeak) {
            self.engine.slots.fetch_sub(1, SeqCst);
        }
        self.note(result)
    }

    fn abort(mut self) -> Result<()> {
        let result = self.roll_back(false);
        self.inner = None;
        result
    }
}

impl Drop for BrokenTx<'_> {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
        let _ = self.roll_back(true);
        self.inner = None;
        if self.is(Serial) {
            *self.engine.busy.lock() = false;
            self.engine.idle.notify_one();
        }
    }
}
