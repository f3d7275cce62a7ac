/* psc_api_t: the table of functions by which C code outside the core (the
 * binding, the gateway's data path, C programs) uses the core.
 *
 * Unless a comment says otherwise a function takes the worker's lock itself,
 * never blocks for the network, and may be called from any thread, with or
 * without the GIL. With PSC_FLAG_TRY it returns PSC_ERR_NO_RESOURCE instead of
 * waiting for a lock that another thread holds: a caller with the GIL passes
 * the flag, and on that result releases the GIL and calls again without the
 * flag. */
#ifndef PSCOMPY_CORE_API_H
#define PSCOMPY_CORE_API_H

#include <stdbool.h>

#include "pscompy/transport/transport.h"

#define PSC_API_ABI 13u
#define PSC_API_CAPSULE "pscompy.core._api"

#define PSC_ANY_TAG (-1)
#define PSC_TAG_MAX INT32_MAX
/* Active messages with ids from here on are those of pscompy itself. */
#define PSC_AM_OWN INT32_MAX
/* The timeout in ns that never ends. A timeout of 0 lets a function poll
 * once. */
#define PSC_FOREVER INT64_MAX

/* Contexts separate traffic that must never match. A context is a number of 30
 * bits and, above it, a class of 2 bits. */
#define PSC_CONTEXT_NUMBER 0x3fffffffu /* the bits of the number */
#define PSC_CONTEXT_PLAIN 1u /* connections outside a World */
#define PSC_CONTEXT_USER 4u /* first number that Worlds allocate */
#define PSC_CONTEXT_END 0x3ffe0000u /* end of the numbers of Worlds */
/* Classes, which are added to PSC_CONTEXT_PLAIN or to a number of a World: for
 * objects, for the long buffers of objects, and for calls of actions. Each of
 * these contexts also owns the next number, in which the answers to its actions
 * travel as objects. */
#define PSC_CONTEXT_OBJECTS 0x40000000u
#define PSC_CONTEXT_CHUNKS 0x80000000u
#define PSC_CONTEXT_ACTIONS 0xc0000000u
/* a user's active messages; the low 16 bits are 0, see psc_wire_context */
#define PSC_CONTEXT_AM 0xfffe0000u
/* puts and gets that messages execute, because no fabric can */
#define PSC_CONTEXT_RMA 0xffffffffu

typedef struct psc_worker psc_worker_t;
typedef struct psc_conn psc_conn_t;
typedef struct psc_region psc_region_t;
typedef struct psc_sleeper psc_sleeper_t;
typedef struct psc_group psc_group_t;
/* a collective that is described once and started many times */
typedef struct psc_persistent psc_persistent_t;

/* CDEF BEGIN */
typedef enum psc_conn_state {
    PSC_CONN_LAZY, /* not connected; the first use connects */
    PSC_CONN_CONNECTING, /* sends are queued */
    PSC_CONN_UP,
    PSC_CONN_CLOSING, /* close was called here; queued sends are still sent */
    PSC_CONN_CLOSED, /* ended normally, by either side */
    PSC_CONN_FAILED /* connecting failed, or the peer was lost */
} psc_conn_state_t;
/* CDEF END */

typedef enum psc_request_state {
    PSC_REQUEST_ACTIVE = 0,
    /* A receive posted without buffer has matched: result.nbytes is known,
     * call recv_supply. Nothing more happens before that. */
    PSC_REQUEST_MATCHED = 1,
    PSC_REQUEST_DONE = 2
} psc_request_state_t;

typedef struct psc_result {
    psc_status_t status;
    int32_t tag;
    uint64_t nbytes; /* length of the message before truncation */
    /* In receives and probes: the id of the connection to the source, which
     * identifies the source even after the connection was destroyed. Else 0. */
    uint64_t source;
    /* rank of the source, -1 outside a World; in collectives: the rank in the
     * group with which the first error occurred, or -1 */
    int32_t rank;
    /* In receives: the message's place in the order of all arrivals, which
     * recv_return needs. In collectives: the psc_coll_t. */
    uint64_t order;
} psc_result_t;

/* The public head of a request. The core writes every field but `owner`; result
 * is valid once state is MATCHED or DONE. */
typedef struct psc_request {
    int state; /* psc_request_state_t, read with psc_request_state() */
    uint16_t flags;
    uint16_t n_waits; /* see psc_request_count_wait */
    void *owner; /* belongs to the consumer, not used by the core */
    psc_result_t result;
} psc_request_t;

static inline int psc_request_state(const psc_request_t *request)
{
    return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
}

/* Count a wait that begins (+1) or ends (-1). Dumps, and reports of deadlocks,
 * mark the requests that are waited for. `wait` counts its own waits from the
 * moment at which its thread is about to sleep. A caller that calls `wait`
 * again after PSC_ERR_INTERRUPTED may count the whole time as one wait, so that
 * the mark does not go between the calls. */
static inline void psc_request_count_wait(psc_request_t *request, int change)
{
    __atomic_fetch_add(&request->n_waits, (uint16_t)change, __ATOMIC_RELAXED);
}

static inline bool psc_request_awaited(const psc_request_t *request)
{
    return __atomic_load_n(&request->n_waits, __ATOMIC_RELAXED) > 0;
}

#define PSC_FLAG_TRY 0x1u /* do not wait for the worker's lock */
/* Put the request on the completion queue when it is done or matched; see
 * completion_poll. */
#define PSC_FLAG_NOTIFY 0x2u
/* When a message matches this receive, the request becomes MATCHED first, so
 * that the caller learns the length. The request completes at once if the
 * message is eager and fits into iov. */
#define PSC_FLAG_NO_BUFFER 0x4u
/* Lend the pages of this send's message, if they belong to the pool: the
 * request is done when no view of the pages is left. */
#define PSC_FLAG_LEND 0x8u
/* Allocate a block (block_alloc) of private memory, which cannot be lent, and
 * of which a child made by fork has a copy. */
#define PSC_FLAG_PRIVATE 0x10u
/* A synchronous send: the request is done only after a receive has matched the
 * message. */
#define PSC_FLAG_SYNC 0x20u

/* A block of memory of a worker's pool; see block_alloc. */
typedef struct psc_block {
    void *base;
    size_t nbytes;
} psc_block_t;

/* A view of a message in its sender's memory, which nobody writes while the
 * view exists. */
typedef struct psc_view {
    const void *base;
    size_t nbytes;
} psc_view_t;

/* One dimension of a psc_layout_t. */
typedef struct psc_dim {
    uint64_t n; /* number of items of the dimension, at least 1 */
    /* distance of two neighbouring items in bytes; 0 only for sending */
    int64_t stride;
} psc_dim_t;

/* Memory that is not contiguous, as a strided array of numpy: runs of `run`
 * bytes, the first at `base`. The index of the last dimension varies
 * fastest. */
typedef struct psc_layout {
    void *base;
    /* number of bytes in each run, which is contiguous; at least 1 */
    size_t run;
    size_t n_dims; /* number of elements of `dims`, at least 1 */
    const psc_dim_t *dims;
} psc_layout_t;

#define PSC_LAYOUT_MARK ((void *)UINTPTR_MAX)

static inline uint64_t psc_layout_nbytes(const psc_layout_t *layout)
{
    uint64_t nbytes = layout->run;

    for (size_t i = 0; i < layout->n_dims; i++)
        nbytes *= layout->dims[i].n;
    return nbytes;
}

/* Fill the iov that stands for a layout: for send_strided, and for recv,
 * recv_supply and recv_return. The layout of a receive, too, belongs to the
 * library until the request is done. */
static inline void psc_layout_pieces(const psc_layout_t *layout,
                                     psc_iov_t pieces[2])
{
    pieces[0] = (psc_iov_t){(void *)layout, psc_layout_nbytes(layout)};
    pieces[1] = (psc_iov_t){PSC_LAYOUT_MARK, 0};
}

/* Maximum number of pieces of one message or receive; more are
 * PSC_ERR_INVALID. */
#define PSC_IOV_MAX (1u << 20)
#define PSC_OFFER_PARTS_MAX 4096u
/* maximum number of bytes that one buffer takes in a packed offer */
#define PSC_OFFER_PART_MAX 576u

typedef struct psc_recv_args {
    psc_conn_t *source; /* NULL: any connection of the worker */
    uint32_t context;
    int32_t tag; /* the tag to receive: PSC_ANY_TAG, or 0 ... PSC_TAG_MAX */
    const psc_iov_t *iov;
    size_t n_iov;
    uint32_t flags;
    void *owner;
    /* recv makes up to this many passes of progress before it returns a
     * request */
    unsigned polls;
} psc_recv_args_t;

typedef struct psc_send_args {
    uint32_t context;
    int32_t tag;
    const psc_iov_t *iov; /* the pieces of one message */
    size_t n_iov;
    uint32_t flags;
    void *owner;
} psc_send_args_t;

/* A user's active message. It is valid until the handler returns or, if it was
 * queued for message_poll, until message_free. `source` exists as long. */
typedef struct psc_message {
    psc_conn_t *source;
    uint32_t id;
    const void *header; /* aligned to 16, if the message was queued */
    size_t header_len;
    const void *payload;
    size_t len;
} psc_message_t;

/* Called inside progress with the worker's lock held. The handler may call
 * am_post on any worker, and no other function of this table. */
typedef void (*psc_am_handler_t)(void *arg, const psc_message_t *message);

/* ---- collectives ---- */

/* CDEF BEGIN */
/* The collectives. All ranks of a group start the same ones in the same
 * order. */
typedef enum psc_coll {
    PSC_COLL_BARRIER,
    PSC_COLL_BCAST, /* of `recv`, which the root has filled */
    PSC_COLL_REDUCE,
    PSC_COLL_ALLREDUCE,
    PSC_COLL_SCAN,
    PSC_COLL_EXSCAN, /* rank 0 receives nothing */
    PSC_COLL_REDUCE_SCATTER,
    PSC_COLL_GATHER,
    PSC_COLL_SCATTER,
    PSC_COLL_ALLGATHER,
    PSC_COLL_ALLTOALL,
    PSC_COLL_COUNT
} psc_coll_t;

/* The types of elements, in native byte order. A boolean has one byte, a
 * complex number has its real part first. */
typedef enum psc_type {
    PSC_TYPE_BOOL,
    PSC_TYPE_INT8,
    PSC_TYPE_INT16,
    PSC_TYPE_INT32,
    PSC_TYPE_INT64,
    PSC_TYPE_UINT8,
    PSC_TYPE_UINT16,
    PSC_TYPE_UINT32,
    PSC_TYPE_UINT64,
    PSC_TYPE_FLOAT16,
    PSC_TYPE_FLOAT32,
    PSC_TYPE_FLOAT64,
    PSC_TYPE_COMPLEX64,
    PSC_TYPE_COMPLEX128,
    PSC_TYPE_COUNT
} psc_type_t;

/* The logical operations (LAND, LOR, LXOR) store 0 or 1 in the type of their
 * operands. For booleans SUM is "or", PROD is "and". */
typedef enum psc_op {
    PSC_OP_SUM,
    PSC_OP_PROD,
    PSC_OP_MIN,
    PSC_OP_MAX,
    PSC_OP_LAND,
    PSC_OP_LOR,
    PSC_OP_LXOR,
    PSC_OP_BAND,
    PSC_OP_BOR,
    PSC_OP_BXOR,
    PSC_OP_COUNT
} psc_op_t;
/* CDEF END */

/* A function of the program that combines n elements: inout = in (op) inout,
 * where `in` is the operand of the lower ranks. Called by coll_call without the
 * lock. An error ends the operation. */
typedef psc_status_t (*psc_combine_t)(const void *in, void *inout, uint64_t n,
                                      void *arg);

/* What a group consists of. */
typedef struct psc_group_args {
    /* No message of another user of the worker may have this context. */
    uint32_t context;
    int rank, size; /* this process is `rank` of `size` */
    /* the rank in the job (psc_result_t.rank of messages) of each member; NULL:
     * the same */
    const int32_t *members;
    /* a number for the part of the machine that each rank is in, if few
     * messages are to go between the parts; or NULL */
    const int32_t *modules;
    /* each collective begins with an exchange of what each rank has called;
     * the same on all ranks */
    bool check;
} psc_group_args_t;

/* The call of a rank, as ranks tell each other (psc_group_args_t.check). */
typedef struct psc_called {
    int32_t coll;
    int32_t root; /* -1 if all ranks do the same */
    int32_t op, type; /* -1 if there is none; PSC_OP_COUNT: a function */
    char algorithm[16]; /* ends with 0 */
    /* of the operand, or of the part of each rank if all parts are as long */
    uint64_t nbytes;
    uint64_t counts; /* a hash of the counts; 0 without counts */
} psc_called_t;

/* result.nbytes of a collective that has failed on another rank */
#define PSC_COLL_TOLD UINT64_MAX
/* result.nbytes if result.rank has called something else than rank 0 */
#define PSC_COLL_DIFFERS (UINT64_MAX - 1)

typedef struct psc_coll_args {
    psc_coll_t coll;
    /* For reports and checks: 1 + the collective that the program has called,
     * if the caller does that one, whose operation is `op`, by means of `coll`;
     * else 0. */
    uint32_t instead_of;
    /* The operand and the memory for the result, which belong to the library
     * until the request is done. If both are the same, the result takes the
     * operand's place, as far as both are equally long. A gather, scatter or
     * reduction needs the other buffer of the root only at the root. */
    const void *send;
    void *recv;
    uint64_t size; /* bytes of one element */
    /* Number of elements: of the operand; or, in REDUCE_SCATTER, GATHER,
     * SCATTER, ALLGATHER and ALLTOALL, of the part of each rank. */
    uint64_t count;
    /* Number of elements of each rank's part, in place of `count`; the parts
     * stand one behind the other. NULL: each part has `count`. In ALLTOALL:
     * those that this rank sends, and those that it receives, to and from each
     * rank. */
    const uint64_t *counts, *recv_counts;
    /* how elements are combined: by `op` and `type`, unless `combine` is not
     * NULL */
    psc_op_t op;
    psc_type_t type;
    psc_combine_t combine;
    void *arg;
    bool commutes; /* `combine` commutes */
    int root;
    /* the algorithm to use (coll_explain); NULL: the first one that fits */
    const char *algorithm;
    /* From coll_init, with otherwise the same arguments; or NULL. It is not to
     * be started again before its request is done. */
    psc_persistent_t *persistent;
    uint32_t flags; /* PSC_FLAG_TRY, PSC_FLAG_NOTIFY */
    void *owner;
} psc_coll_args_t;

typedef enum psc_wait_mode { PSC_WAIT_ALL, PSC_WAIT_ANY } psc_wait_mode_t;
/* A flag for a psc_wait_mode_t: `wait` goes on although completion_poll or
 * message_poll has something. For a thread that does not call these functions,
 * for example in C beside Python. It lets the threads know that do call them,
 * and that wait or sleep. */
#define PSC_WAIT_OWN 0x100

typedef struct psc_api {
    uint32_t abi; /* PSC_API_ABI */
    uint32_t size; /* sizeof(psc_api_t) */

    /* ---- messages ----
     * Results of the functions that may create a request:
     * PSC_OK: done, no request was created, buffers may be reused.
     * PSC_INPROGRESS: *request_p was created; the buffers (not the iov array)
     * belong to the library until it is done; end it with request_free.
     * Errors: nothing was started. PSC_ERR_NO_RESOURCE: the connection (of a
     * receive or probe: its source) is lazy and must be opened first, possibly
     * again because connecting has failed; or the lock is held and PSC_FLAG_TRY
     * was given. */
    psc_status_t (*send)(psc_conn_t *conn, const psc_send_args_t *args,
                         psc_request_t **request_p);
    /* PSC_OK and PSC_ERR_TRUNCATED fill *result_p and create no request. recv
     * makes up to args->polls passes until the message has arrived, fewer if
     * another thread waits for the lock, or if polling does not pay any more
     * (progress/progress.h). */
    psc_status_t (*recv)(psc_worker_t *worker, const psc_recv_args_t *args,
                         psc_result_t *result_p, psc_request_t **request_p);
    /* Give a MATCHED receive its buffer. Returns PSC_OK if the request is done
     * (the result is in the request; its completion is not notified), or
     * PSC_INPROGRESS if its state is ACTIVE again and its completion will be
     * notified as usual. */
    psc_status_t (*recv_supply)(psc_request_t *request, const psc_iov_t *iov,
                                size_t n_iov);
    /* Complete with the tag, length and source of a message that a receive with
     * these arguments would get; the message stays in its queue. Returns PSC_OK
     * if such a message has arrived already. */
    psc_status_t (*probe)(psc_worker_t *worker, const psc_recv_args_t *args,
                          psc_result_t *result_p, psc_request_t **request_p);
    /* Probe once. Returns PSC_OK, or PSC_INPROGRESS if there is no message. */
    psc_status_t (*iprobe)(psc_worker_t *worker, const psc_recv_args_t *args,
                           psc_result_t *result_p);

    /* ---- requests ---- */
    /* Returns PSC_OK if the request was cancelled; it is done with CANCELLED.
     * The message of a MATCHED receive returns to its old place in the queue.
     * Returns PSC_ERR_INVALID if it is too late, and PSC_INPROGRESS if the peer
     * may be writing into the buffer: the peer is asked, then the request is
     * done with CANCELLED; a message that was written there goes to the queue.
     */
    psc_status_t (*cancel)(psc_request_t *request);
    /* Cancel a receive, even while its message is being received into the
     * buffer. Returns what cancel returns. PSC_INPROGRESS may also mean that
     * the message is back at its old place in the queue, where it completes
     * later: the buffer belongs to the library until the request is done, with
     * CANCELLED, or with the message if that cannot go back for want of memory.
     * Returns PSC_ERR_INVALID if the request has ended (see recv_return) or is
     * not a receive. */
    psc_status_t (*recv_give_up)(psc_request_t *request);
    /* Put the message of a receive that has ended back to its old place in the
     * queue of unexpected messages, as a copy of the bytes in iov. result and
     * context are the receive's. Returns PSC_ERR_CLOSED if the connection to
     * the message's source was destroyed, with all its messages. */
    psc_status_t (*recv_return)(psc_worker_t *worker, uint32_t context,
                                const psc_result_t *result,
                                const psc_iov_t *iov, size_t n_iov);
    /* Free a request. If it is not done, it completes on its own and is then
     * freed. A request that is DONE is freed without the worker's lock. */
    void (*request_free)(psc_request_t *request);
    /* Create a request that the caller completes by event_complete. */
    psc_status_t (*event_create)(psc_worker_t *worker, uint32_t flags,
                                 void *owner, psc_request_t **request_p);
    void (*event_complete)(psc_request_t *request, psc_status_t status);

    /* ---- progress and waiting ----
     * A thread that sleeps outside the core sleeps on a descriptor: it checks
     * its requests, arms, and sleeps. The rule by which no wake-up is lost:
     *  - After arming, the descriptor becomes readable if progress would find
     *    something, if a request has ended or matched, if completion_poll or
     *    message_poll has something, and on `wake`.
     *  - Every pass of another thread uses up the arming. Before its call
     *    returns, and before it sleeps, that thread arms again on behalf of the
     *    sleeper, or makes the descriptor readable.
     *  - Arming fails if any of these events has happened since the sleeper
     *    last looked, i.e. since its last arming that failed or its last
     *    sleeper_progress. The thread must then check its requests and arm
     *    again.
     * So a thread may check its requests before it arms, or after. Only one
     * thread at a time may use a descriptor: arming clears it. */
    /* Make one pass over all interfaces. Returns the number of events; with
     * PSC_FLAG_TRY 0 if another thread holds the lock. */
    unsigned (*progress)(psc_worker_t *worker, uint32_t flags);
    /* Poll until the request is not ACTIVE, for at most `polls` passes. Never
     * sleeps, because the caller holds the GIL. Returns true if the request is
     * not ACTIVE. */
    bool (*spin)(psc_worker_t *worker, psc_request_t *request, unsigned polls);
    /* Poll (without the GIL) for at most `ns`, as long as spinning pays and no
     * other thread polls; never sleeps. Returns true if the request is not
     * ACTIVE. Ends early if completion_poll or message_poll has something. */
    bool (*linger)(psc_worker_t *worker, psc_request_t *request, int64_t ns);
    /* Arm `descriptor` for the thread that sleeps on it, or on an epoll set
     * that contains it. Returns PSC_OK if the descriptor is armed. Returns
     * PSC_ERR_NO_RESOURCE if an event is pending or has happened since the
     * thread last looked: the thread must call progress and check its
     * requests. */
    psc_status_t (*arm)(psc_worker_t *worker);
    /* Block (without the GIL) until all or any of the requests are not ACTIVE.
     * Spins, then sleeps. Returns PSC_OK, PSC_ERR_TIMEOUT, PSC_ERR_INTERRUPTED
     * (check for signals and call again), or PSC_INPROGRESS (completion_poll or
     * message_poll has something; call again afterwards; not with
     * PSC_WAIT_OWN). */
    psc_status_t (*wait)(psc_worker_t *worker, psc_request_t *const *requests,
                         size_t n, psc_wait_mode_t mode, int64_t timeout_ns);
    /* Returns the next request with PSC_FLAG_NOTIFY that is done or matched, or
     * NULL. Takes no lock; only one thread at a time may call it. */
    psc_request_t *(*completion_poll)(psc_worker_t *worker);
    /* End all calls of `wait` with PSC_ERR_INTERRUPTED, and make `descriptor`
     * readable if it is armed. */
    void (*wake)(psc_worker_t *worker);
    /* Returns true if completion_poll or message_poll has something. Costs two
     * loads. */
    bool (*pending)(psc_worker_t *worker);

    /* ---- active messages ----
     * The id is below PSC_AM_OWN; the payload may have any length. */
    psc_status_t (*am_send)(psc_conn_t *conn, uint32_t id, const void *header,
                            size_t header_len, const psc_send_args_t *args,
                            psc_request_t **request_p);
    /* Send an active message; handlers, too, may call am_post. It copies the
     * message, creates no request, and never waits for a lock: if the lock is
     * held, its holder sends the message. Returns PSC_ERR_NO_RESOURCE if the
     * connection is lazy. A message that was accepted but cannot be sent,
     * because the connection has ended meanwhile, is counted (am_unsent). */
    psc_status_t (*am_post)(psc_conn_t *conn, uint32_t id, const void *header,
                            size_t header_len, const void *payload, size_t len);
    /* Set the handler of an id. If handler and arg are NULL, the messages with
     * this id are counted (am_dropped) and dropped. If only handler is NULL,
     * the messages are queued for message_poll. */
    psc_status_t (*am_handler)(psc_worker_t *worker, uint32_t id,
                               psc_am_handler_t handler, void *arg);
    /* Returns the next queued active message, or NULL; free it with
     * message_free. */
    psc_message_t *(*message_poll)(psc_worker_t *worker);
    void (*message_free)(psc_worker_t *worker, psc_message_t *message);

    /* ---- remote memory ---- */
    psc_status_t (*region_create)(psc_worker_t *worker, void *base, size_t len,
                                  psc_region_t **region_p);
    /* Refuse accesses from now on, including those that have begun. Returns
     * when the memory is not accessed any more: it waits for a peer that is
     * writing, and for a get that a lane is sending. */
    void (*region_destroy)(psc_region_t *region);
    /* Pack the region's key into `packed`. *len_p: on entry the room in
     * `packed`, on return the key's length. */
    psc_status_t (*region_pack)(psc_region_t *region, uint8_t *packed,
                                size_t *len_p);
    /* Put and get complete when the bytes are visible at their destination.
     * packed is the result of the peer's region_pack; args->iov is the local
     * buffer (one piece; nothing is sent if it is empty). Return PSC_ERR_KEY if
     * packed is invalid or was altered, PSC_ERR_BOUNDS if the access exceeds
     * the region. */
    psc_status_t (*put)(psc_conn_t *conn, const psc_send_args_t *args,
                        const uint8_t *packed, size_t packed_len,
                        uint64_t offset, psc_request_t **request_p);
    psc_status_t (*get)(psc_conn_t *conn, const psc_send_args_t *args,
                        const uint8_t *packed, size_t packed_len,
                        uint64_t offset, psc_request_t **request_p);

    /* ---- connections ---- */
    int (*conn_state)(const psc_conn_t *conn); /* psc_conn_state_t */
    /* Begin to connect a LAZY connection to a rank on this node, without the
     * control plane. Returns PSC_OK also if conn_call has begun to connect
     * before, or the connection is up. Returns an error if the control plane
     * has to connect. With PSC_FLAG_TRY conn_call never waits. */
    int (*conn_call)(psc_conn_t *conn, uint32_t flags);
    /* Returns the id that the connection's creator has chosen. */
    uint64_t (*conn_id)(const psc_conn_t *conn);
    /* Returns the rank of the peer; -1 outside a World. */
    int (*conn_rank)(const psc_conn_t *conn);
    /* Returns the number of active messages from this connection that are
     * queued, or polled and not yet freed by message_free. */
    unsigned (*conn_messages)(const psc_conn_t *conn);
    psc_worker_t *(*conn_worker)(const psc_conn_t *conn);

    /* ---- memory that the transports have registered ----
     * Blocks and views may outlive the worker, and any thread may free them. In
     * a forked child freeing them does nothing. */
    /* Allocate a block of whole pages, which a child made by fork shares with
     * this process unless PSC_FLAG_PRIVATE was given. Returns
     * PSC_ERR_NO_RESOURCE if the pool is exhausted (counted as pool_exhausted),
     * or if another thread holds the lock and PSC_FLAG_TRY was given. */
    psc_status_t (*block_alloc)(psc_worker_t *worker, size_t nbytes,
                                uint32_t flags, psc_block_t **block_p);
    void (*block_free)(psc_block_t *block);
    /* Receive the message of a MATCHED receive as a view of the sender's
     * memory. Returns PSC_OK if the request is done; the sender's request will
     * be done when the view is freed. Returns PSC_ERR_UNSUPPORTED if the
     * message was not lent or cannot be mapped here; use recv_supply. */
    psc_status_t (*recv_view)(psc_request_t *request, psc_view_t **view_p);
    void (*view_free)(psc_view_t *view);

    /* ---- other event loops ---- */
    /* Returns the worker's pollable descriptor, which stays the same until the
     * worker ends, or -1 if the descriptor could not be created. Only one
     * thread may sleep on the descriptor; that thread calls `arm` before. */
    int (*descriptor)(psc_worker_t *worker);
    /* Creates a sleeper, by which one of several threads sleeps on a descriptor
     * of its own. The descriptor exists until the sleeper is released, and is
     * readable for ever once the worker has ended; then only sleeper_release
     * may be called. */
    psc_status_t (*sleeper_create)(psc_worker_t *worker,
                                   psc_sleeper_t **sleeper_p);
    /* worker: the sleeper's worker, or NULL while the worker ends or after it
     * has ended. */
    void (*sleeper_release)(psc_worker_t *worker, psc_sleeper_t *sleeper);
    int (*sleeper_descriptor)(const psc_sleeper_t *sleeper);
    /* Like `arm`, for the descriptor of this sleeper. */
    psc_status_t (*sleeper_arm)(psc_sleeper_t *sleeper);
    /* Like progress, for the thread that sleeps on this sleeper. The pass does
     * not wake the sleeper, because the thread checks its requests
     * afterwards. */
    unsigned (*sleeper_progress)(psc_sleeper_t *sleeper);

    /* Returns the length of a region according to its packed key, which is not
     * authenticated here. */
    uint64_t (*region_size)(const uint8_t *packed, size_t len);

    /* Block until the request is not ACTIVE, as `wait` does, for a thread that
     * runs call-backs while the program computes: it polls only while no other
     * thread does, and lets threads that call `wait` take what completes.
     * Returns PSC_INPROGRESS if completion_poll or message_poll has something
     * that no other thread has taken. The sleeper's descriptor must not be used
     * meanwhile. */
    psc_status_t (*sleeper_wait)(psc_sleeper_t *sleeper, psc_request_t *request,
                                 int64_t timeout_ns);

    /* Like send, for an iov of psc_layout_pieces. The message is copied once,
     * into memory of the core (counted in copied_bytes), and sent from there:
     * the layout may be changed at once. The message is never lent. */
    psc_status_t (*send_strided)(psc_conn_t *conn, const psc_send_args_t *args,
                                 psc_request_t **request_p);

    /* ---- several buffers in one transfer ---- */
    /* Offer the pieces of args->iov. Fills `packed`, which the caller sends to
     * the peer in a message of its own. *len_p: on entry the room in `packed`,
     * PSC_OFFER_PART_MAX for each piece; on return the offer's length. The
     * request is done when the peer has fetched the pieces; only an offer that
     * was not sent may be cancelled. Returns PSC_ERR_UNSUPPORTED if the
     * connection is not up yet, or for more than PSC_OFFER_PARTS_MAX pieces. */
    psc_status_t (*offer)(psc_conn_t *conn, const psc_send_args_t *args,
                          uint8_t *packed, size_t *len_p,
                          psc_request_t **request_p);
    /* Fetch the pieces that the peer has offered into those of args->iov. An
     * offer can be fetched once. Returns PSC_ERR_PROTOCOL if `packed` is no
     * offer of pieces of these lengths. If args->iov has no piece, the offer is
     * refused: the requests on both sides end with PSC_ERR_NO_MEMORY. */
    psc_status_t (*fetch)(psc_conn_t *conn, const psc_send_args_t *args,
                          const uint8_t *packed, size_t len,
                          psc_request_t **request_p);

    /* ---- collectives ---- */
    /* Create a group of ranks. If a rank is lost, because its process has
     * ended or a member's connection to it has failed, all operations of the
     * group, and all that are started later, end with the reason
     * (PSC_ERR_PEER_LOST), and result.rank is that rank. */
    psc_status_t (*group_create)(psc_worker_t *worker,
                                 const psc_group_args_t *args,
                                 psc_group_t **group_p);
    /* Operations that are under way go on. */
    void (*group_destroy)(psc_group_t *group);
    /* Tell the group its connection to a rank. */
    psc_status_t (*group_connect)(psc_group_t *group, int rank,
                                  psc_conn_t *conn);
    /* Returns the rank whose connection the last coll_start has lacked, or
     * -1. */
    int (*group_wanted)(const psc_group_t *group);
    /* Start a collective. Results as for messages. PSC_ERR_NO_RESOURCE: the
     * lock is held and PSC_FLAG_TRY was given; or group_wanted names a rank
     * whose connection is unknown (group_connect) or lazy. A request with
     * `combine` becomes MATCHED whenever that function is to be called: call
     * coll_call. Such a request must not be freed before it is done. A
     * collective cannot be cancelled. If result.rank sent another length than
     * this rank expects, the request ends with PSC_ERR_TRUNCATED, and
     * result.nbytes has that length. If an error, or `combine`, has stopped
     * another rank, result.rank is that rank, and result.nbytes is
     * PSC_COLL_TOLD. If ranks have called different things
     * (psc_group_args_t.check), the request ends with PSC_ERR_INVALID on all
     * ranks, and result.nbytes is PSC_COLL_DIFFERS. */
    psc_status_t (*coll_start)(psc_group_t *group, const psc_coll_args_t *args,
                               psc_request_t **request_p);
    /* Call `combine` of a MATCHED request once, without the lock. Returns
     * PSC_ERR_INVALID if the request is not MATCHED any more. */
    psc_status_t (*coll_call)(psc_request_t *request);
    /* Describe a collective that is to be started many times. All ranks of a
     * group describe the same ones in the same order, and may start them in
     * different orders. coll_free may be called at any time. */
    psc_status_t (*coll_init)(psc_group_t *group, const psc_coll_args_t *args,
                              psc_persistent_t **persistent_p);
    void (*coll_free)(psc_persistent_t *persistent);
    /* Returns what rank 0 and result.rank have called when ranks last called
     * different things. */
    void (*coll_differs)(const psc_group_t *group, psc_called_t called[2]);
    /* Write which algorithm the collective would use, and a line for each
     * algorithm that there is: its name, and what it is for. Truncated to
     * `room` bytes. Returns PSC_ERR_UNSUPPORTED if there is none of the name
     * that the arguments give. */
    psc_status_t (*coll_explain)(const psc_group_t *group,
                                 const psc_coll_args_t *args, char *text,
                                 size_t room);
    /* Combine args->count elements as the arguments of a reduction say: inout =
     * in (op) inout, where `in` is the operand of the lower ranks. The arrays
     * do not overlap, and are aligned as C requires for the type. Without the
     * lock. Returns PSC_ERR_UNSUPPORTED if the operation has no meaning for the
     * type, or the error of `combine`. */
    psc_status_t (*coll_combine)(const psc_coll_args_t *args, const void *in,
                                 void *inout);

    /* ---- opening connections ---- */
    /* Begin to connect a LAZY connection, of which pscompy.capi has given the
     * address: by conn_call if that is possible, else by the control plane,
     * whose thread is told; Python's GIL is not needed. Operations are queued
     * from now on, and fail with PSC_ERR_CONNECT if connecting fails: then the
     * connection is LAZY again. Returns PSC_OK also if the connection is up or
     * connecting, and the reason if it has ended. */
    psc_status_t (*conn_open)(psc_conn_t *conn, uint32_t flags);
    /* Write why the connection has ended, or could not be opened when that was
     * last tried, as one line of text that ends with 0, truncated to `room`
     * bytes; nothing but the 0 if there is no reason. */
    void (*conn_error)(psc_conn_t *conn, char *text, size_t room);
} psc_api_t;

#endif
