//! What transactions read and wrote, and whether some isolation level allows it.
//!
//! Every written value is unique, so a read names the transaction it read from; and a writer sees what it overwrites, which gives the order
//! of versions. From these follow the dependencies of Adya, Liskov and O'Neil (*Generalized Isolation Level Definitions*, ICDE
//! 2000): `ww` to the transaction that overwrote, `wr` to one that read, `rw` from one that read the version before. Only what is known becomes an edge, so
//! an anomaly that is found is one.
//!
//! * Snapshot forbids every cycle without two `rw` next to each other (Cerone and Gotsman, *Analysing Snapshot Isolation*, PODC 2016);
//! * serializable forbids every cycle;
//! * strict also counts real time as an edge: from a transaction that ended to one that began after that.

mod graph;

use std::collections::BTreeMap;
use std::fmt;

use tx::Isolation;

use graph::{Edge, Graph, Kind};

/// Value of every key before the first write.
pub const INITIAL: u64 = 0;

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key had this value.
    Read {
        /// Which key.
        key: u64,
        /// What was read.
        value: u64,
    },
    /// The key got this value.
    Write {
        /// Which key.
        key: u64,
        /// What stood there, if the writer saw it.
        old: Option<u64>,
        /// The new value, which no other write has.
        new: u64,
    },
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// For messages.
    pub name: String,
    /// A moment before it began.
    pub begin: u64,
    /// A moment after it ended; nothing else happened at the same moment.
    pub end: u64,
    /// False if it was rolled back.
    pub committed: bool,
    /// In order.
    pub events: Vec<Event>,
}

/// What many transactions did.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In any order.
    pub transactions: Vec<Record>,
}

/// Names of what may be wrong, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phenomenon {
    /// The history contradicts itself: a value is written twice.
    Malformed,
    /// A value that no transaction wrote was read: half a value, or from thin air.
    UnknownValue,
    /// A transaction does not see its own write.
    Internal,
    /// G1a: the writer was rolled back.
    AbortedRead,
    /// G1b: the writer overwrote it before it committed.
    IntermediateRead,
    /// Two transactions overwrote the same version.
    LostUpdate,
    /// A cycle of writes.
    G0,
    /// A cycle of writes and reads.
    G1c,
    /// A cycle with one anti-dependency: a state that never was.
    GSingle,
    /// A cycle with several anti-dependencies that do not touch: readers disagree about the order of writers.
    GNonadjacent,
    /// Any cycle: write skew, the read-only anomaly.
    G2,
    /// A cycle with real time: a transaction did not see what was committed before.
    Stale,
}

/// What is wrong with a history, and which transactions did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its name.
    pub phenomenon: Phenomenon,
    /// The transactions and keys.
    pub what: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.phenomenon, self.what)
    }
}

impl std::error::Error for Anomaly {}

/// The write of a value.
struct Writer {
    transaction: usize,
    /// It was the transaction's last write of the key.
    last: bool,
}

type Version = (u64, u64);

/// A history being turned into a graph.
struct Reading<'h> {
    history: &'h History,
    writers: BTreeMap<Version, Writer>,
    /// The transactions that read a version of another one.
    readers: BTreeMap<Version, Vec<usize>>,
    /// The transaction that overwrote it.
    successors: BTreeMap<Version, usize>,
}

impl History {
    /// Whether transactions of this level may have done it.
    ///
    /// # Errors
    /// The weakest [`Anomaly`] that they may not have.
    pub fn check(&self, level: Isolation) -> Result<(), Anomaly> {
        let graph = Reading::of(self)?.graph();
        let anomaly = |phenomenon, cycle: Vec<Edge>| {
            let name = |edge: &Edge| &self.transactions[edge.from].name;
            let mut what: String = cycle.iter().map(|edge| format!("{} -{}-> ", name(edge), edge.kind)).collect();
            what.extend(cycle.first().map(name).into_iter().map(String::as_str));
            Err(Anomaly { phenomenon, what })
        };
        if let Some(cycle) = graph.cycle(|kind| kind == Kind::WriteWrite) {
            return anomaly(Phenomenon::G0, cycle);
        }
        if let Some(cycle) = graph.cycle(Kind::is_dependency) {
            return anomaly(Phenomenon::G1c, cycle);
        }
        if let Some(cycle) = graph.cycle_with_one_anti_dependency() {
            return anomaly(Phenomenon::GSingle, cycle);
        }
        if let Some(cycle) = graph.cycle_without_adjacent_anti_dependencies() {
            return anomaly(Phenomenon::GNonadjacent, cycle);
        }
        if level >= Isolation::Serializable
            && let Some(cycle) = graph.cycle(|_| true)
        {
            return anomaly(Phenomenon::G2, cycle);
        }
        if level >= Isolation::Strict
            && let Some(cycle) = graph.with(self.real_time()).cycle(|_| true)
        {
            return anomaly(Phenomenon::Stale, cycle);
        }
        Ok(())
    }

    /// From each committed transaction to those that began after its end.
    fn real_time(&self) -> impl Iterator<Item = Edge> + '_ {
        let committed = || self.transactions.iter().enumerate().filter(|(_, t)| t.committed);
        committed().flat_map(move |(from, earlier)| {
            let later = committed().filter(|(_, later)| earlier.end < later.begin);
            later.map(move |(to, _)| Edge { from, to, kind: Kind::RealTime })
        })
    }
}

impl<'h> Reading<'h> {
    fn of(history: &'h History) -> Result<Self, Anomaly> {
        let mut reading =
            Self { history, writers: BTreeMap::new(), readers: BTreeMap::new(), successors: BTreeMap::new() };
        for (index, record) in history.transactions.iter().enumerate() {
            reading.note_writes(index, record)?;
        }
        for (index, record) in history.transactions.iter().enumerate().filter(|(_, t)| t.committed) {
            reading.note_reads(index, record)?;
        }
        Ok(reading)
    }

    fn note_writes(&mut self, transaction: usize, record: &Record) -> Result<(), Anomaly> {
        let mut latest = BTreeMap::new();
        for event in &record.events {
            let &Event::Write { key, new, .. } = event else { continue };
            if let Some(before) = latest.insert(key, new).and_then(|value| self.writers.get_mut(&(key, value))) {
                before.last = false;
            }
            if new == INITIAL || self.writers.insert((key, new), Writer { transaction, last: true }).is_some() {
                let what = format!("{} writes {new} to key {key}, which is not unique", record.name);
                return Err(Anomaly { phenomenon: Phenomenon::Malformed, what });
            }
        }
        Ok(())
    }

    fn note_reads(&mut self, transaction: usize, record: &Record) -> Result<(), Anomaly> {
        let mut own: BTreeMap<u64, u64> = BTreeMap::new();
        let mut overwrote = Vec::new();
        for event in &record.events {
            let (key, seen) = match *event {
                Event::Read { key, value } => (key, Some(value)),
                Event::Write { key, old, .. } => (key, old),
            };
            match (seen, own.get(&key)) {
                (Some(seen), Some(&wrote)) if seen != wrote => {
                    let what = format!("{} wrote {wrote} to key {key} and then found {seen}", record.name);
                    return Err(Anomaly { phenomenon: Phenomenon::Internal, what });
                }
                (Some(seen), None) => self.note_read(transaction, (key, seen))?,
                _ => {}
            }
            if let Event::Write { key, old, new } = *event {
                let first = own.insert(key, new).is_none();
                overwrote.extend(old.filter(|_| first).map(|old| (key, old)));
            }
        }
        for version in overwrote {
            if let Some(other) = self.successors.insert(version, transaction) {
                let other = &self.history.transactions[other].name;
                let what = format!("{other} and {} both overwrote {} of key {}", record.name, version.1, version.0);
                return Err(Anomaly { phenomenon: Phenomenon::LostUpdate, what });
            }
        }
        Ok(())
    }

    fn note_read(&mut self, transaction: usize, version: Version) -> Result<(), Anomaly> {
        let (key, value) = version;
        if value != INITIAL {
            let name = &self.history.transactions[transaction].name;
            let Some(writer) = self.writers.get(&version) else {
                let what = format!("{name} read {value} from key {key}, which nobody wrote");
                return Err(Anomaly { phenomenon: Phenomenon::UnknownValue, what });
            };
            let by = &self.history.transactions[writer.transaction];
            let what = format!("{name} read {value} from key {key}, written by {}", by.name);
            if !by.committed {
                return Err(Anomaly { phenomenon: Phenomenon::AbortedRead, what });
            }
            if !writer.last {
                return Err(Anomaly { phenomenon: Phenomenon::IntermediateRead, what });
            }
        }
        self.readers.entry(version).or_default().push(transaction);
        Ok(())
    }

    fn graph(&self) -> Graph {
        let mut edges = Vec::new();
        for (version, readers) in &self.readers {
            let next = self.successors.get(version);
            for &reader in readers {
                if let Some(writer) = self.writers.get(version) {
                    edges.push(Edge { from: writer.transaction, to: reader, kind: Kind::WriteRead });
                }
                if let Some(&to) = next.filter(|&&to| to != reader) {
                    edges.push(Edge { from: reader, to, kind: Kind::ReadWrite });
                }
            }
        }
        for (version, &to) in &self.successors {
            if let Some(writer) = self.writers.get(version) {
                edges.push(Edge { from: writer.transaction, to, kind: Kind::WriteWrite });
            }
        }
        Graph::new(self.history.transactions.len(), edges)
    }
}

#[cfg(test)]
mod tests;
