//! Where pools go.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Error, Result};

/// Ordinary memory with a file system on it.
const MEMORY: &str = "/dev/shm";

/// A directory of its own in `wanted`, else in memory if that has room for `bytes`, else where temporary files go.
pub(crate) fn make(wanted: Option<&Path>, bytes: u64) -> Result<TempDir> {
    let parent = match wanted {
        Some(dir) => dir.to_owned(),
        None => choose(Path::new(MEMORY), bytes),
    };
    tempfile::Builder::new().prefix("cairn-demo-").tempdir_in(&parent).map_err(Error::io("make a directory", &parent))
}

fn choose(memory: &Path, bytes: u64) -> PathBuf {
    let room = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if room >= bytes && rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// A directory on a disk, as a rule.
pub(crate) fn disk() -> PathBuf {
    let var = Path::new("/var/tmp");
    if var.is_dir() { var.to_owned() } else { std::env::temp_dir() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_without_room_is_not_chosen() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(choose(dir.path(), 1), dir.path());
        assert_eq!(choose(dir.path(), u64::MAX), std::env::temp_dir());
        assert_eq!(choose(Path::new("/nonexistent"), 1), std::env::temp_dir());
    }
}
