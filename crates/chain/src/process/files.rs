//! A file belongs to one machine of one chain.
//!
//! At etcd there is for each machine how many files it has had, and the number of the pool of the last one: a file that was made for another chain would count as a whole copy of this one.
//!
//! *An older copy of the file* would count, too, while the view has its machine. So starts have [names](Start): a number, one higher than the one at etcd, and random bits. A start writes its name into the file, then
//! at etcd, and does nothing before both have it. The newest file has etcd's name, or, if a start was killed between the two, a number that is one higher, and lacks nothing: the starts since did nothing. Every other
//! file is refused: a lower number is of before a start that may have done something, and so are other bits of the same number, of a copy that was started and not noted. What is copied from a file *while its process
//! runs* has the name of that start, and is not told.
//!
//! A new file is counted, made, and noted by the number of its pool; nothing is sent or taken before all three are done. A start that ends in between leaves
//!
//! | at etcd | file | the next start |
//! |---|---|---|
//! | counted, no pool | none | makes one by the same number |
//! | counted, no pool | there | notes its pool |
//! | the pool | there | takes part |

use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use membership::{Members, Register, Swapped};
use serde::{Deserialize, Serialize};

use super::{Failure, Options};
use crate::{Found, Medium, ReplicaId, Sizes, View};

/// A copy's first incarnation on a new file is a multiple of this: higher than all before.
const INCARNATIONS: u32 = 1 << 16;
/// Between two looks whether another process of the machine is still announced.
const LOOK: Duration = Duration::from_millis(50);
/// To find out whether a process listens.
const PROBE: Duration = Duration::from_millis(500);

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
        /// The name of the last start.
        #[serde(default)]
        starts: Start,
    },
}

/// What a start is called: which one it is, and 32 random bits, so that no two have one name. An earlier version has the number alone, in place of the bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Start(u64);

impl Start {
    fn number(self) -> u64 {
        self.0 >> 32
    }

    #[expect(clippy::disallowed_methods, reason = "a name that nobody else draws; what is simulated has no files")]
    fn next(self) -> Result<Self, Failure> {
        let bits = getrandom::u32().map_err(|error| Failure::Random(error.to_string()))?;
        let number = u32::try_from(self.number() + 1).map_err(|_| Failure::Chain("too many starts".into()))?;
        Ok(Self(u64::from(number) << 32 | u64::from(bits)))
    }

    /// A file that says this is the newest, when etcd says `last`.
    fn is_newest(self, last: Self) -> bool {
        self == last || self.number() == last.number() + 1
    }
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

    /// The last start by the last file.
    fn starts(&self) -> Start {
        match self {
            Self::Count(_) => Start::default(),
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

/// This machine's file, made if there is none, which is of this chain. `at`: where this process listens.
#[expect(clippy::too_many_arguments, reason = "one caller, of one step of a start")]
pub(super) fn claim(
    path: &Path,
    at: &str,
    opened: Option<(Medium, Found)>,
    options: &Options,
    sizes: Sizes,
    nodes: &Members,
    view: &View,
    check: &Check<'_>,
) -> Result<(Medium, Found), Failure> {
    let machine = options.machine;
    // First of all: what another process of the machine has begun with a register of its own comes to nothing from here on.
    let files = nodes.register(&format!("files-{machine}"), &machine.to_string())?;
    let (mut medium, found) = match opened {
        Some(opened) => opened,
        None => {
            create(path, at, options, sizes, &files, nodes, view)?;
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
        // A file of an earlier version has none.
        let Some(own) = medium.starts().map(Start) else { return Ok(()) };
        let last = noted.starts();
        if !own.is_newest(last) {
            let (path, found, known) = (path.display().to_string(), own.number(), last.number());
            return Err(Failure::OldCopy { path, found, known });
        }
        let starts = last.next()?;
        medium.set_starts(starts.0)?;
        let next = Files::Last { files: noted.count(), pool: noted.pool(), starts };
        match files.swap(held.revision, serde_json::to_vec(&next)?)? {
            Swapped::Yes => return Ok(()),
            Swapped::Changed => {}
            Swapped::Superseded => return Err(Failure::Superseded),
        }
    }
}

/// A new file makes those that the machine had before worthless: not by mistake, not while a process of the machine runs, and not where no other member has anything.
fn check_new(
    path: &Path,
    at: &str,
    options: &Options,
    held: Option<&Files>,
    nodes: &Members,
    view: &View,
) -> Result<(), Failure> {
    let machine = options.machine;
    let had = match held {
        None => false,
        Some(Files::Count(files)) => *files > 0,
        Some(Files::Last { pool, .. }) => pool.is_some(),
    };
    if had && view.members.iter().any(|id| id.machine == machine) {
        let path = path.display().to_string();
        if !options.new_file {
            return Err(Failure::NoFile { path, machine });
        }
        if view.members.len() == 1 {
            return Err(Failure::LastFile { path, machine });
        }
    }
    // One that was killed is announced for the time of a lease.
    let late = crate::clock::now().0.saturating_add(3 * options.ttl.as_nanos() as u64);
    while let Some(address) = announced(machine, nodes)? {
        let answers = Answers::at(&address);
        if answers == Answers::No || address == at {
            break;
        }
        if answers == Answers::Yes || crate::clock::now().0 > late {
            return Err(Failure::Runs { machine, address });
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A file that is a copy of the one that a process of the machine has open can be opened, too. Its start would be the last one, and the other file an older copy.
pub(super) fn check_runs(machine: u32, nodes: &Members) -> Result<(), Failure> {
    match announced(machine, nodes)? {
        Some(address) if Answers::at(&address) == Answers::Yes => Err(Failure::Runs { machine, address }),
        _ => Ok(()),
    }
}

/// Where a process of the machine is, or was a moment ago.
fn announced(machine: u32, nodes: &Members) -> Result<Option<String>, Failure> {
    let name = machine.to_string();
    Ok(nodes.copies()?.into_iter().find(|member| member.name == name).map(|member| member.address))
}

/// Whether a process listens somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Yes,
    /// Its system says that no process does.
    No,
    Unknown,
}

impl Answers {
    fn at(address: &str) -> Self {
        let Some(address) = address.to_socket_addrs().ok().and_then(|mut found| found.next()) else {
            return Self::Unknown;
        };
        match TcpStream::connect_timeout(&address, PROBE) {
            Ok(_) => Self::Yes,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Self::No,
            Err(_) => Self::Unknown,
        }
    }
}

/// A new file. Its incarnation is one that no file of this machine has had: the first one of a chain's first members may count, all others join.
fn create(
    path: &Path,
    at: &str,
    options: &Options,
    sizes: Sizes,
    files: &Register,
    nodes: &Members,
    view: &View,
) -> Result<(), Failure> {
    let number = loop {
        let held = files.read()?;
        let noted = held.as_ref().map(|held| serde_json::from_slice::<Files>(&held.value)).transpose()?;
        check_new(path, at, options, noted.as_ref(), nodes, view)?;
        let number = noted.as_ref().map_or(0, Files::next);
        let next = Files::Last { files: number + 1, pool: None, starts: Start::default() };
        // Of what was checked: what has come meanwhile is looked at again.
        match files.swap(held.map_or(0, |held| held.revision), serde_json::to_vec(&next)?)? {
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
        // It has never been started: the first file of any chain has this incarnation.
        let is_new = medium.starts().unwrap_or_default() == 0;
        if id.incarnation / INCARNATIONS + 1 != noted.count() || !is_new {
            return Ok(false);
        }
        check(medium)?;
        let next = Files::Last { files: noted.count(), pool: Some(pool), starts: Start::default() };
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
        let none = Start::default();
        assert_eq!(read(r#"{"files":2,"pool":7}"#), Files::Last { files: 2, pool: Some(7), starts: none });
        let last = Files::Last { files: 2, pool: Some(u64::MAX), starts: Start(3) };
        assert_eq!(read(&serde_json::to_string(&last).unwrap()), last);
        assert!(serde_json::from_str::<Files>("\"x\"").is_err());
        // Its starts have no bits: the last one is the newest, and no other.
        assert!(Start(3).is_newest(Start(3)) && !Start(2).is_newest(Start(3)));
    }

    /// A file and its copy start, and one of the two is noted.
    #[test]
    fn the_newest_file_has_the_last_start() {
        let last = Start::default().next().unwrap().next().unwrap();
        let (noted, killed) = (last.next().unwrap(), last.next().unwrap());
        assert_eq!((last.number(), noted.number()), (2, 3));
        assert!(last.is_newest(last) && killed.is_newest(last), "killed before it was noted");
        assert!(!last.is_newest(noted) && !killed.is_newest(noted) && noted.is_newest(noted));
    }
}
