//! Hosts that are cut off, and processes that are stopped. All of it says so and passes where there can be no such network.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know for tests")]

mod cuts;
mod leftovers;
mod processes;

use std::time::Duration;

/// Much longer than anything takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long silence is waited for.
const SILENCE: Duration = Duration::from_millis(300);
