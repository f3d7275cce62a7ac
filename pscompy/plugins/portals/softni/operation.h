/* Operations of this side, and messages of peers that are arriving. */
#ifndef PSCOMPY_PORTALS_OPERATION_H
#define PSCOMPY_PORTALS_OPERATION_H

#include "matching.h"

/* ---- operation.c ---- */

typedef struct psni_md {
    psni_object_t object;
    ptl_md_t md;
    psni_region_t region;
    psni_eq_t *eq;
    psni_ct_t *ct;
} psni_md_t;

/* An operation of this side, until its last event. */
struct psni_op {
    psni_object_t object;
    psc_link_t all, queue; /* in the peer's ops, and in its queue or answers */
    psni_peer_t *peer;
    psni_message_t message;
    psni_region_t region;
    uint64_t offset, length; /* in the region; bytes on the wire */
    uint64_t sent; /* bytes that went into frames */
    uint32_t frames; /* frames that are not acknowledged yet */
    bool begun, done; /* the first frame was made, the last one */
    bool
        send_reported; /* the SEND event was posted, or its bytes were copied */
    psni_md_t *md;
    void *user_ptr;
    psni_entry_t *entry; /* operation of a reply */
    psni_header_t *header;
    psni_arrival_t arrival;
    uint8_t *copy;
    uint8_t bytes[PSNI_INLINE];
};

/* Returns NULL if too many operations of this kind are in flight. */
psni_op_t *psni_op_make(psni_peer_t *peer, psni_kind_t kind,
                        const psni_message_t *message);
/* Frees an operation without an event. */
void psni_op_drop(psni_op_t *op);
void psni_op_report_send(psni_op_t *op, ptl_ni_fail_t fail);
/* Called when all frames of the operation were acknowledged. */
void psni_op_sent(psni_op_t *op);
/* The target has acknowledged the put, or has sent all of the reply. */
void psni_op_end(psni_op_t *op, const psni_message_t *result);
void psni_op_fail(psni_op_t *op, ptl_ni_fail_t fail);
psni_op_t *psni_op_find(psni_peer_t *peer, uint64_t id, psni_verb_t verb);

/* ---- target.c ---- */

/* A put or a reply of which bytes are missing. */
typedef struct psni_incoming {
    bool active;
    psni_message_t message;
    psni_arrival_t arrival;
    psni_entry_t *entry; /* entry of a put; NULL: the bytes are thrown away */
    psni_header_t *header;
    psni_op_t *op; /* of a reply */
    uint64_t received;
} psni_incoming_t;

/* Takes the next body in order. Returns false if there is no room for it; the
 * peer sends it again. */
bool psni_target_take(psni_peer_t *peer, unsigned answers, const uint8_t *body,
                      size_t length);
void psni_target_abort(psni_peer_t *peer);

#endif
