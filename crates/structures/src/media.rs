//! Words and pointers as they come from media: anything may stand there.

use pmem::PPtr;
use tx::{Doom, Error, Result, ToRange, Transaction, Typed};

/// Longest value.
pub const VALUE_MAX: u64 = 1 << 30;

const OFFSET_BITS: u32 = 48;

/// An offset in the structure's own pool and 16 more bits, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(pub(crate) u64);

impl Link {
    pub(crate) const NULL: Self = Self(0);

    pub(crate) fn new<T>(to: PPtr<T>, bits: u16) -> Self {
        Self(to.offset() | u64::from(bits) << OFFSET_BITS)
    }

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn bits(self) -> u16 {
        (self.0 >> OFFSET_BITS) as u16
    }

    #[inline]
    pub(crate) fn ptr<T>(self, tag: u16) -> PPtr<T> {
        PPtr::new(tag, self.0)
    }
}

/// The byte `by` behind `ptr`.
#[inline]
pub(crate) fn behind<T, U>(ptr: PPtr<T>, by: u64) -> PPtr<U> {
    PPtr::new(ptr.tag(), ptr.offset() + by)
}

#[cold]
pub(crate) fn damaged<T>(what: &'static str, at: PPtr<T>, why: impl Into<String>) -> Error {
    Error::Damaged { what, offset: at.offset(), why: why.into() }
}

/// A pointer from media that leads nowhere is damage to the block that holds it.
#[inline]
pub(crate) fn held<T, R>(what: &'static str, at: PPtr<T>, result: Result<R>) -> Result<R> {
    result.map_err(|e| blame(what, at, e))
}

#[cold]
fn blame<T>(what: &'static str, at: PPtr<T>, error: Error) -> Error {
    match error {
        Error::Pool(pmem::Error::BadPointer { .. } | pmem::Error::Unaligned { .. }) => {
            damaged(what, at, error.to_string())
        }
        error => error,
    }
}

/// The number at byte `at`, if it is inside.
#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Runs a change; if it fails half way, the transaction can only be aborted.
#[inline]
pub(crate) fn change<X: Transaction + ?Sized, R>(tx: &mut X, f: impl FnOnce(&mut X) -> Result<R>) -> Result<R> {
    f(tx).inspect_err(|e| {
        if tx.doom().is_none() {
            tx.set_doom(Doom::from(e));
        }
    })
}

pub(crate) fn limit(what: &'static str, found: usize, max: u64) -> Result<()> {
    match found as u64 {
        found if found > max => Err(Error::Limit { what, found, max }),
        _ => Ok(()),
    }
}

/// Sets words, declared together.
pub(crate) fn set_words<X: Transaction + ?Sized>(tx: &mut X, words: &[(PPtr<u64>, u64)]) -> Result<()> {
    if words.len() > 1 {
        let ranges: Vec<_> = words.iter().map(|(at, _)| at.range()).collect();
        tx.intend(&ranges)?;
    }
    words.iter().try_for_each(|&(at, word)| {
        *tx.write(at)? = word;
        Ok(())
    })
}

/// Notices a chain that runs in a circle (Brent).
pub(crate) struct Circle {
    mark: u64,
    steps: u64,
    power: u64,
}

impl Circle {
    pub(crate) fn new() -> Self {
        Self { mark: 0, steps: 0, power: 1 }
    }

    /// True if `at` was met before; never for 0.
    #[inline]
    pub(crate) fn closes(&mut self, at: u64) -> bool {
        if at == self.mark {
            return at != 0;
        }
        self.steps += 1;
        if self.steps == self.power {
            self.mark = at;
            self.power *= 2;
            self.steps = 0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_of_any_length_and_tail_are_noticed() {
        for tail in 0..40u64 {
            for length in 1..40u64 {
                let mut circle = Circle::new();
                let at = |step: u64| 1 + if step < tail { step } else { tail + (step - tail) % length };
                let closed = (0..10_000).find(|&step| circle.closes(at(step)));
                assert!(closed.is_some_and(|step| step >= length), "tail {tail}, length {length}: {closed:?}");
            }
        }
        let mut straight = Circle::new();
        assert!(!(1..10_000).any(|at| straight.closes(at)));
    }

    #[test]
    fn links_keep_both_parts() {
        let to = PPtr::<u64>::new(7, pmem::OFFSET_MAX - 7);
        let link = Link::new(to, 0xfffe);
        assert_eq!((link.ptr::<u64>(7), link.bits()), (to, 0xfffe));
        assert!(Link::NULL.is_null());
    }
}
