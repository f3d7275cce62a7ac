/* The driver: calls verbs and nothing else. It opens a device and moves bytes
 * over queue pairs; it uses neither endpoints nor protocols.
 *
 *   select_device.c  selects device, port and GID
 *   device.c         opens the objects that all connections share
 *   queue.c          one reliable connection: connecting, posting, draining */
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pscompy/transport/transport.h"

#define IB_RD_ATOMIC 16u /* upper bound of RDMA reads in flight per queue */
#define IB_MIN_RNR_TIMER 4u /* the sender retries after 40 us */
#define IB_PIECES_MAX 2u
#define IB_INLINE_MAX 512u
#define IB_BATCH 16u /* completions or receive buffers handled in one call */
#define IB_PSN_MASK 0xffffffu
#define IB_BUCKETS 256u

/* ---- the device ---- */

typedef struct ib_choice {
    const char *hca; /* "": any device; "all"; or a list of device[:port] */
    /* port of list entries without one; 0: the first active port */
    int port;
    unsigned path; /* index among the usable paths */
    int gid_index; /* -1: selected automatically */
    unsigned mtu; /* bytes; 0: the port's MTU */
    unsigned recvs, comps; /* depth of the receive and the completion queue */
} ib_choice_t;

typedef struct ib_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_device_attr attr;
    struct ibv_port_attr port_attr;
    uint8_t port;
    uint8_t gid_index;
    union ibv_gid gid;
    enum ibv_mtu mtu;
    unsigned paths; /* number of usable paths of the choice */
    unsigned rail; /* id of this rail, the same on both sides */
    unsigned comps; /* capacity of send_cq */
    unsigned recvs; /* capacity of srq */
} ib_device_t;

/* Returns false if no device can be opened; `reason` says why, and nothing
 * stays allocated. If it returns true, `reason` is empty or names the entries
 * of the choice that could not be opened. The queues may be shorter than
 * wanted, because the device limits them. */
bool ib_device_open(ib_device_t *device, const ib_choice_t *choice,
                    char *reason);
void ib_device_close(ib_device_t *device);
/* Makes room for `comps` completions of sends. Returns false if the device
 * cannot. */
bool ib_device_reserve(ib_device_t *device, unsigned comps);
/* True if the port is active now. */
bool ib_device_active(const ib_device_t *device);
/* Name for log lines, e.g. "rxe0/1". */
void ib_device_name(const ib_device_t *device, char *name, size_t room);

static inline bool ib_device_ethernet(const ib_device_t *device)
{
    return device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* ---- memory ---- */

/* Buffers of one size in one registered block. */
typedef struct ib_pool {
    uint8_t *base;
    size_t mapped;
    size_t size; /* bytes of one buffer */
    unsigned n, n_free;
    uint32_t *free; /* numbers of the free buffers */
    struct ibv_mr *mr;
} ib_pool_t;

/* `access`: rights of peers, IBV_ACCESS_REMOTE_*. The memory is zeroed. */
bool ib_pool_open(ib_pool_t *pool, ib_device_t *device, size_t size, unsigned n,
                  int access);
void ib_pool_close(ib_pool_t *pool);

static inline uint8_t *ib_pool_at(const ib_pool_t *pool, uint32_t number)
{
    return pool->base + (size_t)number * pool->size;
}

/* Returns a buffer to the pool. */
static inline void ib_pool_give(ib_pool_t *pool, uint32_t number)
{
    pool->free[pool->n_free++] = number;
}

/* Post n <= IB_BATCH buffers of the pool to the shared receive queue in one
 * call. Returns how many were posted. */
unsigned ib_device_post_recvs(ib_device_t *device, const ib_pool_t *pool,
                              const uint32_t *numbers, unsigned n);

/* ---- queues ---- */

/* Location of a queue pair, and the parameters to connect to it. */
typedef struct ib_place {
    union ibv_gid gid;
    uint32_t qpn, psn;
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
    uint8_t rd_atomic;
} ib_place_t;

typedef struct ib_path {
    unsigned timeout, retry_count, service_level;
} ib_path_t;

typedef struct ib_reg ib_reg_t; /* a registration; see cache.h */

/* Resources that are released when a posted request completes. */
typedef struct ib_job {
    psc_comp_t *comp; /* completion to be notified, or NULL */
    ib_reg_t *reg; /* registration whose window the request binds, or NULL */
    uint32_t buffer; /* number of a buffer of the send pool, or IB_NO_BUFFER */
} ib_job_t;

#define IB_NO_BUFFER UINT32_MAX

typedef struct ib_post {
    enum ibv_wr_opcode opcode;
    struct ibv_sge pieces[IB_PIECES_MAX];
    int n_pieces;
    bool copy; /* IBV_SEND_INLINE */
    bool signal; /* request a completion in any case */
    uint64_t address; /* remote address of reads and writes */
    uint32_t rkey;
    ib_job_t job;
} ib_post_t;

typedef struct ib_queue {
    struct ibv_qp *qp;
    /* next queue in the same bucket of the table by number */
    struct ib_queue *next;
    void *owner;
    ib_post_t *posts; /* posted requests, at index serial % size */
    uint32_t size;
    /* serial numbers behind the last posted request and the last completed
     * one */
    uint32_t posted, done;
    uint32_t silent; /* requests posted since the last signalled one */
    uint32_t inline_max;
    uint32_t psn;
    bool connected; /* The queue pair is ready to send. */
    /* The queue pair is in the error state; all posted requests are flushed. */
    bool broken;
} ib_queue_t;

bool ib_queue_open(ib_queue_t *queue, ib_device_t *device, uint32_t size,
                   void *owner);
void ib_queue_close(ib_queue_t *queue);
void ib_queue_place(const ib_queue_t *queue, const ib_device_t *device,
                    ib_place_t *place_p);
/* Moves the queue pair to ready-to-send. Returns false and sets errno on
 * failure. */
bool ib_queue_connect(ib_queue_t *queue, const ib_device_t *device,
                      const ib_place_t *peer, const ib_path_t *path);
/* Resets the queue pair to its initial state; posted requests are forgotten. */
bool ib_queue_reset(ib_queue_t *queue, const ib_device_t *device);
/* Returns false and sets errno on failure. The caller has checked that there is
 * room. */
bool ib_queue_post(ib_queue_t *queue, const ib_post_t *post);
/* Like ib_queue_post(), for a request that binds a window. */
bool ib_queue_bind(ib_queue_t *queue, struct ibv_mw *window,
                   const struct ibv_mw_bind_info *info, const ib_job_t *job);
/* Moves the queue pair to the error state: all requests are flushed, followed
 * by a marker request. */
void ib_queue_abort(ib_queue_t *queue);

/* A hash table of queues by the number of their queue pair, which completions
 * carry. */
typedef struct ib_queues {
    ib_queue_t *buckets[IB_BUCKETS];
} ib_queues_t;

void ib_queue_enlist(ib_queues_t *queues, ib_queue_t *queue);
void ib_queue_strike(ib_queues_t *queues, ib_queue_t *queue);
/* Returns NULL if the queue was closed. */
ib_queue_t *ib_queue_find(ib_queues_t *queues, uint32_t number);

static inline struct ibv_sge ib_piece(const void *bytes, size_t len)
{
    return (struct ibv_sge){.addr = (uintptr_t)bytes, .length = (uint32_t)len};
}

static inline uint32_t ib_queue_room(const ib_queue_t *queue)
{
    return queue->size - (queue->posted - queue->done);
}

static inline bool ib_queue_idle(const ib_queue_t *queue)
{
    return queue->posted == queue->done;
}
