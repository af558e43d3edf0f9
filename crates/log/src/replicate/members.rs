//! Which copies a log has, how many of them a record must be on, and what a copy has promised to whom.
//!
//! With `N` copies a record counts as durable on `W` of them, and recovery reads at least `R = N - W + 1`: any `R` have one of any `W` (Arcadia §4.2).

use pmem::{Persist, SealKey};
use serde::{Deserialize, Serialize};

use super::message::Layout;
use crate::error::{Error, Result};

/// Most copies of a log.
pub const COPIES_MAX: usize = 7;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"cairncop");

/// The copies of a log, by their ids, and the write quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) ids: Vec<u64>,
    pub(crate) write_quorum: u32,
    /// Of two of one epoch the later counts: copies join and leave while a leader leads.
    pub(crate) generation: u32,
}

impl Config {
    /// Checks what came from outside.
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, found, max| {
            if (1..=max).contains(&found) { Ok(()) } else { Err(Error::Limit { what, found, min: 1, max }) }
        };
        limit("copies of the log", self.ids.len() as u64, COPIES_MAX as u64)?;
        limit("write quorum", u64::from(self.write_quorum), self.ids.len() as u64)?;
        for (i, id) in self.ids.iter().enumerate() {
            if self.ids[..i].contains(id) {
                return Err(Error::TwiceACopy { id: *id });
            }
        }
        Ok(())
    }

    pub(crate) fn read_quorum(&self) -> usize {
        self.ids.len() - self.write_quorum as usize + 1
    }

    /// True if these copies are a write quorum.
    pub(crate) fn can_write(&self, has: impl Fn(u64) -> bool) -> bool {
        self.ids.iter().filter(|&&id| has(id)).count() >= self.write_quorum as usize
    }

    /// True if these copies are a read quorum.
    pub(crate) fn can_read(&self, has: impl Fn(u64) -> bool) -> bool {
        self.ids.iter().filter(|&&id| has(id)).count() >= self.read_quorum()
    }
}

/// Where the log of an epoch came from: the records before `taken` are those of the copies that had epoch `base`.
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
    count: u64,
    ids: [u64; COPIES_MAX],
}

/// What a copy keeps beside its superline. Two epochs, in two cells: the one *promised* is given to a new leader before anything is read, and shuts the leaders
/// before it out; the one of the *log*, in the superline, says up to which recovery the copy took part. One field for both would let a copy that only
/// promised pass for one that was repaired.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
pub(crate) struct Vow {
    pub(crate) magic: u64,
    /// Seals the records, on every copy the same.
    pub(crate) key: u64,
    /// Which copy this is.
    pub(crate) me: u64,
    /// Who has the promise.
    pub(crate) owner: u64,
    /// No leader with a lower epoch is heard.
    pub(crate) promised: u32,
    /// Version of the pool format whose function seals the records, 0 for version 1. (The name is part of the cell's type.)
    spare: u32,
    /// That of the superline's epoch counts; the other is of one to come, or past.
    configs: [Configured; 2],
}

impl Vow {
    pub(crate) fn new(layout: &Layout, me: u64) -> Self {
        let (key, spare) = (layout.key, if layout.seals == 1 { 0 } else { layout.seals });
        Self { magic: MAGIC, key, me, owner: 0, promised: 0, spare, configs: [Configured::default(); 2] }
    }

    /// Version of the pool format whose function seals the records.
    pub(crate) fn seals(&self) -> u32 {
        self.spare.max(1)
    }

    /// What seals the records of the log called `log`.
    pub(crate) fn seal_key(&self, log: u64) -> SealKey {
        if self.seals() == 1 { SealKey::format_1(self.key, log) } else { SealKey::new(self.key, log) }
    }

    /// With a promise to this leader.
    pub(crate) fn promising(self, epoch: u32, owner: u64) -> Self {
        Self { promised: epoch, owner, ..self }
    }

    /// The copies there are by the log of this epoch.
    pub(crate) fn config(&self, log_epoch: u32) -> Option<Config> {
        let found = self.configs.iter().find(|c| c.epoch == log_epoch && c.count > 0)?;
        let ids = found.ids.get(..found.count as usize)?.to_vec();
        let config = Config { ids, write_quorum: found.write_quorum, generation: found.generation };
        config.check().is_ok().then_some(config)
    }

    /// Where the log of this epoch came from.
    pub(crate) fn origin(&self, log_epoch: u32) -> Origin {
        let found = self.configs.iter().find(|c| c.epoch == log_epoch && c.count > 0);
        found.map_or(Origin::default(), |c| Origin { base: c.base, taken: c.taken })
    }

    /// With the copies there are to be by the log of epoch `new`, while that of `present` still counts.
    pub(crate) fn with_config(mut self, present: u32, new: u32, config: &Config, origin: Origin) -> Self {
        let mut ids = [0; COPIES_MAX];
        for (to, id) in ids.iter_mut().zip(&config.ids) {
            *to = *id;
        }
        let count = config.ids.len().min(COPIES_MAX) as u64;
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
        Config { ids: (1..=n).collect(), write_quorum, generation: 0 }
    }

    #[test]
    fn any_two_quorums_meet() {
        for n in 1..=COPIES_MAX as u64 {
            for w in 1..=n as u32 {
                let config = config(n, w);
                config.check().expect("in range");
                for readers in 0..1_u32 << n {
                    let writers = !readers;
                    let reads = config.can_read(|id| readers >> (id - 1) & 1 == 1);
                    let writes = config.can_write(|id| writers >> (id - 1) & 1 == 1);
                    assert!(
                        !(reads && writes),
                        "{n} copies, {w} written: {readers:b} could read what the others wrote"
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
        assert!(Config { ids: vec![1, 2, 1], write_quorum: 2, generation: 0 }.check().is_err());
    }

    #[test]
    fn the_config_of_the_log_stays_until_the_next_counts() {
        let with = |vow: Vow, present, new, config: Config| vow.with_config(present, new, &config, Origin::default());
        let vow = with(
            Vow::new(&Layout { log: 7, key: 1, segment_bytes: 4096, segments: 4, seals: 2 }, 2),
            0,
            5,
            config(2, 1),
        );
        assert_eq!(vow.config(5), Some(config(2, 1)));
        for vow in [vow, with(vow, 5, 6, config(1, 1))] {
            let vow = with(vow, 5, 7, config(3, 2));
            assert_eq!((vow.config(5), vow.config(7)), (Some(config(2, 1)), Some(config(3, 2))));
            let vow = with(vow, 7, 8, config(4, 2));
            assert_eq!((vow.config(7), vow.config(8)), (Some(config(3, 2)), Some(config(4, 2))));
            // Again at the same epoch: copies come and go while a leader leads.
            let vow = with(vow, 8, 8, config(5, 3));
            assert_eq!(vow.config(8), Some(config(5, 3)));
        }
    }
}
