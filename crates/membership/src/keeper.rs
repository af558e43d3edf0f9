//! Carries out what the lease's state machine says, for as long as the lease is held.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::etcd::{Attempt, Etcd, Failure, Renewals};
use crate::holding::{Action, Event, Holding};
use crate::tenure::Tenure;
use crate::{Error, Result, Why};

/// A lease, and the key that is bound to it.
pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) holding: Holding,
}

/// Keeps the lease until it is lost, or until no holder is left that could say `stop`. `tenure` is over when this returns.
pub(crate) async fn keep(etcd: &Etcd, lease: &mut Lease, tenure: &Tenure, stop: &mut oneshot::Receiver<()>) -> Why {
    let mut renewals = Renewals::default();
    let mut event = Event::Woke;
    loop {
        if matches!(event, Event::Found { .. }) {
            tenure.went_well();
        }
        let action = lease.holding.step(Moment::now(), event);
        if let Action::Over(why) = action {
            tenure.end(why);
            return why;
        }
        if !tenure.extend(lease.holding.held_until()) {
            tenure.end(Why::Expired);
            return Why::Expired;
        }
        event = tokio::select! {
            biased;
            _ = &mut *stop => Event::Stop,
            event = perform(etcd, lease, tenure, &mut renewals, action) => event,
        };
    }
}

async fn perform(etcd: &Etcd, lease: &Lease, tenure: &Tenure, renewals: &mut Renewals, action: Action) -> Event {
    match action {
        Action::Renew(within) => match etcd.renew(renewals, lease.id, within).await {
            Ok((ttl, raft_term)) => Event::Renewed { ttl, raft_term },
            Err(failure) => failed(failure, tenure),
        },
        Action::Look(within) => match etcd.read(&lease.key, false, within).await {
            Ok(found) => {
                let ours = found.entries.first().is_some_and(|entry| entry.lease == lease.id);
                Event::Found { ours, raft_term: found.raft_term }
            }
            Err(failure) => failed(failure, tenure),
        },
        Action::Rest(until) => {
            tokio::time::sleep(Moment::now().until(until)).await;
            Event::Woke
        }
        Action::Over(_) => Event::Stop,
    }
}

fn failed(failure: Failure, tenure: &Tenure) -> Event {
    match failure {
        Failure::NoAnswer(why) => {
            tenure.failed(why);
            Event::NoAnswer
        }
        Failure::Gone => {
            tenure.went_well(); // what was met before says nothing about this
            Event::Gone
        }
        Failure::Final(error) => {
            tracing::warn!(%error, "a lease cannot be kept");
            // Whatever this etcd says of the key, it is not what was agreed on.
            let is_other = matches!(error, Error::OtherCluster { .. } | Error::HistoryLost { .. });
            let said = error.to_string();
            // What to do about it is said where it is met next.
            tenure.failed(said.rsplit_once(": ").map_or(&*said, |(what, _)| what).to_owned());
            if is_other { Event::Gone } else { Event::NoAnswer }
        }
    }
}

/// Gives the lease back, so that no process has to wait until it expires.
pub(crate) async fn give_back(etcd: &Etcd, lease: i64, limit: Duration) -> Result<()> {
    etcd.retrying("give back", limit, async |within| -> Attempt<()> { etcd.revoke(lease, within).await }).await
}
