//! The suite that every engine must pass.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use conformance::{Concurrency, Subject};
use mvcc::{Mvcc, Options};

struct OnMvcc {
    dir: tempfile::TempDir,
    n: AtomicUsize,
}

fn subject() -> OnMvcc {
    OnMvcc { dir: tempfile::tempdir_in("/dev/shm").unwrap(), n: AtomicUsize::new(0) }
}

impl OnMvcc {
    fn make(&self, options: &Options) -> Mvcc {
        let path = self.dir.path().join(format!("m{}", self.n.fetch_add(1, SeqCst)));
        let store = Mvcc::create(&path, options).unwrap();
        std::fs::remove_file(path).unwrap();
        store
    }
}

impl Subject for OnMvcc {
    type Engine = Mvcc;

    fn fresh(&self) -> Mvcc {
        self.make(&Options::new().bytes(64 << 20))
    }

    fn fresh_scheduled(&self) -> Mvcc {
        self.make(&Options::new().bytes(1 << 20).slots(4).log_bytes(1 << 16).background(false))
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency::Versions
    }

    fn schedules(&self) -> usize {
        200
    }
}

conformance::engine!(versions, subject());

#[test]
fn savepoints() {
    conformance::run_savepoints(subject());
}
