/* Matching: the one authority on which message goes to which receive.
 *
 * A message is (context, source, tag). Receives name a source or any, a tag
 * or any. MPI's rules hold: of the receives that fit a message the earliest
 * posted gets it; of the messages that fit a receive the earliest arrived of
 * each source is taken, so messages of one source never overtake.
 *
 * Receives with a source stand in that connection's queue for the context,
 * receives from any source in the context's; both carry a place in one order,
 * so the earlier of two candidates is known. A message without receive
 * stands in two lists: its source's, and the context's in order of arrival. */
#ifndef PSCOMPY_PROTO_MATCH_H
#define PSCOMPY_PROTO_MATCH_H

#include "../types/conn.h"

typedef struct psc_context {
    uint32_t id;
    psc_link_t link;
    psc_list_t posted;     /* psc_req_t.link: receives from any source */
    psc_list_t unexpected; /* psc_unexp_t.any_link, in order of arrival */
} psc_context_t;

typedef struct psc_match_queue {
    psc_context_t *context;
    psc_link_t link; /* connection's queues */
    psc_list_t posted;
    psc_list_t tagged;     /* receives that the fabric matches; see tag.h */
    psc_list_t unexpected; /* psc_unexp_t.link */
} psc_match_queue_t;

/* A message without a receive. */
struct psc_unexp {
    psc_link_t link, any_link;
    psc_conn_t *conn;
    uint32_t context;
    int32_t tag;
    uint64_t len;   /* of the message */
    uint64_t order; /* when it arrived; 0: nobody has asked yet */
    bool rts;       /* only its announcement came */
    bool arriving;  /* its payload is still coming */
    bool lent;      /* rts: it may be read where it is */
    bool promised;  /* rts: it is yet to come; send_id: which; see tag.h */
    uint32_t owed;  /* credit to return when it goes */
    uint64_t kept;  /* bytes that count against the session's bound */
    psc_req_t *req; /* the receive that claimed it while it was arriving, or
                       promised; its `unexp` is this record */
    psc_unexp_t *next_promised;
    uint64_t send_id; /* rts */
    union {
        uint64_t offset; /* rts: of the message in what its keys stand for */
        uint64_t lost;   /* bytes at its end that an earlier receive had no
                            room for */
    };
    uint32_t n_keys, keys_len;
    psc_desc_t *desc; /* held in the transport's buffer */
    psc_lane_t *lane; /* whose desc it is */
    const uint8_t *data;
    uint8_t room[];   /* payload, or packed keys */
};

/* The receive that gets this message, taken out of its queue, with the order
 * of the arrival in its result; NULL: none. */
psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t context, int32_t tag);
/* The same for one that comes back and stands in its list again; it may have
 * been somebody's who was left to the fabric meanwhile. */
psc_req_t *psc_match_return(const psc_unexp_t *unexp);
/* Keep a message that none wanted; probes that fit are answered. */
psc_status_t psc_match_keep(psc_unexp_t *unexp);
/* The message that a receive with these arguments would get. */
psc_unexp_t *psc_match_find(psc_worker_t *worker, const psc_recv_args_t *args);
/* Take it out of its lists. */
void psc_match_take(psc_unexp_t *unexp);
/* Put it back where it stood. */
psc_status_t psc_match_put_back(psc_unexp_t *unexp);
/* Line up a receive. */
psc_status_t psc_match_post(psc_req_t *req);
/* It waits no longer. */
void psc_match_leave(psc_req_t *req);
/* The queue of a receive that no earlier one would share a message with: then
 * somebody else may match it. */
psc_match_queue_t *psc_match_alone(const psc_req_t *req);
psc_unexp_t *psc_unexp_create(psc_conn_t *conn, uint32_t context, int32_t tag,
                              uint64_t len, size_t room);
/* A receive without buffer gets this message: it waits for psc_recv_supply. */
void psc_req_no_buffer(psc_req_t *req, psc_unexp_t *unexp);
/* The receive has this message, which is not all there yet: stage CLAIMED. */
void psc_match_claim(psc_req_t *req, psc_unexp_t *unexp);
/* The receive ends without the message that it has claimed, if it has. */
void psc_match_unclaim(psc_req_t *req);
/* Free it; its credit goes back to the peer. */
void psc_unexp_free(psc_unexp_t *unexp);
void psc_match_conn_destroy(psc_conn_t *conn);
/* Forget announcements whose data can no longer be had. */
void psc_match_conn_failed(psc_conn_t *conn);
void psc_match_worker_destroy(psc_worker_t *worker);

#endif
