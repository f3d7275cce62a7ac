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
typedef struct psc_follower psc_follower_t;

typedef enum psc_req_kind {
    PSC_REQ_SEND,
    PSC_REQ_RECV,
    PSC_REQ_PROBE,
    PSC_REQ_EVENT,
    PSC_REQ_LOAN /* internal: a view of a peer's memory */
} psc_req_kind_t;

/* The stage of a request. The table in proto.c has the function that advances
 * each stage. */
typedef enum psc_stage {
    PSC_STAGE_IDLE, /* not begun, or waiting for the peer's or fabric's act */
    PSC_STAGE_POSTED, /* recv: in a match queue */
    PSC_STAGE_TAGGED, /* recv: posted to the fabric, which matches it */
    PSC_STAGE_EXPOSED, /* recv: in a match queue, and the peer may take it */
    PSC_STAGE_LANDING, /* recv: taken by the peer, its bytes are being copied */
    PSC_STAGE_CLAIMED, /* recv: matched, its payload is still arriving */
    PSC_STAGE_SEND, /* send: eager or RTS waits for credit, in order */
    PSC_STAGE_SEND_FLIGHT, /* send: eager zcopy, fabric holds the buffer */
    PSC_STAGE_SEND_MARK, /* send: RTS is sent, its mark (proto/tag.h) is not */
    PSC_STAGE_TAG_PUT, /* send: the mark carried the payload, no RTS */
    /* send: copies into a posted receive of the peer, which it has taken */
    PSC_STAGE_PLACING,
    PSC_STAGE_SEND_LATE, /* send: mark met no receive; RTS to be sent */
    PSC_STAGE_AWAIT_RTR, /* send: RTS is sent */
    /* send: its keys are in another message; proto/bundle.h */
    PSC_STAGE_OFFERED,
    PSC_STAGE_PUT, /* send: puts are being issued */
    PSC_STAGE_FRAG, /* send: fragments are being sent */
    PSC_STAGE_FLUSH, /* send: puts issued, not all remotely complete */
    PSC_STAGE_SEND_FIN, /* sender or receiver: FIN to be sent */
    PSC_STAGE_SEND_RTR, /* recv: RTR to be sent */
    PSC_STAGE_AWAIT_DATA, /* recv: puts or FRAGs are in flight */
    PSC_STAGE_GET, /* recv: gets are in flight */
    PSC_STAGE_LENT, /* send: the peer reads the sender's memory */
    PSC_STAGE_SEND_TAKEN, /* loan: TAKEN to be sent */
    PSC_STAGE_HELD, /* loan: its view is in use */
    PSC_STAGE_RMA_REQUEST, /* origin: RMA_PUT or RMA_GET to be sent */
    PSC_STAGE_RMA_DIRECT, /* origin: the fabric executes the put or get */
    PSC_STAGE_AWAIT_FIN, /* origin of a put by messages: all data sent */
    PSC_STAGE_ENDING, /* failed, but its memory can still be accessed */
    PSC_STAGE_DONE,
    PSC_STAGE_COUNT
} psc_stage_t;

/* The remote side's keys, one per lane, as received. */
typedef struct psc_keys {
    psc_rkey_t *key[PSC_LANES_MAX];
} psc_keys_t;

/* One buffer of a request that offers or fetches a list of buffers; see
 * proto/bundle.h. */
typedef struct psc_part {
    uint64_t begin, end; /* the buffer's range in the bytes of all buffers */
    /* where the buffer begins in the memory that the keys open */
    uint64_t offset;
    psc_mem_t *mem[PSC_LANES_MAX];
    psc_keys_t keys;
} psc_part_t;

/* Some bytes of a message, and the lane that has taken them. */
typedef struct psc_span {
    uint64_t offset, len;
    uint8_t lane;
} psc_span_t;

typedef struct psc_spans {
    psc_span_t *at;
    uint32_t n, room;
} psc_spans_t;

/* A transfer in flight, the same for put, get and FRAG, and the state of other
 * operations that are more than an eager message into the buffer of a posted
 * receive. */
typedef struct psc_bulk {
    psc_req_t *req;
    psc_comp_t comp;
    uint64_t remote_id;
    uint64_t len; /* bytes to move */
    uint64_t issued; /* bytes handed to lanes */
    uint64_t arrived; /* receiving: bytes that are in place */
    /* bytes that FRAGs have brought, by lane */
    uint64_t arrived_by[PSC_LANES_MAX];
    /* FRAG: the bytes that spare lanes have taken, and those of them that are
     * to be sent again; see proto/rail.h */
    psc_spans_t taken, again;
    int64_t began; /* GET: when the first get was issued; see proto/rates.h */
    uint32_t inflight; /* operations that their lanes have not completed */
    bool one_lane; /* one-sided: use lane 0 only */
    bool waited; /* an operation did not complete immediately */
    psc_mem_t *mem[PSC_LANES_MAX];
    psc_keys_t keys;
    psc_part_t
        *parts; /* NULL, or one for each piece, in place of mem and keys */
    uint32_t part; /* index of the part that the next byte to move belongs to */
    /* in the connection's work queue, or in the worker's ends.revoking */
    psc_link_t work_link;
    struct {
        uint64_t region, nonce, offset;
    } rma;
    /* send: the header length of an active message, else 0; see message.h */
    uint16_t aux;
    /* Internal requests: called instead of notifying a consumer. If the
     * function clears on_done, the request passes to its consumer. */
    void (*on_done)(psc_req_t *req);
    void *payload; /* internal: memory that on_done takes over */
    /* internal: in the list `accesses` of the region's psc_target_t */
    psc_link_t access_link;
    /* what the transport needs of the receive: `tagged` in stage TAGGED,
     * `shown` in EXPOSED and LANDING */
    union {
        psc_tag_recv_t tagged;
        psc_exposed_t shown;
    };
} psc_bulk_t;

/* A request. Small, because a program may have very many posted receives: state
 * that they do not need belongs to psc_bulk_t, and members that are never
 * needed together share their place. */
struct psc_req {
    psc_request_t head; /* first: the part that consumers see. result.tag is
                           the tag of the operation until it matches */
    union {
        /* POSTED, TAGGED and EXPOSED: source as posted, NULL for any */
        psc_conn_t *source;
        /* MATCHED: the message that waits for a buffer. CLAIMED: the message
         * that is still arriving. A receive that gives its message back: the
         * record of that message. Else NULL. */
        psc_unexp_t *unexp;
    };
    /* POSTED, TAGGED and EXPOSED: in a match queue. Afterwards, and for all
     * others: in the connection's active. Free: in the pool. */
    psc_link_t link;
    union {
        psc_link_t bucket; /* POSTED and EXPOSED: see proto/match_list.h */
        struct { /* all other stages */
            /* in the completion queue or the list of freed requests */
            psc_req_t *next;
            /* send: destination; recv: source, once known; else NULL */
            psc_conn_t *conn;
        };
    };
    /* The waiting thread to wake when the request's state changes; NULL while
     * the request is free. */
    psc_follower_t *follower;
    union {
        psc_iov_t piece; /* n_iov == 1 */
        struct {
            psc_iov_t *pieces; /* n_iov > 1 */
            uint64_t total; /* bytes in all pieces; in the place of piece.len */
        };
    };
    psc_bulk_t *bulk; /* never NULL; see psc_req_extend */
    uint32_t generation;
    uint32_t n_iov;
    uint16_t context;
    atomic_uchar holds; /* PSC_HELD_BY_ bits; see completion.h */
    uint8_t slot; /* the request's index in its chunk */
    uint8_t kind; /* psc_req_kind_t */
    uint8_t stage; /* psc_stage_t */
    int8_t error; /* psc_status_t; set if it failed with operations in flight */
    bool in_use : 1;
    /* The consumer is inside a call that will return the result if the request
     * ends in time: no notification is needed. */
    bool inside : 1;
    /* put by messages: the receiver sends a FIN at the end, and the sender
     * waits for it */
    bool confirm : 1;
    bool exposed : 1; /* the peer has keys to write into the request's memory */
};

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "total is piece.len");
_Static_assert(sizeof(psc_req_t) <= 144, "a posted receive is small");

/* Requests are allocated in chunks, which never move. */
#define PSC_REQ_CHUNK 16u

typedef struct psc_req_chunk {
    psc_worker_t *worker;
    uint32_t first; /* index of its first request in the pool */
    psc_req_t requests[PSC_REQ_CHUNK];
} psc_req_chunk_t;

static inline psc_req_chunk_t *psc_req_chunk(const psc_req_t *req)
{
    return psc_container_of(req - req->slot, psc_req_chunk_t, requests);
}

static inline psc_worker_t *psc_req_worker(const psc_req_t *req)
{
    return psc_req_chunk(req)->worker;
}

static inline const psc_iov_t *psc_req_iov(const psc_req_t *req)
{
    return req->n_iov > 1 ? req->pieces : &req->piece;
}

/* The only function that changes a request's stage. */
static inline void psc_req_stage_set(psc_req_t *req, psc_stage_t stage)
{
    req->stage = stage;
}

/* Returns true if an eager message of this length fits into the receive's
 * memory. If not, the receive waits for recv_supply. */
static inline bool psc_req_has_room(const psc_req_t *req, uint64_t len)
{
    return !(req->head.flags & PSC_FLAG_NO_BUFFER) ||
           (req->n_iov && len <= req->total);
}

#endif
