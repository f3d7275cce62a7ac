/* The driver: calls libibverbs and nothing else. It opens a device and moves
 * bytes over queue pairs; it uses neither endpoints nor protocols.
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
/* code of the RNR timer: the sender retries after 40 us */
#define IB_MIN_RNR_TIMER 4u
#define IB_PIECES_MAX 2u
#define IB_INLINE_MAX 512u
#define IB_BATCH 16u /* completions or receive buffers handled in one call */
#define IB_PSN_MASK 0xffffffu
#define IB_BUCKETS 256u

/* ---- the device ---- */

typedef struct ib_choice {
    /* which devices: "" (any), "all", or a list of device[:port] */
    const char *hca;
    /* port for devices of the list that name none; 0: the first active one */
    int port;
    unsigned path; /* which of the usable paths (ports) to open */
    /* index in the GID table of the port; -1: selected automatically */
    int gid_index;
    unsigned mtu; /* path MTU in bytes; 0: that of the port */
    unsigned recvs, comps; /* depth of the receive and the completion queue */
} ib_choice_t;

typedef struct ib_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    /* The queue pairs' thread domain, and the protection domain with it; NULL
     * if the device has none. */
    struct ibv_td *td;
    struct ibv_pd *td_pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_device_attr attr;
    struct ibv_port_attr port_attr;
    uint8_t port;
    uint8_t gid_index;
    union ibv_gid gid;
    enum ibv_mtu mtu;
    /* number of usable paths (ports) that the ib_choice_t allows */
    unsigned paths;
    unsigned rail; /* id of this rail, the same on both sides */
    unsigned comps; /* capacity of send_cq */
    unsigned recvs; /* capacity of srq */
    int td_error; /* errno of the failed call if there is no thread domain */
} ib_device_t;

/* Returns false if no device can be opened; `reason` says why, and nothing
 * stays allocated. If it returns true, `reason` is empty or names the entries
 * of the choice that could not be opened. The queues may be shorter than
 * wanted, because the device limits them. */
bool ib_device_open(ib_device_t *device, const ib_choice_t *choice,
                    char *reason);
void ib_device_close(ib_device_t *device);
/* Makes room for `comps` completions of sends. Returns false if the device does
 * not allow it. */
bool ib_device_reserve(ib_device_t *device, unsigned comps);
/* Writes for log lines whether the queue pairs have a thread domain. */
void ib_device_domain(const ib_device_t *device, char *text, size_t room);
/* Returns true if the port is active now. */
bool ib_device_active(const ib_device_t *device);
/* Stores the name of device and port for log lines, such as "rxe0/1". */
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

/* Allocates and registers n zeroed buffers of `size` bytes. `access` are the
 * rights of peers, IBV_ACCESS_REMOTE_*. */
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

/* Posts n <= IB_BATCH buffers of the pool to the shared receive queue in one
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
    bool copy; /* post with IBV_SEND_INLINE */
    bool signal; /* request a completion (IBV_SEND_SIGNALED) */
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
    /* serial numbers of the next request to be posted and the next to
     * complete */
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
/* Moves the queue pair to the reset state and then to INIT; posted requests are
 * forgotten. */
bool ib_queue_reset(ib_queue_t *queue, const ib_device_t *device);
/* Posts a request to the send queue. Returns false and sets errno on failure.
 * The caller has checked that there is room. */
bool ib_queue_post(ib_queue_t *queue, const ib_post_t *post);
/* Like ib_queue_post(), for a request that binds a window. */
bool ib_queue_bind(ib_queue_t *queue, struct ibv_mw *window,
                   const struct ibv_mw_bind_info *info, const ib_job_t *job);
/* Moves the queue pair to the error state: all its requests are flushed. A
 * marker request is posted, which completes after them. */
void ib_queue_abort(ib_queue_t *queue);

/* A hash table of queues by the number of their queue pair, which completions
 * carry. */
typedef struct ib_queues {
    ib_queue_t *buckets[IB_BUCKETS];
} ib_queues_t;

void ib_queue_enlist(ib_queues_t *queues, ib_queue_t *queue);
void ib_queue_strike(ib_queues_t *queues, ib_queue_t *queue);
/* Returns the queue whose queue pair has this number; NULL if it was closed. */
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
