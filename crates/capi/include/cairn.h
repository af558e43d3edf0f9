/*
 * Cairn: a log, a key-value store and an array of files whose every acknowledged byte is durable. Link
 * with -lcairn.
 *
 * Every function that can fail returns a cairn_status: CAIRN_OK, or what the caller can do something
 * about, with cairn_last_error() for people. Results come through pointers, which are left alone
 * unless the call succeeded. Handles are opaque, and none is ever followed: one that is null, was
 * closed, or is something else is an error. A file is open in one process; the child of a fork()
 * uses none of its parent's handles, and may open others.
 *
 * Made by `cargo xtask header` from crates/capi/src: change it there.
 */
#ifndef CAIRN_H
#define CAIRN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What calls return. */

/*
 * What a call came to. Codes are grouped, by hundreds, by what the caller can do: see
 * `cairn_group_of`.
 */
enum cairn_code {
	/* Done. */
	CAIRN_OK = 0,
	/*
	 * Nothing there: no such key, no further record or pair. Not an error, and without a
	 * message.
	 */
	CAIRN_END = 1,
	/*
	 * Another transaction writes or has written what this one uses: abort it and run it again.
	 */
	CAIRN_CONFLICT = 100,
	/*
	 * In use: by another process or thread, or something that was opened from it is not closed.
	 */
	CAIRN_BUSY = 101,
	/* A record before it was reserved and is not complete. */
	CAIRN_STALLED = 102,
	/* The record is not durable yet. */
	CAIRN_NOT_FORCED = 103,
	/* Too few replicas of a log are reached: bring more of them up. */
	CAIRN_NO_QUORUM = 104,
	/* No room: in the log, in the store, on the file system. */
	CAIRN_FULL = 200,
	/* Bytes on media contradict their checksums. */
	CAIRN_DAMAGED = 300,
	/* What was durable cannot be read back. */
	CAIRN_LOST = 301,
	/* The file holds something else. */
	CAIRN_FOREIGN = 302,
	/* A newer version wrote it. */
	CAIRN_NEWER = 303,
	/* A read-only open of what was not closed cleanly: open it for writing once. */
	CAIRN_UNRECOVERED = 304,
	/* The commit's barrier failed: it may be durable or not. Open the store again to see. */
	CAIRN_IN_DOUBT = 400,
	/*
	 * A sync failed, now or earlier: nothing since the last good one is proven durable. Close,
	 * and open again.
	 */
	CAIRN_SYNC = 401,
	/*
	 * A call on this handle met a bug of the library. Close it, and open it again, which
	 * recovers.
	 */
	CAIRN_POISONED = 402,
	/*
	 * Opened before a fork, used in the child: nothing but what the child has opened works
	 * there.
	 */
	CAIRN_FORKED = 403,
	/* A system call failed: see `cairn_last_errno`. */
	CAIRN_IO = 404,
	/* The transaction can only be aborted: it has expired, or an earlier error was ignored. */
	CAIRN_DOOMED = 405,
	/*
	 * Conflicts went on for longer than is waited for; perhaps this thread has the key in
	 * another transaction.
	 */
	CAIRN_GAVE_UP = 406,
	/* Another error: the message says which. */
	CAIRN_FAILED = 407,
	/* Another program has taken the log over: this one is out. */
	CAIRN_FENCED = 408,
	/*
	 * Too few replicas of the log are left: nothing more becomes durable here. Bring replicas
	 * up, and open again.
	 */
	CAIRN_QUORUM_LOST = 409,
	/* A null pointer where there must be none. */
	CAIRN_NULL = 500,
	/* The handle was closed, or is none. */
	CAIRN_CLOSED = 501,
	/* A string that is not UTF-8. */
	CAIRN_NOT_UTF8 = 502,
	/* An argument or option that cannot be. */
	CAIRN_INVALID = 503,
	/* A record, key or value that is longer than this file takes. */
	CAIRN_TOO_LONG = 504,
	/* The file exists already. */
	CAIRN_EXISTS = 505,
	/* There is no such file. */
	CAIRN_MISSING = 506,
	/* It is open for reading only. */
	CAIRN_READ_ONLY = 507,
	/* The buffer is too short, nothing was copied. */
	CAIRN_SHORT = 508,
	/*
	 * From here on they are the program's own, for what the body of `cairn_kv_transact`
	 * returns.
	 */
	CAIRN_USER = 1000,
};

/* What the caller can do: a code divided by a hundred. */
enum cairn_group {
	/* Nothing needs to be done. */
	CAIRN_FINE = 0,
	/* Try again later; after `CAIRN_CONFLICT` the whole transaction. */
	CAIRN_AGAIN = 1,
	/* Make room, then try again: clean up, delete, free disk space. */
	CAIRN_MAKE_ROOM = 2,
	/* Repair, restore from a copy, or open something else. */
	CAIRN_REPAIR = 3,
	/* Close this handle, or abort this transaction; then perhaps open again. */
	CAIRN_CLOSE = 4,
	/* Change the call. */
	CAIRN_CHANGE_CALL = 5,
	/* The program's own code. */
	CAIRN_OWN = 10,
};

/*
 * What every function returns that can fail: one of `enum cairn_code`, or what the body of
 * `cairn_kv_transact` returned.
 */
typedef int cairn_status;

/* ---- Errors. */

/*
 * The message of this thread's last error: what happened, where, and what to do next. Empty if
 * there was none; it stays until the thread's next error.
 */
const char *cairn_last_error(void);

/* The number of the system's error behind this thread's last error; 0 if it was no system call. */
int cairn_last_errno(void);

/* What the caller can do about it. */
enum cairn_group cairn_group_of(cairn_status status);

/* The version of the library, such as "0.1.0". */
const char *cairn_version(void);

/*
 * ---- Structs that programs fill or have filled. Each begins with its length: a program keeps the
 * meaning of what it was compiled with, and a later version has more fields.
 */

/* Where data is durable: for `domain` in options. */
enum cairn_domain {
	/* Found out: persistent memory if the mapping says so, emulated on tmpfs, else a file. */
	CAIRN_AUTO = 0,
	/* Persistent memory, or nothing. */
	CAIRN_PMEM = 1,
	/* Memory, whatever the file is on: fast, and lost with the power. */
	CAIRN_EMULATED = 2,
	/* A file that is synced, whatever it is on. */
	CAIRN_FILE = 3,
};

/*
 * How a log is made and opened. Have it filled by `cairn_log_options_init`, then change what should
 * be different. What is not about the size can be another at every open.
 */
typedef struct cairn_log_options {
	/* `sizeof` of this struct. */
	size_t size;
	/* Bytes for records in a new log, headers included; rounded up to whole segments. */
	uint64_t bytes;
	/*
	 * Bytes of a segment in a new log: no record is longer, and space is reclaimed by segments.
	 * A multiple of 64; 0: by the size of the log.
	 */
	uint64_t segment;
	/* Bytes of address space: the log cannot outgrow it while it is open. */
	uint64_t max_bytes;
	/*
	 * Records become durable so many at a time. With 1 each `cairn_log_append` and
	 * `cairn_log_force` has a barrier.
	 */
	uint32_t frequency;
	/*
	 * How many threads append, for the bound of what a crash takes with a frequency of more
	 * than 1.
	 */
	uint32_t threads;
	/*
	 * No complete record waits longer for its force, whatever the frequency, in microseconds;
	 * 0: no limit.
	 */
	uint64_t within_us;
	/*
	 * After so long without an append the log says on media that all is durable, in
	 * microseconds; 0: never.
	 */
	uint64_t idle_us;
	/*
	 * How long a full log waits until records are discarded before it says `CAIRN_FULL`, in
	 * microseconds; 0: not at all.
	 */
	uint64_t full_us;
	/*
	 * How long a force waits for an earlier record that is not complete before it says
	 * `CAIRN_STALLED`, in microseconds.
	 */
	uint64_t stall_timeout_us;
	/* One of `enum cairn_domain`. */
	uint32_t domain;
	/* Not 0: open a log that was closed, for reading only; several processes may at once. */
	uint32_t read_only;
} cairn_log_options;

/*
 * How a store is made and opened. Have it filled by `cairn_kv_options_init`, then change what
 * should be different.
 */
typedef struct cairn_kv_options {
	/* `sizeof` of this struct. */
	size_t size;
	/*
	 * Bytes of a segment in a new store: space is taken and freed by segments. A multiple of
	 * 4096.
	 */
	uint64_t segment;
	/* After how many bytes of new records a checkpoint is made, at most. */
	uint64_t checkpoint_bytes;
	/* Bytes of memory that the index may take: new keys are refused beyond. */
	uint64_t index_memory;
	/* Bytes of address space: the store cannot outgrow it while it is open. */
	uint64_t max_bytes;
	/*
	 * How old a transaction may become before it is told to end, in microseconds; 0: as old as
	 * it likes.
	 */
	uint64_t max_snapshot_age_us;
	/* How many transactions can run at once. */
	uint32_t transactions;
	/*
	 * 0: a commit is durable when it returns. Else commits return before their barrier, and a
	 * crash takes at most so many of the last ones, and nothing without what came before it.
	 */
	uint32_t at_risk;
	/*
	 * Whether commits at the same time are written as one: 0: as is best for the domain, 1:
	 * yes, 2: no.
	 */
	uint32_t group_commit;
	/* Not 0: no thread of the store makes checkpoints, threads that commit do. */
	uint32_t foreground;
	/* Not 0: each read holds what it returns against its checksum. */
	uint32_t verify;
	/* One of `enum cairn_domain`. */
	uint32_t domain;
	/* Not 0: open a store that was closed, for reading only; several processes may at once. */
	uint32_t read_only;
	/* 0. */
	uint32_t reserved;
} cairn_kv_options;

/*
 * How an array is made and opened. Have it filled by `cairn_array_options_init`, then change what
 * should be different. What is not about the size can be another at every open.
 */
typedef struct cairn_array_options {
	/* `sizeof` of this struct. */
	size_t size;
	/* Bytes of log that each member of a new array has. */
	uint64_t log_bytes;
	/* Bytes to which a member's log may grow when a transaction finds no room. */
	uint64_t log_max;
	/*
	 * Bytes of a file that are on one member before the next follows, in a new array: a
	 * multiple of 64.
	 */
	uint64_t stripe;
	/*
	 * Bytes of a transaction that wait in memory for its commit, of those for one member; what
	 * is beyond waits in the log.
	 */
	uint64_t draft_max;
	/*
	 * On memory, a commit of more bytes has a second barrier in place of checksums over them.
	 */
	uint64_t checksum_max;
	/* Bytes of address space of a member: it cannot outgrow it while the array is open. */
	uint64_t max_bytes;
	/*
	 * Transactions at once in a new array, those counted whose logs are still needed: at least
	 * 8 more than threads that commit.
	 */
	uint32_t transactions;
	/* One of `enum cairn_domain`. */
	uint32_t domain;
	/* Not 0: pages go without a log to files that take them whole (`RWF_ATOMIC`). */
	uint32_t whole_writes;
	/* 0. */
	uint32_t reserved;
} cairn_array_options;

/* Counts of a log. */
typedef struct cairn_log_counts {
	/* `sizeof` of this struct, as it was given. */
	size_t size;
	/* The oldest record not discarded, or the one to come. */
	uint64_t head;
	/* The record to come. */
	uint64_t next;
	/* Everything through here is durable. */
	uint64_t forced;
	/* Bytes from the persistent head to the end, headers and gaps included. */
	uint64_t live_bytes;
	/* Bytes in all segments. */
	uint64_t capacity;
	/* Bytes in a segment. */
	uint64_t segment_bytes;
	/* How often the log was grown. */
	uint64_t growths;
	/* How often space was reclaimed since it was opened. */
	uint64_t reclaims;
	/* Raised by every open. */
	uint64_t epoch;
	/* Barriers since it was opened. */
	uint64_t barriers;
	/* Calls of `fdatasync` since it was opened. */
	uint64_t syncs;
	/* What makes data durable here: one of `enum cairn_domain`, never `CAIRN_AUTO`. */
	uint64_t domain;
} cairn_log_counts;

/* What opening a log found. */
typedef struct cairn_log_found {
	/* `sizeof` of this struct, as it was given. */
	size_t size;
	/* Records of the program that were there. */
	uint64_t records;
	/* Their bytes. */
	uint64_t bytes;
	/* The oldest record, or the one to come. */
	uint64_t head;
	/* The record to come. */
	uint64_t next;
	/*
	 * The record that was not whole, and is gone: never forced, or damaged since; nothing on
	 * media tells which. 0: the log ended cleanly.
	 */
	uint64_t in_doubt;
	/* Not 0: it had been closed. */
	uint64_t was_closed;
} cairn_log_found;

/* Counts of a store. */
typedef struct cairn_kv_counts {
	/* `sizeof` of this struct, as it was given. */
	size_t size;
	/* Keys; those that were deleted and are still remembered count, too. */
	uint64_t entries;
	/* Commits since it was opened, of transactions that wrote something. */
	uint64_t commits;
	/* Attempts that met a conflict, since it was opened. */
	uint64_t conflicts;
	/* Transactions that are running now. */
	uint64_t active;
	/* Commits that a crash would take now. */
	uint64_t at_risk;
	/* Bytes of memory that the index takes. */
	uint64_t index_bytes;
	/* Bytes of the file. */
	uint64_t file_bytes;
	/* Bytes of versions that are needed. */
	uint64_t live_bytes;
	/* Checkpoints since it was opened. */
	uint64_t checkpoints;
	/* Barriers since it was opened. */
	uint64_t barriers;
	/* Calls of `fdatasync` since it was opened. */
	uint64_t syncs;
	/* What makes data durable here: one of `enum cairn_domain`, never `CAIRN_AUTO`. */
	uint64_t domain;
} cairn_kv_counts;

/* Counts of an array. */
typedef struct cairn_array_counts {
	/* `sizeof` of this struct, as it was given. */
	size_t size;
	/* Members. */
	uint64_t members;
	/* Bytes of a stripe. */
	uint64_t stripe;
	/* Transactions at once. */
	uint64_t transactions;
	/* How many more can begin without waiting for the logs of others. */
	uint64_t free;
	/* The number of the newest commit. */
	uint64_t last;
	/* Everything through this number is persistent in the files. */
	uint64_t retired;
	/* Barriers since it was opened. */
	uint64_t barriers;
	/* Calls of `fdatasync` since it was opened. */
	uint64_t syncs;
} cairn_array_counts;

/* What opening an array found. */
typedef struct cairn_array_found {
	/* `sizeof` of this struct, as it was given. */
	size_t size;
	/* Transactions that were applied, again or for the first time. */
	uint64_t applied;
	/* Transactions whose commit was cut short: nothing of them is there. */
	uint64_t dropped;
	/*
	 * Transactions that were durable and could not be read back: nothing of them is there.
	 * `cairn array check` says which, and what they were to change.
	 */
	uint64_t lost;
	/*
	 * Lines of the transaction table that are not whole: commits that were cut short, or among
	 * the last of all, and damaged.
	 */
	uint64_t in_doubt;
} cairn_array_found;

/*
 * ---- Logs: records that any number of threads append to at once, durable in order.
 *
 * All threads may use one log at once. A reservation or an iterator is used by one thread at a
 * time; another one that comes in between gets `CAIRN_BUSY`. A log is closed last, when no other
 * thread is in a call with it.
 */

/* An open log. */
typedef struct cairn_log cairn_log;

/* A place in a log for one record. */
typedef struct cairn_reservation cairn_reservation;

/* Reads a log. */
typedef struct cairn_iter cairn_iter;

/* A record where it stands. */
typedef struct cairn_record {
	/*
	 * Its number: the first record of a log has 1, each further one the next. 0 stands before
	 * the first.
	 */
	uint64_t lsn;
	/*
	 * What was appended: not to be changed, and there until the iterator goes on or is closed.
	 */
	const void *bytes;
	/* How many bytes. */
	size_t len;
} cairn_record;

/* Sets all options to their defaults. `size` is `sizeof(cairn_log_options)`. */
cairn_status cairn_log_options_init(cairn_log_options *options, size_t size);

/* Makes a log in a file that does not exist yet. `options` may be null: the defaults. */
cairn_status cairn_log_create(const char *path, const cairn_log_options *options, cairn_log **log);

/*
 * Opens a log, and recovers it if it was not closed. `options` may be null: the defaults. What was
 * found is told by `cairn_log_get_found`.
 */
cairn_status cairn_log_open(const char *path, const cairn_log_options *options, cairn_log **log);

/*
 * Forces all there is, says on media where the log ends, and closes it. The handle is closed
 * whatever this returns, but for `CAIRN_BUSY`: then a reservation or an iterator is open, or a
 * thread is in a call.
 */
cairn_status cairn_log_close(cairn_log *log);

/*
 * Appends a record and forces it by the policy: with a frequency of 1 it is durable when this
 * returns. `lsn`, which may be null, gets its number.
 */
cairn_status cairn_log_append(cairn_log *log, const void *bytes, size_t len, uint64_t *lsn);

/*
 * Takes a place for a record of `len` bytes. The caller fills it through `bytes`, at leisure and
 * from any thread, and completes or discards it: later records become durable only behind it, and
 * the log does not close before. `lsn` may be null.
 */
cairn_status cairn_log_reserve(cairn_log *log, size_t len, cairn_reservation **reservation,
	void **bytes, uint64_t *lsn);

/*
 * The record is whole: durable by the next force. No barrier. The reservation ends, and its bytes
 * are not to be changed any more.
 */
cairn_status cairn_reservation_complete(cairn_reservation *reservation);

/* Gives the place up: readers skip it. The reservation ends. */
cairn_status cairn_reservation_discard(cairn_reservation *reservation);

/*
 * Forces by the policy: with a frequency of 1 everything through `lsn` is durable when this
 * returns, else whenever so many records have gathered.
 */
cairn_status cairn_log_force(cairn_log *log, uint64_t lsn);

/* Everything through `lsn` is durable when this returns, whatever the policy. */
cairn_status cairn_log_force_now(cairn_log *log, uint64_t lsn);

/* Through where everything is durable. */
cairn_status cairn_log_forced(cairn_log *log, uint64_t *lsn);

/*
 * Reads the durable records that are not discarded, from the number `from` on. What the iterator
 * has not passed is not reclaimed before it is closed.
 */
cairn_status cairn_log_iterate(cairn_log *log, uint64_t from, cairn_iter **iter);

/* The next record. `CAIRN_END` if none is durable by now; later there may be one. */
cairn_status cairn_iter_next(cairn_iter *iter, cairn_record *record);

/* Ends reading. */
cairn_status cairn_iter_close(cairn_iter *iter);

/*
 * The record is not needed any more. Its space is used again once all before it is discarded too;
 * until then a crash may bring it back. No barrier.
 */
cairn_status cairn_log_discard(cairn_log *log, uint64_t lsn);

/* No record through `lsn` is needed any more. */
cairn_status cairn_log_truncate_to(cairn_log *log, uint64_t lsn);

/* Forces all there is, discards it, and makes that persistent: none of it ever comes back. */
cairn_status cairn_log_truncate_all(cairn_log *log);

/* Makes persistent what was discarded. Two barriers. */
cairn_status cairn_log_reclaim(cairn_log *log);

/*
 * Makes room for at least `by` more bytes, while others append and read. `capacity`, which may be
 * null, gets the bytes there are then.
 */
cairn_status cairn_log_grow(cairn_log *log, uint64_t by, uint64_t *capacity);

/* Counts. `size` is `sizeof(cairn_log_counts)`. */
cairn_status cairn_log_get_counts(cairn_log *log, cairn_log_counts *counts, size_t size);

/* What opening the log found; of a new one all is zero. `size` is `sizeof(cairn_log_found)`. */
cairn_status cairn_log_get_found(cairn_log *log, cairn_log_found *found, size_t size);

/*
 * ---- Stores: ordered keys and their values, in serializable transactions of many writers.
 *
 * All threads may use one store at once. It is closed last, when no other thread is in a call with
 * it and no transaction is open.
 */

/* An open store. */
typedef struct cairn_kv cairn_kv;

/*
 * A key and its value, where they stand: not to be changed, and there until the transaction that
 * showed them writes or ends.
 */
typedef struct cairn_pair {
	/* The key. */
	const void *key;
	/* Its bytes. */
	size_t key_len;
	/* The value. */
	const void *value;
	/* Its bytes. */
	size_t value_len;
} cairn_pair;

/* A change, for `cairn_kv_write`. */
typedef struct cairn_change {
	/* The key. */
	const void *key;
	/* Its bytes. */
	size_t key_len;
	/* What it is set to. */
	const void *value;
	/* Bytes of the value. */
	size_t value_len;
	/* The key is removed instead. */
	bool remove;
} cairn_change;

/* Sets all options to their defaults. `size` is `sizeof(cairn_kv_options)`. */
cairn_status cairn_kv_options_init(cairn_kv_options *options, size_t size);

/* Makes a store in a file that does not exist yet. `options` may be null: the defaults. */
cairn_status cairn_kv_create(const char *path, const cairn_kv_options *options, cairn_kv **store);

/* Opens a store, and recovers it if it was not closed. `options` may be null: the defaults. */
cairn_status cairn_kv_open(const char *path, const cairn_kv_options *options, cairn_kv **store);

/*
 * Makes a checkpoint, and closes the store. The handle is closed whatever this returns, but for
 * `CAIRN_BUSY`: then a transaction is open, or a thread is in a call.
 */
cairn_status cairn_kv_close(cairn_kv *store);

/*
 * Copies the key's value to `buffer`, which has room for `room` bytes; `len`, which may be null,
 * gets its length. `CAIRN_END` if the key has no value; `CAIRN_SHORT` if it has more bytes than
 * there is room for: nothing is copied, and `len` says how many.
 */
cairn_status cairn_kv_get(cairn_kv *store, const void *key, size_t key_len, void *buffer,
	size_t room, size_t *len);

/*
 * Sets the key's value, durably by the store's options; waits for a transaction that writes the
 * key. `had`, which may be null, gets whether it had one.
 */
cairn_status cairn_kv_put(cairn_kv *store, const void *key, size_t key_len, const void *value,
	size_t value_len, bool *had);

/*
 * Removes the key, durably by the store's options. `had`, which may be null, gets whether it had a
 * value.
 */
cairn_status cairn_kv_delete(cairn_kv *store, const void *key, size_t key_len, bool *had);

/* Makes all of `count` changes, or none of them, in one transaction. */
cairn_status cairn_kv_write(cairn_kv *store, const cairn_change *changes, size_t count);

/* Makes every commit that has returned durable, if the store's options leave some at risk. */
cairn_status cairn_kv_sync(cairn_kv *store);

/*
 * Makes a checkpoint now: an open then has nothing to read, and what is not needed any more is
 * freed.
 */
cairn_status cairn_kv_checkpoint(cairn_kv *store);

/* Counts. `size` is `sizeof(cairn_kv_counts)`. */
cairn_status cairn_kv_get_counts(cairn_kv *store, cairn_kv_counts *counts, size_t size);

/*
 * ---- Transactions on a store.
 *
 * A transaction and its scans are used by one thread at a time; another one that comes in between
 * gets `CAIRN_BUSY`. The caller that begins a transaction ends it, with `cairn_tx_commit` or
 * `cairn_tx_abort`. After `CAIRN_CONFLICT` it is aborted and run again; `cairn_kv_transact` does
 * that by itself, and sees to it that every caller gets through.
 */

/* A transaction. */
typedef struct cairn_tx cairn_tx;

/* Goes through a range of keys. */
typedef struct cairn_scan cairn_scan;

/* What a transaction may see of others. */
enum cairn_isolation {
	/*
	 * As if transactions had run one after the other, in an order that agrees with real time.
	 */
	CAIRN_SERIALIZABLE = 0,
	/*
	 * One committed state, the same to the end; of two that change one key only the first
	 * commits. For reading alone nothing else is needed.
	 */
	CAIRN_SNAPSHOT = 1,
};

/* Which keys, and in which direction. */
typedef struct cairn_range {
	/* The smallest key; null: from the first one on. */
	const void *from;
	/* Its bytes. */
	size_t from_len;
	/* What is before this one; null: to the last one. */
	const void *to;
	/* Its bytes. */
	size_t to_len;
	/* Not 0: all keys that begin with `from`; then there is no `to`. */
	uint32_t prefix;
	/* Not 0: the largest key first. */
	uint32_t reverse;
} cairn_range;

/* What runs in a transaction: see `cairn_kv_transact`. */
typedef cairn_status (*cairn_body)(cairn_tx *tx, void *context);

/* Starts a transaction. `isolation` is one of `enum cairn_isolation`. */
cairn_status cairn_kv_begin(cairn_kv *store, int isolation, cairn_tx **tx);

/*
 * Finds the key's value. It is shown where it stands: not to be changed, and there until the
 * transaction writes or ends. `CAIRN_END` if the key has none.
 */
cairn_status cairn_tx_get(cairn_tx *tx, const void *key, size_t key_len, const void **value,
	size_t *value_len);

/* Sets the key's value. `had`, which may be null, gets whether it had one. */
cairn_status cairn_tx_put(cairn_tx *tx, const void *key, size_t key_len, const void *value,
	size_t value_len, bool *had);

/* Removes the key. `had`, which may be null, gets whether it had a value. */
cairn_status cairn_tx_delete(cairn_tx *tx, const void *key, size_t key_len, bool *had);

/*
 * Goes through a range of keys, as the transaction sees it; `range` may be null: all of them. While
 * a scan is open the transaction does not write.
 */
cairn_status cairn_tx_scan(cairn_tx *tx, const cairn_range *range, cairn_scan **scan);

/* The next pair; `CAIRN_END` behind the last. */
cairn_status cairn_scan_next(cairn_scan *scan, cairn_pair *pair);

/* Ends a scan. Those that are open when their transaction ends, end with it. */
cairn_status cairn_scan_close(cairn_scan *scan);

/*
 * Makes all changes durable and visible, as a whole. The transaction ends whatever this returns,
 * but for `CAIRN_BUSY` and `CAIRN_CLOSED`. `timestamp`, which may be null, gets its place among all
 * commits.
 */
cairn_status cairn_tx_commit(cairn_tx *tx, uint64_t *timestamp);

/* Gives everything up. The transaction ends. */
cairn_status cairn_tx_abort(cairn_tx *tx);

/*
 * Runs `body` in a transaction and commits that; after a conflict it runs again, so it must not
 * have other effects than on the transaction. What it returns, if not `CAIRN_OK`, aborts the
 * transaction and is returned from here; codes from `CAIRN_USER` on are its own. It neither commits
 * nor aborts, and does not leave by an exception or `longjmp`.
 */
cairn_status cairn_kv_transact(cairn_kv *store, int isolation, cairn_body body, void *context);

/*
 * ---- Arrays: files that are striped over several members and written atomically, in any number of
 * places.
 *
 * A transaction is used by the thread that began it, which ends it with `cairn_array_tx_commit`;
 * any thread may end it with `cairn_array_tx_abort`. It keeps no other transaction away from the
 * bytes it is going to write: of two that write the same, the one that commits later wins.
 */

/* An open array. */
typedef struct cairn_array cairn_array;

/* A transaction of an array. */
typedef struct cairn_array_tx cairn_array_tx;

/* Sets all options to their defaults. `size` is `sizeof(cairn_array_options)`. */
cairn_status cairn_array_options_init(cairn_array_options *options, size_t size);

/*
 * Makes an array, a member at each of `count` paths, where there is nothing yet. `options` may be
 * null: the defaults.
 */
cairn_status cairn_array_create(const char *const *members, size_t count,
	const cairn_array_options *options, cairn_array **array);

/*
 * Opens an array whose members are at these paths, in any order, and recovers it if it was not
 * closed. `options` may be null: the defaults. What was found is told by `cairn_array_get_found`.
 */
cairn_status cairn_array_open(const char *const *members, size_t count,
	const cairn_array_options *options, cairn_array **array);

/*
 * Leaves nothing to be recovered, and closes it. The handle is closed whatever this returns, but
 * for `CAIRN_BUSY`: then a transaction is open, or a thread is in a call.
 */
cairn_status cairn_array_close(cairn_array *array);

/*
 * Makes a file of `len` zero bytes. `file` gets the number by which it is known while the array is
 * open.
 */
cairn_status cairn_array_create_file(cairn_array *array, const char *name, uint64_t len,
	uint32_t *file);

/*
 * Finds a file by its name. `file` gets the number by which it is known while the array is open,
 * `len`, which may be null, its bytes.
 */
cairn_status cairn_array_find_file(cairn_array *array, const char *name, uint32_t *file,
	uint64_t *len);

/*
 * Writes `len` bytes at `offset`: all of them or none, whatever happens. They are durable and
 * visible when this returns. One barrier for each member's file that has a part of them.
 */
cairn_status cairn_array_atomic_write(cairn_array *array, uint32_t file, uint64_t offset,
	const void *bytes, size_t len);

/*
 * Reads `len` bytes at `offset` into `buffer`: what is committed. Of a transaction that commits
 * meanwhile all or nothing is seen.
 */
cairn_status cairn_array_read(cairn_array *array, uint32_t file, uint64_t offset, void *buffer,
	size_t len);

/* Begins a transaction. */
cairn_status cairn_array_begin(cairn_array *array, cairn_array_tx **tx);

/*
 * Logs a write: after the commit the bytes are in the file at `offset`. `entry`, which may be null,
 * gets the number by which `cairn_array_tx_edit` changes them until then.
 */
cairn_status cairn_array_tx_write(cairn_array_tx *tx, uint32_t file, uint64_t offset,
	const void *bytes, size_t len, uint64_t *entry);

/* Changes `len` bytes of what was logged, `at` from its start. No barrier. */
cairn_status cairn_array_tx_edit(cairn_array_tx *tx, uint64_t entry, uint64_t at, const void *bytes,
	size_t len);

/*
 * Reads `len` bytes at `offset` into `buffer`, as they will be: what is committed, with what this
 * transaction has logged over it.
 */
cairn_status cairn_array_tx_read(cairn_array_tx *tx, uint32_t file, uint64_t offset, void *buffer,
	size_t len);

/* A moment to return to: `savepoint` gets its number. */
cairn_status cairn_array_tx_savepoint(cairn_array_tx *tx, uint64_t *savepoint);

/* Takes back what was logged behind a savepoint, which stays. Savepoints behind it are gone. */
cairn_status cairn_array_tx_rollback(cairn_array_tx *tx, uint64_t savepoint);

/*
 * Commits what was logged behind a savepoint, whatever becomes of the rest. It must not write what
 * was logged before. `number`, which may be null, gets its place among all commits.
 */
cairn_status cairn_array_tx_nested_top(cairn_array_tx *tx, uint64_t savepoint, uint64_t *number);

/*
 * Makes all that was logged durable and visible, as a whole. The transaction ends whatever this
 * returns, but for `CAIRN_BUSY`, `CAIRN_CLOSED` and, on another thread than began it,
 * `CAIRN_INVALID`. `number`, which may be null, gets its place among all commits.
 */
cairn_status cairn_array_tx_commit(cairn_array_tx *tx, uint64_t *number);

/* Gives everything up: nothing changes. */
cairn_status cairn_array_tx_abort(cairn_array_tx *tx);

/*
 * Everything committed is persistent in the files, and no log is needed any more. Three barriers.
 */
cairn_status cairn_array_checkpoint(cairn_array *array);

/* Counts. `size` is `sizeof(cairn_array_counts)`. */
cairn_status cairn_array_get_counts(cairn_array *array, cairn_array_counts *counts, size_t size);

/* What opening the array found; of a new one all is zero. `size` is `sizeof(cairn_array_found)`. */
cairn_status cairn_array_get_found(cairn_array *array, cairn_array_found *found, size_t size);

/*
 * ---- Several machines: the replicas of a log, which a program leads, alone or for a store.
 *
 * Each other machine serves a replica, with `cairn log-replica` or, of a store, `cairn kv follow`.
 * The program names the replicas once, in a list, and makes or takes over the log with it; the list
 * can be freed then. What is appended or committed is durable when a write quorum of the replicas
 * has it. A program that begins to lead a log takes a record's number for itself.
 */

/* A list of replicas, and how they are reached. */
typedef struct cairn_replicas cairn_replicas;

/* How a replica is doing, for `cairn_log_replica`. */
enum cairn_replica_state {
	/* It counts, and takes no part: it was given up, or was not reached. */
	CAIRN_REPLICA_AWAY = 0,
	/* It takes part. */
	CAIRN_REPLICA_LIVE = 1,
	/* It is this program's own. */
	CAIRN_REPLICA_OWN = 2,
};

/* When the leader's own replica is flushed, for `cairn_replicas_order`. */
enum cairn_order {
	/* While the others flush theirs. */
	CAIRN_BESIDE = 0,
	/* Once enough others have the record. */
	CAIRN_AFTER = 1,
	/* Before it is sent. */
	CAIRN_BEFORE = 2,
};

/* An empty list. Free it when the log or store is open. */
cairn_status cairn_replicas_new(cairn_replicas **replicas);

/* Frees it. What was opened with it stays as it is. */
cairn_status cairn_replicas_free(cairn_replicas *replicas);

/*
 * The program's own replica is in this file. Without one its log is in memory, and only the others
 * are durable.
 */
cairn_status cairn_replicas_local(cairn_replicas *replicas, const char *path);

/* A replica is served at this address, host and port. */
cairn_status cairn_replicas_at(cairn_replicas *replicas, const char *address);

/* So many replicas must have what is durable, of a new log; all of them if this is not called. */
cairn_status cairn_replicas_quorum(cairn_replicas *replicas, uint32_t count);

/* All machines know each other by these random bytes, 16 or more: see `cairn help log-replica`. */
cairn_status cairn_replicas_secret(cairn_replicas *replicas, const void *secret, size_t len);

/*
 * All machines know each other by certificates, and encrypt: this one's and those up to the root,
 * its private key, and the roots that the others' lead to. PEM.
 */
cairn_status cairn_replicas_certificates(cairn_replicas *replicas, const void *chain,
	size_t chain_len, const void *key, size_t key_len, const void *roots, size_t roots_len);

/*
 * A replica that has not acknowledged for so many microseconds is given up; two seconds if this is
 * not called.
 */
cairn_status cairn_replicas_timeout(cairn_replicas *replicas, uint64_t us);

/*
 * When the program's own replica is flushed: one of `enum cairn_order`; `CAIRN_BESIDE` if this is
 * not called.
 */
cairn_status cairn_replicas_order(cairn_replicas *replicas, uint32_t order);

/*
 * Opens although a record may be lost that was acknowledged, which is `CAIRN_LOST` otherwise: for
 * replicas that will never come back.
 */
cairn_status cairn_replicas_accept_doubt(cairn_replicas *replicas);

/*
 * The replica with this id is lost for good, with its medium: a new, empty one of those that are
 * named takes its place when the log is opened, for which all the others must be there. Once for
 * each. Messages name ids, in hexadecimal. A replica that was said to be lost must never be served
 * again.
 */
cairn_status cairn_replicas_lost(cairn_replicas *replicas, uint64_t id);

/*
 * Makes a log with these replicas, all of which are there and empty. `options` may be null: the
 * defaults.
 */
cairn_status cairn_log_create_replicated(const cairn_replicas *replicas,
	const cairn_log_options *options, cairn_log **log);

/*
 * Takes a log over: the previous leader is fenced, replicas are repaired, nothing that was
 * acknowledged is missing. `options` may be null: the defaults.
 */
cairn_status cairn_log_open_replicated(const cairn_replicas *replicas,
	const cairn_log_options *options, cairn_log **log);

/*
 * `CAIRN_OK` as long as this program leads the log, or has it for itself; `CAIRN_FENCED`,
 * `CAIRN_QUORUM_LOST`. Forces and appends say the same by themselves.
 */
cairn_status cairn_log_check_leading(cairn_log *log);

/*
 * Takes a replica in while the log is used: one that was given up and is there again, or a new,
 * empty one, which is served at `address`. It counts when this returns, and has the whole log. With
 * a new one the log has a replica more. The write quorum stays as it is. `trust` is a list that has
 * the secret or the certificates.
 */
cairn_status cairn_log_join(cairn_log *log, const char *address, const cairn_replicas *trust);

/*
 * The replica with this id is none of the log's any more: it is lost for good, or not needed.
 * `CAIRN_INVALID` if it is the program's own, if without it there are fewer than the write quorum,
 * or if there is no such replica; `CAIRN_NO_QUORUM` if too few of those that would be left are
 * live. Then nothing is changed. A replica that was removed must not be served again as it is.
 */
cairn_status cairn_log_remove(cairn_log *log, uint64_t id);

/*
 * The replica of this number, from 0 on, of all that count, in no order: its id, how it is doing
 * (one of `enum cairn_replica_state`), and through which record it has all, 0 if that is not known:
 * the program's own through the last that is durable. `CAIRN_END` if there are not so many; a log
 * without other replicas has none.
 */
cairn_status cairn_log_replica(cairn_log *log, uint32_t number, uint64_t *id, uint32_t *state,
	uint64_t *through);

/*
 * As `cairn_log_join`, of a store that leads; `CAIRN_INVALID` if it has no replicas. A follower
 * whose store lacks what the log has no more needs a seed of the store first (`cairn kv seed`).
 */
cairn_status cairn_kv_join(cairn_kv *store, const char *address, const cairn_replicas *trust);

/* As `cairn_log_remove`, of a store that leads; `CAIRN_INVALID` if it has no replicas. */
cairn_status cairn_kv_remove(cairn_kv *store, uint64_t id);

/*
 * Makes a store of a log with these replicas, all of which are there and empty. A commit is durable
 * when a write quorum has it, and the number of commits `at_risk` must be 0. Options may be null:
 * the defaults.
 */
cairn_status cairn_kv_create_replicated(const char *path, const cairn_replicas *replicas,
	const cairn_log_options *log_options, const cairn_kv_options *options, cairn_kv **store);

/*
 * Takes a store over, with its log: what the log has and this file has not is repeated. With
 * `CAIRN_FOREIGN` the file is of another log.
 */
cairn_status cairn_kv_open_replicated(const char *path, const cairn_replicas *replicas,
	const cairn_log_options *log_options, const cairn_kv_options *options, cairn_kv **store);

/* As `cairn_log_check_leading`, of a store. */
cairn_status cairn_kv_check_leading(cairn_kv *store);

/* Deprecated: the names that functions had before. */
#define cairn_log_cleanup cairn_log_discard
#define cairn_log_cleanup_all cairn_log_truncate_all

#ifdef __cplusplus
}
#endif

#endif
