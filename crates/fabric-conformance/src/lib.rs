//! What every backend must do, checked from outside: through [`Sender`](fabric::Sender), [`Receiver`](fabric::Receiver) and [`Access`](fabric::Access) alone.
//!
//! A backend is described as a [`Subject`] and gets one test per check:
//!
//! ```
//! use std::sync::Arc;
//! use fabric::sim::{Faults, Network};
//! use fabric::{Connection, Result, Window};
//! use fabric_conformance::Subject;
//!
//! struct Simulated(Network);
//!
//! impl Subject for Simulated {
//!     fn connect(&self, [a, b]: [Option<Arc<dyn Window>>; 2]) -> Result<[Connection; 2]> {
//!         let (at_a, at_b) = self.0.connect(self.0.node(), self.0.node(), b, a)?;
//!         Ok([at_a, at_b])
//!     }
//!     fn move_on(&self) {
//!         self.0.step();
//!     }
//! }
//!
//! fabric_conformance::conformance!(simulated, Simulated(Network::new(1, Faults::none())));
//! ```
//!
//! Checks panic where they find something. Each has been seen to: the tests of `fabric` run them on backends that are broken on purpose.

#![forbid(unsafe_code)]

mod access;
mod delivery;
mod endings;
mod support;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use fabric::{Connection, Result, Window};

/// A backend to be checked.
pub trait Subject: Sync {
    /// A connection of its own: the end that asked for it, and the end that was asked, with their windows. Neither has rights.
    ///
    /// # Errors
    /// What the backend says: no check goes on.
    fn connect(&self, windows: [Option<Arc<dyn Window>>; 2]) -> Result<[Connection; 2]>;

    /// Called again and again by a thread of its own while a check runs: for a backend that does not move by itself.
    fn move_on(&self) {
        std::thread::sleep(Duration::from_millis(5));
    }

    /// How long a check waits for what must come. Longer than the backend's own time-out for a slow peer.
    fn timeout(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// A check, by its name.
pub type Check = fn(&dyn Subject);

/// All of them.
pub const CHECKS: [(&str, Check); 20] = [
    ("order", delivery::order),
    ("bytes_come_before_the_immediate", delivery::bytes_come_before_the_immediate),
    ("long_writes", delivery::long_writes),
    ("reads", delivery::reads),
    ("reads_are_bounded", delivery::reads_are_bounded),
    ("messages_of_all_lengths", delivery::messages_of_all_lengths),
    ("too_long", delivery::too_long),
    ("both_ways_at_once", delivery::both_ways_at_once),
    ("no_rights", access::no_rights),
    ("rights_given_later", access::rights_given_later),
    ("read_only", access::read_only),
    ("out_of_bounds", access::out_of_bounds),
    ("revocation", access::revocation),
    ("last_message", access::last_message),
    ("failing_window", access::failing_window),
    ("close", endings::close),
    ("dropped_halves", endings::dropped_halves),
    ("slow_reader", endings::slow_reader),
    ("reconnect", endings::reconnect),
    ("several_at_once", waiting::several_at_once),
];

/// Runs the check of that name; for the macro.
#[doc(hidden)]
pub fn run(name: &str, subject: &dyn Subject) {
    let found = CHECKS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("there is no check {name}")).1(subject);
}

/// A module of tests, one for each check, of the [`Subject`](crate::Subject) that the expression gives.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $subject:expr) => {
        $crate::conformance!(
            @checks $module, $subject;
            order bytes_come_before_the_immediate long_writes reads reads_are_bounded messages_of_all_lengths too_long both_ways_at_once
            no_rights rights_given_later read_only out_of_bounds revocation last_message failing_window
            close dropped_halves slow_reader reconnect several_at_once
        );
    };
    (@checks $module:ident, $subject:expr; $($check:ident)*) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $check() {
                    $crate::run(stringify!($check), &$subject);
                }
            )*
            /// None is left out.
            #[test]
            fn all_checks() {
                let here = [$(stringify!($check)),*];
                assert!($crate::CHECKS.iter().map(|(name, _)| *name).eq(here));
            }
        }
    };
}
