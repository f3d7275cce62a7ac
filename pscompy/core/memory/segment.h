/* Segments of a pool: sealed memory files, or memory of a user. */
#ifndef PSCOMPY_CORE_SEGMENT_H
#define PSCOMPY_CORE_SEGMENT_H

#include "../types/worker.h"
#include "pscompy/transport/kit/page.h"

typedef struct psc_segment psc_segment_t;

struct psc_segment {
    psc_link_t link; /* pool's segments */
    uint8_t *base;
    size_t len;      /* with its identity, the last page */
    int fd;          /* -1: pinned memory, which is its user's */
    unsigned top;    /* order of the whole, or LARGE */
    uint32_t used;   /* blocks in use */
    struct psc_pool_block **places; /* the block that begins at each page */
    atomic_bool *warm; /* whether each span of a huge page is there */
    psc_mem_t *mem[PSC_IFACES_MAX]; /* guarded by the worker's lock */
};

/* Blocks are whole pages, so that keeping a view of one (psc_map_t) leaves its
 * neighbours as they are; the identity is the page behind them. */
psc_status_t psc_segment_create(size_t len, psc_segment_t **segment_p);
psc_status_t psc_segment_create_pinned(void *base, size_t len,
                                       psc_segment_t **segment_p);
void psc_segment_destroy(psc_segment_t *segment);
/* Tell whoever has it mapped that it is of no more use. */
void psc_segment_retire(psc_segment_t *segment);
/* What this interface knows it by, registered when first asked for; NULL: it
 * cannot be. With the worker's lock held, as is unregister. */
psc_mem_t *psc_segment_mem(psc_segment_t *segment, psc_iface_slot_t *slot);
void psc_segment_unregister(psc_segment_t *segment, psc_worker_t *worker);
/* Have the pages of these bytes made, huge if that can be had; any thread. */
void psc_segment_warm(psc_segment_t *segment, size_t offset, size_t len);

#endif
