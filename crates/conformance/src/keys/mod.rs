//! What every store of keys and values must do, checked from outside: through [`Kv`] and [`KvTx`] alone.
//!
//! | group | what is asked |
//! |---|---|
//! | `basics` | one transaction at a time behaves like a sorted map |
//! | `hermitage` | scripts of two or three transactions, one for each anomaly with a name |
//! | `predicates` | the same about what is not there: gaps, edges, deleted keys |
//! | `phantoms` | threads insert and delete; scans agree with a model |
//! | `histories` | random transactions of eight threads, their history without cycles |
//! | `schedules` | few of them, under schedules that are drawn |
//!
//! ```
//! use conformance::keys::{Memory, Subject};
//!
//! struct Plain;
//!
//! impl Subject for Plain {
//!     type Store = Memory;
//!     fn fresh(&self) -> Memory { Memory::new() }
//! }
//!
//! conformance::keys!(plain, Plain);
//! ```
//!
//! Checks panic where they find something. Each has been seen to, on a [`Memory`] that is broken on purpose.

mod basics;
pub mod check;
mod fault;
mod graph;
mod hermitage;
mod histories;
pub mod history;
mod memory;
mod phantoms;
mod predicates;
mod record;
mod script;
#[cfg(test)]
mod tests;
mod trial;

use tx::{Isolation, Kv, KvTx, Result};

use crate::check::run_checks;

pub use crate::check::Check;
#[doc(hidden)]
pub use fault::Fault;
pub use memory::{Memory, MemoryTx};
pub use record::{Plan, Tally, record};

/// A store to be checked.
///
/// No step of a transaction may wait for another transaction to end: a conflict is an error.
pub trait Subject: Send + Sync + 'static {
    /// Its type.
    type Store: Kv + Sync + 'static;

    /// Whether [`commit`](Self::commit) tells the place of every commit that wrote.
    const TELLS_ORDER: bool = false;

    /// An empty one of its own.
    fn fresh(&self) -> Self::Store;

    /// The same, to run under a scheduler: one that starts no thread. And small, there will be many.
    fn fresh_scheduled(&self) -> Self::Store {
        self.fresh()
    }

    /// The levels it begins transactions at.
    fn levels(&self) -> &'static [Isolation] {
        &Isolation::ALL
    }

    /// The level that transactions begun at `level` really have.
    fn kept(&self, level: Isolation) -> Isolation {
        level
    }

    /// Whether a transaction that begins after a commit sees it, at every level. Without, only strict transactions are asked to.
    fn real_time(&self) -> bool {
        true
    }

    /// Whether write skew must get through at snapshot level: readers cost writers nothing there.
    fn skews(&self) -> bool {
        false
    }

    /// Commits; and, if the store knows it, says the commit's place in the order of all. Where all do, histories are judged by that order
    /// of writes. Otherwise by what writers saw of each other.
    ///
    /// # Errors
    /// As [`KvTx::commit`].
    fn commit(tx: <Self::Store as Kv>::Tx<'_>) -> Result<Option<u64>> {
        tx.commit().map(|()| None)
    }

    /// Transactions of all histories together; `CAIRN_TRANSACTIONS` in the environment asks for more.
    fn transactions(&self) -> usize {
        std::env::var("CAIRN_TRANSACTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
    }

    /// Part of the attempts of a history that must meet conflicts, in percent: fewer prove little.
    fn conflicts_percent(&self) -> usize {
        10
    }

    /// Schedules that are drawn for each check of the group `schedules`.
    fn schedules(&self) -> usize {
        200
    }
}

/// A list of checks that are plain functions.
macro_rules! key_checks {
    ($group:expr, $($name:ident),* $(,)?) => {
        vec![$($crate::check::Check::shared($group, stringify!($name), Box::new($name::<S>))),*]
    };
}

use key_checks;

macro_rules! groups {
    ($($group:ident $from:ident),*) => {
        /// The groups, in order.
        pub const GROUPS: &[&str] = &[$(stringify!($group)),*];

        /// All checks, in order of groups.
        #[must_use]
        pub fn checks<S: Subject>() -> Vec<Check<S>> {
            let mut all = Vec::new();
            $(all.extend($from::$group(stringify!($group)));)*
            all
        }
    };
}

groups!(
    basics basics, hermitage hermitage, predicates predicates, phantoms phantoms, histories histories, schedules histories
);

/// Runs the checks of one group, all of them even if some fail.
///
/// # Panics
/// If the store fails one, or there is no such group.
pub fn run_group<S: Subject>(subject: S, group: &str) {
    assert!(GROUPS.contains(&group), "no group {group}");
    run_checks(checks(), subject, group, "store");
}

/// One test per group for a [`Subject`](crate::keys::Subject), in a module of that name.
#[macro_export]
macro_rules! keys {
    ($name:ident, $subject:expr) => {
        $crate::keys!($name, $subject, basics hermitage predicates phantoms histories schedules);
    };
    ($name:ident, $subject:expr, $($group:ident)*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $group() {
                    $crate::keys::run_group($subject, stringify!($group));
                }
            )*

            #[test]
            fn no_group_is_missing() {
                assert_eq!($crate::keys::GROUPS, [$(stringify!($group)),*]);
            }
        }
    };
}
