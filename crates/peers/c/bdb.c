/*
 * Berkeley DB: one B-tree in an environment with transactions, locks and a log, which each commit syncs. Deadlocks are looked for whenever a lock
 * has to be waited for. As its manual has it, a thread makes checkpoints, so that logs can go.
 */
#include <db.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a call returns. */
enum { DONE, NOT_FOUND, CONFLICT, FAILED };

/* Large enough that values of 1 KiB lie in the tree: what takes more than a quarter of a page goes to pages of its own. */
#define PAGE 8192
#define LOG_BUFFER (8 << 20)
#define LOG_FILE (64 << 20)
#define LOCKS 100000
/* KiB of log after which a checkpoint is made. */
#define CHECKPOINT_KIB (64 << 10)
#define KEY_MAX 1024

struct bk {
	DB_ENV *env;
	DB *db;
	pthread_t checkpoints;
	pthread_mutex_t lock;
	pthread_cond_t end;
	int ending;
};

/* One thread's. */
struct bk_session {
	struct bk *bk;
	DB_TXN *txn;
	int read_only;
	char message[256];
};

static int judged(char *message, size_t room, int rc)
{
	if (rc == 0)
		return DONE;
	if (rc == DB_NOTFOUND || rc == DB_KEYEMPTY)
		return NOT_FOUND;
	strncpy(message, db_strerror(rc), room - 1);
	message[room - 1] = 0;
	return rc == DB_LOCK_DEADLOCK || rc == DB_LOCK_NOTGRANTED ? CONFLICT : FAILED;
}

#define JUDGED(session, rc) judged((session)->message, sizeof (session)->message, rc)

static void *checkpoints(void *arg)
{
	struct bk *bk = arg;
	pthread_mutex_lock(&bk->lock);
	while (!bk->ending) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 1;
		pthread_cond_timedwait(&bk->end, &bk->lock, &until);
		pthread_mutex_unlock(&bk->lock);
		bk->env->txn_checkpoint(bk->env, CHECKPOINT_KIB, 0, 0);
		pthread_mutex_lock(&bk->lock);
	}
	pthread_mutex_unlock(&bk->lock);
	return NULL;
}

static int opened(struct bk *bk, const char *dir, size_t cache_bytes)
{
	DB_ENV *env = bk->env;
	int rc = env->set_cachesize(env, (u_int32_t)(cache_bytes >> 30), (u_int32_t)(cache_bytes & ((1u << 30) - 1)), 1);
	rc = rc ? rc : env->set_lg_bsize(env, LOG_BUFFER);
	rc = rc ? rc : env->set_lg_max(env, LOG_FILE);
	rc = rc ? rc : env->set_lk_detect(env, DB_LOCK_YOUNGEST);
	rc = rc ? rc : env->set_lk_max_locks(env, LOCKS);
	rc = rc ? rc : env->set_lk_max_lockers(env, LOCKS);
	rc = rc ? rc : env->set_lk_max_objects(env, LOCKS);
	rc = rc ? rc : env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1);
	/* One process: regions need no files. */
	rc = rc ? rc : env->open(env, dir,
				 DB_CREATE | DB_RECOVER | DB_PRIVATE | DB_THREAD | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG |
					 DB_INIT_TXN,
				 0600);
	rc = rc ? rc : db_create(&bk->db, env, 0);
	rc = rc ? rc : bk->db->set_pagesize(bk->db, PAGE);
	return rc ? rc : bk->db->open(bk->db, NULL, "data.db", NULL, DB_BTREE, DB_CREATE | DB_AUTO_COMMIT | DB_THREAD, 0600);
}

struct bk *bk_open(const char *dir, size_t cache_bytes, char *message, size_t room)
{
	struct bk *bk = calloc(1, sizeof *bk);
	if (bk == NULL)
		return NULL;
	pthread_mutex_init(&bk->lock, NULL);
	pthread_cond_init(&bk->end, NULL);
	int rc = db_env_create(&bk->env, 0);
	if (rc == 0) {
		rc = opened(bk, dir, cache_bytes);
		rc = rc ? rc : pthread_create(&bk->checkpoints, NULL, checkpoints, bk);
		if (rc != 0) {
			if (bk->db != NULL)
				bk->db->close(bk->db, 0);
			bk->env->close(bk->env, 0);
		}
	}
	if (judged(message, room, rc) == DONE)
		return bk;
	free(bk);
	return NULL;
}

void bk_close(struct bk *bk)
{
	pthread_mutex_lock(&bk->lock);
	bk->ending = 1;
	pthread_cond_signal(&bk->end);
	pthread_mutex_unlock(&bk->lock);
	pthread_join(bk->checkpoints, NULL);
	bk->db->close(bk->db, 0);
	bk->env->close(bk->env, 0);
	pthread_cond_destroy(&bk->end);
	pthread_mutex_destroy(&bk->lock);
	free(bk);
}

struct bk_session *bk_session(struct bk *bk)
{
	struct bk_session *s = calloc(1, sizeof *s);
	if (s != NULL)
		s->bk = bk;
	return s;
}

void bk_session_close(struct bk_session *s)
{
	free(s);
}

const char *bk_message(const struct bk_session *s)
{
	return s->message;
}

static DBT input(const char *data, size_t bytes)
{
	DBT dbt = {.data = (void *)data, .size = (u_int32_t)bytes};
	return dbt;
}

static DBT output(void *out, size_t room)
{
	DBT dbt = {.data = out, .ulen = (u_int32_t)room, .flags = DB_DBT_USERMEM};
	return dbt;
}

static int get(struct bk_session *s, DB_TXN *txn, const char *key, size_t key_bytes, void *out, size_t room, size_t *bytes)
{
	DB *db = s->bk->db;
	DBT k = input(key, key_bytes), v = output(out, room);
	int rc = db->get(db, txn, &k, &v, 0);
	*bytes = v.size;
	if (rc == DB_BUFFER_SMALL) {
		v = output(out, room);
		v.flags |= DB_DBT_PARTIAL;
		v.dlen = (u_int32_t)room;
		rc = db->get(db, txn, &k, &v, 0);
	}
	return JUDGED(s, rc);
}

static int put(struct bk_session *s, DB_TXN *txn, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
	DBT k = input(key, key_bytes), v = input(value, bytes);
	return JUDGED(s, s->bk->db->put(s->bk->db, txn, &k, &v, 0));
}

static int delete(struct bk_session *s, DB_TXN *txn, const char *key, size_t key_bytes)
{
	DBT k = input(key, key_bytes);
	return JUDGED(s, s->bk->db->del(s->bk->db, txn, &k, 0));
}

static int scan(struct bk_session *s, DB_TXN *txn, const char *from, size_t from_bytes, size_t count, void *out, size_t room,
		size_t *found)
{
	char at[KEY_MAX];
	DBC *cursor;
	if (from_bytes > sizeof at)
		return JUDGED(s, DB_BUFFER_SMALL);
	int rc = s->bk->db->cursor(s->bk->db, txn, &cursor, 0);
	if (rc != 0)
		return JUDGED(s, rc);
	memcpy(at, from, from_bytes);
	DBT k = output(at, sizeof at), v = output(out, room);
	k.size = (u_int32_t)from_bytes;
	v.flags |= DB_DBT_PARTIAL;
	v.dlen = (u_int32_t)room;
	for (u_int32_t how = DB_SET_RANGE; rc == 0 && *found < count; how = DB_NEXT) {
		rc = cursor->get(cursor, &k, &v, how);
		*found += rc == 0;
	}
	int closed = cursor->close(cursor);
	rc = rc == DB_NOTFOUND ? 0 : rc;
	return JUDGED(s, rc ? rc : closed);
}

int bk_get(struct bk_session *s, const char *key, size_t key_bytes, void *out, size_t room, size_t *bytes)
{
	return get(s, NULL, key, key_bytes, out, room, bytes);
}

int bk_scan(struct bk_session *s, const char *from, size_t from_bytes, size_t count, void *out, size_t room, size_t *found)
{
	return scan(s, NULL, from, from_bytes, count, out, room, found);
}

int bk_put(struct bk_session *s, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
	return put(s, NULL, key, key_bytes, value, bytes);
}

int bk_delete(struct bk_session *s, const char *key, size_t key_bytes)
{
	return delete(s, NULL, key, key_bytes);
}

/* Every transaction is serializable: what it reads stays locked. */
int bk_begin(struct bk_session *s, int serializable, int read_only)
{
	(void)serializable;
	s->read_only = read_only;
	return JUDGED(s, s->bk->env->txn_begin(s->bk->env, NULL, &s->txn, 0));
}

int bk_commit(struct bk_session *s)
{
	return JUDGED(s, s->txn->commit(s->txn, DB_TXN_SYNC));
}

int bk_abort(struct bk_session *s)
{
	return JUDGED(s, s->txn->abort(s->txn));
}

int bk_txn_get(struct bk_session *s, const char *key, size_t key_bytes, void *out, size_t room, size_t *bytes)
{
	return get(s, s->txn, key, key_bytes, out, room, bytes);
}

int bk_txn_scan(struct bk_session *s, const char *from, size_t from_bytes, size_t count, void *out, size_t room, size_t *found)
{
	return scan(s, s->txn, from, from_bytes, count, out, room, found);
}

static int refused(struct bk_session *s)
{
	strcpy(s->message, "read-only");
	return FAILED;
}

int bk_txn_put(struct bk_session *s, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
	return s->read_only ? refused(s) : put(s, s->txn, key, key_bytes, value, bytes);
}

int bk_txn_delete(struct bk_session *s, const char *key, size_t key_bytes)
{
	return s->read_only ? refused(s) : delete(s, s->txn, key, key_bytes);
}
