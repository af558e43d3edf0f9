/* Workers that are killed: numbers that their threads have acknowledged, in memory that the parent shares. */
#ifndef KILL_H
#define KILL_H

#include "check.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3

static _Atomic uint64_t *acknowledged;

static inline void share_acknowledged(void)
{
	acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(acknowledged != MAP_FAILED);
}

static inline uint64_t all_acknowledged(void)
{
	uint64_t sum = 0;
	for (int thread = 0; thread < THREADS; thread++)
		sum += atomic_load(&acknowledged[thread]);
	return sum;
}

/* Kills it when it has acknowledged so many more. It does not end by itself. */
static inline void kill_after(pid_t worker, uint64_t more)
{
	const struct timespec nap = {0, 1000000};
	uint64_t before = all_acknowledged();
	int status;
	while (all_acknowledged() < before + more) {
		CHECK(waitpid(worker, &status, WNOHANG) == 0);
		nanosleep(&nap, NULL);
	}
	CHECK(kill(worker, SIGKILL) == 0 && waitpid(worker, &status, 0) == worker && WIFSIGNALED(status));
}

#endif
