/* The size of a page, for all code that maps, unmaps or moves memory. The tests
 * also compile with a larger page. */
#ifndef PSCOMPY_TRANSPORT_KIT_PAGE_H
#define PSCOMPY_TRANSPORT_KIT_PAGE_H

#include <stddef.h>
#include <unistd.h>

#ifndef PSC_PAGE_SIZE
/* sysconf() reads a value of the C library here, without a system call */
#define PSC_PAGE_SIZE sysconf(_SC_PAGESIZE)
#endif

static inline size_t psc_page_size(void)
{
    return (size_t)PSC_PAGE_SIZE;
}

/* Rounds up to the start of a page. */
static inline size_t psc_page_up(size_t at)
{
    size_t page = psc_page_size();

    return (at + page - 1) / page * page;
}

#endif
