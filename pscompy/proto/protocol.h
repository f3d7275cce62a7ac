/* The contract of a protocol: one way in which messages travel besides the
 * base, which is matching, eager messages and the rendezvous. list.c has the
 * list of all protocols; the base knows them by this table only.
 *
 * A function that is NULL does nothing. */
#pragma once

#include "../core/counters.h"
#include "../core/types/connection.h"

typedef struct psc_message_head {
    uint32_t context;
    int32_t tag;
    uint16_t aux;
} psc_message_head_t;

struct psc_proto {
    const char *name;

    /* ---- sends ----
     *
     * A message tries the protocols in the order of the list. */

    /* Returns true if the message may use the protocol. Changes nothing. */
    bool (*may)(const psc_req_t *req);
    /* Send the message of a request in stage SEND. Returns PSC_INPROGRESS if
     * it was sent or its protocol has begun; PSC_ERR_UNSUPPORTED if the next
     * protocol of the list is to be tried, and nothing was sent; and
     * PSC_ERR_NO_RESOURCE if the request is to stay at the head of the ordered
     * queue: no later message passes it, and the choice begins anew. */
    psc_status_t (*start)(psc_req_t *req);
    /* Send a message at once, without a request, that is short enough to be
     * eager and for which there is credit. Only of a protocol that carries all
     * messages of a connection (psc_conn_t.matches). Returns
     * PSC_ERR_UNSUPPORTED or PSC_ERR_NO_RESOURCE if nothing was sent. */
    psc_status_t (*send_now)(psc_conn_t *conn, const psc_message_head_t *head,
                             const psc_iov_t *iov, size_t n_iov, uint64_t len);
    /* A message of at least psc_conn_t.hands_from bytes, or its RTS, has
     * arrived otherwise than into a receive that was handed out. */
    void (*came)(psc_conn_t *conn, uint32_t context, int32_t tag);

    /* ---- receives that are handed out ----
     *
     * Receives that name their source may be handed out to one protocol, that
     * of their connection (psc_conn_t.hands_out), so that messages meet them
     * outside of match.c: in the fabric, or at the peer. match.c keeps them in
     * the list psc_match_queue_t.handed, in their order, in stage HANDED, and
     * hands a receive out only if no receive that waits in match.c could get
     * the same message. */

    /* Returns true if the receive could be handed out, regardless of other
     * receives. */
    bool (*takes)(const psc_req_t *req);
    /* Hand out the receive. Returns false if it is refused. */
    bool (*offer)(psc_req_t *req);
    /* Take a receive back for a message that has arrived otherwise. Returns
     * false if a message has met the receive already, which the peer must not
     * have sent after this one. NULL: a message that arrives otherwise has
     * arrived before any receive was handed out that it fits. */
    bool (*yield)(psc_req_t *req);
    /* Take a receive back for another reason. Returns PSC_ERR_INVALID if a
     * message has met it already, and PSC_INPROGRESS if the peer has to be
     * asked: then, or if match.c has no more use for it, `lost` is called. */
    psc_status_t (*recall)(psc_req_t *req);
    /* The receive has left the list, although it was not taken back: begin
     * stage LANDING. */
    void (*lost)(psc_req_t *req);
    /* counts receives that could have been handed out, but were not */
    psc_counter_t kept;
    const char *handed; /* for dumps: where a receive is that was handed out */
};

static inline void psc_proto_came(psc_conn_t *conn, uint32_t context,
                                  int32_t tag, uint64_t len)
{
    if (len >= conn->hands_from && conn->hands_out && conn->hands_out->came)
        conn->hands_out->came(conn, context, tag);
}
