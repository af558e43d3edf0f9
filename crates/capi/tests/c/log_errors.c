/* Whatever is passed, there is an answer. */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void *quiet(void *unused)
{
	(void)unused;
	CHECK(cairn_last_error()[0] == 0);
	CHECK(cairn_last_errno() == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	const char *dir = argv[1];
	cairn_log_options options = log_options();
	options.bytes = 1 << 20;
	options.stall_timeout_us = 20000;
	cairn_log *log = NULL, *other = NULL;
	cairn_iter *iter;
	cairn_record record;
	cairn_reservation *reservation;
	void *bytes;
	uint64_t lsn = 0;
	int any = 0;

	CHECK(cairn_last_error()[0] == 0);

	/* Null pointers. */
	EXPECT(CAIRN_NULL, cairn_log_options_init(NULL, sizeof options));
	EXPECT(CAIRN_NULL, cairn_log_create(NULL, &options, &log));
	SAID("path");
	EXPECT(CAIRN_NULL, cairn_log_create(in(dir, "l"), &options, NULL));
	EXPECT(CAIRN_NULL, cairn_log_append(NULL, "x", 1, NULL));
	SAID("log");
	EXPECT(CAIRN_NULL, cairn_log_close(NULL));
	EXPECT(CAIRN_NULL, cairn_reservation_complete(NULL));
	EXPECT(CAIRN_NULL, cairn_iter_next(NULL, &record));
	CHECK(log == NULL);

	/* Files. */
	EXPECT(CAIRN_MISSING, cairn_log_open(in(dir, "none"), &options, &log));
	CHECK(cairn_last_errno() == ENOENT);
	EXPECT(CAIRN_MISSING, cairn_log_create(in(dir, "no/such/folder"), &options, &log));
	EXPECT(CAIRN_NOT_UTF8, cairn_log_create("/tmp/\xff\xfe", &options, &log));
	SAID("utf-8");
	CHECK(cairn_last_errno() == 0);
	FILE *file = fopen(in(dir, "text"), "w");
	for (int at = 0; at < 10000; at++)
		fputs("not a log\n", file);
	fclose(file);
	EXPECT(CAIRN_FOREIGN, cairn_log_open(in(dir, "text"), &options, &log));
	cairn_kv *store;
	EXPECT(CAIRN_FOREIGN, cairn_kv_open(in(dir, "text"), NULL, &store));

	/* Options. */
	options.segment = 100;
	EXPECT(CAIRN_INVALID, cairn_log_create(in(dir, "l"), &options, &log));
	SAID("100");
	options.segment = 0;
	options.domain = 9;
	EXPECT(CAIRN_INVALID, cairn_log_create(in(dir, "l"), &options, &log));
	options.domain = CAIRN_AUTO;
	options.size = 3;
	EXPECT(CAIRN_INVALID, cairn_log_create(in(dir, "l"), &options, &log));
	SAID("init function");
	options.size = sizeof options;

	OK(cairn_log_create(in(dir, "l"), &options, &log));
	EXPECT(CAIRN_EXISTS, cairn_log_create(in(dir, "l"), &options, &other));
	EXPECT(CAIRN_BUSY, cairn_log_open(in(dir, "l"), &options, &other));
	CHECK(cairn_group_of(CAIRN_BUSY) == CAIRN_AGAIN && cairn_group_of(CAIRN_OK) == CAIRN_FINE);
	CHECK(cairn_group_of(CAIRN_USER + 5) == CAIRN_OWN && cairn_group_of(CAIRN_LOST) == CAIRN_REPAIR);

	/* Arguments. */
	EXPECT(CAIRN_NULL, cairn_log_append(log, NULL, 1, NULL));
	EXPECT(CAIRN_INVALID, cairn_log_append(log, "x", SIZE_MAX, NULL));
	EXPECT(CAIRN_TOO_LONG, cairn_log_reserve(log, SIZE_MAX, &reservation, &bytes, NULL));
	EXPECT(CAIRN_NULL, cairn_log_reserve(log, 4, NULL, &bytes, NULL));
	EXPECT(CAIRN_NULL, cairn_log_reserve(log, 4, &reservation, NULL, NULL));
	EXPECT(CAIRN_INVALID, cairn_log_force(log, 77));
	EXPECT(CAIRN_INVALID, cairn_log_get_counts(log, (cairn_log_counts *)&any, 4));
	EXPECT(CAIRN_NULL, cairn_log_get_counts(log, NULL, sizeof(cairn_log_counts)));

	/* What is no handle of this kind. */
	EXPECT(CAIRN_CLOSED, cairn_log_append((cairn_log *)&any, "x", 1, NULL));
	EXPECT(CAIRN_CLOSED, cairn_log_append((cairn_log *)(uintptr_t)-1, "x", 1, NULL));
	EXPECT(CAIRN_CLOSED, cairn_iter_next((cairn_iter *)log, &record));
	EXPECT(CAIRN_CLOSED, cairn_kv_put((cairn_kv *)log, "a", 1, "b", 1, NULL));

	/* An earlier record that is not complete. */
	OK(cairn_log_reserve(log, 4, &reservation, &bytes, &lsn));
	EXPECT(CAIRN_BUSY, cairn_log_close(log));
	EXPECT(CAIRN_STALLED, cairn_log_append(log, "x", 1, NULL));
	EXPECT(CAIRN_CLOSED, cairn_reservation_complete((cairn_reservation *)log));
	OK(cairn_reservation_discard(reservation));
	EXPECT(CAIRN_CLOSED, cairn_reservation_discard(reservation));
	OK(cairn_log_force_now(log, lsn));

	/* The child of a fork. */
	pid_t child = fork();
	if (child == 0) {
		EXPECT(CAIRN_FORKED, cairn_log_append(log, "x", 1, NULL));
		OK(cairn_log_create(in(dir, "of the child"), &options, &other));
		OK(cairn_log_append(other, "x", 1, NULL));
		EXPECT(CAIRN_FORKED, cairn_log_append(log, "x", 1, NULL));
		OK(cairn_log_close(other));
		EXPECT(CAIRN_FORKED, cairn_log_close(log));
		_exit(0);
	}
	int ended;
	CHECK(waitpid(child, &ended, 0) == child && ended == 0);

	/* The message is this thread's. */
	EXPECT(CAIRN_NULL, cairn_log_close(NULL));
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, quiet, NULL) == 0 && pthread_join(thread, NULL) == 0);
	SAID("null");

	OK(cairn_log_iterate(log, 0, &iter));
	OK(cairn_iter_next(iter, &record));
	CHECK(record.len == 1 && *(const char *)record.bytes == 'x');
	EXPECT(CAIRN_NULL, cairn_iter_next(iter, NULL));
	OK(cairn_iter_close(iter));
	EXPECT(CAIRN_CLOSED, cairn_iter_close(iter));
	OK(cairn_log_close(log));
	EXPECT(CAIRN_CLOSED, cairn_log_close(log));
	/* Its slot may be another log's by now; the old handle still leads nowhere. */
	OK(cairn_log_open(in(dir, "l"), &options, &other));
	EXPECT(CAIRN_CLOSED, cairn_log_append(log, "x", 1, NULL));
	EXPECT(CAIRN_CLOSED, cairn_reservation_complete(reservation));
	OK(cairn_log_close(other));
	return 0;
}
