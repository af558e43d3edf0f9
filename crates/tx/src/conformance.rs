//! What every object engine must do, checked from outside: through [`Engine`] and [`Transaction`](crate::Transaction) alone.
//!
//! An engine crate describes its engine as a [`Subject`] and gets one test per group:
//!
//! ```
//! use tx::Reference;
//! use tx::conformance::{Concurrency, Subject};
//!
//! struct Plain;
//!
//! impl Subject for Plain {
//!     type Engine = Reference;
//!     fn fresh(&self) -> Reference { Reference::new() }
//!     fn concurrency(&self) -> Concurrency { Concurrency::Versions }
//! }
//!
//! tx::conformance!(plain, Plain);
//! ```
//!
//! Checks panic where they find something. Each has been seen to: the tests of this crate run them on engines that are broken on purpose.

// One of them per group; each says what it asks for.
mod alloc;
mod atomicity;
#[doc(hidden)]
pub mod bank;
mod endings;
mod errors;
#[doc(hidden)]
pub mod failpoints;
mod forged;
pub mod history;
mod intend;
mod isolation;
pub mod keys;
mod many;
mod nesting;
mod own;
mod puts;
mod random;
mod retry;
mod root;
mod savepoints;
mod schedules;
pub mod shuttle;
mod size;
mod stage;
mod support;
mod visibility;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::{Engine, Isolation, NestedTop, Savepoints};

pub use shuttle::{explore, together};
pub use support::Rng;

/// An engine to be checked.
pub trait Subject: Send + Sync + 'static {
    /// Its type.
    type Engine: Engine + Sync + 'static;

    /// An empty one of its own: null root, room for at least [`ROOM`] bytes of objects.
    fn fresh(&self) -> Self::Engine;

    /// The same, to run under a scheduler: one that starts no thread. And small, there will be many.
    fn fresh_scheduled(&self) -> Self::Engine {
        self.fresh()
    }

    /// How it keeps transactions apart.
    fn concurrency(&self) -> Concurrency;

    /// Whether it can roll back. Without, changes that were begun stay, and an abort says so.
    fn atomic(&self) -> bool {
        true
    }

    /// The levels it begins transactions at.
    fn levels(&self) -> &'static [Isolation] {
        &Isolation::ALL
    }

    /// The level that transactions begun at `level` really have.
    fn kept(&self, level: Isolation) -> Isolation {
        match self.concurrency() {
            Concurrency::Locks => Isolation::Strict,
            Concurrency::Versions => level,
        }
    }

    /// Whether a step of a transaction may wait for another transaction to end, instead of failing. Such an engine is asked for the
    /// groups `isolation`, `retry` and `random`; in others its threads would wait for each other.
    fn waits(&self) -> bool {
        false
    }

    /// Schedules that are drawn for each check of the group `schedules`.
    fn schedules(&self) -> usize {
        300
    }
}

/// Objects that a fresh engine must hold.
pub const ROOM: u64 = 32 << 20;

/// How an engine keeps transactions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// Who uses an object keeps others from it; every level is strict.
    Locks,
    /// Readers see old versions; levels differ.
    Versions,
}

/// One thing that is asked for.
pub struct Check<S> {
    /// The group it belongs to.
    pub group: &'static str,
    /// Its name in the group.
    pub name: &'static str,
    run: Run<S>,
}

type Run<S> = Box<dyn Fn(&Arc<S>)>;

impl<S> Check<S> {
    fn shared(group: &'static str, name: &'static str, run: Run<S>) -> Self {
        Self { group, name, run }
    }

    /// Runs it on fresh engines, or stores.
    ///
    /// # Panics
    /// If they are wrong.
    pub fn run(&self, subject: &Arc<S>) {
        (self.run)(subject);
    }
}

impl<S: Subject> Check<S> {
    fn new(group: &'static str, name: &'static str, run: Box<dyn Fn(&S)>) -> Self {
        Self::shared(group, name, Box::new(move |subject| run(subject)))
    }

    /// Only for engines that can.
    fn rolls_back(self) -> Self {
        let run = move |subject: &Arc<S>| {
            if subject.atomic() {
                (self.run)(subject);
            }
        };
        Self { run: Box::new(run), ..self }
    }
}

/// A list of checks that are plain functions.
macro_rules! plain_checks {
    ($group:expr, $($kind:ident $name:ident),* $(,)?) => {
        vec![$($crate::conformance::plain_check!($group, $kind $name)),*]
    };
}

/// `any`: every engine; `rollback`: those that can.
macro_rules! plain_check {
    ($group:expr, any $name:ident) => {
        $crate::conformance::Check::new($group, stringify!($name), Box::new($name::<S>))
    };
    ($group:expr, rollback $name:ident) => {
        $crate::conformance::plain_check!($group, any $name).rolls_back()
    };
}

use {plain_check, plain_checks};

macro_rules! groups {
    ($($group:ident),*) => {
        /// The groups, in order.
        pub const GROUPS: &[&str] = &[$(stringify!($group)),*];

        /// All checks, in order of groups.
        #[must_use]
        pub fn checks<S: Subject>() -> Vec<Check<S>> {
            let mut all = Vec::new();
            $(all.extend($group::checks(stringify!($group)));)*
            all
        }
    };
}

groups!(
    atomicity, visibility, isolation, alloc, endings, nesting, own, forged, many, errors, retry, intend, puts, root,
    size, random, schedules
);

/// Runs the checks of one group, all of them even if some fail.
///
/// # Panics
/// If the engine fails one, or there is no such group.
pub fn run_group<S: Subject>(subject: S, group: &str) {
    assert!(GROUPS.contains(&group), "no group {group}");
    run_checks(checks(), subject, group, "engine");
}

/// The checks of savepoints and nested top actions.
#[must_use]
pub fn parts<S: Subject>() -> Vec<Check<S>>
where
    for<'e> <S::Engine as Engine>::Tx<'e>: Savepoints + NestedTop,
{
    let mut all = savepoints::checks();
    all.extend(savepoints::nested_top());
    all
}

/// Runs the checks of savepoints, all of them even if some fail.
///
/// # Panics
/// If the engine fails one.
pub fn run_savepoints<S: Subject>(subject: S)
where
    for<'e> <S::Engine as Engine>::Tx<'e>: Savepoints,
{
    run_checks(savepoints::checks(), subject, "savepoints", "engine");
}

/// Runs the checks of savepoints and nested top actions, all of them even if some fail.
///
/// # Panics
/// If the engine fails one.
pub fn run_parts<S: Subject>(subject: S, group: &str)
where
    for<'e> <S::Engine as Engine>::Tx<'e>: Savepoints + NestedTop,
{
    run_checks(parts(), subject, group, "engine");
}

fn run_checks<S>(checks: Vec<Check<S>>, subject: S, group: &str, what: &str) {
    let subject = Arc::new(subject);
    let mut failed = Vec::new();
    for check in checks.iter().filter(|check| check.group == group) {
        println!("{group}: {}", check.name); // shown if it fails, before its message
        if catch_unwind(AssertUnwindSafe(|| check.run(&subject))).is_err() {
            failed.push(check.name);
        }
    }
    assert!(failed.is_empty(), "{group}: the {what} fails {failed:?}");
}

/// One test per group for a [`Subject`], in a module of that name.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $subject:expr) => {
        $crate::conformance!(
            $name, $subject, atomicity visibility isolation alloc endings nesting own forged many errors retry intend puts root
            size random schedules
        );
    };
    ($name:ident, $subject:expr, $($group:ident)*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $group() {
                    $crate::conformance::run_group($subject, stringify!($group));
                }
            )*

            #[test]
            fn no_group_is_missing() {
                assert_eq!($crate::conformance::GROUPS, [$(stringify!($group)),*]);
            }
        }
    };
}

/// The same for an engine whose transactions have [`Savepoints`] and [`NestedTop`].
#[macro_export]
macro_rules! conformance_of_parts {
    ($name:ident, $subject:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn savepoints() {
                $crate::conformance::run_parts($subject, "savepoints");
            }

            #[test]
            fn nested_top() {
                $crate::conformance::run_parts($subject, "nested_top");
            }
        }
    };
}
