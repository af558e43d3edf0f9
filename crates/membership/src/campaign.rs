//! Carries out what the candidate's state machine says.

use std::sync::Arc;
use std::time::Duration;

use crate::candidate::{Action, Candidate, Event, LeaderKey};
use crate::clock::Moment;
use crate::etcd::{Attempt, Claim, Etcd, Failure};
use crate::holding::Holding;
use crate::inner::Inner;
use crate::keeper::{Lease, give_back};
use crate::leadership::{self, Leadership};
use crate::member::value_of;
use crate::{Error, Member, Result};

struct Campaign {
    etcd: Arc<Etcd>,
    timeout: Duration,
    key: String,
    value: Vec<u8>,
    ttl: Duration,
    /// Of the last read: a change after it ends a wait.
    revision: u64,
    /// Why there was no answer last.
    silence: Option<String>,
}

pub(crate) fn campaign(inner: Arc<Inner>, member: &Member, ttl: Duration, limit: Duration) -> Result<Leadership> {
    let (etcd, timeout) = (inner.etcd.clone(), inner.timeout);
    let (key, value) = (inner.leader_key(), value_of(member)?);
    let (name, started) = (member.name.clone(), Moment::now());
    let campaign = Campaign { etcd, timeout, key, value, ttl, revision: 0, silence: None };
    let (lease, term) = inner.runtime.wait(move || campaign.run(name, started, limit))?;
    Ok(leadership::start(inner, member.clone(), lease, term))
}

impl Campaign {
    async fn run(mut self, name: String, started: Moment, limit: Duration) -> Result<(Lease, u64)> {
        let mut candidate = Candidate::new(started + limit, self.etcd.share(self.timeout) / 4);
        let mut event = Event::Woke;
        let mut lease = None;
        loop {
            let done = match candidate.step(Moment::now(), event) {
                Action::Elected { lease: id, ttl, asked, term } => {
                    return Ok((Lease { id, key: self.key, holding: Holding::new(asked, ttl) }, term));
                }
                Action::GiveUp { taken } => return Err(self.not_elected(name, limit, taken)),
                action => self.perform(action).await,
            };
            event = match done {
                Ok(event) => event,
                Err(Failure::NoAnswer(why)) => {
                    self.silence = Some(why);
                    Event::NoAnswer
                }
                Err(Failure::Gone) => Event::NoAnswer,
                Err(Failure::Final(error)) => {
                    if let Some(lease) = lease {
                        drop(give_back(&self.etcd, lease, self.timeout).await);
                    }
                    return Err(error);
                }
            };
            match event {
                Event::Granted { lease: id, .. } => lease = Some(id),
                Event::Revoked => lease = None,
                _ => {}
            }
        }
    }

    async fn perform(&mut self, action: Action) -> Attempt<Event> {
        let within = self.etcd.share(self.timeout);
        match action {
            Action::Look => {
                let found = self.etcd.read(&self.key, false, within).await?;
                self.revision = found.revision;
                self.silence = None;
                let taken = |entry: &crate::etcd::Entry| LeaderKey::Taken { lease: entry.lease, term: entry.created };
                Ok(Event::Found(found.entries.first().map_or(LeaderKey::Vacant, taken)))
            }
            Action::Grant => {
                let (lease, ttl) = self.etcd.grant(self.ttl, within).await?;
                Ok(Event::Granted { lease, ttl })
            }
            Action::Claim { lease } => match self.etcd.claim(&self.key, &self.value, lease, within).await? {
                Claim::Won { created } => Ok(Event::Won { term: created }),
                Claim::NotWon => Ok(Event::NotWon),
            },
            Action::Revoke { lease } => self.etcd.revoke(lease, within).await.map(|()| Event::Revoked),
            // The wait is cut into pieces, each begun with a read: a watch that has gone deaf says nothing.
            Action::Await(until) => {
                let wait = Moment::now().until(until).min(self.timeout);
                self.etcd.changed(&self.key, self.revision, wait).await;
                Ok(Event::Woke)
            }
            Action::Rest(until) => {
                tokio::time::sleep(Moment::now().until(until)).await;
                Ok(Event::Woke)
            }
            Action::Elected { .. } | Action::GiveUp { .. } => Ok(Event::Woke),
        }
    }

    fn not_elected(self, name: String, waited: Duration, taken: bool) -> Error {
        match self.silence {
            None => Error::NotElected { name, waited, taken },
            Some(why) => {
                let endpoints = self.etcd.endpoints().join(", ");
                Error::Unreachable { doing: "stand for leadership", endpoints, waited, why }
            }
        }
    }
}
