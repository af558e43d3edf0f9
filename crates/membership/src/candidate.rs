//! Standing for leadership: a state machine without clock or network.
//!
//! The leader key is bound to a lease. A candidate that finds it vacant asks for a lease and claims the key by compare-and-swap; the
//! revision that creates the key is the term. A claim without an answer is in doubt, and only a linearizable read settles it: if the key is
//! bound to this candidate's lease, it was won. If not, the lease is given back before anything else is tried, so that a claim still on its way
//! fails when it arrives. Where even that gets no answer, the lease expires by itself, and such a claim makes a leader that no process follows
//! for as long as that takes: it delays, and does no harm.

use std::time::Duration;

use crate::clock::Moment;
use crate::holding::held_until;

/// What stands at the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderKey {
    Vacant,
    Taken { lease: i64, term: u64 },
}

/// What has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Time has passed, or the key has changed.
    Woke,
    /// The linearizable read was answered.
    Found(LeaderKey),
    /// There is a lease.
    Granted { lease: i64, ttl: Duration },
    /// The key was vacant and is now bound to our lease.
    Won { term: u64 },
    /// It was not.
    NotWon,
    /// The lease is gone.
    Revoked,
    /// No answer: what was asked for may have been done, may be done later, or never.
    NoAnswer,
}

/// What to do next. Each is answered by one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Read the key, linearizably.
    Look,
    /// Ask for a lease.
    Grant,
    /// Put the key if it is not there, bound to the lease.
    Claim { lease: i64 },
    /// Give the lease back.
    Revoke { lease: i64 },
    /// Wait until the key changes, at most until then.
    Await(Moment),
    /// Nothing until then.
    Rest(Moment),
    /// Leader, of this term, by a lease that was asked for at this moment.
    Elected { lease: i64, ttl: Duration, asked: Moment, term: u64 },
    /// The timeout has passed; `taken`: another candidate leads.
    GiveUp { taken: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    id: i64,
    ttl: Duration,
    asked: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Looking,
    Waiting,
    Granting { asked: Moment },
    Claiming(Lease),
    Doubting(Lease),
    Revoking,
}

/// One candidate, until it is elected or gives up.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    deadline: Moment,
    /// Between attempts that get no answer.
    pause: Duration,
    /// Whether the key was taken when it was last seen.
    taken: bool,
    phase: Phase,
}

impl Candidate {
    pub(crate) fn new(deadline: Moment, pause: Duration) -> Self {
        Self { deadline, pause, taken: false, phase: Phase::Waiting }
    }

    pub(crate) fn step(&mut self, now: Moment, event: Event) -> Action {
        if let Event::Found(key) = event {
            self.taken = key != LeaderKey::Vacant;
        }
        match (self.phase, event) {
            (Phase::Looking, Event::Found(LeaderKey::Vacant)) if now < self.deadline => {
                self.phase = Phase::Granting { asked: now };
                Action::Grant
            }
            (Phase::Looking, Event::Found(LeaderKey::Taken { .. })) => self.wait(now),
            (Phase::Granting { asked }, Event::Granted { lease, ttl }) => {
                self.phase = Phase::Claiming(Lease { id: lease, ttl, asked });
                Action::Claim { lease }
            }
            (Phase::Claiming(lease), Event::Won { term }) => self.won(now, lease, term),
            (Phase::Claiming(lease), Event::NotWon) => {
                self.taken = true;
                self.revoke(lease)
            }
            (Phase::Claiming(lease), _) => self.doubt(lease),
            (Phase::Doubting(lease), Event::Found(LeaderKey::Taken { lease: found, term })) if found == lease.id => {
                self.won(now, lease, term)
            }
            (Phase::Doubting(lease), Event::Found(_)) => self.revoke(lease),
            (Phase::Doubting(lease), Event::NoAnswer)
                if now < self.deadline && now < held_until(lease.asked, lease.ttl) =>
            {
                Action::Rest(now + self.pause)
            }
            (Phase::Doubting(lease), Event::Woke) => self.doubt(lease),
            (Phase::Doubting(lease), _) => self.revoke(lease),
            (Phase::Revoking, Event::Revoked) | (Phase::Waiting, _) => self.look(now),
            (Phase::Revoking | Phase::Looking | Phase::Granting { .. }, _) => {
                self.phase = Phase::Waiting;
                if now < self.deadline { Action::Rest(self.deadline.min(now + self.pause)) } else { self.look(now) }
            }
        }
    }

    fn look(&mut self, now: Moment) -> Action {
        if now >= self.deadline {
            return Action::GiveUp { taken: self.taken };
        }
        self.phase = Phase::Looking;
        Action::Look
    }

    fn wait(&mut self, now: Moment) -> Action {
        if now >= self.deadline {
            return Action::GiveUp { taken: self.taken };
        }
        self.phase = Phase::Waiting;
        Action::Await(self.deadline)
    }

    fn doubt(&mut self, lease: Lease) -> Action {
        self.phase = Phase::Doubting(lease);
        Action::Look
    }

    fn revoke(&mut self, lease: Lease) -> Action {
        self.phase = Phase::Revoking;
        Action::Revoke { lease: lease.id }
    }

    /// A lease whose time is over makes no leader, even if etcd still knows it.
    fn won(&mut self, now: Moment, lease: Lease, term: u64) -> Action {
        if now >= held_until(lease.asked, lease.ttl) {
            return self.revoke(lease);
        }
        Action::Elected { lease: lease.id, ttl: lease.ttl, asked: lease.asked, term }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    const VACANT: Event = Event::Found(LeaderKey::Vacant);
    const TAKEN: Event = Event::Found(LeaderKey::Taken { lease: 1, term: 5 });
    const GRANTED: Event = Event::Granted { lease: 7, ttl: TTL };

    fn start() -> Candidate {
        let mut candidate = Candidate::new(at(60_000), Duration::from_millis(100));
        assert_eq!(candidate.step(at(0), Event::Woke), Action::Look);
        candidate
    }

    /// Asked for a lease at 10.
    fn claiming() -> Candidate {
        let mut candidate = start();
        assert_eq!(candidate.step(at(10), VACANT), Action::Grant);
        assert_eq!(candidate.step(at(20), GRANTED), Action::Claim { lease: 7 });
        candidate
    }

    fn doubting() -> Candidate {
        let mut candidate = claiming();
        assert_eq!(candidate.step(at(30), Event::NoAnswer), Action::Look);
        candidate
    }

    fn elected(term: u64) -> Action {
        Action::Elected { lease: 7, ttl: TTL, asked: at(10), term }
    }

    #[test]
    fn a_vacant_key_is_claimed_with_a_lease_counted_from_its_request() {
        assert_eq!(claiming().step(at(30), Event::Won { term: 9 }), elected(9));
    }

    #[test]
    fn a_taken_key_is_waited_for() {
        let mut candidate = start();
        assert_eq!(candidate.step(at(10), TAKEN), Action::Await(at(60_000)));
        assert_eq!(candidate.step(at(500), Event::Woke), Action::Look);
        assert_eq!(candidate.step(at(510), VACANT), Action::Grant);
    }

    #[test]
    fn who_came_second_gives_its_lease_back_and_waits() {
        let mut candidate = claiming();
        assert_eq!(candidate.step(at(30), Event::NotWon), Action::Revoke { lease: 7 });
        assert_eq!(candidate.step(at(40), Event::Revoked), Action::Look);
        assert_eq!(candidate.step(at(50), TAKEN), Action::Await(at(60_000)));
    }

    #[test]
    fn a_claim_in_doubt_is_settled_by_reading() {
        assert_eq!(doubting().step(at(40), Event::Found(LeaderKey::Taken { lease: 7, term: 9 })), elected(9));
        for other in [VACANT, TAKEN] {
            assert_eq!(doubting().step(at(40), other), Action::Revoke { lease: 7 });
        }
    }

    #[test]
    fn a_claim_in_doubt_is_read_again_while_it_could_still_count() {
        let mut candidate = doubting();
        assert_eq!(candidate.step(at(40), Event::NoAnswer), Action::Rest(at(140)));
        assert_eq!(candidate.step(at(140), Event::Woke), Action::Look);
        assert_eq!(candidate.step(at(9_900), Event::NoAnswer), Action::Revoke { lease: 7 });
    }

    #[test]
    fn a_claim_that_was_won_too_late_is_given_back() {
        assert_eq!(claiming().step(at(9_810), Event::Won { term: 9 }), Action::Revoke { lease: 7 });
        let found = Event::Found(LeaderKey::Taken { lease: 7, term: 9 });
        assert_eq!(doubting().step(at(9_810), found), Action::Revoke { lease: 7 });
    }

    #[test]
    fn without_answers_it_rests_and_looks_again() {
        for (mut candidate, now) in [(start(), 10), (claiming(), 40)] {
            if now == 40 {
                candidate.step(at(30), Event::NotWon);
            }
            assert_eq!(candidate.step(at(now), Event::NoAnswer), Action::Rest(at(now + 100)));
            assert_eq!(candidate.step(at(now + 100), Event::Woke), Action::Look);
        }
    }

    #[test]
    fn the_timeout_passes_and_leaves_no_lease_behind() {
        let mut candidate = start();
        candidate.step(at(10), TAKEN);
        assert_eq!(candidate.step(at(60_000), Event::Woke), Action::GiveUp { taken: true });

        let mut candidate = start();
        assert_eq!(candidate.step(at(59_950), Event::NoAnswer), Action::Rest(at(60_000)));
        assert_eq!(candidate.step(at(60_000), Event::Woke), Action::GiveUp { taken: false });

        let mut candidate = doubting();
        assert_eq!(candidate.step(at(60_000), Event::NoAnswer), Action::Revoke { lease: 7 });
        assert_eq!(candidate.step(at(60_010), Event::NoAnswer), Action::GiveUp { taken: false });
    }

    #[test]
    fn who_is_elected_at_the_last_moment_is_elected() {
        let mut candidate = Candidate::new(at(25), Duration::from_millis(100));
        candidate.step(at(0), Event::Woke);
        candidate.step(at(10), VACANT);
        candidate.step(at(20), GRANTED);
        assert_eq!(candidate.step(at(30), Event::Won { term: 9 }), elected(9));
    }
}
