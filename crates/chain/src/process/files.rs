//! A file belongs to one machine of one chain.
//!
//! At etcd there is for each machine how many files it has had, and the number of the pool of the last one: a file that was made for another chain would count as a whole copy of this one.
//!
//! *An older copy of the file* would count, too, while the view has its machine. So starts are numbered: a start draws a number that is higher than the file's and than the one at etcd, writes it into the file, then
//! at etcd, and does nothing before both have it. Then a file whose number is lower than etcd's was copied before a start that may have done something: it is refused. The newest one has etcd's number, or, if a start
//! was killed between the two, a higher one; whatever is a copy of that one lacks nothing, since that start has done nothing. What is copied from a file *while its process runs* has the number of that start, and is not told.
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
use crate::{Found, Medium, ReplicaId, Sizes, View};

/// A copy's first incarnation on a new file is a multiple of this: higher than all before.
const INCARNATIONS: u32 = 1 << 16;
/// Between two looks whether another process of the machine is still announced.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// Whether a file can take part.
pub(super) type Check<'c> = dyn Fn(&Medium) -> Result<(), Failure> + 'c;

/// What stands at etcd; a number alone is of an earlier version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Files {
    Count(u32),
    Last {
        files: u32,
        pool: Option<u64>,
        /// The number of the last start.
        #[serde(default)]
        starts: u64,
    },
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
            Self::Last { files, pool: None, .. } => files.saturating_sub(1),
            Self::Count(files) | Self::Last { files, .. } => *files,
        }
    }

    /// The number of the last start by the last file.
    fn starts(&self) -> u64 {
        match self {
            Self::Count(_) => 0,
            Self::Last { starts, .. } => *starts,
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
    view: &View,
    check: &Check<'_>,
) -> Result<(Medium, Found), Failure> {
    let machine = options.machine;
    if opened.is_none() {
        check_new(path, options, nodes, view)?;
    }
    let files = nodes.register(&format!("files-{machine}"), &machine.to_string())?;
    let (mut medium, found) = match opened {
        Some(opened) => opened,
        None => {
            create(path, options, sizes, &files, view)?;
            open(path, options)?
        }
    };
    if !is_last(&files, found.id, &medium, check)? {
        return Err(Failure::OtherChain { path: path.display().to_string(), prefix: options.prefix.clone() });
    }
    begin(path, &files, &mut medium)?;
    Ok((medium, found))
}

/// Draws the number of this start: see the module's description.
fn begin(path: &Path, files: &Register, medium: &mut Medium) -> Result<(), Failure> {
    loop {
        let Some(held) = files.read()? else { return Err(Failure::Superseded) };
        let noted: Files = serde_json::from_slice(&held.value)?;
        let (own, known) = (medium.starts(), noted.starts());
        if own.is_some_and(|own| own < known) {
            let (path, found) = (path.display().to_string(), own.unwrap_or_default());
            return Err(Failure::OldCopy { path, found, known });
        }
        // A file of an earlier version has none.
        let Some(own) = own else { return Ok(()) };
        medium.set_starts(own + 1)?;
        let next = Files::Last { files: noted.count(), pool: noted.pool(), starts: own + 1 };
        match files.swap(held.revision, serde_json::to_vec(&next)?)? {
            Swapped::Yes => return Ok(()),
            Swapped::Changed => {}
            Swapped::Superseded => return Err(Failure::Superseded),
        }
    }
}

/// A new file makes those that the machine had before worthless: not by mistake, and not while a process of the machine runs.
fn check_new(path: &Path, options: &Options, nodes: &Members, view: &View) -> Result<(), Failure> {
    let machine = options.machine;
    let had = match nodes.held(&format!("files-{machine}"))? {
        None => false,
        Some(held) => match serde_json::from_slice::<Files>(&held.value)? {
            Files::Count(files) => files > 0,
            Files::Last { pool, .. } => pool.is_some(),
        },
    };
    if had && !options.new_file && view.members.iter().any(|id| id.machine == machine) {
        return Err(Failure::NoFile { path: path.display().to_string(), machine });
    }
    // One that was killed is announced for the time of a lease.
    let late = crate::clock::now().0.saturating_add(3 * options.ttl.as_nanos() as u64);
    let name = machine.to_string();
    loop {
        let Some(other) = nodes.copies()?.into_iter().find(|member| member.name == name) else { return Ok(()) };
        if crate::clock::now().0 > late {
            return Err(Failure::Runs { machine, address: other.address });
        }
        std::thread::sleep(LOOK);
    }
}

/// A new file. Its incarnation is one that no file of this machine has had: the first one of a chain's first members may count, all others join.
fn create(path: &Path, options: &Options, sizes: Sizes, files: &Register, view: &View) -> Result<(), Failure> {
    let number = loop {
        let held = files.read()?;
        let (revision, number) = match &held {
            None => (0, 0),
            Some(held) => (held.revision, serde_json::from_slice::<Files>(&held.value)?.next()),
        };
        let next = Files::Last { files: number + 1, pool: None, starts: 0 };
        match files.swap(revision, serde_json::to_vec(&next)?)? {
            Swapped::Yes => break number,
            Swapped::Changed => {}
            Swapped::Superseded => return Err(Failure::Superseded),
        }
    };
    let incarnation = number.checked_mul(INCARNATIONS).ok_or_else(|| Failure::Chain("too many files".into()))?;
    let id = ReplicaId { machine: options.machine, incarnation };
    // A view that names the first copy, which has done nothing yet, is of a chain that has acknowledged nothing.
    let whole = number == 0 && (options.first.contains(&options.machine) || view.contains(id));
    Ok(Medium::create(path, id, whole, sizes)?)
}

/// True if the last file that was made for this machine is this one. One that was made and not noted, since its process ended between the two, is noted now.
fn is_last(files: &Register, id: ReplicaId, medium: &Medium, check: &Check<'_>) -> Result<bool, Failure> {
    let pool = medium.pool_id();
    loop {
        let Some(held) = files.read()? else { return Ok(false) };
        let noted: Files = serde_json::from_slice(&held.value)?;
        if let Some(noted) = noted.pool() {
            return Ok(noted == pool);
        }
        if id.incarnation / INCARNATIONS + 1 != noted.count() {
            return Ok(false);
        }
        check(medium)?;
        let next = Files::Last { files: noted.count(), pool: Some(pool), starts: 0 };
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
        assert_eq!(read(r#"{"files":2,"pool":7}"#), Files::Last { files: 2, pool: Some(7), starts: 0 });
        let last = Files::Last { files: 2, pool: Some(u64::MAX), starts: 3 };
        assert_eq!(read(&serde_json::to_string(&last).unwrap()), last);
        assert!(serde_json::from_str::<Files>("\"x\"").is_err());
    }
}
