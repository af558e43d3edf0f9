//! Objects, their allocator and its intents: every slot of the root table shows its last acknowledged object or the one being published,
//! with all its contents, and the allocator's bitmap is exactly what is reachable: no leak, nothing handed out twice. After recovery the
//! program goes on publishing, so that what a crash left in the log meets new records.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use pmem::{Action, HeapOptions, Objects, ObjectsOptions, Options, PPtr, Persist, Pool, Session};

const SLOTS: usize = 6;

/// Allocations, frees and reallocations in a table of slots; with several threads each has slots of its own and they share the heap.
pub struct ObjectTable {
    threads: usize,
}

impl ObjectTable {
    /// A workload for this many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.clamp(1, SLOTS) }
    }
}

/// The root object.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Table {
    slots: [PPtr<Object>; SLOTS],
    /// Set by the check itself, after it has looked.
    probe: u64,
}

/// Start of every object in the table; filled up to `len` bytes with a pattern of `number`.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Object {
    number: u64,
    len: u64,
}

/// One operation on a slot.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Put a new object of this many bytes into the slot, freeing the old one if there is: alloc, or realloc.
    Put(usize, u64),
    /// Empty the slot.
    Free(usize),
    /// Reserve and give up.
    Cancel(u64),
    /// Drop everything and open again; with one thread only.
    Restart,
}

/// Slot, and the number of the object in it; 0 is none.
type Effect = (usize, u64);

/// The open pool and objects.
pub struct Live {
    sim: Arc<Sim>,
    open: Mutex<Option<Arc<(Objects, Pool)>>>,
    next: std::sync::atomic::AtomicU64,
}

fn open(sim: &Arc<Sim>) -> pmem::Result<(Objects, Pool)> {
    let pool = Options::new().open_on(sim.clone())?;
    Ok((Objects::open(&pool)?, pool))
}

fn fill(bytes: &mut [u8], number: u64) {
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (number as usize * 13 + i) as u8;
    }
}

fn table(session: &Session<'_>) -> pmem::Result<(PPtr<Table>, Table)> {
    let root = session.root::<Table>()?;
    Ok((root, *session.get(root)?))
}

fn slot(root: PPtr<Table>, slot: usize) -> PPtr<u64> {
    PPtr::from_raw(root.raw() + slot as u64 * 8)
}

impl Scenario for ObjectTable {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u64>;
    type Live = Live;

    fn name(&self) -> &str {
        if self.threads == 1 { "objects" } else { "objects-2" }
    }

    fn capacity(&self) -> u64 {
        64 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(8 << 10).create_on(sim.clone())?;
        let heap = HeapOptions::chunk_bytes(4096)?;
        let options = ObjectsOptions { heap_bytes: heap.region_bytes(3), log_bytes: 1 << 10, heap };
        let objects = Objects::create(&pool, options)?;
        let root = objects.reserve_value(&Table { slots: [PPtr::NULL; SLOTS], probe: 0 })?;
        let ptr = root.ptr::<Table>();
        objects.lock().publish(&mut [Action::Alloc(root), Action::root(ptr)])?;
        objects.close()?;
        pool.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        Ok(Live { sim: sim.clone(), open: Mutex::new(Some(Arc::new(open(sim)?))), next: 1.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let mut ops = Vec::new();
        for _ in 0..14 {
            let thread = rng.index(self.threads);
            let own = SLOTS / self.threads;
            let slot = thread * own + rng.index(own);
            let len = 16 + [0, 8, 24, 112, 500, 1500, 5000][rng.index(7)];
            let op = match rng.below(10) {
                0..=5 => Op::Put(slot, len),
                6 | 7 => Op::Free(slot),
                8 => Op::Cancel(len),
                _ if self.threads == 1 => Op::Restart,
                _ => Op::Free(slot),
            };
            ops.push((thread, op));
        }
        ops
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if let Op::Restart = op {
            let mut guard = live.open.lock().map_err(|e| e.to_string())?;
            *guard = None;
            *guard = Some(Arc::new(open(&live.sim)?));
            return Ok(());
        }
        let Some(open) = live.open.lock().map_err(|e| e.to_string())?.clone() else { return Err("closed".into()) };
        let objects = &open.0;
        match *op {
            Op::Put(at, len) => {
                let number = live.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut reserved = match objects.reserve(len, 8) {
                    Err(pmem::Error::NoSpace { .. } | pmem::Error::Reserve { .. } | pmem::Error::HeapFull { .. }) => {
                        return Ok(());
                    }
                    other => other?,
                };
                let new = reserved.ptr::<Object>();
                let bytes = reserved.bytes_mut()?;
                let (header, rest) = bytes.split_at_mut(size_of::<Object>());
                header.copy_from_slice(pmem::bytes_of(&Object { number, len }));
                fill(rest, number);
                let mut session = objects.lock();
                let (root, table) = table(&session)?;
                let old = table.slots[at];
                let mut actions = vec![Action::Alloc(reserved), Action::Set(slot(root, at), new.raw())];
                if !old.is_null() {
                    actions.push(Action::Free(old.cast()));
                }
                let ticket = ack.begin((at, number));
                session.publish(&mut actions)?;
                ack.commit(ticket);
            }
            Op::Free(at) => {
                let mut session = objects.lock();
                let (root, table) = table(&session)?;
                if !table.slots[at].is_null() {
                    let ticket = ack.begin((at, 0));
                    session.publish(&mut [Action::Free(table.slots[at].cast()), Action::Set(slot(root, at), 0)])?;
                    ack.commit(ticket);
                }
            }
            Op::Cancel(len) => {
                if let Ok(mut reserved) = objects.reserve(len, 8) {
                    reserved.bytes_mut()?.fill(0xee);
                }
            }
            Op::Restart => {}
        }
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let open = live.open.into_inner().map_err(|e| e.to_string())?;
        if let Some(open) = open.and_then(Arc::into_inner) {
            open.0.close()?;
            open.1.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        let (objects, _pool) = open(sim).map_err(Violation::detected)?;
        let session = objects.lock();
        let (root, table) = table(&session).map_err(Violation::detected)?;
        let mut expected = [0; SLOTS];
        for &(at, number) in &history.acknowledged {
            expected[at] = number;
        }
        let mut reachable = vec![(root.offset(), size_of::<Table>() as u64)];
        let mut state = Vec::new();
        for (at, &ptr) in table.slots.iter().enumerate() {
            let number = if ptr.is_null() {
                0
            } else {
                let object = *session.get(ptr).map_err(Violation::detected)?;
                let bytes = session.bytes(ptr.cast(), object.len).map_err(Violation::detected)?;
                let Some(filled) = bytes.len().checked_sub(size_of::<Object>()) else {
                    return Err(Violation::new(format!("object in slot {at} says it has {} bytes", object.len)));
                };
                let mut pattern = vec![0; filled];
                fill(&mut pattern, object.number);
                if bytes[size_of::<Object>()..] != pattern[..] {
                    return Err(Violation::new(format!("object {} in slot {at} has wrong contents", object.number)));
                }
                reachable.push((ptr.offset(), object.len));
                object.number
            };
            if number != expected[at] && !history.in_doubt.contains(&(at, number)) {
                let (wanted, doubt) = (expected[at], &history.in_doubt);
                let wrong = format!("slot {at} holds {number}, acknowledged {wanted}, in doubt {doubt:?}");
                // The last publication and a torn one look alike; recovery must then say so.
                return Err(match objects.tail() {
                    pmem::Tail::InDoubt { .. } => Violation::detected(wrong),
                    pmem::Tail::Clean => Violation::new(wrong),
                });
            }
            state.push(number);
        }
        drop(session);
        reachable.sort_unstable();
        let mut live = Vec::new();
        objects
            .heap()
            .live_blocks(|offset, len| {
                live.push((offset, len));
                Ok(())
            })
            .map_err(Violation::detected)?;
        live.sort_unstable();
        if live.windows(2).any(|w| w[0].0 + w[0].1 > w[1].0) {
            return Err(Violation::new(format!("blocks overlap: {live:?}")));
        }
        let same = live.len() == reachable.len()
            && live.iter().zip(&reachable).all(|(block, object)| block.0 == object.0 && block.1 >= object.1);
        if !same {
            return Err(Violation::new(format!("allocated {live:?}, reachable {reachable:?}")));
        }
        let digest = state.iter().fold(7u64, |h, n| h.wrapping_mul(0x1_0000_01b3) ^ n) >> 1;
        let _witness = Witness::of(digest)?;
        let mut session = objects.lock();
        session.publish(&mut [Action::Set(slot(root, SLOTS), table.probe + 1)]).map_err(Violation::detected)?;
        Ok(state)
    }
}
