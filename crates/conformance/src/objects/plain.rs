//! Lists of checks that are plain functions.

use std::sync::Arc;

use super::subject::Subject;
use crate::check::Check;

impl<S: Subject> Check<S> {
    pub(super) fn new(group: &'static str, name: &'static str, run: Box<dyn Fn(&S)>) -> Self {
        Self::shared(group, name, Box::new(move |subject| run(subject)))
    }

    /// Only for engines that can.
    pub(super) fn rolls_back(self) -> Self {
        let (group, name) = (self.group, self.name);
        let run = move |subject: &Arc<S>| {
            if subject.atomic() {
                self.run(subject);
            }
        };
        Self::shared(group, name, Box::new(run))
    }
}

/// A list of them.
macro_rules! plain_checks {
    ($group:expr, $($kind:ident $name:ident),* $(,)?) => {
        vec![$($crate::objects::plain::plain_check!($group, $kind $name)),*]
    };
}

/// `any`: every engine; `rollback`: those that can.
macro_rules! plain_check {
    ($group:expr, any $name:ident) => {
        $crate::check::Check::new($group, stringify!($name), Box::new($name::<S>))
    };
    ($group:expr, rollback $name:ident) => {
        $crate::objects::plain::plain_check!($group, any $name).rolls_back()
    };
}

pub(super) use {plain_check, plain_checks};
