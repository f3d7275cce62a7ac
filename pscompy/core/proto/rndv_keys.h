/* The keys by which a peer gets or puts the data of a rendezvous, and the
 * registrations that they stand for. */
#ifndef PSCOMPY_CORE_PROTO_RNDV_KEYS_H
#define PSCOMPY_CORE_PROTO_RNDV_KEYS_H

#include "../memory/segment.h"

#define PSC_KEYS_MAX (PSC_LANES_MAX * (sizeof(psc_wire_key_t) + PSC_RKEY_MAX))

/* Register the request's buffer with every lane and pack the keys. Returns the
 * number of keys; 0 if that fails (the caller continues without keys). segment:
 * the pool's segment that holds the buffer, whose keys are used instead, or
 * NULL. */
uint32_t psc_rndv_pack_keys(psc_req_t *req, uint64_t caps,
                            psc_segment_t *segment, uint8_t *packed,
                            size_t *len_p);
/* Pack the key for one lane. */
psc_status_t psc_rndv_pack_key(psc_req_t *req, psc_lane_t *lane,
                               psc_segment_t *segment, uint8_t *packed,
                               size_t *len_p);
/* Unpack the peer's keys into the request. Returns PSC_ERR_UNSUPPORTED if the
 * lanes lack `caps`; the caller uses messages instead. */
psc_status_t psc_rndv_unpack_keys(psc_req_t *req, uint64_t caps,
                                  uint32_t n_keys, const uint8_t *packed,
                                  size_t len);
/* Register the local buffer with each lane that needs it for its own
 * operations. */
psc_status_t psc_rndv_register_local(psc_req_t *req);

#endif
