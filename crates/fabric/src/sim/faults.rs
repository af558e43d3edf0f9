//! How bad a network is.

use std::time::Duration;

/// What happens by itself, by chance. Partitions, resets and crashes on demand are methods of [`Network`](super::Network).
#[derive(Clone, Debug)]
pub struct Faults {
    /// A frame takes this long, at least.
    pub delay_min: Duration,
    /// ... and at most, all values alike.
    pub delay_max: Duration,
    /// Frames of a thousand that take up to `slow_max` instead.
    pub slow_per_mille: u32,
    /// Longest delay of a slow frame.
    pub slow_max: Duration,
    /// Messages of a thousand that arrive once more, at once or later.
    pub duplicates_per_mille: u32,
    /// Deliveries of a million at which the connection is reset.
    pub resets_per_million: u32,
    /// Lost connections of a thousand whose frames under way still arrive, up to `slow_max` later.
    pub stale_per_mille: u32,
    /// Writes of a thousand that are in delivery when a connection ends, or access is taken away, and of which some words arrive.
    pub torn_per_mille: u32,
    /// A connection with frames that cannot get through is given up after this long, by half of it earlier or later.
    pub give_up: Duration,
    /// Frames and events that wait for one end: with more, the sender finds it slow and closes.
    pub queue_max: usize,
}

impl Faults {
    /// Every frame takes 5 µs. A connection is lost by a partition and on demand alone, and then cleanly.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            delay_min: Duration::from_micros(5),
            delay_max: Duration::from_micros(5),
            slow_per_mille: 0,
            slow_max: Duration::from_micros(5),
            duplicates_per_mille: 0,
            resets_per_million: 0,
            stale_per_mille: 0,
            torn_per_mille: 0,
            give_up: Duration::from_millis(100),
            queue_max: 4096,
        }
    }

    /// All of them, often enough to meet each in a history of some thousand events.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            delay_min: Duration::from_micros(2),
            delay_max: Duration::from_micros(200),
            slow_per_mille: 20,
            slow_max: Duration::from_millis(50),
            duplicates_per_mille: 20,
            resets_per_million: 500,
            stale_per_mille: 500,
            torn_per_mille: 700,
            give_up: Duration::from_millis(100),
            queue_max: 4096,
        }
    }
}
