//! A random history: requests, reads, faults; in the end all faults are over, and everything must be as if there had been none.

use super::history::{CLIENTS, Done, History, OBJECTS, Request, WIDTH};
use super::machine::Machine;
use super::medium::Medium;
use super::service::Ask;
use super::world::{Coverage, Faults, Item, World};
use crate::failpoints::{Failpoints, Step};
use crate::{Replica, ReplicaId, Stage, View};

/// Faults happen until then, in microseconds.
const FAULTS_UNTIL: u64 = 250_000;
/// ... and everything is at rest at the latest by then.
const END: u64 = 4_000_000;

pub(super) fn run(seed: u64, without: Option<Step>) -> Result<Coverage, String> {
    let mut rng = crash::Rng::seeded(seed ^ 0x5eed);
    let members = [1, 2, 2, 3, 3, 3, 4][rng.index(7)];
    let calm = rng.chance(1, 6);
    let faults = if calm {
        Faults { lost: 0, twice: 0, slow: 0, failing: 0, barrier: 40 }
    } else {
        let lost = [0, 5, 30, 100][rng.index(4)];
        Faults { lost, twice: 30, slow: [0, 20, 80][rng.index(3)], failing: 60, barrier: [40, 40, 1500][rng.index(3)] }
    };
    let first = if rng.chance(1, 4) { 1 + rng.below(u64::from(members)) as u32 } else { members };
    let mut world = World::new(seed, members, first, faults, Failpoints(without));
    world.later(rng.below(20_000), Item::Fault);
    let result = play(&mut world);
    result
        .map(|()| std::mem::take(&mut world.coverage))
        .map_err(|what| format!("{members} members, {faults:?}, at {} µs: {what}", world.now))
}

fn play(world: &mut World) -> Result<(), String> {
    while world.now < FAULTS_UNTIL {
        advance(world)?;
    }
    world.coverage.note("schedules");
    world.repair();
    rest(world)?;
    // And once more, with nothing but what is durable.
    for at in 0..world.machines.len() {
        world.power_cut(at);
    }
    world.coverage.note("all down");
    (0..world.machines.len()).for_each(|at| world.start(at));
    rest(world)
}

fn advance(world: &mut World) -> Result<(), String> {
    world.step();
    world.violation.take().map_or(Ok(()), Err)
}

/// Until all is done; then everything is checked.
fn rest(world: &mut World) -> Result<(), String> {
    let end = world.now + END;
    while !world.is_at_rest() {
        if world.now > end {
            return Err(format!("no progress: {}", world.state()));
        }
        advance(world)?;
    }
    let cells = &world.machines[0].medium.cached.cells;
    for (at, machine) in world.machines.iter().enumerate() {
        if let Some(object) = (0..cells.len()).find(|&object| machine.medium.cached.cells[object] != cells[object]) {
            return Err(format!("machine {at} differs from machine 0 in object {object}"));
        }
    }
    let history: &History = &world.history;
    history.check(cells)
}

impl World {
    // ---- clients ----------------------------------------------------------------------------------------------

    pub(super) fn client(&mut self, client: u64) {
        let at = client as usize;
        // As many as can be under way, at once; then none for a while.
        let bursts = self.outstanding[at].is_empty() && (self.is_mended || self.rng.chance(1, 8));
        while bursts && (self.outstanding[at].len() as u64) < WIDTH && self.next_sequence[at] <= self.sequences {
            let sequence = self.next_sequence[at];
            self.next_sequence[at] += 1;
            let request = self.request(client, sequence);
            let done = Done { request: request.clone(), first_asked: self.now, replied: None };
            self.history.requests.insert(request.id(), done);
            self.outstanding[at].insert(sequence, request);
        }
        let requests: Vec<Request> = self.outstanding[at].values().cloned().collect();
        if requests.is_empty() && self.next_sequence[at] > self.sequences {
            return;
        }
        for request in requests {
            let machine = self.head_or_any();
            let delay = self.while_(300);
            self.later(delay, Item::Ask(machine, request));
        }
        // Again, if it is not answered.
        if !self.items().any(|item| matches!(item, Item::Client(c) if *c == client)) {
            let delay = 500 + self.rng.below(5000);
            self.later(delay, Item::Client(client));
        }
    }

    fn request(&mut self, client: u64, sequence: u64) -> Request {
        let mut objects: Vec<u64> = (0..OBJECTS).collect();
        let writes = 1 + self.rng.index(2);
        let reads = self.rng.index(2);
        let mut take =
            |many: usize| (0..many).map(|_| objects.swap_remove(self.rng.index(objects.len()))).collect::<Vec<u64>>();
        let (writes, reads) = (take(writes), take(reads));
        Request { client, sequence, writes, reads }
    }

    fn head_or_any(&mut self) -> usize {
        let head = self.service.view.head().filter(|_| self.rng.chance(4, 5));
        head.map_or_else(|| self.rng.index(self.machines.len()), |id| id.machine as usize)
    }

    pub(super) fn reader(&mut self) {
        if self.is_mended {
            return;
        }
        let first = self.rng.below(OBJECTS);
        let second = self.rng.below(OBJECTS);
        let objects = if first == second { vec![first] } else { vec![first, second] };
        let at = self.rng.index(self.machines.len());
        self.later(1, Item::AskRead(at, objects));
        let delay = self.while_(600);
        self.later(delay, Item::Reader);
    }

    // ---- faults -----------------------------------------------------------------------------------------------

    pub(super) fn fault(&mut self) {
        if self.now >= FAULTS_UNTIL {
            return;
        }
        let at = self.rng.index(self.machines.len());
        let soon = 200 + self.rng.below(6000);
        let long = 20_000 + self.rng.below(60_000);
        let back = if self.rng.chance(1, 2) { soon } else { long };
        match self.rng.index(17) {
            0 | 1 => {
                self.coverage.note("kills");
                self.stop(at);
                self.later(back, Item::Start(at));
            }
            2..=4 => {
                self.coverage.note("power cuts");
                self.power_cut(at);
                self.later(back, Item::Start(at));
            }
            5 | 6 => self.lose(at, back),
            7 => {
                self.coverage.note("pauses");
                self.machines[at].paused_until = self.now + back;
            }
            8 | 9 => {
                let other = self.rng.index(self.machines.len());
                self.coverage.note("partitions");
                self.cut.insert((at, other));
                if self.rng.chance(2, 3) {
                    self.cut.insert((other, at));
                }
                self.later(back, Item::Heal);
            }
            10 => {
                self.coverage.note("service away");
                self.service.away = true;
                self.later(back, Item::ServiceBack);
            }
            11 => {
                self.coverage.note("all down");
                let killed = self.rng.chance(1, 3);
                for at in 0..self.machines.len() {
                    if killed {
                        self.stop(at)
                    } else {
                        self.power_cut(at)
                    }
                    let delay = back + self.rng.below(4000);
                    self.later(delay, Item::Start(at));
                }
            }
            12 | 13 => {
                self.coverage.note("cut off from the service");
                self.unheard.insert(at);
                self.later(long, Item::Heal);
            }
            // A machine that has a part of a copy is back at once: what was sent to it is still under way.
            14 | 15 => {
                let stage = |machine: &Machine| machine.replica.as_ref().map(Replica::stage);
                if let Some(at) = self.machines.iter().position(|machine| stage(machine) == Some(Stage::Restoring)) {
                    self.coverage.note("kills of who gets a copy");
                    self.stop(at);
                    self.later(soon / 4, Item::Start(at));
                }
            }
            // A process dies, and the machine a little later.
            _ => {
                self.coverage.note("kills, then power cuts");
                self.stop(at);
                self.start(at);
                for _ in 0..self.rng.below(200) {
                    self.step();
                }
                self.power_cut(at);
                self.later(soon, Item::Start(at));
            }
        }
        let delay = self.rng.below(30_000);
        self.later(delay, Item::Fault);
    }

    pub(super) fn power_cut(&mut self, at: usize) {
        self.stop(at);
        self.machines[at].medium.power_cut(&mut self.rng);
    }

    /// The machine is lost with its medium; another one stands in its place later. Not, if it is the last that has everything.
    fn lose(&mut self, at: usize, back: u64) {
        let has = |id: &ReplicaId| {
            let header = self.machines[id.machine as usize].medium.cached.header;
            id.machine as usize != at && header.id == *id && header.whole
        };
        let survives = |view: &View| view.members.iter().any(has);
        let under_way = |item: &Item| match item {
            Item::ToService { ask: Ask::Propose(view), .. } => !survives(view),
            _ => false,
        };
        if !survives(&self.service.view) || self.items().any(under_way) {
            return;
        }
        self.coverage.note("machines lost");
        self.stop(at);
        let ReplicaId { machine, incarnation } = self.machines[at].medium.cached.header.id;
        let id = ReplicaId { machine, incarnation: incarnation + 1000 };
        self.machines[at].medium = Medium::new(id, false, (OBJECTS + CLIENTS * WIDTH) as usize);
        self.later(back, Item::Start(at));
    }

    // ---- the end ----------------------------------------------------------------------------------------------

    pub(super) fn repair(&mut self) {
        self.faults = Faults { lost: 0, twice: 0, slow: 0, failing: 0, barrier: 40 };
        self.cut.clear();
        self.unheard.clear();
        self.service.away = false;
        self.is_mended = true;
        self.machines.iter_mut().for_each(|machine| machine.paused_until = 0);
        (0..self.machines.len()).for_each(|at| self.start(at));
    }

    /// Everything asked is answered, every machine is a member, and nothing is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        let asked = self.next_sequence.iter().all(|&next| next > self.sequences);
        if !asked || self.outstanding.iter().any(|requests| !requests.is_empty()) {
            return false;
        }
        let progress = |machine: &super::machine::Machine| {
            let replica = machine.replica.as_ref()?;
            let view = replica.serves()?;
            let p = replica.progress();
            let still = p.last == p.executed && p.executed == p.acknowledged && p.acknowledged == p.retired;
            (still && view.id == self.service.view.id && machine.transactions.is_empty()).then_some(p.last)
        };
        let first = progress(&self.machines[0]);
        first.is_some() && self.machines.iter().all(|machine| progress(machine) == first)
    }

    fn state(&self) -> String {
        let replica = |machine: &super::machine::Machine| {
            let replica = machine.replica.as_ref();
            replica.map(|replica| (replica.id(), replica.serves().map(|view| view.id), replica.progress()))
        };
        let replicas: Vec<_> = self.machines.iter().map(replica).collect();
        format!("{:?}, waiting {:?}, {replicas:?}", self.service.view, self.outstanding)
    }
}
