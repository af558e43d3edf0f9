//! What tests count. Outside of them nothing is counted, and no code is left.

/// Read-modify-writes between a store of staged bytes and its drain.
pub(crate) mod behind {
    #[cfg(test)]
    thread_local! {
        /// Stores since the last drain.
        static STORES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        /// All stores; read-modify-writes behind one.
        pub(crate) static COUNTS: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
    }

    #[inline(always)]
    pub(crate) fn stored() {
        #[cfg(test)]
        {
            STORES.set(STORES.get() + 1);
            COUNTS.set((COUNTS.get().0 + 1, COUNTS.get().1));
        }
    }

    #[inline(always)]
    pub(crate) fn drained() {
        #[cfg(test)]
        STORES.set(0);
    }

    /// In front of each read-modify-write that a commit may come to.
    #[inline(always)]
    pub(crate) fn modifies() {
        #[cfg(test)]
        if STORES.get() > 0 {
            COUNTS.set((COUNTS.get().0, COUNTS.get().1 + 1));
        }
    }
}

/// Entries, or zones, that are looked at one after the other.
pub(crate) mod steps {
    #[cfg(test)]
    thread_local! {
        pub(crate) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[inline(always)]
    pub(crate) fn count() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }
}
