//! The suite that every engine must pass.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use heap::{Heap, Intents, Options, Policy};
use tx::conformance::{Concurrency, Subject};

struct OnHeap {
    policy: Policy,
    intents: Intents,
    dir: tempfile::TempDir,
    n: AtomicUsize,
}

fn on(policy: Policy) -> OnHeap {
    OnHeap { policy, intents: Intents::Zones, dir: tempfile::tempdir_in("/dev/shm").unwrap(), n: AtomicUsize::new(0) }
}

impl OnHeap {
    fn make(&self, options: Options) -> Heap {
        let path = self.dir.path().join(format!("h{}", self.n.fetch_add(1, SeqCst)));
        let heap = Heap::create(&path, &options.policy(self.policy).intents(self.intents)).unwrap();
        std::fs::remove_file(path).unwrap();
        heap
    }
}

impl Subject for OnHeap {
    type Engine = Heap;

    fn fresh(&self) -> Heap {
        self.make(Options::new().bytes(64 << 20))
    }

    fn fresh_scheduled(&self) -> Heap {
        self.make(sched())
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency::Locks
    }

    fn atomic(&self) -> bool {
        self.policy != Policy::None
    }

    fn schedules(&self) -> usize {
        200
    }
}

fn sched() -> Options {
    Options::new().bytes(1 << 20).slots(4).log_bytes(1 << 16).zone_bytes(1 << 16).coordinator(false)
}

tx::conformance!(none, on(Policy::None));
tx::conformance!(undo, on(Policy::Undo));
tx::conformance!(inplace, on(Policy::InPlace));
tx::conformance!(inplace_partial, on(Policy::InPlacePartial));
tx::conformance!(eaw, on(Policy::Eaw));
tx::conformance!(inplace_intents, OnHeap { intents: Intents::Objects, ..on(Policy::InPlace) });
tx::conformance_of_parts!(eaw_parts, on(Policy::Eaw));
