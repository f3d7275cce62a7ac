/* Operations (puts, gets, and answers to those of peers) of this side, and
 * messages of peers that are arriving. */
#pragma once

#include "matching.h"

/* ---- operation.c ---- */

typedef struct psni_md {
    psni_object_t object;
    ptl_md_t md;
    psni_region_t region;
    psni_eq_t *eq;
    psni_ct_t *ct;
} psni_md_t;

/* An operation, from its creation to its end: a put or get of this side, or an
 * answer to the peer. */
struct psni_op {
    psni_object_t object;
    /* `all`: link in the peer's list `ops`; `queue`: link in the peer's list
     * `queue` or `answers` */
    psc_link_t all, queue;
    psni_peer_t *peer;
    psni_message_t message;
    psni_region_t region;
    uint64_t offset, length; /* offset in `region`; number of bytes to send */
    uint64_t sent; /* number of bytes that were put into frames */
    uint32_t frames; /* frames of the operation that are not acknowledged yet */
    /* `begun`: the first frame of the operation was made; `done`: the last
     * frame was made */
    bool begun, done;
    /* the SEND event was reported, because all bytes are sent or were copied */
    bool send_reported;
    psni_md_t *md;
    void *user_ptr;
    /* for a reply only: the list entry that the peer's get has matched */
    psni_entry_t *entry;
    psni_header_t *header;
    psni_arrival_t arrival;
    uint8_t *copy;
    uint8_t bytes[PSNI_INLINE];
};

/* Creates an operation. Returns NULL if too many operations of this kind are in
 * flight, or if memory is short. */
psni_op_t *psni_op_make(psni_peer_t *peer, psni_kind_t kind,
                        const psni_message_t *message);
/* Frees an operation; posts no event. */
void psni_op_drop(psni_op_t *op);
void psni_op_report_send(psni_op_t *op, ptl_ni_fail_t fail);
/* Called when all frames of the operation were acknowledged. */
void psni_op_sent(psni_op_t *op);
/* Called when the target has acknowledged the put or has sent all of the reply
 * to the get; `result` is the ACK or the reply. */
void psni_op_end(psni_op_t *op, const psni_message_t *result);
void psni_op_fail(psni_op_t *op, ptl_ni_fail_t fail);
psni_op_t *psni_op_find(psni_peer_t *peer, uint64_t id, psni_verb_t verb);

/* ---- target.c ---- */

/* A put or a reply whose bytes are still arriving. */
typedef struct psni_incoming {
    bool active;
    psni_message_t message;
    psni_arrival_t arrival;
    /* entry that takes the put; NULL if its bytes are discarded */
    psni_entry_t *entry;
    psni_header_t *header;
    /* the get to which an arriving reply belongs; NULL for a put, and for a
     * reply that is dropped */
    psni_op_t *op;
    uint64_t received;
} psni_incoming_t;

/* Handles the body of the frame that is next in order. Returns false if there
 * is no room or memory for an answer to it; then the peer resends the frame. */
bool psni_target_take(psni_peer_t *peer, unsigned answers, const uint8_t *body,
                      size_t length);
void psni_target_abort(psni_peer_t *peer);
