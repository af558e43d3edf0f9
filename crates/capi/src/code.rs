//! What calls return.

/// What a call came to. Codes are grouped, by hundreds, by what the caller can do: see `cairn_group_of`.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum cairn_code {
    /// Done.
    CAIRN_OK = 0,
    /// Nothing there: no such key, no further record or pair. Not an error, and without a message.
    CAIRN_END = 1,

    /// Another transaction writes or has written what this one uses: abort it and run it again.
    CAIRN_CONFLICT = 100,
    /// In use: by another process or thread, or something that was opened from it is not closed.
    CAIRN_BUSY = 101,
    /// A record before it was reserved and is not complete.
    CAIRN_STALLED = 102,
    /// The record is not durable yet.
    CAIRN_NOT_FORCED = 103,
    /// Too few replicas of a log are reached: bring more of them up.
    CAIRN_NO_QUORUM = 104,

    /// No room: in the log, in the store, on the file system.
    CAIRN_FULL = 200,

    /// Bytes on media contradict their checksums.
    CAIRN_DAMAGED = 300,
    /// What was durable cannot be read back.
    CAIRN_LOST = 301,
    /// The file holds something else.
    CAIRN_FOREIGN = 302,
    /// A newer version wrote it.
    CAIRN_NEWER = 303,
    /// A read-only open of what was not closed cleanly: open it for writing once.
    CAIRN_UNRECOVERED = 304,

    /// The commit's barrier failed: it may be durable or not. Open the store again to see.
    CAIRN_IN_DOUBT = 400,
    /// A sync failed, now or earlier: nothing since the last good one is proven durable. Close, and open again.
    CAIRN_SYNC = 401,
    /// A call on this handle met a bug of the library. Close it, and open it again, which recovers.
    CAIRN_POISONED = 402,
    /// Opened before a fork, used in the child: nothing but what the child has opened works there.
    CAIRN_FORKED = 403,
    /// A system call failed: see `cairn_last_errno`.
    CAIRN_IO = 404,
    /// The transaction can only be aborted: it has expired, or an earlier error was ignored.
    CAIRN_DOOMED = 405,
    /// Conflicts went on for longer than is waited for; perhaps this thread has the key in another transaction.
    CAIRN_GAVE_UP = 406,
    /// Another error: the message says which.
    CAIRN_FAILED = 407,
    /// Another program has taken the log over: this one is out.
    CAIRN_FENCED = 408,
    /// Too few replicas of the log are left: nothing more becomes durable here. Bring replicas up, and open again.
    CAIRN_QUORUM_LOST = 409,

    /// A null pointer where there must be none.
    CAIRN_NULL = 500,
    /// The handle was closed, or is none.
    CAIRN_CLOSED = 501,
    /// A string that is not UTF-8.
    CAIRN_NOT_UTF8 = 502,
    /// An argument or option that cannot be.
    CAIRN_INVALID = 503,
    /// A record, key or value that is longer than this file takes.
    CAIRN_TOO_LONG = 504,
    /// The file exists already.
    CAIRN_EXISTS = 505,
    /// There is no such file.
    CAIRN_MISSING = 506,
    /// It is open for reading only.
    CAIRN_READ_ONLY = 507,
    /// The buffer is too short, nothing was copied.
    CAIRN_SHORT = 508,

    /// From here on they are the program's own, for what the body of `cairn_kv_transact` returns.
    CAIRN_USER = 1000,
}

/// What the caller can do: a code divided by a hundred.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum cairn_group {
    /// Nothing needs to be done.
    CAIRN_FINE = 0,
    /// Try again later; after `CAIRN_CONFLICT` the whole transaction.
    CAIRN_AGAIN = 1,
    /// Make room, then try again: clean up, delete, free disk space.
    CAIRN_MAKE_ROOM = 2,
    /// Repair, restore from a copy, or open something else.
    CAIRN_REPAIR = 3,
    /// Close this handle, or abort this transaction; then perhaps open again.
    CAIRN_CLOSE = 4,
    /// Change the call.
    CAIRN_CHANGE_CALL = 5,
    /// The program's own code.
    CAIRN_OWN = 10,
}

/// What every function returns that can fail: one of `enum cairn_code`, or what the body of `cairn_kv_transact` returned.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type cairn_status = core::ffi::c_int;

/// The group of a code.
pub(crate) fn group(status: cairn_status) -> cairn_group {
    match status {
        100..200 => cairn_group::CAIRN_AGAIN,
        200..300 => cairn_group::CAIRN_MAKE_ROOM,
        300..400 => cairn_group::CAIRN_REPAIR,
        400..500 => cairn_group::CAIRN_CLOSE,
        500..600 => cairn_group::CAIRN_CHANGE_CALL,
        own if own >= cairn_code::CAIRN_USER as cairn_status => cairn_group::CAIRN_OWN,
        _ => cairn_group::CAIRN_FINE,
    }
}
