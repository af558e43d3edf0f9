//! The engine that a workload runs on: its threads share it, and it is ended, well or not, and opened again.

use std::sync::{Arc, Mutex};

use crash::Error;
use pmem::Pool;

/// An engine, and the pool that it is in. Nothing once it is ended.
pub(crate) struct Opened<E>(Mutex<Option<(Arc<E>, Pool)>>);

impl<E> Opened<E> {
    pub(crate) fn new((engine, pool): (E, Pool)) -> Self {
        Self(Mutex::new(Some((Arc::new(engine), pool))))
    }

    /// To use it.
    pub(crate) fn get(&self) -> Result<Arc<E>, Error> {
        let open = self.0.lock().map_err(|e| e.to_string())?;
        Ok(Arc::clone(&open.as_ref().ok_or("closed")?.0))
    }

    /// Ends it, and opens it again. No other thread uses it meanwhile.
    pub(crate) fn again(
        &self,
        end: impl FnOnce(E, Pool) -> Result<(), Error>,
        open: impl FnOnce() -> Result<(E, Pool), Error>,
    ) -> Result<(), Error> {
        let mut opened = self.0.lock().map_err(|e| e.to_string())?;
        let (engine, pool) = opened.take().ok_or("closed")?;
        end(Arc::into_inner(engine).ok_or("in use")?, pool)?;
        let (engine, pool) = open()?;
        *opened = Some((Arc::new(engine), pool));
        Ok(())
    }

    /// Ends it, if it is open.
    pub(crate) fn end(self, end: impl FnOnce(E, Pool) -> Result<(), Error>) -> Result<(), Error> {
        match self.0.into_inner().map_err(|e| e.to_string())? {
            Some((engine, pool)) => end(Arc::into_inner(engine).ok_or("in use")?, pool),
            None => Ok(()),
        }
    }

    /// Closes it, if it is open: the engine has the pool by itself.
    pub(crate) fn close<X: Into<Error>>(self, close: impl FnOnce(E) -> Result<(), X>) -> Result<(), Error> {
        self.end(|engine, pool| {
            drop(pool);
            close(engine).map_err(Into::into)
        })
    }
}
