//! What C names of the replicas of a log.

/// A list of replicas, and how they are reached.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_replicas {
    opaque: [u8; 0],
}

/// How a replica is doing, for `cairn_log_replica`.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum cairn_replica_state {
    /// It counts, and takes no part: it was given up, or was not reached.
    CAIRN_REPLICA_AWAY = 0,
    /// It takes part.
    CAIRN_REPLICA_LIVE = 1,
    /// It is this program's own.
    CAIRN_REPLICA_OWN = 2,
}

/// When the leader's own replica is flushed, for `cairn_replicas_order`.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum cairn_order {
    /// While the others flush theirs.
    CAIRN_BESIDE = 0,
    /// Once enough others have the record.
    CAIRN_AFTER = 1,
    /// Before it is sent.
    CAIRN_BEFORE = 2,
}
