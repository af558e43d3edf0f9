/*
 * A writer with several threads is killed again and again; whatever it had acknowledged is there afterwards, whole, and in order.
 *
 * Each thread's records are numbered; a number is acknowledged in memory that the parent shares. Half of them are appended, half are reserved, filled, completed and
 * forced.
 */
#include "kill.h"
#include <pthread.h>

#define KILLS 12

struct header {
	uint32_t thread, len;
	uint64_t number;
};

static uint64_t start[THREADS];
static cairn_log *shared;

static size_t length(uint64_t number)
{
	return sizeof(struct header) + number * 37 % 1500;
}

static void fill(unsigned char *at, uint32_t thread, uint64_t number)
{
	struct header header = {thread, (uint32_t)length(number), number};
	memcpy(at, &header, sizeof header);
	memset(at + sizeof header, (int)(number + thread), length(number) - sizeof header);
}

static void *writer(void *arg)
{
	uint32_t thread = (uint32_t)(uintptr_t)arg;
	unsigned char buffer[2048];
	for (uint64_t number = start[thread] + 1;; number++) {
		if (number % 2) {
			fill(buffer, thread, number);
			OK(cairn_log_append(shared, buffer, length(number), NULL));
		} else {
			cairn_reservation *reservation;
			void *place;
			uint64_t lsn;
			OK(cairn_log_reserve(shared, length(number), &reservation, &place, &lsn));
			fill(place, thread, number);
			OK(cairn_reservation_complete(reservation));
			OK(cairn_log_force(shared, lsn));
		}
		atomic_store(&acknowledged[thread], number);
	}
	return NULL;
}

static void child(const char *path, const cairn_log_options *options)
{
	pthread_t threads[THREADS];
	OK(cairn_log_open(path, options, &shared));
	for (uintptr_t thread = 0; thread < THREADS; thread++)
		CHECK(pthread_create(&threads[thread], NULL, writer, (void *)thread) == 0);
	for (int thread = 0; thread < THREADS; thread++)
		pthread_join(threads[thread], NULL);
}

/* Every record is one that was written, and no number is left out; sets `start`. */
static void verify(const char *path, const cairn_log_options *options)
{
	cairn_log *log;
	cairn_iter *iter;
	cairn_record record;
	uint64_t last[THREADS], before = 0;
	unsigned char right[2048];
	memcpy(last, start, sizeof last);
	OK(cairn_log_open(path, options, &log));
	OK(cairn_log_iterate(log, 0, &iter));
	int status;
	while ((status = cairn_iter_next(iter, &record)) == CAIRN_OK) {
		struct header header;
		CHECK(record.lsn > before && record.len >= sizeof header);
		before = record.lsn;
		memcpy(&header, record.bytes, sizeof header);
		CHECK(header.thread < THREADS && header.number == last[header.thread] + 1);
		last[header.thread] = header.number;
		CHECK(header.len == record.len && record.len == length(header.number));
		fill(right, header.thread, header.number);
		CHECK(memcmp(right, record.bytes, record.len) == 0);
	}
	CHECK(status == CAIRN_END);
	OK(cairn_iter_close(iter));
	for (int thread = 0; thread < THREADS; thread++) {
		CHECK(last[thread] >= atomic_load(&acknowledged[thread]));
		start[thread] = last[thread];
	}
	OK(cairn_log_cleanup_all(log)); /* by its old name */
	OK(cairn_log_close(log));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	char *path = in(argv[1], "killed");
	cairn_log_options options = log_options();
	options.bytes = 64 << 20;
	options.full_us = 60000000;
	cairn_log *log;
	OK(cairn_log_create(path, &options, &log));
	OK(cairn_log_close(log));
	share_acknowledged();
	for (int kill_number = 0; kill_number < KILLS; kill_number++) {
		pid_t writer = fork();
		CHECK(writer >= 0);
		if (writer == 0) {
			child(path, &options);
			_exit(1);
		}
		kill_after(writer, 50 + (uint64_t)kill_number * 17);
		verify(path, &options);
	}
	CHECK(all_acknowledged() > 50 * KILLS);
	return 0;
}
