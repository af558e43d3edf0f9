//! Carries out what the lease's state machine says, for as long as the lease is held.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::etcd::{Attempt, Etcd, Failure, Renewals};
use crate::holding::{Action, Event, Holding};
use crate::tenure::{Tenure, Why};
use crate::{Error, Result};

/// A lease, and the key that is bound to it.
pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) holding: Holding,
}

/// Keeps the lease until it is lost, or until nobody is left who could say `stop`. `tenure` is over when this returns.
pub(crate) async fn keep(etcd: &Etcd, lease: &mut Lease, tenure: &Tenure, stop: &mut oneshot::Receiver<()>) -> Why {
    let mut renewals = Renewals::default();
    let mut event = Event::Woke;
    loop {
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
            event = perform(etcd, lease, &mut renewals, action) => event,
        };
    }
}

async fn perform(etcd: &Etcd, lease: &Lease, renewals: &mut Renewals, action: Action) -> Event {
    match action {
        Action::Renew(within) => match etcd.renew(renewals, lease.id, within).await {
            Ok((ttl, raft_term)) => Event::Renewed { ttl, raft_term },
            Err(failure) => failed(failure),
        },
        Action::Look(within) => match etcd.read(&lease.key, false, within).await {
            Ok(found) => {
                let ours = found.entries.first().is_some_and(|entry| entry.lease == lease.id);
                Event::Found { ours, raft_term: found.raft_term }
            }
            Err(failure) => failed(failure),
        },
        Action::Rest(until) => {
            tokio::time::sleep(Moment::now().until(until)).await;
            Event::Woke
        }
        Action::Over(_) => Event::Stop,
    }
}

fn failed(failure: Failure) -> Event {
    match failure {
        Failure::NoAnswer(_) => Event::NoAnswer,
        Failure::Gone => Event::Gone,
        // Whatever this etcd says of the key, it is not what was agreed on.
        Failure::Final(Error::OtherCluster { .. } | Error::HistoryLost { .. }) => Event::Gone,
        Failure::Final(error) => {
            tracing::warn!(%error, "a lease cannot be kept");
            Event::NoAnswer
        }
    }
}

/// Gives the lease back, so that nobody has to wait until it expires.
pub(crate) async fn give_back(etcd: &Etcd, lease: i64, patience: Duration) -> Result<()> {
    etcd.retrying("give back", patience, async |within| -> Attempt<()> { etcd.revoke(lease, within).await }).await
}
