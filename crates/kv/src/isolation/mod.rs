//! Which transactions are active and what each sees, which one writes which key, and in which order commits are seen. Nothing here knows what is stored.

pub(crate) mod active;
pub(crate) mod locks;
pub(crate) mod order;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmem::sync::CachePadded;

use active::{Active, Pin};
use locks::{Around, Locks, Stop, Tried};
use order::{Order, Position};

/// The concurrency control of a store.
pub(crate) struct Concurrency {
    /// The clock, and who is active.
    pub(crate) active: Active,
    locks: Locks,
    order: Order,
    /// Numbers transactions that wait, oldest first.
    ages: CachePadded<AtomicU64>,
}

impl Concurrency {
    /// With the clock of the last checkpoint, for so many transactions at once; `ordered` if commits are seen in the order of their timestamps.
    pub(crate) fn new(clock: u64, transactions: usize, ordered: bool) -> Self {
        Self {
            active: Active::new(clock, transactions, ordered),
            locks: Locks::new(transactions),
            order: Order::default(),
            ages: CachePadded(1.into()),
        }
    }

    // ---- locks ------------------------------------------------------------------------------------------------

    /// Asks for a lock that is about to be taken.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.locks.prefetch(hash);
    }

    #[inline]
    pub(crate) fn try_lock(&self, hash: u64, pin: &Pin<'_>) -> Tried {
        self.locks.try_lock(hash, pin)
    }

    /// Waits for the lock: see [`Locks::lock`]. `check_usable` is an error once no transaction can commit any more.
    pub(crate) fn lock(
        &self,
        hash: u64,
        pin: &Pin<'_>,
        check_usable: impl Fn() -> pmem::Result<()>,
    ) -> Result<Tried, Stop> {
        self.locks.lock(hash, pin, &Waiter { concurrency: self, check_usable })
    }

    #[inline]
    pub(crate) fn unlock(&self, hash: u64, pin: &Pin<'_>) {
        self.locks.unlock(hash, pin);
    }

    /// The transaction slot of a lock's holder.
    #[inline]
    pub(crate) fn owner(&self, hash: u64) -> Option<usize> {
        self.locks.owner(hash)
    }

    /// The next number of a transaction that waits.
    pub(crate) fn age(&self) -> u64 {
        self.ages.fetch_add(1, Relaxed)
    }

    // ---- the order of commits ---------------------------------------------------------------------------------

    /// A timestamp, and a position in the order of commits.
    pub(crate) fn join(&self) -> Position<'_> {
        self.order.join(&self.active)
    }

    /// The clock goes on without a commit.
    pub(crate) fn tick_in_order(&self) {
        self.order.tick(&self.active);
    }
}

/// What a transaction that waits for a lock is told.
struct Waiter<'c, F> {
    concurrency: &'c Concurrency,
    check_usable: F,
}

impl<F: Fn() -> pmem::Result<()>> Around for Waiter<'_, F> {
    fn active(&self) -> &Active {
        &self.concurrency.active
    }

    fn age(&self) -> u64 {
        self.concurrency.age()
    }

    fn check_usable(&self) -> pmem::Result<()> {
        (self.check_usable)()
    }
}
