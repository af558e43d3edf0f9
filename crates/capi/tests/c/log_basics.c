/* A log: what is appended is there, in order, after a close and after an exit without one. */
#include "check.h"

static void appended(cairn_log *log)
{
	uint64_t lsn = 0, forced = 0;
	OK(cairn_log_append(log, "one", 3, &lsn));
	CHECK(lsn == 1);
	OK(cairn_log_append(log, NULL, 0, NULL));
	OK(cairn_log_forced(log, &forced));
	CHECK(forced == 2);

	cairn_reservation *third, *fourth, *fifth;
	void *bytes[3];
	OK(cairn_log_reserve(log, 5, &third, &bytes[0], &lsn));
	CHECK(lsn == 3);
	OK(cairn_log_reserve(log, 6, &fourth, &bytes[1], NULL));
	OK(cairn_log_reserve(log, 4, &fifth, &bytes[2], NULL));
	memcpy(bytes[2], "five", 4);
	OK(cairn_reservation_complete(fifth));
	OK(cairn_reservation_discard(fourth));
	memcpy(bytes[0], "three", 5);
	OK(cairn_reservation_complete(third));
	EXPECT(CAIRN_CLOSED, cairn_reservation_complete(third));
	OK(cairn_log_force(log, 5));
	OK(cairn_log_force_now(log, 5));
	OK(cairn_log_forced(log, &forced));
	CHECK(forced == 5);
}

static void expect(cairn_log *log, uint64_t from, const char *const *payloads, const uint64_t *lsns, size_t count)
{
	cairn_iter *iter;
	cairn_record record;
	OK(cairn_log_iterate(log, from, &iter));
	for (size_t at = 0; at < count; at++) {
		OK(cairn_iter_next(iter, &record));
		CHECK(record.lsn == lsns[at]);
		CHECK(record.len == strlen(payloads[at]) && memcmp(record.bytes, payloads[at], record.len) == 0);
	}
	EXPECT(CAIRN_END, cairn_iter_next(iter, &record));
	/* Later there is one. */
	uint64_t lsn;
	OK(cairn_log_append(log, "later", 5, &lsn));
	OK(cairn_iter_next(iter, &record));
	CHECK(record.lsn == lsn);
	/* Not while somebody reads. */
	EXPECT(CAIRN_BUSY, cairn_log_close(log));
	SAID("iterator");
	OK(cairn_iter_close(iter));
	EXPECT(CAIRN_CLOSED, cairn_iter_next(iter, &record));
}

static void sizes(const char *dir)
{
	/* A program that knows fewer options than this library gets the defaults of the others. */
	cairn_log_options options = log_options();
	cairn_log *log;
	cairn_log_counts counts;
	options.size = offsetof(cairn_log_options, segment);
	options.bytes = 1 << 20;
	options.segment = 77; /* not looked at */
	OK(cairn_log_create(in(dir, "short"), &options, &log));
	OK(cairn_log_get_counts(log, &counts, sizeof counts));
	CHECK(counts.capacity == 1 << 20 && counts.segment_bytes == 1 << 17);

	/* One that asks for less than there is gets that. */
	struct {
		size_t size;
		uint64_t head, canary;
	} few = {0, 0, 42};
	OK(cairn_log_get_counts(log, (cairn_log_counts *)&few, offsetof(cairn_log_counts, next)));
	CHECK(few.size == 16 && few.head == 1 && few.canary == 42);
	OK(cairn_log_close(log));

	/* One that knows more must not have set what is unknown here. */
	struct {
		cairn_log_options known;
		uint64_t later;
	} longer;
	OK(cairn_log_options_init(&longer.known, sizeof longer));
	CHECK(longer.known.size == sizeof longer && longer.later == 0 && longer.known.frequency == 1);
	OK(cairn_log_open(in(dir, "short"), &longer.known, &log));
	OK(cairn_log_close(log));
	longer.later = 1;
	EXPECT(CAIRN_INVALID, cairn_log_open(in(dir, "short"), &longer.known, &log));
	SAID("must be zero");
}

static void growth(const char *dir)
{
	static char big[4000];
	cairn_log_options options = log_options();
	cairn_log *log;
	uint64_t lsn, capacity;
	options.bytes = 64 << 10;
	options.segment = 8192;
	options.idle_us = 0;
	OK(cairn_log_create(in(dir, "growth"), &options, &log));
	int status, count = 0;
	while ((status = cairn_log_append(log, big, sizeof big, &lsn)) == CAIRN_OK)
		count++;
	CHECK(status == CAIRN_FULL && cairn_group_of(status) == CAIRN_MAKE_ROOM && count == 16);
	EXPECT(CAIRN_TOO_LONG, cairn_log_append(log, big, 8192, NULL));
	OK(cairn_log_grow(log, 64 << 10, &capacity));
	CHECK(capacity == 128 << 10);
	OK(cairn_log_append(log, big, sizeof big, &lsn));
	EXPECT(CAIRN_NOT_FORCED, cairn_log_truncate_to(log, lsn + 1));
	OK(cairn_log_truncate_to(log, lsn - 1));
	OK(cairn_log_discard(log, lsn));
	OK(cairn_log_reclaim(log));
	for (int at = 0; at < 30; at++)
		OK(cairn_log_append(log, big, sizeof big, &lsn));
	OK(cairn_log_truncate_all(log));
	cairn_log_counts counts;
	OK(cairn_log_get_counts(log, &counts, sizeof counts));
	CHECK(counts.head == counts.next && counts.live_bytes == 0 && counts.growths == 1 && counts.barriers > 47);
	OK(cairn_log_close(log));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	const char *dir = argv[1];
	cairn_log_options options = log_options();
	options.bytes = 1 << 20;
	cairn_log *log;
	cairn_log_found found;
	const char *payloads[] = {"one", "", "three", "five", "later", "later"};
	const uint64_t lsns[] = {1, 2, 3, 5, 6, 8};

	OK(cairn_log_create(in(dir, "log"), &options, &log));
	OK(cairn_log_get_found(log, &found, sizeof found));
	CHECK(found.records == 0 && found.next == 0);
	appended(log);
	expect(log, 0, payloads, lsns, 4);
	OK(cairn_log_close(log));
	EXPECT(CAIRN_CLOSED, cairn_log_append(log, "x", 1, NULL));

	options.read_only = 1;
	OK(cairn_log_open(in(dir, "log"), &options, &log));
	OK(cairn_log_get_found(log, &found, sizeof found));
	CHECK(found.records == 5 && found.bytes == 17 && found.was_closed && found.in_doubt == 0);
	EXPECT(CAIRN_READ_ONLY, cairn_log_append(log, "x", 1, NULL));
	OK(cairn_log_close(log));

	options.read_only = 0;
	OK(cairn_log_open(in(dir, "log"), &options, &log));
	uint64_t next = 0;
	OK(cairn_log_get_found(log, &found, sizeof found));
	next = found.next;
	expect(log, 3, payloads + 2, lsns + 2, 3);
	CHECK(next > 0);
	OK(cairn_log_close(log));

	sizes(dir);
	growth(dir);
	CHECK(cairn_version()[0] != 0);
	return 0;
}
