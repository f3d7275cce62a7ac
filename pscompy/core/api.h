/* psc_api_t: the one table through which everything outside the core uses it
 * from C: the hot extension, the gateway's data path, C programs.
 *
 * Unless a comment says otherwise a function takes the worker's lock itself,
 * never blocks for the network, and may be called from any thread, with or
 * without the GIL. PSC_FLAG_TRY makes it return PSC_ERR_NO_RESOURCE instead of
 * waiting for a lock that another thread holds: whoever holds the GIL passes
 * it, and on that answer drops the GIL and calls again without it. */
#ifndef PSCOMPY_CORE_API_H
#define PSCOMPY_CORE_API_H

#include <stdbool.h>

#include "pscompy/transport/transport.h"

#define PSC_API_ABI 8u
#define PSC_API_CAPSULE "pscompy.core._api"

#define PSC_ANY_TAG (-1)
#define PSC_TAG_MAX INT32_MAX
#define PSC_FOREVER INT64_MAX /* a timeout in ns; 0 polls once */

/* Contexts separate traffic that must never match. */
#define PSC_CONTEXT_PLAIN 1u     /* connections outside a World */
#define PSC_CONTEXT_USER 4u      /* first of those that Worlds hand out */
#define PSC_CONTEXT_END 0x3ffeu  /* what they hand out stays below */
/* Added to one of the above: objects, their long buffers, calls of actions.
 * Each of the above has the next number for itself, too: its answers are the
 * objects there. */
#define PSC_CONTEXT_OBJECTS 0x4000u
#define PSC_CONTEXT_CHUNKS 0x8000u
#define PSC_CONTEXT_ACTIONS 0xc000u
#define PSC_CONTEXT_AM 0xfffeu   /* user's active messages */
#define PSC_CONTEXT_RMA 0xffffu  /* put and get where no lane has them */

typedef struct psc_worker psc_worker_t;
typedef struct psc_conn psc_conn_t;
typedef struct psc_region psc_region_t;
typedef struct psc_sleeper psc_sleeper_t;

/* CDEF BEGIN */
typedef enum psc_conn_state {
    PSC_CONN_LAZY,       /* a record; the first use connects */
    PSC_CONN_CONNECTING, /* sends queue up */
    PSC_CONN_UP,
    PSC_CONN_CLOSING, /* close was called here; what is queued still goes */
    PSC_CONN_CLOSED, /* ended in order, by either side */
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
    uint64_t nbytes; /* the message's true length */
    uint64_t source; /* receives and probes: the connection's id, which says
                        who it was even when the connection is gone; else 0 */
    int32_t rank; /* the source's, -1 outside a World */
    uint64_t order; /* receives: the message's place among all that arrived,
                       for recv_return */
} psc_result_t;

/* The public head of a request. Everything but `owner` is the core's to
 * write; result is valid once state says MATCHED or DONE. */
typedef struct psc_request {
    int state; /* psc_request_state_t, read with psc_request_state() */
    uint32_t flags;
    void *owner; /* the consumer's, untouched by the core */
    psc_result_t result;
} psc_request_t;

static inline int psc_request_state(const psc_request_t *request)
{
    return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
}

#define PSC_FLAG_TRY 0x1u /* do not wait for the lock */
#define PSC_FLAG_NOTIFY                                                        \
    0x2u /* put it on the completion queue when done                           \
            or matched; see completion_poll */
#define PSC_FLAG_NO_BUFFER                                                     \
    0x4u /* receive: learn the length first, unless                            \
            the message is eager and fits into iov */

#define PSC_FLAG_LEND                                                          \
    0x8u /* send: hand out the pages themselves, if they are                   \
            the pool's; done when no view of them is left */

/* Memory of a worker's pool. */
typedef struct psc_block {
    void *base;
    size_t nbytes;
} psc_block_t;

/* A message where its sender has it: nobody writes to it meanwhile. */
typedef struct psc_view {
    const void *base;
    size_t nbytes;
} psc_view_t;

typedef struct psc_recv_args {
    psc_conn_t *source; /* NULL: any connection of the worker */
    uint32_t context;
    int32_t tag; /* PSC_ANY_TAG, or 0 ... PSC_TAG_MAX */
    const psc_iov_t *iov;
    size_t n_iov;
    uint32_t flags;
    void *owner;
    unsigned polls; /* recv: passes to wait for it before a request is left */
} psc_recv_args_t;

typedef struct psc_send_args {
    uint32_t context;
    int32_t tag;
    const psc_iov_t *iov; /* the pieces make one message */
    size_t n_iov;
    uint32_t flags;
    void *owner;
} psc_send_args_t;

/* A user's active message as a handler sees it; gone on return. One that was
 * queued keeps its source until message_free. */
typedef struct psc_message {
    psc_conn_t *source;
    uint32_t id;
    const void *header; /* aligned to 16, if the message was queued */
    size_t header_len;
    const void *payload;
    size_t len;
} psc_message_t;

/* Runs inside progress with the worker's lock held: it may call am_post on
 * any worker and nothing else of this table. */
typedef void (*psc_am_handler_t)(void *arg, const psc_message_t *message);

typedef enum psc_wait_mode { PSC_WAIT_ALL, PSC_WAIT_ANY } psc_wait_mode_t;

typedef struct psc_api {
    uint32_t abi; /* PSC_API_ABI */
    uint32_t size; /* sizeof(psc_api_t) */

    /* ---- messages ----
     * PSC_OK: done, no request was made, buffers may be reused.
     * PSC_INPROGRESS: *request_p was made; the buffers (not the iov array)
     * belong to the library until it is done; end it with request_free.
     * Errors: nothing was started. PSC_ERR_NO_RESOURCE: the connection, or
     * that which a receive or probe names, is lazy: begin to open it (its
     * connecting may have failed since); or PSC_FLAG_TRY, and the lock is
     * taken. */
    psc_status_t (*send)(psc_conn_t *conn, const psc_send_args_t *args,
                         psc_request_t **request_p);
    /* PSC_OK and PSC_ERR_TRUNCATED fill *result_p and make no request. With
     * args->polls it polls so often for the message, and goes on sooner when
     * another thread wants the lock. */
    psc_status_t (*recv)(psc_worker_t *worker, const psc_recv_args_t *args,
                         psc_result_t *result_p, psc_request_t **request_p);
    /* Give a MATCHED receive its buffer. PSC_OK: the request is done (result
     * in the request), and its end is not notified; PSC_INPROGRESS: its state
     * is ACTIVE again, and its end will be notified as that of others. */
    psc_status_t (*recv_supply)(psc_request_t *request, const psc_iov_t *iov,
                                size_t n_iov);
    /* Completes with the tag, length and source of a message that a receive
     * with these arguments would get; takes nothing. PSC_OK: there is one. */
    psc_status_t (*probe)(psc_worker_t *worker, const psc_recv_args_t *args,
                          psc_result_t *result_p, psc_request_t **request_p);
    /* Look once: PSC_OK, or PSC_INPROGRESS when there is none. */
    psc_status_t (*iprobe)(psc_worker_t *worker, const psc_recv_args_t *args,
                           psc_result_t *result_p);

    /* ---- requests ---- */
    /* PSC_OK: taken back, done with CANCELLED. A MATCHED receive gives its
     * message back to the queue, at its old place. PSC_ERR_INVALID: too
     * late. */
    psc_status_t (*cancel)(psc_request_t *request);
    /* The same for a receive whose message nobody will look at, also when it is
     * on its way into the buffer. PSC_INPROGRESS: the message has its old place
     * in the queue again, where it arrives later; the buffer belongs to the
     * library until the request is done, with CANCELLED. PSC_ERR_INVALID: it
     * has ended (see recv_return), it is no receive, or its message is not
     * known yet, because a fabric has matched it and has not said so. */
    psc_status_t (*recv_give_up)(psc_request_t *request);
    /* The message of a receive that has ended goes back to its old place, as a
     * copy of what iov holds of it. result and context are the receive's.
     * CLOSED: its connection has been destroyed, with all that came from it. */
    psc_status_t (*recv_return)(psc_worker_t *worker, uint32_t context,
                                const psc_result_t *result,
                                const psc_iov_t *iov, size_t n_iov);
    /* Forget it; an unfinished one completes on its own and is then freed. One
     * that is DONE is freed without the worker's lock. */
    void (*request_free)(psc_request_t *request);
    /* A request that somebody completes by hand. */
    psc_status_t (*event_create)(psc_worker_t *worker, uint32_t flags,
                                 void *owner, psc_request_t **request_p);
    void (*event_complete)(psc_request_t *request, psc_status_t status);

    /* ---- progress and waiting ----
     * A thread that sleeps outside the core does so on a descriptor: it looks
     * at its requests, arms, and sleeps. The rule that loses no wake-up:
     *  - Arming says that the descriptor becomes readable when progress would
     *    find something, when a request has ended or matched, when
     *    completion_poll or message_poll has something, and for `wake`.
     *  - Every pass of another thread uses that up. Before its call returns,
     *    and before it sleeps, that thread arms in the sleeper's place, or
     *    makes the descriptor readable.
     *  - Arming fails if any of this has happened since the sleeper last
     *    looked: since its last arming that failed, or its last
     *    sleeper_progress. Then look again, and arm again.
     * So a sleeper may look before it arms, or after. A descriptor belongs to
     * one thread at a time: arming makes it silent again. */
    /* One pass over all interfaces; how many events. With PSC_FLAG_TRY: 0 if
     * another thread is at it. */
    unsigned (*progress)(psc_worker_t *worker, uint32_t flags);
    /* Poll until the request is not ACTIVE, at most `polls` passes. For the
     * GIL's holder: never sleeps. */
    bool (*spin)(psc_worker_t *worker, psc_request_t *request, unsigned polls);
    /* Poll (without the GIL) for at most `ns`, as long as that pays and nobody
     * else polls; never sleeps. True: the request is not ACTIVE. Ends early
     * when completion_poll or message_poll has something. */
    bool (*linger)(psc_worker_t *worker, psc_request_t *request, int64_t ns);
    /* For the thread that sleeps on `descriptor`, or on a set that holds it.
     * PSC_OK: armed; PSC_ERR_NO_RESOURCE: something is there, or has happened:
     * call progress, and look. */
    psc_status_t (*arm)(psc_worker_t *worker);
    /* Block (without the GIL) until all or any of the requests are not
     * ACTIVE. PSC_OK, PSC_ERR_TIMEOUT, PSC_ERR_INTERRUPTED (look for signals
     * and call again), PSC_INPROGRESS (completion_poll or message_poll has
     * something; call again afterwards). Spins, then sleeps. */
    psc_status_t (*wait)(psc_worker_t *worker, psc_request_t *const *requests,
                         size_t n, psc_wait_mode_t mode, int64_t timeout_ns);
    /* Next request with PSC_FLAG_NOTIFY that is done or matched, or NULL.
     * Without the worker's lock; one thread at a time. */
    psc_request_t *(*completion_poll)(psc_worker_t *worker);
    /* Whoever is in `wait` returns PSC_ERR_INTERRUPTED at once; `descriptor`
     * is readable, if armed. */
    void (*wake)(psc_worker_t *worker);
    /* True if completion_poll or message_poll has something: two loads. */
    bool (*pending)(psc_worker_t *worker);

    /* ---- active messages ----
     * An id of 0 ... PSC_TAG_MAX; any payload length. */
    psc_status_t (*am_send)(psc_conn_t *conn, uint32_t id, const void *header,
                            size_t header_len, const psc_send_args_t *args,
                            psc_request_t **request_p);
    /* am_send for handlers: copies, never waits for a lock (what it cannot do
     * now the target's progress does), has no request. As with am_send
     * NO_RESOURCE says that the connection is lazy; what was taken and cannot
     * leave, because the connection ended meanwhile, is counted (am_unsent). */
    psc_status_t (*am_post)(psc_conn_t *conn, uint32_t id, const void *header,
                            size_t header_len, const void *payload, size_t len);
    /* handler NULL with arg NULL: none; messages without handler are counted
     * and dropped. handler NULL with arg non-NULL: queue for message_poll. */
    psc_status_t (*am_handler)(psc_worker_t *worker, uint32_t id,
                               psc_am_handler_t handler, void *arg);
    /* Next queued message, or NULL; ends with message_free. */
    psc_message_t *(*message_poll)(psc_worker_t *worker);
    void (*message_free)(psc_worker_t *worker, psc_message_t *message);

    /* ---- remote memory ---- */
    psc_status_t (*region_create)(psc_worker_t *worker, void *base, size_t len,
                                  psc_region_t **region_p);
    /* Refuses accesses from now on, also those that have begun. Returns when
     * nobody writes or reads the memory any more: it waits for a peer that is
     * in the middle of a copy, and for a get that a lane is sending. */
    void (*region_destroy)(psc_region_t *region);
    /* *len_p: in, the room; out, the length. */
    psc_status_t (*region_pack)(psc_region_t *region, uint8_t *packed,
                                size_t *len_p);
    /* Both complete when the bytes are visible at their destination. packed is
     * the peer's region_pack, ERR_KEY if it is none or was altered; args->iov
     * the local buffer (one piece; nothing is sent for an empty one). What
     * exceeds the region is ERR_BOUNDS. */
    psc_status_t (*put)(psc_conn_t *conn, const psc_send_args_t *args,
                        const uint8_t *packed, size_t packed_len,
                        uint64_t offset, psc_request_t **request_p);
    psc_status_t (*get)(psc_conn_t *conn, const psc_send_args_t *args,
                        const uint8_t *packed, size_t packed_len,
                        uint64_t offset, psc_request_t **request_p);

    /* ---- connections ---- */
    int (*conn_state)(const psc_conn_t *conn); /* psc_conn_state_t */
    uint64_t (*conn_id)(const psc_conn_t *conn); /* given by its creator */
    int (*conn_rank)(const psc_conn_t *conn); /* -1 outside a World */
    /* How many messages name it as their source: those for message_poll, until
     * message_free. */
    unsigned (*conn_messages)(const psc_conn_t *conn);
    psc_worker_t *(*conn_worker)(const psc_conn_t *conn);

    /* ---- memory that the transports know ----
     * Blocks and views may outlive the worker, and are freed by any thread. In
     * a forked child that does nothing. */
    /* A block of whole pages. NO_RESOURCE: the pool is exhausted (counted), or
     * with PSC_FLAG_TRY: it would have to wait. */
    psc_status_t (*block_alloc)(psc_worker_t *worker, size_t nbytes,
                                uint32_t flags, psc_block_t **block_p);
    void (*block_free)(psc_block_t *block);
    /* Take the message of a MATCHED receive as it is. PSC_OK: the request is
     * done, and the sender's will be when the view is freed. UNSUPPORTED: it
     * was not lent, or cannot be mapped here; recv_supply a buffer. */
    psc_status_t (*recv_view)(psc_request_t *request, psc_view_t **view_p);
    void (*view_free)(psc_view_t *view);

    /* ---- other event loops ----
     * Pollable, and the same for as long as the worker is there; for one
     * thread, which calls `arm` before it sleeps. -1: no descriptors left. */
    int (*descriptor)(psc_worker_t *worker);
    /* For several threads, each has a descriptor of its own. It is there until
     * the sleeper is released, and stays readable once the worker has ended;
     * then nothing but release may be called. */
    psc_status_t (*sleeper_create)(psc_worker_t *worker,
                                   psc_sleeper_t **sleeper_p);
    /* worker: its own, or NULL once that ends or has ended. */
    void (*sleeper_release)(psc_worker_t *worker, psc_sleeper_t *sleeper);
    int (*sleeper_descriptor)(const psc_sleeper_t *sleeper);
    psc_status_t (*sleeper_arm)(psc_sleeper_t *sleeper); /* as `arm` */
    /* As progress, by the thread that sleeps on it and is awake: it looks at
     * its requests afterwards, and is not woken for this pass. */
    unsigned (*sleeper_progress)(psc_sleeper_t *sleeper);

    /* Bytes of a region, as its packed key says, which is not checked. */
    uint64_t (*region_size)(const uint8_t *packed, size_t len);
} psc_api_t;

#endif
