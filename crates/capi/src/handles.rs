//! Handles: numbers that look like pointers, and the slots they lead to.
//!
//! A handle has the kind, the index of a slot, and the slot's generation, which every close raises. So a handle that was closed leads nowhere, for the next 2^39 uses of
//! its slot, and one that was never given out does not either. Slots are never freed.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, RwLock};

use crate::call::caught;
use crate::code::cairn_code::{CAIRN_BUSY, CAIRN_CLOSED, CAIRN_INVALID};
use crate::failure::{Failure, Result};

/// What a handle stands for.
pub(crate) trait Kept: Send + Sync + Sized + 'static {
    /// What C takes it for.
    type C;
    /// Tells kinds apart: 0 to 15.
    const KIND: u64;
    /// In messages.
    const NAME: &'static str;

    fn slots() -> &'static Slots<Self>;

    /// Set after a panic: of everything that was opened from the same log or store.
    fn poisoned(&self) -> &AtomicBool;
}

/// Slots of the first chunk; each further one has twice as many.
const FIRST: u32 = 16;
const CHUNKS: usize = 16;
const INDEX_BITS: u32 = 20;
/// Of the kind, and a one that makes no handle null.
const KIND_BITS: u32 = 5;
const GENERATIONS: u64 = 1 << (u64::BITS - INDEX_BITS - KIND_BITS);
const _: () = assert!((FIRST as u64) << CHUNKS <= 1 << INDEX_BITS && usize::BITS == u64::BITS);

/// All handles of one kind.
pub(crate) struct Slots<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    slots: Vec<u32>,
    /// Slots from here on were never used.
    fresh: u32,
}

/// On lines of its own: threads that use different logs do not meet.
#[repr(align(128))]
struct Slot<T>(RwLock<Entry<T>>);

struct Entry<T> {
    generation: u64,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new(Free { slots: Vec::new(), fresh: 0 }) }
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn take_slot(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if let Some(index) = free.slots.pop() {
            return Some(index);
        }
        let index = free.fresh;
        let (chunk, _) = place(index);
        let empty = |_| Slot(RwLock::new(Entry { generation: 0, value: None }));
        self.chunks.get(chunk)?.get_or_init(|| (0..FIRST << chunk).map(empty).collect());
        free.fresh += 1;
        Some(index)
    }
}

fn place(index: u32) -> (usize, usize) {
    let at = index + FIRST;
    let chunk = at.ilog2() - FIRST.ilog2();
    (chunk as usize, (at - (FIRST << chunk)) as usize)
}

/// A handle that leads to `value`.
pub(crate) fn give<T: Kept>(value: T) -> Result<*mut T::C> {
    let slots = T::slots();
    let too_many = || Failure::new(CAIRN_INVALID, format!("too many open at once: {}", T::NAME));
    let index = slots.take_slot().ok_or_else(too_many)?;
    let slot = slots.slot(index).ok_or_else(too_many)?;
    let mut entry = slot.0.write();
    entry.value = Some(value);
    let number = entry.generation << (INDEX_BITS + KIND_BITS) | u64::from(index) << KIND_BITS | T::KIND << 1 | 1;
    Ok(std::ptr::without_provenance_mut(number as usize))
}

/// The slot and the generation of a handle.
fn find<T: Kept>(handle: *const T::C) -> Result<(u32, &'static Slot<T>, u64)> {
    let number = handle.addr() as u64;
    if number == 0 {
        return Err(Failure::null(T::NAME));
    }
    if number & ((1 << KIND_BITS) - 1) != T::KIND << 1 | 1 {
        return Err(closed::<T>());
    }
    let index = (number >> KIND_BITS & ((1 << INDEX_BITS) - 1)) as u32;
    let slot = T::slots().slot(index).ok_or_else(closed::<T>)?;
    Ok((index, slot, number >> (INDEX_BITS + KIND_BITS)))
}

#[cold]
fn closed<T: Kept>() -> Failure {
    Failure::new(CAIRN_CLOSED, format!("not an open {}: it was closed, or is something else", T::NAME))
}

#[cold]
pub(crate) fn busy(what: &str) -> Failure {
    Failure::new(CAIRN_BUSY, format!("the {what} is in use by another thread; use it by one at a time, end it last"))
}

/// Uses what the handle stands for. A panic in `body` poisons it.
pub(crate) fn with<T: Kept, R>(handle: *const T::C, body: impl FnOnce(&T) -> Result<R>) -> Result<R> {
    let (_, slot, generation) = find::<T>(handle)?;
    // A body of `cairn_kv_transact` comes here while its store is held by the same thread: no thread ever waits to write to a store's slot.
    let entry = slot.0.read();
    let value = entry.value.as_ref().filter(|_| entry.generation == generation).ok_or_else(closed::<T>)?;
    if value.poisoned().load(Relaxed) {
        return Err(Failure::poisoned());
    }
    caught(|| body(value)).inspect_err(|_| value.poisoned().store(true, Relaxed)).flatten()
}

/// As [`with`], of what one thread uses at a time.
pub(crate) fn alone<T, U, R>(handle: *const T::C, body: impl FnOnce(&mut U) -> Result<R>) -> Result<R>
where
    T: Kept + AsRef<Mutex<U>>,
{
    with(handle, |value: &T| body(&mut *value.as_ref().try_lock().ok_or_else(|| busy(T::NAME))?))
}

/// Ends a handle, if no thread is in a call with it and `ready` agrees. Poisoned ones end, too.
pub(crate) fn take<T: Kept>(handle: *const T::C, ready: impl FnOnce(&mut T) -> Result<()>) -> Result<T> {
    let (index, slot, generation) = find::<T>(handle)?;
    let Some(entry) = slot.0.try_write() else {
        // The slot may be another's by now.
        let same = slot.0.try_read().is_none_or(|entry| entry.generation == generation);
        return Err(if same { busy(T::NAME) } else { closed::<T>() });
    };
    end(index, entry, generation, ready)
}

/// As [`take`], waiting for the threads that are in a call.
pub(crate) fn take_patiently<T: Kept>(handle: *const T::C) -> Result<T> {
    let (index, slot, generation) = find::<T>(handle)?;
    end(index, slot.0.write(), generation, |_| Ok(()))
}

fn end<T: Kept>(
    index: u32,
    mut entry: parking_lot::RwLockWriteGuard<'_, Entry<T>>,
    generation: u64,
    ready: impl FnOnce(&mut T) -> Result<()>,
) -> Result<T> {
    let same = entry.generation == generation;
    ready(entry.value.as_mut().filter(|_| same).ok_or_else(closed::<T>)?)?;
    let value = entry.value.take().ok_or_else(closed::<T>)?;
    entry.generation += 1;
    let usable = entry.generation < GENERATIONS;
    drop(entry);
    if usable {
        T::slots().free.lock().slots.push(index);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::code::cairn_code::{CAIRN_NULL, CAIRN_POISONED};

    struct Opaque;
    struct Number(u64, AtomicBool);

    static NUMBERS: Slots<Number> = Slots::new();
    /// Held by the test that uses them: a closed handle's slot is another test's else.
    static ALONE: Mutex<()> = Mutex::new(());

    impl Kept for Number {
        type C = Opaque;
        const KIND: u64 = 7;
        const NAME: &'static str = "number";

        fn slots() -> &'static Slots<Self> {
            &NUMBERS
        }

        fn poisoned(&self) -> &AtomicBool {
            &self.1
        }
    }

    fn number(n: u64) -> Number {
        Number(n, AtomicBool::new(false))
    }

    fn get(handle: *const Opaque) -> Result<u64> {
        with(handle, |number: &Number| Ok(number.0))
    }

    proptest! {
        /// Against a map: live ones lead to their values, closed ones and any others nowhere.
        #[test]
        fn handles_are_a_map(steps in proptest::collection::vec((any::<bool>(), any::<u64>()), 1..400)) {
            let _alone = ALONE.lock();
            let mut live: HashMap<usize, u64> = HashMap::new();
            let mut ended = Vec::new();
            for (open, n) in steps {
                if open {
                    let handle = give(number(n)).unwrap();
                    prop_assert!(live.insert(handle.addr(), n).is_none());
                } else if let Some(at) = live.keys().nth(n as usize % live.len().max(1)).copied() {
                    let handle = std::ptr::without_provenance(at);
                    prop_assert_eq!(take::<Number>(handle, |_| Ok(())).unwrap().0, live[&at]);
                    live.remove(&at);
                    ended.push(at);
                }
                prop_assert_eq!(get(std::ptr::without_provenance(n as usize)).ok(), live.get(&(n as usize)).copied());
            }
            for (at, n) in &live {
                prop_assert_eq!(get(std::ptr::without_provenance(*at)).unwrap(), *n);
            }
            for at in ended {
                let handle = std::ptr::without_provenance(at);
                prop_assert_eq!(get(handle).unwrap_err().code, CAIRN_CLOSED);
                prop_assert_eq!(take::<Number>(handle, |_| Ok(())).err().map(|e| e.code), Some(CAIRN_CLOSED));
            }
            for at in live.keys() {
                take::<Number>(std::ptr::without_provenance(*at), |_| Ok(())).unwrap();
            }
        }
    }

    #[test]
    fn null_is_told() {
        assert_eq!(get(std::ptr::null()).unwrap_err().code, CAIRN_NULL);
    }

    #[test]
    fn a_panic_poisons_and_a_poisoned_one_can_be_ended() {
        let _alone = ALONE.lock();
        let handle = give(number(1)).unwrap();
        let panicked = with(handle, |_: &Number| -> Result<()> { panic!("oh") }).unwrap_err();
        assert_eq!(panicked.code, CAIRN_POISONED);
        assert!(panicked.message.contains("oh"), "{}", panicked.message);
        assert_eq!(get(handle).unwrap_err().code, CAIRN_POISONED);
        assert!(take::<Number>(handle, |_| Ok(())).is_ok());
    }

    #[test]
    fn what_is_in_use_does_not_end() {
        let _alone = ALONE.lock();
        let handle = give(number(1)).unwrap();
        let inner = with(handle, |_: &Number| Ok(take::<Number>(handle, |_| Ok(())).err().map(|e| e.code)));
        assert_eq!(inner.unwrap(), Some(CAIRN_BUSY));
        let refused = take::<Number>(handle, |_| Err(busy("number")));
        assert_eq!(refused.err().map(|e| e.code), Some(CAIRN_BUSY));
        assert_eq!(take::<Number>(handle, |_| Ok(())).unwrap().0, 1);
        // A closed one is closed, whichever thread is in a call with what has its slot now.
        let next = give(number(2)).unwrap();
        let inner = with(next, |_: &Number| Ok(take::<Number>(handle, |_| Ok(())).err().map(|e| e.code)));
        assert_eq!(inner.unwrap(), Some(CAIRN_CLOSED));
        assert_eq!(take::<Number>(next, |_| Ok(())).unwrap().0, 2);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_left_alone() {
        static FEW: Slots<Few> = Slots::new();
        struct Few(AtomicBool);
        impl Kept for Few {
            type C = Opaque;
            const KIND: u64 = 6;
            const NAME: &'static str = "few";
            fn slots() -> &'static Slots<Self> {
                &FEW
            }
            fn poisoned(&self) -> &AtomicBool {
                &self.0
            }
        }
        let first = give(Few(AtomicBool::new(false))).unwrap();
        take::<Few>(first, |_| Ok(())).unwrap();
        FEW.slot(0).unwrap().0.write().generation = GENERATIONS - 1;
        let last = give(Few(AtomicBool::new(false))).unwrap();
        take::<Few>(last, |_| Ok(())).unwrap();
        let next = give(Few(AtomicBool::new(false))).unwrap();
        assert_eq!(next.addr() >> KIND_BITS & ((1 << INDEX_BITS) - 1), 1);
        take::<Few>(next, |_| Ok(())).unwrap();
    }
}
