//! One of the threads: what it draws, does, and holds against the model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use heap::{Heap, Options, Policy, Tx};
use pmem::{PPtr, Persist};
use tx::{Error, NestedTop, Range, Savepoints, Transaction, Typed, field};

use super::model::{Contents, World};
use super::operations::{KINDS, Kind};
use crate::support::Rng;

pub(super) const THREADS: usize = 3;
const LENGTHS: [u64; 6] = [16, 64, 64, 200, 900, 2500];
/// Of a round that fills the heap.
const LARGE: u64 = 20 << 10;
/// A long write: its record does not carry it.
const LONG: usize = 48;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

pub(super) struct Thread<'a> {
    pub(super) number: usize,
    pub(super) heap: &'a Heap,
    pub(super) world: &'a Mutex<World>,
    pub(super) dir: &'a Path,
    pub(super) options: &'a Options,
    pub(super) swarm: Swarm,
    pub(super) rng: Rng,
    pub(super) own: Own,
    pub(super) mode: Mode,
    /// Draws what came to be drawn later, so that older seeds stay what they were.
    pub(super) more: Rng,
}

/// In what way a round is out of the ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Ordinary,
    /// With the policy that cannot roll back: changes of objects stay, and a crash leaves anything.
    NoRollback,
    /// The heap does not grow by itself, and some new objects are large.
    Full,
    /// Some drain fails, from which on nothing may.
    FailingDrain,
}

/// What a thread draws from in a round: everything, half of it, a quarter, or looking only, so that few things meet often (Groce et al., *Swarm Testing*, ISSTA 2012).
#[derive(Clone, Copy)]
pub(super) struct Swarm {
    /// Objects that are shared, with the other threads of the round.
    objects: usize,
    kinds: u64,
    /// Most operations of a transaction.
    pub(super) most: u64,
    /// Something with the whole heap once in so many.
    pub(super) whole: u64,
}

impl Swarm {
    pub(super) fn drawn(rng: &mut Rng, objects: usize) -> Self {
        let kinds = match rng.below(4) {
            0 => u64::MAX,
            1 => rng.word(),
            2 => rng.word() & rng.word() | 1 << Kind::Free as u64,
            _ => rng.word() & !0 << Kind::Commit as u64 | 1 << (Kind::Bytes as u64 + rng.below(4)),
        };
        Self { objects, kinds, most: 1 + rng.below(4), whole: 4 << (2 * rng.below(4)) }
    }

    /// One of these.
    pub(super) fn one(self, rng: &mut Rng, of: &[Kind]) -> Kind {
        let some: Vec<Kind> = of.iter().copied().filter(|&kind| self.kinds >> kind as u64 & 1 != 0).collect();
        let some = if some.is_empty() { of } else { &some };
        some[rng.below(some.len() as u64) as usize]
    }
}

/// What the thread's transaction has seen and done.
#[derive(Default)]
pub(super) struct Own {
    pub(super) seen: BTreeMap<u64, Contents>,
    pub(super) changed: BTreeSet<u64>,
    pub(super) fresh: BTreeSet<u64>,
    /// What it held last.
    pub(super) freed: BTreeMap<u64, Vec<u8>>,
    /// It used a pointer into what is another object by now: it has to be rolled back.
    pub(super) lost: bool,
}

pub(super) fn at(tag: u16, offset: u64) -> PPtr<u8> {
    PPtr::new(tag, offset)
}

impl Thread<'_> {
    pub(super) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(super) fn ptr(&self, offset: u64) -> PPtr<u8> {
        at(self.heap.pool().tag(), offset)
    }

    /// Holds what a locked object holds against the model.
    fn look(&mut self, tx: &Tx<'_>, offset: u64) -> tx::Result<Vec<u8>> {
        let now = tx.rest(self.ptr(offset))?.to_vec();
        if let Some(seen) = self.own.seen.get(&offset) {
            assert_eq!(Some(&now), seen.as_ref(), "object {offset} has changed under its lock");
            return Ok(now);
        }
        let world = self.world.lock().unwrap();
        let allowed = world.model.allowed(offset);
        if allowed.iter().all(|contents| contents.is_none()) {
            // Freed since its address was chosen, and its bytes are in a larger object by now; that holds another number then.
            let covers = |(start, bytes): (&u64, &Vec<u8>)| *start < offset && offset < start + bytes.len() as u64;
            let mut states = world.model.after_a_crash();
            states.push(self.own.seen.iter().filter_map(|(&at, bytes)| Some((at, bytes.clone()?))).collect());
            let explained = states.iter().any(|state| state.iter().any(covers));
            assert!(explained, "object {offset} is freed, and can be read");
            self.own.lost = true;
            if self.heap.policy() == Policy::None {
                // Before it is changed: that could not be taken back.
                return Err(Error::Aborted { reason: "another object".into() });
            }
            return Ok(now);
        }
        let right = allowed.iter().any(|contents| contents.as_ref() == Some(&now));
        assert!(right, "object {offset} holds {:?}..., expected {allowed:?}", &now[..16]);
        drop(world);
        self.own.seen.insert(offset, Some(now.clone()));
        Ok(now)
    }

    fn change(&mut self, offset: u64, from: usize, bytes: &[u8]) {
        if let Some(Some(contents)) = self.own.seen.get_mut(&offset) {
            contents[from..from + bytes.len()].copy_from_slice(bytes);
            self.own.changed.insert(offset);
        }
    }

    /// A new object in the model.
    fn made(&mut self, tx: &Tx<'_>, ptr: PPtr<u8>, kind: Kind, starts: &[u8]) -> tx::Result<()> {
        let (offset, contents) = (ptr.offset(), tx.rest(ptr)?.to_vec());
        let mut expected = vec![0; contents.len()];
        expected[..starts.len()].copy_from_slice(starts);
        assert_eq!(contents, expected, "a new object at {offset}");
        let end = offset + contents.len() as u64;
        let mut world = self.world.lock().unwrap();
        let taken = |state: &BTreeMap<u64, Vec<u8>>| {
            state.iter().any(|(at, bytes)| *at < end && offset < at + bytes.len() as u64)
        };
        assert!(!world.model.after_a_crash().iter().all(taken), "the new object at {offset} is where others are");
        world.touches(self.number, offset, kind);
        drop(world);
        self.own.seen.insert(offset, Some(contents));
        self.own.fresh.insert(offset);
        self.own.changed.insert(offset);
        Ok(())
    }

    fn alloc(&mut self, tx: &mut Tx<'_>, kind: Kind) -> tx::Result<PPtr<u8>> {
        let mut len = LENGTHS[self.rng.below(LENGTHS.len() as u64) as usize];
        if self.mode == Mode::Full && self.more.below(3) == 0 {
            len = LARGE;
        }
        let fill = self.rng.word() as u8;
        let align = 8 << self.rng.below(4);
        let made = match kind {
            Kind::Alloc => tx.alloc(&[u64::from(fill); 2]).map(PPtr::cast),
            Kind::AllocSlice => tx.alloc_slice(&vec![fill; len as usize]),
            _ => tx.alloc_bytes(len, align),
        };
        let starts = match kind {
            Kind::Alloc => u64::from(fill).to_le_bytes().repeat(2),
            Kind::AllocSlice => vec![fill; len as usize],
            _ => Vec::new(),
        };
        let ptr = made?;
        self.made(tx, ptr, kind, &starts)?;
        Ok(ptr)
    }

    fn free(&mut self, tx: &mut Tx<'_>, offset: u64, kind: Kind) -> tx::Result<()> {
        match kind {
            Kind::Free => tx.free(self.ptr(offset))?,
            _ => tx.free_bytes(self.ptr(offset))?,
        }
        self.freed(offset);
        Ok(())
    }

    fn freed(&mut self, offset: u64) {
        if let Some(Some(contents)) = self.own.seen.insert(offset, None) {
            self.own.freed.insert(offset, contents);
        }
        self.own.changed.insert(offset);
    }

    /// One operation of a transaction.
    pub(super) fn act(&mut self, tx: &mut Tx<'_>) -> tx::Result<()> {
        let kind = self.swarm.one(&mut self.rng, &KINDS[..Kind::Commit as usize]);
        let shared: Vec<u64> = self.world().model.live().into_keys().collect();
        if kind.is_new() || shared.is_empty() {
            let kind = if kind.is_new() { kind } else { Kind::AllocBytes };
            let ptr = self.alloc(tx, kind)?;
            if shared.len() >= self.swarm.objects {
                self.world().touches(self.number, ptr.offset(), Kind::Free);
                return self.free(tx, ptr.offset(), Kind::Free);
            }
            return Ok(());
        }
        let offset = shared[self.rng.below(shared.len().min(self.swarm.objects) as u64) as usize];
        let ptr = self.ptr(offset);
        self.world().touches(self.number, offset, kind);
        let word = self.rng.word().to_le_bytes();
        match kind {
            Kind::Bytes => drop(tx.bytes(ptr, 8)?),
            Kind::Read => drop(*tx.read::<u64>(ptr.cast())?),
            Kind::Rest => drop(tx.rest(ptr)?),
            Kind::Room => drop(tx.room(ptr)?),
            Kind::Intend => tx.intend(&[Range::new(ptr, 16)])?,
            Kind::BytesMut | Kind::PutBytes | Kind::Nested => {
                let len = self.look_first(tx, offset, kind)?;
                let from = self.rng.below(len / 8) as usize * 8;
                let n = 8 * (1 + self.rng.below((len - from as u64) / 8)) as usize;
                let bytes = word.repeat(n / 8);
                let place = self.ptr(offset + from as u64);
                match kind {
                    Kind::Nested => tx.nested(|tx| tx.bytes_mut(place, n as u64).map(|b| b.copy_from_slice(&bytes)))?,
                    Kind::PutBytes => {
                        tx.put_bytes(place, &bytes)?;
                        self.change(offset, from, &bytes);
                        // Looked at now, or by whatever comes next.
                        return if word[0].is_multiple_of(4) { self.look(tx, offset).map(drop) } else { Ok(()) };
                    }
                    _ => tx.bytes_mut(place, n as u64)?.copy_from_slice(&bytes),
                }
                self.change(offset, from, &bytes);
            }
            Kind::Write => {
                let len = self.look_first(tx, offset, kind)?;
                if len < LONG as u64 {
                    *tx.write(ptr.cast())? = word;
                    self.change(offset, 0, &word);
                } else {
                    let bytes = [word; LONG / 8];
                    *tx.write(ptr.cast())? = bytes;
                    self.change(offset, 0, bytes.as_flattened());
                }
            }
            Kind::WriteField => {
                self.look_first(tx, offset, kind)?;
                *tx.write_field(ptr.cast(), field!(Pair, second))? = u64::from_le_bytes(word);
                self.change(offset, 8, &word);
            }
            Kind::WriteMany | Kind::BytesMutMany => {
                let other = shared[self.rng.below(shared.len().min(self.swarm.objects) as u64) as usize];
                if other != offset {
                    self.world().touches(self.number, other, kind);
                }
                let both: Vec<u64> = if other == offset { vec![offset] } else { vec![offset, other] };
                for &one in &both {
                    self.look_first(tx, one, kind)?;
                }
                match (kind, &both[..]) {
                    (Kind::WriteMany, &[a, b]) => {
                        let [a, b] = tx.write_many::<[u8; 8], 2>([self.ptr(a).cast(), self.ptr(b).cast()])?;
                        (*a, *b) = (word, word);
                    }
                    (Kind::WriteMany, _) => *tx.write_many::<[u8; 8], 1>([ptr.cast()])?[0] = word,
                    _ => {
                        let ranges: Vec<Range> = both.iter().map(|&one| Range::new(self.ptr(one), 8)).collect();
                        tx.bytes_mut_many(&ranges)?.into_iter().for_each(|b| b.copy_from_slice(&word));
                    }
                }
                both.iter().for_each(|&one| self.change(one, 0, &word));
            }
            Kind::Back | Kind::Top if self.heap.policy() != Policy::Eaw => drop(tx.bytes(ptr, 8)?),
            Kind::Back => {
                let savepoint = tx.savepoint()?;
                match self.rng.below(3) {
                    0 => tx.bytes_mut(ptr, 8)?.fill(0xEE),
                    1 => tx.free(ptr)?,
                    _ => {
                        let new = tx.alloc_slice(&[0xEE; 80])?;
                        tx.bytes_mut(new, 80)?.fill(0xEF);
                    }
                }
                tx.rollback_to(savepoint)?;
            }
            Kind::Top => match self.alone(tx, offset, word) {
                // The transaction itself may have written it; or it is another object by now.
                Err(Error::OuterWrites { .. } | Error::Aborted { .. }) => return Ok(()),
                other => other?,
            },
            Kind::Free | Kind::FreeBytes => return self.free(tx, offset, kind),
            Kind::Replace => {
                let new: tx::Result<PPtr<[u64; 3]>> = tx.replace(ptr.cast::<u64>(), |&old| [old, old, 7]);
                let new = new?;
                let starts = tx.bytes(new.cast(), 24)?.to_vec();
                self.made(tx, new.cast(), Kind::Alloc, &starts)?;
                self.freed(offset);
                return Ok(());
            }
            _ => unreachable!("{kind:?}"),
        }
        self.look(tx, offset).map(drop)
    }

    /// Changes a word of an object in a nested top action.
    fn alone(&mut self, tx: &mut Tx<'_>, offset: u64, word: [u8; 8]) -> tx::Result<()> {
        let (ptr, mut after) = (self.ptr(offset), None);
        let done = tx.nested_top(|tx| -> tx::Result<()> {
            tx.bytes_mut(ptr, 8)?; // locked
            let mut now = tx.rest(ptr)?.to_vec();
            {
                let world = self.world();
                let allowed = world.model.allowed(offset);
                if allowed.iter().all(|contents| contents.is_none()) {
                    drop(world);
                    return Err(tx.refuse("another object"));
                }
                let right = allowed.iter().any(|contents| contents.as_ref() == Some(&now));
                assert!(right, "object {offset} holds {:?}..., expected {allowed:?}", &now[..16]);
            }
            tx.bytes_mut(ptr, 8)?.copy_from_slice(&word);
            now[..8].copy_from_slice(&word);
            assert_eq!(tx.rest(ptr)?, now);
            after = Some((self.doubt([(offset, Some(now.clone()))].into()), now));
            Ok(())
        });
        let Some((number, now)) = after else { return done };
        self.decided_by(number, &done);
        if done.is_ok()
            && let Some(seen) = self.own.seen.get_mut(&offset)
        {
            *seen = Some(now);
        }
        done
    }

    /// Locks an object as the operation itself does, and holds it against the model before it is changed; returns its length.
    fn look_first(&mut self, tx: &mut Tx<'_>, offset: u64, kind: Kind) -> tx::Result<u64> {
        let ptr = self.ptr(offset);
        match kind {
            Kind::Nested => tx.nested(|tx| tx.bytes_mut(ptr, 8).map(drop))?,
            Kind::BytesMutMany => drop(tx.bytes_mut_many(&[Range::new(ptr, 8)])?),
            _ => drop(tx.bytes_mut(ptr, 8)?),
        }
        Ok(self.look(tx, offset)?.len() as u64)
    }
}
