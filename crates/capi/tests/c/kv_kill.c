/*
 * Threads move money between accounts and are killed again and again: no sum is lost or made, and every transfer that was acknowledged has happened; all but so many,
 * if commits return before their barrier: one that had its number and not yet its records takes those behind it along.
 */
#include "kill.h"
#include <pthread.h>

#define ACCOUNTS 50
#define KILLS 6
#define BEGIN 1000

struct transfer {
	uint64_t thread, number;
};

static cairn_kv *shared;

static uint64_t number_of(cairn_tx *tx, const void *key, size_t len, uint64_t otherwise)
{
	const void *value;
	size_t value_len;
	uint64_t number = otherwise;
	int status = cairn_tx_get(tx, key, len, &value, &value_len);
	if (status == CAIRN_OK) {
		CHECK(value_len == sizeof number);
		memcpy(&number, value, sizeof number);
	} else if (status != CAIRN_END) {
		/* Only conflicts: the transaction is run again. */
		CHECK(status == CAIRN_CONFLICT || status == CAIRN_DOOMED);
	}
	return number;
}

static cairn_status move(cairn_tx *tx, void *context)
{
	const struct transfer *transfer = context;
	uint64_t accounts[2] = {transfer->number * 7 % ACCOUNTS, (transfer->number * 13 + transfer->thread) % ACCOUNTS};
	cairn_status status;
	if (accounts[0] == accounts[1])
		accounts[1] = (accounts[1] + 1) % ACCOUNTS;
	for (int at = 0; at < 2; at++) {
		char key[16];
		int len = snprintf(key, sizeof key, "a%02d", (int)accounts[at]);
		uint64_t balance = number_of(tx, key, (size_t)len, BEGIN) + (at ? 1 : (uint64_t)-1);
		if ((status = cairn_tx_put(tx, key, (size_t)len, &balance, sizeof balance, NULL)) != CAIRN_OK)
			return status;
	}
	return cairn_tx_put(tx, &transfer->thread, sizeof transfer->thread, &transfer->number, sizeof transfer->number,
			    NULL);
}

static void *mover(void *arg)
{
	struct transfer transfer = {(uint64_t)(uintptr_t)arg, 0};
	size_t len;
	int status = cairn_kv_get(shared, &transfer.thread, sizeof transfer.thread, &transfer.number,
				  sizeof transfer.number, &len);
	CHECK(status == CAIRN_OK || status == CAIRN_END);
	for (;;) {
		transfer.number++;
		OK(cairn_kv_transact(shared, CAIRN_SERIALIZABLE, move, &transfer));
		atomic_store(&acknowledged[transfer.thread], transfer.number);
	}
	return NULL;
}

static void verify(const char *path, const cairn_kv_options *options)
{
	cairn_kv *store;
	cairn_tx *tx;
	cairn_scan *scan;
	cairn_pair pair;
	uint64_t sum = 0, count = 0, lost = 0;
	OK(cairn_kv_open(path, options, &store));
	OK(cairn_kv_begin(store, CAIRN_SNAPSHOT, &tx));
	cairn_range accounts = {"a", 1, NULL, 0, 1, 0};
	OK(cairn_tx_scan(tx, &accounts, &scan));
	while (cairn_scan_next(scan, &pair) == CAIRN_OK) {
		uint64_t balance;
		CHECK(pair.value_len == sizeof balance);
		memcpy(&balance, pair.value, sizeof balance);
		sum += balance;
		count++;
	}
	OK(cairn_scan_close(scan));
	CHECK(sum == count * BEGIN && count == ACCOUNTS);
	for (uint64_t thread = 0; thread < THREADS; thread++) {
		uint64_t done = number_of(tx, &thread, sizeof thread, 0);
		uint64_t told = atomic_exchange(&acknowledged[thread], done);
		lost += told > done ? told - done : 0;
	}
	CHECK(lost <= options->at_risk);
	OK(cairn_tx_abort(tx));
	OK(cairn_kv_close(store));
}

static void killed(const char *path, uint32_t at_risk)
{
	cairn_kv_options options = kv_options();
	options.segment = 64 << 10;
	options.checkpoint_bytes = 512 << 10;
	options.at_risk = at_risk;
	for (int at = 0; at < THREADS; at++)
		atomic_store(&acknowledged[at], 0);
	OK(cairn_kv_create(path, &options, &shared));
	OK(cairn_kv_close(shared));
	for (int kill_number = 0; kill_number < KILLS; kill_number++) {
		pid_t worker = fork();
		CHECK(worker >= 0);
		if (worker == 0) {
			pthread_t threads[THREADS];
			OK(cairn_kv_open(path, &options, &shared));
			for (uintptr_t at = 0; at < THREADS; at++)
				CHECK(pthread_create(&threads[at], NULL, mover, (void *)at) == 0);
			for (int at = 0; at < THREADS; at++)
				pthread_join(threads[at], NULL);
			_exit(1);
		}
		kill_after(worker, 500 + (uint64_t)kill_number * 131);
		verify(path, &options);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	share_acknowledged();
	killed(in(argv[1], "durable"), 0);
	killed(in(argv[1], "bounded"), 20);
	return 0;
}
