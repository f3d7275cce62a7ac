/* Matching: receives and messages by source, context and tag. The lists
 * (match_list.c), the queues of a context (match_queue.c), messages without a
 * receive (unexpected.c), and the rules (match.c). */
#pragma once

#include <stdint.h>

#include "../core/api.h"
#include "pscompy/transport/kit/list.h"
#include "../core/types/connection.h"

/* ---- match_list.c ---- */

/* Receives, probes or messages in order, found by their tag in constant time.
 *
 * A short list is searched from its head. A search that passes too many entries
 * that do not fit makes an index: entries that name a tag stand in buckets by a
 * hash of the tag, entries for any tag in a separate list. Each entry that is
 * added or removed splits or merges few buckets at most (linear hashing:
 * Litwin, VLDB 1980), so no operation has to move all entries, and the memory
 * follows their number. The hash has a random seed, because peers choose the
 * tags of their messages. If memory is short, searches are slower. */

/* Where the fields of an entry are: byte distances from its link in
 * psc_match_list_t.all. They differ between receives and messages, and between
 * the two links by which a message is an entry of two lists. */
typedef struct psc_match_shape {
    /* the entry's psc_link_t in a bucket; undefined while there is no index */
    ptrdiff_t bucket;
    ptrdiff_t tag;    /* the entry's tag, an int32_t; PSC_ANY_TAG for any */
    ptrdiff_t order;  /* the entry's order, an uint64_t; ascending in `all` */
} psc_match_shape_t;

#define PSC_MATCH_SHAPE(type, link, bucket, tag, order)                        \
    {(ptrdiff_t)offsetof(type, bucket) - (ptrdiff_t)offsetof(type, link),      \
     (ptrdiff_t)offsetof(type, tag) - (ptrdiff_t)offsetof(type, link),         \
     (ptrdiff_t)offsetof(type, order) - (ptrdiff_t)offsetof(type, link)}

typedef struct psc_match_index psc_match_index_t;

typedef struct psc_match_list {
    psc_list_t all;
    const psc_match_shape_t *shape;
    /* NULL until a search has passed too many entries */
    psc_match_index_t *index;
} psc_match_list_t;

void psc_match_list_init(psc_match_list_t *list,
                         const psc_match_shape_t *shape);
/* Free the index. The entries belong to the caller. */
void psc_match_list_clear(psc_match_list_t *list);
/* The number of buckets of the index, 0 without one. */
uint32_t psc_match_list_buckets(const psc_match_list_t *list);
/* Returns the earliest entry of a list, which is not empty, that fits this tag;
 * PSC_ANY_TAG fits all, and an entry with PSC_ANY_TAG fits every tag. Returns
 * NULL if no entry fits. */
psc_link_t *psc_match_list_search(psc_match_list_t *list, int32_t tag);
/* Enter an entry that is in `all` into the index; psc_match_index_remove takes
 * it out. */
void psc_match_index_add(psc_match_list_t *list, psc_link_t *link);
void psc_match_index_remove(psc_match_list_t *list, psc_link_t *link);
/* Add an entry at the place that its order demands. */
void psc_match_list_insert(psc_match_list_t *list, psc_link_t *link);

/* Add an entry that is later than all others. */
static inline void psc_match_list_push(psc_match_list_t *list, psc_link_t *link)
{
    psc_list_push(&list->all, link);
    if (__builtin_expect(list->index != NULL, 0))
        psc_match_index_add(list, link);
}

static inline void psc_match_list_remove(psc_match_list_t *list,
                                         psc_link_t *link)
{
    if (__builtin_expect(list->index != NULL, 0))
        psc_match_index_remove(list, link);
    psc_list_remove(link);
}

/* ---- match_queue.c ---- */

/* The queues that matching works on, and the records of the messages in the
 * queues. Each context has queues, and each connection has queues per context;
 * the part match.c below has the rules. */

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
    psc_entry_t entry; /* in psc_matching_t.contexts */
    psc_match_lists_t lists;
    psc_list_t queues; /* linked by psc_match_queue_t.context_link */
    /* The context and its queues stay although they are empty: the number is
     * open, or not one of a World. */
    bool stays;
} psc_context_t;

/* Receives, probes and messages of one source (a connection) in a context. */
typedef struct psc_match_queue {
    psc_entry_t entry; /* in the connection's table `queues` */
    psc_conn_t *conn;
    psc_context_t *context;
    psc_link_t context_link; /* in the context's list `queues` */
    psc_match_lists_t lists;
    /* receives that were handed out to the connection's protocol for that
     * (psc_conn_t.hands_out) */
    psc_match_list_t handed;
} psc_match_queue_t;

/* A message without a receive. */
struct psc_unexp {
    psc_link_t link, any_link;
    /* The links in buckets (match_list.c) of the two lists: `bucket` in the
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
    uint16_t aux; /* header length of an active message (PSC_CONTEXT_AM) */
    uint32_t keys_len;
    /* the transport's buffer that holds the payload, or NULL */
    psc_desc_t *desc;
    psc_lane_t *lane; /* the lane that `desc` belongs to */
    const uint8_t *data;
    /* the message's copied payload or, with rts, its packed keys */
    uint8_t payload[];
};

void psc_matching_init(psc_matching_t *matching);
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
/* Free the table of a connection without queues. */
void psc_match_queues_free(psc_conn_t *conn);
bool psc_match_queue_empty(const psc_match_queue_t *queue);
/* Free an empty queue, unless it stays (psc_context_t), and then its context
 * likewise: a peer that names ever new contexts makes queues only for the
 * messages that are kept. */
void psc_match_queue_settle(psc_match_queue_t *queue);
void psc_match_context_settle(psc_worker_t *worker, psc_context_t *context);
/* Returns true if the number of this context was closed (psc_matching_t). */
bool psc_match_closed(const psc_worker_t *worker, uint32_t id);
/* Close the context, if it is open (contexts.c). */
void psc_context_close(psc_worker_t *worker, uint32_t id);
void psc_match_contexts_free(psc_worker_t *worker);

/* ---- unexpected.c ---- */

/* The records of messages that arrived before their receives, and the receives
 * that get a message while it is still arriving. */

/* Create the record of a message (psc_unexp_t), in no list, with memory for
 * `capacity` bytes in its member `payload`. Returns NULL if memory is short. */
psc_unexp_t *psc_unexp_create(psc_conn_t *conn, uint32_t context, int32_t tag,
                              uint64_t len, size_t capacity);
/* Returns the message that a receive with these arguments would get, or NULL.
 * Sets *lists_p to the lists in which the receive would wait, or to NULL if
 * these lists do not exist yet. */
psc_unexp_t *psc_unexp_find(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_match_lists_t **lists_p);
/* Take a message out of the lists of unexpected messages, if it is in them. */
void psc_unexp_take(psc_unexp_t *unexp);
/* Free the record of a message; credit that was withheld for it returns to the
 * peer. */
void psc_unexp_free(psc_unexp_t *unexp);
/* Free the announced and incomplete messages of a connection that has ended. */
void psc_unexp_conn_failed(psc_conn_t *conn);
/* Free all messages of a queue whose connection is destroyed. */
void psc_unexp_free_all(psc_match_queue_t *queue);

/* Refuse a message that was announced: the request, which belongs to nobody
 * else, has its sender end the message with `error`. */
void psc_unexp_refuse(psc_req_t *req, psc_unexp_t *unexp, psc_status_t error);
/* Drop a message that nobody will receive; one that was announced is refused
 * with PSC_ERR_CLOSED. Returns PSC_ERR_NO_MEMORY if that cannot be done. */
psc_status_t psc_unexp_drop(psc_unexp_t *unexp);
/* Drop all messages of a queue that have arrived or were announced. */
void psc_unexp_drop_all(psc_conn_t *conn, uint32_t id);
/* Call when a message without a receive has become complete, or its RTS has
 * arrived: it is dropped if its number was closed meanwhile. */
void psc_unexp_arrived(psc_unexp_t *unexp);

/* A receive without buffer gets this message and waits for recv_supply. */
void psc_req_no_buffer(psc_req_t *req, psc_unexp_t *unexp);
/* Give the receive a message that has not arrived completely: stage CLAIMED. */
void psc_unexp_claim(psc_req_t *req, psc_unexp_t *unexp);
/* Detach a receive that ends from the message that it has claimed, if any. */
void psc_unexp_unclaim(psc_req_t *req);

/* ---- match.c ---- */

/* Matching: the only place that decides which message goes to which receive.
 *
 * A message has (context, source, tag). A receive names a source or any, and a
 * tag or any. MPI's rules hold: of the receives that fit a message the earliest
 * posted gets it; of the messages of one source that fit a receive, the
 * earliest arrived gets the receive, so that messages of one source never
 * overtake each other.
 *
 * Receives with a source are queued per connection and context, receives from
 * any source per context. Both have an `order`, which decides between two
 * candidates. A message without a receive stands in two lists: its source's,
 * and the context's, in order of arrival. In each list a tag finds the first
 * entry that fits in constant time (match_list.c). */

/* psc_match_arrival returns this pointer, which points to nothing, for a
 * message that the peer must not have sent. The caller keeps nothing of the
 * message and returns PSC_ERR_PROTOCOL, so that the connection ends. */
#define PSC_MATCH_REFUSED ((psc_req_t *)1)

/* Find the receive for this message and take the receive out of its queue. The
 * receive's result gets the order of arrival. Returns NULL if no receive
 * matches, or PSC_MATCH_REFUSED. */
psc_req_t *psc_match_arrival(psc_conn_t *conn, uint32_t context, int32_t tag);
/* Find the receive for a message that was put back into its lists, and take the
 * receive out of its queue. A receive that was handed out meanwhile
 * is recalled for it; a receive in stage LANDING gets the message when the peer
 * has answered (psc_recv_returned). Returns NULL if no receive matches. */
psc_req_t *psc_match_return(const psc_unexp_t *unexp);
/* Queue a message that matches no receive as unexpected; probes that fit it are
 * done. Returns what psc_match_put_back returns. */
psc_status_t psc_match_keep(psc_unexp_t *unexp);
/* Put a message back to its old place among the unexpected messages. Returns
 * PSC_ERR_CLOSED if the message was dropped, because its number is closed. If
 * memory is short, the message is freed, too. */
psc_status_t psc_match_put_back(psc_unexp_t *unexp);
/* Add a receive or a probe to its queue; `lists` is from
 * psc_unexp_find, or NULL. */
psc_status_t psc_match_post(psc_req_t *req, psc_match_lists_t *lists);
/* Take a posted receive or probe out of its queue. */
void psc_match_leave(psc_req_t *req);
/* Hand out a receive that names its source, if it may be (protocol.h). Takes
 * the place of psc_match_post. Returns false if the receive is to be posted. */
bool psc_match_hand_out(psc_req_t *req);
/* The connection is up: hand out the receives that were posted before. */
void psc_match_hand_out_all(psc_conn_t *conn);
/* Take back a receive that was handed out. Returns PSC_ERR_INVALID if a message
 * has met it, and PSC_INPROGRESS if the peer has to be asked first. */
psc_status_t psc_match_recall(psc_req_t *req);
/* A message has met a receive that was handed out: take the receive out of its
 * queue, unless it has left the queue before. */
void psc_match_met(psc_req_t *req);
/* The context is about to be closed: end the receives and probes that no
 * message has met, and drop the messages. */
void psc_match_close(psc_worker_t *worker, psc_context_t *context);
void psc_match_conn_destroy(psc_conn_t *conn);
/* End the receives and probes that name this connection as their source. */
void psc_match_receives_ended(psc_conn_t *conn, psc_status_t status);
