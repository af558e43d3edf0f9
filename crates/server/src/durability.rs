//! What an answer to a write means: on how many machines it is durable. Less is answered sooner, and may be lost; no client sees it before it is committed, whatever its writer settles for.

use crate::engine::Stage;

/// What a connection waits for before it has its answer; the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The place of the write in the order of commits: it is not durable yet, and will be soon. What may be lost of a connection is bounded: what it was answered last, since what it sends
    /// next waits for it.
    Bounded,
    /// That it is durable on the machine that leads. On a store that is on one machine alone this is all there is.
    Local,
    /// The commit: it is durable on as many machines as the write quorum of the store says.
    #[default]
    Quorum,
}

impl Durability {
    const ALL: [Self; 3] = [Self::Bounded, Self::Local, Self::Quorum];

    /// As it is called in commands, options, and rules of users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bounded => "bounded",
            Self::Local => "local",
            Self::Quorum => "quorum",
        }
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().map(Self::name)
    }

    /// The one that is called so, in any case.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|one| name.eq_ignore_ascii_case(one.name().as_bytes()))
    }

    /// The stage of a commit that is enough; none if that is the commit.
    pub(crate) fn stage(self) -> Option<Stage> {
        match self {
            Self::Bounded => Some(Stage::Ordered),
            Self::Local => Some(Stage::Here),
            Self::Quorum => None,
        }
    }
}
