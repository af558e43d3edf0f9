/* Objects of their own: made, overwritten, linked into lists and out again. */
#include "peer.h"

#include <errno.h>
#include <string.h>

#define BATCH 64
/* Type numbers mean nothing to us. */
#define NODE 1

/* n objects of zeros. */
int po_alloc(struct po *p, size_t n, size_t bytes, uint64_t *out)
{
	int rc = 0;
	for (size_t from = 0; from < n && rc == 0; from += BATCH) {
		size_t to = from + BATCH < n ? from + BATCH : n;
		TX_BEGIN(p->pop) {
			for (size_t i = from; i < to; i++)
				out[i] = pmemobj_tx_zalloc(bytes, NODE).off;
		} TX_ONABORT {
			rc = pmemobj_tx_errno();
		} TX_END
	}
	return rc;
}

int po_read(struct po *p, uint64_t object, size_t bytes, void *out)
{
	memcpy(out, po_at(p, object), bytes);
	return 0;
}

/* One transaction over n objects. */
int po_overwrite(struct po *p, const uint64_t *objects, size_t n, const void *data, size_t bytes)
{
	int rc = 0;
	TX_BEGIN(p->pop) {
		for (size_t i = 0; i < n; i++) {
			pmemobj_tx_add_range(po_oid(p, objects[i]), 0, bytes);
			memcpy(po_at(p, objects[i]), data, bytes);
		}
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}

struct node {
	uint64_t next;
	char data[];
};

/* Allocates an object of `bytes`, link included, and makes it the list's first. */
int po_push(struct po *p, size_t list, const void *data, size_t bytes)
{
	if (list >= LISTS_MAX || bytes < sizeof(struct node))
		return EINVAL;
	uint64_t *head = &p->root->lists[list].head;
	int rc = 0;
	TX_BEGIN(p->pop) {
		uint64_t made = pmemobj_tx_alloc(bytes, NODE).off;
		struct node *node = po_at(p, made);
		node->next = *head;
		memcpy(node->data, data, bytes - sizeof(*node));
		pmemobj_tx_add_range_direct(head, sizeof(*head));
		*head = made;
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}

/* Takes the list's first out and frees it. */
int po_pop(struct po *p, size_t list)
{
	if (list >= LISTS_MAX || p->root->lists[list].head == 0)
		return ENOENT;
	uint64_t *head = &p->root->lists[list].head;
	uint64_t first = *head;
	int rc = 0;
	TX_BEGIN(p->pop) {
		pmemobj_tx_add_range_direct(head, sizeof(*head));
		*head = ((struct node *)po_at(p, first))->next;
		pmemobj_tx_free(po_oid(p, first));
	} TX_ONABORT {
		rc = pmemobj_tx_errno();
	} TX_END
	return rc;
}
