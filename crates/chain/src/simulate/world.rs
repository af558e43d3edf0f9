//! All machines, the network, the membership service, the clients, and time.

use std::collections::{BTreeMap, BTreeSet};

use crash::Rng;

use super::history::{CLIENTS, History, OBJECTS, Request, WIDTH};
use super::machine::{Machine, Work, moment};
use super::medium::Medium;
use super::service::{Answer, Ask, Service};
use crate::failpoints::{Failpoints, Step};
use crate::{Body, Event, Message, Mode, Replica, ReplicaId, View, ViewId};

/// How bad the network is, of a thousand messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) slow: u64,
    /// Commits that fail, of a thousand.
    pub(super) failing: u64,
    /// Microseconds that a barrier takes, seldom more.
    pub(super) barrier: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Item {
    Deliver(Message),
    Ask(usize, Request),
    AskRead(usize, Vec<u64>),
    Work { machine: usize, boot: u64, work: Work },
    ToService { machine: usize, boot: u64, ask: Ask },
    FromService { machine: usize, boot: u64, answer: Answer },
    Client(u64),
    Reader,
    Start(usize),
    Fault,
    Heal,
    ServiceBack,
}

/// How often each thing happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage(pub(super) BTreeMap<&'static str, u64>);

impl Coverage {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Item>,
    pub(super) machines: Vec<Machine>,
    pub(super) service: Service,
    pub(super) faults: Faults,
    /// From, to.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// Machines that the service does not hear.
    pub(super) unheard: BTreeSet<usize>,
    pub(super) history: History,
    /// Of each client: requests that wait for a reply.
    pub(super) outstanding: Vec<BTreeMap<u64, Request>>,
    pub(super) next_sequence: Vec<u64>,
    pub(super) sequences: u64,
    pub(super) violation: Option<String>,
    pub(super) failpoints: Failpoints,
    pub(super) coverage: Coverage,
    /// No more faults.
    pub(super) is_mended: bool,
    tells: bool,
}

impl World {
    /// The first view has the first of the machines; the others join.
    pub(super) fn new(seed: u64, machines: u32, first: u32, faults: Faults, failpoints: Failpoints) -> Self {
        let ids: Vec<ReplicaId> = (0..machines).map(|machine| ReplicaId { machine, incarnation: 0 }).collect();
        let cells = (OBJECTS + CLIENTS * WIDTH) as usize;
        let members = ids[..first as usize].to_vec();
        let view = View { id: ViewId(1), members, f: machines - 1, mode: Mode::Values };
        let medium = |&id: &ReplicaId| Machine::new(Medium::new(id, view.contains(id), cells));
        let mut world = Self {
            rng: Rng::seeded(seed),
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            machines: ids.iter().map(medium).collect(),
            service: Service::new(view, !failpoints.skips(Step::GuardSession)),
            faults,
            cut: BTreeSet::new(),
            unheard: BTreeSet::new(),
            history: History::default(),
            outstanding: vec![BTreeMap::new(); CLIENTS as usize],
            next_sequence: vec![1; CLIENTS as usize],
            sequences: 15,
            violation: None,
            failpoints,
            coverage: Coverage::default(),
            is_mended: false,
            tells: std::env::var_os("CAIRN_TELL").is_some(),
        };
        (0..machines as usize).for_each(|machine| world.start(machine));
        (0..CLIENTS).for_each(|client| world.later(1, Item::Client(client)));
        world.later(1, Item::Reader);
        world
    }

    /// Prints what happens, with CAIRN_TELL=1.
    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{}: {}", self.now, what());
        }
    }

    pub(super) fn broken(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn hold(&mut self, at: usize, checked: Result<(), String>) {
        checked.unwrap_or_else(|what| self.broken(format!("machine {at}: {what}")));
    }

    pub(super) fn later(&mut self, delay: u64, item: Item) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), item);
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.queue.values()
    }

    pub(super) fn work(&mut self, machine: usize, delay: u64, work: Work) {
        let boot = self.machines[machine].boot;
        self.later(delay, Item::Work { machine, boot, work });
    }

    /// A short while, seldom a long one.
    pub(super) fn while_(&mut self, longest: u64) -> u64 {
        let longest = if self.rng.chance(1, 40) { longest * 20 } else { longest };
        1 + self.rng.below(longest)
    }

    // ---- processes --------------------------------------------------------------------------------------------

    pub(super) fn start(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if machine.replica.is_some() {
            return;
        }
        machine.boot += 1;
        machine.opened = false;
        machine.allocates_in = None;
        let found = machine.medium.found();
        let (replica, commands) = Replica::start_without(found.clone(), self.failpoints);
        machine.replica = Some(replica);
        self.tell(|| format!("machine {at} starts with {found:?}"));
        let delay = self.rng.below(2000);
        self.work(at, delay, Work::Tick);
        self.work(at, delay, Work::Renew);
        self.ask(at, Ask::Open);
        self.carry_out(at, commands);
    }

    pub(super) fn stop(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.replica = None;
        machine.boot += 1;
        machine.forget();
    }

    pub(super) fn event(&mut self, at: usize, event: Event) {
        let now = moment(self.now);
        let Some(replica) = &mut self.machines[at].replica else { return };
        let commands = replica.step(now, event);
        self.machines[at].note_allocates();
        self.carry_out(at, commands);
    }

    // ---- network ----------------------------------------------------------------------------------------------

    pub(super) fn send(&mut self, message: Message) {
        let (from, to) = (message.from.machine as usize, message.to.machine as usize);
        let copies = 1 + u64::from(self.rng.chance(self.faults.twice, 1000));
        for _ in 0..copies {
            if self.cut.contains(&(from, to)) || self.rng.chance(self.faults.lost, 1000) {
                continue;
            }
            let slow = self.rng.chance(self.faults.slow, 1000);
            let delay = 2 + self.rng.below(if slow { 40_000 } else { 150 });
            // An image is long: a joiner asks again meanwhile, and the chain goes on.
            let long = matches!(message.body, Body::Part { .. }) && self.rng.chance(1, 2);
            let delay = delay + if long { self.rng.below(10_000) } else { 0 };
            self.later(delay, Item::Deliver(message.clone()));
        }
    }

    pub(super) fn ask(&mut self, machine: usize, ask: Ask) {
        let boot = self.machines[machine].boot;
        let delay = self.while_(400);
        self.later(delay, Item::ToService { machine, boot, ask });
    }

    // ---- time -------------------------------------------------------------------------------------------------

    /// The next thing happens. False: there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some(((at, _), item)) = self.queue.pop_first() else { return false };
        self.now = self.now.max(at);
        self.happen(item);
        true
    }

    fn happen(&mut self, item: Item) {
        let machine = match &item {
            Item::Deliver(message) => Some(message.to.machine as usize),
            Item::Ask(machine, _) | Item::AskRead(machine, _) => Some(*machine),
            Item::Work { machine, .. } | Item::FromService { machine, .. } => Some(*machine),
            _ => None,
        };
        if let Some(at) = machine {
            let until = self.machines[at].paused_until;
            if until > self.now {
                return self.later(until - self.now, item);
            }
            if self.machines[at].replica.is_none() {
                return;
            }
        }
        match item {
            Item::Deliver(message) => self.event(message.to.machine as usize, Event::Message(message)),
            Item::Ask(machine, request) => self.begin(machine, request),
            Item::AskRead(machine, objects) => self.begin_read(machine, objects),
            Item::Work { machine, boot, work } if boot == self.machines[machine].boot => self.done(machine, work),
            Item::ToService { machine, boot, ask } if !self.service.away && !self.unheard.contains(&machine) => {
                let answer = self.service.answer(self.now, machine as u32, boot, ask);
                if let Some(answer) = answer {
                    let delay = self.while_(200);
                    self.later(delay, Item::FromService { machine, boot, answer });
                }
            }
            // What was asked may be done, and the answer lost.
            Item::FromService { machine, boot, answer }
                if boot == self.machines[machine].boot && !self.service.away && !self.unheard.contains(&machine) =>
            {
                self.answered(machine, answer);
            }
            Item::Client(client) => self.client(client),
            Item::Reader => self.reader(),
            Item::Start(machine) => self.start(machine),
            Item::Fault => self.fault(),
            Item::Heal => {
                self.cut.clear();
                self.unheard.clear();
            }
            Item::ServiceBack => self.service.away = false,
            Item::Work { .. } | Item::ToService { .. } | Item::FromService { .. } => {}
        }
    }

    fn answered(&mut self, at: usize, answer: Answer) {
        match answer {
            Answer::Opened(view) => {
                self.machines[at].opened = true;
                self.event(at, Event::View(view));
            }
            // Views that were asked for before the session was open may be old.
            Answer::Seen(view, lapsed) if self.machines[at].opened => {
                self.event(at, Event::View(view));
                lapsed.into_iter().for_each(|id| self.event(at, Event::Lapsed(id)));
            }
            Answer::Proposed { proposal, view } => {
                self.tell(|| format!("machine {at} hears of its proposal: {view:?}"));
                if self.machines[at].proposal.as_ref().is_some_and(|mine| mine.id <= proposal) {
                    self.machines[at].proposal = None;
                }
                self.event(at, Event::Proposed { proposal, view });
            }
            Answer::Renewed { id, until } => self.event(at, Event::Lease { id, until: moment(until) }),
            Answer::Ended(view) => self.event(at, Event::LeasesEnded(view)),
            Answer::Seen(..) => {}
        }
    }
}
