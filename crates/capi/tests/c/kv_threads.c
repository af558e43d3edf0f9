/* Threads count in one key by transactions that are run again, and by hand; nothing is lost. Two in one transaction are refused. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 6
#define TIMES 500

static cairn_kv *shared;
static cairn_tx *one;
static atomic_int refused, stop;

static cairn_status count(cairn_tx *tx, void *key)
{
	const void *value;
	size_t len;
	uint64_t number = 0;
	int status = cairn_tx_get(tx, key, strlen(key), &value, &len);
	if (status == CAIRN_OK)
		memcpy(&number, value, sizeof number);
	else if (status != CAIRN_END)
		return status;
	number++;
	return cairn_tx_put(tx, key, strlen(key), &number, sizeof number, NULL);
}

static void *counter(void *unused)
{
	(void)unused;
	for (int at = 0; at < TIMES; at++)
		OK(cairn_kv_transact(shared, CAIRN_SERIALIZABLE, count, "by body"));
	return NULL;
}

static void *by_hand(void *unused)
{
	(void)unused;
	for (int at = 0; at < TIMES;) {
		cairn_tx *tx;
		OK(cairn_kv_begin(shared, CAIRN_SERIALIZABLE, &tx));
		int status = count(tx, "by hand");
		if (status == CAIRN_OK) {
			status = cairn_tx_commit(tx, NULL);
			at += status == CAIRN_OK;
		} else {
			OK(cairn_tx_abort(tx));
		}
		CHECK(status == CAIRN_OK || status == CAIRN_CONFLICT);
	}
	return NULL;
}

static void *in_one(void *arg)
{
	char key[16];
	int len = snprintf(key, sizeof key, "key %d", (int)(uintptr_t)arg);
	while (!atomic_load(&stop)) {
		int status = cairn_tx_put(one, key, (size_t)len, "x", 1, NULL);
		CHECK(status == CAIRN_OK || status == CAIRN_BUSY);
		if (status == CAIRN_BUSY)
			atomic_fetch_add(&refused, 1);
	}
	return NULL;
}

static void expect(const char *key, uint64_t wanted)
{
	uint64_t number = 0;
	size_t len;
	OK(cairn_kv_get(shared, key, strlen(key), &number, sizeof number, &len));
	CHECK(number == wanted);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	pthread_t threads[THREADS];
	OK(cairn_kv_create(in(argv[1], "threads"), NULL, &shared));
	for (int at = 0; at < THREADS; at++)
		CHECK(pthread_create(&threads[at], NULL, at % 2 ? by_hand : counter, NULL) == 0);
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	expect("by body", THREADS / 2 * TIMES);
	expect("by hand", THREADS / 2 * TIMES);

	OK(cairn_kv_begin(shared, CAIRN_SERIALIZABLE, &one));
	for (uintptr_t at = 0; at < 2; at++)
		CHECK(pthread_create(&threads[at], NULL, in_one, (void *)at) == 0);
	while (atomic_load(&refused) < 10)
		;
	atomic_store(&stop, 1);
	for (int at = 0; at < 2; at++)
		pthread_join(threads[at], NULL);
	OK(cairn_tx_commit(one, NULL));
	OK(cairn_kv_close(shared));
	return 0;
}
