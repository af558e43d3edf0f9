//! Which replicas a log has, how many of them a record must be on, and what a replica has promised to whom.
//!
//! With `N` replicas a record counts as durable on `W` of them, and recovery reads at least `R = N - W + 1`: any `R` have one of any `W` (Arcadia §4.2).

use pmem::{ChecksumKey, Persist};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Most replicas of a log.
pub const REPLICAS_MAX: usize = 7;
/// Most changes of one log's replicas, twice over: what a replica says from outside is never counted past the end.
const GENERATION_MAX: u32 = 1 << 31;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"cairncop");

/// What two replicas of one log have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) log: u64,
    pub(crate) key: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) segments: u64,
    /// Version of the pool format whose function checksums the records.
    pub(crate) checksums: u32,
}

/// Replicas, by their ids, and how many of them must have a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quorum {
    pub(crate) ids: Vec<u64>,
    pub(crate) write_quorum: u32,
}

/// The replicas of a log, and the write quorum.
///
/// A change is two configurations: a *joint* one, which has the replicas before the change, too, and needs quorums of both; when it is on a write quorum of both, the one
/// with the new replicas alone. [`docs/replication.md`](../../../../docs/replication.md) says why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) ids: Vec<u64>,
    pub(crate) write_quorum: u32,
    /// Of two of one epoch the later counts: replicas join and leave while a leader leads. No two have the same.
    pub(crate) generation: u32,
    /// Of a joint configuration: the replicas before the change.
    pub(crate) before: Option<Quorum>,
}

impl Quorum {
    fn check(&self) -> Result<()> {
        let limit = |what, found, max| {
            if (1..=max).contains(&found) { Ok(()) } else { Err(Error::Limit { what, found, min: 1, max }) }
        };
        limit("replicas of the log", self.ids.len() as u64, REPLICAS_MAX as u64)?;
        limit("write quorum", u64::from(self.write_quorum), self.ids.len() as u64)?;
        for (i, id) in self.ids.iter().enumerate() {
            if self.ids[..i].contains(id) {
                return Err(Error::ReplicaTwice { id: *id });
            }
        }
        Ok(())
    }

    fn count(&self, has: impl Fn(u64) -> bool) -> usize {
        self.ids.iter().filter(|&&id| has(id)).count()
    }

    fn read_quorum(&self) -> usize {
        self.ids.len() - self.write_quorum as usize + 1
    }
}

impl Config {
    /// Of replicas that are all there are.
    pub(crate) fn of(ids: Vec<u64>, write_quorum: u32) -> Self {
        Self { ids, write_quorum, generation: 0, before: None }
    }

    /// Checks what came from outside.
    pub(super) fn check(&self) -> Result<()> {
        self.quorums().try_for_each(|quorum| quorum.check())?;
        let (found, max) = (self.all().len() as u64, REPLICAS_MAX as u64);
        if found > max {
            return Err(Error::Limit { what: "replicas of the log", found, min: 1, max });
        }
        let (found, max) = (self.generation.into(), GENERATION_MAX.into());
        if found > max {
            Err(Error::Limit { what: "changes of the log's replicas", found, min: 0, max })
        } else {
            Ok(())
        }
    }

    fn quorums(&self) -> impl Iterator<Item = Quorum> + '_ {
        let now = Quorum { ids: self.ids.clone(), write_quorum: self.write_quorum };
        std::iter::once(now).chain(self.before.clone())
    }

    /// All replicas, those before the change too.
    pub(super) fn all(&self) -> Vec<u64> {
        let mut all = self.ids.clone();
        let before = self.before.iter().flat_map(|before| &before.ids);
        all.extend(before.filter(|id| !self.ids.contains(id)));
        all
    }

    /// True if these replicas are a write quorum, of both if it is joint.
    pub(crate) fn can_write(&self, has: impl Fn(u64) -> bool) -> bool {
        self.quorums().all(|quorum| quorum.count(&has) >= quorum.write_quorum as usize)
    }

    /// True if these replicas are a read quorum, of both if it is joint.
    pub(crate) fn can_read(&self, has: impl Fn(u64) -> bool) -> bool {
        self.quorums().all(|quorum| quorum.count(&has) >= quorum.read_quorum())
    }

    /// True if a joint configuration can be [withdrawn](Self::withdrawn) by these: they are a write quorum of those before the change and a read quorum of those behind it. Not if
    /// lost replicas were replaced: of those before, fewer have a record.
    pub(crate) fn can_withdraw(&self, has: impl Fn(u64) -> bool) -> bool {
        let now = Quorum { ids: self.ids.clone(), write_quorum: self.write_quorum };
        self.before.as_ref().is_some_and(|before| {
            before.write_quorum >= now.write_quorum
                && before.count(&has) >= before.write_quorum as usize
                && now.count(&has) >= now.read_quorum()
        })
    }

    /// The same replicas, so many steps later.
    pub(super) fn later(self, steps: u32) -> Self {
        Self { generation: self.generation.saturating_add(steps), ..self }
    }

    /// The joint configuration on the way to these replicas.
    pub(super) fn towards(&self, ids: Vec<u64>) -> Self {
        let before = Quorum { ids: self.ids.clone(), write_quorum: self.write_quorum };
        Self { ids, before: Some(before), ..self.clone() }.later(1)
    }

    /// The replicas behind the change, alone: once the joint configuration is on a write quorum of both.
    pub(super) fn concluded(&self) -> Self {
        Self { before: None, ..self.clone() }.later(2)
    }

    /// The replicas before the change, alone: once the joint configuration is on replicas that [can withdraw](Self::can_withdraw) it.
    pub(super) fn withdrawn(&self) -> Option<Self> {
        let Quorum { ids, write_quorum } = self.before.clone()?;
        Some(Self { ids, write_quorum, before: None, ..*self }.later(2))
    }

    /// The same replicas, behind a change that may have come to a replica, and is given up: no later change has its generation.
    pub(super) fn burned(&self) -> Self {
        self.clone().later(2)
    }
}

/// Where the log of an epoch came from: the records before `taken` are those of the replicas that had epoch `base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) base: u32,
    pub(crate) taken: u64,
}

/// A [`Config`] and an [`Origin`], and the epoch that they are of.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Persist)]
struct Configured {
    epoch: u32,
    base: u32,
    taken: u64,
    write_quorum: u32,
    generation: u32,
    /// How many ids there are; of a joint one, [`Joint`] beside that.
    count: u64,
    ids: [u64; REPLICAS_MAX],
}

/// What makes a configuration a joint one, in the upper bytes of its count of ids: which of them are of the replicas behind the change, and which of those before it. 0 for one
/// that is not joint; an earlier build takes any other for no configuration.
#[derive(Clone, Copy)]
struct Joint {
    count: u8,
    before: u8,
    now: u8,
    write_quorum_before: u8,
}

impl Joint {
    fn of(config: &Config) -> Self {
        let all = config.all();
        let count = all.len().min(REPLICAS_MAX) as u8;
        let Some(before) = &config.before else { return Self { count, before: 0, now: 0, write_quorum_before: 0 } };
        let bits = |of: &[u64]| {
            all.iter().take(REPLICAS_MAX).enumerate().map(|(at, id)| u8::from(of.contains(id)) << at).sum()
        };
        Self {
            count,
            before: bits(&before.ids),
            now: bits(&config.ids),
            write_quorum_before: before.write_quorum as u8,
        }
    }

    fn pack(self) -> u64 {
        u32::from_le_bytes([self.count, self.before, self.now, self.write_quorum_before]).into()
    }

    fn unpack(count: u64) -> Option<Self> {
        let [count, before, now, write_quorum_before] = u32::try_from(count).ok()?.to_le_bytes();
        Some(Self { count, before, now, write_quorum_before })
    }
}

/// What a replica keeps beside its superline. Two epochs, in two cells: the one *promised* is given to a new leader before anything is read, and shuts the leaders
/// before it out; the one of the *log*, in the superline, says up to which recovery the replica took part. One field for both would let a replica that only
/// promised pass for one that was repaired.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[persist(name = "Vow")]
pub(crate) struct Promise {
    pub(super) magic: u64,
    /// Checksums the records, on every replica the same.
    pub(super) key: u64,
    /// Which replica this is.
    pub(super) me: u64,
    /// The leader that has the promise.
    pub(super) owner: u64,
    /// No leader with a lower epoch is heard.
    pub(super) promised: u32,
    /// Version of the pool format whose function checksums the records, 0 for version 1. (The name is part of the cell's type.)
    spare: u32,
    /// That of the superline's epoch counts; the other is of one to come, or past.
    configs: [Configured; 2],
}

impl Promise {
    pub(super) fn new(layout: &Layout, me: u64) -> Self {
        let (key, spare) = (layout.key, if layout.checksums == 1 { 0 } else { layout.checksums });
        Self { magic: MAGIC, key, me, owner: 0, promised: 0, spare, configs: [Configured::default(); 2] }
    }

    /// Version of the pool format whose function checksums the records.
    pub(super) fn checksums(&self) -> u32 {
        self.spare.max(1)
    }

    /// What checksums the records of the log called `log`.
    pub(super) fn checksum_key(&self, log: u64) -> ChecksumKey {
        if self.checksums() == 1 { ChecksumKey::format_1(self.key, log) } else { ChecksumKey::new(self.key, log) }
    }

    /// With a promise to this leader.
    pub(super) fn promising(self, epoch: u32, owner: u64) -> Self {
        Self { promised: epoch, owner, ..self }
    }

    /// The replicas there are by the log of this epoch.
    pub(super) fn config(&self, log_epoch: u32) -> Option<Config> {
        let found = self.configs.iter().find(|c| c.epoch == log_epoch && c.count > 0)?;
        let joint = Joint::unpack(found.count)?;
        let all = found.ids.get(..usize::from(joint.count))?;
        let of = |bits: u8| all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, &id)| id).collect();
        let before = Quorum { ids: of(joint.before), write_quorum: joint.write_quorum_before.into() };
        let before = Some(before).filter(|_| joint.before != 0);
        let ids = if before.is_some() { of(joint.now) } else { all.to_vec() };
        let config = Config { ids, write_quorum: found.write_quorum, generation: found.generation, before };
        config.check().is_ok().then_some(config)
    }

    /// Where the log of this epoch came from.
    pub(super) fn origin(&self, log_epoch: u32) -> Origin {
        let found = self.configs.iter().find(|c| c.epoch == log_epoch && c.count > 0);
        found.map_or(Origin::default(), |c| Origin { base: c.base, taken: c.taken })
    }

    /// With the replicas there are to be by the log of epoch `new`, while that of `present` still counts.
    pub(super) fn with_config(mut self, present: u32, new: u32, config: &Config, origin: Origin) -> Self {
        let mut ids = [0; REPLICAS_MAX];
        for (to, id) in ids.iter_mut().zip(&config.all()) {
            *to = *id;
        }
        let count = Joint::of(config).pack();
        let at = usize::from(self.configs[0].epoch == present && present != new);
        self.configs[at] = {
            let Origin { base, taken } = origin;
            let Config { write_quorum, generation, .. } = *config;
            Configured { epoch: new, base, taken, write_quorum, generation, count, ids }
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(n: u64, write_quorum: u32) -> Config {
        Config::of((1..=n).collect(), write_quorum)
    }

    #[test]
    fn any_two_quorums_meet() {
        for n in 1..=REPLICAS_MAX as u64 {
            for w in 1..=n as u32 {
                let config = config(n, w);
                config.check().expect("in range");
                for readers in 0..1_u32 << n {
                    let writers = !readers;
                    let reads = config.can_read(|id| readers >> (id - 1) & 1 == 1);
                    let writes = config.can_write(|id| writers >> (id - 1) & 1 == 1);
                    assert!(
                        !(reads && writes),
                        "{n} replicas, {w} written: {readers:b} could read what the others wrote"
                    );
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(config(0, 1).check().is_err());
        assert!(config(3, 0).check().is_err());
        assert!(config(3, 4).check().is_err());
        assert!(config(8, 4).check().is_err());
        assert!(Config::of(vec![1, 2, 1], 2).check().is_err());
    }

    /// A joint configuration, as a replica keeps it; and when some replicas can read it, the rest are a write quorum neither of the old ones nor of the new ones.
    #[test]
    fn a_joint_one_needs_quorums_of_both() {
        let layout = Layout { log: 7, key: 1, segment_bytes: 4096, segments: 4, checksums: 2 };
        for (from, to) in [(vec![1, 2, 3], vec![1, 2, 3, 4]), (vec![1, 2, 3, 5, 6, 7, 4], vec![1, 2, 3, 5, 6, 7])] {
            let old = Config::of(from, 2);
            let joint = old.towards(to.clone());
            joint.check().expect("both can be");
            let kept = Promise::new(&layout, 2).with_config(0, 5, &joint, Origin::default()).config(5);
            assert_eq!(kept.as_ref(), Some(&joint));
            assert_eq!(joint.concluded().ids, to);
            for readers in 0..1_u32 << 7 {
                let reads = |id: u64| readers >> (id - 1) & 1 == 1;
                let writes = |id: u64| !reads(id);
                if joint.can_read(reads) {
                    assert!(!old.can_write(writes) && !joint.concluded().can_write(writes), "{readers:b}");
                }
            }
        }
        let eight = Config::of((1..8).collect(), 4).towards((2..9).collect());
        assert!(eight.check().is_err(), "no replica has room for eight");
    }

    /// Replicas that can withdraw a change share one with any that can read the replicas before it, or could write those behind it.
    #[test]
    fn a_change_is_withdrawn_by_those_whom_all_others_meet() {
        let sets = |n: u32| (0..1_u32 << n).map(|bits| move |id: u64| bits >> (id - 1) & 1 == 1);
        let mut withdrawn = 0;
        for (from, to, w) in [
            (vec![1, 2, 3], vec![1, 3], 2),
            (vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4], 3),
            (vec![1, 2, 3], vec![1, 2, 3, 4], 2),
            (vec![1, 2, 3], vec![1, 4, 5], 2),
            (vec![1, 2], vec![3, 4], 1),
        ] {
            let old = Config::of(from, w);
            let joint = old.towards(to);
            for has in sets(5) {
                let Some(back) = joint.withdrawn().filter(|_| joint.can_withdraw(has)) else { continue };
                withdrawn += 1;
                assert_eq!((&back.ids, back.write_quorum, &back.before), (&old.ids, w, &None));
                for other in sets(5) {
                    let meet = || (1..=5).any(|id| has(id) && other(id));
                    assert!(!old.can_read(other) || meet());
                    assert!(!joint.concluded().can_write(other) || meet());
                }
            }
        }
        assert!(withdrawn > 0);
        let replaced =
            Config { before: Some(Quorum { ids: vec![1, 2], write_quorum: 1 }), ..Config::of(vec![1, 2, 4], 2) };
        assert!(!replaced.can_withdraw(|_| true), "fewer replicas would have each record than its user asked for");
    }

    #[test]
    fn changes_are_counted_and_refused_at_their_end() {
        let mut config = Config { generation: GENERATION_MAX, ..config(3, 2) };
        assert!(config.check().is_ok());
        assert!(config.towards(vec![1, 2]).check().is_err());
        config.generation = u32::MAX;
        assert!(config.check().is_err() && config.burned().concluded().check().is_err());
    }

    #[test]
    fn the_config_of_the_log_stays_until_the_next_counts() {
        let with = |promise: Promise, present, new, config: Config| {
            promise.with_config(present, new, &config, Origin::default())
        };
        let promise = with(
            Promise::new(&Layout { log: 7, key: 1, segment_bytes: 4096, segments: 4, checksums: 2 }, 2),
            0,
            5,
            config(2, 1),
        );
        assert_eq!(promise.config(5), Some(config(2, 1)));
        for promise in [promise, with(promise, 5, 6, config(1, 1))] {
            let promise = with(promise, 5, 7, config(3, 2));
            assert_eq!((promise.config(5), promise.config(7)), (Some(config(2, 1)), Some(config(3, 2))));
            let promise = with(promise, 7, 8, config(4, 2));
            assert_eq!((promise.config(7), promise.config(8)), (Some(config(3, 2)), Some(config(4, 2))));
            // Again at the same epoch: replicas come and go while a leader leads.
            let promise = with(promise, 8, 8, config(5, 3));
            assert_eq!(promise.config(8), Some(config(5, 3)));
        }
    }
}
