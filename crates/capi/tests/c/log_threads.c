/* Many threads on one log: each sees its own records in its order; who comes in between, or closes too early, is told so. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define THREADS 8
#define RECORDS 2000

static cairn_log *shared;
static atomic_int stop;

static void *appender(void *arg)
{
	uint64_t thread = (uint64_t)(uintptr_t)arg, last = 0, lsn;
	for (uint64_t number = 0; number < RECORDS; number++) {
		uint64_t pair[2] = {thread, number};
		if (number % 3) {
			OK(cairn_log_append(shared, pair, sizeof pair, &lsn));
		} else {
			cairn_reservation *reservation;
			void *place;
			OK(cairn_log_reserve(shared, sizeof pair, &reservation, &place, &lsn));
			memcpy(place, pair, sizeof pair);
			if (number % 9 == 0) {
				OK(cairn_reservation_discard(reservation));
				continue;
			}
			OK(cairn_reservation_complete(reservation));
			OK(cairn_log_force(shared, lsn));
		}
		CHECK(lsn > last);
		last = lsn;
	}
	return NULL;
}

/* Two read with one iterator: one of them at a time, the other is refused. */
static void *reader(void *arg)
{
	cairn_record record;
	int status;
	while (!atomic_load(&stop)) {
		status = cairn_iter_next(arg, &record);
		CHECK(status == CAIRN_OK || status == CAIRN_END || status == CAIRN_BUSY);
	}
	return NULL;
}

/* Appends until the log is closed under it. Who closes may find others in a call for so long that the log fills: then they leave room between. */
static void *until_closed(void *arg)
{
	(void)arg;
	const struct timespec nap = {0, 1000000};
	int status;
	while ((status = cairn_log_append(shared, "x", 1, NULL)) == CAIRN_OK || status == CAIRN_FULL)
		if (status == CAIRN_FULL)
			nanosleep(&nap, NULL);
	CHECK(status == CAIRN_CLOSED);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	pthread_t threads[THREADS], readers[2];
	cairn_iter *iter;
	cairn_record record;
	OK(cairn_log_create(in(argv[1], "threads"), NULL, &shared));
	OK(cairn_log_iterate(shared, 0, &iter));
	for (int at = 0; at < 2; at++)
		CHECK(pthread_create(&readers[at], NULL, reader, iter) == 0);
	for (uintptr_t at = 0; at < THREADS; at++)
		CHECK(pthread_create(&threads[at], NULL, appender, (void *)at) == 0);
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	atomic_store(&stop, 1);
	for (int at = 0; at < 2; at++)
		pthread_join(readers[at], NULL);
	OK(cairn_iter_close(iter));

	uint64_t next[THREADS] = {0}, count = 0;
	OK(cairn_log_iterate(shared, 0, &iter));
	while (cairn_iter_next(iter, &record) == CAIRN_OK) {
		uint64_t pair[2];
		CHECK(record.len == sizeof pair);
		memcpy(pair, record.bytes, sizeof pair);
		if (next[pair[0]] % 9 == 0)
			next[pair[0]]++;
		CHECK(pair[0] < THREADS && pair[1] == next[pair[0]]++);
		count++;
	}
	OK(cairn_iter_close(iter));
	CHECK(count == THREADS * (RECORDS - (RECORDS + 8) / 9));

	for (int at = 0; at < 2; at++)
		CHECK(pthread_create(&threads[at], NULL, until_closed, NULL) == 0);
	int status;
	while ((status = cairn_log_close(shared)) == CAIRN_BUSY)
		;
	CHECK(status == CAIRN_OK);
	for (int at = 0; at < 2; at++)
		pthread_join(threads[at], NULL);
	return 0;
}
