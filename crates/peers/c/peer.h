/* libpmemobj doing what the engines are measured at. Every function returns 0 or an errno; po_error() has the text. */
#ifndef CAIRN_PEER_H
#define CAIRN_PEER_H

#include <libpmemobj.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LISTS_MAX 64
/* Locks of the hash map: as many as fit a second-level cache; each serves the buckets of its residue class. */
#define STRIPES 4096
#define TREE_KEY_MAX 64

struct list {
	uint64_t head;
	uint64_t pad[7];
};

/* The root object. Links are offsets in the pool: half of a PMEMoid, half of its snapshots. */
struct root {
	struct list lists[LISTS_MAX];
	uint64_t buckets; /* array of links */
	uint64_t bucket_count; /* power of two; 0: no hash map */
	uint64_t tree; /* root node; 0: no tree */
	uint64_t tree_key_bytes;
};

/* Alone on its line. */
struct stripe {
	_Alignas(64) pthread_rwlock_t lock;
};

struct po {
	PMEMobjpool *pop;
	char *base;
	uint64_t uuid;
	struct root *root;
	pthread_rwlock_t tree_lock;
	struct stripe *stripes;
};

static inline void *po_at(const struct po *p, uint64_t offset)
{
	return p->base + offset;
}

static inline PMEMoid po_oid(const struct po *p, uint64_t offset)
{
	PMEMoid oid = {p->uuid, offset};
	return oid;
}

int po_create(const char *path, size_t bytes, struct po **out);
int po_open(const char *path, struct po **out);
void po_close(struct po *p);
const char *po_error(void);
int po_flushes(const struct po *p);

int po_alloc(struct po *p, size_t n, size_t bytes, uint64_t *out);
int po_read(struct po *p, uint64_t object, size_t bytes, void *out);
int po_overwrite(struct po *p, const uint64_t *objects, size_t n, const void *data, size_t bytes);
int po_push(struct po *p, size_t list, const void *data, size_t bytes);
int po_pop(struct po *p, size_t list);

/* One structure's functions. */
struct kind {
	int (*get)(struct po *p, const void *key, size_t key_len, void *out, size_t room, size_t *len);
	int (*put)(struct po *p, const void *key, size_t key_len, const void *value, size_t len);
	int (*rmw)(struct po *p, const void *key, size_t key_len, void *out, const void *value, size_t len);
	int (*delete)(struct po *p, const void *key, size_t key_len);
	bool ordered;
};

extern const struct kind po_hash, po_tree;

/* A part of a transaction: reads if `value` is null. */
struct step {
	const void *key;
	size_t key_len;
	const void *value;
	size_t len;
};

/* Steps of a transaction. */
#define STEPS_MAX 1024

int po_hash_create(struct po *p, uint64_t buckets);
/* All locks are known beforehand, and taken in their order: nobody waits in a circle. */
int po_hash_transact(struct po *p, const struct step *steps, size_t n, void *out, size_t room, size_t *found);
/* 0 or ENOENT. */
int po_hash_there(const struct po *p);
int po_tree_there(const struct po *p);
int po_tree_create(struct po *p, size_t key_bytes);
int po_tree_scan(struct po *p, const void *from, size_t key_len, size_t n, void *out, size_t room, size_t *found);

#endif
