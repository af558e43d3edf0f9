/*
 * Threads write numbers to four places of an array, on both members, and are killed again and again: the four always agree, and nothing that was acknowledged is missing.
 */
#include "kill.h"
#include <pthread.h>

#define KILLS 6
#define PLACES 4

static cairn_array *shared;
static uint32_t file;
static char one[4096], other[4096];
static const char *members[] = {one, other};

/* Alternately on one member and the other, and far enough from the next thread's. */
static uint64_t place(uint64_t thread, uint64_t at)
{
	return at * 65536 + thread * 1000;
}

static uint64_t number_at(uint64_t thread, uint64_t at)
{
	uint64_t number;
	OK(cairn_array_read(shared, file, place(thread, at), &number, sizeof number));
	return number;
}

static void *writer(void *arg)
{
	uint64_t thread = (uint64_t)(uintptr_t)arg, number = number_at(thread, 0);
	for (;;) {
		cairn_array_tx *tx;
		uint64_t entry, savepoint, wrong = 0;
		number++;
		OK(cairn_array_begin(shared, &tx));
		for (uint64_t at = 0; at + 1 < PLACES; at++)
			OK(cairn_array_tx_write(tx, file, place(thread, at), &number, sizeof number, NULL));
		OK(cairn_array_tx_savepoint(tx, &savepoint));
		OK(cairn_array_tx_write(tx, file, place(thread, 0), &wrong, sizeof wrong, NULL));
		OK(cairn_array_tx_rollback(tx, savepoint));
		OK(cairn_array_tx_write(tx, file, place(thread, PLACES - 1), &wrong, sizeof wrong, &entry));
		OK(cairn_array_tx_edit(tx, entry, 0, &number, sizeof number));
		if (number % 7 == 0) {
			OK(cairn_array_tx_abort(tx));
			continue;
		}
		OK(cairn_array_tx_commit(tx, NULL));
		atomic_store(&acknowledged[thread], number);
	}
	return NULL;
}

static void verify(void)
{
	cairn_array_found found;
	OK(cairn_array_open(members, 2, NULL, &shared));
	OK(cairn_array_find_file(shared, "numbers", &file, NULL));
	OK(cairn_array_get_found(shared, &found, sizeof found));
	CHECK(found.lost == 0);
	for (uint64_t thread = 0; thread < THREADS; thread++) {
		uint64_t number = number_at(thread, 0);
		for (uint64_t at = 1; at < PLACES; at++)
			CHECK(number_at(thread, at) == number);
		CHECK(number >= atomic_load(&acknowledged[thread]) && number % 7 != 0);
		atomic_store(&acknowledged[thread], number);
	}
	OK(cairn_array_close(shared));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	share_acknowledged();
	snprintf(one, sizeof one, "%s/one", argv[1]);
	snprintf(other, sizeof other, "%s/other", argv[1]);
	OK(cairn_array_create(members, 2, NULL, &shared));
	OK(cairn_array_create_file(shared, "numbers", PLACES * 65536, &file));
	for (uint64_t thread = 0; thread < THREADS; thread++)
		for (uint64_t at = 0; at < PLACES; at++)
			OK(cairn_array_atomic_write(shared, file, place(thread, at), &(uint64_t){1}, 8));
	OK(cairn_array_close(shared));
	for (int kill_number = 0; kill_number < KILLS; kill_number++) {
		pid_t worker = fork();
		CHECK(worker >= 0);
		if (worker == 0) {
			pthread_t threads[THREADS];
			OK(cairn_array_open(members, 2, NULL, &shared));
			OK(cairn_array_find_file(shared, "numbers", &file, NULL));
			for (uintptr_t at = 0; at < THREADS; at++)
				CHECK(pthread_create(&threads[at], NULL, writer, (void *)at) == 0);
			for (int at = 0; at < THREADS; at++)
				pthread_join(threads[at], NULL);
			_exit(1);
		}
		kill_after(worker, 500 + (uint64_t)kill_number * 131);
		verify();
	}
	return 0;
}
