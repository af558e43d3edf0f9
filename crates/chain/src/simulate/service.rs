//! The membership service: linearizable, with leases and sessions; it may be away.

use std::collections::BTreeMap;

use crate::{ReplicaId, View, ViewId};

/// Microseconds.
pub(crate) const TTL: u64 = 30_000;

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// A process has started: earlier sessions of its machine are over.
    Open,
    /// The view, and whose leases have ended.
    Look,
    Propose(View),
    Renew {
        id: ReplicaId,
        sent: u64,
    },
    Await(ViewId),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Opened(View),
    Seen(View, Vec<ReplicaId>),
    Proposed { proposal: ViewId, view: View },
    Renewed { id: ReplicaId, until: u64 },
    Ended(ViewId),
}

pub(crate) struct Service {
    pub(crate) view: View,
    pub(crate) away: bool,
    sessions: BTreeMap<u32, u64>,
    leases: BTreeMap<ReplicaId, u64>,
    /// Those that were members, and when their leases end.
    removed: BTreeMap<ReplicaId, u64>,
    pub(crate) guards: bool,
}

impl Service {
    pub(crate) fn new(view: View, guards: bool) -> Self {
        let leases = view.members.iter().map(|&id| (id, TTL)).collect();
        Self { view, away: false, sessions: BTreeMap::new(), leases, removed: BTreeMap::new(), guards }
    }

    pub(crate) fn answer(&mut self, now: u64, machine: u32, session: u64, ask: Ask) -> Option<Answer> {
        let current = self.sessions.get(&machine).is_none_or(|&newest| newest <= session);
        match ask {
            Ask::Open if current => {
                self.sessions.insert(machine, session);
                Some(Answer::Opened(self.view.clone()))
            }
            Ask::Look if current => {
                let ended = |id: &ReplicaId| self.leases.get(id).is_none_or(|&end| end < now);
                let lapsed = self.view.members.iter().copied().filter(ended).collect();
                Some(Answer::Seen(self.view.clone(), lapsed))
            }
            Ask::Propose(view) => {
                let proposal = view.id;
                if (current || !self.guards) && proposal.0 == self.view.id.0 + 1 {
                    self.install(view);
                }
                Some(Answer::Proposed { proposal, view: self.view.clone() }).filter(|_| current)
            }
            Ask::Renew { id, sent } if current && !self.removed.contains_key(&id) => {
                self.leases.insert(id, now + TTL);
                Some(Answer::Renewed { id, until: sent + TTL - TTL / 50 })
            }
            Ask::Await(view) => {
                let ended = self.view.id == view && self.removed.values().all(|&end| end < now);
                ended.then_some(Answer::Ended(view))
            }
            Ask::Open | Ask::Look | Ask::Renew { .. } => None,
        }
    }

    fn install(&mut self, view: View) {
        for id in self.view.members.iter().filter(|id| !view.contains(**id)) {
            self.removed.insert(*id, self.leases.get(id).copied().unwrap_or(0));
        }
        self.view = view;
    }
}
