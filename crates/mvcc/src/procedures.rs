//! What the pool knows procedures by whose calls are logged as such, and a call.
//!
//! A record of a call has a procedure's number: its place in a table in the pool, which names procedures and versions. The table is written when a store is opened, while no log holds
//! a call.

use pmem::{Persist, TwoSlot};
use tx::{Error, Isolation, Result};

use crate::record::PROCEDURES_MAX;

/// Procedures of one store.
const MOST: usize = 32;
const NAME_MAX: usize = 56;

/// A procedure of this program, as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    pub(crate) isolation: Isolation,
    /// The type that it is.
    pub(crate) of: &'static str,
}

/// An error if the table has no room for them, or could not tell them apart.
pub(crate) fn check(procedures: &[Known]) -> Result<()> {
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
        let is_other = |other: &&Known| (other.name, other.version) == (one.name, one.version) && other.of != one.of;
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
    pub(crate) fn of(procedures: &[Known]) -> Self {
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
    pub(crate) fn update(cell: &mut TwoSlot<Self>, procedures: &[Known]) -> Result<()> {
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
