/* A B+tree with keys of one length and values in blocks of their own, behind one lock for readers and writers. A full node is split
 * on the way down; nodes that become empty stay. */
#include "peer.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define TREE_NODE 4
#define TREE_VALUE 5
#define FAN 32 /* keys in a node at most; even */

struct tnode {
	uint32_t n;
	uint32_t leaf;
	uint64_t next; /* the leaf to the right */
	uint64_t to[FAN + 1]; /* values of a leaf; children of an inner node, one more than keys */
	char keys[];
};

struct tvalue {
	uint64_t len;
	char bytes[];
};

static inline char *key_at(struct po *p, struct tnode *node, size_t i)
{
	return node->keys + i * p->root->tree_key_bytes;
}

static inline size_t node_bytes(size_t key_bytes)
{
	return sizeof(struct tnode) + FAN * key_bytes;
}

/* How many of the node's keys are below `key`, or not above it. */
static size_t rank(struct po *p, struct tnode *node, const void *key, bool or_equal)
{
	size_t from = 0, to = node->n;
	while (from < to) {
		size_t middle = (from + to) / 2;
		int order = memcmp(key_at(p, node, middle), key, p->root->tree_key_bytes);
		if (order < 0 || (or_equal && order == 0))
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/* Inside a transaction. */
static uint64_t make_node(struct po *p, bool leaf)
{
	PMEMoid oid = pmemobj_tx_zalloc(node_bytes(p->root->tree_key_bytes), TREE_NODE);
	((struct tnode *)po_at(p, oid.off))->leaf = leaf;
	return oid.off;
}

/* Inside a transaction: room for key and link at `i`; notes what changes. `skip` is 1 where links begin with a child left of all keys. */
static void open_gap(struct po *p, struct tnode *node, size_t i, size_t skip)
{
	size_t key_bytes = p->root->tree_key_bytes, behind = node->n - i;
	pmemobj_tx_add_range_direct(&node->n, sizeof(node->n));
	pmemobj_tx_add_range_direct(key_at(p, node, i), (behind + 1) * key_bytes);
	pmemobj_tx_add_range_direct(&node->to[i + skip], (behind + 1) * sizeof(uint64_t));
	memmove(key_at(p, node, i + 1), key_at(p, node, i), behind * key_bytes);
	memmove(&node->to[i + skip + 1], &node->to[i + skip], behind * sizeof(uint64_t));
	node->n++;
}

/* Inside a transaction: the upper half of child `i` moves to a new node beside it. */
static void split(struct po *p, struct tnode *parent, size_t i)
{
	size_t key_bytes = p->root->tree_key_bytes, half = FAN / 2;
	struct tnode *left = po_at(p, parent->to[i]);
	uint64_t made = make_node(p, left->leaf);
	struct tnode *right = po_at(p, made);
	/* Of an inner node, the key in the middle goes up and is in neither half. */
	size_t from = left->leaf ? half : half + 1;
	right->n = (uint32_t)(FAN - from);
	memcpy(right->keys, key_at(p, left, from), right->n * key_bytes);
	memcpy(right->to, &left->to[from], (FAN + 1 - from) * sizeof(uint64_t));
	right->next = left->next;
	pmemobj_tx_add_range_direct(left, offsetof(struct tnode, to));
	left->n = (uint32_t)half;
	if (left->leaf)
		left->next = made;
	open_gap(p, parent, i, 1);
	memcpy(key_at(p, parent, i), key_at(p, left, half), key_bytes);
	parent->to[i + 1] = made;
}

static struct tnode *leaf_of(struct po *p, const void *key)
{
	struct tnode *node = po_at(p, p->root->tree);
	while (!node->leaf)
		node = po_at(p, node->to[rank(p, node, key, true)]);
	return node;
}

/* The key's value, or NULL; `leaf` and `i` tell where its link is. */
static struct tvalue *find(struct po *p, const void *key, struct tnode **leaf, size_t *i)
{
	*leaf = leaf_of(p, key);
	*i = rank(p, *leaf, key, false);
	if (*i == (*leaf)->n || memcmp(key_at(p, *leaf, *i), key, p->root->tree_key_bytes) != 0)
		return NULL;
	return po_at(p, (*leaf)->to[*i]);
}

int po_tree_there(const struct po *p)
{
	return p->root->tree == 0 ? ENOENT : 0;
}

int po_tree_create(struct po *p, size_t key_bytes)
{
	if (key_bytes == 0 || key_bytes > TREE_KEY_MAX || p->root->tree != 0)
		return EINVAL;
	int rc = 0;
	TX_BEGIN(p->pop) {
		pmemobj_tx_add_range_direct(&p->root->tree, 2 * sizeof(uint64_t));
		p->root->tree_key_bytes = key_bytes;
		p->root->tree = make_node(p, true);
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}

static int tree_get(struct po *p, const void *key, size_t key_len, void *out, size_t room, size_t *len)
{
	struct tnode *leaf;
	size_t i;
	if (key_len != p->root->tree_key_bytes)
		return EINVAL;
	pthread_rwlock_rdlock(&p->tree_lock);
	struct tvalue *value = find(p, key, &leaf, &i);
	int rc = value == NULL ? ENOENT : 0;
	if (rc == 0) {
		*len = value->len;
		if (value->len <= room)
			memcpy(out, value->bytes, value->len);
		else
			rc = ENOSPC;
	}
	pthread_rwlock_unlock(&p->tree_lock);
	return rc;
}

/* Inside a transaction. */
static uint64_t make_value(struct po *p, const void *value, size_t len)
{
	PMEMoid oid = pmemobj_tx_alloc(sizeof(struct tvalue) + len, TREE_VALUE);
	struct tvalue *made = po_at(p, oid.off);
	made->len = len;
	memcpy(made->bytes, value, len);
	return oid.off;
}

/* Inside a transaction: the leaf for the key, with room for one more. */
static struct tnode *leaf_with_room(struct po *p, const void *key)
{
	struct tnode *node = po_at(p, p->root->tree);
	if (node->n == FAN) {
		uint64_t top = make_node(p, false);
		struct tnode *above = po_at(p, top);
		above->to[0] = p->root->tree;
		split(p, above, 0);
		pmemobj_tx_add_range_direct(&p->root->tree, sizeof(uint64_t));
		p->root->tree = top;
		node = above;
	}
	while (!node->leaf) {
		size_t i = rank(p, node, key, true);
		if (((struct tnode *)po_at(p, node->to[i]))->n == FAN) {
			split(p, node, i);
			i = rank(p, node, key, true);
		}
		node = po_at(p, node->to[i]);
	}
	return node;
}

/* In place if the length stays. Returns with the lock held. */
static int put(struct po *p, const void *key, const void *value, size_t len)
{
	struct tnode *leaf;
	size_t i;
	struct tvalue *old = find(p, key, &leaf, &i);
	int rc = 0;
	TX_BEGIN(p->pop) {
		if (old != NULL && old->len == len) {
			pmemobj_tx_add_range_direct(old->bytes, len);
			memcpy(old->bytes, value, len);
		} else if (old != NULL) {
			uint64_t freed = leaf->to[i];
			pmemobj_tx_add_range_direct(&leaf->to[i], sizeof(uint64_t));
			leaf->to[i] = make_value(p, value, len);
			pmemobj_tx_free(po_oid(p, freed));
		} else {
			struct tnode *into = leaf->n < FAN ? leaf : leaf_with_room(p, key);
			size_t at = rank(p, into, key, false);
			uint64_t made = make_value(p, value, len);
			open_gap(p, into, at, 0);
			memcpy(key_at(p, into, at), key, p->root->tree_key_bytes);
			into->to[at] = made;
		}
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}

static int tree_put(struct po *p, const void *key, size_t key_len, const void *value, size_t len)
{
	if (key_len != p->root->tree_key_bytes)
		return EINVAL;
	pthread_rwlock_wrlock(&p->tree_lock);
	int rc = put(p, key, value, len);
	pthread_rwlock_unlock(&p->tree_lock);
	return rc;
}

/* Reads the value into `out`, which has room for `len`, then writes `value`: one critical section. */
static int tree_rmw(struct po *p, const void *key, size_t key_len, void *out, const void *value, size_t len)
{
	struct tnode *leaf;
	size_t i;
	if (key_len != p->root->tree_key_bytes)
		return EINVAL;
	pthread_rwlock_wrlock(&p->tree_lock);
	struct tvalue *old = find(p, key, &leaf, &i);
	int rc = ENOENT;
	if (old != NULL) {
		memcpy(out, old->bytes, old->len < len ? old->len : len);
		rc = put(p, key, value, len);
	}
	pthread_rwlock_unlock(&p->tree_lock);
	return rc;
}

static int tree_delete(struct po *p, const void *key, size_t key_len)
{
	struct tnode *leaf;
	size_t i, key_bytes = p->root->tree_key_bytes;
	if (key_len != key_bytes)
		return EINVAL;
	pthread_rwlock_wrlock(&p->tree_lock);
	int rc = find(p, key, &leaf, &i) == NULL ? ENOENT : 0;
	if (rc == 0) {
		uint64_t freed = leaf->to[i];
		size_t behind = leaf->n - i - 1;
		TX_BEGIN(p->pop) {
			pmemobj_tx_add_range_direct(&leaf->n, sizeof(leaf->n));
			pmemobj_tx_add_range_direct(key_at(p, leaf, i), (behind + 1) * key_bytes);
			pmemobj_tx_add_range_direct(&leaf->to[i], (behind + 1) * sizeof(uint64_t));
			memmove(key_at(p, leaf, i), key_at(p, leaf, i + 1), behind * key_bytes);
			memmove(&leaf->to[i], &leaf->to[i + 1], behind * sizeof(uint64_t));
			leaf->n--;
			pmemobj_tx_free(po_oid(p, freed));
		} TX_ONABORT {
			rc = pmemobj_tx_errno();
		} TX_END
	}
	pthread_rwlock_unlock(&p->tree_lock);
	return rc;
}

const struct kind po_tree = {tree_get, tree_put, tree_rmw, tree_delete, true};

/* Up to n values from `from` on, each copied to `out`; `found` is how many there were. */
int po_tree_scan(struct po *p, const void *from, size_t key_len, size_t n, void *out, size_t room, size_t *found)
{
	if (key_len != p->root->tree_key_bytes)
		return EINVAL;
	pthread_rwlock_rdlock(&p->tree_lock);
	struct tnode *leaf = leaf_of(p, from);
	size_t i = rank(p, leaf, from, false);
	*found = 0;
	while (*found < n) {
		if (i == leaf->n) {
			if (leaf->next == 0)
				break;
			leaf = po_at(p, leaf->next);
			i = 0;
			continue;
		}
		struct tvalue *value = po_at(p, leaf->to[i++]);
		memcpy(out, value->bytes, value->len < room ? value->len : room);
		++*found;
	}
	pthread_rwlock_unlock(&p->tree_lock);
	return 0;
}
