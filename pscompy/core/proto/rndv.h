/* Rendezvous: RTS announces a message, the receiver answers when it has a
 * buffer, the data goes straight there.
 *
 *   RPUT  RTS ->  <- RTR(keys)   put ...  FIN ->          rndv_put.c
 *   RGET  RTS(keys) ->           get ...  <- FIN          rndv_get.c
 *   FRAG  RTS ->  <- RTR         FRAG ... ->              rndv_am.c
 *
 * The receiver chooses: it knows both sides' abilities when the RTS is there.
 * Each file moves the stages of its own data; what they share is here. Keys
 * are in rndv_keys.c, FINs in rndv_fin.c. */
#ifndef PSCOMPY_PROTO_RNDV_H
#define PSCOMPY_PROTO_RNDV_H

#include "../memory/pool.h"
#include "match.h"

/* How much one call of a data stage hands out before others get their turn,
 * and how many operations may be under way. */
#define PSC_BULK_BURST (1u << 20)
#define PSC_BULK_INFLIGHT 16u
/* Announcements that one peer may have waiting here. */
#define PSC_RTS_LIMIT 65536u

/* ---- sending side ---- */
psc_status_t psc_rndv_send_rts(psc_req_t *req);   /* stage SEND */
psc_status_t psc_rndv_send_late(psc_req_t *req);  /* stage SEND_LATE */
psc_status_t psc_rndv_send_fin(psc_req_t *req);   /* stage SEND_FIN */
psc_status_t psc_rndv_put(psc_req_t *req);        /* stage PUT */
psc_status_t psc_rndv_flush(psc_req_t *req);      /* stage FLUSH */
psc_status_t psc_rndv_frag(psc_req_t *req);       /* stage FRAG */

/* ---- receiving side ---- */
/* What an RTS announced. */
typedef struct psc_offer {
    psc_conn_t *conn;
    int32_t tag;
    uint64_t send_id, len, offset;
    uint32_t n_keys;
    const uint8_t *keys;
    size_t keys_len;
} psc_offer_t;

/* The receive has a buffer and the RTS is there: go. */
void psc_rndv_recv_start(psc_req_t *req, const psc_offer_t *offer);
void psc_rndv_recv_unexpected(psc_req_t *req, psc_unexp_t *unexp);
/* The message is in the buffer already. */
void psc_rndv_recv_landed(psc_req_t *req, psc_conn_t *conn, int32_t tag,
                          uint64_t len);
/* What an RTS tells of a message; there is room for its keys. */
void psc_rndv_fill(psc_unexp_t *unexp, const psc_am_t *am);
psc_status_t psc_rndv_send_rtr(psc_req_t *req);   /* stage SEND_RTR */
psc_status_t psc_rndv_get(psc_req_t *req);        /* stage GET */

/* ---- arrivals ---- */
psc_status_t psc_rndv_rts_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_rndv_rtr_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_rndv_fin_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_rndv_frag_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_rndv_frag_begin(psc_lane_t *lane, const psc_wire_frag_t *wire,
                                 uint64_t len, psc_dest_t *dest);
void psc_rndv_frag_end(psc_lane_t *lane);

/* ---- shared by the files, and with rma.c ---- */
/* May lanes of this connection do all of `caps`? Then the data of a request
 * with one piece can go by put or get. */
bool psc_rndv_lanes_can(const psc_conn_t *conn, uint64_t caps);
/* Register the request's buffer with every lane and pack the keys; 0 when
 * that cannot be had (the caller goes on without keys). segment: the one of the
 * pool that holds the buffer, whose own keys serve as well, or NULL. */
uint32_t psc_rndv_pack_keys(psc_req_t *req, uint64_t caps,
                            psc_segment_t *segment, uint8_t *packed,
                            size_t *len_p);
/* The same for one lane. */
psc_status_t psc_rndv_pack_key(psc_req_t *req, psc_lane_t *lane,
                               psc_segment_t *segment, uint8_t *packed,
                               size_t *len_p);
/* The peer answered an RTS: its record there is gone. */
void psc_rndv_rts_answered(psc_conn_t *conn);
/* Unpack the peer's keys, for lanes that do this, into the request;
 * UNSUPPORTED: use messages. */
psc_status_t psc_rndv_unpack_keys(psc_req_t *req, uint64_t caps,
                                  uint32_t n_keys,
                                  const uint8_t *packed, size_t len);
/* Move the next pieces by put or get: what the two have in common. */
typedef psc_status_t (*psc_bulk_op_t)(psc_req_t *req, psc_lane_t *lane,
                                      psc_iov_t piece);
psc_status_t psc_rndv_move(psc_req_t *req, psc_bulk_op_t op,
                           size_t (*limit)(const psc_iface_attr_t *attr));
psc_status_t psc_rndv_move_put(psc_req_t *req);
psc_status_t psc_rndv_move_get(psc_req_t *req);
/* Register the local buffer where a lane needs that for its own operations. */
psc_status_t psc_rndv_register_local(psc_req_t *req);
/* Data of a receive is in place; confirm it or be done. */
void psc_rndv_received(psc_req_t *req);
/* An operation's completion, for every data stage. */
void psc_rndv_comp(psc_comp_t *comp, psc_status_t status);

#define PSC_KEYS_MAX (PSC_LANES_MAX * (sizeof(psc_wire_key_t) + PSC_RKEY_MAX))

#endif
