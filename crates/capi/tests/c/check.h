/* What the tests have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                            \
		}                                                                           \
	} while (0)

/* The call returns this code. */
#define EXPECT(code, call)                                                                    \
	do {                                                                                  \
		int got_ = (call);                                                            \
		if (got_ != (code)) {                                                         \
			fprintf(stderr, "%s:%d: %s: %d instead of %s: %s\n", __FILE__, __LINE__, #call, got_, \
				#code, cairn_last_error());                                   \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

#define OK(call) EXPECT(CAIRN_OK, call)

/* Last, as every error has something to say. */
#define SAID(part) CHECK(strstr(cairn_last_error(), part) != NULL)

static inline char *in(const char *dir, const char *name)
{
	static char path[4096];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static inline cairn_log_options log_options(void)
{
	cairn_log_options options;
	OK(cairn_log_options_init(&options, sizeof options));
	return options;
}

static inline cairn_kv_options kv_options(void)
{
	cairn_kv_options options;
	OK(cairn_kv_options_init(&options, sizeof options));
	return options;
}

#endif
