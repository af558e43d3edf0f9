//! What the store is asked to do.

use std::path::Path;

use bench::workload::{Distribution, Hashed, KEY_BYTES_MAX, Names, Op, Trace, Workload, Ycsb};

use crate::config::{Demo, Job};
use crate::value::HEADER;
use crate::{Error, Result};

/// Bytes of YCSB's keys.
const KEY_BYTES: usize = 24;

/// YCSB's workload A, or a trace.
#[derive(Debug)]
pub(crate) enum Input {
    Ycsb { ycsb: Ycsb, names: Hashed, keys: u64, bytes: u32 },
    Trace(Trace),
}

/// Operations without end.
pub(crate) type Ops = Box<dyn Iterator<Item = Op> + Send>;

impl Input {
    pub(crate) fn of(demo: &Demo) -> Result<Self> {
        Self::new(demo.trace.as_deref(), demo.keys, demo.value_bytes)
    }

    pub(crate) fn of_job(job: &Job) -> Result<Self> {
        Self::new(job.trace.as_deref(), job.keys, job.value_bytes)
    }

    fn new(trace: Option<&Path>, keys: u64, value_bytes: u32) -> Result<Self> {
        let Some(path) = trace else {
            let ycsb = Ycsb::new(Workload::A, keys).value_bytes(value_bytes).distribution(Distribution::Zipfian);
            return Ok(Self::Ycsb { ycsb, names: Hashed::new(KEY_BYTES)?, keys, bytes: value_bytes });
        };
        let trace = Trace::read(path)?;
        if !trace.ops().iter().any(|op| changes(*op)) {
            let why = format!("{}: it changes nothing, so nothing can be lost; choose one that does", path.display());
            return Err(Error::Option(why));
        }
        Ok(Self::Trace(trace))
    }

    /// What fills the store.
    pub(crate) fn load(&self) -> Box<dyn Iterator<Item = Op>> {
        match self {
            Self::Ycsb { ycsb, .. } => Box::new(ycsb.load()),
            Self::Trace(_) => Box::new(std::iter::empty()),
        }
    }

    /// Every key that is asked for is there.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Ycsb { .. })
    }

    /// Needs an order of keys.
    pub(crate) fn scans(&self) -> bool {
        matches!(self, Self::Trace(trace) if trace.scans())
    }

    /// What each of up to `threads` threads does. Each key of a trace is changed by one thread, so that what is done to it stays in order.
    pub(crate) fn ops(&self, threads: usize, seed: u64) -> Vec<Ops> {
        match self {
            Self::Ycsb { ycsb, .. } => (seed..).take(threads).map(|seed| Box::new(ycsb.stream(seed)) as Ops).collect(),
            Self::Trace(trace) => {
                let shares = (0..threads).map(|thread| trace.share(thread, threads)).filter(|ops| !ops.is_empty());
                shares.map(|ops| Box::new(ops.into_iter().cycle()) as Ops).collect()
            }
        }
    }

    pub(crate) fn keys(&self) -> u64 {
        match self {
            Self::Ycsb { keys, .. } => *keys,
            Self::Trace(trace) => trace.keys(),
        }
    }

    pub(crate) fn longest_value(&self) -> u32 {
        match self {
            Self::Ycsb { bytes, .. } => *bytes,
            Self::Trace(trace) => trace.longest_value().max(HEADER as u32),
        }
    }

    pub(crate) fn longest_key(&self) -> usize {
        match self {
            Self::Ycsb { .. } => KEY_BYTES,
            Self::Trace(trace) => trace.longest_key(),
        }
    }

    /// Bytes that all values take together, each at its longest.
    pub(crate) fn value_bytes(&self) -> u64 {
        match self {
            Self::Ycsb { keys, bytes, .. } => keys * u64::from(*bytes),
            Self::Trace(trace) => {
                let mut longest = vec![HEADER as u32; trace.keys() as usize];
                for op in trace.ops() {
                    if let Op::Update { key, bytes } = *op {
                        longest[key as usize] = longest[key as usize].max(bytes);
                    }
                }
                longest.into_iter().map(u64::from).sum()
            }
        }
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Ycsb { keys, bytes, .. } => {
                format!("YCSB A (half reads, half updates, zipfian), {keys} keys, values of {bytes} bytes")
            }
            Self::Trace(trace) => {
                format!("a trace of {} operations on {} keys, round and round", trace.ops().len(), trace.keys())
            }
        }
    }
}

impl Names for Input {
    #[inline]
    fn name<'a>(&'a self, key: u64, buffer: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        match self {
            Self::Ycsb { names, .. } => names.name(key, buffer),
            Self::Trace(trace) => trace.name(key, buffer),
        }
    }
}

/// True of operations that can be lost.
pub(crate) fn changes(op: Op) -> bool {
    !matches!(op, Op::Read { .. } | Op::Scan { .. })
}
