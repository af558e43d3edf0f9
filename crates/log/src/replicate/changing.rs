//! Which replicas there are changes while a leader leads: by two installations, the first of them joint. `docs/replication.md` says why.

use super::at::At;
use super::group::Over;
use super::leading::{Asked, Leading, Posting};
use super::members::Config;
use super::message::Request;
use crate::error::{Error, Result};
use crate::failpoints::Step;
use crate::image::Image;

impl Leading {
    /// A replica is not one of the log's any more.
    pub(crate) fn remove(&self, image: &Image, id: u64, pump: &mut dyn FnMut()) -> Result<()> {
        if self.own == Some(id) {
            let next = "let another machine lead, and remove it there";
            return Err(Error::Replicated { what: "remove the replica of its leader", next });
        }
        let mut posting = self.posting.lock();
        self.rest(image, pump)?;
        let config = self.config.lock().clone();
        if !config.ids.contains(&id) {
            return Ok(());
        }
        let next = self.joint(&config, config.ids.iter().copied().filter(|&i| i != id).collect());
        next.check()?;
        self.can_change(&next)?;
        let head = image.space().superline.head();
        let mut group = self.group.lock();
        group.removed(id);
        self.acks.news(&group, |_| true);
        drop(group);
        self.change(&mut posting, head, &next, pump)
    }

    /// The configuration on the way from one to these replicas.
    pub(super) fn joint(&self, config: &Config, ids: Vec<u64>) -> Config {
        let joint = config.towards(ids);
        if self.group.lock().skips(Step::JointFirst) { Config { before: None, ..joint } } else { joint }
    }

    /// An error if the live replicas cannot write both configurations, before any replica has heard of the second.
    pub(super) fn can_change(&self, next: &Config) -> Result<()> {
        let group = self.group.lock();
        let live = group.live_ids();
        let has = |id: u64| self.own == Some(id) || live.contains(&id);
        if next.can_write(has) || group.skips(Step::CanChange) {
            return Ok(());
        }
        let why = "too few of the replicas that would be left are live: nothing was changed";
        let missing = next.ids.iter().copied().filter(|&id| !has(id)).collect();
        Err(Error::QuorumUnavailable {
            why,
            found: next.ids.iter().filter(|&&id| has(id)).count(),
            missing,
            away: Vec::new(),
        })
    }

    /// All live replicas, and the own image, go over to a joint configuration, and when a write quorum of both has it, to the replicas behind the change.
    /// Nothing if they are there already.
    pub(super) fn change(
        &self,
        posting: &mut Posting,
        head: At,
        config: &Config,
        pump: &mut dyn FnMut(),
    ) -> Result<()> {
        if self.config.lock().ids == config.ids {
            return Ok(());
        }
        self.install(posting, head, config, pump)?;
        if config.before.is_some() { self.install(posting, head, &config.concluded(), pump) } else { Ok(()) }
    }

    /// Tells all live replicas, but one that joins, which knows it, and the own image, which replicas there are now. Nothing is under way meanwhile: the caller holds the posting. If too few know it in
    /// the end, of either group if it is joint, it is not certain which there are: then this leader is at its end, and a takeover finds out.
    fn install(&self, posting: &mut Posting, head: At, config: &Config, pump: &mut dyn FnMut()) -> Result<()> {
        let (end, origin) = (posting.end, self.promise.lock().get().origin(self.epoch));
        let request = Request::Install { head, end, config: config.clone(), origin };
        self.ask_all(&mut posting.links, &request, Asked::Install);
        let started = (self.clock)();
        loop {
            let live: Vec<usize> = self.group.lock().live().collect();
            let mut waiting: Vec<usize> =
                self.asked.lock().iter().filter(|a| a.2 == Asked::Install).map(|a| a.0).collect();
            waiting.retain(|peer| live.contains(peer));
            if waiting.is_empty() {
                break;
            }
            // Another leads, or too few are left: what this one waits for is nothing any more.
            self.check()?;
            if (self.clock)().saturating_sub(started) > self.timeout.as_micros() as u64 {
                for peer in waiting {
                    let why = "it does not say that it knows the replicas".into();
                    self.given_up(&mut self.group.lock(), peer, why);
                }
            }
            pump();
        }
        self.asked.lock().retain(|a| a.2 != Asked::Install);
        let live = self.group.lock().live_ids();
        let own = self.own.filter(|own| config.all().contains(own));
        if own.is_some() {
            let mut promise = self.promise.lock();
            let value = promise.get().with_config(self.epoch, self.epoch, config, origin);
            promise.update_mirrored(&value)?;
        }
        let knows = |id: u64| own == Some(id) || live.contains(&id);
        if !config.can_write(knows) {
            let needed = config.write_quorum as usize;
            let mut group = self.group.lock();
            group.end(Over::QuorumLost { live: live.len() + usize::from(own.is_some()), needed });
            self.acks.news(&group, |_| true);
            drop(group);
            return self.check();
        }
        *self.config.lock() = config.clone();
        Ok(())
    }
}
