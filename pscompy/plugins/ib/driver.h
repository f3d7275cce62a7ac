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

/* upper bound of the RDMA reads in flight per queue pair */
#define IB_RD_ATOMIC 16u
/* code of the RNR timer: the sender retries after 40 us */
#define IB_MIN_RNR_TIMER 4u
#define IB_PIECES_MAX 2u
#define IB_INLINE_MAX 512u
/* maximum number of completions, or of receive buffers, that one call
 * handles */
#define IB_BATCH 16u
#define IB_PSN_MASK 0xffffffu
#define IB_BUCKETS 256u

/* ---- the device ---- */

typedef struct ib_choice {
    /* value of PSP_IB_HCA, the devices to use: "" (any), "all", or a list of
     * device[:port] */
    const char *hca;
    /* port of devices for which `hca` names no port; 0: the first active
     * port */
    int port;
    unsigned path; /* index of the path (port) to open, among the usable ones */
    /* index in the GID table of the port; -1: selected automatically */
    int gid_index;
    unsigned mtu; /* path MTU in bytes; 0: the MTU of the port */
    /* recvs: depth of the receive queue; comps: of the queue of send
     * completions */
    unsigned recvs, comps;
} ib_choice_t;

typedef struct ib_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    /* td: the queue pairs' thread domain; td_pd: a protection domain in it.
     * Both are NULL if the device supports no thread domains. */
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
    /* number of usable paths (ports) that ib_choice_t.hca allows */
    unsigned paths;
    /* id of the rail that this port is, the same on both sides */
    unsigned rail;
    unsigned comps; /* capacity of send_cq (completions) */
    unsigned recvs; /* capacity of srq (receive buffers) */
    int td_error; /* errno of the call that failed to create a thread domain */
    /* at a fork the kernel copies registered pages for the child; otherwise
     * parent and child share them until one of them writes, and the device goes
     * on with those that the other one keeps */
    bool forks;
} ib_device_t;

/* Opens the device and port that `choice` selects. Returns false if no device
 * can be opened; `reason` then says why, and nothing stays allocated. If the
 * function returns true, `reason` is empty or names the entries of choice->hca
 * that could not be opened. The queues may be shorter than `choice` asks,
 * because the device limits them. */
bool ib_device_open(ib_device_t *device, const ib_choice_t *choice,
                    char *reason);
void ib_device_close(ib_device_t *device);
/* Enlarges send_cq so that it holds `comps` completions of sends. Returns false
 * if the device does not allow it. */
bool ib_device_reserve(ib_device_t *device, unsigned comps);
/* Writes to `text`, for log lines, whether the queue pairs have a thread
 * domain. */
void ib_device_domain(const ib_device_t *device, char *text, size_t room);
/* Returns true if the port of the device is active now. */
bool ib_device_active(const ib_device_t *device);
/* Stores the name of device and port for log lines, such as "rxe0/1". */
void ib_device_name(const ib_device_t *device, char *name, size_t room);

static inline bool ib_device_ethernet(const ib_device_t *device)
{
    return device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* ---- memory ---- */

/* A pool: buffers of one size in one registered block of memory. */
typedef struct ib_pool {
    uint8_t *base;
    size_t mapped;
    size_t size; /* size of one buffer in bytes */
    unsigned n, n_free;
    uint32_t *free; /* numbers of the buffers that are free */
    struct ibv_mr *mr;
} ib_pool_t;

/* Allocates and registers a block of n zeroed buffers of `size` bytes each.
 * `access` are the access rights of peers (IBV_ACCESS_REMOTE_*). */
bool ib_pool_open(ib_pool_t *pool, ib_device_t *device, size_t size, unsigned n,
                  int access);
void ib_pool_close(ib_pool_t *pool);

static inline uint8_t *ib_pool_at(const ib_pool_t *pool, uint32_t number)
{
    return pool->base + (size_t)number * pool->size;
}

/* Returns buffer `number` to its pool. */
static inline void ib_pool_give(ib_pool_t *pool, uint32_t number)
{
    pool->free[pool->n_free++] = number;
}

/* Posts n <= IB_BATCH buffers of the pool to the shared receive queue in one
 * call. Returns how many of them were posted. */
unsigned ib_device_post_recvs(ib_device_t *device, const ib_pool_t *pool,
                              const uint32_t *numbers, unsigned n);

/* ---- queues ---- */

/* Address and parameters of a queue pair. The peer needs these to connect one
 * of its own queue pairs to this one. */
typedef struct ib_qp_address {
    union ibv_gid gid;
    uint32_t qpn, psn;
    uint16_t lid;
    uint8_t mtu; /* a value of enum ibv_mtu */
    uint8_t rd_atomic;
} ib_qp_address_t;

typedef struct ib_path {
    unsigned timeout, retry_count, service_level;
} ib_path_t;

typedef struct ib_reg ib_reg_t; /* a registered block of memory (cache.h) */

/* The objects that are released or notified when a posted request completes. */
typedef struct ib_job {
    psc_comp_t *comp; /* completion of the operation, to be notified; or NULL */
    ib_reg_t *reg; /* registration whose window this request binds, or NULL */
    /* number of the send pool's buffer that the request uses, or
     * IB_NO_BUFFER */
    uint32_t buffer;
} ib_job_t;

#define IB_NO_BUFFER UINT32_MAX

typedef struct ib_post {
    enum ibv_wr_opcode opcode;
    struct ibv_sge pieces[IB_PIECES_MAX];
    int n_pieces;
    bool copy; /* copy the bytes when the request is posted (IBV_SEND_INLINE) */
    bool signal; /* request a completion of this request (IBV_SEND_SIGNALED) */
    uint64_t address; /* remote address of an RDMA read or write */
    uint32_t rkey;
    ib_job_t job;
} ib_post_t;

typedef struct ib_queue {
    struct ibv_qp *qp;
    /* next queue in the same bucket of ib_queues_t */
    struct ib_queue *next;
    void *owner;
    /* the request with serial number s is at index s % size */
    ib_post_t *posts;
    uint32_t size;
    /* posted: serial number of the next request to be posted; done: of the next
     * request to complete */
    uint32_t posted, done;
    /* number of requests posted since the last request with
     * IBV_SEND_SIGNALED */
    uint32_t silent;
    uint32_t inline_max;
    uint32_t psn;
    bool connected; /* The queue pair is ready to send. */
    /* The queue pair is in the error state; all posted requests are flushed. */
    bool broken;
} ib_queue_t;

bool ib_queue_open(ib_queue_t *queue, ib_device_t *device, uint32_t size,
                   void *owner);
void ib_queue_close(ib_queue_t *queue);
void ib_queue_address(const ib_queue_t *queue, const ib_device_t *device,
                      ib_qp_address_t *address_p);
/* Moves the queue pair to the state ready-to-send. Returns false and sets errno
 * on failure. */
bool ib_queue_connect(ib_queue_t *queue, const ib_device_t *device,
                      const ib_qp_address_t *peer, const ib_path_t *path);
/* Moves the queue pair to the reset state and then to INIT. Posted requests are
 * dropped without completions. */
bool ib_queue_reset(ib_queue_t *queue, const ib_device_t *device);
/* Posts a request to the send queue. Returns false and sets errno on failure.
 * The caller has checked that there is room. */
bool ib_queue_post(ib_queue_t *queue, const ib_post_t *post);
/* Posts a request to bind a memory window. Returns false if it cannot post. */
bool ib_queue_bind(ib_queue_t *queue, struct ibv_mw *window,
                   const struct ibv_mw_bind_info *info, const ib_job_t *job);
/* Moves the queue pair to the error state, so that all its requests are
 * flushed. Posts one more request, a marker, which completes after all
 * others. */
void ib_queue_abort(ib_queue_t *queue);

/* A hash table of the queues by the number of their queue pair. Completions
 * name a queue pair by this number. */
typedef struct ib_queues {
    ib_queue_t *buckets[IB_BUCKETS];
} ib_queues_t;

void ib_queue_enlist(ib_queues_t *queues, ib_queue_t *queue);
void ib_queue_strike(ib_queues_t *queues, ib_queue_t *queue);
/* Returns the queue whose queue pair has this number, or NULL if that queue was
 * closed. */
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
