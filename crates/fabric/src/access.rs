//! What a peer may do with a window.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// What a peer may do with this end's window. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Rights {
    /// Nothing. Every connection starts like this, unless its options say otherwise.
    #[default]
    None,
    /// Read.
    Read,
    /// Write, and read.
    Write,
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no access",
            Self::Read => "read access",
            Self::Write => "write access",
        })
    }
}

/// The handle on the rights of one connection's peer. Clones are the same handle.
///
/// A peer that uses a right it has not (or not any more) loses the connection. On hardware taking a right away closes the connection at once,
/// since that is how a device is made to stop.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    /// Held for reading while a backend touches the window.
    rights: RwLock<Rights>,
    /// One `set` at a time.
    setting: Mutex<Option<Weak<dyn Enforce>>>,
}

/// A backend that has to do something when rights change.
pub(crate) trait Enforce: Send + Sync {
    /// Called before [`Access::set`] returns, one call at a time.
    /// Returns whether the connection ended by that: then `last` was its last message, if it is not empty.
    fn changed(&self, from: Rights, to: Rights, last: &[u8]) -> bool;
}

impl Access {
    /// A handle of its own.
    #[must_use]
    pub fn new(rights: Rights) -> Self {
        Self(Arc::new(Shared { rights: RwLock::new(rights), setting: Mutex::new(None) }))
    }

    /// From when this returns, the peer has these rights: nothing that it did not allow is under way any more, or comes later.
    pub fn set(&self, rights: Rights) {
        self.change(rights, &[]);
    }

    /// Takes all rights away, as [`set`](Self::set) does, with a last message: where the connection ends by that, the peer gets it before it is told the end, and this
    /// returns true. Otherwise nothing was sent, and the connection stays, for the caller to end.
    #[must_use]
    pub fn withdraw(&self, last: &[u8]) -> bool {
        self.change(Rights::None, last)
    }

    fn change(&self, rights: Rights, last: &[u8]) -> bool {
        let enforcer = self.0.setting.lock();
        let before = std::mem::replace(&mut *self.0.rights.write(), rights);
        match enforcer.as_ref().and_then(Weak::upgrade) {
            Some(enforcer) if before != rights => enforcer.changed(before, rights, last),
            _ => false,
        }
    }

    /// The rights now.
    #[must_use]
    pub fn get(&self) -> Rights {
        *self.0.rights.read()
    }

    pub(crate) fn enforced_by(&self, enforcer: Weak<dyn Enforce>) {
        *self.0.setting.lock() = Some(enforcer);
    }

    /// While the guard lives, the rights stay.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, Rights> {
        self.0.rights.read()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({:?})", self.get())
    }
}
