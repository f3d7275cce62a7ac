/* The contract of a protocol: one way in which messages travel, or one kind of
 * traffic beside them. list.c has the list of all protocols. The files that
 * choose, dispatch and end know them by this table only; matching, credit,
 * eager messages and the rendezvous are the base, which all may call.
 *
 * The members come in groups: a protocol sets all of a group that it takes part
 * in, and leaves those of others NULL. Within a group a member may be NULL
 * where its comment says so. */
#pragma once

#include "../core/counters.h"
#include "../core/types/connection.h"

/* Context and tag of a message; `aux` is the header length of an active
 * message, 0 for others. */
typedef struct psc_message_head {
    uint32_t context;
    int32_t tag;
    uint16_t aux;
} psc_message_head_t;

/* Flags of messages that are announced whatever their length, because their
 * sends must not end before a receive has matched (PSC_FLAG_SYNC), or because
 * the receiver is to map them. Neither may such a message be put into an
 * advertised receive (tuple.h): the receiver may have withdrawn that receive
 * already, and the message then waits for another one. */
#define PSC_FLAGS_ANNOUNCED (PSC_FLAG_SYNC | PSC_FLAG_LEND)

/* A message of the wire that a protocol handles. After an error the connection
 * is ended. */
typedef struct psc_proto_message {
    psc_wire_id_t id;
    uint8_t header_len;
    psc_status_t (*arrived)(psc_lane_t *lane, const psc_am_t *am);
} psc_proto_message_t;

/* A stage from which the protocol advances a request: as far as possible, until
 * it waits for the peer or the fabric (PSC_INPROGRESS), has another stage
 * (PSC_OK), or must be tried again later (PSC_ERR_NO_RESOURCE). */
typedef struct psc_proto_stage {
    psc_stage_t stage;
    psc_status_t (*advance)(psc_req_t *req);
} psc_proto_stage_t;

struct psc_proto {
    const char *name;
    const psc_proto_message_t *messages; /* without a function at the end */
    const psc_proto_stage_t *stages;     /* without a function at the end */

    /* ---- sends ----
     *
     * A message tries the protocols in the order of the list. A protocol
     * without `may` carries none. */

    /* Returns true if the message may use the protocol. Changes nothing. */
    bool (*may)(const psc_req_t *req);
    /* `start` announces every message that has a flag of PSC_FLAGS_ANNOUNCED.
     * Only protocols that do so are tried for these messages. */
    bool announces;
    /* Send the message of a request in stage SEND. Returns PSC_INPROGRESS if
     * it was sent or its protocol has begun; PSC_ERR_UNSUPPORTED if the next
     * protocol of the list is to be tried, and nothing was sent; and
     * PSC_ERR_NO_RESOURCE if the request is to stay at the head of the ordered
     * queue: no later message passes it, and the choice begins anew. */
    psc_status_t (*start)(psc_req_t *req);

    /* ---- sends and announcements of a fabric that matches ----
     *
     * For the protocol that carries all messages of a connection whose
     * context psc_tag_carries names. */

    /* Send a message at once, without a request, that is short enough to be
     * eager and for which there is credit. Returns
     * PSC_ERR_UNSUPPORTED or PSC_ERR_NO_RESOURCE if nothing was sent. */
    psc_status_t (*send_now)(psc_conn_t *conn, const psc_message_head_t *head,
                             const psc_iov_t *iov, size_t n_iov, uint64_t len);
    /* An RTS has arrived, whose message waits in `unexp` until the fabric has
     * matched the tagged message in its place. */
    void (*announced)(psc_lane_t *lane, psc_unexp_t *unexp);
    /* An RTS with PSC_RTS_LATE has arrived. */
    psc_status_t (*late)(psc_lane_t *lane, const psc_am_t *am);

    /* ---- messages that are not matched ----
     *
     * Messages of the context PSC_CONTEXT_AM are passed to one protocol
     * (psc_worker_t.unmatched), and not to match.c. */

    /* A complete eager message has arrived; its credit is the protocol's to
     * return. */
    psc_status_t (*deliver)(psc_conn_t *conn, const psc_message_head_t *head,
                            const void *data, uint64_t len);
    /* Set where the payload of an eager message is to arrive
     * (PSC_INCOMING_MESSAGE). `end_payload` or `lane_ended` follows. */
    psc_status_t (*begin_payload)(psc_lane_t *lane,
                                  const psc_message_head_t *head, uint64_t len,
                                  psc_dest_t *dest);
    void (*end_payload)(psc_lane_t *lane);
    /* An RTS has arrived. The protocol keeps `unexp`, or frees it. */
    psc_status_t (*keep)(psc_unexp_t *unexp);

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
    /* Hand out the receive. Returns false if it is refused. No message meets
     * the receive before the function has returned. */
    bool (*offer)(psc_req_t *req);
    /* Take a receive back for a message that has arrived otherwise. Returns
     * false if a message has met the receive already, which the peer must not
     * have sent after this one. NULL: a message that arrives otherwise has
     * arrived before any receive was handed out that it fits. */
    bool (*yield)(psc_req_t *req);
    /* Take a receive back for another reason. Returns PSC_ERR_INVALID if a
     * message has met it already, and PSC_INPROGRESS if the peer has to be
     * asked: the protocol has then set remote_writable, and calls
     * psc_recv_returned when the peer has answered. */
    psc_status_t (*recall)(psc_req_t *req);
    /* The receive has left the list, because a message has met it, or after
     * `recall` has returned PSC_INPROGRESS: empty its `unexp`, attach it to the
     * connection, and begin stage LANDING. */
    void (*lost)(psc_req_t *req);
    /* A message of at least psc_conn_t.hands_from bytes, or its RTS, has
     * arrived otherwise than into a receive that was handed out. May be NULL.
     */
    void (*came)(psc_conn_t *conn, uint32_t context, int32_t tag);
    /* counts receives that could have been handed out, but were not */
    psc_counter_t kept;
    /* for dumps: where a receive is that was handed out; "" if the program need
     * not know */
    const char *handed;

    /* ---- a connection: each member may be NULL ---- */

    /* The connection's lanes are known, and nothing has arrived over them. In
     * the order of the list. */
    void (*begin)(psc_conn_t *conn);
    /* The connection's parameters (psc_conn_t.params) were set: before `begin`,
     * and whenever they are corrected. */
    void (*limits)(psc_conn_t *conn);
    /* Send messages that are due (psc_conn_t.lost.replay_due). Returns true if
     * anything was sent. Not called for a connection whose messages are kept
     * until they are acknowledged (replay.h). */
    bool (*flush)(psc_conn_t *conn);
    /* Nothing arrives over the lane any more. */
    void (*lane_ended)(psc_lane_t *lane);
    /* The connection's CLOSE is about to be sent. Called again as long as the
     * lane does not take it. */
    void (*conn_closing)(psc_conn_t *conn);
    /* End a request of a connection that has ended with `status`. Returns false
     * if the request is not the protocol's. */
    bool (*ends)(psc_req_t *req, psc_status_t status);
    /* The connection has ended: its requests have, too. */
    void (*conn_ended)(psc_conn_t *conn);
    /* Free what belongs to the connection. Called twice: when the connection is
     * closed for good, and when its memory is freed. */
    void (*conn_destroyed)(psc_conn_t *conn);

    /* ---- a worker: each member may be NULL ---- */

    /* The worker is made. Allocates nothing, because the worker may yet fail to
     * open, and is then freed without `worker_destroyed`. */
    void (*worker_begin)(psc_worker_t *worker);
    /* Handle what other threads have queued without the lock. */
    void (*drain)(psc_worker_t *worker);
    /* Free what belongs to the worker. */
    void (*worker_destroyed)(psc_worker_t *worker);
};

static inline void psc_proto_came(psc_conn_t *conn, uint32_t context,
                                  int32_t tag, uint64_t len)
{
    if (len >= conn->hands_from && conn->hands_out && conn->hands_out->came)
        conn->hands_out->came(conn, context, tag);
}

/* ---- match bits ---- */

/* The match bits of a message for receives that are exposed: context and
 * tag. */
static inline uint64_t psc_match_bits(uint32_t context, int32_t tag)
{
    return (uint64_t)context << PSC_EXPOSED_CONTEXT_SHIFT | (uint32_t)tag;
}

/* Returns true if the connection's fabric matches messages of this context.
 * Both sides decide by the context alone. All other messages go as on a fabric
 * that does not match. */
static inline bool psc_tag_carries(const psc_conn_t *conn, uint32_t context)
{
    return conn->matches && psc_tag_has_context(context);
}

/* ---- positions ---- */

/* Positions in the order of the messages that one side sends as eager messages
 * or announces by RTS. */

#define PSC_POSITION_BUCKETS 32u

/* The eager bytes (psc_flow_t) and the RTSs sent up to there, each modulo
 * 2^32. */
typedef uint64_t psc_position_t;

/* For each hash of context and tag: the position of the last message. */
struct psc_positions {
    psc_position_t last[PSC_POSITION_BUCKETS];
};

static inline psc_position_t psc_position(uint32_t eager, uint32_t rts)
{
    return (uint64_t)rts << 32 | eager;
}

static inline uint32_t psc_position_bucket(uint32_t context, int32_t tag)
{
    return (context * 7 + (uint32_t)tag) % PSC_POSITION_BUCKETS;
}

/* Note that an eager message or an RTS with this context and tag was sent. */
static inline void psc_position_note(psc_conn_t *conn, uint32_t context,
                                     int32_t tag)
{
    if (__builtin_expect(conn->positions != NULL, 0))
        conn->positions->last[psc_position_bucket(context, tag)] =
            psc_position(conn->flow.sent, conn->rts_sent);
}

/* ---- list.c ---- */

/* The list of all protocols. */

/* In the order in which a message tries those that carry messages; NULL at the
 * end. The last one carries every message. */
extern const psc_proto_t *const psc_proto_list[];
/* the protocol of messages that are not matched */
extern const psc_proto_t *const psc_proto_unmatched;
