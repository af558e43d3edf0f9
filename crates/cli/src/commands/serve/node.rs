//! A machine that follows: it keeps its store in step, tells clients who leads, and stands for leadership.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv::Follower;
use membership::{LeaderWatch, Leadership, Seen};
use server::group::{self, Group};
use server::{Config, Server};

use super::machine::{Log, Machine, Notice, is_nowhere, log_of, no_log, now, resign};
use super::{failure, tell_addresses};
use crate::failure::Failure;
use crate::output::note;

/// How long one attempt to be elected takes at most, while another machine leads: between them everything else is looked after.
const TURN: Duration = Duration::from_millis(300);
/// Between two looks at the users in the store.
const USERS: Duration = Duration::from_secs(1);
/// Until a seed is asked for again that could not be had, at first and at most.
const SEED: Duration = Duration::from_secs(1);
const SEED_MOST: Duration = Duration::from_secs(30);
/// From one seed that was had to the next, at first and, of a machine that is full, at most: each is a copy of the whole store, here and on the leader's disk, and may be of no use where there is less room.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_MOST: Duration = Duration::from_secs(300);

/// What a machine does next.
pub enum Next {
    Follow(Follower),
    Lead(Follower, Leadership),
    Stop,
}

/// The server beside a follower, which tells who leads.
struct Guide {
    running: Server,
    group: Arc<Group>,
    watch: LeaderWatch,
    leader: Option<membership::Leader>,
}

/// Follows until this machine is elected, or is to stop.
pub fn follow(machine: &mut Machine, follower: Follower, notice: &mut Option<Notice>) -> Result<Next, Failure> {
    let mut follower = Arc::new(follower);
    let mut guide = Guide::start(machine, &follower)?;
    if notice.is_none() {
        *notice = announce(machine)?;
    }
    let mut is_known = false;
    note!("cairn: following with {}, {} commits so far", machine.path.display(), follower.status().commits);
    let (mut users, mut said) = (now(), String::new());
    let (mut seeds, mut behind, mut full) = (Seeds::default(), None, None);
    let next = loop {
        if machine.is_stopped() || guide.running.is_stopping() {
            break None;
        }
        match follower.wait(Duration::ZERO) {
            Ok(_) => {}
            Err(error @ kv::Error::Behind { .. }) => {
                note!("cairn: {error}");
                let rest = seeds.rest(now(), full.is_some());
                if !rest.is_zero() {
                    note!("cairn: it was behind a short while ago, too, and asks for the store again in {rest:.0?}");
                }
                behind = Some(error.to_string());
            }
            Err(error) => return Err(machine.failure(&error)),
        }
        if behind.is_some() && seeds.rest(now(), full.is_some()).is_zero() {
            follower = guide.without(machine, follower, |follower| catch_up(machine, follower, notice))?;
            guide = Guide::start(machine, &follower)?;
            seeds.had(now(), full.is_some());
            (behind, full) = (None, None);
            continue;
        }
        full = follower.why_full().or(full.filter(|_| follower.has_failed()));
        let trouble = full.as_ref().map(|why| format!("full: {why}"));
        let trouble = trouble.or_else(|| behind.as_ref().map(|why| format!("behind: {why}")));
        if let Some(notice) = notice.as_mut() {
            notice.tell(trouble.clone());
        }
        guide.tell(machine, &follower, trouble);
        is_known = is_known || is_of_the_group(machine, &follower)?;
        if users.elapsed() > USERS {
            users = now();
            if let Err(error) = guide.running.renew_users() {
                note!("cairn: users cannot be read: {error}");
            }
        }
        if behind.is_some() {
            std::thread::sleep(TURN); // it could not lead
            continue;
        }
        match stand(machine, &follower) {
            Ok(Some(leadership)) => break Some(leadership),
            Ok(None) => said.clear(),
            Err(why) => {
                if why != said {
                    note!("cairn: waiting: {why}");
                }
                said = why;
                std::thread::sleep(TURN);
            }
        }
    };
    let follower = guide.without(machine, follower, |follower| Ok(Some(follower)))?;
    let follower = Arc::into_inner(follower).ok_or_else(in_use)?;
    match next {
        Some(leadership) => Ok(Next::Lead(follower, leadership)),
        None => {
            stopped(follower.stop()).map_err(|error| machine.failure(&error))?;
            Ok(Next::Stop)
        }
    }
}

/// What a machine that is to stop says of how its follower has stopped. One that is behind, and has just found that, is well: it finds that at its next start, too, and gets the store then.
fn stopped(how: kv::Result<()>) -> kv::Result<()> {
    match how {
        Err(kv::Error::Behind { .. }) => Ok(()),
        how => how,
    }
}

/// When the store was brought here anew, and how long the next one is waited for.
#[derive(Default)]
struct Seeds {
    last: Option<(Instant, Duration)>,
}

impl Seeds {
    /// One was had, behind which it follows again; it was needed since this machine was full, or for another reason.
    fn had(&mut self, now: Instant, was_full: bool) {
        let pause = match self.last {
            Some((last, pause)) if was_full && now.saturating_duration_since(last) < pause + AGAIN_MOST => {
                (2 * pause).min(AGAIN_MOST)
            }
            _ => AGAIN,
        };
        self.last = Some((now, pause));
    }

    /// How long no other one is asked for.
    fn rest(&self, now: Instant, is_full: bool) -> Duration {
        let Some((last, pause)) = self.last else { return Duration::ZERO };
        (last + if is_full { pause } else { AGAIN }).saturating_duration_since(now)
    }
}

fn in_use() -> Failure {
    Failure::new("a connection is still there that did not end", "start it again")
}

/// Tells the others where this machine is, as soon as etcd answers; none if it is to stop before.
fn announce(machine: &Machine) -> Result<Option<Notice>, Failure> {
    let (began, mut said) = (now(), false);
    while !machine.is_stopped() {
        let announced = machine.members.copies().and_then(|all| {
            // A machine that had this name, and is gone, stays announced until its lease is over.
            let other = all.into_iter().find(|one| one.name == machine.me.name && one.address != machine.me.address);
            other.map_or_else(|| machine.members.announce(&machine.me, machine.ttl).map(Ok), |other| Ok(Err(other)))
        });
        match announced {
            Ok(Ok(announcement)) => return Ok(Some(Notice::new(announcement))),
            Ok(Err(other)) if began.elapsed() > machine.ttl + TURN => {
                let what = format!("the machine at {} has the name {}, too", other.address, other.name);
                return Err(Failure::new(what, "give each machine a --name of its own"));
            }
            Ok(Err(_)) => {}
            Err(error @ membership::Error::Unreachable { .. }) => {
                if !said {
                    note!("cairn: waiting: {error}");
                }
                said = true;
            }
            Err(error) => return Err(Failure::membership(&error)),
        }
        std::thread::sleep(TURN);
    }
    Ok(None)
}

/// Once both are known: this machine's log is that of the group.
fn is_of_the_group(machine: &Machine, follower: &Follower) -> Result<bool, Failure> {
    match follower.status().log.filter(|status| status.quorum.is_some()) {
        Some(status) => machine.check_log(status.log),
        None => Ok(false),
    }
}

/// Stands for leadership for a moment, if there is, or could be, a log to lead; else says why not.
fn stand(machine: &Machine, follower: &Follower) -> Result<Option<Leadership>, String> {
    let own = follower.status().log.is_some_and(|status| status.quorum.is_some());
    if !own {
        // A machine that knows of no log may make one, with all others; it does not take over one that it has no part in.
        let others = machine.others().map_err(|error| error.to_string())?;
        match log_of(machine, own, &others).map_err(|error| error.to_string())? {
            Log::ToBeMade => {}
            Log::Made => return Err(has_no_part(&machine.me.address)),
            Log::Unknown(why) => return Err(no_log(&why)),
        }
    }
    if is_left_to_another(machine) {
        std::thread::sleep(TURN / 3);
        return Ok(None);
    }
    match machine.members.campaign(&machine.me, machine.ttl, TURN) {
        // It may have been named since this one stands.
        Ok(leadership) if is_left_to_another(machine) => {
            resign(leadership);
            Ok(None)
        }
        Ok(leadership) => Ok(Some(leadership)),
        Err(membership::Error::NotElected { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The leader before has left the leadership to another machine, for a moment. If etcd does not say, this one stands.
fn is_left_to_another(machine: &Machine) -> bool {
    machine.members.successor().is_ok_and(|name| name.is_some_and(|name| name != machine.me.name))
}

/// What a person has to do about a replica that the log does not have.
fn has_no_part(address: &str) -> String {
    format!(
        "this machine's replica is new, and has no part in the log yet: `cairn group join {address}` with the same --etcd, --prefix and --secret-file takes it in; if `cairn group status` shows a lost replica of this machine, `cairn group remove ID` first"
    )
}

/// A store that needs what the log has no more: the leader gives a seed of its own. If it leads no more meanwhile, the next one does.
fn catch_up(machine: &Machine, follower: Follower, notice: &mut Option<Notice>) -> Result<Option<Follower>, Failure> {
    let watch = RefCell::new(machine.members.watch_leader());
    let (mut leader, mut pause) = (None, SEED);
    while !machine.is_stopped() {
        match watch.borrow_mut().next(if leader.is_none() { SEED } else { Duration::ZERO }) {
            Ok(Seen::Leader(seen)) => leader = Some(seen),
            Ok(Seen::Vacant) | Err(_) => leader = None,
            Ok(Seen::Unchanged) => {}
        }
        let Some(from) = leader.as_ref().filter(|leader| leader.member.name != machine.me.name) else { continue };
        let seen = RefCell::new(None);
        let is_over = || {
            if let Ok(change @ (Seen::Leader(_) | Seen::Vacant)) = watch.borrow_mut().next(Duration::ZERO) {
                *seen.borrow_mut() = Some(change);
            }
            machine.is_stopped() || seen.borrow().is_some()
        };
        match follower.fetch_seed(&from.member.address, &is_over) {
            Ok(seed) => {
                note!("cairn: has the store anew, of {}", from.member.name);
                return follower.begin_with(&seed).map(Some).map_err(|error| machine.failure(&error));
            }
            Err(error) => {
                note!("cairn: no store from {}: {error}", from.member.name);
                if let Some(notice) = notice.as_mut() {
                    notice.tell(Some(format!("behind: no store from {}: {error}", from.member.name)));
                }
            }
        }
        match seen.into_inner() {
            Some(Seen::Leader(next)) => leader = Some(next),
            Some(_) => leader = None,
            None => {
                let began = now();
                while began.elapsed() < pause && !machine.is_stopped() {
                    std::thread::sleep(TURN);
                }
                pause = (2 * pause).min(SEED_MOST);
            }
        }
    }
    Ok(Some(follower))
}

impl Guide {
    fn start(machine: &mut Machine, follower: &Arc<Follower>) -> Result<Self, Failure> {
        let group = Arc::new(Group::new(true, machine.view()));
        // Memcached's protocols have no way to say who leads.
        let config = Config { group: Some(Arc::clone(&group)), memcached: Vec::new(), ..machine.config.clone() };
        let wanted = config.settings.connections;
        let engine = Box::new(server::engine::Following::new(Arc::clone(follower)));
        let running = Server::start(config, engine).map_err(|error| failure(&machine.path, &error))?;
        if machine.me.serves.is_none() {
            tell_addresses(&running, wanted);
        }
        machine.keep_addresses(&running)?;
        Ok(Self { running, group, watch: machine.members.watch_leader(), leader: None })
    }

    /// Tells clients who leads.
    fn tell(&mut self, machine: &Machine, follower: &Follower, trouble: Option<String>) {
        match self.watch.next(Duration::ZERO) {
            Ok(Seen::Leader(leader)) => self.leader = Some(leader),
            Ok(Seen::Vacant) | Err(_) => self.leader = None,
            Ok(Seen::Unchanged) => {}
        }
        // This machine, if it leads by etcd, has yet to begin.
        let leader = self.leader.as_ref().filter(|leader| leader.member.name != machine.me.name);
        let others = machine.others().unwrap_or_default();
        let others = others.into_iter().filter_map(|member| Some((member.serves?, member.trouble)));
        let mut view = machine.view();
        view.leader = leader.and_then(|leader| leader.member.serves.clone());
        view.term = leader.map_or(0, |leader| leader.term);
        let other =
            |(address, trouble): (String, Option<String>)| group::Machine::new(address, true, 0).in_trouble(trouble);
        view.others = others.map(other).collect();
        view.commits = follower.status().commits;
        view.trouble = trouble;
        self.group.tell(view);
    }

    /// Stops the server, and does something with the follower, which nothing else uses then.
    fn without(
        self,
        machine: &Machine,
        follower: Arc<Follower>,
        act: impl FnOnce(Follower) -> Result<Option<Follower>, Failure>,
    ) -> Result<Arc<Follower>, Failure> {
        self.running.stop();
        self.running.join().map_err(|error| failure(&machine.path, &error))?;
        let follower = Arc::into_inner(follower).ok_or_else(in_use)?;
        act(follower)?.map(Arc::new).ok_or_else(in_use)
    }
}

impl Machine {
    /// Ports that the system has chosen stay, and what clients are told is known.
    fn keep_addresses(&mut self, running: &Server) -> Result<(), Failure> {
        let plain = self.config.redis.len();
        let (redis, tls) = running.redis().split_at(plain.min(running.redis().len()));
        (self.config.redis, self.config.redis_tls) = (redis.to_vec(), tls.to_vec());
        self.config.http = running.http().or(self.config.http);
        if self.me.serves.is_some() {
            return Ok(());
        }
        let Some(first) = running.redis().first() else {
            let what = "clients of a group need an address: a socket in the file system is on one machine";
            return Err(Failure::new(what, "give one with --redis or --redis-tls"));
        };
        let first = first.to_string();
        if is_nowhere(&first) {
            let what = format!("{first} is no address where clients reach this machine");
            return Err(Failure::new(what, "give the one that they do with --announce-redis"));
        }
        self.me = self.me.clone().serving(first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_full_again_and_again_asks_for_the_store_more_and_more_rarely() {
        let (begin, mut seeds, mut at) = (now(), Seeds::default(), Duration::ZERO);
        let mut rests = Vec::new();
        for _ in 0..9 {
            // The first is asked for at once, and each later one as soon as may be.
            let rest = seeds.rest(begin + at, true);
            rests.push(rest.as_secs());
            at += rest;
            assert_eq!(seeds.rest(begin + at, true), Duration::ZERO);
            seeds.had(begin + at, true);
        }
        assert_eq!(rests, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
        // It has followed for a while since.
        at += 2 * AGAIN_MOST;
        assert_eq!(seeds.rest(begin + at, true), Duration::ZERO);
        seeds.had(begin + at, true);
        assert_eq!(seeds.rest(begin + at, true), AGAIN);
    }

    #[test]
    fn a_machine_that_is_behind_stops_well() {
        assert!(stopped(Err(kv::Error::Behind { has: 1, first: 3 })).is_ok());
        assert!(stopped(Err(kv::Error::Follows)).is_err());
    }

    #[test]
    fn a_machine_that_is_behind_for_another_reason_does_not_wait_for_longer() {
        let (begin, mut seeds) = (now(), Seeds::default());
        assert_eq!(seeds.rest(begin, false), Duration::ZERO);
        for _ in 0..9 {
            seeds.had(begin, false);
            assert_eq!(seeds.rest(begin, false), AGAIN);
        }
        // It has been full, and is not any more.
        (0..9).for_each(|_| seeds.had(begin, true));
        assert_eq!((seeds.rest(begin, true), seeds.rest(begin, false)), (AGAIN_MOST, AGAIN));
        seeds.had(begin, false);
        assert_eq!(seeds.rest(begin, true), AGAIN);
    }
}
