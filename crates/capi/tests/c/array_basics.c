/* An array: files, atomic writes, transactions with edits, savepoints and nested top actions, and what is refused. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char one[4096], other[4096];
static const char *members[] = {one, other};

static cairn_array_options array_options(void)
{
	cairn_array_options options;
	OK(cairn_array_options_init(&options, sizeof options));
	options.log_bytes = 1 << 20;
	return options;
}

static void expect(cairn_array *array, uint32_t file, uint64_t offset, const char *bytes)
{
	char buffer[64];
	size_t len = strlen(bytes);
	OK(cairn_array_read(array, file, offset, buffer, len));
	CHECK(memcmp(buffer, bytes, len) == 0);
}

static void singles(cairn_array *array, uint32_t file)
{
	cairn_array_counts before, after;
	static char page[4096];
	memset(page, 7, sizeof page);
	OK(cairn_array_get_counts(array, &before, sizeof before));
	CHECK(before.members == 2 && before.stripe == 65536 && before.transactions == 64);
	OK(cairn_array_atomic_write(array, file, 8192, page, sizeof page));
	OK(cairn_array_get_counts(array, &after, sizeof after));
	CHECK(after.barriers == before.barriers + 1 && after.last == before.last + 1);
	memset(page, 0, sizeof page);
	OK(cairn_array_read(array, file, 8192, page, sizeof page));
	CHECK(page[0] == 7 && page[4095] == 7);
	OK(cairn_array_atomic_write(array, file, 65533, "across", 6));
	expect(array, file, 65533, "across");
	OK(cairn_array_atomic_write(array, file, 0, NULL, 0));
	EXPECT(CAIRN_NULL, cairn_array_atomic_write(array, file, 0, NULL, 1));
	EXPECT(CAIRN_NULL, cairn_array_read(array, file, 0, NULL, 1));
	OK(cairn_array_read(array, file, 0, NULL, 0));
	EXPECT(CAIRN_INVALID, cairn_array_read(array, file, 1 << 20, page, 1));
	EXPECT(CAIRN_INVALID, cairn_array_read(array, file, 0, page, SIZE_MAX / 4));
	CHECK(page[0] == 7); /* left alone */
	EXPECT(CAIRN_INVALID, cairn_array_atomic_write(array, file, (1 << 20) - 3, "four", 4));
	SAID("pages");
	EXPECT(CAIRN_INVALID, cairn_array_atomic_write(array, file, UINT64_MAX, "four", 4));
	EXPECT(CAIRN_INVALID, cairn_array_atomic_write(array, file + 1, 0, "four", 4));
	SAID("no file");
}

static void transactions(cairn_array *array, uint32_t file)
{
	cairn_array_tx *tx, *second;
	uint64_t entry, gone, savepoint, number = 0, later = 0;
	char buffer[8];
	OK(cairn_array_begin(array, &tx));
	OK(cairn_array_tx_write(tx, file, 0, "from 10 to 7", 12, &entry));
	OK(cairn_array_tx_savepoint(tx, &savepoint));
	OK(cairn_array_tx_write(tx, file, 100000, "lost", 4, &gone));
	OK(cairn_array_tx_rollback(tx, savepoint));
	EXPECT(CAIRN_INVALID, cairn_array_tx_edit(tx, gone, 0, "x", 1));
	EXPECT(CAIRN_INVALID, cairn_array_tx_edit(tx, 99, 0, "x", 1));
	EXPECT(CAIRN_INVALID, cairn_array_tx_edit(tx, entry, 12, "x", 1));
	EXPECT(CAIRN_INVALID, cairn_array_tx_rollback(tx, 99));
	OK(cairn_array_tx_edit(tx, entry, 11, "6", 1));
	OK(cairn_array_tx_read(tx, file, 8, buffer, 4));
	CHECK(memcmp(buffer, "to 6", 4) == 0);

	OK(cairn_array_tx_write(tx, file, 200000, "kept", 4, NULL));
	OK(cairn_array_tx_nested_top(tx, savepoint, &number));
	CHECK(number > 0);
	expect(array, file, 200000, "kept");
	OK(cairn_array_tx_write(tx, file, 0, "both", 4, NULL));
	EXPECT(CAIRN_INVALID, cairn_array_tx_nested_top(tx, savepoint, NULL));
	OK(cairn_array_tx_rollback(tx, savepoint));
	OK(cairn_array_begin(array, &second));
	EXPECT(CAIRN_BUSY, cairn_array_close(array));
	SAID("transaction");
	OK(cairn_array_tx_abort(second));
	OK(cairn_array_tx_commit(tx, &later));
	CHECK(later > number);
	expect(array, file, 0, "from 10 to 6");

	/* A commit consumes it. */
	EXPECT(CAIRN_CLOSED, cairn_array_tx_edit(tx, entry, 0, "x", 1));
	EXPECT(CAIRN_CLOSED, cairn_array_tx_commit(tx, NULL));
	EXPECT(CAIRN_CLOSED, cairn_array_tx_abort(tx));
	EXPECT(CAIRN_CLOSED, cairn_array_tx_write((cairn_array_tx *)array, file, 0, "x", 1, NULL));
	EXPECT(CAIRN_NULL, cairn_array_begin(array, NULL));
	EXPECT(CAIRN_NULL, cairn_array_begin(NULL, &tx));
}

static void *strange(void *arg)
{
	cairn_array_tx *tx = arg;
	EXPECT(CAIRN_INVALID, cairn_array_tx_write(tx, 0, 0, "x", 1, NULL));
	EXPECT(CAIRN_INVALID, cairn_array_tx_commit(tx, NULL));
	SAID("thread");
	OK(cairn_array_tx_abort(tx));
	return NULL;
}

static void threads(cairn_array *array, uint32_t file)
{
	cairn_array_tx *tx;
	pthread_t thread;
	OK(cairn_array_begin(array, &tx));
	OK(cairn_array_tx_write(tx, file, 0, "theirs", 6, NULL));
	CHECK(pthread_create(&thread, NULL, strange, tx) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	EXPECT(CAIRN_CLOSED, cairn_array_tx_commit(tx, NULL));
	expect(array, file, 0, "from 10 to 6");
}

static void forks(cairn_array *array, uint32_t file)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char buffer[4];
		EXPECT(CAIRN_FORKED, cairn_array_atomic_write(array, file, 0, "x", 1));
		EXPECT(CAIRN_FORKED, cairn_array_read(array, file, 0, buffer, 4));
		EXPECT(CAIRN_FORKED, cairn_array_close(array));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	expect(array, file, 0, "from 10 to 6");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	snprintf(one, sizeof one, "%s/one", argv[1]);
	snprintf(other, sizeof other, "%s/other", argv[1]);
	cairn_array_options options = array_options();
	cairn_array *array;
	cairn_array_found found;
	cairn_kv *store;
	uint32_t file, same;
	uint64_t len;
	EXPECT(CAIRN_MISSING, cairn_array_open(members, 2, NULL, &array));
	EXPECT(CAIRN_NULL, cairn_array_open(NULL, 2, NULL, &array));
	EXPECT(CAIRN_INVALID, cairn_array_create(members, 0, NULL, &array));
	EXPECT(CAIRN_INVALID, cairn_array_create(members, 65, NULL, &array));
	options.reserved = 1;
	EXPECT(CAIRN_INVALID, cairn_array_create(members, 2, &options, &array));
	options.reserved = 0;
	options.whole_writes = argc; /* where there is none, all is logged */
	OK(cairn_array_create(members, 2, &options, &array));
	EXPECT(CAIRN_MISSING, cairn_array_find_file(array, "pages", &file, NULL));
	OK(cairn_array_create_file(array, "pages", 1 << 20, &file));
	EXPECT(CAIRN_EXISTS, cairn_array_create_file(array, "pages", 1 << 20, &file));
	EXPECT(CAIRN_INVALID, cairn_array_create_file(array, "a/b", 1, &same));
	OK(cairn_array_find_file(array, "pages", &same, &len));
	CHECK(same == file && len == 1 << 20);
	singles(array, file);
	transactions(array, file);
	threads(array, file);
	forks(array, file);
	OK(cairn_array_checkpoint(array));
	OK(cairn_array_close(array));
	EXPECT(CAIRN_CLOSED, cairn_array_close(array));
	EXPECT(CAIRN_FOREIGN, cairn_array_open(members, 1, &options, &array));
	SAID("member 1 of 2");
	EXPECT(CAIRN_FOREIGN, cairn_kv_open(one, NULL, &store));
	const char *swapped[] = {other, one};
	OK(cairn_array_open(swapped, 2, &options, &array));
	OK(cairn_array_get_found(array, &found, sizeof found));
	CHECK(found.applied == 0 && found.lost == 0 && found.in_doubt == 0);
	OK(cairn_array_find_file(array, "pages", &file, NULL));
	expect(array, file, 0, "from 10 to 6");
	OK(cairn_array_close(array));
	return 0;
}
