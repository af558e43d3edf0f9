//! Pools of persistent memory: what every engine of Cairn stands on, and enough for programs that need no engine.
//!
//! Data lives in a mapped file (fsdax, devdax, tmpfs, or a file on any disk), is read through ordinary references, and
//! survives a crash in a state that is known: what was flushed and drained is there, everything else may be, word by word.
//!
//! # The way of a byte
//!
//! | module | what it does with it |
//! |---|---|
//! | `create`, `open`, `file`, `pool`, `header` | a file becomes a [`Pool`]: locked, checked, mapped |
//! | `directory` | its regions: added, claimed, grown, cut |
//! | `area` | a region's bytes have one owner, an [`Area`]: read through `&`, stored through `&mut` |
//! | `persist`, `ptr` | what may be stored: [`Persist`] types, and [`PPtr`] for links |
//! | `mapping`, `length`, `flush`, `cpu` | flush starts a line's way to the media, drain waits for it; the [`Domain`] says how |
//! | `sync_file` | in the file domain one sync serves all threads that wait |
//! | `checksummed`, `cell`, `two_slot`, `ring` | records that prove they are whole, a cell that is replaced in one piece, a log |
//! | `alloc` | blocks, reserved in DRAM and made persistent by intents in a caller's commit record |
//! | `objects` | all of it together: allocate, fill and publish with one barrier |
//! | `image`, `cut`, `written` | a copy of the file is made while it is written |
//! | `observe` | another process looks on, through the file, while it is written |
//! | `sim`, `scheduler`, `sync` | where a crash explorer and its scheduler plug in, and locks that it sees |
//!
//! From the media up:
//!
//! ```text
//!    objects.rs  objects/                              publications: allocate, free, set, root; one barrier
//!       |        \
//!    alloc/      ring.rs  two_slot.rs  checksummed.rs  records that prove they are whole
//!       |           |        |            |
//!    directory.rs   |        |            |            regions
//!          \        |        |            |
//!        area.rs ---+--------+------------+            bytes with one owner
//!           |
//!    create.rs  open.rs  pool.rs  image.rs             files; a copy of one
//!          \     |
//!        header.rs  cell.rs                            what a pool is, kept in a cell
//!           |        |
//!    mapping.rs  length.rs  flush.rs                   the one checked way to the media: access; length; flush and drain
//!      /    |       |       \
//! cpu.rs  file.rs  sync_file.rs  sim.rs  stats.rs      instructions; the file and its lock; shared fdatasync; the explorer's seam; counters
//! ```
//!
//! # Example
//!
//! ```
//! # fn main() -> pmem::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("counter.cairn");
//! use pmem::{Options, TwoSlot};
//!
//! let pool = Options::new().size(1 << 20).layout("counter").create(&path)?;
//! let area = pool.add_region("visits", TwoSlot::<u64>::SIZE)?.into_area()?;
//! let mut visits = TwoSlot::create(area, &0u64)?;
//! visits.update(&41)?; // one barrier; then it survives
//! # drop(visits);
//! # drop(pool);
//!
//! let pool = Options::new().layout("counter").open(&path)?;
//! let (mut visits, _) = TwoSlot::<u64>::open(pool.region("visits")?.into_area()?)?;
//! visits.update(&(visits.get() + 1))?;
//! assert_eq!(visits.get(), 42);
//! # Ok(()) }
//! ```
//!
//! The bytes are described in `docs/format.md`, what a crash may leave in `docs/persistence-model.md`, and why each barrier is there in
//! `docs/barriers.md`.
//!
//! # One store
//!
//! `area.put(0, &7u64)?; area.persist(0, 8)?;`
//!
//! 1. `area`: `put` checks the bounds against the area, whose one owner `&mut self` is.
//! 2. `mapping`: `access` checks them against the mapped length, refuses a forked child and a
//!    read-only pool, and tells a simulated medium. The store itself is an ordinary one.
//! 3. `flush`: `flush` counts the lines, then does what the domain asks: `cpu` issues `clwb` for
//!    each line; nothing for a file; a call for a simulated medium, with the caller's source line.
//! 4. `drain`: `sfence`; or `sync_file`, where one `fdatasync` serves all threads that wait; or the
//!    simulated medium. It returns `Persisted`, the proof that a ring takes.
//!
//! # One publication
//!
//! `session.publish(&mut [Action::Alloc(node), Action::root(ptr)])`
//!
//! 1. `objects`: `reserve` asks `alloc/allocator` for a block. It comes from the thread's cache; a
//!    cache that is empty takes a word of free bits from its span (`chunk`), or a span from the
//!    shared lists (`central`), which look at further chunks of the media only then (`media`). All
//!    in DRAM: nothing persistent changes.
//! 2. The caller fills the block: `Reserved` is its only owner.
//! 3. `Session::prepare` checks every action, encodes it, and takes freed blocks out of use; an
//!    error up to here changes nothing.
//! 4. `Session::append` (`objects/session`) flushes the new blocks and appends one record to the
//!    ring (`ring`), which also checksums the blocks' contents. No order between the two.
//! 5. `publish` flushes what the *previous* publication changed in place, then drains: **the one
//!    barrier**. Now this record is durable, and the previous one can be retired.
//! 6. `carry_out` does in place what the record says: table word and bitmap, words, root. Their
//!    lines wait in a `FlushSet` for the next publication.
//! 7. Freed blocks are released.
//!
//! # One recovery
//!
//! `Options::open`, `Objects::open`, after a power cut
//!
//! 1. `open`: lock the file; if it was not closed cleanly, write out and forget what the page
//!    cache holds of it; say clearly what a foreign file is; map.
//! 2. `cell` `RawCell::load`: the newer whole header slot wins; `header` `validate` checks
//!    what a checksum cannot prove.
//! 3. `pool` `Pool::start`: generation + 1, clean flag away, in both slots. Then a file longer
//!    than the header says is cut.
//! 4. `Ring::open`: `ring_recovery` `recover` reads from the mark to the first record that is not
//!    whole, and decides by a table whether that is an end, a torn tail, or a loss. `persist_end`
//!    makes what was seen persistent and a torn tail unable to come back.
//! 5. `objects` `recover`: each record is carried out again, in order; twice is harmless. The last
//!    one only counts if the blocks it checksums had all arrived. They are drained first, then what
//!    was carried out, then the ring is retired.
//! 6. `Allocator::open` reads nothing. A chunk is looked at when a pointer into it is resolved, or
//!    when free blocks run out.

extern crate self as pmem;

mod alloc;
mod area;
mod background;
mod cell;
mod checksum;
mod checksummed;
mod cpu;
mod crc;
mod create;
mod cut;
mod device;
mod directory;
mod domain;
mod draft;
mod engine;
mod error;
pub mod failpoints;
mod file;
mod flush;
mod fork;
mod hash;
mod header;
mod holes;
mod image;
mod length;
mod mapping;
mod objects;
mod observe;
mod open;
mod park;
mod persist;
mod pool;
mod ptr;
mod rename;
mod ring;
mod ring_mark;
mod ring_record;
mod ring_recovery;
mod scheduler;
pub mod sim;
mod stats;
pub mod sync;
mod sync_file;
mod threads;
mod two_slot;
mod watched;
mod whole;
mod written;

pub use alloc::{Allocator, Block, Found, HeapOptions, HeapUsage, Intent};
pub use area::{Area, Region};
pub use background::Background;
pub use cell::SlotState;
pub use checksum::{ChecksumKey, Sum};
pub use checksummed::CHECKSUMMED_HEADER;
pub use cpu::{FlushWith, LINE, WORD, flush_with, lines, prefetch, prefetch_to_write};
pub use cut::{Closed, Door, Waits};
pub use domain::{Domain, DomainChoice, Latency};
pub use draft::Draft;
pub use engine::thread_number;
pub use error::{Error, ErrorKind, Result, SpaceFor};
pub use flush::{FlushSet, Moment, Persisted};
pub use hash::crc32c;
pub use header::{FORMAT_VERSION, LAYOUT_MAX, NAME_MAX, REGIONS_MAX, RegionInfo, RegionKind};
pub use image::Image;
pub use objects::{ACTIONS_MAX, Action, ObjectHeap, Objects, ObjectsOptions, Reserved, Session};
pub use observe::Observer;
pub use open::Options;
pub use persist::{Layout, Persist, bytes_of, bytes_of_mut, from_bytes, view, view_mut, zeroed};
pub use pmem_derive::Persist;
#[doc(hidden)]
pub use pmem_derive::PersistOfCairn;
pub use pool::{Pool, PoolInfo};
pub use ptr::{OFFSET_MAX, PPtr};
pub use ring::{RING_MIN, Ring};
pub use ring_record::{Appended, PAYLOAD_MAX, Position, RECORD_HEADER};
pub use ring_recovery::{Recovered, RingRecord, Tail};
pub use stats::Stats;
pub use two_slot::TwoSlot;
