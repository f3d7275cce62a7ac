/* The keys by which a peer gets or puts the data of a rendezvous, and the
 * registrations that they stand for. */
#pragma once

#include "../core/memory/segment.h"

#define PSC_KEYS_MAX (PSC_LANES_MAX * (sizeof(psc_wire_key_t) + PSC_RKEY_MAX))

/* A buffer, and where its registrations and the peer's keys are kept, each by
 * the index of the lane. */
typedef struct psc_keyed {
    psc_conn_t *conn;
    psc_iov_t piece;
    psc_mem_t **mem;
    psc_rkey_t **keys;
} psc_keyed_t;

/* Returns the buffer of a request, with its registrations and keys. The length
 * of the buffer is 0 if the request has several pieces. */
static inline psc_keyed_t psc_rndv_keyed(psc_req_t *req)
{
    psc_iov_t none = {NULL, 0};

    return (psc_keyed_t){psc_req_conn(req),
                         req->n_iov == 1 ? *psc_req_piece(req) : none,
                         req->bulk->mem, req->bulk->keys.key};
}

/* Returns the number of lanes for which psc_rndv_pack_keys packs a key: those
 * that have all of `caps` and are not lost. */
uint32_t psc_rndv_lanes_able(const psc_conn_t *conn, uint64_t caps);
/* Returns the pool's segment that holds the buffer, and the offset there.
 * Returns NULL if there is none, or if the buffer gets registrations of its own
 * because a fork may make those of the segment unusable (PSC_CAP_FORK). */
psc_segment_t *psc_rndv_segment(const psc_keyed_t *keyed, uint64_t *offset_p);
/* Register the buffer with the lanes that psc_rndv_lanes_able counts, and pack
 * a key for each. Returns the number of keys, or 0 if that fails; the caller
 * then continues without keys. segment: the result of psc_rndv_segment; a
 * segment's own keys are used instead of new ones. */
uint32_t psc_rndv_pack_keys(const psc_keyed_t *keyed, uint64_t caps,
                            psc_segment_t *segment, uint8_t *packed,
                            size_t *len_p);
/* Pack the key for one lane. */
psc_status_t psc_rndv_pack_key(const psc_keyed_t *keyed, psc_lane_t *lane,
                               psc_segment_t *segment, uint8_t *packed,
                               size_t *len_p);
/* Unpack the peer's keys, except those of lanes that are lost here or lack
 * `caps`, and advance *packed and *len past the keys. Returns
 * PSC_ERR_UNSUPPORTED if no key is left; the caller then has the data sent as
 * messages. */
psc_status_t psc_rndv_unpack_keys(const psc_keyed_t *keyed, uint64_t caps,
                                  uint32_t n_keys, const uint8_t **packed,
                                  size_t *len);
/* Register the local buffer with each lane that has a key of the peer and needs
 * the registration for its own operations. */
psc_status_t psc_rndv_register_local(const psc_keyed_t *keyed);
