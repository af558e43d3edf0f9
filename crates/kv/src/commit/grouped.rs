//! Commits of a group: see [`group`].

use std::sync::Arc;

use pmem::sync::{OwnMutex, switch_point};

use crate::commit::Committing;
use crate::commit::barrier::{checksum, drain_into};
use crate::commit::publish::publish;
use crate::commit::validate::Terms;
use crate::commit::{announce, end};
use crate::durable::group::{self, Member, Written};
use crate::error::{Error, Result};
use crate::isolation::active::Pin;
use crate::space::need::Need;
use crate::writers::work::{Known, Stage, Work};
use crate::writers::writer::{Log, Run};

impl Committing<'_> {
    pub(super) fn commit_grouped(
        &self,
        pin: &Pin<'_>,
        work: &mut Work,
        terms: Terms<'_>,
        shared: &OwnMutex<Log>,
    ) -> Result<u64> {
        let first = self.commit_in_group(pin, work, terms, shared);
        match first {
            Err(ref error)
                if error
                    .refused()
                    .is_some_and(|need| !self.shortage.is_hopeless(&self.versions.concurrency.active, pin, need)) => {}
            other => return other,
        }
        self.checkpointing().checkpoint()?;
        self.commit_in_group(pin, work, terms, shared)
    }

    /// As [`commit`](Self::commit), with the barrier, and the log, of a group.
    fn commit_in_group(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>, shared: &OwnMutex<Log>) -> Result<u64> {
        // Its own log is for what it supersedes. It is held until the index leads to all of this: a thread that takes the mark of the shared log first, and
        // then locks this one, finds in the index what is before the mark.
        let (number, mut log) = self.versions.writers.claim();
        let writer = self.versions.writers.get(number);
        writer.prepare(pin);
        announce(self.versions, pin, work, 1 << number);
        switch_point();
        let (joined, position) = self.persistence.group.join(&self.versions.concurrency);
        let ts = position.ts;
        switch_point();
        writer.prepared(ts);
        let mut told = None;
        let result = self
            .validate(pin, work, number, ts, terms)
            .and_then(|()| joined.write(work, || told = self.lead(shared)))
            .and_then(|written| publish(self.versions, pin, work, &written.runs, written.base, &mut log));
        if result.is_ok() {
            writer.count();
        }
        end(self.versions, writer, work, 1 << number, Some(&position));
        drop(log);
        if result.is_ok() {
            position.wait_until_seen();
        }
        if let Some(bytes) = told {
            self.checkpointing().account(bytes);
        }
        result.map(|()| ts)
    }

    /// Writes for all who are ready; returns bytes that are worth telling.
    fn lead(&self, shared: &OwnMutex<Log>) -> Option<u64> {
        let mut members = self.persistence.group.take();
        let mut log = shared.lock();
        let mut written = self.write_group(&mut members, &mut log);
        if members.len() > 1 && !matches!(written, Ok(_) | Err(Error::InDoubt { .. })) {
            // Nothing was stored: each gets its own answer.
            self.persistence.group.put_back(members.split_off(1));
            written = self.write_group(&mut members, &mut log);
        }
        let told = log.tell(&self.versions.space);
        drop(log);
        self.persistence.group.pass_on();
        let mut base = 0;
        let (runs, mut reason) = match written {
            Ok(runs) => (Some(runs), None),
            Err(error) => (None, Some(error)),
        };
        for member in members {
            let len = member.work.image.len();
            member.end(match &runs {
                Some(runs) => Ok(Written { runs: runs.clone(), base }),
                None => Err(group::in_doubt(&mut reason)),
            });
            base += len;
        }
        told
    }

    fn write_group(&self, members: &mut [Member], log: &mut Log) -> Result<Arc<[Run]>> {
        let need = || members.iter().map(|member| self.need(&member.work)).max().unwrap_or(Need::Data);
        let bases = members.iter().scan(0, |end, member| {
            let base = *end;
            *end += member.work.image.len();
            Some(base)
        });
        let bases: Vec<usize> = bases.collect();
        let records = members.iter().zip(&bases);
        let records = records.flat_map(|(m, base)| m.work.writes.iter().map(move |write| (base + write.at, write.len)));
        let mut runs = Vec::new();
        log.reserve(&self.versions.space, records, need, &mut runs)?;
        let mut behind: usize = members.iter().map(|member| member.work.writes.len()).sum();
        let (mut joined, mut link) = (Vec::new(), log.link());
        if members.len() > 1 {
            joined.reserve_exact(members.iter().map(|member| member.work.image.len()).sum());
        }
        let alone = members.len() == 1;
        for (at, (member, base)) in members.iter_mut().zip(&bases).enumerate() {
            behind -= member.work.writes.len();
            let before = (at == 0).then_some(log.link());
            let known = Known {
                ts: member.ts,
                generation: self.versions.medium.generation(),
                link: before,
                behind,
                number: (0, 0),
            };
            let checksummed = checksum(&self.versions.medium, &mut member.work, &runs, *base, 0, &known);
            if at == 0 {
                link = checksummed;
            }
            if !alone {
                joined.extend_from_slice(&member.work.image);
            }
        }
        members.iter().for_each(|member| member.work.tell(Stage::Ordered));
        let image = if alone { &members[0].work.image } else { &joined };
        drain_into(&self.versions.medium, &self.versions.space, image, &runs, link, log, members.len() as u32)?;
        Ok(runs.into())
    }
}
