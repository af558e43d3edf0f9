//! What every engine of objects must do: groups of checks, one in each module but these.
//!
//! | module | what is in it |
//! |---|---|
//! | `subject` | [`Subject`]: an engine to be checked |
//! | `plain` | lists of checks that are plain functions |
//! | `support` | steps that checks have in common |
//! | `stage` | scripts of several transactions, played step by step or by threads |
//! | `bank` | clerks that move money while something else is done to the engine, for the tests of engines |

mod alloc;
mod atomicity;
pub mod bank;
mod endings;
mod errors;
mod forged;
mod intend;
mod isolation;
mod many;
mod nested_top;
mod nesting;
mod own;
mod plain;
mod puts;
mod random;
mod retry;
mod root;
mod savepoints;
mod schedules;
mod size;
mod stage;
mod subject;
mod support;
mod visibility;

use tx::{Engine, NestedTop, Savepoints};

use crate::check::{Check, run_checks};

pub use subject::{Concurrency, ROOM, Subject};

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
    all.extend(nested_top::checks());
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

/// One test per group for a [`Subject`](crate::Subject), in a module of that name.
#[macro_export]
macro_rules! engine {
    ($name:ident, $subject:expr) => {
        $crate::engine!(
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
                    $crate::run_group($subject, stringify!($group));
                }
            )*

            #[test]
            fn no_group_is_missing() {
                assert_eq!($crate::GROUPS, [$(stringify!($group)),*]);
            }
        }
    };
}

/// The same for an engine whose transactions have [`tx::Savepoints`] and [`tx::NestedTop`].
#[macro_export]
macro_rules! parts {
    ($name:ident, $subject:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn savepoints() {
                $crate::run_parts($subject, "savepoints");
            }

            #[test]
            fn nested_top() {
                $crate::run_parts($subject, "nested_top");
            }
        }
    };
}
