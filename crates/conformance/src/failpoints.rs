//! Every check has been seen to fail: lists of what is broken on purpose, and which checks notice it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Once};

use crate::check::Check;

/// A fault, and checks that notice it.
pub type Noticed<F> = (F, &'static [&'static str]);

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs each check that is listed on subjects `broken` so. What shows between real threads only does not show every time.
///
/// # Panics
/// If one finds nothing, or is none of `checks`.
pub fn each_fault_is_noticed<F: Copy + Debug + Send + Sync, S: Send + Sync>(
    noticed: &[Noticed<F>],
    broken: fn(F) -> S,
    checks: fn() -> Vec<Check<S>>,
) {
    let notices = |fault, name: &str| (0..30).any(|_| panics(name, || run(&checks(), name, broken(fault))));
    let mut missed = Vec::new();
    for &(fault, names) in noticed {
        missed.extend(names.iter().filter(|name| !notices(fault, name)).map(|name| format!("{fault:?} by {name}")));
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}

/// # Panics
/// If there is a check that is listed neither there nor in `others`.
pub fn each_check_notices_something<F, S>(noticed: &[Noticed<F>], others: &[&str], checks: &[Check<S>]) {
    let noticing: BTreeSet<&str> = noticed.iter().flat_map(|(_, names)| *names).chain(others).copied().collect();
    let blind: Vec<String> = checks.iter().map(full_name).filter(|name| !noticing.contains(name.as_str())).collect();
    assert!(blind.is_empty(), "never seen to fail: {blind:#?}");
}

fn full_name<S>(check: &Check<S>) -> String {
    format!("{}/{}", check.group, check.name)
}

/// False if there is no such check.
fn run<S>(checks: &[Check<S>], name: &str, subject: S) -> bool {
    let check = checks.iter().find(|check| full_name(check) == name);
    check.map(|check| check.run(&Arc::new(subject))).is_some()
}

/// On a thread of its own, which says nothing about it.
fn panics(name: &str, run: impl FnOnce() -> bool + Send) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    let result = std::thread::scope(|scope| {
        let quietly = || {
            QUIET.set(true);
            run()
        };
        scope.spawn(quietly).join()
    });
    assert!(!matches!(result, Ok(false)), "no check {name}");
    result.is_err()
}
