//! The suite that every engine must pass, at the head of a chain of one.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use chain::{Medium, Node, ReplicaId, Sizes};
use conformance::{Concurrency, Subject};

struct Alone {
    dir: tempfile::TempDir,
    n: AtomicUsize,
}

impl Alone {
    fn make(&self, sizes: Sizes) -> Node {
        let path = self.dir.path().join(format!("r{}", self.n.fetch_add(1, SeqCst)));
        Medium::create(&path, ReplicaId { machine: 1, incarnation: 0 }, true, sizes).unwrap();
        let (medium, found) = Medium::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Node::alone(medium, found).unwrap()
    }
}

impl Subject for Alone {
    type Engine = Node;

    fn fresh(&self) -> Node {
        self.make(Sizes { capacity: 36 << 20, queue: 26 << 20 })
    }

    fn fresh_scheduled(&self) -> Node {
        self.make(Sizes { capacity: 64 << 10, queue: 64 << 10 })
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency::Locks
    }

    fn schedules(&self) -> usize {
        30
    }
}

conformance::engine!(chain_of_one, Alone { dir: tempfile::tempdir_in("/dev/shm").unwrap(), n: AtomicUsize::new(0) });
