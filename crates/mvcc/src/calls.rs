//! Procedures whose calls are logged as such (TimeStone §2.2.2, §3.8: the operation log), and what the pool knows them by.
//!
//! A record of a call has a procedure's number: its place in a table in the pool, which names procedures and versions. The table is written when a store is opened, while no log holds
//! a call.

use pmem::{Persist, TwoSlot};
use tx::{Engine, Error, Isolation, Procedure, Result};

use crate::core::Core;
use crate::record::{PROCEDURES_MAX, call_len};
use crate::transaction::Tx;

/// Procedures of one store.
const MOST: usize = 32;
const NAME_MAX: usize = 56;

/// A procedure of this program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    pub(crate) isolation: Isolation,
    of: &'static str,
    pub(crate) replay: Replay,
}

type Replay = fn(&mut Tx<'_>, &[u8]) -> Result<()>;

impl Registered {
    pub(crate) fn of<P: Procedure>() -> Self {
        let replay = |tx: &mut Tx<'_>, args: &[u8]| P::replay(tx, args);
        Self { name: P::NAME, version: P::VERSION, isolation: P::ISOLATION, of: std::any::type_name::<P>(), replay }
    }
}

/// An error if the table has no room for them, or could not tell them apart.
pub(crate) fn check(procedures: &[Registered]) -> Result<()> {
    const { assert!(MOST as u64 <= PROCEDURES_MAX) };
    if procedures.len() > MOST {
        return Err(Error::Limit { what: "procedures", found: procedures.len() as u64, max: MOST as u64 });
    }
    for (at, one) in procedures.iter().enumerate() {
        let len = one.name.len();
        if len == 0 || len > NAME_MAX {
            let what = "bytes of a procedure's name (1 at least)";
            return Err(Error::Limit { what, found: len as u64, max: NAME_MAX as u64 });
        }
        let is_other =
            |other: &&Registered| (other.name, other.version) == (one.name, one.version) && other.of != one.of;
        if let Some(other) = procedures[..at].iter().find(is_other) {
            let why = format!("{} and {} have the same name and version", one.of, other.of);
            return Err(refused((one.name.to_owned(), one.version), why));
        }
    }
    Ok(())
}

/// A call that cannot be run again.
pub(crate) fn refused((name, version): (String, u32), why: impl Into<String>) -> Error {
    Error::Replay { name, version, why: why.into() }
}

/// The table. Behind the last one there are zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
pub(crate) struct Names([Name; MOST]);

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
struct Name {
    version: u32,
    len: u32,
    name: [u8; NAME_MAX],
}

impl Names {
    pub(crate) fn of(procedures: &[Registered]) -> Self {
        let mut names = [Name { version: 0, len: 0, name: [0; NAME_MAX] }; MOST];
        for (name, procedure) in names.iter_mut().zip(procedures) {
            (name.version, name.len) = (procedure.version, procedure.name.len() as u32);
            let bytes = procedure.name.bytes();
            name.name.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        }
        Self(names)
    }

    /// An error if this is no table.
    pub(crate) fn check(&self) -> Result<()> {
        let is_name = |name: &Name| {
            let parts = name.name.split_at_checked(name.len as usize);
            parts.is_some_and(|(text, rest)| std::str::from_utf8(text).is_ok() && rest.iter().all(|byte| *byte == 0))
        };
        match self.0.iter().position(|name| !is_name(name)) {
            None => Ok(()),
            Some(number) => {
                let why = format!("entry {number} is no name");
                Err(Error::Damaged { what: "table of procedures", offset: 0, why })
            }
        }
    }

    /// All names and versions.
    pub(crate) fn all(&self) -> Vec<(String, u32)> {
        (0..MOST).filter_map(|number| self.get(number)).collect()
    }

    /// The name and version of a number.
    pub(crate) fn get(&self, number: usize) -> Option<(String, u32)> {
        let name = self.0.get(number).filter(|name| name.len > 0)?;
        let bytes = name.name.get(..name.len as usize)?;
        Some((String::from_utf8_lossy(bytes).into_owned(), name.version))
    }

    /// Has the table say what this program's procedures are. No log holds a call.
    pub(crate) fn update(cell: &mut TwoSlot<Self>, procedures: &[Registered]) -> Result<()> {
        let names = Self::of(procedures);
        if cell.get() == names { Ok(()) } else { Ok(cell.update_mirrored(&names)?) }
    }
}

/// A transaction that is the call of a procedure, and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Calling {
    pub(crate) procedure: usize,
    pub(crate) args: Vec<u8>,
}

impl Core {
    /// What is to be logged of a call, if it may be logged as one.
    pub(crate) fn calling<P: Procedure>(&self, args: &P::Args) -> Option<Calling> {
        if self.procedures.is_empty() || P::ISOLATION == Isolation::Snapshot {
            return None;
        }
        let is_it = |known: &Registered| known.name == P::NAME && known.version == P::VERSION;
        let procedure = self.procedures.iter().position(is_it)?;
        let mut encoded = Vec::new();
        let fits = P::encode(args, &mut encoded) && (call_len(0, encoded.len()) as u64) < pmem::PAYLOAD_MAX;
        fits.then_some(Calling { procedure, args: encoded })
    }
}

/// Calls a procedure in a transaction that is logged as its call.
pub(crate) fn call<P: Procedure>(store: &crate::Mvcc, core: &Core, args: &P::Args) -> Result<P::Output> {
    let calling = core.calling::<P>(args);
    store.transact(P::ISOLATION, |tx| {
        if let Some(calling) = &calling {
            tx.log_as(calling);
        }
        P::run(tx, args)
    })
}
