//! The allocator: blocks for all engines.
//!
//! An allocation is *reserved* in DRAM alone; it becomes persistent by an [`Intent`] that the engine puts into its commit record
//! and *applies* when that record is durable (and again at recovery: twice is harmless). So allocation costs no
//! barrier of its own, and an abort or a crash before the commit leaks nothing. A free goes the same way, and its block is handed out
//! again when the engine *releases* it, once its record cannot come back.
//!
//! | module | |
//! |---|---|
//! | `allocator` | the heap: made, opened, its extents |
//! | `reserve`, `cache` | blocks out of a thread's bins, spans, free chunks; and back |
//! | `block`, `intents` | a block, its intents; applied, cancelled, released |
//! | `resolve` | from a pointer to the live block it lies in |
//! | `resize`, `inspect` | grow and trim; what is live |
//! | `engine` | a word of DRAM per block, for locks |
//! | `classes` | block sizes |
//! | `media`, `look` | what stands in the pool; looked up chunk by chunk at first use: opening reads nothing |
//! | `chunk`, `central` | what is known in DRAM of a chunk; free chunks and spans with free blocks |

mod allocator;
mod block;
mod cache;
mod central;
mod chunk;
mod classes;
mod engine;
mod inspect;
mod intents;
mod look;
mod media;
mod reserve;
mod resize;
mod resolve;

pub use allocator::{Allocator, HeapOptions};
pub use block::{Block, Intent};
pub use inspect::HeapUsage;
pub(crate) use media::atomic as word;
pub use resolve::Found;
