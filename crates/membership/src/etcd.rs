//! Requests to etcd, one at a time: each goes to the member that answered last, and one that does not answer is replaced by the next.
//!
//! A connection without an answer is thrown away with everything that waits in it: after a partition has healed, its next retransmission may be
//! minutes away.

use std::pin::pin;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions, ResponseHeader,
    Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::connection::{Connection, Connections};
use crate::verdict::{Verdict, judge, why};
use crate::{Access, Error, Result};

const NOT_ASKED: &str = "not asked";
/// Longest pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a single attempt came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No answer, or one that says nothing: whatever was asked for may have been done or not.
    NoAnswer(String),
    /// etcd knows no such lease.
    Gone,
    /// It is of no use to ask again.
    Final(Error),
}

pub(crate) type Attempt<T> = std::result::Result<T, Failure>;

/// What stands at a key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) created: u64,
    pub(crate) modified: u64,
    pub(crate) lease: i64,
}

impl From<&KeyValue> for Entry {
    fn from(found: &KeyValue) -> Self {
        Self {
            key: found.key().to_owned(),
            value: found.value().to_owned(),
            created: unsigned(found.create_revision()),
            modified: unsigned(found.mod_revision()),
            lease: found.lease(),
        }
    }
}

/// What a linearizable read found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) entries: Vec<Entry>,
    pub(crate) revision: u64,
    pub(crate) raft_term: u64,
}

/// What became of a compare-and-swap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    Won { created: u64 },
    NotWon,
}

/// What became of one that is guarded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Swap {
    Done,
    /// The guard's revision, 0 if it is gone.
    Not {
        guard: u64,
    },
}

/// An open stream of keep-alives of one lease. Answers come in the order of requests, so it is used for nothing more after one that was not waited for.
#[derive(Default)]
pub(crate) struct Renewals(Option<(Route, LeaseKeeper, LeaseKeepAliveStream)>);

#[derive(Debug)]
pub(crate) struct Etcd {
    connections: Connections,
    known: Mutex<Known>,
}

/// What answers have said.
#[derive(Debug, Default)]
struct Known {
    cluster: Option<u64>,
    /// The highest that any answer was given at.
    revision: u64,
}

/// Where a request goes.
struct Route {
    to: Connection,
    /// What was known before the request was sent.
    revision: u64,
}

impl Etcd {
    pub(crate) fn new(access: Access, connect_within: Duration) -> Self {
        Self { connections: Connections::new(access, connect_within), known: Mutex::default() }
    }

    pub(crate) fn endpoints(&self) -> &[String] {
        self.connections.endpoints()
    }

    /// How long one attempt takes of so much time: each member is asked, and one of them again.
    pub(crate) fn share(&self, limit: Duration) -> Duration {
        limit / (self.endpoints().len() as u32 + 1)
    }

    /// Repeats `attempt` until it says something, at most so long.
    pub(crate) async fn retrying<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        attempt: impl AsyncFn(Duration) -> Attempt<T>,
    ) -> Result<T> {
        self.attempts(doing, limit, self.share(limit), attempt).await
    }

    /// The same for what is asked first, which waits for a log-in, too.
    pub(crate) async fn beginning<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        attempt: impl AsyncFn(Duration) -> Attempt<T>,
    ) -> Result<T> {
        self.attempts(doing, limit + self.connections.log_in_within(), self.share(limit), attempt).await
    }

    async fn attempts<T>(
        &self,
        doing: &'static str,
        limit: Duration,
        share: Duration,
        attempt: impl AsyncFn(Duration) -> Attempt<T>,
    ) -> Result<T> {
        let end = Moment::now() + limit;
        let mut last = NOT_ASKED.to_owned();
        loop {
            let left = Moment::now().until(end);
            if left.is_zero() {
                let endpoints = self.endpoints().join(", ");
                return Err(Error::Unreachable { doing, endpoints, waited: limit, why: last });
            }
            match attempt(left.min(share)).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Gone) => "etcd knows no such lease".clone_into(&mut last),
                // An attempt for which little time was left says nothing that an earlier one has not.
                Err(Failure::NoAnswer(why)) if left >= share || last == NOT_ASKED => last = why,
                Err(Failure::NoAnswer(_)) => {}
            }
            tokio::time::sleep(PAUSE.min(share / 4)).await;
        }
    }

    /// Everything at the key, or below it.
    pub(crate) async fn read(&self, key: &str, below: bool, within: Duration) -> Attempt<Found> {
        let options = below.then(|| GetOptions::new().with_prefix());
        let route = self.route("read", within).await?;
        let answer = self.attempt("read", &route, within, async |mut client| client.get(key, options).await).await?;
        let (revision, raft_term) = self.accept(&route, answer.header(), true)?;
        Ok(Found { entries: answer.kvs().iter().map(Entry::from).collect(), revision, raft_term })
    }

    /// A lease, and how long etcd keeps it without a keep-alive.
    pub(crate) async fn grant(&self, ttl: Duration, within: Duration) -> Attempt<(i64, Duration)> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let route = self.route("lease", within).await?;
        let answer = self
            .attempt("lease", &route, within, async |mut client| {
                client.lease_grant(i64::try_from(seconds).unwrap_or(i64::MAX), None).await
            })
            .await?;
        self.accept(&route, answer.header(), true)?;
        Ok((answer.id(), Duration::from_secs(unsigned(answer.ttl()))))
    }

    /// The lease and all that is bound to it is gone when this returns.
    pub(crate) async fn revoke(&self, lease: i64, within: Duration) -> Attempt<()> {
        let route = self.route("give back", within).await?;
        match self.attempt("give back", &route, within, async |mut client| client.lease_revoke(lease).await).await {
            Ok(_) | Err(Failure::Gone) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn put(&self, key: &str, value: &[u8], lease: i64, within: Duration) -> Attempt<()> {
        let options = Some(PutOptions::new().with_lease(lease));
        let route = self.route("announce", within).await?;
        let answer =
            self.attempt("announce", &route, within, async |mut client| client.put(key, value, options).await).await?;
        self.accept(&route, answer.header(), true)?;
        Ok(())
    }

    /// Puts the key if it is not there.
    pub(crate) async fn claim(&self, key: &str, value: &[u8], lease: i64, within: Duration) -> Attempt<Claim> {
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        let vacant = Compare::create_revision(key, CompareOp::Equal, 0);
        let transaction = Txn::new().when([vacant]).and_then([put]);
        let route = self.route("claim", within).await?;
        let answer = self.attempt("claim", &route, within, async |mut client| client.txn(transaction).await).await?;
        let (revision, _) = self.accept(&route, answer.header(), true)?;
        let put = answer.op_responses().iter().any(|response| matches!(response, TxnOpResponse::Put(_)));
        Ok(if answer.succeeded() && put { Claim::Won { created: revision } } else { Claim::NotWon })
    }

    /// Puts the key anew if it is bound to this lease; nothing if it is gone, or another's.
    pub(crate) async fn replace(&self, key: &str, value: &[u8], lease: i64, within: Duration) -> Attempt<()> {
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        let transaction = Txn::new().when([Compare::lease(key, CompareOp::Equal, lease)]).and_then([put]);
        let route = self.route("announce", within).await?;
        let answer = self.attempt("announce", &route, within, async |mut client| client.txn(transaction).await).await?;
        self.accept(&route, answer.header(), true)?;
        Ok(())
    }

    /// Deletes the key if it has this value; nothing if it has another, or is gone.
    pub(crate) async fn delete_if(&self, key: &str, value: &[u8], within: Duration) -> Attempt<()> {
        let has = Compare::value(key, CompareOp::Equal, value);
        let transaction = Txn::new().when([has]).and_then([TxnOp::delete(key, None)]);
        let route = self.route("delete", within).await?;
        let answer = self.attempt("delete", &route, within, async |mut client| client.txn(transaction).await).await?;
        self.accept(&route, answer.header(), true)?;
        Ok(())
    }

    /// Writes a key without a value; at which revision.
    pub(crate) async fn mark(&self, key: &str, within: Duration) -> Attempt<u64> {
        let route = self.route("mark", within).await?;
        let answer = self.attempt("mark", &route, within, async |mut client| client.put(key, "", None).await).await?;
        Ok(self.accept(&route, answer.header(), true)?.0)
    }

    /// Puts the key if it is of that revision, 0 if it is to be new, and the guard is of its.
    pub(crate) async fn swap(
        &self,
        key: &str,
        revision: u64,
        (guard, guard_revision): (&str, u64),
        value: &[u8],
        within: Duration,
    ) -> Attempt<Swap> {
        let is_of =
            |key: &str, revision| Compare::mod_revision(key, CompareOp::Equal, i64::try_from(revision).unwrap_or(-1));
        let transaction = Txn::new()
            .when([is_of(key, revision), is_of(guard, guard_revision)])
            .and_then([TxnOp::put(key, value, None)])
            .or_else([TxnOp::get(guard, None)]);
        let route = self.route("replace", within).await?;
        let answer = self.attempt("replace", &route, within, async |mut client| client.txn(transaction).await).await?;
        self.accept(&route, answer.header(), true)?;
        if answer.succeeded() {
            return Ok(Swap::Done);
        }
        let revision_in = |response: TxnOpResponse| match response {
            TxnOpResponse::Get(found) => found.kvs().first().map(|found| unsigned(found.mod_revision())),
            _ => None,
        };
        Ok(Swap::Not { guard: answer.op_responses().into_iter().find_map(revision_in).unwrap_or(0) })
    }

    /// What etcd will wait from now on, and the raft term of what the member had applied before it renewed.
    pub(crate) async fn renew(
        &self,
        renewals: &mut Renewals,
        lease: i64,
        within: Duration,
    ) -> Attempt<(Duration, u64)> {
        let (route, open) = match renewals.0.take() {
            Some((route, keeper, answers)) => (route, Some((keeper, answers))),
            None => (self.route("keep alive", within).await?, None),
        };
        let renew = async |mut client: Client| {
            let (mut keeper, mut answers) = match open {
                Some(open) => open,
                // It renews once by itself, and throws that answer away.
                None => client.lease_keep_alive(lease).await?,
            };
            keeper.keep_alive().await?;
            let answer = answers.message().await?;
            Ok((keeper, answers, answer))
        };
        let (keeper, answers, answer) = self.attempt("keep alive", &route, within, renew).await?;
        let Some(answer) = answer else {
            return Err(self.no_answer(&route, "the stream of keep-alives ended".to_owned()));
        };
        if answer.ttl() <= 0 {
            return Err(Failure::Gone);
        }
        let (_, raft_term) = self.accept(&route, answer.header(), false)?;
        renewals.0 = Some((route, keeper, answers));
        Ok((Duration::from_secs(unsigned(answer.ttl())), raft_term))
    }

    /// Returns when the key changes after `revision`; also when so much time has passed, or nothing can be said.
    pub(crate) async fn changed(&self, key: &str, revision: u64, within: Duration) {
        let options = WatchOptions::new().with_start_revision(i64::try_from(revision).unwrap_or(i64::MAX - 1) + 1);
        let watch = async {
            let route = self.route("watch", within).await?;
            self.attempt("watch", &route, Duration::MAX, async |mut client| {
                let mut answers = client.watch(key, Some(options)).await?;
                while let Some(answer) = answers.message().await? {
                    if answer.canceled() || !answer.events().is_empty() {
                        return Ok(());
                    }
                }
                Ok(())
            })
            .await
        };
        match tokio::time::timeout(within, watch).await {
            Ok(Ok(())) | Err(_) => {}
            // The caller reads next, and learns from that.
            Ok(Err(_)) => tokio::time::sleep(PAUSE.min(within / 4)).await,
        }
    }

    /// The connection to use.
    async fn route(&self, doing: &'static str, within: Duration) -> Attempt<Route> {
        match self.connections.get(within).await {
            Ok(to) => Ok(Route { to, revision: self.known.lock().revision }),
            Err(cause) => Err(cause.error(doing).map_or_else(Failure::NoAnswer, Failure::Final)),
        }
    }

    async fn attempt<T>(
        &self,
        doing: &'static str,
        route: &Route,
        within: Duration,
        call: impl AsyncFnOnce(Client) -> std::result::Result<T, etcd_client::Error>,
    ) -> Attempt<T> {
        let call = pin!(call(route.to.client.clone()));
        let endpoint = &route.to.endpoint;
        let error = match tokio::time::timeout(within, call).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => return Err(self.no_answer(route, format!("{endpoint} did not answer in {within:?}"))),
        };
        match judge(&error) {
            Verdict::Retry => Err(self.no_answer(route, why(&error))),
            Verdict::LogIn if self.connections.log_in_again(route.to.change) => Err(Failure::NoAnswer(why(&error))),
            Verdict::Gone => Err(Failure::Gone),
            Verdict::Final | Verdict::LogIn => {
                Err(Failure::Final(Error::Refused { endpoint: endpoint.clone(), doing, why: why(&error) }))
            }
        }
    }

    /// The next member is asked from now on.
    fn no_answer(&self, route: &Route, why: String) -> Failure {
        self.connections.give_up(route.to.change);
        tracing::debug!(endpoint = route.to.endpoint, why, "etcd did not answer");
        Failure::NoAnswer(why)
    }

    /// Revision and raft term of an answer, if it is of the same cluster, with the same history. `ordered`: etcd gives it from no earlier a state than
    /// any answer before the request.
    fn accept(&self, route: &Route, header: Option<&ResponseHeader>, ordered: bool) -> Attempt<(u64, u64)> {
        let endpoint = route.to.endpoint.clone();
        let Some(header) = header else {
            return Err(self.no_answer(route, format!("{endpoint} answered without a header")));
        };
        self.connections.is_good();
        let (found, revision) = (header.cluster_id(), unsigned(header.revision()));
        let mut known = self.known.lock();
        let expected = *known.cluster.get_or_insert(found);
        if found != expected {
            return Err(Failure::Final(Error::OtherCluster { endpoint, found, expected }));
        }
        if ordered && revision < route.revision {
            return Err(Failure::Final(Error::HistoryLost { endpoint, found: revision, known: route.revision }));
        }
        known.revision = known.revision.max(revision);
        Ok((revision, header.raft_term()))
    }
}

/// etcd's numbers are signed and not negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
