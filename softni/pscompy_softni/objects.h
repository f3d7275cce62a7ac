/* The objects of an NI that have handles, with memory regions, event queues,
 * counters, and the descriptors that wake callers. */
#pragma once

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/lock.h"
#include "settings.h"
#include "wire.h"

#define PSNI_NIS 8u /* maximum number of NIs of one process */
#define PSNI_WINDOW 64u /* maximum number of frames in flight to one peer */
#define PSNI_BATCH 16u /* datagrams handed to the kernel at a time */
#define PSNI_PIECES 64u /* maximum number of pieces of a scattered buffer */
/* longest put whose bytes are copied when PtlPut is called */
#define PSNI_INLINE 256u
#define PSNI_VOLATILE 8192u
#define PSNI_LEAST_WINDOW 16384u
#define PSNI_PID_MAX 65535u /* largest pid; a pid is a UDP port */
#define PSNI_TABLES 256u
#define PSNI_BUCKETS 256u
#define PSNI_MILLION 1000000u
#define PSNI_NEVER INT64_MAX

typedef struct psni_ni psni_ni_t;
typedef struct psni_peer psni_peer_t;
typedef struct psni_op psni_op_t;
typedef struct psni_entry psni_entry_t;

/* ---- pool.c: objects and handles ---- */

typedef enum psni_kind {
    /* not 0, because handle 0 means "none" in some versions of portals4.h */
    PSNI_KIND_NI = 1,
    PSNI_KIND_EQ,
    PSNI_KIND_CT,
    PSNI_KIND_MD,
    PSNI_KIND_ENTRY,
    /* psni_op_t of a put or get: its id is sent to the peer; the user gets no
     * handle */
    PSNI_KIND_OP,
    PSNI_KIND_ANSWER, /* psni_op_t of a reply or an ACK to a peer's request */
    PSNI_KINDS
} psni_kind_t;

typedef struct psni_object {
    psni_ni_t *ni;
    struct psni_object *next; /* next free object of the pool */
    uint32_t index, generation;
    /* number of objects that refer to this one; it cannot be closed until the
     * number is 0 */
    uint32_t users;
    uint8_t kind;
    bool live;
} psni_object_t;

typedef struct psni_pool {
    psni_ni_t *ni;
    psni_kind_t kind;
    size_t size; /* size of an object; each begins with a psni_object_t */
    uint32_t limit, made;
    psni_object_t *free;
    void **chunks;
} psni_pool_t;

int psni_pool_open(psni_pool_t *pool, psni_ni_t *ni, psni_kind_t kind,
                   size_t size, uint32_t limit);
void psni_pool_close(psni_pool_t *pool);
/* Makes sure that the next psni_pool_take succeeds. Returns false if it would
 * not. */
bool psni_pool_reserve(psni_pool_t *pool);
/* Returns a new object, zeroed behind its psni_object_t, or NULL if the limit
 * is reached or memory is short. */
void *psni_pool_take(psni_pool_t *pool);
void psni_pool_give(psni_pool_t *pool, void *object);
psni_object_t *psni_pool_at(psni_pool_t *pool, uint32_t index);
/* Closes every object of the pool. */
void psni_pool_drain(psni_pool_t *pool, void (*close)(void *object));

ptl_handle_any_t psni_handle(const psni_object_t *object);
/* Finds the object that a handle names, and takes the lock of its NI, which
 * psni_leave releases. On failure returns PTL_NO_INIT or PTL_ARG_INVALID, and
 * does not hold the lock. */
int psni_enter(ptl_handle_any_t handle, psni_kind_t kind, void *object_p);
/* Finds the NI of a handle of this kind, even if the object of the handle was
 * closed, and takes the lock of the NI. Returns NULL if there is no such NI. */
psni_ni_t *psni_enter_ni(ptl_handle_any_t handle, psni_kind_t kind);
/* Finds an object while the lock of its NI is held. Returns NULL if the handle
 * names none. */
void *psni_find(psni_ni_t *ni, ptl_handle_any_t handle, psni_kind_t kind);
void psni_leave(psni_ni_t *ni);
/* Closes the object that a handle names. Returns PTL_IN_USE if other objects
 * refer to it. */
int psni_release(ptl_handle_any_t handle, psni_kind_t kind,
                 void (*close)(void *object));

/* ---- region.c ---- */

typedef struct psni_region {
    /* address of the memory if it is one piece; otherwise `pieces` are used */
    uint8_t *start;
    /* array of n_pieces elements, owned by the NI's user */
    const ptl_iovec_t *pieces;
    uint32_t n_pieces;
    uint64_t length; /* length of the memory in bytes */
} psni_region_t;

/* Describes memory in one piece, or in several if `scattered`. Returns false if
 * there are too many pieces, or if the length overflows. */
bool psni_region_init(psni_region_t *region, void *start, uint64_t length,
                      bool scattered, int max_pieces);
/* Stores the addresses and lengths of the pieces of a part of the region in
 * `out`. Returns their number, or -1 if they are more than `max`. */
int psni_region_gather(const psni_region_t *region, uint64_t offset,
                       uint64_t length, struct iovec *out, int max);
void psni_region_write(const psni_region_t *region, uint64_t offset,
                       const void *bytes, uint64_t length);
void psni_region_read(const psni_region_t *region, uint64_t offset, void *bytes,
                      uint64_t length);
void *psni_region_at(const psni_region_t *region, uint64_t offset);

/* ---- wakeup.c ---- */

typedef struct psni_doorbell {
    /* a caller sleeps on epoll_fd, which watches event_fd */
    int epoll_fd, event_fd;
    /* link in the list `listening` of the NI: doorbells whose epoll_fd watches
     * the NI's socket, too */
    psc_link_t listening;
    bool open, armed, rung;
} psni_doorbell_t;

int psni_doorbell_open(psni_doorbell_t *doorbell);
void psni_doorbell_close(psni_doorbell_t *doorbell, psni_ni_t *ni);
void psni_doorbell_arm(psni_doorbell_t *doorbell, psni_ni_t *ni);
/* Wakes the caller that sleeps on the doorbell (wakeup.c), if the doorbell is
 * armed. */
void psni_doorbell_ring(psni_doorbell_t *doorbell, psni_ni_t *ni);
/* Counts a progress pass of a caller. After many passes during which no caller
 * slept, the doorbells stop watching the socket. */
void psni_doorbells_rest(psni_ni_t *ni);

/* ---- queue.c, counter.c ---- */

/* First member of event queues and counters, for which a caller can wait. */
typedef struct psni_source {
    psni_object_t object;
    psni_doorbell_t doorbell;
} psni_source_t;

typedef struct psni_eq {
    psni_source_t source;
    ptl_event_t *ring;
    /* number of events for which the user requested room, at most max_events */
    uint64_t size;
    /* room for further events, which report disabled portal table entries */
    uint64_t spare;
    uint64_t head, tail;
    /* room that is reserved for events of messages that are still arriving */
    uint64_t promised;
    bool dropped;
} psni_eq_t;

typedef struct psni_ct {
    psni_source_t source;
    ptl_ct_event_t value;
} psni_ct_t;

void psni_eq_post(psni_eq_t *eq, const ptl_event_t *event);
bool psni_eq_room(const psni_eq_t *eq, unsigned events);
/* Takes the oldest event. Returns PTL_EQ_EMPTY if there is none, PTL_EQ_DROPPED
 * if an event was taken but others were lost, else PTL_OK. */
int psni_eq_take(psni_eq_t *eq, ptl_event_t *event);
void psni_eq_close(void *eq);
void psni_ct_count(psni_ct_t *ct, bool failed, uint64_t amount);
void psni_ct_close(void *ct);
