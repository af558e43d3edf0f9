//! A store, put together from what is found in a pool, or made there.

use std::sync::atomic::AtomicU64;

use pmem::sync::{Mutex, OwnMutex};
use pmem::{Allocator, Door, Pool, Ring};

use crate::core::{Core, Counters};
use crate::header::Headers;
use crate::log::Log;
use crate::options::Options;
use crate::pass::Upkeep;
use crate::raw::PerSlot;
use crate::set::TxState;
use crate::state::State;
use crate::tx_slot::TxSlots;

/// What a store is put together from.
pub(crate) struct Parts {
    pub(crate) pool: Pool,
    pub(crate) alloc: Allocator,
    pub(crate) rings: Vec<Ring>,
    pub(crate) upkeep: Upkeep,
}

/// Of the log of copies: for its mark, and what a record has besides.
const COPY_SPARE: u64 = 256;

/// Bytes to which a store grows by itself unless told otherwise.
const BYTES_MAX: u64 = 1 << 30;
const TIMES: u64 = 16;

impl Core {
    pub(crate) fn new(parts: Parts, state: &State, options: &Options) -> Self {
        let Parts { pool, alloc, rings, upkeep } = parts;
        let bytes: u64 = alloc.spaces().iter().map(|space| space.end - space.start).sum();
        let (slots, procedures) = (state.slots as usize, options.known());
        Self {
            headers: Headers::default(),
            tx_slots: TxSlots::new(slots, options.failpoints),
            logs: rings.into_iter().map(|ring| OwnMutex::new(Log::new(ring))).collect(),
            states: PerSlot::new(slots, TxState::default),
            counters: (0..slots).map(|_| Counters::default()).collect(),
            upkeep: Mutex::new(upkeep),
            inbox: Mutex::default(),
            held: Mutex::default(),
            named: procedures.iter().map(|known| (known.name.to_owned(), known.version)).collect(),
            procedures,
            called: AtomicU64::new(0),
            called_max: (state.copy_bytes / 2).min(pmem::PAYLOAD_MAX) - COPY_SPARE,
            growing: Mutex::default(),
            door: Door::default(),
            freed: AtomicU64::new(0),
            bytes_max: options.max_bytes.unwrap_or(BYTES_MAX.max(TIMES * bytes)),
            log_bytes: state.log_bytes,
            root: state.root,
            trouble: Mutex::default(),
            failpoints: options.failpoints,
            pool,
            alloc,
        }
    }
}
