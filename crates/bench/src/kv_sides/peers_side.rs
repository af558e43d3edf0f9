//! Other systems, behind [`peers::kv`].

use std::path::Path;

use peers::Peer;
use peers::kv::{How, Level, Room, Session as PeerSession};
use pmem::Stats;
use tx::{Backoff, Isolation, RetryPolicy};

use super::{KvRoom, KvSide, Session, Step, read_only};
use crate::target::{Found, Store};
use crate::{Error, Result};

/// A peer's store.
pub(super) struct OnPeer {
    peer: Peer,
    store: Box<dyn peers::kv::Store>,
}

impl OnPeer {
    pub(super) fn open(peer: Peer, dir: &Path, room: KvRoom) -> Result<Option<Self>> {
        let room = Room { bytes: room.bytes(), sessions: room.sessions };
        Ok(peer.open(dir, room)?.map(|store| Self { peer, store }))
    }
}

impl KvSide for OnPeer {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(OnSession { peer: self.peer, session: self.store.session()? }))
    }

    fn stats(&self) -> Option<Stats> {
        None
    }

    fn domain(&self) -> Option<String> {
        Some(pmem::Domain::File.to_string())
    }
}

struct OnSession {
    peer: Peer,
    session: Box<dyn PeerSession>,
}

impl OnSession {
    /// Tries one operation until no other is in its way.
    #[inline]
    fn insist<R>(&mut self, mut work: impl FnMut(&mut dyn PeerSession) -> peers::Result<R>) -> Result<(R, u64)> {
        match work(&mut *self.session) {
            Ok(done) => Ok((done, 0)),
            Err(error) if error.is_conflict() => {
                let mut backoff = Backoff::new(RetryPolicy::default());
                while backoff.wait() {
                    match work(&mut *self.session) {
                        Ok(done) => return Ok((done, backoff.attempts().into())),
                        Err(error) if error.is_conflict() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn pairs((pairs, aborts): (u64, u64)) -> Found {
    Found { pairs, aborts }
}

impl Store for OnSession {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found> {
        self.insist(|session| Ok(session.get(key, out)?.is_some().into())).map(pairs)
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found> {
        self.insist(|session| session.put(key, value).map(|()| 1)).map(pairs)
    }

    /// A transaction where there are some; else a read, and a write that another may come before.
    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found> {
        let how = self.peer.levels().contains(&Level::Serializable);
        self.insist(|session| {
            let mut found = false;
            if !how {
                found = session.get(key, out)?.is_some();
                return if found { session.put(key, value).map(|()| 1) } else { Ok(0) };
            }
            session.transact(How { level: Level::Serializable, read_only: false }, &mut |tx| {
                found = tx.get(key, out)?.is_some();
                if found { tx.put(key, value) } else { Ok(()) }
            })?;
            Ok(found.into())
        })
        .map(pairs)
    }

    /// Whether the key was there is not asked: it would cost some of them a read.
    fn delete(&mut self, key: &[u8]) -> Result<Found> {
        self.insist(|session| session.delete(key).map(|()| 1)).map(pairs)
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<Found> {
        self.insist(|session| session.scan(from, count, out).map(|found| found as u64)).map(pairs)
    }
}

impl Session for OnSession {
    fn attempt(&mut self, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Option<u64>> {
        let level = if isolation == Isolation::Snapshot { Level::Snapshot } else { Level::Serializable };
        if !self.peer.levels().contains(&level) {
            return Err(Error::Parameter(format!("{} has no {level:?} transactions", self.peer)));
        }
        let mut found = 0;
        let done = self.session.transact(How { level, read_only: read_only(steps) }, &mut |tx| {
            for step in steps {
                match step.put {
                    Some(value) => tx.put(step.key, value)?,
                    None => found += u64::from(tx.get(step.key, out)?.is_some()),
                }
            }
            Ok(())
        });
        match done {
            Ok(()) => Ok(Some(found)),
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
