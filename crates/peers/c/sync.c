/*
 * Counts what waits for the device: fsync, fdatasync, msync, sync_file_range, syncfs, and writes through a file that was opened to be synchronous.
 *
 * The program's own symbols come before those of libraries, so that all libraries call these. They count, and call the next.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Files with higher numbers are taken for ordinary ones. */
#define FILES 4096

static atomic_ulong syncs;
static atomic_uchar synchronous[FILES];

unsigned long peers_syncs(void)
{
	return atomic_load_explicit(&syncs, memory_order_relaxed);
}

static void count(void)
{
	atomic_fetch_add_explicit(&syncs, 1, memory_order_relaxed);
}

/* Found once; two threads that look at once find the same. */
#define NEXT(name)                                                                       \
	static _Atomic(__typeof__(&name)) known;                                         \
	__typeof__(&name) next = atomic_load_explicit(&known, memory_order_relaxed);     \
	if (next == NULL) {                                                              \
		next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                       \
		atomic_store_explicit(&known, next, memory_order_relaxed);               \
	}

int fsync(int file)
{
	NEXT(fsync);
	count();
	return next(file);
}

int fdatasync(int file)
{
	NEXT(fdatasync);
	count();
	return next(file);
}

int syncfs(int file)
{
	NEXT(syncfs);
	count();
	return next(file);
}

int msync(void *at, size_t bytes, int flags)
{
	NEXT(msync);
	if (flags & MS_SYNC)
		count();
	return next(at, bytes, flags);
}

int sync_file_range(int file, off64_t from, off64_t bytes, unsigned flags)
{
	NEXT(sync_file_range);
	count();
	return next(file, from, bytes, flags);
}

static int noted(int file, int flags)
{
	if (file >= 0 && file < FILES)
		atomic_store_explicit(&synchronous[file], (flags & O_DSYNC) != 0, memory_order_relaxed);
	return file;
}

int open(const char *path, int flags, ...)
{
	NEXT(open);
	va_list rest;
	va_start(rest, flags);
	mode_t mode = va_arg(rest, mode_t);
	va_end(rest);
	return noted(next(path, flags, mode), flags);
}

int open64(const char *path, int flags, ...)
{
	NEXT(open64);
	va_list rest;
	va_start(rest, flags);
	mode_t mode = va_arg(rest, mode_t);
	va_end(rest);
	return noted(next(path, flags, mode), flags);
}

static void written(int file)
{
	if (file >= 0 && file < FILES && atomic_load_explicit(&synchronous[file], memory_order_relaxed))
		count();
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t at)
{
	NEXT(pwrite);
	written(file);
	return next(file, data, bytes, at);
}

ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t at)
{
	NEXT(pwrite64);
	written(file);
	return next(file, data, bytes, at);
}
