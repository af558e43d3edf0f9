//! A map of keys and values on a [chain] of machines, for clients of Redis' protocol: what `cairn chain serve` serves.
//!
//! A request that changes something is answered when every member has it. A client that numbers its requests (`ONCE`) may ask again, at whichever machine leads then: each is carried out once,
//! and its reply is the same.
//!
//! | module | what it does with a request |
//! |---|---|
//! | `service` | takes connections at an address, a thread for each |
//! | `session` | finds requests in bytes, knows which clients are let in, says which machine leads if this one does not |
//! | `request` | what can be asked |
//! | `member` | whose map it is for, and how that is served |
//! | `map` | carries it out, in one transaction |
//! | [`demo`] | a bank on three machines that are killed, and what was lost |

#![forbid(unsafe_code)]

pub mod demo;
mod map;
mod member;
mod request;
mod service;
mod session;

pub use member::{Member, Settings};
pub use service::{Counts, Service};

/// Nanoseconds of a clock that goes on.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
