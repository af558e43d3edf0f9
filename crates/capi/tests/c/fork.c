/*
 * Children of a process that has a log, a store and an array open, whose threads sleep: they use none of these, and make their own. Memory is laid out in another way each time,
 * so that a child's threads get the memory of those that the parent has, in one of the children at least. Without sanitizers, whose allocator does not outlast a fork beside
 * a thread that allocates.
 */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 40

static const char *dir;

static void child(cairn_log *log, cairn_kv *store, cairn_array *array, cairn_array_tx *tx, uint32_t file)
{
	cairn_log *own_log;
	cairn_kv *own_store;
	char byte;
	alarm(60);
	EXPECT(CAIRN_FORKED, cairn_log_append(log, "x", 1, NULL));
	EXPECT(CAIRN_FORKED, cairn_kv_put(store, "a", 1, "x", 1, NULL));
	EXPECT(CAIRN_FORKED, cairn_array_read(array, file, 0, &byte, 1));
	EXPECT(CAIRN_FORKED, cairn_array_tx_write(tx, file, 0, "x", 1, NULL));
	OK(cairn_array_tx_abort(tx));

	OK(cairn_log_create(in(dir, "child's log"), NULL, &own_log));
	OK(cairn_log_append(own_log, "x", 1, NULL));
	OK(cairn_log_close(own_log));
	OK(cairn_kv_create(in(dir, "child's store"), NULL, &own_store));
	OK(cairn_kv_put(own_store, "a", 1, "b", 1, NULL));
	OK(cairn_kv_close(own_store));
	EXPECT(CAIRN_FORKED, cairn_log_close(log));
	EXPECT(CAIRN_FORKED, cairn_kv_close(store));
	EXPECT(CAIRN_FORKED, cairn_array_close(array));
	_exit(0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	dir = argv[1];
	char member[4096];
	const char *members[] = {member};
	cairn_log *log;
	cairn_kv *store;
	cairn_array *array;
	cairn_array_tx *tx;
	cairn_array_options options;
	uint32_t file;
	void *shifts[CHILDREN];
	snprintf(member, sizeof member, "%s/member", dir);
	OK(cairn_log_create(in(dir, "log"), NULL, &log));
	OK(cairn_log_append(log, "x", 1, NULL));
	OK(cairn_kv_create(in(dir, "store"), NULL, &store));
	OK(cairn_array_options_init(&options, sizeof options));
	options.log_bytes = 1 << 20;
	OK(cairn_array_create(members, 1, &options, &array));
	OK(cairn_array_create_file(array, "pages", 4096, &file));
	OK(cairn_array_begin(array, &tx));
	OK(cairn_array_tx_write(tx, file, 0, "parent", 6, NULL));
	for (size_t at = 0; at < CHILDREN; at++) {
		int ended;
		shifts[at] = malloc(16 + 48 * at);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child(log, store, array, tx, file);
		CHECK(waitpid(pid, &ended, 0) == pid && ended == 0);
		CHECK(unlink(in(dir, "child's log")) == 0 && unlink(in(dir, "child's store")) == 0);
	}
	for (size_t at = 0; at < CHILDREN; at++)
		free(shifts[at]);
	OK(cairn_array_tx_commit(tx, NULL));
	OK(cairn_array_close(array));
	OK(cairn_kv_put(store, "a", 1, "b", 1, NULL));
	OK(cairn_kv_close(store));
	OK(cairn_log_append(log, "y", 1, NULL));
	OK(cairn_log_close(log));
	return 0;
}
