//! The checks of the workspace that the compiler and clippy do not make: `cargo xtask check`. And the C header, which is one of them: `cargo xtask header`.
//!
//! [`metadata`] reads what cargo knows. Each rule is a function from that, or from the files, to a list of [`Problem`]s:
//! [`arrows`] (which crate may depend on which), [`circles`] (that no modules of a crate need each other), [`licences`] (of everything linked),
//! [`unsafe_code`] (where it may be),
//! [`links`] (that Markdown points at files that exist), [`messages`] (that errors say what to do next) and [`header`] (that the C header is what its sources say). Each has a planted violation in its tests.

#![forbid(unsafe_code)]

pub mod arrows;
pub mod circles;
pub mod header;
pub mod licences;
pub mod links;
pub mod messages;
pub mod metadata;
pub mod modules;
pub mod unsafe_code;

use std::fmt;

/// One violation: where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A path or a package.
    pub at: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: String,
}

impl Problem {
    /// `at: what`, and `next`.
    pub fn new(at: impl Into<String>, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { at: at.into(), what: what.into(), next: next.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}: {}\nnext: {}", self.at, self.what, self.next)
    }
}
