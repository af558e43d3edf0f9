//! Follows the leader, for processes that do not lead.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::etcd::Etcd;
use crate::inner::Inner;
use crate::member::leader_in;
use crate::{Error, Leader, Result};

/// What [`LeaderWatch::next`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A member leads.
    Leader(Leader),
    /// No member does: time to stand.
    Vacant,
    /// Nothing new in the time given.
    Unchanged,
}

/// The leader, change by change. Those that follow each other too fast are seen as one.
#[derive(Debug)]
pub struct LeaderWatch {
    board: Arc<Board>,
    /// Changes that were returned.
    seen: u64,
    _stop: oneshot::Sender<()>,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Board {
    view: Mutex<View>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct View {
    changes: u64,
    now: Option<State>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Leader(Leader),
    Vacant,
    Unknown(String),
    /// The leader's key holds something else.
    Foreign {
        key: String,
        why: String,
    },
}

impl LeaderWatch {
    /// Waits until what is known differs from what was returned last, at most so long.
    ///
    /// # Errors
    /// [`Error::Unreachable`], once, when etcd has stopped answering: there may be a new leader. Other errors likewise.
    pub fn next(&mut self, limit: Duration) -> Result<Seen> {
        let end = Moment::now() + limit;
        let mut view = self.board.view.lock();
        while view.changes == self.seen {
            let left = Moment::now().until(end);
            if left.is_zero() {
                return Ok(Seen::Unchanged);
            }
            self.board.changed.wait_for(&mut view, left.min(Duration::from_secs(3600)));
        }
        self.seen = view.changes;
        match view.now.clone() {
            Some(State::Leader(leader)) => Ok(Seen::Leader(leader)),
            Some(State::Vacant) => Ok(Seen::Vacant),
            Some(State::Unknown(why)) => Err(self.unreachable(why)),
            Some(State::Foreign { key, why }) => Err(Error::ForeignValue { key, why }),
            None => Ok(Seen::Unchanged),
        }
    }

    fn unreachable(&self, why: String) -> Error {
        let endpoints = self.inner.etcd.endpoints().join(", ");
        Error::Unreachable { doing: "follow the leader", endpoints, waited: self.inner.timeout, why }
    }
}

pub(crate) fn start(inner: Arc<Inner>) -> LeaderWatch {
    let board = Arc::new(Board::default());
    let (_stop, stopped) = oneshot::channel();
    let (etcd, timeout, key, shown) = (inner.etcd.clone(), inner.timeout, inner.leader_key(), board.clone());
    inner.runtime.spawn(move || async move {
        tokio::select! {
            _ = stopped => {}
            () = follow(etcd, timeout, key, shown) => {}
        }
    });
    LeaderWatch { board, seen: 0, _stop, inner }
}

/// Reads, shows, waits for a change; the wait ends after a while in any case, as a watch that has gone deaf says nothing.
async fn follow(etcd: Arc<Etcd>, timeout: Duration, key: String, board: Arc<Board>) {
    loop {
        let read = async |within| etcd.read(&key, false, within).await;
        match etcd.retrying("follow the leader", timeout, read).await {
            Ok(found) => {
                board.show(match leader_in(&found.entries) {
                    Ok(Some(leader)) => State::Leader(leader),
                    Ok(None) => State::Vacant,
                    Err(error) => State::Foreign { key: key.clone(), why: error.to_string() },
                });
                etcd.changed(&key, found.revision, timeout).await;
            }
            Err(Error::Unreachable { why, .. }) => board.show(State::Unknown(why)),
            Err(error) => {
                board.show(State::Unknown(error.to_string()));
                tokio::time::sleep(timeout).await;
            }
        }
    }
}

impl Board {
    fn show(&self, state: State) {
        let mut view = self.view.lock();
        let same = match (&view.now, &state) {
            (Some(State::Unknown(_)), State::Unknown(_)) => true,
            (now, state) => now.as_ref() == Some(state),
        };
        if !same {
            view.now = Some(state);
            view.changes += 1;
            self.changed.notify_all();
        }
    }
}
