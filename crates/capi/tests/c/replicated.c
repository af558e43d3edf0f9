/* A log and a store on several machines: the replicas at the addresses that follow the folder, two for each, two for changes with two more, and two for what replicas have. */
#include "check.h"

static const char SECRET[] = "what all of them know";

static cairn_replicas *named(const char *local, char **addresses)
{
	cairn_replicas *replicas;
	OK(cairn_replicas_new(&replicas));
	if (local)
		OK(cairn_replicas_local(replicas, local));
	OK(cairn_replicas_at(replicas, addresses[0]));
	OK(cairn_replicas_at(replicas, addresses[1]));
	OK(cairn_replicas_secret(replicas, SECRET, sizeof SECRET));
	OK(cairn_replicas_quorum(replicas, 2));
	OK(cairn_replicas_timeout(replicas, 60 * 1000 * 1000));
	return replicas;
}

static void expect(cairn_log *log, unsigned count)
{
	cairn_iter *iter;
	cairn_record record;
	uint64_t last = 0;
	OK(cairn_log_iterate(log, 0, &iter));
	for (unsigned n = 0; n < count; n++) {
		OK(cairn_iter_next(iter, &record));
		/* Each leader has a record of its own between them. */
		CHECK(record.lsn > last);
		last = record.lsn;
		CHECK(record.len == sizeof n && memcmp(record.bytes, &n, sizeof n) == 0);
	}
	EXPECT(CAIRN_END, cairn_iter_next(iter, &record));
	OK(cairn_iter_close(iter));
}

static void a_log(const char *dir, char **addresses)
{
	cairn_log_options options = log_options();
	char path[4096];
	snprintf(path, sizeof path, "%s/replica", dir);
	cairn_replicas *replicas = named(path, addresses);
	cairn_log *log, *other;
	options.bytes = 1 << 20;
	OK(cairn_log_create_replicated(replicas, &options, &log));
	for (unsigned n = 0; n < 100; n++)
		OK(cairn_log_append(log, &n, sizeof n, NULL));
	OK(cairn_log_check_leading(log));
	OK(cairn_log_close(log));

	cairn_log_found found;
	OK(cairn_log_open_replicated(replicas, &options, &log));
	OK(cairn_log_get_found(log, &found, sizeof found));
	CHECK(found.records == 100);
	expect(log, 100);

	/* It is no log of its own, and nobody writes who only reads. */
	EXPECT(CAIRN_BUSY, cairn_log_open(path, &options, &other));
	options.read_only = 1;
	EXPECT(CAIRN_INVALID, cairn_log_open_replicated(replicas, &options, &other));
	options.read_only = 0;

	/* Another leader, on a machine without a replica. */
	cairn_replicas *others = named(NULL, addresses);
	OK(cairn_log_open_replicated(others, &options, &other));
	const unsigned next = 100;
	EXPECT(CAIRN_FENCED, cairn_log_append(log, &next, sizeof next, NULL));
	SAID("another leader");
	EXPECT(CAIRN_FENCED, cairn_log_check_leading(log));
	cairn_log_close(log);
	OK(cairn_log_append(other, &next, sizeof next, NULL));
	expect(other, 101);
	OK(cairn_log_close(other));

	/* Whoever does not know the secret gets nothing. */
	OK(cairn_replicas_secret(others, "something else than that", 24));
	EXPECT(CAIRN_NO_QUORUM, cairn_log_open_replicated(others, &options, &other));
	OK(cairn_replicas_free(others));
	EXPECT(CAIRN_CLOSED, cairn_replicas_free(others));
	EXPECT(CAIRN_CLOSED, cairn_log_open_replicated(others, &options, &other));
	OK(cairn_replicas_free(replicas));
}

/* Replicas that count: how many, and whether the one with this id is one of them, and how it is doing. */
static unsigned count(cairn_log *log, uint64_t wanted, int *found)
{
	unsigned n = 0;
	uint64_t id, through;
	uint32_t state;
	*found = -1;
	while (cairn_log_replica(log, n, &id, &state, &through) == CAIRN_OK) {
		if (id == wanted)
			*found = (int)state;
		n++;
	}
	EXPECT(CAIRN_END, cairn_log_replica(log, n, &id, &state, &through));
	return n;
}

/* A third replica joins, one is removed, and the rest goes on. */
static void changes(const char *dir, char **addresses, char **more)
{
	cairn_log_options options = log_options();
	char path[4096];
	snprintf(path, sizeof path, "%s/changed", dir);
	cairn_replicas *replicas = named(path, addresses);
	cairn_log *log;
	options.bytes = 1 << 20;
	OK(cairn_log_create_replicated(replicas, &options, &log));
	for (unsigned n = 0; n < 50; n++)
		OK(cairn_log_append(log, &n, sizeof n, NULL));

	uint64_t own = 0, other = 0, id, through;
	uint32_t state;
	for (uint32_t n = 0; n < 3; n++) {
		OK(cairn_log_replica(log, n, &id, &state, &through));
		CHECK(state == CAIRN_REPLICA_OWN || state == CAIRN_REPLICA_LIVE);
		if (state == CAIRN_REPLICA_OWN)
			own = id;
		else
			other = id;
	}
	int found;
	CHECK(count(log, own, &found) == 3 && found == CAIRN_REPLICA_OWN);
	OK(cairn_log_join(log, more[0], replicas));
	CHECK(count(log, other, &found) == 4 && found == CAIRN_REPLICA_LIVE);
	OK(cairn_log_remove(log, other));
	CHECK(count(log, other, &found) == 3 && found == -1);
	EXPECT(CAIRN_INVALID, cairn_log_remove(log, other));
	SAID("none of the log's replicas");
	EXPECT(CAIRN_INVALID, cairn_log_remove(log, own));
	SAID("replica of its leader");
	/* A replica is served there, but an empty list has no secret. */
	cairn_replicas *nothing;
	OK(cairn_replicas_new(&nothing));
	CHECK(cairn_log_join(log, more[1], nothing) != CAIRN_OK);
	/* No process listens there. */
	CHECK(cairn_log_join(log, "127.0.0.1:1", replicas) != CAIRN_OK);
	SAID("127.0.0.1:1");
	CHECK(count(log, own, &found) == 3);
	for (unsigned n = 50; n < 60; n++)
		OK(cairn_log_append(log, &n, sizeof n, NULL));
	expect(log, 60);
	OK(cairn_log_close(log));
	EXPECT(CAIRN_CLOSED, cairn_log_remove(log, own));
	OK(cairn_replicas_free(nothing));
	OK(cairn_replicas_free(replicas));
}

/* What the own replica has is what is durable, and one that is not named is away, and missing for a change. */
static void states(const char *dir, char **addresses)
{
	cairn_log_options options = log_options();
	char path[4096];
	snprintf(path, sizeof path, "%s/states", dir);
	cairn_replicas *replicas = named(path, addresses), *fewer;
	cairn_log *log;
	uint64_t own = 0, live = 0, away = 0, id, through, lsn = 0;
	uint32_t state;
	options.bytes = 1 << 20;
	options.frequency = 1000;
	options.within_us = 0;
	options.idle_us = 0;
	OK(cairn_log_create_replicated(replicas, &options, &log));
	for (unsigned n = 0; n < 10; n++)
		OK(cairn_log_append(log, &n, sizeof n, &lsn));
	for (uint32_t n = 0; n < 3; n++) {
		OK(cairn_log_replica(log, n, &id, &state, &through));
		if (state == CAIRN_REPLICA_OWN)
			CHECK(through < lsn);
	}
	OK(cairn_log_force_now(log, lsn));
	for (uint32_t n = 0; n < 3; n++) {
		OK(cairn_log_replica(log, n, &id, &state, &through));
		CHECK(state == CAIRN_REPLICA_OWN ? through == lsn : through <= lsn);
	}
	OK(cairn_log_close(log));
	OK(cairn_replicas_free(replicas));

	OK(cairn_replicas_new(&fewer));
	OK(cairn_replicas_local(fewer, path));
	OK(cairn_replicas_at(fewer, addresses[0]));
	OK(cairn_replicas_secret(fewer, SECRET, sizeof SECRET));
	OK(cairn_replicas_timeout(fewer, 60 * 1000 * 1000));
	OK(cairn_log_open_replicated(fewer, &options, &log));
	for (uint32_t n = 0; n < 3; n++) {
		OK(cairn_log_replica(log, n, &id, &state, &through));
		if (state == CAIRN_REPLICA_OWN) {
			own = id;
		} else if (state == CAIRN_REPLICA_LIVE) {
			live = id;
			CHECK(through >= lsn);
		} else {
			CHECK(state == CAIRN_REPLICA_AWAY && through == 0);
			away = id;
		}
	}
	CHECK(own && live && away);
	EXPECT(CAIRN_NO_QUORUM, cairn_log_remove(log, live));
	EXPECT(CAIRN_INVALID, cairn_log_remove(log, own));
	OK(cairn_log_remove(log, away));
	int found;
	CHECK(count(log, away, &found) == 2 && found == -1);
	/* Two of two: the write quorum needs it. */
	EXPECT(CAIRN_INVALID, cairn_log_remove(log, live));
	OK(cairn_log_close(log));
	OK(cairn_replicas_free(fewer));
}

/* The ids of a store's replicas, which the message about one that is none of them names. */
static unsigned ids_of(cairn_kv *store, uint64_t *ids, unsigned most)
{
	EXPECT(CAIRN_INVALID, cairn_kv_remove(store, 1));
	const char *at = strstr(cairn_last_error(), "they are ");
	CHECK(at != NULL);
	at += strlen("they are ");
	unsigned n = 0;
	for (char *end; n < most; at = end + strspn(end, ", ")) {
		ids[n] = strtoull(at, &end, 16);
		if (end == at)
			break;
		n++;
	}
	return n;
}

static void a_store_of_its_own(const char *dir, cairn_replicas *replicas)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/own", dir);
	cairn_kv *store;
	OK(cairn_kv_create(path, NULL, &store));
	EXPECT(CAIRN_INVALID, cairn_kv_join(store, "127.0.0.1:1", replicas));
	SAID("was not made of a log");
	EXPECT(CAIRN_INVALID, cairn_kv_remove(store, 1));
	SAID("was not made of a log");
	OK(cairn_kv_close(store));
}

static void a_store(const char *dir, char **addresses, const char *another)
{
	char path[4096], log_path[4096];
	snprintf(path, sizeof path, "%s/store", dir);
	snprintf(log_path, sizeof log_path, "%s/store.log", dir);
	cairn_replicas *replicas = named(log_path, addresses);
	cairn_log_options log = log_options();
	log.bytes = 1 << 20;
	cairn_kv_options options = kv_options();
	cairn_kv *store;
	options.at_risk = 1;
	EXPECT(CAIRN_INVALID, cairn_kv_create_replicated(path, replicas, &log, &options, &store));
	OK(cairn_kv_create_replicated(path, replicas, &log, NULL, &store));
	OK(cairn_kv_put(store, "key", 3, "value", 5, NULL));
	OK(cairn_kv_check_leading(store));
	EXPECT(CAIRN_NULL, cairn_kv_join(store, NULL, replicas));
	CHECK(cairn_kv_join(store, "127.0.0.1:1", replicas) != CAIRN_OK);
	/* Another replica joins, and goes. */
	uint64_t before[8], ids[8];
	CHECK(ids_of(store, before, 8) == 3);
	OK(cairn_kv_join(store, another, replicas));
	CHECK(ids_of(store, ids, 8) == 4);
	uint64_t joined = 0;
	for (unsigned n = 0; n < 4; n++)
		if (ids[n] != before[0] && ids[n] != before[1] && ids[n] != before[2])
			joined = ids[n];
	CHECK(joined != 0);
	OK(cairn_kv_remove(store, joined));
	CHECK(ids_of(store, ids, 8) == 3);
	EXPECT(CAIRN_INVALID, cairn_kv_remove(store, joined));
	a_store_of_its_own(dir, replicas);
	OK(cairn_kv_close(store));

	EXPECT(CAIRN_FOREIGN, cairn_kv_open(path, NULL, &store));
	SAID("log");
	OK(cairn_kv_open_replicated(path, replicas, &log, NULL, &store));
	char value[8];
	size_t len;
	OK(cairn_kv_get(store, "key", 3, value, sizeof value, &len));
	CHECK(len == 5 && memcmp(value, "value", 5) == 0);
	OK(cairn_kv_close(store));
	OK(cairn_replicas_free(replicas));
}

static void arguments(void)
{
	cairn_replicas *replicas;
	EXPECT(CAIRN_NULL, cairn_replicas_new(NULL));
	OK(cairn_replicas_new(&replicas));
	EXPECT(CAIRN_NULL, cairn_replicas_at(replicas, NULL));
	EXPECT(CAIRN_NOT_UTF8, cairn_replicas_at(replicas, "\xff"));
	EXPECT(CAIRN_NULL, cairn_replicas_local(replicas, NULL));
	EXPECT(CAIRN_INVALID, cairn_replicas_secret(replicas, "short", 5));
	EXPECT(CAIRN_INVALID, cairn_replicas_order(replicas, 3));
	OK(cairn_replicas_order(replicas, CAIRN_AFTER));
	EXPECT(CAIRN_INVALID, cairn_replicas_certificates(replicas, "no", 2, "no", 2, "no", 2));
	OK(cairn_replicas_accept_doubt(replicas));
	EXPECT(CAIRN_NULL, cairn_replicas_lost(NULL, 1));
	OK(cairn_replicas_lost(replicas, 1));
	cairn_log *log;
	EXPECT(CAIRN_NULL, cairn_log_open_replicated(NULL, NULL, &log));
	EXPECT(CAIRN_NULL, cairn_log_create_replicated(replicas, NULL, NULL));
	EXPECT(CAIRN_CLOSED, cairn_log_check_leading((cairn_log *)replicas));
	EXPECT(CAIRN_CLOSED, cairn_log_join((cairn_log *)replicas, "localhost:1", replicas));
	EXPECT(CAIRN_NULL, cairn_log_replica((cairn_log *)replicas, 0, NULL, NULL, NULL));
	OK(cairn_replicas_free(replicas));
	EXPECT(CAIRN_CLOSED, cairn_replicas_at(replicas, "localhost:1"));
}

int main(int argc, char **argv)
{
	CHECK(argc == 12);
	arguments();
	a_log(argv[1], argv + 2);
	changes(argv[1], argv + 6, argv + 8);
	a_store(argv[1], argv + 4, argv[9]);
	states(argv[1], argv + 10);
	return 0;
}
