//! Pools of persistent memory: what every engine of Cairn stands on, and enough for programs that need no engine.
//!
//! Data lives in a mapped file (fsdax, devdax, tmpfs, or a file on any disk), is read through ordinary references, and
//! survives a crash in a state that is known: what was flushed and drained is there, everything else may be, word by word.
//!
//! # The way of a byte
//!
//! | module | what it does with it |
//! |---|---|
//! | `create`, `open`, `pool`, `header` | a file becomes a [`Pool`]: locked, checked, mapped |
//! | `directory` | its regions: added, claimed, grown, cut |
//! | `area` | a region's bytes have one owner, an [`Area`]: read through `&`, stored through `&mut` |
//! | `persist`, `ptr` | what may be stored: [`Persist`] types, and [`PPtr`] for links |
//! | `mapping`, `length`, `flush`, `cpu` | flush starts a line's way to the media, drain waits for it; the [`Domain`] says how |
//! | `sync_file` | in the file domain one sync serves all threads that wait |
//! | `sealed`, `two_slot`, `ring` | records that prove they are whole, a cell that is replaced in one piece, a log |
//! | `alloc` | blocks, reserved in DRAM and made persistent by intents in somebody's commit record |
//! | `objects` | all of it together: allocate, fill and publish with one barrier |
//! | `image`, `written` | a copy of the file is made while it is written |
//! | `observe` | another process looks on, through the file, while it is written |
//! | `sim`, `sync` | where a crash explorer and its scheduler plug in |
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

extern crate self as pmem;

mod alloc;
mod area;
mod cpu;
mod create;
mod directory;
mod domain;
mod draft;
mod engine;
mod error;
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
mod ring;
mod ring_mark;
mod ring_record;
mod ring_recovery;
pub mod sabotage;
mod seal;
mod sealed;
pub mod sim;
mod stats;
pub mod sync;
mod sync_file;
mod two_slot;
mod written;

pub use alloc::{Allocator, Block, Found, HeapOptions, HeapUsage, Intent};
pub use area::{Area, Region};
pub use cpu::{FlushWith, LINE, WORD, flush_with, lines, prefetch, prefetch_to_write};
pub use directory::{RegionInfo, RegionKind};
pub use domain::{Domain, DomainChoice, Latency};
pub use draft::Draft;
pub use engine::thread_number;
pub use error::{Error, Result, SpaceFor};
pub use flush::{FlushSet, Moment, Persisted};
pub use hash::crc32c;
pub use header::{FORMAT_VERSION, LAYOUT_MAX, NAME_MAX, REGIONS_MAX};
pub use image::Image;
pub use objects::{ACTIONS_MAX, Action, ObjectHeap, Objects, ObjectsOptions, Reserved, Session};
pub use observe::Observer;
pub use open::Options;
pub use persist::{Layout, Persist, bytes_of, bytes_of_mut, from_bytes, view, view_mut, zeroed};
pub use pmem_derive::Persist;
pub use pool::{Pool, PoolInfo};
pub use ptr::{OFFSET_MAX, PPtr};
pub use ring::{RING_MIN, Ring};
pub use ring_record::{Appended, PAYLOAD_MAX, Position, RECORD_HEADER};
pub use ring_recovery::{Recovered, RingRecord, Tail};
pub use seal::{SealKey, Sum};
pub use sealed::SEALED_HEADER;
pub use stats::Stats;
pub use two_slot::{Twin, TwoSlot};
