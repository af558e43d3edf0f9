/* Pools: made, opened, closed. */
#include "peer.h"

#include <errno.h>
#include <libpmem.h>
#include <stdlib.h>

#define LAYOUT "cairn-peer"

static int start(PMEMobjpool *pop, struct po **out)
{
	if (pop == NULL)
		return errno ? errno : EIO;
	PMEMoid root = pmemobj_root(pop, sizeof(struct root));
	struct po *p = calloc(1, sizeof(*p));
	struct stripe *stripes = aligned_alloc(64, STRIPES * sizeof(*stripes));
	if (OID_IS_NULL(root) || p == NULL || stripes == NULL) {
		free(p);
		free(stripes);
		pmemobj_close(pop);
		return ENOMEM;
	}
	for (size_t i = 0; i < STRIPES; i++)
		pthread_rwlock_init(&stripes[i].lock, NULL);
	pthread_rwlock_init(&p->tree_lock, NULL);
	p->pop = pop;
	p->base = (char *)pop;
	p->uuid = root.pool_uuid_lo;
	p->root = pmemobj_direct(root);
	p->stripes = stripes;
	*out = p;
	return 0;
}

int po_create(const char *path, size_t bytes, struct po **out)
{
	/* All blocks at once: a file that grows while it is measured would measure the file system. */
	return start(pmemobj_create(path, LAYOUT, bytes, 0600), out);
}

int po_open(const char *path, struct po **out)
{
	return start(pmemobj_open(path, LAYOUT), out);
}

void po_close(struct po *p)
{
	pmemobj_close(p->pop);
	for (size_t i = 0; i < STRIPES; i++)
		pthread_rwlock_destroy(&p->stripes[i].lock);
	pthread_rwlock_destroy(&p->tree_lock);
	free(p->stripes);
	free(p);
}

const char *po_error(void)
{
	return pmemobj_errormsg();
}

/* Whether the library flushes cache lines here; else it calls msync. */
int po_flushes(const struct po *p)
{
	return pmem_is_pmem(p->root, sizeof(*p->root));
}
