//! The allocator: blocks for all engines.
//!
//! An allocation is *reserved* in DRAM alone; it becomes persistent by an [`Intent`] that the engine puts into its commit record
//! and *applies* when that record is durable (and again at recovery: twice is harmless). So allocation costs no
//! barrier of its own, and an abort or a crash before the commit leaks nothing. A free goes the same way, and its block is handed out
//! again when the engine *releases* it, once its record cannot come back.
//!
//! `classes` are the block sizes, `media` is what stands in the pool, `chunk` what is known of it in DRAM (looked up chunk by chunk at
//! first use: opening reads nothing), `central` the free chunks and the spans with free blocks, `allocator` the whole.

mod allocator;
mod central;
mod chunk;
mod classes;
mod media;

pub use allocator::{Allocator, Block, HeapOptions, HeapUsage, Intent};
pub(crate) use media::atomic as word;
