/* The queues that matching works on, and the records of the messages in the
 * queues. Each context has queues, and each connection has queues per context.
 * match.h has the rules. */
#pragma once

#include "../core/types/connection.h"
#include "match_list.h"

typedef struct psc_match_lists {
    psc_match_list_t posted;     /* receives, linked by psc_req_t.link */
    psc_match_list_t probes;     /* probes, linked by psc_req_t.link */
    /* messages, linked in a psc_match_queue_t by psc_unexp_t.link, in a
     * psc_context_t by psc_unexp_t.any_link */
    psc_match_list_t unexpected;
} psc_match_lists_t;

/* A context: its receives and probes from any source, and its messages from all
 * sources. */
typedef struct psc_context {
    uint32_t id;
    psc_link_t link;
    psc_match_lists_t lists;
} psc_context_t;

/* Receives, probes and messages of one source (a connection) in a context. */
typedef struct psc_match_queue {
    psc_context_t *context;
    psc_link_t link; /* link in the connection's list `queues` */
    psc_match_lists_t lists;
    /* receives that were handed out to the connection's protocol for that
     * (psc_conn_t.hands_out) */
    psc_match_list_t handed;
} psc_match_queue_t;

/* A message without a receive. */
struct psc_unexp {
    psc_link_t link, any_link;
    /* The links in buckets (match_list.h) of the two lists: `bucket` in the
     * list of `link`, `any_bucket` in the list of `any_link`. */
    psc_link_t bucket, any_bucket;
    psc_conn_t *conn;
    uint32_t context;
    int32_t tag;
    uint64_t len; /* length of the message */
    uint64_t order; /* order of arrival (the clock of psc_matching_t); 0: not
                       set yet */
    bool rts; /* only the message's announcement (RTS) has arrived */
    bool arriving; /* the payload is still arriving */
    bool lent; /* with rts: the receiver may map the sender's pages */
    /* with rts: a placeholder, because the RTS itself has not arrived yet;
     * send_id is the placeholder's number; see tag.h */
    bool promised;
    uint32_t owed; /* credit to return to the peer when the record is freed */
    uint64_t kept; /* bytes of this message that psc_budget_t.kept counts */
    /* The receive that has claimed this message while its payload or RTS was
     * still to arrive; `unexp` of that receive is this record. */
    psc_req_t *req;
    psc_unexp_t *next_promised;
    uint64_t send_id; /* with rts: id of the sender's request */
    union {
        /* with rts: offset of the message in the memory that the keys open */
        uint64_t offset;
        /* bytes at the message's end that were lost, because an earlier receive
         * had no room for them */
        uint64_t lost;
    };
    uint16_t n_keys;
    uint16_t aux; /* with rts: header length of an active message */
    uint32_t keys_len;
    /* the transport's buffer that holds the payload, or NULL */
    psc_desc_t *desc;
    psc_lane_t *lane; /* the lane that `desc` belongs to */
    const uint8_t *data;
    /* the message's copied payload or, with rts, its packed keys */
    uint8_t payload[];
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
