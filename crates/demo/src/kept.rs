//! What keeps the objects of a pool: a heap with a policy, or objects with versions.

use std::path::Path;

use heap::{Heap, Policy};
use mvcc::Mvcc;
use pmem::{HeapUsage, Pool};
use tx::Engine;

use crate::input::Input;
use crate::kind::Kind;

/// Transactions that recovery finished, and took back.
pub(crate) struct Recovered {
    pub(crate) finished: u64,
    pub(crate) undone: u64,
}

/// An engine in a pool of its own.
pub(crate) trait Kept: Engine + Sized + Sync {
    fn create(path: &Path, kind: Kind, input: &Input, threads: usize) -> tx::Result<Self>;

    fn open(path: &Path, kind: Kind, input: &Input, threads: usize) -> tx::Result<Self>;

    fn pool(&self) -> &Pool;

    /// When no transaction runs.
    fn usage(&self) -> tx::Result<HeapUsage>;

    fn recovered(&self) -> Recovered;

    fn close(self) -> tx::Result<()>;
}

/// Space for keys, blocks' edges and directories, beside values.
const PER_KEY: u64 = 160;
const SLACK: u64 = 8 << 20;

/// Bytes of objects to begin with.
fn heap_bytes(input: &Input) -> u64 {
    let used = input.value_bytes() + input.keys() * PER_KEY;
    used + used / 4 + SLACK
}

/// Bytes of the pool's file, about.
pub(crate) fn pool_bytes(input: &Input, kind: Kind) -> u64 {
    let copies = if kind == Kind::Heap(Policy::InPlace) { 2 } else { 1 };
    heap_bytes(input) * copies + SLACK
}

fn slots(threads: usize) -> usize {
    (2 * threads).max(8)
}

fn heap_options(kind: Kind, input: &Input, threads: usize) -> heap::Options {
    let options = heap::Options::new().bytes(heap_bytes(input)).slots(slots(threads));
    match kind {
        Kind::Heap(policy) => options.policy(policy),
        Kind::Mvcc => options,
    }
}

fn mvcc_options(_: Kind, input: &Input, threads: usize) -> mvcc::Options {
    mvcc::Options::new().bytes(heap_bytes(input)).slots(slots(threads))
}

macro_rules! kept {
    ($engine:ty, $options:ident, $finished:ident, $undone:ident) => {
        impl Kept for $engine {
            fn create(path: &Path, kind: Kind, input: &Input, threads: usize) -> tx::Result<Self> {
                Self::create(path, &$options(kind, input, threads))
            }

            fn open(path: &Path, kind: Kind, input: &Input, threads: usize) -> tx::Result<Self> {
                Self::open(path, &$options(kind, input, threads))
            }

            fn pool(&self) -> &Pool {
                self.pool()
            }

            fn usage(&self) -> tx::Result<HeapUsage> {
                self.live_blocks(|_, _| {})
            }

            fn recovered(&self) -> Recovered {
                let found = self.recovery();
                Recovered { finished: found.$finished, undone: found.$undone }
            }

            fn close(self) -> tx::Result<()> {
                self.close()
            }
        }
    };
}

kept!(Heap, heap_options, finished, undone);
kept!(Mvcc, mvcc_options, replayed, void); // what had not arrived is nowhere but in a log
