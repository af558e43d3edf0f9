//! One thread that uses a store.

use crate::contest::Arena;
use crate::crew::Worker;
use crate::engines::{AnyStore, Made, Room, Structure, on_store};
use crate::latency::Sampler;
use crate::target::{Found, Store};
use crate::workload::{Hashed, KEY_BYTES_MAX, Names, Op, Values, Ycsb};
use crate::{Error, Result};

/// Does the operations it is given.
pub(super) struct Client<'e, S, N> {
    store: S,
    names: &'e N,
    values: &'e Values,
    /// What is to be done; stays.
    pub(super) ops: Vec<Op>,
    pub(super) sampler: Sampler,
    pub(super) aborts: u64,
    /// Keys that are asked for are there: else the store has lost them.
    sure: bool,
    /// Of a read behind a write, the read alone is timed.
    pub(super) reads_timed: bool,
    out: Vec<u8>,
    number: u64,
}

impl<'e, S: Store, N: Names> Client<'e, S, N> {
    pub(super) fn new(store: S, names: &'e N, values: &'e Values, sure: bool, seed: u64) -> Self {
        let out = vec![0; values.longest()];
        Self {
            store,
            names,
            values,
            ops: Vec::new(),
            sampler: Sampler::new(seed),
            aborts: 0,
            sure,
            reads_timed: false,
            out,
            number: seed,
        }
    }

    /// One operation, untimed.
    #[inline]
    pub(super) fn one(&mut self, op: Op, buffer: &mut [u8; KEY_BYTES_MAX]) -> Result<Found> {
        let key = self.names.name(op.key(), buffer);
        self.number += 1;
        let found = match op {
            Op::Read { .. } => self.store.get(key, &mut self.out)?,
            Op::Update { bytes, .. } | Op::Insert { bytes, .. } => {
                self.store.put(key, self.values.get(self.number, bytes))?
            }
            Op::ReadModifyWrite { bytes, .. } => {
                self.store.read_modify_write(key, &mut self.out, self.values.get(self.number, bytes))?
            }
            Op::Scan { count, .. } => self.store.scan(key, count as usize, &mut self.out)?,
            Op::Delete { .. } => self.store.delete(key)?,
        };
        // Another thread may have removed it just now.
        if found.pairs == 0 && self.sure && !matches!(op, Op::Delete { .. }) {
            return Err(lost(op, key));
        }
        Ok(found)
    }
}

#[cold]
fn lost(op: Op, key: &[u8]) -> Error {
    Error::Wrong { who: "the store".into(), what: format!("{op:?} found nothing under \"{}\"", key.escape_ascii()) }
}

impl<S: Store, N: Names> Worker for Client<'_, S, N> {
    fn work(&mut self) -> Result<()> {
        let mut buffer = self.names.buffer();
        let ops = std::mem::take(&mut self.ops);
        let mut sampler = std::mem::replace(&mut self.sampler, Sampler::new(0));
        let done = ops.iter().try_for_each(|op| {
            let untimed = self.reads_timed && !matches!(op, Op::Read { .. });
            let found = if untimed { self.one(*op, &mut buffer) } else { sampler.op(|| self.one(*op, &mut buffer)) };
            self.aborts += found?.aborts;
            Ok(())
        });
        (self.ops, self.sampler) = (ops, sampler);
        done
    }
}

/// For that many pairs.
pub(super) fn room(pairs: u64, key_bytes: usize, value_bytes: u32, threads: usize) -> Room {
    let bytes = pairs * (key_bytes as u64 + u64::from(value_bytes) + 64);
    Room { bytes, stored: bytes, blocks: pairs, threads }
}

/// A structure in each contestant, filled.
pub(super) fn loaded<'e>(
    arena: &'e Arena,
    structure: Structure,
    ycsb: Ycsb,
    names: &Hashed,
    values: &Values,
) -> Result<Vec<AnyStore<'e>>> {
    let load = |made: &'e Made| {
        let any = made.store(structure, ycsb.keys(), names.bytes())?;
        on_store!(&any, store => own(store, 1).into_iter().try_for_each(|store| {
            let mut client = Client::new(store, names, values, true, 0);
            let mut buffer = names.buffer();
            ycsb.load().try_for_each(|op| client.one(op, &mut buffer).map(|_| ()))
        }))?;
        Ok(any)
    };
    arena.made().map(load).collect()
}

/// One for each thread.
pub(super) fn own<S: Clone>(store: &S, threads: usize) -> Vec<S> {
    vec![store.clone(); threads]
}
