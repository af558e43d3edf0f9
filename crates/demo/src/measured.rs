//! Rounds that nothing disturbs: no reports, no kills. Operations are drawn before the clock runs; making values is part of what is measured.

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use bench::crew::{Crew, Worker, with_crew};
use bench::latency::{Latency, Sampler};
use bench::target::{Found, OnKv, Store};
use bench::workload::{KEY_BYTES_MAX, Names, Op};
use structures::KvMap;

use crate::config::Job;
use crate::input::{Input, Ops};
use crate::kept::Kept;
use crate::message::{Message, Mouth, Round};
use crate::store::{self, Keep};
use crate::value::{Stamp, Values};
use crate::{Error, Result};

/// What the parent says to a worker that measures.
pub(crate) const END: &str = "end";

/// Makes and fills the pool, then does a round of so many milliseconds for each number on standard input.
pub(crate) fn measure<E: Kept, M: Keep>(job: &Job, input: &Input, values: &Values, mouth: &Mouth) -> Result<()> {
    let (engine, map) = store::create::<E, M>(job, input, values)?;
    say(mouth, &Message::Ready { ns: 0 })?;
    let store = OnKv(KvMap::new(&engine, map));
    let ops = input.ops(job.threads, job.seed);
    with_crew(ops.len(), |crew| {
        let clients = (0..).zip(ops).map(|(thread, ops)| Client::new(store, input, values, thread, ops));
        let mut clients: Vec<_> = clients.collect();
        let mut batch = BATCH_MIN;
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(Error::io("read", Path::new("standard input")))?;
            if line == END {
                return Ok(());
            }
            let ms = line.parse().map_err(|_| Error::Option(format!("told to {line:?}")))?;
            let round = round(crew, &engine, &mut clients, &mut batch, Duration::from_millis(ms))?;
            say(mouth, &Message::Round(round))?;
        }
        Err(Error::Option("the parent is gone".into()))
    })?;
    engine.close()?;
    say(mouth, &Message::Closed)
}

fn say(mouth: &Mouth, message: &Message) -> Result<()> {
    mouth.say_once(message).map_err(Error::io("write", Path::new("standard output")))
}

/// Operations that a thread does at once, at first and at most.
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 50_000;
/// How long a batch is meant to take.
const BATCH_TIME: Duration = Duration::from_millis(20);

fn round<'env, E: Kept, M: Keep + 'env>(
    crew: &Crew<'env>,
    engine: &E,
    clients: &mut Vec<Client<'env, E, M>>,
    batch: &mut usize,
    length: Duration,
) -> Result<Round> {
    let before = engine.pool().stats();
    let (mut time, mut ops) = (Duration::ZERO, 0);
    let mut latency = Latency::default();
    while time < length {
        clients.iter_mut().for_each(|client| client.draw(*batch));
        let took = crew.run(clients)?;
        time += took;
        ops += (clients.len() * *batch) as u64;
        clients.iter_mut().for_each(|client| latency.add(&client.sampler.take()));
        let fits = *batch as f64 * BATCH_TIME.as_secs_f64() / took.as_secs_f64().max(1e-6);
        *batch = (fits as usize).clamp(BATCH_MIN, BATCH_MAX).min(2 * *batch);
    }
    let cost = engine.pool().stats() - before;
    let quantile = |q| latency.quantile(q).unwrap_or(0.0);
    Ok(Round {
        ops,
        changes: clients.iter_mut().map(|client| std::mem::take(&mut client.changes)).sum(),
        ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        drains: cost.drains,
        media_bytes: cost.media_bytes(),
        aborts: clients.iter_mut().map(|client| std::mem::take(&mut client.aborts)).sum(),
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
    })
}

/// One thread.
struct Client<'e, E, M> {
    store: OnKv<KvMap<'e, E, M>>,
    input: &'e Input,
    values: &'e Values,
    drawn: Ops,
    ops: Vec<Op>,
    sampler: Sampler,
    value: Vec<u8>,
    out: Vec<u8>,
    version: u64,
    changes: u64,
    aborts: u64,
}

/// Versions of different threads differ; 1 is what was loaded.
const VERSIONS: u64 = 1 << 40;

impl<'e, E: Kept, M: Keep> Client<'e, E, M> {
    fn new(store: OnKv<KvMap<'e, E, M>>, input: &'e Input, values: &'e Values, thread: u64, drawn: Ops) -> Self {
        Self {
            store,
            input,
            values,
            drawn,
            ops: Vec::new(),
            sampler: Sampler::new(thread),
            value: Vec::new(),
            out: vec![0; input.longest_value() as usize],
            version: (thread + 1) * VERSIONS,
            changes: 0,
            aborts: 0,
        }
    }

    fn draw(&mut self, batch: usize) {
        self.ops.clear();
        self.ops.extend(self.drawn.by_ref().take(batch));
    }

    #[inline]
    fn one(&mut self, op: Op, name: &mut [u8; KEY_BYTES_MAX]) -> Result<Found, bench::Error> {
        let key = op.key();
        let name = self.input.name(key, name);
        self.version += 1;
        let stamp = Stamp { key, version: self.version };
        let found = match op {
            Op::Read { .. } => return self.store.get(name, &mut self.out),
            Op::Scan { count, .. } => return self.store.scan(name, count as usize, &mut self.out),
            Op::Update { bytes, .. } | Op::Insert { bytes, .. } => {
                self.store.put(name, self.values.make(stamp, bytes, &mut self.value))
            }
            Op::ReadModifyWrite { bytes, .. } => {
                let value = self.values.make(stamp, bytes, &mut self.value);
                self.store.read_modify_write(name, &mut self.out, value)
            }
            Op::Delete { .. } => self.store.delete(name),
        }?;
        self.changes += found.pairs;
        Ok(found)
    }
}

impl<E: Kept, M: Keep> Worker for Client<'_, E, M> {
    fn work(&mut self) -> Result<(), bench::Error> {
        let mut name = self.input.buffer();
        let full = self.input.is_full();
        let ops = std::mem::take(&mut self.ops);
        let mut sampler = std::mem::replace(&mut self.sampler, Sampler::new(0));
        let done = ops.iter().try_for_each(|op| {
            let found = sampler.op(|| self.one(*op, &mut name))?;
            self.aborts += found.aborts;
            if found.pairs == 0 && full {
                return Err(bench::Error::Wrong { who: "the store".into(), what: format!("{op:?} found nothing") });
            }
            Ok(())
        });
        (self.ops, self.sampler) = (ops, sampler);
        done
    }
}
