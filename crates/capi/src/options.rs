//! Structs that programs fill or have filled. Each begins with its length: a program keeps the meaning of what it was compiled with, and a later version has more fields.

use std::time::Duration;

use kv::Durability;
use log::WhenFull;
use pmem::DomainChoice;

use crate::code::cairn_code::CAIRN_INVALID;
use crate::failure::{Failure, Result};

/// Where data is durable: for `domain` in options.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum cairn_domain {
    /// Found out: persistent memory if the mapping says so, emulated on tmpfs, else a file.
    CAIRN_AUTO = 0,
    /// Persistent memory, or nothing.
    CAIRN_PMEM = 1,
    /// Memory, whatever the file is on: fast, and lost with the power.
    CAIRN_EMULATED = 2,
    /// A file that is synced, whatever it is on.
    CAIRN_FILE = 3,
}

/// How a log is made and opened. Have it filled by `cairn_log_options_init`, then change what should be different. What is not about the size can be another at
/// every open.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_log_options {
    /// `sizeof` of this struct.
    pub size: usize,
    /// Bytes for records in a new log, headers included; rounded up to whole segments.
    pub bytes: u64,
    /// Bytes of a segment in a new log: no record is longer, and space is reclaimed by segments. A multiple of 64; 0: by the size of the log.
    pub segment: u64,
    /// Bytes of address space: the log cannot outgrow it while it is open.
    pub max_bytes: u64,
    /// Records become durable so many at a time. With 1 each `cairn_log_append` and `cairn_log_force` has a barrier.
    pub frequency: u32,
    /// How many threads append, for the bound of what a crash takes with a frequency of more than 1.
    pub threads: u32,
    /// No complete record waits longer for its force, whatever the frequency, in microseconds; 0: no limit.
    pub within_us: u64,
    /// After so long without an append the log says on media that all is durable, in microseconds; 0: never.
    pub idle_us: u64,
    /// How long a full log waits until records are discarded before it says `CAIRN_FULL`, in microseconds; 0: not at all.
    pub full_us: u64,
    /// How long a force waits for an earlier record that is not complete before it says `CAIRN_STALLED`, in microseconds.
    pub stall_timeout_us: u64,
    /// One of `enum cairn_domain`.
    pub domain: u32,
    /// Not 0: open a log that was closed, for reading only; several processes may at once.
    pub read_only: u32,
}

const _: () = assert!(size_of::<cairn_log_options>() == 80);

impl Default for cairn_log_options {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            bytes: 64 << 20,
            segment: 0,
            max_bytes: 1 << 40,
            frequency: 1,
            threads: 16,
            within_us: 0,
            idle_us: 100_000,
            full_us: 0,
            stall_timeout_us: 10_000_000,
            domain: cairn_domain::CAIRN_AUTO as u32,
            read_only: 0,
        }
    }
}

impl cairn_log_options {
    pub(crate) fn options(&self) -> Result<log::Options> {
        let after = |us: u64| (us > 0).then(|| Duration::from_micros(us));
        let mut options = log::Options::new()
            .bytes(self.bytes)
            .frequency(self.frequency)
            .threads(self.threads)
            .idle(after(self.idle_us))
            .when_full(after(self.full_us).map_or(WhenFull::Refuse, WhenFull::Wait))
            .stall_timeout(Duration::from_micros(self.stall_timeout_us))
            .pool(pool(self.domain, self.max_bytes)?);
        if self.segment > 0 {
            options = options.segment_bytes(self.segment);
        }
        if let Some(limit) = after(self.within_us) {
            options = options.within(limit);
        }
        Ok(options)
    }
}

/// How a store is made and opened. Have it filled by `cairn_kv_options_init`, then change what should be different.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_kv_options {
    /// `sizeof` of this struct.
    pub size: usize,
    /// Bytes of a segment in a new store: space is taken and freed by segments. A multiple of 4096.
    pub segment: u64,
    /// After how many bytes of new records a checkpoint is made, at most.
    pub checkpoint_bytes: u64,
    /// Bytes of memory that the index may take: new keys are refused beyond.
    pub index_memory: u64,
    /// Bytes of address space: the store cannot outgrow it while it is open.
    pub max_bytes: u64,
    /// How old a transaction may become before it is told to end, in microseconds; 0: as old as it likes.
    pub max_snapshot_age_us: u64,
    /// How many transactions can run at once.
    pub transactions: u32,
    /// 0: a commit is durable when it returns. Else commits return before their barrier, and a crash takes at most so many of the last ones, and nothing without what came
    /// before it.
    pub at_risk: u32,
    /// Whether commits at the same time are written as one: 0: as is best for the domain, 1: yes, 2: no.
    pub group_commit: u32,
    /// Not 0: no thread of the store makes checkpoints, threads that commit do.
    pub foreground: u32,
    /// Not 0: each read holds what it returns against its checksum.
    pub verify: u32,
    /// One of `enum cairn_domain`.
    pub domain: u32,
    /// Not 0: open a store that was closed, for reading only; several processes may at once.
    pub read_only: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<cairn_kv_options>() == 80);

impl Default for cairn_kv_options {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            segment: 1 << 20,
            checkpoint_bytes: 32 << 20,
            index_memory: u64::MAX,
            max_bytes: 1 << 40,
            max_snapshot_age_us: 0,
            transactions: 1024,
            at_risk: 0,
            group_commit: 0,
            foreground: 0,
            verify: 0,
            domain: cairn_domain::CAIRN_AUTO as u32,
            read_only: 0,
            reserved: 0,
        }
    }
}

impl cairn_kv_options {
    pub(crate) fn options(&self) -> Result<kv::Options> {
        let durability = if self.at_risk == 0 { Durability::Durable } else { Durability::Bounded(self.at_risk) };
        let age = (self.max_snapshot_age_us > 0).then(|| Duration::from_micros(self.max_snapshot_age_us));
        let options = kv::Options::new()
            .segment_bytes(self.segment)
            .checkpoint_bytes(self.checkpoint_bytes)
            .index_memory(self.index_memory)
            .transactions(self.transactions as usize)
            .durability(durability)
            .max_snapshot_age(age)
            .background(self.foreground == 0)
            .verify(self.verify != 0)
            .pool(pool(self.domain, self.max_bytes)?);
        if self.reserved != 0 {
            return Err(Failure::new(CAIRN_INVALID, format!("reserved is {}, and must be 0", self.reserved)));
        }
        match self.group_commit {
            0 => Ok(options),
            1 => Ok(options.group_commit(true)),
            2 => Ok(options.group_commit(false)),
            other => Err(Failure::new(CAIRN_INVALID, format!("group_commit is {other}, and must be 0, 1 or 2"))),
        }
    }
}

/// How an array is made and opened. Have it filled by `cairn_array_options_init`, then change what should be different. What is not about the size can be another at every
/// open.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_array_options {
    /// `sizeof` of this struct.
    pub size: usize,
    /// Bytes of log that each member of a new array has.
    pub log_bytes: u64,
    /// Bytes to which a member's log may grow when a transaction finds no room.
    pub log_max: u64,
    /// Bytes of a file that are on one member before the next follows, in a new array: a multiple of 64.
    pub stripe: u64,
    /// Bytes of a transaction that wait in memory for its commit, of those for one member; what is beyond waits in the log.
    pub draft_max: u64,
    /// On memory, a commit of more bytes has a second barrier in place of checksums over them.
    pub checksum_max: u64,
    /// Bytes of address space of a member: it cannot outgrow it while the array is open.
    pub max_bytes: u64,
    /// Transactions at once in a new array, those counted whose logs are still needed: at least 8 more than threads that commit.
    pub transactions: u32,
    /// One of `enum cairn_domain`.
    pub domain: u32,
    /// Not 0: pages go without a log to files that take them whole (`RWF_ATOMIC`).
    pub whole_writes: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<cairn_array_options>() == 72);

impl Default for cairn_array_options {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            log_bytes: 16 << 20,
            log_max: 1 << 30,
            stripe: 64 << 10,
            draft_max: 64 << 10,
            checksum_max: 64 << 10,
            max_bytes: 1 << 40,
            transactions: 64,
            domain: cairn_domain::CAIRN_AUTO as u32,
            whole_writes: 0,
            reserved: 0,
        }
    }
}

impl cairn_array_options {
    pub(crate) fn options(&self) -> Result<eaw::array::Options> {
        if self.reserved != 0 {
            return Err(Failure::new(CAIRN_INVALID, format!("reserved is {}, and must be 0", self.reserved)));
        }
        Ok(eaw::array::Options::new()
            .whole_writes(self.whole_writes != 0)
            .log_bytes(self.log_bytes)
            .log_max(self.log_max)
            .stripe_bytes(self.stripe)
            .draft_max(usize::try_from(self.draft_max).unwrap_or(usize::MAX))
            .checksum_max(self.checksum_max)
            .transactions(self.transactions)
            .pool(pool(self.domain, self.max_bytes)?))
    }
}

fn pool(domain: u32, max_bytes: u64) -> Result<pmem::Options> {
    use cairn_domain::{CAIRN_AUTO, CAIRN_EMULATED, CAIRN_FILE, CAIRN_PMEM};
    let choice = match domain {
        d if d == CAIRN_AUTO as u32 => DomainChoice::Auto,
        d if d == CAIRN_PMEM as u32 => DomainChoice::Pmem,
        d if d == CAIRN_EMULATED as u32 => DomainChoice::Emulated,
        d if d == CAIRN_FILE as u32 => DomainChoice::File,
        other => return Err(Failure::new(CAIRN_INVALID, format!("domain is {other}: one of enum cairn_domain"))),
    };
    Ok(pmem::Options::new().domain(choice).max_size(max_bytes))
}

/// Counts of a log.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct cairn_log_counts {
    /// `sizeof` of this struct, as it was given.
    pub size: usize,
    /// The oldest record not discarded, or the one to come.
    pub head: u64,
    /// The record to come.
    pub next: u64,
    /// Everything through here is durable.
    pub forced: u64,
    /// Bytes from the persistent head to the end, headers and gaps included.
    pub live_bytes: u64,
    /// Bytes in all segments.
    pub capacity: u64,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// How often the log was grown.
    pub growths: u64,
    /// How often space was reclaimed since it was opened.
    pub reclaims: u64,
    /// Raised by every open.
    pub epoch: u64,
    /// Barriers since it was opened.
    pub barriers: u64,
    /// Calls of `fdatasync` since it was opened.
    pub syncs: u64,
    /// What makes data durable here: one of `enum cairn_domain`, never `CAIRN_AUTO`.
    pub domain: u64,
}

const _: () = assert!(size_of::<cairn_log_counts>() == 104);

/// What opening a log found.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct cairn_log_found {
    /// `sizeof` of this struct, as it was given.
    pub size: usize,
    /// Records of the program that were there.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The oldest record, or the one to come.
    pub head: u64,
    /// The record to come.
    pub next: u64,
    /// The record that was not whole, and is gone: never forced, or damaged since; nothing on media tells which. 0: the log ended cleanly.
    pub in_doubt: u64,
    /// Not 0: it had been closed.
    pub was_closed: u64,
}

const _: () = assert!(size_of::<cairn_log_found>() == 56);

/// Counts of a store.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct cairn_kv_counts {
    /// `sizeof` of this struct, as it was given.
    pub size: usize,
    /// Keys; those that were deleted and are still remembered count, too.
    pub entries: u64,
    /// Commits since it was opened, of transactions that wrote something.
    pub commits: u64,
    /// Attempts that met a conflict, since it was opened.
    pub conflicts: u64,
    /// Transactions that are running now.
    pub active: u64,
    /// Commits that a crash would take now.
    pub at_risk: u64,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of versions that are needed.
    pub live_bytes: u64,
    /// Checkpoints since it was opened.
    pub checkpoints: u64,
    /// Barriers since it was opened.
    pub barriers: u64,
    /// Calls of `fdatasync` since it was opened.
    pub syncs: u64,
    /// What makes data durable here: one of `enum cairn_domain`, never `CAIRN_AUTO`.
    pub domain: u64,
}

const _: () = assert!(size_of::<cairn_kv_counts>() == 104);

/// Counts of an array.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct cairn_array_counts {
    /// `sizeof` of this struct, as it was given.
    pub size: usize,
    /// Members.
    pub members: u64,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Transactions at once.
    pub transactions: u64,
    /// How many more can begin without waiting for the logs of others.
    pub free: u64,
    /// The number of the newest commit.
    pub last: u64,
    /// Everything through this number is persistent in the files.
    pub retired: u64,
    /// Barriers since it was opened.
    pub barriers: u64,
    /// Calls of `fdatasync` since it was opened.
    pub syncs: u64,
}

const _: () = assert!(size_of::<cairn_array_counts>() == 72);

/// What opening an array found.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct cairn_array_found {
    /// `sizeof` of this struct, as it was given.
    pub size: usize,
    /// Transactions that were applied, again or for the first time.
    pub applied: u64,
    /// Transactions whose commit was cut short: nothing of them is there.
    pub dropped: u64,
    /// Transactions that were durable and could not be read back: nothing of them is there. `cairn array check` says which, and what they were to change.
    pub lost: u64,
    /// Lines of the transaction table that are not whole: commits that were cut short, or among the last of all, and damaged.
    pub in_doubt: u64,
}

const _: () = assert!(size_of::<cairn_array_found>() == 40);

/// The number of a domain.
pub(crate) fn domain(domain: pmem::Domain) -> u64 {
    match domain {
        pmem::Domain::Emulated => cairn_domain::CAIRN_EMULATED as u64,
        pmem::Domain::File => cairn_domain::CAIRN_FILE as u64,
        _ => cairn_domain::CAIRN_PMEM as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What C gets as defaults is what Rust has.
    #[test]
    fn defaults_are_those_of_the_crates() {
        let ours = |options: log::Options| format!("{options:?}");
        assert_eq!(ours(cairn_log_options::default().options().unwrap()), ours(log::Options::new()));
        let ours = |options: kv::Options| format!("{options:?}");
        assert_eq!(ours(cairn_kv_options::default().options().unwrap()), ours(kv::Options::new()));
        let ours = |options: eaw::array::Options| format!("{options:?}");
        assert_eq!(ours(cairn_array_options::default().options().unwrap()), ours(eaw::array::Options::new()));
    }
}
