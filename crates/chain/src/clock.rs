//! The clock that leases are counted by: it never goes back, and goes on while the machine sleeps.

use crate::Moment;

pub(crate) fn now() -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Moment((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
}
