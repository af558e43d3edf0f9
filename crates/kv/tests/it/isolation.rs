//! What every key-value store must do, and this one's levels really are: the suite of crate `conformance`.

use conformance::keys::Subject;
use kv::{Options, Store, Transaction};
use tx::{Isolation, Kv};

/// A store that takes its directory along.
pub(crate) struct Own {
    pub(crate) store: Store,
    _dir: tempfile::TempDir,
}

impl Kv for Own {
    type Tx<'a> = Transaction<'a>;

    fn begin(&self, isolation: Isolation) -> tx::Result<Transaction<'_>> {
        Kv::begin(&self.store, isolation)
    }

    fn transact<'a, R, E>(
        &'a self,
        isolation: Isolation,
        f: impl FnMut(&mut Transaction<'a>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<tx::Error>,
    {
        Kv::transact(&self.store, isolation, f)
    }
}

pub(crate) fn own(options: Options) -> Own {
    let dir = crate::memory();
    Own { store: options.create(dir.path().join("store")).unwrap(), _dir: dir }
}

pub(crate) fn small() -> Options {
    // Checkpoints come often.
    Options::new().segment_bytes(64 << 10).checkpoint_bytes(256 << 10).transactions(64)
}

/// How it is used: through `begin` and `transact` alike.
struct Stored;

impl Subject for Stored {
    type Store = Own;

    fn fresh(&self) -> Own {
        own(small())
    }

    fn fresh_scheduled(&self) -> Own {
        own(small().background(false))
    }

    fn skews(&self) -> bool {
        true
    }
}

/// The same with each commit's timestamp, which `begin` alone gives.
struct Ordered;

/// The same, in groups.
struct Grouped;

impl Subject for Grouped {
    type Store = Own;
    const TELLS_ORDER: bool = true;

    fn fresh(&self) -> Own {
        own(small().group_commit(true))
    }

    fn fresh_scheduled(&self) -> Own {
        own(small().background(false).group_commit(true))
    }

    fn commit(tx: Transaction<'_>) -> tx::Result<Option<u64>> {
        Ok(Some(tx.commit()?.get()))
    }
}

impl Subject for Ordered {
    type Store = Own;
    const TELLS_ORDER: bool = true;

    fn fresh(&self) -> Own {
        own(small())
    }

    fn fresh_scheduled(&self) -> Own {
        own(small().background(false))
    }

    fn commit(tx: Transaction<'_>) -> tx::Result<Option<u64>> {
        Ok(Some(tx.commit()?.get()))
    }
}

/// The same with commits that return before their barrier: what others see is the same.
struct Bounded;

impl Subject for Bounded {
    type Store = Own;
    const TELLS_ORDER: bool = true;

    fn fresh(&self) -> Own {
        own(small().durability(kv::Durability::Bounded(50)))
    }

    fn fresh_scheduled(&self) -> Own {
        own(small().background(false).durability(kv::Durability::Bounded(2)))
    }

    fn commit(tx: Transaction<'_>) -> tx::Result<Option<u64>> {
        Ok(Some(tx.commit()?.get()))
    }
}

conformance::keys!(stored, Stored);
conformance::keys!(ordered, Ordered);
conformance::keys!(grouped, Grouped);
conformance::keys!(bounded, Bounded);
