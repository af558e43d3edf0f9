//! What handles of lists of replicas stand for.

use std::sync::atomic::AtomicBool;

use log::Replicas;
use log::fabric::Options as Trust;
use parking_lot::Mutex;

use crate::failure::Result;
use crate::handles::{Kept, Slots, alone};
use crate::types::replicas::cairn_replicas;

/// The replicas of a log, as far as they were named.
#[derive(Clone, Default)]
pub(crate) struct Named {
    pub(crate) replicas: Replicas,
    pub(crate) trust: Trust,
}

#[derive(Default)]
pub(crate) struct HeldReplicas {
    named: Mutex<Named>,
    poisoned: AtomicBool,
}

impl HeldReplicas {
    /// Changes what the handle stands for.
    pub(crate) fn change(handle: *const cairn_replicas, how: impl FnOnce(&mut Named) -> Result<()>) -> Result<()> {
        alone::<Self, _, _>(handle, how)
    }

    /// How the machines know each other.
    pub(crate) fn trust(handle: *const cairn_replicas) -> Result<Trust> {
        alone::<Self, _, _>(handle, |named: &mut Named| Ok(named.trust.clone()))
    }

    /// What was named so far.
    pub(crate) fn named(handle: *const cairn_replicas) -> Result<Replicas> {
        alone::<Self, _, _>(handle, |named: &mut Named| Ok(named.replicas.clone().trust(named.trust.clone())))
    }
}

impl AsRef<Mutex<Named>> for HeldReplicas {
    fn as_ref(&self) -> &Mutex<Named> {
        &self.named
    }
}

static REPLICAS: Slots<HeldReplicas> = Slots::new();

impl Kept for HeldReplicas {
    type C = cairn_replicas;
    const KIND: u64 = 6;
    const NAME: &'static str = "list of replicas";

    fn slots() -> &'static Slots<Self> {
        &REPLICAS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.poisoned
    }
}
