//! Recovers a pool as any program would, then reads all of it.

use std::ops::ControlFlow::Continue;

use bench::clock;
use bench::workload::{KEY_BYTES_MAX, Names};
use heap::Heap;
use mvcc::Mvcc;
use pmem::Domain;
use structures::{BTree, HashMap};

use crate::Result;
use crate::config::Job;
use crate::input::Input;
use crate::journal::Journal;
use crate::kept::{Kept, Recovered};
use crate::kind::Kind;
use crate::store::{Ghost, ISOLATION, Keep};
use crate::value::Values;
use crate::witness::State;

/// What was found.
pub(crate) struct Found {
    /// From opening the file to the first transaction.
    pub(crate) recovery_ns: u64,
    pub(crate) recovered: Recovered,
    pub(crate) domain: Domain,
    /// Of each key; `None` if what is there cannot be read.
    pub(crate) states: Vec<Option<State>>,
    /// Where each thread's journal ends.
    pub(crate) journal: Vec<u64>,
    /// What is wrong with no key, or makes one unreadable.
    pub(crate) damage: Vec<String>,
}

/// Opens the pool, reads all, closes it.
///
/// # Errors
/// The pool cannot be opened, read or closed.
pub(crate) fn look(job: &Job, input: &Input, values: &Values) -> Result<Found> {
    match (job.kind()?, input.scans()) {
        (Kind::Heap(_), true) => look_into::<Heap, BTree>(job, input, values),
        (Kind::Heap(_), false) => look_into::<Heap, HashMap>(job, input, values),
        (Kind::Mvcc, true) => look_into::<Mvcc, BTree>(job, input, values),
        (Kind::Mvcc, false) => look_into::<Mvcc, HashMap>(job, input, values),
    }
}

fn look_into<E: Kept, M: Keep>(job: &Job, input: &Input, values: &Values) -> Result<Found> {
    let kind = job.kind()?;
    let (opened, time) = clock::timed(|| E::open(&job.pool, kind, input, job.threads));
    let engine = opened?;
    let map = M::open(&engine)?;
    let (report, reader) = engine.transact(ISOLATION, |tx| -> tx::Result<_> {
        let report = map.verify(tx)?;
        let mut reader = Reader::new(input, values, job.threads);
        map.for_each(tx, |name, value| {
            reader.read(name, value);
            Continue(())
        })?;
        Ok((report, reader))
    })?;
    let (states, journal, mut damage) = reader.end();
    let used = engine.usage()?;
    let wanted = report.blocks + 1; // and the engine's own root
    if used.live_blocks != wanted {
        damage.push(format!("{} blocks are allocated, {wanted} are in use", used.live_blocks));
    }
    let (recovered, domain) = (engine.recovered(), engine.pool().domain());
    engine.close()?;
    let recovery_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(Found { recovery_ns, recovered, domain, states, journal, damage })
}

/// Damaged pairs that are told; more say nothing new.
const DAMAGE_MAX: usize = 100;

/// Meets all pairs.
struct Reader<'a> {
    input: &'a Input,
    values: &'a Values,
    live: Vec<u64>,
    dead: Vec<u64>,
    unreadable: Vec<bool>,
    journal: Journal,
    damage: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(input: &'a Input, values: &'a Values, threads: usize) -> Self {
        let keys = input.keys() as usize;
        let (live, dead, unreadable) = (vec![0; keys], vec![0; keys], vec![false; keys]);
        Self { input, values, live, dead, unreadable, journal: Journal::new(threads), damage: Vec::new() }
    }

    fn read(&mut self, name: &[u8], value: &[u8]) {
        if Journal::is_entry(name) {
            match self.values.read(value) {
                Ok(stamp) if self.journal.enter(name, stamp) => {}
                Ok(stamp) => self.wrong(name, &format!("has an entry of {stamp:?}")),
                Err(why) => self.wrong(name, &why),
            }
            return;
        }
        let ghost = Ghost::key_of(name);
        let name = ghost.unwrap_or(name);
        match self.values.read(value) {
            Ok(stamp) if stamp.key < self.input.keys() && self.is(stamp.key, name) => {
                let versions = if ghost.is_some() { &mut self.dead } else { &mut self.live };
                versions[stamp.key as usize] = stamp.version;
            }
            Ok(stamp) => self.wrong(name, &format!("has a value of key {}", stamp.key)),
            Err(why) => self.wrong(name, &why),
        }
    }

    fn is(&self, key: u64, name: &[u8]) -> bool {
        let mut buffer: [u8; KEY_BYTES_MAX] = self.input.buffer();
        self.input.name(key, &mut buffer) == name
    }

    #[cold]
    fn wrong(&mut self, name: &[u8], why: &str) {
        if self.damage.len() == DAMAGE_MAX {
            return;
        }
        if let Some(key) = (0..self.input.keys()).find(|key| self.is(*key, name)) {
            self.unreadable[key as usize] = true;
        }
        self.damage.push(format!("key \"{}\": {why}", name.escape_ascii()));
    }

    fn end(mut self) -> (Vec<Option<State>>, Vec<u64>, Vec<String>) {
        for (thread, number) in self.journal.holes() {
            self.damage.push(format!("update {number} of thread {thread} is LOST, though later ones are there"));
        }
        let state = |((&live, &dead), &unreadable): ((&u64, &u64), &bool)| {
            let found =
                if live > 0 { State { version: live, live: true } } else { State { version: dead, live: false } };
            (!unreadable).then_some(found)
        };
        let states = self.live.iter().zip(&self.dead).zip(&self.unreadable).map(state).collect();
        (states, self.journal.last(), self.damage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Demo;
    use crate::value::Stamp;

    #[test]
    fn pairs_that_belong_to_others_are_damage() {
        let input = Input::of(&Demo { keys: 4, ..Demo::default() }).unwrap();
        let values = Values::new(1024);
        let mut reader = Reader::new(&input, &values, 1);
        let mut buffer = input.buffer();
        let mut value = Vec::new();
        let name = |key, buffer: &mut _| input.name(key, buffer).to_vec();
        values.make(Stamp { key: 0, version: 7 }, 1024, &mut value);
        reader.read(&name(0, &mut buffer), &value);
        reader.read(&name(1, &mut buffer), &value);
        reader.read(&name(2, &mut buffer), &value[..500]);
        values.make(Stamp { key: 3, version: 9 }, 24, &mut value);
        reader.read(Ghost::new().of(&name(3, &mut buffer)), &value);
        reader.read(b"nobody", &value);
        reader.read(b"\t\0\x07", &value);
        let (states, journal, damage) = reader.end();
        let found = |version, live| Some(State { version, live });
        assert_eq!(states, [found(7, true), None, None, found(9, false)]);
        assert_eq!(journal, [0]);
        assert_eq!(damage.len(), 4, "{damage:?}");
        assert!(damage[0].contains("has a value of key 0"), "{damage:?}");
        assert!(damage[1].contains("checksum"), "{damage:?}");
    }
}
