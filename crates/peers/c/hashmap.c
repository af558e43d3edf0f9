/* A chained hash map with a fixed number of buckets. Readers of a bucket share its lock, a writer has it alone until its transaction
 * is durable. The locks are in DRAM: they are faster than the library's own, and nothing has to be reset after a crash. */
#include "peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY 2
#define BUCKETS 3

struct entry {
	uint64_t next;
	uint32_t key_len;
	uint32_t len;
	char bytes[]; /* key, padding to a word, value */
};

static inline char *value_of(struct entry *e)
{
	return e->bytes + ((e->key_len + 7u) & ~7u);
}

static inline size_t entry_bytes(size_t key_len, size_t len)
{
	return sizeof(struct entry) + ((key_len + 7) & ~(size_t)7) + len;
}

/* Multiply and fold, a word at a time. */
static uint64_t hash(const char *key, size_t len)
{
	uint64_t h = 0x9e3779b97f4a7c15u ^ len;
	while (len > 0) {
		uint64_t word = 0;
		size_t n = len < 8 ? len : 8;
		memcpy(&word, key, n);
		h = (h ^ word) * 0xd6e8feb86659fd93u;
		h ^= h >> 32;
		key += n;
		len -= n;
	}
	return h * 0xd6e8feb86659fd93u >> 20;
}

/* The link that leads to the key's entry, or the one at the end of its chain. */
static uint64_t *find(struct po *p, uint64_t bucket, const void *key, size_t key_len)
{
	uint64_t *link = (uint64_t *)po_at(p, p->root->buckets) + bucket;
	while (*link != 0) {
		struct entry *e = po_at(p, *link);
		if (e->key_len == key_len && memcmp(e->bytes, key, key_len) == 0)
			break;
		link = &e->next;
	}
	return link;
}

static inline uint64_t bucket_of(struct po *p, const void *key, size_t key_len)
{
	return hash(key, key_len) & (p->root->bucket_count - 1);
}

static inline pthread_rwlock_t *lock_of(struct po *p, uint64_t bucket)
{
	return &p->stripes[bucket % STRIPES].lock;
}

int po_hash_create(struct po *p, uint64_t buckets)
{
	if (buckets == 0 || (buckets & (buckets - 1)) != 0 || p->root->bucket_count != 0)
		return EINVAL;
	int rc = 0;
	TX_BEGIN(p->pop) {
		pmemobj_tx_add_range_direct(&p->root->buckets, 2 * sizeof(uint64_t));
		p->root->buckets = pmemobj_tx_zalloc(buckets * sizeof(uint64_t), BUCKETS).off;
		p->root->bucket_count = buckets;
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}

int po_hash_there(const struct po *p)
{
	return p->root->bucket_count == 0 ? ENOENT : 0;
}

static int hash_get(struct po *p, const void *key, size_t key_len, void *out, size_t room, size_t *len)
{
	uint64_t bucket = bucket_of(p, key, key_len);
	pthread_rwlock_t *lock = lock_of(p, bucket);
	pthread_rwlock_rdlock(lock);
	uint64_t at = *find(p, bucket, key, key_len);
	int rc = at == 0 ? ENOENT : 0;
	if (rc == 0) {
		struct entry *e = po_at(p, at);
		*len = e->len;
		if (e->len <= room)
			memcpy(out, value_of(e), e->len);
		else
			rc = ENOSPC;
	}
	pthread_rwlock_unlock(lock);
	return rc;
}

/* In place if the length stays; else a new entry takes the old one's place. In a transaction. */
static void put_within(struct po *p, uint64_t *link, const void *key, size_t key_len, const void *value, size_t len)
{
	struct entry *old = *link == 0 ? NULL : po_at(p, *link);
	if (old != NULL && old->len == len) {
		pmemobj_tx_add_range_direct(value_of(old), len);
		memcpy(value_of(old), value, len);
		return;
	}
	uint64_t made = pmemobj_tx_alloc(entry_bytes(key_len, len), ENTRY).off;
	struct entry *e = po_at(p, made);
	e->next = old == NULL ? 0 : old->next;
	e->key_len = (uint32_t)key_len;
	e->len = (uint32_t)len;
	memcpy(e->bytes, key, key_len);
	memcpy(value_of(e), value, len);
	uint64_t freed = *link;
	pmemobj_tx_add_range_direct(link, sizeof(*link));
	*link = made;
	if (old != NULL)
		pmemobj_tx_free(po_oid(p, freed));
}

static int put(struct po *p, uint64_t *link, const void *key, size_t key_len, const void *value, size_t len)
{
	int rc = 0;
	TX_BEGIN(p->pop) {
		put_within(p, link, key, key_len, value, len);
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}

static int hash_put(struct po *p, const void *key, size_t key_len, const void *value, size_t len)
{
	uint64_t bucket = bucket_of(p, key, key_len);
	pthread_rwlock_t *lock = lock_of(p, bucket);
	pthread_rwlock_wrlock(lock);
	int rc = put(p, find(p, bucket, key, key_len), key, key_len, value, len);
	pthread_rwlock_unlock(lock);
	return rc;
}

/* Reads the value into `out`, which has room for `len`, then writes `value`: one critical section. */
static int hash_rmw(struct po *p, const void *key, size_t key_len, void *out, const void *value, size_t len)
{
	uint64_t bucket = bucket_of(p, key, key_len);
	pthread_rwlock_t *lock = lock_of(p, bucket);
	pthread_rwlock_wrlock(lock);
	uint64_t *link = find(p, bucket, key, key_len);
	int rc = ENOENT;
	if (*link != 0) {
		struct entry *e = po_at(p, *link);
		memcpy(out, value_of(e), e->len < len ? e->len : len);
		rc = put(p, link, key, key_len, value, len);
	}
	pthread_rwlock_unlock(lock);
	return rc;
}

static int hash_delete(struct po *p, const void *key, size_t key_len)
{
	uint64_t bucket = bucket_of(p, key, key_len);
	pthread_rwlock_t *lock = lock_of(p, bucket);
	pthread_rwlock_wrlock(lock);
	uint64_t *link = find(p, bucket, key, key_len);
	uint64_t at = *link;
	int rc = at == 0 ? ENOENT : 0;
	if (rc == 0) {
		TX_BEGIN(p->pop) {
			pmemobj_tx_add_range_direct(link, sizeof(*link));
			*link = ((struct entry *)po_at(p, at))->next;
			pmemobj_tx_free(po_oid(p, at));
		} TX_ONABORT {
			rc = pmemobj_tx_errno();
		} TX_END
	}
	pthread_rwlock_unlock(lock);
	return rc;
}

static int by_number(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	return (left > right) - (left < right);
}

/* The stripes of all steps, each once, in order: twice the number, and one more if it is written. */
static size_t stripes_of(struct po *p, const struct step *steps, size_t n, uint32_t *stripes)
{
	for (size_t i = 0; i < n; i++)
		stripes[i] = (uint32_t)(bucket_of(p, steps[i].key, steps[i].key_len) % STRIPES) << 1 | (steps[i].value != NULL);
	qsort(stripes, n, sizeof(*stripes), by_number);
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		/* The one that writes comes after the one that reads. */
		if (count > 0 && stripes[count - 1] >> 1 == stripes[i] >> 1)
			stripes[count - 1] = stripes[i];
		else
			stripes[count++] = stripes[i];
	}
	return count;
}

static void step(struct po *p, const struct step *s, void *out, size_t room, size_t *found)
{
	uint64_t *link = find(p, bucket_of(p, s->key, s->key_len), s->key, s->key_len);
	if (s->value != NULL) {
		put_within(p, link, s->key, s->key_len, s->value, s->len);
	} else if (*link != 0) {
		struct entry *e = po_at(p, *link);
		memcpy(out, value_of(e), e->len < room ? e->len : room);
		++*found;
	}
}

int po_hash_transact(struct po *p, const struct step *steps, size_t n, void *out, size_t room, size_t *found)
{
	uint32_t stripes[STEPS_MAX];
	if (n > STEPS_MAX)
		return EINVAL;
	size_t count = stripes_of(p, steps, n, stripes);
	bool writes = false;
	for (size_t i = 0; i < count; i++) {
		pthread_rwlock_t *lock = &p->stripes[stripes[i] >> 1].lock;
		writes |= stripes[i] & 1;
		if (stripes[i] & 1)
			pthread_rwlock_wrlock(lock);
		else
			pthread_rwlock_rdlock(lock);
	}
	int rc = 0;
	if (writes) {
		TX_BEGIN(p->pop) {
			for (size_t i = 0; i < n; i++)
				step(p, &steps[i], out, room, found);
		} TX_ONABORT {
			rc = pmemobj_tx_errno();
		} TX_END
	} else {
		for (size_t i = 0; i < n; i++)
			step(p, &steps[i], out, room, found);
	}
	while (count-- > 0)
		pthread_rwlock_unlock(&p->stripes[stripes[count] >> 1].lock);
	return rc;
}

const struct kind po_hash = {hash_get, hash_put, hash_rmw, hash_delete, false};
