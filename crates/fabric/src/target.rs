//! What every backend's target does before it touches a window.

use std::sync::Arc;

use crate::{Access, Reason, Rights, Violation, Window};

/// One end's window and what its peer may do there.
pub(crate) struct Target {
    pub(crate) window: Option<Arc<dyn Window>>,
    pub(crate) access: Access,
}

impl Target {
    /// Whether the peer may do that now. It may not any more a moment later: `write` and `read` ask again.
    pub(crate) fn allows(&self, wanted: Rights, offset: u64, len: u64) -> Result<(), Reason> {
        self.check(wanted, self.access.get(), offset, len)
    }

    /// Puts bytes into the window. Rights stay while it does.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Reason> {
        let rights = self.access.hold();
        self.check(Rights::Write, *rights, offset, bytes.len() as u64)?;
        let Some(window) = &self.window else { return Ok(()) };
        window.write(offset, bytes).map_err(|error| Reason::Window { what: error.to_string() })
    }

    /// Gets bytes from the window. Rights stay while it does.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Reason> {
        let rights = self.access.hold();
        self.check(Rights::Read, *rights, offset, into.len() as u64)?;
        let Some(window) = &self.window else { return Ok(()) };
        window.read(offset, into).map_err(|error| Reason::Window { what: error.to_string() })
    }

    fn check(&self, wanted: Rights, given: Rights, offset: u64, len: u64) -> Result<(), Reason> {
        if given < wanted {
            return Err(Reason::PeerViolated(Violation::Rights { wanted, given }));
        }
        let window = self.window.as_ref().map_or(0, |window| window.len());
        match offset.checked_add(len) {
            Some(end) if end <= window => Ok(()),
            _ => Err(Reason::PeerViolated(Violation::Bounds { offset, len, window })),
        }
    }
}
