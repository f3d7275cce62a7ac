/* A request: one posted operation. request.h has the pool of them. */
#ifndef PSCOMPY_CORE_TYPES_REQUEST_H
#define PSCOMPY_CORE_TYPES_REQUEST_H

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/iov.h"
#include "pscompy/transport/kit/list.h"
#include "../wire.h"

typedef struct psc_req psc_req_t;
typedef struct psc_unexp psc_unexp_t;

typedef enum psc_req_kind {
    PSC_REQ_SEND,
    PSC_REQ_RECV,
    PSC_REQ_PROBE,
    PSC_REQ_EVENT,
    PSC_REQ_LOAN /* internal: a view of a peer's memory */
} psc_req_kind_t;

/* Where a request stands. proto.c has the table: what moves each stage. */
#define PSC_STAGE_LIST(X)                                                      \
    X(IDLE)        /* not begun, or waiting for nothing of ours */             \
    X(POSTED)      /* recv: in a match queue */                                \
    X(TAGGED)      /* recv: the fabric matches it */                           \
    X(CLAIMED)     /* recv: matched, its payload is still arriving */          \
    X(SEND)        /* send: eager or RTS, as credits allow, in order */        \
    X(SEND_FLIGHT) /* send: eager zcopy, fabric holds the buffer */            \
    X(SEND_MARK)   /* send: RTS is out, its mark is not */                     \
    X(ALONG)       /* send: the mark took the message along, without RTS */    \
    X(SEND_LATE)   /* send: in vain; the RTS waits to leave */                 \
    X(AWAIT_RTR)   /* send: RTS is out */                                      \
    X(PUT)         /* send: putting */                                         \
    X(FRAG)        /* send: fragmenting */                                     \
    X(FLUSH)       /* send: puts issued, not yet all visible */                \
    X(SEND_FIN)    /* either: FIN waits to leave */                            \
    X(SEND_RTR)    /* recv: RTR waits to leave */                              \
    X(AWAIT_DATA)  /* recv: puts or FRAGs are under way */                     \
    X(GET)         /* recv: getting */                                         \
    X(LENT)        /* send: the peer reads it where it is */                   \
    X(SEND_TAKEN)  /* loan: TAKEN waits to leave */                            \
    X(HELD)        /* loan: its view is alive */                               \
    X(RMA_REQUEST) /* origin: RMA_PUT or RMA_GET waits to leave */             \
    X(RMA_DIRECT)  /* origin: the fabric does it */                            \
    X(AWAIT_FIN)   /* origin of a put by messages: all sent */                 \
    X(ENDING)      /* either: it failed, and its memory is still reached */    \
    X(DONE)

typedef enum psc_stage {
#define PSC_STAGE_ENUM(name) PSC_STAGE_##name,
    PSC_STAGE_LIST(PSC_STAGE_ENUM)
#undef PSC_STAGE_ENUM
        PSC_STAGE_COUNT
} psc_stage_t;

/* The remote side's keys, one per lane, as they came. */
typedef struct psc_keys {
    psc_rkey_t *key[PSC_LANES_MAX];
} psc_keys_t;

/* Large data on its way: the same for put, get and FRAG. */
typedef struct psc_bulk {
    uint64_t remote_id;
    uint64_t len;      /* bytes to move */
    uint64_t issued;   /* handed to lanes */
    uint64_t arrived;  /* receiving: bytes that are in place */
    uint32_t inflight; /* operations that a lane has not completed */
    bool one_lane;     /* one-sided: lane 0 only */
    bool waited;       /* for an operation that did not end at once */
    psc_mem_t *mem[PSC_LANES_MAX];
    psc_keys_t keys;
} psc_bulk_t;

struct psc_req {
    psc_request_t head; /* first: what consumers see */
    psc_worker_t *worker;
    psc_conn_t *conn;   /* send: to; recv: from, once known */
    psc_link_t link;       /* match queue, or the connection's work queue */
    psc_link_t conn_link;  /* everything outstanding of the connection */
    psc_req_t *next;       /* completion queue, or freed requests */
    atomic_uint holds;     /* PSC_HELD_BY_ bits; see completion.h */
    uint32_t index, generation;
    psc_req_kind_t kind;
    psc_stage_t stage;
    uint32_t context;
    int32_t tag;
    uint16_t aux;
    bool in_use;
    bool inside;     /* its consumer is inside a call that will return its end
                        if it has ended: nobody is notified of it */
    bool urgent;     /* in the urgent work queue rather than the ordered */
    bool confirm;    /* put by messages: the sender waits for a FIN at the
                        end, the receiver sends it */
    bool exposed;    /* the peer has keys by which it may write into it */
    psc_status_t error; /* set when it failed with operations in flight */
    uint64_t order;  /* receives: when it was posted */
    psc_conn_t *source; /* receives: as posted, NULL for any */
    psc_iov_t iov_room[2];
    psc_iov_t *iov;
    size_t n_iov;
    uint64_t total;  /* bytes in iov */
    psc_comp_t comp;
    psc_bulk_t bulk;
    psc_unexp_t *unexp; /* MATCHED: the message that waits for a buffer;
                           CLAIMED: the message that is still arriving; a
                           receive that gives its message back: its record */
    /* Internal requests: called instead of telling a consumer. A function that
     * clears on_done leaves the request to its consumer. */
    void (*on_done)(psc_req_t *req);
    struct {
        uint64_t region, nonce, offset;
    } rma;
    void *payload; /* internal: memory that on_done hands on */
    psc_link_t access_link; /* internal: in the list of its region */
    psc_tag_recv_t tagged; /* stage TAGGED */
};

/* Whether an eager message of this length goes into the memory that the receive
 * has; else it waits for recv_supply. */
static inline bool psc_req_has_room(const psc_req_t *req, uint64_t len)
{
    return !(req->head.flags & PSC_FLAG_NO_BUFFER) ||
           (req->n_iov && len <= req->total);
}

#endif
