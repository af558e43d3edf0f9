//! Every operation beside every other: workloads that are drawn, not written. Two or three actors of one thread take turns, each in the middle of a transaction or a
//! reservation of its own, on a few objects that they share; between them come the operations on all of it. What they draw from is narrowed for each workload (Groce et
//! al., *Swarm Testing*, ISSTA 2012), so that few things meet often. The oracle knows the contents to the byte: what is not about to commit is never in doubt.

mod heap;
mod heap_check;
mod kv;
mod kv_check;
mod kv_values;
mod log;

pub use heap::{Act as HeapAct, EveryHeap, Kind as HeapKind, Op as HeapOp};
pub use kv::{Act as KvAct, EveryKv, Kind as KvKind, Op as KvOp};
pub use log::{Act as LogAct, EveryLog, Kind as LogKind, Op as LogEveryOp};

use crash::Rng;

/// Those that take turns.
const ACTORS: usize = 3;

/// Some of these: all, about half, or about a quarter.
pub(crate) fn some<T: Copy>(rng: &mut Rng, of: &[T]) -> Vec<T> {
    let one_in = [1, 2, 4][rng.index(3)];
    let some: Vec<T> = of.iter().copied().filter(|_| rng.chance(1, one_in)).collect();
    if some.is_empty() { of.to_vec() } else { some }
}
