/* Matching: the only place that decides which message goes to which receive.
 *
 * A message has (context, source, tag). A receive names a source or any, and a
 * tag or any. MPI's rules hold: of the receives that fit a message the earliest
 * posted gets it; of the messages that fit a receive the earliest arrived of
 * each source is taken, so that messages of one source never overtake each
 * other.
 *
 * Receives with a source are queued per connection and context, receives from
 * any source per context. Both have an `order`, which decides between two
 * candidates. A message without a receive stands in two lists: its source's,
 * and the context's, in order of arrival. */
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
    psc_link_t link; /* in the connection's queues */
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
    uint64_t len;   /* length of the message */
    uint64_t order; /* order of arrival (match_clock); 0: not set yet */
    bool rts;       /* only its announcement has arrived */
    bool arriving;  /* the payload is still arriving */
    bool lent;      /* rts: the receiver may map the sender's pages */
    /* rts: a placeholder, its RTS has not arrived; send_id is its number; see
     * tag.h */
    bool promised;
    uint32_t owed; /* credit to return when it is freed */
    uint64_t kept; /* bytes counted in the worker's unexpected */
    /* The receive that claimed this message while it was arriving or promised;
     * `unexp` of that receive is this record. */
    psc_req_t *req;
    psc_unexp_t *next_promised;
    uint64_t send_id; /* rts: id of the sender's request */
    union {
        /* rts: offset of the message in the memory of its keys */
        uint64_t offset;
        /* bytes at its end that were lost, because an earlier receive had no
         * room for them */
        uint64_t lost;
    };
    uint32_t n_keys, keys_len;
    psc_desc_t *desc; /* the transport's buffer that holds it, or NULL */
    psc_lane_t *lane; /* the lane that `desc` belongs to */
    const uint8_t *data;
    uint8_t room[]; /* copied payload, or packed keys */
};

/* Find the receive for this message and take it out of its queue. Its result
 * gets the order of arrival. Returns NULL if there is none. */
psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t context, int32_t tag);
/* Find the receive for a message that was put back into its lists, and take it
 * out of its queue. A receive that was posted to the fabric meanwhile is
 * recalled for it. Returns NULL if there is none. */
psc_req_t *psc_match_return(const psc_unexp_t *unexp);
/* Keep a message without a receive; probes that fit it are done. */
psc_status_t psc_match_keep(psc_unexp_t *unexp);
/* The message that a receive with these arguments would get, or NULL. */
psc_unexp_t *psc_match_find(psc_worker_t *worker, const psc_recv_args_t *args);
/* Take a message out of its lists. */
void psc_match_take(psc_unexp_t *unexp);
/* Put a message back to its old place in its lists. */
psc_status_t psc_match_put_back(psc_unexp_t *unexp);
/* Add a receive to its queue. */
psc_status_t psc_match_post(psc_req_t *req);
/* Take a posted receive out of its queue. */
void psc_match_leave(psc_req_t *req);
/* The queue of a receive that shares no message with an earlier posted receive,
 * so that the fabric may match it. Returns NULL if it does, or if memory is
 * short. */
psc_match_queue_t *psc_match_alone(const psc_req_t *req);
psc_unexp_t *psc_unexp_create(psc_conn_t *conn, uint32_t context, int32_t tag,
                              uint64_t len, size_t room);
/* A receive without buffer gets this message and waits for recv_supply. */
void psc_req_no_buffer(psc_req_t *req, psc_unexp_t *unexp);
/* Give the receive a message that has not arrived completely: stage CLAIMED. */
void psc_match_claim(psc_req_t *req, psc_unexp_t *unexp);
/* Detach a receive that ends from the message that it has claimed, if any. */
void psc_match_unclaim(psc_req_t *req);
/* Free a message; its withheld credit returns to the peer. */
void psc_unexp_free(psc_unexp_t *unexp);
void psc_match_conn_destroy(psc_conn_t *conn);
/* Free the announced and incomplete messages of a connection that has ended. */
void psc_match_conn_failed(psc_conn_t *conn);
void psc_match_worker_destroy(psc_worker_t *worker);

#endif
