/* The driver: verbs and nothing else. It opens a device and moves bytes over
 * queue pairs; of endpoints, sessions and protocols it knows nothing.
 *
 *   choose.c  which device, port and GID
 *   device.c  what all connections share
 *   queue.c   one reliable connection: connecting, posting, draining */
#ifndef PSCOMPY_IB_DRIVER_H
#define PSCOMPY_IB_DRIVER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IB_RD_ATOMIC 16u    /* reads under way per queue, at most */
#define IB_MIN_RNR_TIMER 4u /* 40 us until a sender tries again */
#define IB_PIECES_MAX 2u
#define IB_INLINE_MAX 512u
#define IB_BATCH 16u /* completions, or receive buffers, at a time */
#define IB_PSN_MASK 0xffffffu

/* ---- the device ---- */

typedef struct ib_choice {
    const char *hca; /* "": any; "all"; or a list of device[:port] */
    int port;        /* where the list names none; 0: the first active one */
    unsigned path;   /* which of those that work */
    int gid_index;   /* -1: chosen here */
    unsigned mtu;    /* bytes; 0: the port's */
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
    unsigned paths; /* that the choice leads to */
    unsigned rail;  /* the number that both sides have for this one */
    unsigned comps; /* completions that send_cq has room for */
    unsigned recvs; /* buffers that srq has room for */
} ib_device_t;

/* False: reason says why, and nothing is left behind. True: reason is empty, or
 * says what the choice names in vain. The queues are no longer than the device
 * can make them. */
bool ib_device_open(ib_device_t *device, const ib_choice_t *choice,
                    char *reason, size_t room);
void ib_device_close(ib_device_t *device);
/* Room for that many completions of sends. False: the device has no more. */
bool ib_device_reserve(ib_device_t *device, unsigned comps);
/* Is the port up now? */
bool ib_device_active(const ib_device_t *device);
bool ib_device_ethernet(const ib_device_t *device);
/* For people: "rxe0/1". */
void ib_device_name(const ib_device_t *device, char *name, size_t room);

/* ---- memory ---- */

/* Buffers of one size in one registered block. */
typedef struct ib_pool {
    uint8_t *base;
    size_t mapped;
    size_t size; /* of one buffer */
    unsigned n, n_free;
    uint32_t *free; /* numbers */
    struct ibv_mr *mr;
} ib_pool_t;

/* access: what peers may do with it, IBV_ACCESS_REMOTE_*; the pool is zero. */
bool ib_pool_open(ib_pool_t *pool, ib_device_t *device, size_t size, unsigned n,
                  int access);
void ib_pool_close(ib_pool_t *pool);

static inline uint8_t *ib_pool_at(const ib_pool_t *pool, uint32_t number)
{
    return pool->base + (size_t)number * pool->size;
}

/* Post n <= IB_BATCH buffers of the pool to the shared receive queue, at once.
 * How many it took. */
unsigned ib_device_post_recvs(ib_device_t *device, const ib_pool_t *pool,
                              const uint32_t *numbers, unsigned n);

/* ---- queues ---- */

/* Where a queue pair is, and how to reach it. */
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

typedef struct ib_hold ib_hold_t; /* a registration; see cache.h */

/* What hangs on a request that was posted. */
typedef struct ib_job {
    void *comp;      /* told when it is done; NULL: nobody */
    ib_hold_t *hold; /* whose window it opens or shuts; NULL: none */
    uint32_t buffer; /* of the send pool; IB_NO_BUFFER: none */
} ib_job_t;

#define IB_NO_BUFFER UINT32_MAX

typedef struct ib_post {
    enum ibv_wr_opcode opcode;
    struct ibv_sge pieces[IB_PIECES_MAX];
    int n_pieces;
    bool copy;   /* IBV_SEND_INLINE */
    bool signal; /* have a completion in any case */
    uint64_t address; /* remote, for reads and writes */
    uint32_t rkey;
    ib_job_t job;
} ib_post_t;

typedef struct ib_queue {
    struct ibv_qp *qp;
    struct ib_queue *next; /* in the table of queues by number */
    void *owner;
    ib_post_t *posts; /* what was posted, at `serial % size` */
    uint32_t size;
    uint32_t posted, done; /* serials */
    uint32_t silent;       /* posted since the last one with a completion */
    uint32_t inline_max;
    uint32_t psn;
    bool connected; /* ready to send */
    bool broken;    /* in error: everything posted comes back */
} ib_queue_t;

bool ib_queue_open(ib_queue_t *queue, ib_device_t *device, uint32_t size,
                   void *owner);
void ib_queue_close(ib_queue_t *queue);
void ib_queue_place(const ib_queue_t *queue, const ib_device_t *device,
                    ib_place_t *place_p);
/* Ready to receive and to send. False: errno. */
bool ib_queue_connect(ib_queue_t *queue, const ib_device_t *device,
                      const ib_place_t *peer, const ib_path_t *path);
/* As freshly opened; what was posted is forgotten. */
bool ib_queue_reset(ib_queue_t *queue, const ib_device_t *device);
/* False: errno. The caller has looked whether there is room. */
bool ib_queue_post(ib_queue_t *queue, const ib_post_t *post);
/* The same, for a request that binds a window. */
bool ib_queue_bind(ib_queue_t *queue, struct ibv_mw *window,
                   const struct ibv_mw_bind_info *info, const ib_job_t *job);
/* Into error: everything comes back, and at the end a marker. */
void ib_queue_abort(ib_queue_t *queue);

static inline uint32_t ib_queue_room(const ib_queue_t *queue)
{
    return queue->size - (queue->posted - queue->done);
}

static inline bool ib_queue_idle(const ib_queue_t *queue)
{
    return queue->posted == queue->done;
}

#endif
