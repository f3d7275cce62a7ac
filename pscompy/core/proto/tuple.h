/* Receives that the peer can see and take (PSC_CAP_EXPOSE), so that the bytes
 * of a long message are copied by a side that is inside the library, while the
 * other computes (TupleQ; Koop, Sridhar and Panda, the paper's section 4).
 *
 * match.c remains the only authority. It exposes a long receive that names its
 * source if no hidden receive that was posted earlier could get the same
 * message; receives from any source are never exposed. The sender of a long
 * message looks for a receive before it would send eagerly or announce. If it
 * claims one, the record of that stands at the message's place among the
 * others. The order holds by these rules:
 *
 *  1. A receive is exposed only if no unexpected message and no hidden receive
 *     posted earlier overlaps with it. So among overlapping receives the order
 *     of exposing is the order of posting, and the sender claims the first that
 *     fits.
 *  2. A receive is claimed only if all messages that this sender has sent
 *     otherwise, and that fit the receive, have been matched. The receiver
 *     reports its progress (`seen`) with every receive that it exposes or
 *     conceals, so a receive that is still exposed after that was not theirs.
 *  3. A message that matches an exposed receive, also one that comes back
 *     after a cancelled probe, takes it only after it was concealed. A claim
 *     counts as the arrival of its message: what comes back later than that
 *     finds the receive taken, as it would after an arrival.
 *
 * tests/proto/test_tuple_model.py tries these rules, and what happens without
 * each of them. */
#ifndef PSCOMPY_PROTO_TUPLE_H
#define PSCOMPY_PROTO_TUPLE_H

#include "../types/conn.h"

#define PSC_TUPLE_BUCKETS 64u

/* A place among the messages of one direction that are not copied into an
 * exposed receive ("placed"): eager bytes (psc_flow_t) and announcements, each
 * modulo 2^32. */
typedef uint64_t psc_place_t;

/* Makes it rarer that a sender looks for receives, or a receiver shows them,
 * while that is in vain time after time. */
typedef struct psc_tuple_pause {
    uint8_t misses; /* tries in a row that were in vain */
    uint8_t skips;  /* occasions to skip before the next try */
} psc_tuple_pause_t;

/* The messages and receives of a bucket share a hash of context and tag. */
typedef struct psc_tuple_bucket {
    psc_place_t last; /* the place of the last message */
    /* The sender does not look for a receive where receives are shown, but none
     * can be claimed, because others hold back those that fit. */
    psc_tuple_pause_t look;
    /* The receiver does not show receives for which only short messages
     * arrive. */
    psc_tuple_pause_t show;
} psc_tuple_bucket_t;

struct psc_tuple {
    /* least length of a receive that is exposed, and of a message that looks
     * for one */
    uint64_t min;
    uint32_t rts_out, rts_in;
    uint32_t n_exposed; /* receives that are exposed now */
    psc_tuple_bucket_t buckets[PSC_TUPLE_BUCKETS];
    /* called when the peer has taken a receive; match.c implements it */
    void (*taken)(psc_exposed_t *shown, uint64_t bits, uint64_t len);
};

static inline psc_place_t psc_tuple_place(uint32_t eager, uint32_t rts)
{
    return (uint64_t)rts << 32 | eager;
}

static inline psc_tuple_bucket_t *
psc_tuple_bucket(psc_tuple_t *tuple, uint32_t context, int32_t tag)
{
    return &tuple->buckets[(context * 7 + (uint32_t)tag) % PSC_TUPLE_BUCKETS];
}

/* Note that a message with this context and tag was sent otherwise than into a
 * receive that the peer shows. */
static inline void psc_tuple_note(psc_conn_t *conn, uint32_t context,
                                  int32_t tag)
{
    if (__builtin_expect(conn->tuple != NULL, 0))
        psc_tuple_bucket(conn->tuple, context, tag)->last =
            psc_tuple_place(conn->flow.sent, conn->tuple->rts_out);
}

/* A long message has arrived otherwise than into an exposed receive: show
 * receives for such messages again. */
void psc_tuple_came(psc_conn_t *conn, uint32_t context, int32_t tag);

/* Returns true if a message of this length looks for a receive that the peer
 * shows. */
static inline bool psc_tuple_is_long(const psc_conn_t *conn, uint64_t len)
{
    return __builtin_expect(conn->tuple != NULL, 0) && len >= conn->tuple->min;
}

/* psc_message_send_now leaves messages of at least this length to
 * psc_message_send, which looks for a receive first. */
void psc_tuple_limit(psc_conn_t *conn);
/* The connection's lanes are known: decide whether receives are exposed. */
void psc_tuple_begin(psc_conn_t *conn,
                     void (*taken)(psc_exposed_t *shown, uint64_t bits,
                                   uint64_t len));
void psc_tuple_end(psc_conn_t *conn);

/* ---- receiving ---- */

/* Returns true if the receive could be exposed, other receives aside. */
bool psc_tuple_may(const psc_req_t *req);
/* Returns true if the receive is to remain hidden, because as many as possible
 * are exposed, or those before it were shown in vain. Call once per occasion to
 * expose it. */
bool psc_tuple_pauses(const psc_req_t *req);
/* Expose the receive. Returns false if the transport refuses it. */
bool psc_tuple_expose(psc_req_t *req);
/* Returns false if the peer has taken the receive; see psc_tuple_detach. */
bool psc_tuple_conceal(psc_req_t *req);
/* The peer has taken a receive, which has left its queue: stage LANDING. */
void psc_tuple_detach(psc_req_t *req);
/* The record of the peer's claim has arrived. */
void psc_tuple_taken(psc_req_t *req, uint64_t bits, uint64_t len);

static inline psc_req_t *psc_tuple_req(psc_exposed_t *shown)
{
    return psc_container_of(shown, psc_bulk_t, shown)->req;
}

/* ---- sending ---- */

/* Look for a receive that the peer shows, and claim it for this message.
 * Returns PSC_ERR_UNSUPPORTED if the message must be sent otherwise. */
psc_status_t psc_tuple_send(psc_req_t *req);

#endif
