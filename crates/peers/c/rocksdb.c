/*
 * RocksDB, through its C interface: plain, with optimistic transactions, or with locks. Every write syncs the log.
 */
#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN, OPTIMISTIC, LOCKING };
/* What a call returns. */
enum { DONE, NOT_FOUND, CONFLICT, FAILED };

struct rk {
	int kind;
	/* Of a plain or optimistic one. */
	rocksdb_t *db;
	rocksdb_optimistictransactiondb_t *optimistic;
	rocksdb_transactiondb_t *locking;
};

/* One thread's. */
struct rk_session {
	struct rk *rk;
	rocksdb_writeoptions_t *write;
	/* Without a snapshot, and with that of the transaction. */
	rocksdb_readoptions_t *latest, *fixed;
	rocksdb_optimistictransaction_options_t *optimistic;
	rocksdb_transaction_options_t *locking, *locking_snapshot;
	/* Kept from one transaction to the next. */
	rocksdb_transaction_t *txn;
	/* Of the transaction under way; of the database itself if it is read-only. */
	const rocksdb_snapshot_t *snapshot;
	int read_only, serializable;
	char message[256];
};

static int judged(char *message, size_t room, char *error)
{
	static const char *const again[] = {"Resource busy", "Operation timed out", "Operation aborted", "Operation failed. Try again"};
	if (error == NULL)
		return DONE;
	strncpy(message, error, room - 1);
	message[room - 1] = 0;
	rocksdb_free(error);
	for (size_t at = 0; at < sizeof again / sizeof *again; at++)
		if (strncmp(message, again[at], strlen(again[at])) == 0)
			return CONFLICT;
	return FAILED;
}

#define JUDGED(session, error) judged((session)->message, sizeof (session)->message, error)

static rocksdb_options_t *tuned(size_t cache_bytes)
{
	rocksdb_options_t *options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(options, 1);
	rocksdb_options_increase_parallelism(options, 2);
	rocksdb_options_set_compression(options, rocksdb_no_compression);
	rocksdb_options_set_write_buffer_size(options, 256 << 20);
	rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
	rocksdb_cache_t *cache = rocksdb_cache_create_lru(cache_bytes);
	rocksdb_block_based_options_set_block_cache(table, cache);
	rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_options_set_block_based_table_factory(options, table);
	rocksdb_block_based_options_destroy(table);
	rocksdb_cache_destroy(cache);
	return options;
}

struct rk *rk_open(const char *dir, int kind, size_t cache_bytes, char *message, size_t room)
{
	struct rk *rk = calloc(1, sizeof *rk);
	if (rk == NULL)
		return NULL;
	char *error = NULL;
	rk->kind = kind;
	rocksdb_options_t *options = tuned(cache_bytes);
	if (kind == PLAIN) {
		rk->db = rocksdb_open(options, dir, &error);
	} else if (kind == OPTIMISTIC) {
		rk->optimistic = rocksdb_optimistictransactiondb_open(options, dir, &error);
		if (error == NULL)
			rk->db = rocksdb_optimistictransactiondb_get_base_db(rk->optimistic);
	} else {
		rocksdb_transactiondb_options_t *locks = rocksdb_transactiondb_options_create();
		rk->locking = rocksdb_transactiondb_open(options, locks, dir, &error);
		rocksdb_transactiondb_options_destroy(locks);
	}
	rocksdb_options_destroy(options);
	if (judged(message, room, error) != DONE) {
		free(rk);
		return NULL;
	}
	return rk;
}

void rk_close(struct rk *rk)
{
	if (rk->kind == PLAIN) {
		rocksdb_close(rk->db);
	} else if (rk->kind == OPTIMISTIC) {
		rocksdb_optimistictransactiondb_close_base_db(rk->db);
		rocksdb_optimistictransactiondb_close(rk->optimistic);
	} else {
		rocksdb_transactiondb_close(rk->locking);
	}
	free(rk);
}

struct rk_session *rk_session(struct rk *rk)
{
	struct rk_session *s = calloc(1, sizeof *s);
	if (s == NULL)
		return NULL;
	s->rk = rk;
	s->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(s->write, 1);
	s->latest = rocksdb_readoptions_create();
	s->fixed = rocksdb_readoptions_create();
	s->optimistic = rocksdb_optimistictransaction_options_create();
	rocksdb_optimistictransaction_options_set_set_snapshot(s->optimistic, 1);
	s->locking = rocksdb_transaction_options_create();
	rocksdb_transaction_options_set_deadlock_detect(s->locking, 1);
	s->locking_snapshot = rocksdb_transaction_options_create();
	rocksdb_transaction_options_set_deadlock_detect(s->locking_snapshot, 1);
	rocksdb_transaction_options_set_set_snapshot(s->locking_snapshot, 1);
	return s;
}

void rk_session_close(struct rk_session *s)
{
	if (s->txn != NULL)
		rocksdb_transaction_destroy(s->txn);
	rocksdb_transaction_options_destroy(s->locking_snapshot);
	rocksdb_transaction_options_destroy(s->locking);
	rocksdb_optimistictransaction_options_destroy(s->optimistic);
	rocksdb_readoptions_destroy(s->fixed);
	rocksdb_readoptions_destroy(s->latest);
	rocksdb_writeoptions_destroy(s->write);
	free(s);
}

const char *rk_message(const struct rk_session *s)
{
	return s->message;
}

/* What was found, copied; `value` goes. */
static int taken(rocksdb_pinnableslice_t *value, void *out, size_t room, size_t *bytes)
{
	if (value == NULL)
		return NOT_FOUND;
	const char *at = rocksdb_pinnableslice_value(value, bytes);
	memcpy(out, at, *bytes < room ? *bytes : room);
	rocksdb_pinnableslice_destroy(value);
	return DONE;
}

static int walked(struct rk_session *s, rocksdb_iterator_t *it, const char *from, size_t from_bytes, size_t count,
		  void *out, size_t room, size_t *found)
{
	char *error = NULL;
	for (rocksdb_iter_seek(it, from, from_bytes); *found < count && rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
		size_t bytes;
		const char *at = rocksdb_iter_value(it, &bytes);
		memcpy(out, at, bytes < room ? bytes : room);
		++*found;
	}
	rocksdb_iter_get_error(it, &error);
	rocksdb_iter_destroy(it);
	return JUDGED(s, error);
}

static int get(struct rk_session *s, rocksdb_readoptions_t *how, const char *key, size_t key_bytes, void *out,
	       size_t room, size_t *bytes)
{
	char *error = NULL;
	rocksdb_pinnableslice_t *value =
		s->rk->kind == LOCKING
			? rocksdb_transactiondb_get_pinned(s->rk->locking, how, key, key_bytes, &error)
			: rocksdb_get_pinned(s->rk->db, how, key, key_bytes, &error);
	return error == NULL ? taken(value, out, room, bytes) : JUDGED(s, error);
}

static int scan(struct rk_session *s, rocksdb_readoptions_t *how, const char *from, size_t from_bytes, size_t count,
		void *out, size_t room, size_t *found)
{
	rocksdb_iterator_t *it = s->rk->kind == LOCKING ? rocksdb_transactiondb_create_iterator(s->rk->locking, how)
							: rocksdb_create_iterator(s->rk->db, how);
	return walked(s, it, from, from_bytes, count, out, room, found);
}

int rk_get(struct rk_session *s, const char *key, size_t key_bytes, void *out, size_t room, size_t *bytes)
{
	return get(s, s->latest, key, key_bytes, out, room, bytes);
}

int rk_scan(struct rk_session *s, const char *from, size_t from_bytes, size_t count, void *out, size_t room, size_t *found)
{
	return scan(s, s->latest, from, from_bytes, count, out, room, found);
}

int rk_put(struct rk_session *s, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
	char *error = NULL;
	if (s->rk->kind == LOCKING)
		rocksdb_transactiondb_put(s->rk->locking, s->write, key, key_bytes, value, bytes, &error);
	else
		rocksdb_put(s->rk->db, s->write, key, key_bytes, value, bytes, &error);
	return JUDGED(s, error);
}

int rk_delete(struct rk_session *s, const char *key, size_t key_bytes)
{
	char *error = NULL;
	if (s->rk->kind == LOCKING)
		rocksdb_transactiondb_delete(s->rk->locking, s->write, key, key_bytes, &error);
	else
		rocksdb_delete(s->rk->db, s->write, key, key_bytes, &error);
	return JUDGED(s, error);
}

/*
 * Serializable, optimistic: reads are of a snapshot, and what was read is checked at commit. With locks: reads are of what is newest, and locked.
 * Snapshot: reads are of it; what is written must not have changed since.
 */
int rk_begin(struct rk_session *s, int serializable, int read_only)
{
	struct rk *rk = s->rk;
	s->serializable = serializable;
	s->read_only = read_only;
	s->snapshot = NULL;
	if (read_only) {
		s->snapshot = rk->kind == LOCKING ? rocksdb_transactiondb_create_snapshot(rk->locking)
						  : rocksdb_create_snapshot(rk->db);
	} else if (rk->kind == OPTIMISTIC) {
		s->txn = rocksdb_optimistictransaction_begin(rk->optimistic, s->write, s->optimistic, s->txn);
		s->snapshot = rocksdb_transaction_get_snapshot(s->txn);
	} else if (rk->kind == LOCKING) {
		s->txn = rocksdb_transaction_begin(rk->locking, s->write, serializable ? s->locking : s->locking_snapshot, s->txn);
		if (!serializable)
			s->snapshot = rocksdb_transaction_get_snapshot(s->txn);
	} else {
		strcpy(s->message, "no transactions");
		return FAILED;
	}
	if (s->snapshot != NULL)
		rocksdb_readoptions_set_snapshot(s->fixed, s->snapshot);
	return DONE;
}

/* The options go on to name a snapshot that is gone; `rk_begin` sets them again before they are used. */
static int ended(struct rk_session *s, int outcome)
{
	if (s->snapshot == NULL)
		return outcome;
	if (!s->read_only)
		rocksdb_free((void *)s->snapshot);
	else if (s->rk->kind == LOCKING)
		rocksdb_transactiondb_release_snapshot(s->rk->locking, s->snapshot);
	else
		rocksdb_release_snapshot(s->rk->db, s->snapshot);
	s->snapshot = NULL;
	return outcome;
}

int rk_commit(struct rk_session *s)
{
	char *error = NULL, *ignored = NULL;
	if (!s->read_only) {
		rocksdb_transaction_commit(s->txn, &error);
		if (error != NULL)
			rocksdb_transaction_rollback(s->txn, &ignored);
		if (ignored != NULL)
			rocksdb_free(ignored);
	}
	return ended(s, JUDGED(s, error));
}

int rk_abort(struct rk_session *s)
{
	char *error = NULL;
	if (!s->read_only)
		rocksdb_transaction_rollback(s->txn, &error);
	return ended(s, JUDGED(s, error));
}

static rocksdb_readoptions_t *how(const struct rk_session *s)
{
	return s->snapshot != NULL ? s->fixed : s->latest;
}

int rk_txn_get(struct rk_session *s, const char *key, size_t key_bytes, void *out, size_t room, size_t *bytes)
{
	char *error = NULL;
	if (s->read_only)
		return get(s, s->fixed, key, key_bytes, out, room, bytes);
	rocksdb_pinnableslice_t *value =
		s->serializable ? rocksdb_transaction_get_pinned_for_update(s->txn, how(s), key, key_bytes, 0, &error)
				: rocksdb_transaction_get_pinned(s->txn, how(s), key, key_bytes, &error);
	return error == NULL ? taken(value, out, room, bytes) : JUDGED(s, error);
}

int rk_txn_scan(struct rk_session *s, const char *from, size_t from_bytes, size_t count, void *out, size_t room,
		size_t *found)
{
	if (s->read_only)
		return scan(s, s->fixed, from, from_bytes, count, out, room, found);
	return walked(s, rocksdb_transaction_create_iterator(s->txn, how(s)), from, from_bytes, count, out, room, found);
}

int rk_txn_put(struct rk_session *s, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
	char *error = NULL;
	if (s->read_only) {
		strcpy(s->message, "read-only");
		return FAILED;
	}
	rocksdb_transaction_put(s->txn, key, key_bytes, value, bytes, &error);
	return JUDGED(s, error);
}

int rk_txn_delete(struct rk_session *s, const char *key, size_t key_bytes)
{
	char *error = NULL;
	if (s->read_only) {
		strcpy(s->message, "read-only");
		return FAILED;
	}
	rocksdb_transaction_delete(s->txn, key, key_bytes, &error);
	return JUDGED(s, error);
}
