//! A file on its way to a name.
//!
//! Until it is whole it has no name at all (`O_TMPFILE`), so that a process that is killed leaves nothing. Where the file system or a missing `/proc` does not allow that, it
//! has a hidden name beside its later one, and a killed process leaves that file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use crate::error::Result;
use crate::file::io_error;

/// A new file that gets its name when it is whole; dropped before that, it is gone.
#[derive(Debug)]
pub struct Draft {
    pub(crate) file: File,
    /// Opens it.
    at: PathBuf,
    path: PathBuf,
    /// Whether `at` is a name in the file system.
    hidden: bool,
}

impl Draft {
    /// For a file that will be at `path`, where nothing may be. Mode 0600.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): `AlreadyExists` if something is at `path`; `IsADirectory` if it ends in a slash.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io_error("create", path)(io::ErrorKind::IsADirectory.into()));
        }
        if path.symlink_metadata().is_ok() {
            return Err(io_error("create", path)(io::ErrorKind::AlreadyExists.into()));
        }
        Self::without_name(path).map_or_else(|| Self::with_hidden_name(path), Ok)
    }

    fn without_name(path: &Path) -> Option<Self> {
        let flags = OFlags::TMPFILE.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).mode(0o600).open(parent(path)).ok()?;
        let at = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        at.metadata().ok()?; // its name comes by this way
        Some(Self { file, at, path: path.to_owned(), hidden: false })
    }

    fn with_hidden_name(path: &Path) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".making-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)));
        let at = path.with_file_name(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&at);
        let file = match file {
            // Of a killed process with the same number, which is this one's now: it is no longer used.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(&at)
                .and_then(|()| File::options().read(true).write(true).create_new(true).mode(0o600).open(&at)),
            other => other,
        };
        let file = file.map_err(io_error("create", path))?;
        Ok(Self { file, at, path: path.to_owned(), hidden: true })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that opens it in this process, as long as it is a draft.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The path that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file and gives it its name, unless something has that by now; the name is durable, too.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), [`Error::Sync`](crate::Error::Sync).
    pub fn publish(mut self) -> Result<()> {
        self.file.sync_all().map_err(|source| crate::Error::Sync { source })?;
        self.name().map_err(|error| io_error("give its name to", &self.path)(error.into()))?;
        self.hidden = false;
        File::open(parent(&self.path)).and_then(|directory| directory.sync_all()).map_err(|error| {
            let _ = fs::remove_file(&self.path); // no process is to take it for one that lasts
            io_error("sync the directory of", &self.path)(error)
        })
    }

    fn name(&self) -> rustix::io::Result<()> {
        match self.hidden {
            true => match renameat_with(CWD, &self.at, CWD, &self.path, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.name_by_link(),
                other => other,
            },
            false => linkat(CWD, &self.at, CWD, &self.path, AtFlags::SYMLINK_FOLLOW),
        }
    }

    /// For file systems whose renames cannot refuse to replace, NFS for one: a second name, which fails if something has it, and then only that.
    fn name_by_link(&self) -> rustix::io::Result<()> {
        linkat(CWD, &self.at, CWD, &self.path, AtFlags::empty())?;
        let _ = fs::remove_file(&self.at); // it has its name
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.hidden {
            let _ = fs::remove_file(&self.at); // the error that matters was returned
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn drafts(path: &Path) -> Vec<Draft> {
        let mut all = vec![Draft::with_hidden_name(path).unwrap()];
        all.extend(Draft::without_name(path)); // not everywhere
        all
    }

    #[test]
    fn a_draft_gets_its_name_when_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for draft in drafts(&path) {
            draft.file().write_all(b"whole").unwrap();
            assert_eq!(fs::read(draft.at()).unwrap(), b"whole");
            assert!(!path.exists());
            draft.publish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole");
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_draft_that_is_dropped_or_comes_too_late_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(drafts(&path));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        let late = drafts(&path);
        fs::write(&path, b"first").unwrap();
        for draft in late {
            draft.publish().unwrap_err();
        }
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert!(Draft::new(&path).is_err());
    }

    #[test]
    fn a_draft_gets_its_name_by_a_link_only_where_nothing_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let [first, second] = [(); 2].map(|()| Draft::with_hidden_name(&path).unwrap());
        first.file().write_all(b"first").unwrap();
        first.name_by_link().unwrap();
        second.name_by_link().unwrap_err();
        drop((first, second));
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn a_name_that_ends_in_a_slash_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = Draft::new(dir.path().join("a/")).unwrap_err();
        assert!(error.to_string().contains("a/"), "{error}");
    }

    /// As a process that was killed would leave it: its descriptors are closed, and nothing else is done.
    #[test]
    fn a_draft_without_a_name_is_gone_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut draft) = Draft::without_name(&dir.path().join("a")) else { return };
        draft.file.write_all(b"half").unwrap();
        draft.file = File::open("/dev/null").unwrap(); // closes it
        std::mem::forget(draft);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
}
