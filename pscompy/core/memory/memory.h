/* Memory that fabrics know: blocks and segments of the pool, and the accesses
 * of peers. */
#pragma once

#include "../types/worker.h"
#include "pscompy/transport/kit/page.h"
#include "../types/connection.h"

/* ---- segment.c ---- */

/* Segments of a pool: sealed memory files, private memory, or pinned memory of
 * a user. */

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

/* ---- blocks.c ---- */

/* Blocks of the pool: powers of two that are split when a shorter one is
 * needed, and joined again only when no free block is long enough. All
 * functions are called with the pool's lock held. */

/* Highest order of a segment that is split into blocks, which together have up
 * to psc_page_size() << 14 bytes. */
#define PSC_POOL_TOP 14u
/* Order of a large block, which has a segment of its own. */
#define PSC_POOL_LARGE (PSC_POOL_TOP + 1)

typedef struct psc_pool_block {
    psc_block_t head; /* the first member: the part that consumers see */
    psc_link_t link;  /* link in a free list of the pool (psc_pool_t.free) */
    struct psc_pool *pool;
    psc_segment_t *segment;
    size_t len;
    unsigned order;
    bool used;
} psc_pool_block_t;

typedef struct psc_pool {
    psc_lock_t lock;
    /* number of references: by the worker, by blocks in use, and by views */
    atomic_uint refs;
    atomic_bool forked;
    /* protects `worker`, which is not freed while a thread holds this lock */
    psc_lock_t gate;
    psc_worker_t *worker; /* NULL after the worker has ended */
    /* bytes: the sum of the lengths of all segments; max: the limit on this
     * sum */
    uint64_t max, bytes;
    atomic_uint n_segments;
    psc_list_t segments;
    /* the free blocks of shared segments, and those of private ones, by order
     */
    psc_list_t free[PSC_SEGMENT_PRIVATE + 1][PSC_POOL_LARGE + 1];
} psc_pool_t;

/* Return the length of a block of the order `order`, and the order of a block
 * for `nbytes` bytes. */
size_t psc_pool_order_len(unsigned order);
unsigned psc_pool_order(size_t nbytes);
/* Returns the offset of the block in its segment. */
size_t psc_pool_offset(const psc_pool_block_t *block);
/* Add a free block to a segment. Returns NULL if memory is short. */
psc_pool_block_t *psc_pool_block_add(psc_pool_t *pool, psc_segment_t *segment,
                                     size_t offset, unsigned order, size_t len);
void psc_pool_block_forget(psc_pool_block_t *block);
/* Join each two free blocks of the pool that are the halves of one longer
 * block. */
void psc_pool_join_all(psc_pool_t *pool);
/* Put a block into its free list. */
void psc_pool_block_put(psc_pool_block_t *block);
/* Find a free block for `nbytes` bytes in segments of this kind; splits a
 * longer one if necessary. Returns NULL if no block is long enough. The block
 * stays in its free list. */
psc_pool_block_t *psc_pool_find_free(psc_pool_t *pool, psc_segment_kind_t kind,
                                     size_t nbytes);
/* Returns the block that contains the byte at `offset` of the segment, or NULL.
 * Blocks are aligned to their length. */
const psc_pool_block_t *psc_pool_block_at(const psc_segment_t *segment,
                                          size_t offset);

/* ---- pool.c ---- */

/* The registered pool of a worker: memory that every transport can register
 * before it is used. Shared segments are sealed memory files, so that a peer
 * can map them but only their owner can write. Private segments are for what is
 * received: after a fork, parent and child have copies. Blocks are whole pages
 * of a segment. They are reused last in, first out, so that a reused block is
 * warm in the caches of both sides.
 *
 * Blocks and views may outlive the worker: the pool counts them and is freed
 * with the last. The pool has a lock of its own, held for a few instructions. A
 * slow path (add a segment, or give one up) takes the worker's lock first. */

/* ---- creation and end ---- */
psc_pool_t *psc_pool_create(psc_worker_t *worker, uint64_t max);
/* The worker ends (its lock is held): undo the registrations with its
 * interfaces. */
void psc_pool_detach(psc_pool_t *pool);
void psc_pool_hold(psc_pool_t *pool);
void psc_pool_drop(psc_pool_t *pool);

/* ---- blocks.c ---- */
/* The functions block_alloc and block_free of psc_api_t. */
psc_status_t psc_pool_alloc(psc_worker_t *worker, size_t nbytes, uint32_t flags,
                            psc_block_t **block_p);
void psc_pool_give(psc_block_t *block);
/* Add a user's memory to the pool, as a segment of one block, and register it
 * with the worker's interfaces until psc_pool_unpin. With the worker's lock
 * held. */
psc_status_t psc_pool_pin(psc_pool_t *pool, void *base, size_t len,
                          psc_block_t **block_p);
void psc_pool_unpin(psc_pool_t *pool, psc_block_t *block);
/* Returns the segment with the `len` bytes at `base`, which must lie in one
 * used block; NULL if there is none. *offset_p: the offset of `base` in the
 * segment. */
psc_segment_t *psc_pool_find(psc_pool_t *pool, const void *base, size_t len,
                             uint64_t *offset_p);

/* ---- access.c ---- */

/* Memory that peers access, and how it is taken back. Code that takes memory
 * away from peers (a region is closed, a request fails) uses these functions:
 *
 *  - A payload that is arriving (am_begin ... am_end) is cut: the transport
 *    discards the rest.
 *  - An operation that a lane has in flight is waited for.
 *  - If the peer writes directly, its keys are revoked first, and a write that
 *    is in flight is waited for (mem_revoke).
 *
 * Only then may the owner reuse the memory. */

/* ---- memory that peers reach by messages: a region ---- */

/* A region, as the target of remote accesses. Each access is served by a local
 * request in `accesses`. */
typedef struct psc_target {
    psc_list_t accesses;
    bool closed;
} psc_target_t;

void psc_target_init(psc_target_t *target);
/* Add an access to the region's list: a local request that reads or writes the
 * region's memory until it is done. */
void psc_target_admit(psc_target_t *target, psc_req_t *req);
/* Remove an access (its local request) that is done from the region's list. */
void psc_target_leave(psc_req_t *req);
/* Refuse all accesses: each origin gets PSC_ERR_REGION in the FIN, and data
 * that it still sends is discarded. Returns PSC_OK if no access reaches the
 * memory any more, PSC_INPROGRESS if a lane still reads it; call again after
 * progress. */
psc_status_t psc_target_close(psc_target_t *target);

/* ---- the payload that is arriving on a lane ---- */

/* Receive a payload into a bounce buffer, if there is memory for one; `in` has
 * the message's id and its lengths. */
void psc_landing_bounce(psc_incoming_t *in, const void *header,
                        psc_dest_t *dest_p);
/* Discard the rest of the payload that is arriving on the lane, and free its
 * bounce buffer. */
void psc_landing_drop(psc_lane_t *lane);

/* ---- requests that have failed ---- */

/* End a request with an error as soon as its memory cannot be accessed any
 * more, neither by an operation of a lane nor by a peer that was given keys.
 * Until then the request is not done and keeps its memory. */
void psc_req_fail(psc_req_t *req, psc_status_t status);
/* Finish a request that psc_req_fail was called for. If a lane has an operation
 * in flight, or a peer may be writing into the memory, the request is not
 * finished yet; for a peer's writes it waits on the worker's list
 * `revoking`. */
void psc_access_settle(psc_req_t *req);
/* Try again to finish the failed requests in the worker's list
 * ends.revoking. */
void psc_access_progress(psc_worker_t *worker);
/* Revoke the keys that the peer was given for a lane that is being closed: all
 * keys if the lane is spare (its connection goes on), else only those by which
 * the peer writes. Returns PSC_INPROGRESS while the peer may be using one; the
 * lane's endpoint must not be freed until then. */
psc_status_t psc_access_lane_end(const psc_lane_t *lane);
/* The lane's endpoint has stopped: forget its registrations in all requests. */
void psc_access_lane_ended(psc_lane_t *lane);
/* Number of failed requests that a peer may still write to. */
unsigned psc_access_count(const psc_worker_t *worker);
