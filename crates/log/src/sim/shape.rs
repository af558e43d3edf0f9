//! What a schedule is about, and what has happened in it.

use crash::Rng;

use crate::error::Error;

/// What a schedule is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) replicas: usize,
    pub(super) quorum: u32,
    /// Machines without a replica that may lead.
    pub(super) clients: usize,
    pub(super) calm: bool,
    pub(super) damages: bool,
    /// Machines stand for leader all the time, over a network that is often slow.
    pub(super) rivals: bool,
    /// Machines with an empty replica that is none of the log's when it is made: with one, replicas join that none leaves for, and others are removed.
    pub(super) spares: usize,
    /// Replicas join and leave all the time.
    pub(super) restless: bool,
    /// Each machine has the program of this build or of the one before, and another one with some of its restarts.
    pub(super) mixed: bool,
}

impl Shape {
    pub(super) fn random(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed ^ 0x5eed);
        let (replicas, quorum) = [(2, 1), (2, 2), (3, 2), (3, 2), (3, 3), (4, 3), (5, 3)][rng.index(7)];
        let (clients, calm) = (rng.index(3), rng.chance(1, 5));
        let (damages, rivals) = (quorum > 1 && rng.chance(1, 3), rng.chance(1, 5));
        // A log that was damaged has one replica too few already.
        let spares = if !damages && rng.chance(1, 2) { 1 + rng.index(2) } else { 0 };
        let mixed = rng.chance(1, 3);
        Self { replicas, quorum, clients, calm, damages, rivals, spares, restless: false, mixed }
    }

    /// With replicas that join and leave all the time, and leaders that stand meanwhile.
    pub(super) fn growing(seed: u64) -> Self {
        let spares = 1 + (seed % 2) as usize;
        Self { damages: false, rivals: seed % 4 < 3, spares, restless: true, ..Self::random(seed) }
    }

    /// Machines with a replica.
    pub(super) fn machines(&self) -> usize {
        self.replicas + self.spares
    }
}

/// How often each thing happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    pub(super) schedules: u64,
    pub(super) records: u64,
    pub(super) faults: u64,
    pub(super) elections: u64,
    pub(super) in_doubt: u64,
    pub(super) refused_in_doubt: u64,
    pub(super) unavailable: u64,
    pub(super) fenced: u64,
    pub(super) unrecoverable: u64,
    pub(super) damages: u64,
    pub(super) crashes: u64,
    pub(super) partitions: u64,
    pub(super) changes: u64,
    pub(super) joins: u64,
    pub(super) replaced: u64,
    pub(super) wipes: u64,
    pub(super) growths: u64,
    pub(super) removals: u64,
    pub(super) excused: u64,
    pub(super) spared: u64,
    pub(super) mixed_elections: u64,
    pub(super) mixed_joins: u64,
    pub(super) upgrades: u64,
    pub(super) downgrades: u64,
}

impl Coverage {
    pub(super) fn add(&mut self, other: &Self) {
        for (mine, more) in self.counts().into_iter().zip(other.clone().counts()) {
            *mine += *more;
        }
    }

    fn counts(&mut self) -> [&mut u64; 24] {
        [
            &mut self.schedules,
            &mut self.records,
            &mut self.faults,
            &mut self.elections,
            &mut self.in_doubt,
            &mut self.refused_in_doubt,
            &mut self.unavailable,
            &mut self.fenced,
            &mut self.unrecoverable,
            &mut self.damages,
            &mut self.crashes,
            &mut self.partitions,
            &mut self.changes,
            &mut self.joins,
            &mut self.replaced,
            &mut self.wipes,
            &mut self.growths,
            &mut self.removals,
            &mut self.excused,
            &mut self.spared,
            &mut self.mixed_elections,
            &mut self.mixed_joins,
            &mut self.upgrades,
            &mut self.downgrades,
        ]
    }

    pub(super) fn note(&mut self, error: &Error) {
        match error {
            Error::QuorumUnavailable { .. } => self.unavailable += 1,
            Error::InDoubt { .. } => self.refused_in_doubt += 1,
            Error::Fenced { .. } => self.fenced += 1,
            Error::Unrecoverable { .. } => self.unrecoverable += 1,
            _ => {}
        }
    }

    /// Everything that can happen has.
    pub(super) fn check(&self) {
        let mut counts = self.clone();
        for (at, count) in counts.counts().into_iter().enumerate() {
            assert!(*count > 0 || at == 8 || at == 18, "nothing of kind {at} in {self:#?}");
        }
    }
}
