//! What can go wrong, grouped by what the caller can do about it.

use std::time::Duration;

use crate::Lsn;

/// Every error of this crate. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- try again later -------------------------------------------------------------------------------------
    /// An earlier record was reserved and is not complete. The record asked for may become durable all the same, once that one is.
    #[error(
        "record {lsn} was reserved and is not complete after {waited:?}: complete or drop that reservation, then force again"
    )]
    Stalled {
        /// The record waited for.
        lsn: Lsn,
        /// How long.
        waited: Duration,
    },
    /// A reservation was forgotten or is still held, so the log cannot be closed cleanly.
    #[error("record {lsn} was reserved and never completed: complete or drop that reservation, then close again")]
    Unfinished {
        /// The first such record.
        lsn: Lsn,
    },
    /// A record is not durable yet, so it cannot be cleaned up.
    #[error("record {lsn} is not durable yet (durable through {forced}): force it, then clean it up")]
    NotForced {
        /// The record.
        lsn: Lsn,
        /// Durable through here.
        forced: Lsn,
    },
    /// The writer cleaned up records that this reader had not read.
    #[error("records {wanted} to {} were cleaned up before they were read: read on from {head}", Lsn(head.0 - 1))]
    Overtaken {
        /// The next record the reader wanted.
        wanted: Lsn,
        /// The oldest there is.
        head: Lsn,
    },

    // ---- make space ------------------------------------------------------------------------------------------
    /// Records that are not cleaned up leave no room.
    #[error("the log is full: {live} bytes of {capacity} hold records from {head} on; clean some up, or grow the log")]
    Full {
        /// The oldest record not cleaned up.
        head: Lsn,
        /// Bytes from it to the end.
        live: u64,
        /// Bytes for records.
        capacity: u64,
    },
    /// A record does not fit into a segment.
    #[error("a record of {len} bytes is longer than this log takes ({max}); make the log with larger segments")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// Most a record may have.
        max: u64,
    },
    /// The log has been grown as often as its superline can tell.
    #[error("the log has been grown {max} times, as often as it can be; copy it into a larger one")]
    GrownTooOften {
        /// Most times.
        max: usize,
    },

    // ---- repair, or open with something else ------------------------------------------------------------------
    /// A record that was durable cannot be read back.
    #[error(
        "record {lsn} at byte {offset} was durable and cannot be read back (records through {through} were durable): \
         restore the log from a copy, or take what is left of it with `cairn log cat --salvage`"
    )]
    Lost {
        /// The first record that is lost.
        lsn: Lsn,
        /// Where it stands or stood, from the start of the pool.
        offset: u64,
        /// Everything through here had been durable, at least.
        through: Lsn,
    },
    /// The region holds no log.
    #[error("region {region:?} at byte {offset} holds no log ({why}); check the name")]
    NotALog {
        /// The region.
        region: String,
        /// Its first byte, from the start of the pool.
        offset: u64,
        /// What was found instead.
        why: &'static str,
    },
    /// A newer version wrote it.
    #[error("the log has format version {found}, this program reads up to {supported}; use a newer one")]
    NewerVersion {
        /// Found in the superline.
        found: u32,
        /// Newest known.
        supported: u32,
    },
    /// The superline verifies and makes no sense.
    #[error("the superline at byte {offset} says {what} = {found}, which cannot be; restore the log from a copy")]
    BadSuperline {
        /// Its first byte, from the start of the pool.
        offset: u64,
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
    },

    // ---- change the call -------------------------------------------------------------------------------------
    /// An option is out of range.
    #[error("{what} is {found}, and must be from {min} to {max}")]
    Limit {
        /// The option.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// The pool, or the medium below it.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
