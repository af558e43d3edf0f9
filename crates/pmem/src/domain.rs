//! Persistence domains: what makes a store persistent here, and what it survives.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a pool lives on; decided when it is opened.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).domain(pmem::DomainChoice::File).create(dir.path().join("p"))?;
/// assert_eq!(pool.domain(), pmem::Domain::File);
/// println!("survives {}", pool.domain().survives());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Domain {
    /// Persistent memory (fsdax with `MAP_SYNC`, or devdax): flush lines, then fence. Survives power loss.
    Pmem,
    /// Persistent memory whose caches are in the power-fail domain: a fence is enough. Survives power loss.
    PmemEadr,
    /// Ordinary memory (tmpfs, hugetlbfs) treated as if it were persistent. Survives the process, not power loss.
    Emulated,
    /// A file on a disk: one `fdatasync`, shared by all threads that wait. Survives what the file system promises.
    File,
    /// A crash explorer's memory.
    Simulated,
}

impl Domain {
    /// What data survives here, in words.
    pub fn survives(self) -> &'static str {
        match self {
            Self::Pmem | Self::PmemEadr => "power loss",
            Self::Emulated => "the end of the process, not power loss",
            Self::File => "power loss, as far as the file system and the device keep their promise of fdatasync",
            Self::Simulated => "what the model chooses",
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pmem => "pmem",
            Self::PmemEadr => "pmem-eadr",
            Self::Emulated => "emulated",
            Self::File => "file",
            Self::Simulated => "simulated",
        })
    }
}

/// Which domain to use for a path.
///
/// ```
/// use pmem::DomainChoice;
/// assert_eq!("emulated".parse(), Ok(DomainChoice::Emulated));
/// assert_eq!(DomainChoice::default(), DomainChoice::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainChoice {
    /// Find out: persistent memory if the mapping says so, emulated on tmpfs and hugetlbfs, else a file.
    #[default]
    Auto,
    /// Insist on persistent memory.
    Pmem,
    /// Treat the file as memory, whatever it is on: fast, and lost with the power.
    Emulated,
    /// Sync like a file, whatever it is on.
    File,
}

impl FromStr for DomainChoice {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "pmem" => Ok(Self::Pmem),
            "emulated" => Ok(Self::Emulated),
            "file" => Ok(Self::File),
            _ => Err(format!("{s:?} is no domain: auto, pmem, emulated or file")),
        }
    }
}

/// Slower media, imitated on an emulated pool.
///
/// ```
/// let slow: pmem::Latency = "drain=300,line=60".parse()?;
/// assert_eq!((slow.drain_ns, slow.line_ns, slow.bandwidth_mb_s), (300, 60, 0));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Extra nanoseconds per drain.
    pub drain_ns: u64,
    /// Extra nanoseconds per flushed or streamed line.
    pub line_ns: u64,
    /// Upper bound of the write bandwidth per thread in MB/s (10⁶ bytes); 0 is unlimited.
    pub bandwidth_mb_s: u64,
}

impl Latency {
    /// Extra nanoseconds for `lines` lines on their way.
    pub(crate) fn lines_ns(&self, lines: u64) -> u64 {
        let bandwidth = (lines * crate::LINE * 1000).checked_div(self.bandwidth_mb_s).unwrap_or(0);
        (lines * self.line_ns).max(bandwidth)
    }
}

impl FromStr for Latency {
    type Err = String;
    /// `drain=300,line=60,bandwidth=2000`: nanoseconds, nanoseconds, MB/s; every part may be left out.
    fn from_str(s: &str) -> Result<Self, String> {
        let mut latency = Self::default();
        for part in s.split(',').filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?}: expected name=value"))?;
            let value = value.parse().map_err(|e| format!("{part:?}: {e}"))?;
            match name {
                "drain" => latency.drain_ns = value,
                "line" => latency.line_ns = value,
                "bandwidth" => latency.bandwidth_mb_s = value,
                _ => return Err(format!("{name:?}: expected drain, line or bandwidth")),
            }
        }
        Ok(latency)
    }
}

/// Whether the caches above the device numbered `major:minor` are in its power-fail domain, says sysfs: the entry
/// `persistence_domain` of the region the device belongs to is `cpu_cache`. Anything else, `memory_controller` of CXL
/// memory with GPF too, needs flushes.
pub(crate) fn is_eadr(sysfs: &Path, kind: &str, major: u32, minor: u32) -> bool {
    let device: PathBuf = sysfs.join("dev").join(kind).join(format!("{major}:{minor}"));
    let Ok(device) = fs::canonicalize(device) else { return false };
    device
        .ancestors()
        .find_map(|dir| fs::read_to_string(dir.join("persistence_domain")).ok())
        .is_some_and(|domain| domain.trim() == "cpu_cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_parsed() {
        let l: Latency = "drain=300,line=60".parse().expect("valid");
        assert_eq!(l, Latency { drain_ns: 300, line_ns: 60, bandwidth_mb_s: 0 });
        assert_eq!(l.lines_ns(2), 120);
        let l: Latency = "bandwidth=64".parse().expect("valid");
        assert_eq!(l.lines_ns(1), 1000);
        assert!("drain".parse::<Latency>().is_err());
        assert!("x=1".parse::<Latency>().is_err());
    }

    #[test]
    fn eadr_is_read_from_the_region_of_the_device() {
        let sysfs = tempfile::tempdir().expect("temporary directory");
        let region = sysfs.path().join("devices/ndbus0/region0");
        let device = region.join("namespace0.0/block/pmem0");
        fs::create_dir_all(&device).expect("mkdir");
        fs::create_dir_all(sysfs.path().join("dev/block")).expect("mkdir");
        std::os::unix::fs::symlink(&device, sysfs.path().join("dev/block/259:0")).expect("symlink");
        for (text, expected) in [("cpu_cache\n", true), ("memory_controller\n", false), ("unknown\n", false)] {
            fs::write(region.join("persistence_domain"), text).expect("write");
            assert_eq!(is_eadr(sysfs.path(), "block", 259, 0), expected, "{text}");
        }
        fs::remove_file(region.join("persistence_domain")).expect("remove");
        assert!(!is_eadr(sysfs.path(), "block", 259, 0));
        assert!(!is_eadr(sysfs.path(), "block", 1, 1));
    }
}
