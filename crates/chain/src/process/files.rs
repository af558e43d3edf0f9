//! A file belongs to one machine of one chain.
//!
//! At etcd there is for each machine how many files it has had, and the number of the pool of the last one: a file that was made for another chain would count as a whole copy of this one.
//!
//! A new file is counted, made, and noted by the number of its pool; nothing is sent or taken before all three are done. A start that ends in between leaves
//!
//! | at etcd | file | the next start |
//! |---|---|---|
//! | counted, no pool | none | makes one by the same number |
//! | counted, no pool | there | notes its pool |
//! | the pool | there | takes part |

use std::path::Path;

use membership::{Members, Register, Swapped};
use serde::{Deserialize, Serialize};

use super::{Failure, Options};
use crate::{Found, Medium, ReplicaId, Sizes};

/// A copy's first incarnation on a new file is a multiple of this: higher than all before.
const INCARNATIONS: u32 = 1 << 16;

/// What stands at etcd; a number alone is of an earlier version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Files {
    Count(u32),
    Last { files: u32, pool: Option<u64> },
}

impl Files {
    fn count(&self) -> u32 {
        match self {
            Self::Count(files) | Self::Last { files, .. } => *files,
        }
    }

    /// The number of the next file. A file does nothing before its pool is noted, so the number of one that was not counts as never used.
    fn next(&self) -> u32 {
        match self {
            Self::Last { files, pool: None } => files.saturating_sub(1),
            Self::Count(files) | Self::Last { files, .. } => *files,
        }
    }

    /// The pool of the last file, if it is known.
    fn pool(&self) -> Option<u64> {
        match self {
            Self::Count(_) => None,
            Self::Last { pool, .. } => *pool,
        }
    }
}

/// Opens this machine's file.
pub(super) fn open(path: &Path, options: &Options) -> Result<(Medium, Found), Failure> {
    let (medium, found) = Medium::open(path)?;
    if found.id.machine != options.machine {
        let why = format!(
            "it is the copy of machine {}, and this is machine {}; name this machine's own file",
            found.id.machine, options.machine
        );
        return Err(crate::Error::File { path: path.display().to_string(), why }.into());
    }
    Ok((medium, found))
}

/// This machine's file, made if there is none, which is of this chain.
pub(super) fn claim(
    path: &Path,
    opened: Option<(Medium, Found)>,
    options: &Options,
    sizes: Sizes,
    nodes: &Members,
) -> Result<(Medium, Found), Failure> {
    let machine = options.machine;
    let files = nodes.register(&format!("files-{machine}"), &machine.to_string())?;
    let (medium, found) = match opened {
        Some(opened) => opened,
        None => {
            create(path, options, sizes, &files)?;
            open(path, options)?
        }
    };
    if is_last(&files, found.id, medium.pool_id())? {
        return Ok((medium, found));
    }
    Err(Failure::OtherChain { path: path.display().to_string(), prefix: options.prefix.clone() })
}

/// A new file. Its incarnation is one that no file of this machine has had: the first one of a chain's first members may count, all others join.
fn create(path: &Path, options: &Options, sizes: Sizes, files: &Register) -> Result<(), Failure> {
    let number = loop {
        let held = files.read()?;
        let (revision, number) = match &held {
            None => (0, 0),
            Some(held) => (held.revision, serde_json::from_slice::<Files>(&held.value)?.next()),
        };
        let next = Files::Last { files: number + 1, pool: None };
        match files.swap(revision, serde_json::to_vec(&next)?)? {
            Swapped::Yes => break number,
            Swapped::Changed => {}
            Swapped::Superseded => return Err(Failure::Superseded),
        }
    };
    let incarnation = number.checked_mul(INCARNATIONS).ok_or_else(|| Failure::Chain("too many files".into()))?;
    let id = ReplicaId { machine: options.machine, incarnation };
    let whole = number == 0 && options.first.contains(&options.machine);
    Ok(Medium::create(path, id, whole, sizes)?)
}

/// True if the last file that was made for this machine is this one. One that was made and not noted, since its process ended between the two, is noted now.
fn is_last(files: &Register, id: ReplicaId, pool: u64) -> Result<bool, Failure> {
    loop {
        let Some(held) = files.read()? else { return Ok(false) };
        let noted: Files = serde_json::from_slice(&held.value)?;
        if let Some(noted) = noted.pool() {
            return Ok(noted == pool);
        }
        if id.incarnation / INCARNATIONS + 1 != noted.count() {
            return Ok(false);
        }
        let next = Files::Last { files: noted.count(), pool: Some(pool) };
        match files.swap(held.revision, serde_json::to_vec(&next)?)? {
            Swapped::Yes => return Ok(true),
            Swapped::Changed => {}
            Swapped::Superseded => return Err(Failure::Superseded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_version_noted_is_read() {
        let read = |text: &str| serde_json::from_str::<Files>(text).unwrap();
        assert_eq!((read("3").count(), read("3").pool()), (3, None));
        let last = Files::Last { files: 2, pool: Some(u64::MAX) };
        assert_eq!(read(&serde_json::to_string(&last).unwrap()), last);
        assert!(serde_json::from_str::<Files>("\"x\"").is_err());
    }
}
