/* A store: single operations, transactions, scans, batches, and what is refused. */
#include "check.h"

static void put(cairn_kv *store, const char *key, const char *value)
{
	OK(cairn_kv_put(store, key, strlen(key), value, strlen(value), NULL));
}

static void expect(cairn_kv *store, const char *key, const char *value)
{
	char buffer[64];
	size_t len = 0;
	if (value == NULL) {
		EXPECT(CAIRN_END, cairn_kv_get(store, key, strlen(key), buffer, sizeof buffer, &len));
		return;
	}
	OK(cairn_kv_get(store, key, strlen(key), buffer, sizeof buffer, &len));
	CHECK(len == strlen(value) && memcmp(buffer, value, len) == 0);
}

static void singles(cairn_kv *store)
{
	bool had = true;
	size_t len = 0;
	char little[2] = {1, 2};
	OK(cairn_kv_put(store, "apples", 6, "seventeen", 9, &had));
	CHECK(!had);
	OK(cairn_kv_put(store, "apples", 6, "sixteen", 7, &had));
	CHECK(had);
	expect(store, "apples", "sixteen");
	EXPECT(CAIRN_SHORT, cairn_kv_get(store, "apples", 6, little, 2, &len));
	CHECK(len == 7 && little[0] == 1);
	EXPECT(CAIRN_SHORT, cairn_kv_get(store, "apples", 6, NULL, 0, &len));
	EXPECT(CAIRN_NULL, cairn_kv_get(store, "apples", 6, NULL, 7, &len));
	OK(cairn_kv_put(store, "", 0, "", 0, NULL));
	OK(cairn_kv_get(store, NULL, 0, NULL, 0, &len));
	CHECK(len == 0);
	OK(cairn_kv_delete(store, "", 0, &had));
	CHECK(had);
	OK(cairn_kv_delete(store, "", 0, &had));
	CHECK(!had);
	static char huge[1 << 17];
	EXPECT(CAIRN_TOO_LONG, cairn_kv_put(store, huge, sizeof huge, "x", 1, NULL));

	const cairn_change changes[] = {
		{"apples", 6, NULL, 0, true}, {"pears", 5, "3", 1, false}, {"plums", 5, NULL, 0, false}};
	OK(cairn_kv_write(store, changes, 3));
	expect(store, "apples", NULL);
	expect(store, "pears", "3");
	expect(store, "plums", "");
	OK(cairn_kv_write(store, NULL, 0));
	EXPECT(CAIRN_NULL, cairn_kv_write(store, NULL, 1));
	const cairn_change bad[] = {{"kiwis", 5, "1", 1, false}, {"figs", 4, NULL, 1, false}};
	EXPECT(CAIRN_NULL, cairn_kv_write(store, bad, 2));
	expect(store, "kiwis", NULL);
}

static void transactions(cairn_kv *store)
{
	cairn_tx *tx, *other;
	const void *value;
	size_t len;
	uint64_t timestamp = 0;
	bool had;
	OK(cairn_kv_begin(store, CAIRN_SERIALIZABLE, &tx));
	OK(cairn_tx_put(tx, "a", 1, "1", 1, &had));
	CHECK(!had);
	OK(cairn_tx_get(tx, "a", 1, &value, &len));
	CHECK(len == 1 && *(const char *)value == '1');
	expect(store, "a", NULL);

	/* Who writes the same key is told at once, and can only be aborted. */
	OK(cairn_kv_begin(store, CAIRN_SERIALIZABLE, &other));
	EXPECT(CAIRN_CONFLICT, cairn_tx_put(other, "a", 1, "2", 1, NULL));
	CHECK(cairn_group_of(CAIRN_CONFLICT) == CAIRN_AGAIN);
	EXPECT(CAIRN_DOOMED, cairn_tx_commit(other, NULL));
	EXPECT(CAIRN_CLOSED, cairn_tx_abort(other));
	EXPECT(CAIRN_BUSY, cairn_kv_close(store));
	OK(cairn_tx_commit(tx, &timestamp));
	CHECK(timestamp > 0);
	expect(store, "a", "1");
	EXPECT(CAIRN_CLOSED, cairn_tx_put(tx, "a", 1, "1", 1, NULL));

	OK(cairn_kv_begin(store, CAIRN_SERIALIZABLE, &tx));
	OK(cairn_tx_delete(tx, "a", 1, &had));
	CHECK(had);
	EXPECT(CAIRN_END, cairn_tx_get(tx, "a", 1, &value, &len));
	OK(cairn_tx_abort(tx));
	expect(store, "a", "1");

	/* A snapshot stays what it is. */
	OK(cairn_kv_begin(store, CAIRN_SNAPSHOT, &tx));
	put(store, "a", "2");
	OK(cairn_tx_get(tx, "a", 1, &value, &len));
	CHECK(len == 1 && *(const char *)value == '1');
	OK(cairn_tx_commit(tx, NULL));
	EXPECT(CAIRN_INVALID, cairn_kv_begin(store, 7, &tx));
	EXPECT(CAIRN_NULL, cairn_kv_begin(store, CAIRN_SNAPSHOT, NULL));
	OK(cairn_kv_delete(store, "a", 1, NULL));
}

static void expect_scan(cairn_tx *tx, const cairn_range *range, const char *keys)
{
	char found[64] = "";
	cairn_scan *scan;
	cairn_pair pair;
	int status;
	OK(cairn_tx_scan(tx, range, &scan));
	while ((status = cairn_scan_next(scan, &pair)) == CAIRN_OK) {
		strncat(found, pair.key, pair.key_len);
		CHECK(pair.value_len == pair.key_len + 1);
	}
	CHECK(status == CAIRN_END);
	OK(cairn_scan_close(scan));
	EXPECT(CAIRN_CLOSED, cairn_scan_next(scan, &pair));
	if (strcmp(found, keys) != 0) {
		fprintf(stderr, "found %s, not %s\n", found, keys);
		exit(1);
	}
}

static void scans(cairn_kv *store)
{
	cairn_tx *tx;
	cairn_scan *scan, *second;
	cairn_pair pair;
	OK(cairn_kv_delete(store, "pears", 5, NULL));
	OK(cairn_kv_delete(store, "plums", 5, NULL));
	const char *keys[] = {"b", "ca", "cb", "d"};
	for (int at = 0; at < 4; at++)
		OK(cairn_kv_put(store, keys[at], strlen(keys[at]), "vvv", strlen(keys[at]) + 1, NULL));
	OK(cairn_kv_begin(store, CAIRN_SERIALIZABLE, &tx));
	OK(cairn_tx_put(tx, "cc", 2, "new", 3, NULL));
	expect_scan(tx, NULL, "bcacbccd");
	cairn_range range = {"c", 1, NULL, 0, 1, 0};
	expect_scan(tx, &range, "cacbcc");
	range.reverse = 1;
	expect_scan(tx, &range, "cccbca");
	range = (cairn_range){"ca", 2, "d", 1, 0, 0};
	expect_scan(tx, &range, "cacbcc");
	range.from = NULL;
	range.from_len = 0;
	expect_scan(tx, &range, "bcacbcc");
	range.prefix = 1;
	EXPECT(CAIRN_INVALID, cairn_tx_scan(tx, &range, &scan));

	/* Nothing moves under an open scan. */
	OK(cairn_tx_scan(tx, NULL, &scan));
	OK(cairn_tx_scan(tx, NULL, &second));
	OK(cairn_scan_next(scan, &pair));
	EXPECT(CAIRN_BUSY, cairn_tx_put(tx, "e", 1, "x", 1, NULL));
	SAID("scan");
	OK(cairn_scan_close(scan));
	EXPECT(CAIRN_BUSY, cairn_tx_delete(tx, "e", 1, NULL));
	/* A scan ends with its transaction. */
	OK(cairn_tx_commit(tx, NULL));
	EXPECT(CAIRN_CLOSED, cairn_scan_next(second, &pair));
	EXPECT(CAIRN_CLOSED, cairn_scan_close(second));
	expect(store, "cc", "new");
	OK(cairn_kv_begin(store, CAIRN_SNAPSHOT, &tx));
	OK(cairn_tx_scan(tx, NULL, &scan));
	OK(cairn_tx_abort(tx));
	EXPECT(CAIRN_CLOSED, cairn_scan_close(scan));
}

static cairn_tx *escaped;
static cairn_scan *escaped_scan;

static cairn_status body(cairn_tx *tx, void *context)
{
	const char *wanted = context;
	escaped = tx;
	OK(cairn_tx_put(tx, "body", 4, wanted, strlen(wanted), NULL));
	EXPECT(CAIRN_INVALID, cairn_tx_commit(tx, NULL));
	EXPECT(CAIRN_INVALID, cairn_tx_abort(tx));
	OK(cairn_tx_scan(tx, NULL, &escaped_scan));
	return strcmp(wanted, "no") == 0 ? CAIRN_USER + 3 : CAIRN_OK;
}

static cairn_status fails(cairn_tx *tx, void *store)
{
	EXPECT(CAIRN_BUSY, cairn_kv_close(store));
	return cairn_tx_put(tx, NULL, 1, "x", 1, NULL);
}

static void bodies(cairn_kv *store)
{
	cairn_pair pair;
	OK(cairn_kv_transact(store, CAIRN_SERIALIZABLE, body, "yes"));
	expect(store, "body", "yes");
	EXPECT(CAIRN_CLOSED, cairn_tx_put(escaped, "x", 1, "x", 1, NULL));
	EXPECT(CAIRN_CLOSED, cairn_scan_next(escaped_scan, &pair));
	EXPECT(CAIRN_USER + 3, cairn_kv_transact(store, CAIRN_SNAPSHOT, body, "no"));
	expect(store, "body", "yes");
	EXPECT(CAIRN_NULL, cairn_kv_transact(store, CAIRN_SERIALIZABLE, NULL, NULL));
	EXPECT(CAIRN_NULL, cairn_kv_transact(store, CAIRN_SERIALIZABLE, fails, store));
	SAID("key");
}

static void at_risk(const char *dir)
{
	cairn_kv_options options = kv_options();
	cairn_kv *store;
	cairn_kv_counts counts;
	options.at_risk = 10;
	options.group_commit = 2;
	OK(cairn_kv_create(in(dir, "bounded"), &options, &store));
	for (int at = 0; at < 50; at++)
		OK(cairn_kv_put(store, &at, sizeof at, "x", 1, NULL));
	OK(cairn_kv_get_counts(store, &counts, sizeof counts));
	CHECK(counts.entries == 50 && counts.commits == 50 && counts.at_risk <= 10);
	OK(cairn_kv_sync(store));
	OK(cairn_kv_get_counts(store, &counts, sizeof counts));
	CHECK(counts.at_risk == 0 && counts.domain != CAIRN_AUTO);
	OK(cairn_kv_close(store));
	options.group_commit = 3;
	EXPECT(CAIRN_INVALID, cairn_kv_open(in(dir, "bounded"), &options, &store));
	options.group_commit = 0;
	options.reserved = 1;
	EXPECT(CAIRN_INVALID, cairn_kv_open(in(dir, "bounded"), &options, &store));
	options.reserved = 0;
	options.transactions = 0;
	EXPECT(CAIRN_INVALID, cairn_kv_open(in(dir, "bounded"), &options, &store));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	const char *dir = argv[1];
	cairn_kv_options options = kv_options();
	cairn_kv *store, *other;
	EXPECT(CAIRN_MISSING, cairn_kv_open(in(dir, "store"), NULL, &store));
	OK(cairn_kv_create(in(dir, "store"), NULL, &store));
	EXPECT(CAIRN_EXISTS, cairn_kv_create(in(dir, "store"), NULL, &other));
	EXPECT(CAIRN_BUSY, cairn_kv_open(in(dir, "store"), NULL, &other));
	cairn_log *log;
	singles(store);
	transactions(store);
	scans(store);
	bodies(store);
	OK(cairn_kv_checkpoint(store));
	OK(cairn_kv_close(store));
	EXPECT(CAIRN_CLOSED, cairn_kv_close(store));
	EXPECT(CAIRN_FOREIGN, cairn_log_open(in(dir, "store"), NULL, &log));
	options.read_only = 1;
	OK(cairn_kv_open(in(dir, "store"), &options, &store));
	expect(store, "cc", "new");
	EXPECT(CAIRN_READ_ONLY, cairn_kv_put(store, "x", 1, "x", 1, NULL));
	OK(cairn_kv_close(store));
	at_risk(dir);
	return 0;
}
