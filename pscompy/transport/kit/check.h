/* Assertions of debug builds, which are compiled with -DPSC_DEBUG: the suites
 * in C of the tests, and the extensions that are built with sanitizers. */
#pragma once

#ifdef PSC_DEBUG
#include <stdio.h>
#include <stdlib.h>

static inline void psc_check_failed(const char *condition, const char *file,
                                    int line)
{
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    abort();
}

#define psc_assert(condition)                                                  \
    ((condition) ? (void)0 : psc_check_failed(#condition, __FILE__, __LINE__))
#else
/* the condition is compiled, but not evaluated */
#define psc_assert(condition) ((void)sizeof((condition) ? 1 : 0))
#endif
