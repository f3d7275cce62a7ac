/* Segments of a pool: sealed memory files, private memory, or pinned memory of
 * a user. */
#pragma once

#include "../types/worker.h"
#include "pscompy/transport/kit/page.h"

typedef struct psc_segment psc_segment_t;

typedef enum psc_segment_kind {
    /* A memory file. Peers can map the segment, and a child made by fork shares
     * it. */
    PSC_SEGMENT_SHARED,
    /* Memory like that of malloc: a child made by fork has a copy. */
    PSC_SEGMENT_PRIVATE,
    PSC_SEGMENT_PINNED, /* memory that belongs to its user */
} psc_segment_kind_t;

struct psc_segment {
    psc_link_t link; /* link in the pool's list `segments` */
    uint8_t *base;
    /* length of the segment in bytes, including the last page, which has the
     * psc_segment_identity_t; that page exists only in a shared segment */
    size_t len;
    psc_segment_kind_t kind;
    int fd; /* the memory file of a shared segment, else -1 */
    /* order of the block that is the whole segment, or PSC_POOL_LARGE */
    unsigned top;
    uint32_t used;   /* number of the segment's blocks that are in use */
    /* for each page, the block that begins there, or NULL */
    struct psc_pool_block **places;
    /* for each huge page, whether it was created in advance
     * (psc_segment_warm) */
    atomic_bool *warm;
    /* the segment's registration with each interface, guarded by the worker's
     * lock */
    psc_mem_t *mem[PSC_IFACES_MAX];
};

/* Create a segment, shared or private. Blocks are whole pages, so that a peer
 * can make a private copy of one (psc_map_t.keep) without its neighbours. In a
 * shared segment the page behind the blocks has the identity: a random id, and
 * whether the segment is retired. */
psc_status_t psc_segment_create(size_t len, psc_segment_kind_t kind,
                                psc_segment_t **segment_p);
psc_status_t psc_segment_create_pinned(void *base, size_t len,
                                       psc_segment_t **segment_p);
void psc_segment_destroy(psc_segment_t *segment);
/* Mark the segment as retired, so that peers that have mapped it give up their
 * mappings. */
void psc_segment_retire(psc_segment_t *segment);
/* Returns the interface's registration of the segment, which is made on first
 * use. Returns NULL if registering fails. With the worker's lock held, as
 * psc_segment_unregister. */
psc_mem_t *psc_segment_mem(psc_segment_t *segment, psc_iface_slot_t *slot);
void psc_segment_unregister(psc_segment_t *segment, psc_worker_t *worker);
/* Create the pages of these bytes, as huge pages if possible. Any thread. */
void psc_segment_warm(psc_segment_t *segment, size_t offset, size_t len);
