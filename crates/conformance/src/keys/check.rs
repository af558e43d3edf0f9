//! Whether transactions of some level may have done what a [`History`] says.
//!
//! # Order of versions
//!
//! Only what is known becomes an edge, so an anomaly that is found is one. A version is known to follow another if its writer had found that
//! other one; that is sound for every level of [`Isolation`], all of which forbid lost updates. Nothing is concluded from a blind write about what it overwrote, nor from
//! finding nothing, unless the reader knows which delete it saw. Where the store tells the place of every commit, versions follow
//! each other in that order instead; what writers found must agree with it, or there is a cycle.
//!
//! # Moments
//!
//! A serializable transaction is one moment. One at snapshot level is two: it reads at its begin `b` and writes at its commit `c`, `b` before `c`. Then
//! Adya's dependencies (Adya, Liskov and O'Neil, *Generalized Isolation Level Definitions*, 2000) say:
//!
//! | | | |
//! |---|---|---|
//! | `ww`, `wr` | overwrites, reads what another wrote | the other's `c` before my `b` |
//! | `rw` | overwrites what another read | the other's `b` before my `c` |
//! | real time | begins after the other's end | the other's `c` before my `b` |
//!
//! A history is possible if these moments can be put in a row: if there is no cycle. With one level only that is the absence of all cycles, or
//! of those without two adjacent `rw` (Cerone and Gotsman, *Analysing Snapshot Isolation*, 2016); and levels may be mixed.
//!
//! Real time takes two edges for each transaction, not one for each pair: ends are put on a line, each leads to the next, and a begin hangs
//! from the last end before it. All is linear in the number of reads and writes but for one sort of ends.

use std::fmt::Write as _;

use tx::Isolation;

use super::graph::{Graph, Kind};
use super::history::{Entry, History, Log, Outcome, Read, Version, Write};
use crate::history::{Anomaly, Phenomenon};

/// No transaction, no write.
const NONE: u32 = u32::MAX;

impl History {
    /// Whether its transactions, each at its level, may have done it.
    ///
    /// # Errors
    /// The weakest [`Anomaly`] that they may not have.
    pub fn check(&self) -> Result<(), Anomaly> {
        let mut reading = Reading::of(self);
        reading.follow_unknown();
        reading.note_versions();
        reading.order_by_place();
        match reading.worst.take() {
            Some(anomaly) => Err(anomaly),
            None => reading.check_cycles(),
        }
    }
}

/// A history being turned into a graph. Transactions and writes are numbered through all logs.
struct Reading<'h> {
    history: &'h History,
    /// First numbers of each log; one more at the end.
    first: Vec<(u32, u32)>,
    /// Of each transaction: it counts.
    committed: Vec<bool>,
    /// Of each write: the transaction that wrote it, if it was the last one of its key in a transaction that counts.
    writer: Vec<u32>,
    /// Of each write: the transaction that overwrote it.
    next: Vec<u32>,
    worst: Option<Anomaly>,
}

/// One transaction with its reads and writes.
#[derive(Clone, Copy)]
struct Transaction<'h> {
    id: u32,
    thread: u8,
    number: usize,
    entry: &'h Entry,
    reads: &'h [Read],
    writes: &'h [Write],
    /// Number of its first write.
    first_write: u32,
}

impl<'h> Reading<'h> {
    fn of(history: &'h History) -> Self {
        let mut first = vec![(0u32, 0u32)];
        let (mut entries, mut writes) = (0, 0);
        for log in &history.logs {
            entries += log.entries.len() as u32;
            writes += log.writes.len() as u32;
            first.push((entries, writes));
        }
        let all = history.logs.iter().flat_map(|log| &log.entries);
        let committed = all.map(|entry| entry.outcome == Outcome::Committed).collect();
        let none = vec![NONE; writes as usize];
        Self { history, first, committed, writer: none.clone(), next: none, worst: None }
    }

    fn transaction(&self, log: &'h Log, number: usize) -> Transaction<'h> {
        let (entry, next) = (&log.entries[number], log.entries.get(number + 1));
        let (id, first_write) = self.first[usize::from(log.thread)];
        Transaction {
            id: id + number as u32,
            thread: log.thread,
            number,
            entry,
            reads: &log.reads[entry.reads..next.map_or(log.reads.len(), |next| next.reads)],
            writes: &log.writes[entry.writes..next.map_or(log.writes.len(), |next| next.writes)],
            first_write: first_write + entry.writes as u32,
        }
    }

    fn by_id(&self, id: u32) -> Transaction<'h> {
        let thread = self.first.partition_point(|&(first, _)| first <= id) - 1;
        self.transaction(&self.history.logs[thread], (id - self.first[thread].0) as usize)
    }

    fn all(&self) -> impl Iterator<Item = Transaction<'h>> {
        let each = self.history.logs.iter().flat_map(|log| (0..log.entries.len()).map(move |number| (log, number)));
        each.map(|(log, number)| self.transaction(log, number))
    }

    fn all_committed(&self) -> impl Iterator<Item = Transaction<'h>> {
        self.all().filter(|t| self.committed[t.id as usize])
    }

    /// The transaction that wrote a version of this key, and the write's number. `None`: none did.
    fn look_up(&self, key: u16, version: Version) -> Option<(u32, u32)> {
        let log = self.history.logs.get(version.thread())?;
        let entry = log.entries.get(version.number())?;
        let end = log.entries.get(version.number() + 1).map_or(log.writes.len(), |next| next.writes);
        let write = entry.writes + version.write();
        if write >= end || log.writes[write].key != key {
            return None;
        }
        let (id, first_write) = self.first[version.thread()];
        Some((id + version.number() as u32, first_write + write as u32))
    }

    fn wrong(&mut self, phenomenon: Phenomenon, what: impl FnOnce() -> String) {
        if self.worst.as_ref().is_none_or(|worst| phenomenon < worst.phenomenon) {
            self.worst = Some(Anomaly { phenomenon, what: what() });
        }
    }

    /// A transaction that does not know whether it committed, did, if one that did has seen it.
    fn follow_unknown(&mut self) {
        let mut sure: Vec<u32> = self.all_committed().map(|t| t.id).collect();
        while let Some(id) = sure.pop() {
            let t = self.by_id(id);
            let overwritten = t.writes.iter().filter_map(|write| Some((write.key, write.over?)));
            for (key, version) in t.reads.iter().map(|read| (read.key(), read.version())).chain(overwritten) {
                let Some((writer, _)) = self.look_up(key, version) else { continue };
                let unknown = self.by_id(writer).entry.outcome == Outcome::Unknown;
                if unknown && !std::mem::replace(&mut self.committed[writer as usize], true) {
                    sure.push(writer);
                }
            }
        }
    }

    fn note_versions(&mut self) {
        for (log, complaint) in self.history.logs.iter().flat_map(|log| log.complaints.iter().map(move |c| (log, c))) {
            let (number, anomaly) = complaint;
            let id = self.first[usize::from(log.thread)].0 + *number as u32;
            if self.committed[id as usize] {
                self.wrong(anomaly.phenomenon, || anomaly.what.clone());
            }
        }
        let all: Vec<u32> = self.all_committed().map(|t| t.id).collect();
        for &id in &all {
            let t = self.by_id(id);
            for (n, write) in t.writes.iter().enumerate() {
                if !t.writes[n + 1..].iter().any(|later| later.key == write.key) {
                    self.writer[t.first_write as usize + n] = id;
                }
            }
        }
        for &id in &all {
            let t = self.by_id(id);
            for read in t.reads {
                self.note_read(&t, read.key(), read.version());
            }
            for (key, over) in t.overwritten() {
                let Some(write) = self.note_read(&t, key, over) else { continue };
                let before = std::mem::replace(&mut self.next[write as usize], id);
                if before != NONE {
                    let other = self.by_id(before);
                    self.wrong(Phenomenon::LostUpdate, || format!("both overwrote key {key}\n{other}\n{t}"));
                }
            }
        }
    }

    fn note_read(&mut self, t: &Transaction<'h>, key: u16, version: Version) -> Option<u32> {
        let Some((writer, write)) = self.look_up(key, version) else {
            self.wrong(Phenomenon::UnknownValue, || format!("nobody wrote what was read from key {key}\n{t}"));
            return None;
        };
        let phenomenon = if !self.committed[writer as usize] {
            Phenomenon::AbortedRead
        } else if self.writer[write as usize] == NONE {
            Phenomenon::IntermediateRead
        } else {
            return Some(write);
        };
        let by = self.by_id(writer);
        self.wrong(phenomenon, || format!("key {key} was read\n{by}\n{t}"));
        None
    }

    /// If all commits have places, these say which version follows which.
    fn order_by_place(&mut self) {
        if self.worst.is_some() || self.all_committed().any(|t| t.entry.place.is_none() && !t.writes.is_empty()) {
            return;
        }
        let mut versions: Vec<(u16, u64, u32)> = Vec::new();
        for t in self.all_committed() {
            let numbered = (t.first_write..).zip(t.writes).filter(|(n, _)| self.writer[*n as usize] != NONE);
            versions.extend(numbered.map(|(n, write)| (write.key, t.entry.place.unwrap_or(0), n)));
        }
        versions.sort_unstable();
        for pair in versions.windows(2) {
            let ((key, place, write), (next_key, next_place, next)) = (pair[0], pair[1]);
            if key == next_key {
                self.next[write as usize] = self.writer[next as usize];
                if place == next_place {
                    self.wrong(Phenomenon::Malformed, || format!("two commits of key {key} are in place {place}"));
                }
            }
        }
    }

    fn check_cycles(&self) -> Result<(), Anomaly> {
        use Kind::{Own, ReadWrite, RealTime, WriteRead, WriteWrite};
        const LOGICAL: &[Kind] = &[Own, WriteWrite, WriteRead, ReadWrite];
        const ALL: &[Kind] = &[Own, WriteWrite, WriteRead, ReadWrite, RealTime];
        let graph = self.graph(false);
        let Some(any) = graph.cycle(ALL) else { return Ok(()) };
        // What is it called? The weakest level that forbids it.
        let logical = graph.cycle(LOGICAL);
        drop(graph);
        let Some(logical) = logical else { return Err(self.anomaly(Phenomenon::Stale, &any)) };
        let snapshot = self.graph(true);
        let named = [
            (Phenomenon::G0, &[Own, WriteWrite][..]),
            (Phenomenon::G1c, &[Own, WriteWrite, WriteRead]),
            (Phenomenon::GSingle, LOGICAL),
        ];
        for (phenomenon, kinds) in named {
            if let Some(cycle) = snapshot.cycle(kinds) {
                let several = cycle.iter().filter(|(_, kind)| *kind == ReadWrite).count() > 1;
                let phenomenon = if several { Phenomenon::GNonadjacent } else { phenomenon };
                return Err(self.anomaly(phenomenon, &cycle));
            }
        }
        Err(self.anomaly(Phenomenon::G2, &logical))
    }

    /// Nodes: commits, then begins, then ends on their line. `two`: all transactions are two moments.
    fn graph(&self, two: bool) -> Graph {
        let count = self.committed.len() as u32;
        let mut ends: Vec<(u64, u32)> =
            self.all_committed().map(|t| (t.entry.end, t.id)).filter(|(end, _)| *end != u64::MAX).collect();
        ends.sort_unstable();
        let begins: Vec<bool> = self.all().map(|t| two || t.entry.level < Isolation::Serializable).collect();
        let begin = |id: u32| if begins[id as usize] { count + id } else { id };
        let all = |edge: &mut dyn FnMut(u32, u32, Kind)| {
            for t in self.all_committed() {
                self.dependencies(&t, &begin, edge);
                if t.entry.level == Isolation::Strict || self.history.real_time {
                    let before = ends.partition_point(|(end, _)| *end < t.entry.begin) as u32;
                    if let Some(last) = before.checked_sub(1) {
                        edge(2 * count + last, begin(t.id), Kind::RealTime);
                    }
                }
            }
            for (place, (_, id)) in (2 * count..).zip(&ends) {
                edge(*id, place, Kind::RealTime);
                if place + 1 < 2 * count + ends.len() as u32 {
                    edge(place, place + 1, Kind::RealTime);
                }
            }
        };
        Graph::new((3 * count) as usize, all)
    }

    fn dependencies(&self, t: &Transaction<'h>, begin: &impl Fn(u32) -> u32, edge: &mut dyn FnMut(u32, u32, Kind)) {
        edge(begin(t.id), t.id, Kind::Own);
        for read in t.reads {
            let Some((writer, write)) = self.look_up(read.key(), read.version()) else { continue };
            edge(writer, begin(t.id), Kind::WriteRead);
            let next = self.next[write as usize];
            if next != NONE && next != t.id {
                edge(begin(t.id), next, Kind::ReadWrite);
            }
        }
        for (key, over) in t.overwritten() {
            let Some((writer, write)) = self.look_up(key, over) else { continue };
            edge(writer, begin(t.id), Kind::WriteWrite);
            let next = self.next[write as usize];
            if next != NONE && next != t.id {
                edge(begin(t.id), next, Kind::ReadWrite);
            }
        }
        for write in t.first_write..t.first_write + t.writes.len() as u32 {
            let next = self.next[write as usize];
            if next != NONE && next != t.id {
                edge(t.id, begin(next), Kind::WriteWrite);
            }
        }
    }

    fn anomaly(&self, phenomenon: Phenomenon, cycle: &[(u32, Kind)]) -> Anomaly {
        let count = self.committed.len() as u32;
        let is_time = |node: u32| node >= 2 * count;
        let mut what = String::new();
        let mut seen: Vec<u32> = Vec::new();
        // Begin at a transaction; of a line of ends only one arrow stays.
        let enters = |at: usize| {
            let before = cycle[(at + cycle.len() - 1) % cycle.len()].0;
            !is_time(cycle[at].0) && (is_time(before) || before % count != cycle[at].0 % count)
        };
        let start = (0..cycle.len()).find(|at| enters(*at)).unwrap_or(0);
        let turned: Vec<_> = cycle.iter().cycle().skip(start).take(cycle.len()).copied().collect();
        for (place, &(node, kind)) in turned.iter().enumerate() {
            if !is_time(node) && seen.last() != Some(&(node % count)) {
                let _ = write!(what, "{} ", self.by_id(node % count).name());
                seen.push(node % count);
            }
            let next = turned.get(place + 1).map_or(turned[0].0, |(node, _)| *node);
            if kind != Kind::Own && !is_time(next) {
                let _ = write!(what, "-{}-> ", kind.name());
            }
        }
        what.extend(seen.first().map(|id| self.by_id(*id).name()));
        seen.sort_unstable();
        seen.dedup();
        seen.truncate(12);
        for id in seen {
            let _ = write!(what, "\n{}", self.by_id(id));
        }
        Anomaly { phenomenon, what }
    }
}

impl Transaction<'_> {
    fn name(&self) -> String {
        format!("t{}.{}", self.thread, self.number)
    }

    /// Keys, and the versions of others that it has overwritten.
    fn overwritten(&self) -> impl Iterator<Item = (u16, Version)> {
        let first = |n: usize, key: u16| !self.writes[..n].iter().any(|earlier| earlier.key == key);
        let firsts = self.writes.iter().enumerate().filter(move |(n, write)| first(*n, write.key));
        firsts.filter_map(|(_, write)| Some((write.key, write.over?)))
    }
}

impl std::fmt::Display for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Entry { level, begin, end, outcome, .. } = self.entry;
        write!(f, "{} {level} {outcome:?} {begin}..{end}: read", self.name())?;
        for read in self.reads {
            write!(f, " {}={}", read.key(), read.version())?;
        }
        f.write_str("; wrote")?;
        for (n, write) in self.writes.iter().enumerate() {
            match write.over {
                Some(over) => write!(f, " {}/{n} over {over}", write.key)?,
                None => write!(f, " {}/{n}", write.key)?,
            }
        }
        Ok(())
    }
}
