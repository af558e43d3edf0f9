//! What went wrong, for a person who has to do something about it: `error: what, where` and `next: what to do`.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why a command ends early.
#[derive(Debug)]
pub struct Failure {
    what: String,
    next: String,
    damaged: bool,
}

impl Failure {
    /// Wrong usage, or something that cannot be opened, made or written.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into(), damaged: false }
    }

    /// A file or directory that cannot be used.
    pub fn file(op: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("{}: {op} failed: {error}", path.display()), "check the path and its permissions")
    }

    /// Standard output takes no more.
    pub fn output(error: &io::Error) -> Self {
        let next = "free space where it goes, or send it elsewhere; what the command did stays done";
        Self::new(format!("standard output: write failed: {error}"), next)
    }

    /// An error of the pool at `path`.
    pub fn pool(path: &Path, error: &pmem::Error) -> Self {
        let path = path.display().to_string();
        let message = error.to_string();
        // The messages of pmem end in what to do, and most begin with where.
        let (what, next) = message.rsplit_once("; ").unwrap_or((&message, advice(error)));
        let what = if what.contains(&path) { what.to_owned() } else { format!("{path}: {what}") };
        let next = match error {
            pmem::Error::NeedsRecovery { .. } => format!("cairn check --recover {path}"),
            _ => next.to_owned(),
        };
        Self { what, next, damaged: is_damage(error) }
    }

    /// An error of the heap in the pool at `path`.
    pub fn heap(path: &Path, error: &tx::Error) -> Self {
        match error {
            tx::Error::Pool(error) => Self::pool(path, error),
            other => {
                let message = other.to_string();
                let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see `cairn help`"));
                let damaged = matches!(other, tx::Error::Damaged { .. });
                Self { what: format!("{}: {what}", path.display()), next: next.to_owned(), damaged }
            }
        }
    }

    /// An error of the log in the pool at `path`.
    pub fn log(path: &Path, error: &log::Error) -> Self {
        let file = path.display();
        match error {
            log::Error::Pool(pmem::Error::NeedsRecovery { .. }) => {
                Self::new(format!("{file}: not closed cleanly"), format!("cairn log check --recover {file}"))
            }
            log::Error::Pool(error) => Self::pool(path, error),
            log::Error::Replica { .. } => Self::new(error.to_string(), "see what `cairn log replicas` says"),
            log::Error::InDoubt { .. } => {
                let message = error.to_string();
                let what = message.split_once("; bring").map_or(&*message, |(what, _)| what);
                let next = "bring the replicas up that were not read, and try again; `cairn log promote --accept-doubt` if they will never come back";
                Self::new(format!("{file}: {what}"), next)
            }
            other => {
                let message = other.to_string();
                let parts = message.rsplit_once("; ").or_else(|| message.rsplit_once(": "));
                let (what, next) = parts.unwrap_or((&message, "see `cairn help log`"));
                Self { what: format!("{file}: {what}"), next: next.to_owned(), damaged: is_damage_of_log(other) }
            }
        }
    }

    /// An error of the election, or of etcd.
    pub fn membership(error: &membership::Error) -> Self {
        let message = error.to_string();
        match error {
            membership::Error::Lost { term, said, .. } => {
                let what = format!("leadership of term {term} is over ({said})");
                Self::new(what, "what was acknowledged is safe; run it again to stand for leadership again")
            }
            membership::Error::Unreachable { endpoints, why, .. } if is_of_tls(endpoints, why) => {
                let (what, _) = message.rsplit_once(": ").unwrap_or((&message, ""));
                let next = "see whether etcd takes this program's certificate (--etcd-cert), and its own is of --etcd-ca and names its address; then whether most of its members run";
                Self::new(what, next)
            }
            membership::Error::Argument { .. } => Self::new(message, "see `cairn help log-replica`"),
            _ => {
                let (what, next) = message.rsplit_once(": ").unwrap_or((&message, "see `cairn help log`"));
                Self::new(what, next)
            }
        }
    }

    /// An error of the key-value store in the pool at `path`.
    pub fn kv(path: &Path, error: &kv::Error) -> Self {
        let file = path.display();
        match error {
            kv::Error::Pool(pmem::Error::NeedsRecovery { .. }) => {
                Self::new(format!("{file}: not closed cleanly"), "repeat it with --recover, which recovers the store")
            }
            kv::Error::Pool(pmem::Error::Io { source, path: at, .. })
                if at == path && source.kind() == io::ErrorKind::NotFound =>
            {
                Self::new(
                    format!("{file}: no such file or directory"),
                    "check the path; `cairn kv create` makes a store",
                )
            }
            kv::Error::Pool(error @ pmem::Error::Truncated { found, .. }) if *found >= HEADER => {
                Self { next: repair_of_store(path), ..Self::pool(path, error) }
            }
            kv::Error::Pool(error @ (pmem::Error::Damaged { .. } | pmem::Error::Truncated { .. })) => {
                Self { next: RESTORE.to_owned(), ..Self::pool(path, error) }
            }
            kv::Error::Pool(error) => Self::pool(path, error),
            other => {
                let message = other.to_string();
                let (what, next) = message.split_once("; ").unwrap_or((&message, "see `cairn help kv`"));
                let damaged = is_damage_of_store(other);
                let repair = repair_of_store(path);
                // Nothing else says where records are, so a repair has nothing to go by.
                let next = match other {
                    kv::Error::Damaged { what: "checkpoint" | "table of segments", .. } => RESTORE,
                    kv::Error::Damaged { .. } | kv::Error::Lost { .. } | kv::Error::LostCommits { .. } => &repair,
                    kv::Error::Behind { .. } => SEED,
                    _ => next,
                };
                let what = if what.contains(&file.to_string()) { what.to_owned() } else { format!("{file}: {what}") };
                Self { what, next: next.to_owned(), damaged }
            }
        }
    }

    /// An error of a store that a repair has met, at its copy: it cannot be repaired.
    pub fn no_repair(path: &Path, error: &kv::Error) -> Self {
        let failure = Self::kv(path, error);
        if failure.damaged { Self { next: RESTORE.to_owned(), ..failure } } else { failure }
    }

    /// An error of the array whose first member is at `path`.
    pub fn array(path: &Path, error: &eaw::Error) -> Self {
        match error {
            eaw::Error::Pool(error) => Self::pool(path, error),
            other => {
                let message = other.to_string();
                let (what, next) = message.rsplit_once(": ").unwrap_or((&message, "see `cairn help array`"));
                let file = path.display();
                let what = if what.contains(&file.to_string()) { what.to_owned() } else { format!("{file}: {what}") };
                Self { what, next: next.to_owned(), damaged: matches!(other, eaw::Error::Damaged { .. }) }
            }
        }
    }

    /// The same, because bytes on the medium are corrupt.
    pub fn damaged(self) -> Self {
        Self { damaged: true, ..self }
    }

    /// The same, and what was done before it came to that.
    pub fn after(self, done: &str) -> Self {
        Self { what: format!("{} ({done})", self.what), ..self }
    }

    /// Bytes on the medium are corrupt.
    #[cfg(test)]
    pub fn is_damage(&self) -> bool {
        self.damaged
    }

    /// 1 for damage, else 2.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.damaged { 1 } else { 2 })
    }
}

/// The way to etcd ended as it does when certificates are not accepted. Not all of its ends say so: etcd refuses behind its part of the handshake, and what this end does by then decides which it is.
fn is_of_tls(endpoints: &str, why: &str) -> bool {
    const ENDS: [&str; 9] = [
        "certificate",
        "fatal alert",
        "connection closed",
        "canceled",
        "handshake",
        "tls",
        "broken pipe",
        "connection reset",
        "unexpected end of file",
    ];
    let why = why.to_lowercase();
    endpoints.contains("https://") && ENDS.iter().any(|end| why.contains(end))
}

/// The bytes on media are wrong, as opposed to the request, the file chosen, or the moment. This command asks for no offsets of its own: those that cannot be are from media.
pub fn is_damage(error: &pmem::Error) -> bool {
    use pmem::Error::{BadPointer, Damaged, OutOfBounds, Truncated, Unaligned, Unreadable};
    let is_told = matches!(error, Damaged { .. } | Truncated { .. } | Unreadable { .. });
    is_told || matches!(error, OutOfBounds { .. } | Unaligned { .. } | BadPointer { .. })
}

/// The same of an error of a log.
pub fn is_damage_of_log(error: &log::Error) -> bool {
    use log::Error::{BadSuperline, Lost, Pool, Unrecoverable};
    match error {
        Lost { .. } | Unrecoverable { .. } | BadSuperline { .. } => true,
        Pool(error) => is_damage(error),
        _ => false,
    }
}

/// The same of an error of a store.
pub fn is_damage_of_store(error: &kv::Error) -> bool {
    use kv::Error::{Damaged, Log, Lost, LostCommits, Pool};
    match error {
        Damaged { .. } | Lost { .. } | LostCommits { .. } => true,
        Log(error) => is_damage_of_log(error),
        Pool(error) => is_damage(error),
        _ => false,
    }
}

/// Bytes of a pool's header, both copies: without them a repair knows nothing of the rest.
const HEADER: u64 = 8192;

/// What to do about a store of keys and values that no repair can read.
const RESTORE: &str = "make it anew of a backup, at another path: `cairn kv restore BACKUP PATH`; a repair of this one has nothing to go by";

/// What to do about a store that needs what its log has no more.
const SEED: &str = "on the machine that leads, or another one that has more, stop the server and copy its store with `cairn kv seed`; put the copy in the place of this store, follow with it again, and let the replica join, or name it when you serve";

/// What to do about one that a repair can.
fn repair_of_store(path: &Path) -> String {
    let path = path.display();
    format!(
        "`cairn kv check --dry-run {path}` says what a repair would leave, `cairn kv check --repair {path}` does it; or make it anew of a backup, at another path: `cairn kv restore BACKUP PATH`"
    )
}

fn advice(error: &pmem::Error) -> &'static str {
    use io::ErrorKind::{AlreadyExists, NotFound, OutOfMemory, PermissionDenied};
    match error {
        pmem::Error::Io { source, .. } => match source.kind() {
            NotFound => "check the path; `cairn create` makes a pool",
            PermissionDenied => "check the permissions; pools belong to who made them",
            AlreadyExists => "choose another path, or remove what is there",
            // Addresses, not memory: room for as much as the pool may grow to.
            OutOfMemory => {
                "raise the limit of address space (ulimit -v, RLIMIT_AS): a pool takes room for as much as it may grow to"
            }
            _ => "check the path and the file system",
        },
        pmem::Error::Limit { .. } | pmem::Error::BadName { .. } => "see `cairn help create`",
        _ => "see `cairn help`",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nnext: {}", Tame(&self.what), Tame(&self.next))
    }
}

/// Text that may have names of files or bytes of them in it: no terminal obeys it, and it stays one line.
pub struct Tame<'t>(pub &'t str);

impl fmt::Display for Tame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(char::is_control) {
            let text = part.trim_end_matches(char::is_control);
            f.write_str(text)?;
            part[text.len()..].chars().try_for_each(|control| write!(f, "{}", control.escape_default()))?;
        }
        Ok(())
    }
}

impl From<bench::Error> for Failure {
    fn from(error: bench::Error) -> Self {
        match error {
            bench::Error::Pool(error) => {
                let message = error.to_string();
                let (what, next) = message.rsplit_once("; ").unwrap_or((&message, advice(&error)));
                Self::new(what, next)
            }
            bench::Error::Io { op, path, source } => Self::file(op, &path, &source),
            other => {
                let message = other.to_string();
                let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see `cairn help bench`"));
                Self::new(what, next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_taken_is_what_to_look_for() {
        let next = |why: &str| {
            let (endpoints, why, waited) = ("https://e1:2379".into(), why.into(), std::time::Duration::from_secs(1));
            Failure::membership(&membership::Error::Unreachable { doing: "read", endpoints, waited, why }).next
        };
        assert!(next("transport error: received fatal alert: BadCertificate").contains("--etcd-cert"));
        assert!(next("operation was canceled: connection closed").contains("--etcd-cert"));
        assert!(next("connection error: stream closed because of a broken pipe").contains("--etcd-cert"));
        assert!(next("Connection reset by peer (os error 104)").contains("--etcd-cert"));
        assert!(next("https://e1:2379 did not answer in 1s").starts_with("try again"));
    }

    #[test]
    fn a_store_that_is_behind_its_log_needs_a_seed() {
        let failure = Failure::kv(Path::new("shop.cairn"), &kv::Error::Behind { has: 3, first: 90 });
        assert!(failure.what.starts_with("shop.cairn: the store ends with commit 3"), "{}", failure.what);
        assert!(failure.next.contains("`cairn kv seed`") && failure.next.contains("follow"), "{}", failure.next);
    }

    #[test]
    fn a_lost_lease_is_said_with_what_etcd_said() {
        let said =
            "its lease could not be kept alive in time: etcd at http://e1:2379 refuses (keep alive: permission denied)";
        let why = membership::Why::Expired;
        let failure = Failure::membership(&membership::Error::Lost { term: 7, why, said: said.to_owned() });
        assert_eq!(failure.what, format!("leadership of term 7 is over ({said})"));
        assert!(failure.next.starts_with("what was acknowledged is safe"), "{}", failure.next);
    }
}
