/* A request: one posted operation. request.h has the pool of them. */
#pragma once

#include <stdatomic.h>

#include "../api.h"
#include "pscompy/transport/kit/check.h"
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
    PSC_REQ_LOAN, /* internal: a view of a peer's memory */
    PSC_REQ_COLLECTIVE
} psc_req_kind_t;

/* The stage of a request. The table in proto.c has the function that advances
 * each stage. */
typedef enum psc_stage {
    PSC_STAGE_IDLE, /* not begun, or waiting for the peer or the fabric */
    PSC_STAGE_POSTED, /* recv: in a match queue */
    /* recv: in a match queue, and handed out to a protocol, by which a message
     * may meet it (psc_proto_t.offer) */
    PSC_STAGE_HANDED,
    /* recv: it was handed out, and has left the match queue: a message has met
     * it and is being copied into its buffer, or the protocol has not given it
     * back yet */
    PSC_STAGE_LANDING,
    /* recv: matched; the message's payload or RTS is still arriving */
    PSC_STAGE_CLAIMED,
    /* send: the eager message or the RTS is not sent yet; sends leave in
     * order */
    PSC_STAGE_SEND,
    /* send: eager, without copy; the fabric still reads the buffer */
    PSC_STAGE_SEND_FLIGHT,
    PSC_STAGE_SEND_MARK, /* send: RTS is sent, its mark (proto/tag.h) is not */
    /* send: the payload was sent with the match bits of the mark, in place of
     * mark and RTS (tag_put, proto/tag.h); the fabric has not reported yet
     * whether the payload met a posted receive */
    PSC_STAGE_TAG_PUT,
    /* send: has claimed a receive that the peer advertised, and the payload is
     * being copied into it (proto/tuple.h) */
    PSC_STAGE_PLACING,
    /* send: the payload of a TAG_PUT met no posted receive; the RTS is to be
     * sent */
    PSC_STAGE_SEND_LATE,
    /* send: RTS is sent, and the peer has not answered yet */
    PSC_STAGE_AWAIT_RTR,
    /* send: the request's keys travel in a message of the program;
     * proto/bundle.h */
    PSC_STAGE_OFFERED,
    PSC_STAGE_PUT, /* send: puts are being issued */
    PSC_STAGE_FRAG, /* send: fragments are being sent */
    /* send: all puts were issued; not all are visible at the target yet */
    PSC_STAGE_FLUSH,
    PSC_STAGE_SEND_FIN, /* sender or receiver: FIN to be sent */
    PSC_STAGE_SEND_RTR, /* recv: RTR to be sent */
    PSC_STAGE_AWAIT_DATA, /* recv: puts or FRAGs are in flight */
    PSC_STAGE_GET, /* recv: gets are in flight */
    PSC_STAGE_LENT, /* send: the peer reads the sender's memory */
    PSC_STAGE_SEND_TAKEN, /* loan (PSC_REQ_LOAN): TAKEN to be sent */
    PSC_STAGE_HELD, /* loan (PSC_REQ_LOAN): the program uses the view */
    PSC_STAGE_RMA_REQUEST, /* origin: RMA_PUT or RMA_GET to be sent */
    PSC_STAGE_RMA_DIRECT, /* origin: the fabric executes the put or get */
    /* send: all data was sent as FRAGs, and the FIN that confirms it has not
     * arrived */
    PSC_STAGE_AWAIT_FIN,
    /* the request has failed, but its memory can still be accessed */
    PSC_STAGE_ENDING,
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
    /* offset of the buffer in the memory that the keys open */
    uint64_t offset;
    psc_mem_t *mem[PSC_LANES_MAX];
    psc_keys_t keys;
} psc_part_t;

/* A range of a message's bytes, and the lane to which they were given. */
typedef struct psc_span {
    uint64_t offset, len;
    uint8_t lane;
} psc_span_t;

typedef struct psc_spans {
    psc_span_t *at;
    uint32_t n, capacity;
} psc_spans_t;

/* The state of a long transfer, by put, get or FRAGs. Other operations that
 * need more state than an eager message into a posted receive use it, too. */
typedef struct psc_bulk {
    psc_req_t *req;
    psc_comp_t comp;
    uint64_t remote_id;
    uint64_t len; /* bytes that the transfer is to move */
    uint64_t issued; /* bytes handed to lanes */
    uint64_t arrived; /* receiving: bytes that have arrived */
    /* bytes that FRAGs have brought, by lane */
    uint64_t arrived_by[PSC_LANES_MAX];
    /* taken: the bytes that were given to spare lanes (psc_lane_spare), as
     * FRAGs or as puts and gets that are in flight. again: the bytes that are
     * to be moved again, because their lane was lost. See proto/rail.h. */
    psc_spans_t taken, again;
    /* in the stage GET: when the first get was issued; see proto/rates.h */
    int64_t began;
    /* number of operations that their lanes have not completed */
    uint32_t inflight;
    /* the transfer serves a put or get of the program, and uses the main lane
     * only */
    bool one_lane;
    bool waited; /* an operation did not complete immediately */
    /* the spare lanes for which there is no key, or whose key the peer's fabric
     * has refused, as bits by their indices: they get no more pieces */
    uint8_t refused;
    psc_mem_t *mem[PSC_LANES_MAX];
    psc_keys_t keys;
    /* For a list of buffers: an array with one part for each, which has the
     * buffer's registrations and keys in place of `mem` and `keys`. Else
     * NULL. */
    psc_part_t *parts;
    uint32_t part; /* index of the part that the next byte to move belongs to */
    /* link in a work queue of the connection, or in the worker's
     * ends.revoking */
    psc_link_t work_link;
    struct {
        uint64_t region, nonce, offset;
    } rma;
    /* send: the header length of an active message, else 0; see message.h */
    uint16_t aux;
    /* In the stages TAG_PUT and SEND_LATE: the number of the placeholder
     * (proto/tag.h) */
    uint32_t number;
    /* Internal requests: called instead of notifying a consumer. If the
     * function sets on_done to NULL, the request's consumer is notified after
     * all. */
    void (*on_done)(psc_req_t *req);
    void *payload; /* internal requests: memory that on_done takes over */
    /* internal requests: link in the list `accesses` of the region's
     * psc_target_t */
    psc_link_t access_link;
    /* In the stages HANDED and LANDING, and in ENDING if the stage before was
     * one of these: the transport's record of the receive, `tagged` if the
     * fabric matches it, `advert` if the peer sees it. Use psc_req_tagged() and
     * psc_req_shown(), except to fill in the record before the stage begins. */
    union {
        psc_tag_recv_t tagged;
        psc_exposed_t advert;
    } record;
} psc_bulk_t;

/* A request. It is small, because a program may have very many posted receives.
 * State that posted receives do not need belongs to psc_bulk_t, and members
 * that are never needed together share their place. */
struct psc_req {
    /* The first member: the part that consumers see. Until the request matches
     * a message, result.tag is the tag that the operation names. */
    psc_request_t head;
    /* Use psc_req_source() and psc_req_unexp(). */
    union {
        /* In a receive or probe in the stages POSTED and HANDED, and just
         * before: the connection that it names as its source, NULL for any */
        psc_conn_t *source;
        /* In the state MATCHED: the message that waits for a buffer. In the
         * stage CLAIMED: the message that is still arriving. In a receive that
         * requeues its message: the record of that message. In stage LANDING:
         * the message that waits for the peer's answer. Else NULL, also in all
         * sends. */
        psc_unexp_t *unexp;
    } partner;
    /* In the stages POSTED and HANDED: the link in a match queue.
     * In all other stages: the link in the list `active` of the connection.
     * While the request is free: the link in the pool's list. */
    psc_link_t link;
    /* Use psc_req_conn() and psc_req_set_conn(). */
    union {
        /* In the stages POSTED and HANDED: the link in a bucket of the
         * index of a psc_match_list_t (proto/match.h) */
        psc_link_t bucket;
        struct { /* the members for all other stages */
            /* the next request in the completion queue or in the list of freed
             * requests; only completion.h and the pool use it */
            psc_req_t *next;
            /* send: destination; recv: source, once known; else NULL */
            psc_conn_t *conn;
        } other;
    } place;
    /* The waiting thread to wake when the request's state changes; NULL while
     * the request is free. */
    psc_follower_t *follower;
    /* Use psc_req_iov(), psc_req_piece() and psc_req_total(). */
    union {
        psc_iov_t piece; /* the only piece, if n_iov is 1 */
        struct {
            psc_iov_t *pieces; /* the pieces, if n_iov is more than 1 */
            /* bytes in all pieces together; shares its place with piece.len */
            uint64_t total;
        } list;
    } memory;
    /* never NULL: a request without a psc_bulk_t of its own has a shared one,
     * all zero; see psc_req_extend */
    psc_bulk_t *bulk;
    uint32_t generation;
    uint32_t context;
    uint32_t n_iov : 21; /* at most PSC_IOV_MAX */
    uint32_t kind : 3; /* psc_req_kind_t */
    /* psc_status_t; set if the request failed while operations were in
     * flight */
    int32_t error : 8;
    atomic_uchar holds; /* PSC_HELD_BY_ bits; see completion.h */
    uint8_t slot; /* the request's index in its psc_req_chunk_t */
    uint8_t stage; /* psc_stage_t */
    bool in_use : 1;
    /* The consumer is inside a call that will return the result if the request
     * ends in time, so that no notification is needed. */
    bool inside : 1;
    /* the receiver of the transfer confirms it by a FIN, for which the sender
     * waits */
    bool confirm : 1;
    /* the peer has keys to write into the request's memory */
    bool remote_writable : 1;
    bool open : 1; /* `partner` is the source; in debug builds only */
    bool listed : 1; /* `place` is the bucket; in debug builds only */
};

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "total is piece.len");
_Static_assert(PSC_IOV_MAX < 1u << 21, "n_iov has 21 bits");
_Static_assert(sizeof(psc_req_t) <= 144, "a posted receive is small");

/* Requests are allocated in chunks, which never move. */
#define PSC_REQ_CHUNK 8u

typedef struct psc_req_chunk {
    psc_worker_t *worker;
    uint32_t first; /* index in the pool of the chunk's first request */
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
    return req->n_iov > 1 ? req->memory.list.pieces : &req->memory.piece;
}

/* Returns the only piece. */
static inline const psc_iov_t *psc_req_piece(const psc_req_t *req)
{
    psc_assert(req->n_iov == 1);
    return &req->memory.piece;
}

/* Returns the bytes in all pieces together. */
static inline uint64_t psc_req_total(const psc_req_t *req)
{
    return req->memory.list.total;
}

static inline void psc_req_set_open(psc_req_t *req, bool open)
{
#ifdef PSC_DEBUG
    req->open = open;
#else
    (void)req;
    (void)open;
#endif
}

/* The request has entered a psc_match_list_t, or has left it. */
static inline void psc_req_set_listed(psc_req_t *req, bool listed)
{
#ifdef PSC_DEBUG
    req->listed = listed;
#else
    (void)req;
    (void)listed;
#endif
}

static inline psc_conn_t *psc_req_conn(const psc_req_t *req)
{
    psc_assert(!req->listed);
    return req->place.other.conn;
}

static inline void psc_req_set_conn(psc_req_t *req, psc_conn_t *conn)
{
    psc_assert(!req->listed);
    req->place.other.conn = conn;
}

static inline psc_conn_t *psc_req_source(const psc_req_t *req)
{
    psc_assert(req->open);
    return req->partner.source;
}

static inline void psc_req_set_source(psc_req_t *req, psc_conn_t *source)
{
    req->partner.source = source;
    psc_req_set_open(req, true);
}

static inline psc_unexp_t *psc_req_unexp(const psc_req_t *req)
{
    psc_assert(!req->open);
    return req->partner.unexp;
}

static inline void psc_req_set_unexp(psc_req_t *req, psc_unexp_t *unexp)
{
    req->partner.unexp = unexp;
    psc_req_set_open(req, false);
}

static inline psc_tag_recv_t *psc_req_tagged(const psc_req_t *req)
{
    psc_assert(req->stage == PSC_STAGE_HANDED ||
               req->stage == PSC_STAGE_LANDING ||
               req->stage == PSC_STAGE_ENDING);
    return &req->bulk->record.tagged;
}

static inline psc_exposed_t *psc_req_shown(const psc_req_t *req)
{
    psc_assert(req->stage == PSC_STAGE_HANDED ||
               req->stage == PSC_STAGE_LANDING ||
               req->stage == PSC_STAGE_ENDING);
    return &req->bulk->record.advert;
}

/* The only function that changes a request's stage. */
static inline void psc_req_stage_set(psc_req_t *req, psc_stage_t stage)
{
    req->stage = stage;
}

/* Returns true if an eager message of `len` bytes fits into the receive's
 * memory. If not, the receive waits for recv_supply. */
static inline bool psc_req_has_room(const psc_req_t *req, uint64_t len)
{
    return !(req->head.flags & PSC_FLAG_NO_BUFFER) ||
           (req->n_iov && len <= psc_req_total(req));
}

static inline psc_req_t *psc_req_of(psc_request_t *request)
{
    return psc_container_of(request, psc_req_t, head);
}
