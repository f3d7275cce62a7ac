/* The queues that matching works on, and the records of messages in them: per
 * context, and per connection and context. match.h has the rules. */
#ifndef PSCOMPY_PROTO_MATCH_QUEUE_H
#define PSCOMPY_PROTO_MATCH_QUEUE_H

#include "../types/conn.h"
#include "match_list.h"

typedef struct psc_match_lists {
    psc_match_list_t posted;     /* psc_req_t.link: receives */
    psc_match_list_t probes;     /* psc_req_t.link */
    psc_match_list_t unexpected; /* of a queue: psc_unexp_t.link; of a context:
                                    psc_unexp_t.any_link */
} psc_match_lists_t;

/* Receives and probes from any source, messages of all sources. */
typedef struct psc_context {
    uint32_t id;
    psc_link_t link;
    psc_match_lists_t lists;
} psc_context_t;

/* Receives, probes and messages of one source (a connection) in a context. */
typedef struct psc_match_queue {
    psc_context_t *context;
    psc_link_t link; /* in the connection's queues */
    psc_match_lists_t lists;
    psc_list_t tagged; /* receives that the fabric matches; see tag.h */
    psc_match_list_t exposed; /* receives that the peer may take; tuple.h */
} psc_match_queue_t;

/* A message without a receive. */
struct psc_unexp {
    psc_link_t link, any_link;
    psc_link_t bucket, any_bucket; /* see match_list.h */
    psc_conn_t *conn;
    uint32_t context;
    int32_t tag;
    uint64_t len; /* length of the message */
    uint64_t order; /* order of arrival (the clock of psc_matching_t); 0: not
                       set yet */
    bool rts; /* only the message's announcement (RTS) has arrived */
    bool arriving; /* the payload is still arriving */
    bool lent; /* rts: the receiver may map the sender's pages */
    /* rts: a placeholder, its RTS has not arrived; send_id is its number; see
     * tag.h */
    bool promised;
    uint32_t owed; /* credit to return to the peer when the record is freed */
    uint64_t kept; /* bytes counted in worker->room.kept */
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
    /* the transport's buffer that holds the payload, or NULL */
    psc_desc_t *desc;
    psc_lane_t *lane; /* the lane that `desc` belongs to */
    const uint8_t *data;
    uint8_t room[]; /* copied payload, or packed keys */
};

/* The next three functions return NULL if what they look for does not exist and
 * `create` is not set, or if memory is short. */
psc_context_t *psc_match_context(psc_worker_t *worker, uint32_t id,
                                 bool create);
psc_match_queue_t *psc_match_queue(psc_conn_t *conn, uint32_t id, bool create);
/* Returns the lists of a source in a context; those of the context itself, for
 * receives from any source, if source is NULL. */
psc_match_lists_t *psc_match_lists(psc_worker_t *worker, psc_conn_t *source,
                                   uint32_t id, bool create);
/* Free a queue without messages. */
void psc_match_queue_free(psc_match_queue_t *queue);
void psc_match_contexts_free(psc_worker_t *worker);

#endif
