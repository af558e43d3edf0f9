//! A simulated network does what every backend does.

use std::sync::Arc;
use std::time::Duration;

use fabric::sim::{Faults, Network};
use fabric::{Connection, Result, Window};
use fabric_conformance::Subject;

/// Moved by a thread of its own, slowly enough for others.
pub(crate) struct Simulated(pub(crate) Network);

impl Simulated {
    /// Frames take all kinds of times; none is lost.
    pub(crate) fn new() -> Self {
        let delays = Faults { delay_max: Duration::from_millis(1), slow_per_mille: 50, ..Faults::none() };
        Self(Network::new(17, delays))
    }
}

impl Subject for Simulated {
    fn connect(&self, [a, b]: [Option<Arc<dyn Window>>; 2]) -> Result<[Connection; 2]> {
        let (at_a, at_b) = self.0.connect(self.0.node(), self.0.node(), b, a)?;
        Ok([at_a, at_b])
    }

    fn move_on(&self) {
        if self.0.step().is_none() {
            std::thread::yield_now();
        }
    }
}

fabric_conformance::conformance!(conforms, Simulated::new());
