/* A lane: one endpoint of one transport. */
#pragma once

#include "worker.h"

#define PSC_INCOMING_IOV 8

typedef enum psc_incoming_kind {
    PSC_INCOMING_NONE, /* no payload is arriving, or one that is discarded */
    /* a FRAG, whose payload goes into the memory of `req` */
    PSC_INCOMING_FRAG,
    /* a matched eager message; its payload goes into the memory of `req` */
    PSC_INCOMING_RECEIVE,
    /* an eager message without a receive; its payload goes into `unexp` */
    PSC_INCOMING_UNEXP,
    /* a user's active message, whose payload goes into `message` */
    PSC_INCOMING_MESSAGE,
    /* any other message: its payload goes into `bounce`, and the message is
     * handled when it is complete */
    PSC_INCOMING_BOUNCE
} psc_incoming_kind_t;

/* The message whose payload is arriving on a lane, between the transport's
 * upcalls am_begin and am_end. */
typedef struct psc_incoming {
    psc_incoming_kind_t kind;
    uint8_t id;
    uint8_t header_len;
    union { /* `kind` says which member is valid */
        psc_req_t *req;
        psc_unexp_t *unexp;
        psc_message_t *message;
        void *bounce;
    };
    uint64_t len;
    /* PSC_INCOMING_RECEIVE: when the payload began to arrive; see
     * proto/rates.h */
    int64_t began;
    psc_status_t status; /* not PSC_OK: the peer violated the protocol */
    psc_iov_t iov[PSC_INCOMING_IOV];
    _Alignas(8) uint8_t header[PSC_AM_HEADER_MAX];
} psc_incoming_t;

/* Returns the message whose payload has arrived completely in in->bounce. */
static inline psc_am_t psc_incoming_bounced(const psc_incoming_t *in)
{
    return (psc_am_t){.id = in->id,
                      .header_len = in->header_len,
                      .header = in->header,
                      .payload = in->bounce,
                      .len = in->len};
}

static inline bool psc_incoming_for(const psc_incoming_t *in,
                                    const psc_req_t *req)
{
    return (in->kind == PSC_INCOMING_FRAG ||
            in->kind == PSC_INCOMING_RECEIVE) &&
           in->req == req;
}

#define PSC_PIECES_MAX 2u

/* A piece of a long message that a lane has in flight. */
typedef struct psc_piece {
    psc_comp_t comp;
    psc_lane_t *lane;
    psc_req_t *req; /* NULL if the piece is not in use */
    uint64_t offset; /* a put or get: where the piece begins in the message */
    size_t len;
} psc_piece_t;

/* The measured rate of a lane for striping, and the lane's pieces in flight;
 * see proto/stripe.h. */
typedef struct psc_stripe {
    psc_piece_t pieces[PSC_PIECES_MAX];
    uint64_t queued; /* bytes of the pieces in flight */
    uint64_t given; /* bytes that the lane was given until now */
    /* bytes of completed pieces, and the time that they took; both weigh older
     * pieces less (DECAY in stripe.c) */
    double bytes, ns;
    /* time at which the piece in flight began to be sent; 0: not known */
    int64_t since;
    uint32_t pass; /* the progress pass in which the last piece completed */
    /* the first piece that completed in the progress pass `pass` was
     * measured */
    bool timed;
    bool late; /* the last piece took much longer than expected */
    /* full_at: when the lane's own buffers were last full; 0: not known.
     * copied: bytes that were copied into these buffers since then. */
    int64_t full_at;
    uint64_t copied;
    /* without: bytes given to all lanes of the connection since this lane was
     * last measured, or the last attempt to measure it. tries: number of pieces
     * given to this lane in the present attempt. */
    uint64_t without;
    uint32_t tries;
} psc_stripe_t;

/* How messages leave: the operations that take them, and their endpoint. */
typedef struct psc_outlet {
    const psc_transport_ops_t *ops;
    psc_ep_t *ep;
} psc_outlet_t;

struct psc_lane {
    psc_worker_t *worker;
    psc_iface_slot_t *slot;
    psc_ep_t *ep;
    psc_conn_t *conn; /* NULL until the lane is installed */
    /* the connection whose peer is being connected over this lane by a call
     * (psc_conn_call); NULL once the lane is installed, and for other lanes */
    psc_conn_t *caller;
    uint8_t index; /* index of the lane in its connection */
    bool among; /* the connection has several lanes */
    /* does not carry the connection's ordered messages; counted in the slot's
     * `further` */
    bool further;
    psc_lane_state_t state;
    psc_status_t status; /* why the lane is FAILED */
    psc_role_t role;
    bool closing;
    /* LANE_DOWN has arrived: ep_fini is called without waiting for ep_stop,
     * because the peer reads nothing from this lane any more, but not before
     * puts and gets in flight have completed. */
    bool useless;
    /* An unexpected message keeps one of the transport's buffers. At most one
     * message of a lane may, because the messages that arrive next need
     * buffers, too. */
    bool held;
    psc_stripe_t stripe;
    psc_link_t link; /* link in the worker's list ends.retiring */
    psc_event_slot_t event_slot; /* posted when the lane's state has changed */
    psc_list_t early; /* messages received before the lane was installed */
    size_t early_bytes;
    /* RTSs whose mark (the tagged message that gives an RTS its place) has not
     * arrived; see proto/tag.h */
    psc_list_t announced;
    /* placeholders: records of messages whose mark has arrived, but not their
     * RTS; see proto/tag.h */
    psc_unexp_t *promised, **promised_end;
    psc_incoming_t incoming;
    char reason[PSC_REASON_MAX];
};

/* Returns true if the fabric completes a put before the peer has the bytes. */
static inline bool psc_lane_puts_early(const psc_lane_t *lane)
{
    return (lane->slot->attr.caps & (PSC_CAP_PUT | PSC_CAP_PUT_REMOTE)) ==
           PSC_CAP_PUT;
}

/* Returns true if a connection over several lanes of this kind survives the
 * loss of any one of them (proto/replay.h). Puts that complete early prevent
 * this, because nobody knows which bytes are lost; so do mapped segments and
 * advertised receives, because they belong to one lane. */
static inline bool psc_lane_replaceable(const psc_lane_t *lane)
{
    uint64_t caps = lane->slot->attr.caps;

    return !psc_lane_puts_early(lane) &&
           !(caps & (PSC_CAP_MAP | PSC_CAP_EXPOSE));
}
