//! The connection to etcd, and the log-in: one at a time, for all requests that wait.
//!
//! A log-in takes etcd long (bcrypt), and goes on there when no request waits for it any more. So it is a task of its own, with a time-out of its own: a
//! request that has waited long enough goes, the log-in stays, and the next request finds it. Behind a failure the next one waits, longer each time and not at
//! the same moment on each machine.
//!
//! A connection without an answer is thrown away, and the token is not: it is good at all of etcd's members, until one of them says that it is not.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Moment;
use crate::verdict::{Verdict, is_of_configuration, judge, why};
use crate::{Access, Error};

/// Longest that a log-in takes.
const LOG_IN: Duration = Duration::from_secs(5);
/// Behind the first failure, and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(2);

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// There may be one soon.
    Silent(String),
    /// etcd does not let this program in.
    Refused { endpoint: String, why: String },
    /// Nothing can be sent with what was given.
    Unusable { endpoint: String, why: String },
}

impl Cause {
    /// The error, unless it is of use to wait.
    pub(crate) fn error(self, doing: &'static str) -> Result<Error, String> {
        match self {
            Self::Silent(why) => Err(why),
            Self::Refused { endpoint, why } => Ok(Error::Refused { endpoint, doing, why }),
            Self::Unusable { endpoint, why } => Ok(Error::Unusable { endpoint, why }),
        }
    }
}

/// A connection, and which one.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) endpoint: String,
    pub(crate) change: u64,
}

type Outcome = Result<Connection, Cause>;

#[derive(Debug)]
pub(crate) struct Connections {
    access: Arc<Access>,
    connect_within: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The member to ask.
    current: usize,
    /// How often another member, or another connection, was taken.
    changes: u64,
    open: Option<Connection>,
    /// It had no answer; its token is taken along.
    given_up: Option<Connection>,
    /// While one is made: there is none open then.
    making: Option<watch::Receiver<Option<Outcome>>>,
    /// Since etcd has answered a request.
    failures: u32,
    /// Of the last of them.
    last: Option<Cause>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("current", &self.current).field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl Connections {
    pub(crate) fn new(access: Access, connect_within: Duration) -> Self {
        Self { access: Arc::new(access), connect_within, state: Arc::default() }
    }

    pub(crate) fn endpoints(&self) -> &[String] {
        &self.access.endpoints
    }

    /// What is waited for the first answer beyond the usual.
    pub(crate) fn log_in_within(&self) -> Duration {
        if self.access.has_user() { LOG_IN } else { Duration::ZERO }
    }

    /// The one to use; waits at most so long.
    pub(crate) async fn get(&self, within: Duration) -> Outcome {
        let (mut making, endpoint) = {
            let mut state = self.state.lock();
            if let Some(open) = &state.open {
                return Ok(open.clone());
            }
            (self.making(&mut state), self.access.endpoints[state.current].clone())
        };
        match tokio::time::timeout(within, making.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => match outcome.as_ref() {
                Some(outcome) => outcome.clone(),
                None => Err(Cause::Silent(format!("{endpoint} was not asked"))),
            },
            Ok(Err(_)) => {
                self.state.lock().making = None;
                Err(Cause::Silent(format!("{endpoint} was not asked")))
            }
            // A failure that is known says more.
            Err(_) => Err(self.state.lock().last.clone().unwrap_or_else(|| {
                Cause::Silent(format!("the connection to {endpoint}, with its log-in, takes longer than {within:?}"))
            })),
        }
    }

    /// What becomes of the one that is made; begins it if there is none.
    fn making(&self, state: &mut State) -> watch::Receiver<Option<Outcome>> {
        if let Some(making) = &state.making {
            return making.clone();
        }
        let (tell, told) = watch::channel(None);
        state.making = Some(told.clone());
        let making = Making {
            access: self.access.clone(),
            connect_within: self.connect_within,
            endpoint: self.access.endpoints[state.current].clone(),
            given_up: state.given_up.take(),
            pause: pause(state.failures, Moment::now()),
            state: self.state.clone(),
        };
        tokio::spawn(async move { tell.send_replace(Some(making.run().await)) });
        told
    }

    /// The next member is asked from now on, unless another request has already moved on.
    pub(crate) fn give_up(&self, change: u64) {
        let mut state = self.state.lock();
        if state.changes == change {
            let open = state.open.take();
            state.given_up = open.filter(|_| self.access.has_user());
            state.move_on(self.access.endpoints.len());
        }
    }

    /// etcd knows the token no more; false if there is no user who could log in.
    pub(crate) fn log_in_again(&self, change: u64) -> bool {
        let mut state = self.state.lock();
        if self.access.has_user() && state.changes == change {
            state.open = None;
            state.changes += 1;
            state.failures += 1;
        }
        self.access.has_user()
    }

    /// etcd has answered.
    pub(crate) fn is_good(&self) {
        self.state.lock().failures = 0;
    }
}

impl State {
    fn move_on(&mut self, endpoints: usize) {
        self.changes += 1;
        self.current = (self.current + 1) % endpoints;
    }
}

/// What makes a connection. No other task changes which member is asked meanwhile: that takes an open connection.
struct Making {
    access: Arc<Access>,
    connect_within: Duration,
    endpoint: String,
    given_up: Option<Connection>,
    pause: Duration,
    state: Arc<Mutex<State>>,
}

impl Making {
    async fn run(mut self) -> Outcome {
        let client = match self.moved().await {
            Some(client) => Ok(client),
            None => self.logged_in().await,
        };
        let mut state = self.state.lock();
        state.making = None;
        match client {
            Ok(client) => {
                let open = Connection { client, endpoint: self.endpoint, change: state.changes };
                (state.open, state.last) = (Some(open.clone()), None);
                Ok(open)
            }
            Err(cause) => {
                tracing::debug!(?cause, "no connection to etcd");
                state.failures += 1;
                state.last = Some(cause.clone());
                state.move_on(self.access.endpoints.len());
                Err(cause)
            }
        }
    }

    /// The same client, with its token, at another connection: made with the next request.
    async fn moved(&mut self) -> Option<Client> {
        let Connection { client, endpoint, .. } = self.given_up.take()?;
        client.remove_endpoint(uri(&endpoint)).await.ok()?;
        client.add_endpoint(&self.endpoint).await.ok()?;
        Some(client)
    }

    /// Without a user nothing is sent before the first request.
    async fn logged_in(&self) -> Result<Client, Cause> {
        tokio::time::sleep(self.pause).await;
        let options = self.access.options().with_connect_timeout(self.connect_within);
        let connect = Client::connect([&self.endpoint], Some(options));
        let endpoint = self.endpoint.clone();
        match tokio::time::timeout(LOG_IN, connect).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) if is_of_configuration(&error) => Err(Cause::Unusable { endpoint, why: why(&error) }),
            Ok(Err(error)) if judge(&error) == Verdict::Final => Err(Cause::Refused { endpoint, why: why(&error) }),
            Ok(Err(error)) => Err(Cause::Silent(why(&error))),
            Err(_) => Err(Cause::Silent(format!("{endpoint} has not answered a log-in in {LOG_IN:?}"))),
        }
    }
}

/// As the client calls a member that was named without a scheme.
fn uri(endpoint: &str) -> String {
    if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") }
}

/// Before the next attempt: from half of a time that doubles to all of it, by the clock's last digits, which differ from machine to machine.
fn pause(failures: u32, now: Moment) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let half = PAUSE.saturating_mul(1 << doublings.min(10)).min(PAUSE_MOST) / 2;
    half + Duration::from_nanos(now.ns() % u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_most_and_are_not_alike() {
        let at = |failures, ns| pause(failures, Moment::from_ns(ns));
        assert_eq!(at(0, 77), Duration::ZERO);
        for (failures, most) in [(1, PAUSE), (2, 2 * PAUSE), (4, 8 * PAUSE), (6, PAUSE_MOST), (u32::MAX, PAUSE_MOST)] {
            assert_eq!(at(failures, 0), most / 2);
            assert!((most / 2..most).contains(&at(failures, 123_456_789_123)), "{failures}");
        }
        assert_ne!(at(3, 1_000_001), at(3, 1_000_002));
    }
}
