//! One thing that is asked for, and running many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
    pub(crate) fn shared(group: &'static str, name: &'static str, run: Run<S>) -> Self {
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

/// Runs those of one group, all of them even if some fail.
pub(crate) fn run_checks<S>(checks: Vec<Check<S>>, subject: S, group: &str, what: &str) {
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
