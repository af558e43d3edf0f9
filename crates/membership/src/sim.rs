//! Candidates and holders against a model of etcd: requests that are late, lost or answered by a leader that has been deposed, clocks
//! of different speed, pauses and crashes. No process may hold what another one holds, and terms rise.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::candidate::{self, Candidate, LeaderKey};
use crate::clock::Moment;
use crate::holding::{self, Failpoints, Holding};

const MS: u64 = 1_000_000;
const TTL: Duration = Duration::from_secs(10);
const CLIENTS: usize = 3;
/// A clock gains or loses so much at most.
const DRIFT_PPM: u64 = 19_000;
const RUN: u64 = 600_000 * MS;

/// What one member of etcd says of leases while it takes itself for the leader.
#[derive(Clone, Default)]
struct Primary {
    raft_term: u64,
    expiry: BTreeMap<i64, u64>,
}

#[derive(Default)]
struct Store {
    revision: u64,
    /// Lease, and the revision that created it.
    key: Option<(i64, u64)>,
    primary: Primary,
    /// Deposed, does not know it yet, until then.
    stale: Option<(Primary, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Look,
    Grant,
    Claim(i64),
    Revoke(i64),
    Renew(i64),
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    LeaderKey(LeaderKey, u64),
    Granted(i64),
    Won(u64),
    NotWon,
    Revoked,
    Renewed(u64),
    Gone,
    None,
}

impl Store {
    fn expire(&mut self, now: u64) {
        if self.stale.as_ref().is_some_and(|(_, until)| now >= *until) {
            self.stale = None;
        }
        let gone: Vec<i64> = self.primary.expiry.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|lease| self.revoke(lease));
    }

    fn revoke(&mut self, lease: i64) {
        self.primary.expiry.remove(&lease);
        if self.key.is_some_and(|(bound, _)| bound == lease) {
            self.key = None;
            self.revision += 1;
        }
    }

    fn depose(&mut self, now: u64, knows_at: u64) {
        self.stale = Some((self.primary.clone(), knows_at));
        self.primary.raft_term += 1;
        self.primary.expiry.values_mut().for_each(|at| *at = now + TTL.as_nanos() as u64);
    }

    /// `stale`: the request came to the deposed leader, which can renew and nothing else.
    fn answer(&mut self, now: u64, ask: Ask, stale: bool) -> Answer {
        let renewed = now + TTL.as_nanos() as u64;
        if let Some((old, _)) = self.stale.as_mut().filter(|_| stale) {
            let Ask::Renew(lease) = ask else { return Answer::None };
            let Some(at) = old.expiry.get_mut(&lease) else { return Answer::Gone };
            *at = renewed;
            return Answer::Renewed(old.raft_term);
        }
        match ask {
            Ask::Look => {
                let key = self.key.map_or(LeaderKey::Vacant, |(lease, term)| LeaderKey::Taken { lease, term });
                Answer::LeaderKey(key, self.primary.raft_term)
            }
            Ask::Grant => {
                self.revision += 1;
                let lease = self.revision as i64;
                self.primary.expiry.insert(lease, renewed);
                Answer::Granted(lease)
            }
            Ask::Claim(lease) if !self.primary.expiry.contains_key(&lease) => Answer::Gone,
            Ask::Claim(_) if self.key.is_some() => Answer::NotWon,
            Ask::Claim(lease) => {
                self.revision += 1;
                self.key = Some((lease, self.revision));
                Answer::Won(self.revision)
            }
            Ask::Revoke(lease) => {
                self.revoke(lease);
                Answer::Revoked
            }
            Ask::Renew(lease) => match self.primary.expiry.get_mut(&lease) {
                Some(at) => {
                    *at = renewed;
                    Answer::Renewed(self.primary.raft_term)
                }
                None => Answer::Gone,
            },
        }
    }
}

enum Role {
    Candidate(Candidate),
    Holder { holding: Holding, lease: i64 },
}

struct Client {
    drift_ppm: i64,
    offset: u64,
    /// Answers to earlier requests are not looked at any more.
    request: u64,
    /// An answer is waited for, not a time.
    asking: bool,
    paused_until: u64,
    role: Role,
}

impl Client {
    fn local(&self, now: u64) -> Moment {
        let drift = i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        Moment::from_ns((i128::from(self.offset) + i128::from(now) + drift) as u64)
    }

    /// How long the world waits while this clock does.
    fn real(&self, wait: Duration) -> u64 {
        (wait.as_nanos() as i128 * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm))) as u64 + 1
    }

    fn holds(&self, now: u64) -> bool {
        matches!(&self.role, Role::Holder { holding, .. } if self.local(now) < holding.held_until())
    }
}

enum Item {
    Arrive { client: usize, request: u64, ask: Ask },
    Reply { client: usize, request: u64, answer: Answer },
    Wake { client: usize, request: u64 },
    Depose,
    Pause,
    Crash,
}

#[derive(Debug, Default)]
struct Seen {
    elections: u64,
    by_reading: u64,
    renewed_by_the_deposed: u64,
    expired: u64,
}

struct World {
    rng: Xoshiro256PlusPlus,
    now: u64,
    turn: u64,
    queue: BTreeMap<(u64, u64), Item>,
    store: Store,
    clients: Vec<Client>,
    failpoints: Option<Failpoints>,
    last_term: u64,
    seen: Seen,
    violation: Option<String>,
}

impl World {
    fn run(seed: u64, failpoints: Option<Failpoints>) -> (Seen, Option<String>) {
        let mut world = World {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: 0,
            turn: 0,
            queue: BTreeMap::new(),
            store: Store::default(),
            clients: Vec::new(),
            failpoints,
            last_term: 0,
            seen: Seen::default(),
            violation: None,
        };
        for client in 0..CLIENTS {
            let drift_ppm = world.below(2 * DRIFT_PPM) as i64 - DRIFT_PPM as i64;
            let offset = world.below(1 << 40);
            let role = Role::Candidate(Candidate::new(Moment::from_ns(u64::MAX), Duration::from_millis(100)));
            world.clients.push(Client { drift_ppm, offset, request: 0, asking: false, paused_until: 0, role });
            world.wake(client, 0);
        }
        for item in [Item::Depose, Item::Pause, Item::Crash] {
            world.later(15_000, item);
        }
        while let Some(((now, _), item)) = world.queue.pop_first()
            && now < RUN
            && world.violation.is_none()
        {
            world.now = now;
            world.store.expire(now);
            world.happen(item);
            let holders = world.clients.iter().filter(|client| client.holds(now)).count();
            if holders > 1 {
                world.violation = Some(format!("seed {seed}: {holders} hold it at {} ms", now / MS));
            }
        }
        (world.seen, world.violation)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.next_u64() % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn at(&mut self, time: u64, item: Item) {
        self.turn += 1;
        self.queue.insert((time, self.turn), item);
    }

    /// Within twice so many milliseconds.
    fn later(&mut self, mean_ms: u64, item: Item) {
        let wait = self.below(2 * mean_ms * MS);
        self.at(self.now + wait, item);
    }

    fn message(&mut self, item: Item) {
        if self.chance(5) {
            return;
        }
        let mean_ms = if self.chance(10) { 3000 } else { 5 };
        self.later(mean_ms, item);
    }

    fn wake(&mut self, client: usize, after: u64) {
        let request = self.clients[client].request;
        self.at(self.now + after, Item::Wake { client, request });
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::Arrive { client, request, ask } => {
                let stale = self.store.stale.is_some() && self.chance(50);
                let answer = self.store.answer(self.now, ask, stale);
                self.seen.renewed_by_the_deposed += u64::from(stale && matches!(answer, Answer::Renewed(_)));
                self.message(Item::Reply { client, request, answer });
            }
            Item::Reply { client, .. } | Item::Wake { client, .. } if self.now < self.clients[client].paused_until => {
                self.at(self.clients[client].paused_until, item);
            }
            Item::Reply { client, request, answer } => {
                if self.clients[client].request == request {
                    self.step(client, Some(answer));
                }
            }
            Item::Wake { client, request } => {
                if self.clients[client].request == request {
                    self.step(client, None);
                }
            }
            Item::Depose => {
                let knows_at = self.now + self.below(20_000 * MS);
                self.store.depose(self.now, knows_at);
                self.later(15_000, Item::Depose);
            }
            Item::Pause => {
                let client = self.below(CLIENTS as u64) as usize;
                self.clients[client].paused_until = self.now + self.below(15_000 * MS);
                self.later(15_000, Item::Pause);
            }
            Item::Crash => {
                let client = self.below(CLIENTS as u64) as usize;
                self.stand(client);
                self.later(60_000, Item::Crash);
            }
        }
    }

    fn stand(&mut self, client: usize) {
        let deadline = self.clients[client].local(self.now) + Duration::from_secs(60);
        self.clients[client].role = Role::Candidate(Candidate::new(deadline, Duration::from_millis(100)));
        self.clients[client].request += 1;
        self.clients[client].asking = false;
        self.wake(client, 0);
    }

    fn ask(&mut self, client: usize, within: Duration, ask: Ask) {
        let request = self.clients[client].request;
        self.clients[client].asking = true;
        self.message(Item::Arrive { client, request, ask });
        let real = self.clients[client].real(within);
        self.wake(client, real);
    }

    fn rest(&mut self, client: usize, until: Moment) {
        let wait = self.clients[client].local(self.now).until(until).min(Duration::from_millis(300));
        let real = self.clients[client].real(wait);
        self.wake(client, real);
    }

    /// Without an answer either the timeout has passed, or a time has come.
    fn step(&mut self, index: usize, answer: Option<Answer>) {
        self.clients[index].request += 1;
        let asked = std::mem::take(&mut self.clients[index].asking);
        let now = self.clients[index].local(self.now);
        match &mut self.clients[index].role {
            Role::Candidate(candidate) => {
                let event = match answer {
                    None if asked => candidate::Event::NoAnswer,
                    None => candidate::Event::Woke,
                    Some(Answer::LeaderKey(key, _)) => candidate::Event::Found(key),
                    Some(Answer::Granted(lease)) => candidate::Event::Granted { lease, ttl: TTL },
                    Some(Answer::Won(term)) => candidate::Event::Won { term },
                    Some(Answer::NotWon) => candidate::Event::NotWon,
                    Some(Answer::Revoked) => candidate::Event::Revoked,
                    Some(Answer::Renewed(_) | Answer::Gone | Answer::None) => candidate::Event::NoAnswer,
                };
                let read = matches!(event, candidate::Event::Found(_));
                let action = candidate.step(now, event);
                self.stand_on(index, action, read);
            }
            Role::Holder { .. } => {
                let event = match answer {
                    None if asked => holding::Event::NoAnswer,
                    None => holding::Event::Woke,
                    Some(Answer::Renewed(raft_term)) => holding::Event::Renewed { ttl: TTL, raft_term },
                    Some(Answer::LeaderKey(key, raft_term)) => {
                        let Role::Holder { lease, .. } = self.clients[index].role else { return };
                        let ours = matches!(key, LeaderKey::Taken { lease: bound, .. } if bound == lease);
                        holding::Event::Found { ours, raft_term }
                    }
                    Some(Answer::Gone) => holding::Event::Gone,
                    Some(_) => holding::Event::NoAnswer,
                };
                let resigns = self.chance(2);
                let Role::Holder { holding, lease } = &mut self.clients[index].role else { return };
                let (action, lease) = (holding.step(now, if resigns { holding::Event::Stop } else { event }), *lease);
                match action {
                    holding::Action::Rest(until) => self.rest(index, until),
                    holding::Action::Renew(within) => self.ask(index, within, Ask::Renew(lease)),
                    holding::Action::Look(within) => self.ask(index, within, Ask::Look),
                    holding::Action::Over(why) => {
                        self.seen.expired += u64::from(why == crate::Why::Expired);
                        self.message(Item::Arrive { client: index, request: 0, ask: Ask::Revoke(lease) });
                        self.stand(index);
                    }
                }
            }
        }
    }

    fn stand_on(&mut self, index: usize, action: candidate::Action, read: bool) {
        let within = Duration::from_secs(1);
        match action {
            candidate::Action::Look => self.ask(index, within, Ask::Look),
            candidate::Action::Grant => self.ask(index, within, Ask::Grant),
            candidate::Action::Claim { lease } => self.ask(index, within, Ask::Claim(lease)),
            candidate::Action::Revoke { lease } => self.ask(index, within, Ask::Revoke(lease)),
            candidate::Action::Await(until) | candidate::Action::Rest(until) => self.rest(index, until),
            candidate::Action::Elected { lease, ttl, asked, term } => {
                self.seen.elections += 1;
                self.seen.by_reading += u64::from(read);
                if term <= self.last_term {
                    self.violation = Some(format!("term {term} after {}", self.last_term));
                }
                self.last_term = term;
                let mut holding = Holding::new(asked, ttl);
                holding.failpoints = self.failpoints;
                self.clients[index].role = Role::Holder { holding, lease };
                self.wake(index, 0);
            }
            candidate::Action::GiveUp { .. } => self.stand(index),
        }
    }
}

#[test]
fn one_holder_at_a_time_and_rising_terms() {
    let mut all = Seen::default();
    for seed in 0..200 {
        let (seen, violation) = World::run(seed, None);
        assert_eq!(violation, None);
        assert!(seen.elections > 5, "seed {seed}: {seen:?}");
        all.elections += seen.elections;
        all.by_reading += seen.by_reading;
        all.renewed_by_the_deposed += seen.renewed_by_the_deposed;
        all.expired += seen.expired;
    }
    println!("{all:?}");
    assert!(all.by_reading > 0 && all.renewed_by_the_deposed > 0 && all.expired > 0, "{all:?}");
}

#[test]
fn what_is_left_out_is_found() {
    for failpoints in [Failpoints::FromTheAnswer, Failpoints::AnyRaftTerm, Failpoints::WholeTime] {
        let found = (0..2000).find_map(|seed| World::run(seed, Some(failpoints)).1);
        println!("{failpoints:?}: {found:?}");
        assert!(found.is_some_and(|found| found.contains("hold it")), "{failpoints:?} was not noticed");
    }
}
