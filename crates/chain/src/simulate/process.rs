//! What a process does with a machine: it carries out commands, and says what has happened.

use super::history::{Reply, Request, Seen, list};
use super::machine::{Reading, Running, Work};
use super::medium::{BLOCK, Cell, Header, Stored, Write, decode, digest, extent, word};
use super::service::Ask;
use super::world::World;
use crate::clients::{Verdict, judge};
use crate::failpoints::Step;
use crate::{Body, Command, Event, Message, Object, ReadId, Refusal, ReplicaId, TransactionId, ViewId};

const TICK: u64 = 2000;
/// Objects of a part of an image.
const PART: u64 = 5;
const RENEW: u64 = 6000;

impl World {
    pub(super) fn carry_out(&mut self, at: usize, commands: Vec<Command>) {
        for command in commands {
            self.tell(|| format!("machine {at}: {}", shown(&command)));
            self.command(at, command);
        }
    }

    fn command(&mut self, at: usize, command: Command) {
        match command {
            Command::Send(message) => self.send(message),
            Command::Ship { to, view, first, last } => self.ship(at, to, view, first..=last),
            Command::ShipPart { to, view, part, through } => self.ship_part(at, to, view, part, through),
            Command::Persist(barrier) => {
                let mark = self.machines[at].medium.mark();
                let delay = self.while_(self.faults.barrier);
                self.work(at, delay, Work::Barrier { barrier, mark });
            }
            Command::Execute(n) => {
                let delay = self.while_(30);
                self.work(at, delay, Work::Execute { n, part: 0 });
            }
            Command::Recover { first, last } => {
                if !self.machines[at].medium.recover(first, last) {
                    self.broken(format!("machine {at} does not have all of {first}..={last}"));
                }
                self.scan(at);
                let delay = self.while_(100);
                self.work(at, delay, Work::Recovered);
            }
            Command::Append(_)
            | Command::Truncate(_)
            | Command::Apply(_)
            | Command::Retire(_)
            | Command::Void(_)
            | Command::Erase
            | Command::Restore(_)
            | Command::Whole(_) => self.write(at, command),
            Command::FetchView if self.machines[at].opened => self.ask(at, Ask::Look),
            Command::FetchView => self.ask(at, Ask::Open),
            Command::Propose(view) => {
                self.coverage.note("proposals");
                self.machines[at].proposal = Some(view.clone());
                self.ask(at, Ask::Propose(view));
            }
            Command::AwaitLeases(view) => self.ask(at, Ask::Await(view)),
            Command::Locked(transaction) => self.run(at, transaction),
            Command::Refused(transaction, refusal) => {
                if refusal == Refusal::Full {
                    self.coverage.note("head full");
                }
                self.machines[at].transactions.remove(&transaction);
                self.event(at, Event::Abort(transaction));
            }
            Command::Commit(transaction, entry) => self.commit(at, transaction, &entry),
            Command::Acknowledged(through) => self.acknowledged(at, through),
            Command::Read(read) => {
                let delay = if self.rng.chance(1, 100) { self.rng.below(40_000) } else { self.while_(30) };
                self.work(at, delay, Work::Copy { read, part: 0 });
            }
            Command::Answer(read) => {
                self.coverage.note("reads");
                if let Some(Reading { begun, lists, .. }) = self.machines[at].reads.remove(&read) {
                    self.history.reads.push(Seen { begun, ended: self.now, lists });
                }
            }
            Command::RefusedRead(read, _) => {
                self.coverage.note("reads refused");
                self.machines[at].reads.remove(&read);
            }
        }
    }

    fn scan(&mut self, at: usize) {
        let scanned = self.machines[at].scan(self.failpoints);
        self.hold(at, scanned);
    }

    fn check_blocks(&mut self, at: usize) {
        let checked = self.machines[at].check_blocks();
        self.hold(at, checked);
    }

    fn write(&mut self, at: usize, command: Command) {
        let anew = matches!(command, Command::Erase | Command::Whole(_));
        let machine = &mut self.machines[at];
        let medium = &mut machine.medium;
        let header = medium.cached.header;
        match command {
            Command::Append(record) => {
                let n = record.entry.number.n;
                medium.write(0, Write::Entry(n, Some(Stored { record, digest: None })));
            }
            Command::Truncate(after) => {
                let behind: Vec<u64> = medium.cached.queue.range(after + 1..).map(|(&n, _)| n).collect();
                if !behind.is_empty() {
                    self.coverage.note("gaps erased");
                }
                behind.into_iter().for_each(|n| medium.write(0, Write::Entry(n, None)));
            }
            Command::Apply(through) => medium.apply(through),
            Command::Retire(retired) => medium.write(0, Write::Header(Header { retired, ..header })),
            Command::Void(id) => {
                self.coverage.note("voided");
                medium.write(0, Write::Header(Header { id, whole: false, retired: 0 }));
                machine.forget();
            }
            Command::Erase => medium.erase(),
            Command::Restore(image) => {
                decode(&image).iter().for_each(|(cell, value)| medium.write_cell(0, *cell, value));
            }
            Command::Whole(retired) => medium.write(0, Write::Header(Header { whole: true, retired, ..header })),
            _ => {}
        }
        if anew {
            self.scan(at);
        }
    }

    fn ship(&mut self, at: usize, to: ReplicaId, view: ViewId, numbers: std::ops::RangeInclusive<u64>) {
        let machine = &self.machines[at];
        let from = machine.medium.cached.header.id;
        let records: Option<Vec<_>> = numbers.clone().map(|n| machine.medium.load(n)).collect();
        match records {
            Some(records) => self.send(Message { view, from, to, body: Body::Records(records) }),
            // As at a node: all have what is retired.
            None if *numbers.start() <= machine.medium.retired() => {}
            None => self.broken(format!("machine {at} cannot read all of {numbers:?}, to send them")),
        }
    }

    fn ship_part(&mut self, at: usize, to: ReplicaId, view: ViewId, part: u32, through: u64) {
        let cached = &self.machines[at].medium.cached;
        let end = (u64::from(part) * PART + PART).min(cached.cells.len() as u64);
        let objects: Vec<Object> = (u64::from(part) * PART..end).map(Object).collect();
        let last = end == cached.cells.len() as u64;
        let body = Body::Part { through, part, last, image: cached.encode(&objects) };
        let from = cached.header.id;
        self.coverage.note(if last { "images" } else { "parts of images" });
        self.send(Message { view, from, to, body });
    }

    pub(super) fn done(&mut self, at: usize, work: Work) {
        match work {
            Work::Tick => {
                self.work(at, TICK, Work::Tick);
                self.event(at, Event::Tick);
                // As a node: what was noted becomes durable though no barrier was asked for.
                if self.machines[at].medium.has_note() {
                    let mark = self.machines[at].medium.mark();
                    let delay = self.while_(self.faults.barrier);
                    self.work(at, delay, Work::Note { mark });
                }
                if let Some(view) = self.machines[at].proposal.clone() {
                    self.ask(at, Ask::Propose(view));
                }
                if self.machines[at].opened && self.rng.chance(1, 2) {
                    self.ask(at, Ask::Look);
                }
            }
            Work::Renew => {
                self.work(at, RENEW, Work::Renew);
                let id = self.machines[at].replica.as_ref().map(crate::Replica::id);
                if let Some(id) = id {
                    self.ask(at, Ask::Renew { id, sent: self.now });
                }
            }
            Work::Barrier { barrier, mark } => {
                self.drain(at, mark);
                self.event(at, Event::Persisted(barrier));
            }
            Work::Note { mark } => self.drain(at, mark),
            Work::Execute { n, part } => self.execute(at, n, part),
            Work::Write { transaction, part } => self.write_part(at, transaction, part),
            Work::Record { transaction } => self.write_record(at, transaction),
            Work::Commit { transaction } => {
                self.machines[at].medium.drain_of(transaction.0);
                if let Some(running) = self.machines[at].transactions.remove(&transaction) {
                    let machine = &mut self.machines[at];
                    for (object, old) in &running.old {
                        let new = machine.medium.cached.cells[*object as usize][BLOCK];
                        machine.learn(running.number, old[BLOCK], new);
                    }
                    self.check_blocks(at);
                    self.event(at, Event::Committed(running.number));
                }
            }
            Work::Copy { read, part } => self.copy(at, read, part),
            Work::Copied { read } => self.event(at, Event::HasRead(read)),
            Work::Recovered => self.event(at, Event::Recovered),
        }
    }

    fn drain(&mut self, at: usize, mark: u64) {
        let machine = &mut self.machines[at];
        machine.medium.drain(mark);
        machine.blocks.release(machine.medium.retired());
        self.check_blocks(at);
    }

    /// Object by object.
    fn execute(&mut self, at: usize, n: u64, part: usize) {
        let Some(record) = self.machines[at].medium.load(n) else { return };
        let cells = decode(&record.bytes);
        match cells.get(part) {
            Some((cell, value)) => {
                let machine = &mut self.machines[at];
                // Of half an image it is not known what is free.
                if machine.medium.cached.header.whole {
                    machine.learn(n, machine.medium.cached.cells[*cell as usize][BLOCK], value[BLOCK]);
                }
                machine.medium.write_cell(0, *cell, value);
                self.check_blocks(at);
                let delay = self.while_(10);
                self.work(at, delay, Work::Execute { n, part: part + 1 });
            }
            None => self.event(at, Event::Executed(n)),
        }
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    pub(super) fn begin(&mut self, at: usize, request: Request) {
        let transaction = TransactionId(self.machines[at].id());
        let objects = |objects: &[u64]| objects.iter().copied().map(Object).collect::<Vec<_>>();
        let (reads, mut writes) = (objects(&request.reads), objects(&request.writes));
        writes.push(Object(request.cell()));
        let slot = request.client as u32;
        let running = Running { request, old: Vec::new(), reply: Vec::new(), number: 0 };
        self.machines[at].transactions.insert(transaction, running);
        self.event(at, Event::Lock { transaction, slot, reads, writes });
    }

    fn run(&mut self, at: usize, transaction: TransactionId) {
        let machine = &mut self.machines[at];
        let Some(running) = machine.transactions.get_mut(&transaction) else { return };
        let request = running.request.clone();
        let cell = machine.medium.cached.cells[request.cell() as usize];
        match judge(request.sequence, cell[0]) {
            Verdict::New => {
                let delay = self.while_(40);
                self.work(at, delay, Work::Write { transaction, part: 0 });
            }
            verdict => {
                machine.transactions.remove(&transaction);
                self.event(at, Event::Abort(transaction));
                if verdict == Verdict::Stored {
                    self.coverage.note("retries answered");
                    let len = request.writes.len() + request.reads.len();
                    self.reply(request.id(), cell[1..=len].to_vec());
                }
            }
        }
    }

    fn write_part(&mut self, at: usize, transaction: TransactionId, part: usize) {
        let Some(running) = self.machines[at].transactions.get(&transaction) else { return };
        let takes = running.request.writes.len() > part;
        let wanted = block_len(running.request.id(), self.now);
        let machine = &mut self.machines[at];
        let block = if takes { machine.reserve(wanted) } else { None };
        if takes && block.is_none() {
            self.coverage.note("no block given");
            self.undo(at, transaction);
            self.machines[at].transactions.remove(&transaction);
            return self.event(at, Event::Abort(transaction));
        }
        let machine = &mut self.machines[at];
        let Some(running) = machine.transactions.get_mut(&transaction) else { return };
        let request = &running.request;
        let medium = &mut machine.medium;
        if let Some(&object) = request.writes.get(part) {
            let mut cell = medium.cached.cells[object as usize];
            running.old.push((object, cell));
            running.reply.push(cell[0]);
            cell[0] += 1;
            cell[cell[0] as usize] = request.id();
            cell[BLOCK] = block.map_or(0, word);
            copy_first(medium, object);
            medium.write_cell(transaction.0, object, &cell);
            let delay = self.while_(30);
            return self.work(at, delay, Work::Write { transaction, part: part + 1 });
        }
        let lens = request.reads.iter().map(|&object| medium.cached.cells[object as usize][0]);
        running.reply.extend(lens);
        let object = request.cell();
        let mut cell = medium.cached.cells[object as usize];
        running.old.push((object, cell));
        cell[0] = request.sequence;
        cell[1..=running.reply.len()].copy_from_slice(&running.reply);
        if !self.failpoints.skips(Step::StoreReply) {
            copy_first(medium, object);
            medium.write_cell(transaction.0, object, &cell);
        }
        if self.rng.chance(1, 15) {
            self.coverage.note("aborts");
            self.undo(at, transaction);
            self.machines[at].transactions.remove(&transaction);
            return self.event(at, Event::Abort(transaction));
        }
        self.event(at, Event::Commit(transaction));
    }

    fn undo(&mut self, at: usize, transaction: TransactionId) {
        let machine = &mut self.machines[at];
        let Some(running) = machine.transactions.get(&transaction) else { return };
        for (object, old) in &running.old {
            let new = machine.medium.cached.cells[*object as usize][BLOCK];
            if let Some((start, _)) = extent(new).filter(|_| new != old[BLOCK]) {
                machine.blocks.unreserve(start);
            }
            machine.medium.write_cell(transaction.0, *object, old);
        }
    }

    fn commit(&mut self, at: usize, transaction: TransactionId, entry: &crate::Entry) {
        let Some(running) = self.machines[at].transactions.get_mut(&transaction) else { return };
        running.number = entry.number.n;
        let (id, reply) = (running.request.id(), running.reply.clone());
        self.machines[at].tickets.insert(entry.number.n, (id, reply));
        self.history.numbers.entry(id).or_default().insert((entry.number.view, self.now), entry.number.n);
        self.coverage.note("commits");
        self.machines[at].committing.insert(transaction, entry.clone());
        let delay = self.while_(40);
        self.work(at, delay, Work::Record { transaction });
    }

    fn write_record(&mut self, at: usize, transaction: TransactionId) {
        let Some(entry) = self.machines[at].committing.remove(&transaction) else { return };
        let n = entry.number.n;
        if self.rng.chance(self.faults.failing, 1000) {
            self.coverage.note("commits failed");
            self.undo(at, transaction);
            self.machines[at].transactions.remove(&transaction);
            self.machines[at].tickets.remove(&n);
            return self.event(at, Event::CommitFailed(n));
        }
        let long = self.rng.chance(1, 2);
        let medium = &mut self.machines[at].medium;
        let bytes = medium.cached.encode(&entry.objects);
        let (bytes, digest) = if long { (Vec::new(), Some(digest(&bytes))) } else { (bytes, None) };
        let record = crate::Record { entry, bytes };
        medium.write(transaction.0, Write::Entry(n, Some(Stored { record, digest })));
        let delay = self.while_(40);
        self.work(at, delay, Work::Commit { transaction });
    }

    fn acknowledged(&mut self, at: usize, through: u64) {
        let waiting = &mut self.machines[at].tickets;
        let rest = waiting.split_off(&(through + 1));
        let told = std::mem::replace(waiting, rest);
        told.into_values().for_each(|(id, reply)| self.reply(id, reply));
    }

    fn reply(&mut self, id: u64, reply: Reply) {
        match self.history.replied(id, self.now, reply) {
            Ok(_) => {
                let (client, sequence) = ((id >> 32) - 1, id & u64::from(u32::MAX));
                // It may be lost on the way: then the client asks again.
                if !self.rng.chance(self.faults.lost, 1000) {
                    self.outstanding[client as usize].remove(&sequence);
                }
            }
            Err(violation) => self.broken(violation),
        }
    }

    // ---- reads ------------------------------------------------------------------------------------------------

    pub(super) fn begin_read(&mut self, at: usize, objects: Vec<u64>) {
        let read = ReadId(self.machines[at].id());
        let wanted = objects.iter().copied().map(Object).collect();
        self.machines[at].reads.insert(read, Reading { begun: self.now, objects, lists: Vec::new() });
        self.event(at, Event::Read { read, objects: wanted });
    }

    fn copy(&mut self, at: usize, read: ReadId, part: usize) {
        let machine = &mut self.machines[at];
        let Some(reading) = machine.reads.get_mut(&read) else { return };
        let Some(&object) = reading.objects.get(part) else {
            let delay = self.while_(20);
            return self.work(at, delay, Work::Copied { read });
        };
        let cell = &machine.medium.cached.cells[object as usize];
        reading.lists.push((object, list(cell).to_vec()));
        // A reader's thread may sleep.
        let delay = if self.rng.chance(1, 100) { self.rng.below(40_000) } else { self.while_(20) };
        self.work(at, delay, Work::Copy { read, part: part + 1 });
    }
}

/// Of what changes there is a copy.
fn copy_first(medium: &mut super::medium::Medium, object: u64) {
    if !medium.cached.copies.contains_key(&object) {
        let cell: Cell = medium.cached.cells[object as usize];
        medium.write_through(&Write::Copy(object, Some(Box::new(cell))));
    }
}

/// Each append gives its object another block, of any length.
fn block_len(id: u64, now: u64) -> u64 {
    let mixed = (id ^ now << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    32 * (1 + (mixed >> 50) % 8)
}

fn shown(command: &Command) -> String {
    let text = format!("{command:?}");
    let short: String = text.chars().take(300).collect();
    short
}
