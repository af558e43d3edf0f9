//! The suite that every engine must pass.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use conformance::{Concurrency, Subject};
use heap::{Heap, Intents, Options, Policy};

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

conformance::engine!(none, on(Policy::None));
conformance::engine!(undo, on(Policy::Undo));
conformance::engine!(inplace, on(Policy::InPlace));
conformance::engine!(inplace_partial, on(Policy::InPlacePartial));
conformance::engine!(eaw, on(Policy::Eaw));
conformance::engine!(inplace_intents, OnHeap { intents: Intents::Objects, ..on(Policy::InPlace) });
conformance::parts!(eaw_parts, on(Policy::Eaw));
