//! Procedures whose calls are logged as such (TimeStone §2.2.2, §3.8: the operation log), and how they are run again.

use tx::{Isolation, Procedure, Result};

use crate::core::Core;
use crate::procedures::{Calling, Known};
use crate::record::call_len;
use crate::transaction::Tx;

/// A procedure of this program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) known: Known,
    pub(crate) replay: Replay,
}

type Replay = fn(&mut Tx<'_>, &[u8]) -> Result<()>;

impl Registered {
    pub(crate) fn of<P: Procedure>() -> Self {
        let replay = |tx: &mut Tx<'_>, args: &[u8]| P::replay(tx, args);
        let of = std::any::type_name::<P>();
        Self { known: Known { name: P::NAME, version: P::VERSION, isolation: P::ISOLATION, of }, replay }
    }
}

impl Core {
    /// What is to be logged of a call, if it may be logged as one.
    pub(crate) fn calling<P: Procedure>(&self, args: &P::Args) -> Option<Calling> {
        if self.procedures.is_empty() || P::ISOLATION == Isolation::Snapshot {
            return None;
        }
        let is_it = |known: &Known| known.name == P::NAME && known.version == P::VERSION;
        let procedure = self.procedures.iter().position(is_it)?;
        let mut encoded = Vec::new();
        let fits = P::encode(args, &mut encoded) && (call_len(0, encoded.len()) as u64) < pmem::PAYLOAD_MAX;
        fits.then_some(Calling { procedure, args: encoded })
    }
}
