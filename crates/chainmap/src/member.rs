//! Whose map is served, and how.

use chain::Node;
use chain::process::Process;

/// The machine whose map is served.
pub trait Member: Send + Sync + 'static {
    /// Its replica.
    fn node(&self) -> &Node;

    /// Its number.
    fn machine(&self) -> u32;

    /// Which machine leads, and where clients reach it, as far as is known.
    fn leader(&self) -> Option<(u32, Option<String>)>;

    /// The same of the tail, which answers what only reads.
    fn tail(&self) -> Option<(u32, Option<String>)>;
}

impl Member for Process {
    fn node(&self) -> &Node {
        Self::node(self)
    }

    fn machine(&self) -> u32 {
        self.node().status().id.machine
    }

    fn leader(&self) -> Option<(u32, Option<String>)> {
        Self::leader(self)
    }

    fn tail(&self) -> Option<(u32, Option<String>)> {
        Self::tail(self)
    }
}

/// How a map is served.
#[derive(Clone, Default)]
pub struct Settings {
    /// What a client has to know.
    pub password: Option<String>,
    /// Of a map that is made now: one that no stranger knows, who could choose keys that collide.
    pub seed: u64,
    /// For tests of what looks for losses: a reply is sent before the commit.
    #[doc(hidden)]
    pub early: bool,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("has_password", &self.password.is_some()).finish_non_exhaustive()
    }
}
