//! When a lease is held, and what is done to keep it: a state machine without clock or network.
//!
//! A lease is held for its time to live, counted from the moment a request was *sent* that etcd answered: whatever the way took,
//! etcd counts from later. Two things are not taken on trust:
//!
//! * *Clocks differ in speed.* Of the time to live a fiftieth is left unused.
//! * *A keep-alive is answered by any member that takes itself for etcd's leader.* It does not go through the replicated log, so one that has been
//!   cut off, or whose disk hangs, renews leases that its successor lets expire. Each keep-alive is therefore followed by a linearizable read.
//!   Both answers carry the raft term of what the member that answers has applied, and the read proves that its term's leader still was
//!   leader after the renewal. If the terms are one, that leader renewed; any later one gives each lease its full time anew when
//!   it takes over, which is later still. If they differ, the renewal counts for nothing and is repeated.
//!
//! The same read tells whether the key is still there and bound to this lease.

use std::time::Duration;

use crate::Why;
use crate::clock::Moment;

/// One part in so many of a lease's time is not used: clocks that run more unequally than 2 % are broken.
const UNUSED: u32 = 50;
/// So often in a lease's time it is renewed, and so long a part of it an answer is waited for.
const RENEWALS: u32 = 4;
/// After a failure it is tried again in this part of the lease's time.
const PAUSE: u32 = 20;

/// What has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Time has passed.
    Woke,
    /// The keep-alive was answered.
    Renewed {
        /// What etcd will wait from then on.
        ttl: Duration,
        /// Of what had been applied by the member that answered, before it renewed.
        raft_term: u64,
    },
    /// The linearizable read was answered.
    Found {
        /// The key is there and bound to this lease.
        ours: bool,
        /// Of what had been applied by the member that answered.
        raft_term: u64,
    },
    /// No answer, or none that says anything.
    NoAnswer,
    /// etcd knows no such lease.
    Gone,
    /// The holder gives it up.
    Stop,
}

/// What to do next. Each is answered by one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing until then.
    Rest(Moment),
    /// Send a keep-alive and wait so long for its answer.
    Renew(Duration),
    /// Read the key, linearizably, and wait so long for the answer.
    Look(Duration),
    /// It is over.
    Over(Why),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Resting { until: Moment },
    Renewing { sent: Moment },
    Looking { sent: Moment, ttl: Duration, raft_term: u64 },
    Over(Why),
}

/// One lease that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    ttl: Duration,
    held_until: Moment,
    phase: Phase,
    #[cfg(test)]
    pub(crate) failpoints: Option<Failpoints>,
}

/// What tests leave out, to see that the simulation notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failpoints {
    /// A renewal counts from its answer on.
    FromTheAnswer,
    /// A renewal counts whichever member made it.
    AnyRaftTerm,
    /// Clocks are taken to run at one speed.
    WholeTime,
}

/// How long a lease is held that was asked for at `sent`.
pub(crate) fn held_until(sent: Moment, ttl: Duration) -> Moment {
    sent + (ttl - ttl / UNUSED)
}

impl Holding {
    /// A lease that was asked for at `sent` and granted through etcd's replicated log.
    pub(crate) fn new(sent: Moment, ttl: Duration) -> Self {
        Self {
            ttl,
            held_until: held_until(sent, ttl),
            phase: Phase::Resting { until: sent + ttl / RENEWALS },
            #[cfg(test)]
            failpoints: None,
        }
    }

    /// It is held before this moment, and not from it on. Never goes back.
    pub(crate) fn held_until(&self) -> Moment {
        self.held_until
    }

    pub(crate) fn step(&mut self, now: Moment, event: Event) -> Action {
        if let Phase::Over(why) = self.phase {
            return Action::Over(why);
        }
        if matches!(event, Event::Stop) {
            return self.over(Why::Resigned);
        }
        // Even if etcd would still renew it: a caller may have looked, and has been told that it is lost.
        if now >= self.held_until {
            return self.over(Why::Expired);
        }
        match (self.phase, event) {
            (_, Event::Gone) => self.over(Why::Gone),
            (Phase::Resting { until }, _) if now < until => Action::Rest(until.min(self.held_until)),
            (Phase::Resting { .. }, _) => self.renew(now),
            (Phase::Renewing { sent }, Event::Renewed { ttl, raft_term }) => {
                let sent = if self.leaves_out(Failpoints::FromTheAnswer) { now } else { sent };
                self.phase = Phase::Looking { sent, ttl, raft_term };
                Action::Look(self.limit(now))
            }
            (Phase::Looking { .. }, Event::Found { ours: false, .. }) => self.over(Why::Gone),
            (Phase::Looking { sent, ttl, raft_term: renewed }, Event::Found { raft_term, .. }) => {
                if renewed != raft_term && !self.leaves_out(Failpoints::AnyRaftTerm) {
                    return self.renew(now);
                }
                let until = if self.leaves_out(Failpoints::WholeTime) { sent + ttl } else { held_until(sent, ttl) };
                self.held_until = self.held_until.max(until);
                self.rest(sent + self.ttl / RENEWALS)
            }
            // No answer, or one to another question, which is none.
            (Phase::Renewing { .. } | Phase::Looking { .. }, _) => self.rest(now + self.ttl / PAUSE),
            (Phase::Over(why), _) => Action::Over(why),
        }
    }

    fn renew(&mut self, now: Moment) -> Action {
        self.phase = Phase::Renewing { sent: now };
        Action::Renew(self.limit(now))
    }

    fn rest(&mut self, until: Moment) -> Action {
        self.phase = Phase::Resting { until };
        Action::Rest(until.min(self.held_until))
    }

    fn over(&mut self, why: Why) -> Action {
        self.phase = Phase::Over(why);
        Action::Over(why)
    }

    /// An answer is not waited for when it could change nothing.
    fn limit(&self, now: Moment) -> Duration {
        (self.ttl / RENEWALS).min(now.until(self.held_until))
    }

    #[cfg(test)]
    fn leaves_out(&self, step: Failpoints) -> bool {
        self.failpoints == Some(step)
    }

    #[cfg(not(test))]
    fn leaves_out(&self, _: Failpoints) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const HELD_MS: u64 = 9_800;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const RENEWED: Event = Event::Renewed { ttl: TTL, raft_term: 3 };
    const FOUND: Event = Event::Found { ours: true, raft_term: 3 };

    /// Asked for at 0, renewed from 2500 on.
    fn renewing() -> Holding {
        let mut holding = Holding::new(at(0), TTL);
        assert_eq!(holding.step(at(100), Event::Woke), Action::Rest(at(2500)));
        assert_eq!(holding.step(at(2500), Event::Woke), Action::Renew(ms(2500)));
        holding
    }

    fn looking() -> Holding {
        let mut holding = renewing();
        assert_eq!(holding.step(at(2700), RENEWED), Action::Look(ms(2500)));
        holding
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent_once_the_read_has_confirmed_it() {
        let mut holding = looking();
        assert_eq!(holding.held_until(), at(HELD_MS), "not yet confirmed");
        assert_eq!(holding.step(at(2900), FOUND), Action::Rest(at(5000)));
        assert_eq!(holding.held_until(), at(2500 + HELD_MS));
    }

    #[test]
    fn a_renewal_under_another_raft_term_is_repeated() {
        for other in [2, 4] {
            let mut holding = looking();
            let found = Event::Found { ours: true, raft_term: other };
            assert_eq!(holding.step(at(2900), found), Action::Renew(ms(2500)));
            assert_eq!(holding.held_until(), at(HELD_MS));
            assert_eq!(holding.step(at(3000), Event::Renewed { ttl: TTL, raft_term: other }), Action::Look(ms(2500)));
            assert_eq!(holding.step(at(3100), found), Action::Rest(at(5400)));
            assert_eq!(holding.held_until(), at(2900 + HELD_MS));
        }
    }

    #[test]
    fn the_time_to_live_is_what_etcd_says_last() {
        let mut holding = renewing();
        assert_eq!(holding.step(at(2700), Event::Renewed { ttl: ms(20_000), raft_term: 3 }), Action::Look(ms(2500)));
        holding.step(at(2900), FOUND);
        assert_eq!(holding.held_until(), at(2500 + 2 * HELD_MS));
    }

    #[test]
    fn a_shorter_renewal_takes_nothing_back() {
        let mut holding = renewing();
        holding.step(at(2700), Event::Renewed { ttl: ms(1000), raft_term: 3 });
        holding.step(at(2900), FOUND);
        assert_eq!(holding.held_until(), at(HELD_MS));
    }

    #[test]
    fn without_an_answer_it_is_tried_again_until_the_time_is_over() {
        for mut holding in [renewing(), looking()] {
            assert_eq!(holding.step(at(5000), Event::NoAnswer), Action::Rest(at(5500)));
            assert_eq!(holding.step(at(5500), Event::Woke), Action::Renew(ms(2500)));
            assert_eq!(holding.step(at(9400), Event::NoAnswer), Action::Rest(at(HELD_MS)));
            assert_eq!(holding.step(at(HELD_MS), Event::Woke), Action::Over(Why::Expired));
        }
    }

    #[test]
    fn an_answer_is_waited_for_only_while_it_could_count() {
        let mut holding = Holding::new(at(0), TTL);
        assert_eq!(holding.step(at(9000), Event::Woke), Action::Renew(ms(HELD_MS - 9000)));
        assert_eq!(holding.step(at(9700), RENEWED), Action::Look(ms(HELD_MS - 9700)));
    }

    #[test]
    fn an_answer_that_comes_too_late_brings_nothing_back() {
        let mut late = looking();
        assert_eq!(late.step(at(HELD_MS), FOUND), Action::Over(Why::Expired));
        assert_eq!(late.step(at(HELD_MS), FOUND), Action::Over(Why::Expired));
        let mut late = renewing();
        assert_eq!(late.step(at(HELD_MS), RENEWED), Action::Over(Why::Expired));
        assert_eq!(late.held_until(), at(HELD_MS));
    }

    #[test]
    fn it_is_over_at_once_if_the_lease_or_the_key_is_not_there() {
        assert_eq!(renewing().step(at(2600), Event::Gone), Action::Over(Why::Gone));
        let not_ours = Event::Found { ours: false, raft_term: 3 };
        assert_eq!(looking().step(at(2800), not_ours), Action::Over(Why::Gone));
    }

    #[test]
    fn who_stops_has_nothing_more() {
        for mut holding in [Holding::new(at(0), TTL), renewing(), looking()] {
            assert_eq!(holding.step(at(2800), Event::Stop), Action::Over(Why::Resigned));
            assert_eq!(holding.step(at(2900), RENEWED), Action::Over(Why::Resigned));
        }
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        assert_eq!(renewing().step(at(2600), FOUND), Action::Rest(at(3100)));
        assert_eq!(looking().step(at(2800), RENEWED), Action::Rest(at(3300)));
    }
}
