//! Updates that are reported right after their commit, until the process is killed.
//!
//! The version of an update is the one before plus one, read in the same transaction: so versions of a key are numbered in the order of their
//! commits, whichever threads made them. Each transaction notes its number in its thread's journal first: whatever is missing then, of half
//! a transaction or of a whole one, shows.

use std::ops::ControlFlow::{Break, Continue};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use bench::clock;
use bench::workload::{KEY_BYTES_MAX, Names, Op};
use tx::Keys;

use crate::config::Job;
use crate::input::{Input, Ops, changes};
use crate::journal::{self, Journal};
use crate::kept::Kept;
use crate::message::{Announced, Message, Mouth, Update};
use crate::store::{Ghost, ISOLATION, Keep};
use crate::value::{Stamp, Values};
use crate::{Error, Result};

/// Opens the pool and changes it until it is killed; returns only if something went wrong.
pub(crate) fn report<E: Kept, M: Keep>(job: &Job, input: &Input, values: &Values, mouth: &Mouth) -> Result<()> {
    mouth.say_once(&Message::Opening).map_err(gone)?;
    let kind = job.kind()?;
    let (opened, time) = clock::timed(|| E::open(&job.pool, kind, input, job.threads));
    let engine = opened?;
    let map = M::open(&engine)?;
    mouth.say_once(&Message::Ready { ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }).map_err(gone)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let start = |(thread, ops)| {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || {
                let client = Client { engine, map, input, values, mouth, thread, early: job.early };
                client.run(ops, stop).inspect_err(|_| stop.store(true, Relaxed))
            })
        };
        let threads: Vec<_> = input.ops(job.threads, job.seed).into_iter().enumerate().map(start).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or(Err(bench::Error::Worker.into())));
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

fn gone(error: std::io::Error) -> Error {
    Error::io("write", "standard output".as_ref())(error)
}

/// Some reads, and the update after them.
struct Upcoming {
    reads: Vec<Op>,
    change: Option<Op>,
}

/// A share of a trace may have no updates.
const READS_MAX: usize = 1000;

impl Upcoming {
    fn draw(&mut self, ops: &mut Ops) {
        self.change = None;
        self.reads.clear();
        for op in ops.by_ref().take(READS_MAX) {
            if changes(op) {
                self.change = Some(op);
                return;
            }
            self.reads.push(op);
        }
    }

    fn announced(&self, number: u64) -> Option<Announced> {
        self.change.map(|op| Announced { key: op.key(), live: !matches!(op, Op::Delete { .. }), number })
    }
}

/// One thread.
struct Client<'e, E, M> {
    engine: &'e E,
    map: M,
    input: &'e Input,
    values: &'e Values,
    mouth: &'e Mouth,
    thread: usize,
    early: bool,
}

/// What a thread uses again and again.
struct Buffers {
    name: [u8; KEY_BYTES_MAX],
    ghost: Ghost,
    value: Vec<u8>,
    line: Vec<u8>,
}

impl<E: Kept, M: Keep> Client<'_, E, M> {
    fn run(&self, mut ops: Ops, stop: &AtomicBool) -> Result<()> {
        let mut buffers =
            Buffers { name: self.input.buffer(), ghost: Ghost::new(), value: Vec::new(), line: Vec::new() };
        let mut upcoming = Upcoming { reads: Vec::new(), change: None };
        upcoming.draw(&mut ops);
        let journal =
            self.engine.transact(ISOLATION, |tx| Journal::read(&self.map, tx, self.values, self.thread + 1))?;
        let mut number = journal.last()[self.thread] + 1;
        self.say(None, upcoming.announced(number), &mut buffers)?;
        while !stop.load(Relaxed) {
            for op in &upcoming.reads {
                self.read(*op, &mut buffers)?;
            }
            let done = upcoming.change.map(|op| self.change(op, number, &mut buffers)).transpose()?;
            number += u64::from(done.is_some());
            upcoming.draw(&mut ops);
            self.say(done.filter(|_| !self.early), upcoming.announced(number), &mut buffers)?;
        }
        Ok(())
    }

    fn say(&self, done: Option<Update>, next: Option<Announced>, buffers: &mut Buffers) -> Result<()> {
        if done.is_none() && next.is_none() {
            return Ok(());
        }
        let step = Message::Step { thread: self.thread, done, next };
        self.mouth.say(&step, &mut buffers.line).map_err(gone)
    }

    fn read(&self, op: Op, buffers: &mut Buffers) -> Result<()> {
        let name = self.input.name(op.key(), &mut buffers.name);
        let found = self.engine.transact(ISOLATION, |tx| {
            if let Op::Scan { count, .. } = op {
                let mut left = count;
                self.map.scan(tx, &Keys::from(name), &mut |_, _| {
                    left = left.saturating_sub(1);
                    if left == 0 { Break(()) } else { Continue(()) }
                })?;
                return Ok(None);
            }
            Ok::<_, tx::Error>(self.map.get(tx, name)?.map(|value| self.values.read(value)))
        })?;
        found.transpose().map_err(|why| self.wrong(&why)).map(drop)
    }

    fn wrong(&self, why: &str) -> Error {
        bench::Error::Wrong { who: self.engine.name().to_owned(), what: why.to_owned() }.into()
    }

    fn change(&self, op: Op, number: u64, buffers: &mut Buffers) -> Result<Update> {
        let key = op.key();
        let Buffers { name, ghost, value, line } = buffers;
        let name = self.input.name(key, name);
        let ghost = ghost.of(name);
        let bytes = match op {
            Op::Update { bytes, .. } | Op::Insert { bytes, .. } | Op::ReadModifyWrite { bytes, .. } => Some(bytes),
            _ => None,
        };
        let (mut torn, mut told) = (None, false);
        let result = self.engine.transact(ISOLATION, |tx| {
            torn = None;
            let here = self.map.get(tx, name)?.map(|value| self.values.read(value));
            let before = match &here {
                Some(_) => here.clone(),
                None => self.map.get(tx, ghost)?.map(|value| self.values.read(value)),
            };
            let version = match before {
                Some(Ok(stamp)) => stamp.version + 1,
                Some(Err(why)) => {
                    let error = tx::Typed::refuse(tx, why.as_str());
                    torn = Some(why);
                    return Err(error);
                }
                None => 1,
            };
            journal::note(&self.map, tx, self.values, (self.thread, number), value)?;
            match bytes {
                Some(bytes) => {
                    self.map.put(tx, name, self.values.make(Stamp { key, version }, bytes, value))?;
                    if here.is_none() && version > 1 {
                        self.map.delete(tx, ghost)?;
                    }
                }
                None => {
                    self.map.delete(tx, name)?;
                    self.map.put(tx, ghost, self.values.make(Stamp { key, version }, 0, value))?;
                }
            }
            let update = Update { key, version, live: bytes.is_some() };
            if self.early && !std::mem::replace(&mut told, true) {
                let early = Message::Step { thread: self.thread, done: Some(update), next: None };
                let _ = self.mouth.say(&early, line);
                thread::sleep(EARLY);
            }
            Ok(update)
        });
        match torn {
            Some(why) => Err(self.wrong(&why)),
            None => Ok(result?),
        }
    }
}

/// Between an acknowledgement that comes too early and the commit.
const EARLY: Duration = Duration::from_millis(2);
