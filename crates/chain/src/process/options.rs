//! How a replica's process runs.

use std::time::Duration;

use fabric::Secret;
use membership::Access;

use super::{Failure, Text};
use crate::{Mode, ReplicaId, Sizes, View, ViewId};

/// How a replica's process runs.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) machine: u32,
    pub(super) listen: String,
    pub(super) announce: Option<String>,
    pub(super) serves: Option<String>,
    pub(super) etcd: Access,
    pub(super) prefix: String,
    pub(super) fabric: fabric::Options,
    pub(super) ttl: Duration,
    pub(super) tick: Duration,
    pub(super) timeout: Duration,
    pub(super) sizes: Sizes,
    pub(super) first: Vec<u32>,
    pub(super) f: Option<u32>,
    pub(super) new_file: bool,
}

impl Options {
    /// The replica of this machine, which listens at an address (host and port), of the chain whose keys at this etcd (`http://host:port` of its members, or [`Access`] with certificates or a user) are below
    /// `prefix`.
    pub fn new(machine: u32, listen: &str, etcd: impl Into<Access>, prefix: &str) -> Self {
        Self {
            machine,
            listen: listen.to_owned(),
            announce: None,
            serves: None,
            etcd: etcd.into(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            fabric: fabric::Options::default(),
            ttl: Duration::from_secs(5),
            tick: Duration::from_millis(100),
            timeout: Duration::from_secs(30),
            sizes: Sizes::default(),
            first: Vec::new(),
            f: None,
            new_file: false,
        }
    }

    /// A member whose file is lost may make a new one: the one that it had counts no more, should it be found. Without this it is an error if there is no file, which may be a wrong path, or a directory that is not
    /// mounted.
    #[must_use]
    pub fn new_file(self) -> Self {
        Self { new_file: true, ..self }
    }

    /// Where others reach it, if that is not where it listens.
    #[must_use]
    pub fn announce(self, address: &str) -> Self {
        Self { announce: Some(address.to_owned()), ..self }
    }

    /// Where clients reach what the program serves, for clients that ask another machine.
    #[must_use]
    pub fn serves(self, address: &str) -> Self {
        Self { serves: Some(address.to_owned()), ..self }
    }

    /// What all members know and no other process does: one that does not is not let in.
    #[must_use]
    pub fn secret(self, secret: Secret) -> Self {
        let fabric = fabric::Options { secret: Some(secret), anyone: false, ..self.fabric };
        Self { fabric, ..self }
    }

    /// Every process that reaches the address is trusted. One of this, a secret and certificates must be chosen.
    #[must_use]
    pub fn anyone(self) -> Self {
        Self { fabric: fabric::Options { anyone: true, ..self.fabric }, ..self }
    }

    /// How members connect, for certificates.
    #[must_use]
    pub fn fabric(self, fabric: fabric::Options) -> Self {
        Self { fabric, ..self }
    }

    /// How long a member's lease is: a member that is gone is taken out after as long. Whole seconds; five if nothing is said.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// How often what may be lost is said again. A tenth of a second if nothing is said; 30 of them are a joiner's time for its image.
    #[must_use]
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick, ..self }
    }

    /// How long a commit waits for the tail's word: half a minute if nothing is said.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Of the files of a new chain: the same for all that it begins with. A machine that joins takes the chain's.
    #[must_use]
    pub fn sizes(self, sizes: Sizes) -> Self {
        Self { sizes, ..self }
    }

    /// The machines that a new chain begins with, head first: the same for all of them. A chain that there is stays as it is.
    #[must_use]
    pub fn first_members(self, machines: &[u32]) -> Self {
        Self { first: machines.to_vec(), ..self }
    }

    /// Of a new chain: with fewer than `f + 1` members, others join. As many as it begins with, if nothing is said.
    #[must_use]
    pub fn failures(self, f: u32) -> Self {
        Self { f: Some(f), ..self }
    }

    /// What a new chain begins with.
    pub(super) fn first_text(&self, sizes: Sizes) -> Result<Text, Failure> {
        let first = self.first_view().ok_or_else(|| Failure::NoChain { prefix: self.prefix.clone() })?;
        Text::first(&first, sizes).check()
    }

    fn first_view(&self) -> Option<View> {
        let members: Vec<ReplicaId> = self.first.iter().map(|&machine| ReplicaId { machine, incarnation: 0 }).collect();
        let f = self.f.unwrap_or(members.len().saturating_sub(1) as u32);
        (!members.is_empty()).then_some(View { id: ViewId(1), members, f, mode: Mode::Values })
    }
}
