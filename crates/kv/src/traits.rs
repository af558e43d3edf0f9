//! The store as any key-value store: the traits of crate `tx`.

use tx::{Doom, Isolation, Keys, Kv, KvTx, Visit};

use crate::store::Store;
use crate::txn::transaction::Transaction;

impl Kv for Store {
    type Tx<'a> = Transaction<'a>;

    fn begin(&self, isolation: Isolation) -> tx::Result<Transaction<'_>> {
        Ok(Self::begin(self, isolation)?)
    }

    fn transact<'a, R, E>(
        &'a self,
        isolation: Isolation,
        f: impl FnMut(&mut Transaction<'a>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<tx::Error>,
    {
        /// The caller's error, or ours as the trait's.
        struct Either<E>(E);
        impl<E: From<tx::Error>> From<crate::Error> for Either<E> {
            fn from(error: crate::Error) -> Self {
                Self(tx::Error::from(error).into())
            }
        }
        let mut f = f;
        self.transact_at(isolation, |tx| f(tx).map_err(Either)).map_err(|Either(error)| error)
    }
}

impl KvTx for Transaction<'_> {
    fn get(&self, key: &[u8]) -> tx::Result<Option<&[u8]>> {
        Ok(Self::get(self, key)?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> tx::Result<bool> {
        Ok(Self::put(self, key, value)?)
    }

    fn delete(&mut self, key: &[u8]) -> tx::Result<bool> {
        Ok(Self::delete(self, key)?)
    }

    fn scan(&self, keys: &Keys, visit: Visit<'_>) -> tx::Result<()> {
        for pair in Self::scan(self, keys.clone()) {
            let (key, value) = pair?;
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn doom(&self) -> Option<Doom> {
        Self::doom(self)
    }

    fn commit(self) -> tx::Result<()> {
        Self::commit(self)?;
        Ok(())
    }

    fn abort(self) -> tx::Result<()> {
        Self::abort(self);
        Ok(())
    }
}
