/* Rendezvous: RTS announces a message, the receiver answers when it has a
 * buffer, the data goes straight there.
 *
 *   RPUT  RTS ->  <- RTR(keys)   put ...  FIN ->          rndv_put.c
 *   RGET  RTS(keys) ->           get ...  <- FIN          rndv_get.c
 *   FRAG  RTS ->  <- RTR         FRAG ... ->              rndv_am.c
 *
 * The receiver chooses: it knows both sides' abilities when the RTS is there.
 * Each file moves the stages of its own data. What they share is here, the keys
 * are in rndv_keys.c, the RTS in rndv_rts.c, the FIN in rndv_fin.c. */
#ifndef PSCOMPY_PROTO_RNDV_H
#define PSCOMPY_PROTO_RNDV_H

#include "match.h"

/* How much one call of a data stage hands out before others get their turn,
 * and how many operations may be under way. */
#define PSC_BULK_BURST (1u << 20)
#define PSC_BULK_INFLIGHT 16u
/* Announcements that one peer may have waiting here. */
#define PSC_RTS_LIMIT 65536u

/* ---- the sending side ---- */

/* May this connection use the scheme? */
bool psc_rndv_may(const psc_conn_t *conn, psc_rndv_scheme_t scheme);
/* Send the RTS. */
psc_status_t psc_rndv_announce(psc_req_t *req, uint16_t flags);
/* The peer answered an RTS: its record there is gone. */
void psc_rndv_rts_answered(psc_conn_t *conn);
psc_status_t psc_rndv_rtr_arrived(psc_lane_t *lane, const psc_am_t *am);

/* ---- the receiving side ---- */

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

/* ---- moving data ---- */

/* Move the next pieces by put or get: what the two have in common. */
typedef psc_status_t (*psc_bulk_op_t)(psc_req_t *req, psc_lane_t *lane,
                                      psc_iov_t piece);
psc_status_t psc_rndv_move(psc_req_t *req, psc_bulk_op_t op,
                           size_t (*limit)(const psc_iface_attr_t *attr));
/* Data of a receive is in place; confirm it or be done. */
void psc_rndv_received(psc_req_t *req);
/* An operation's completion, for every data stage. */
void psc_rndv_comp(psc_comp_t *comp, psc_status_t status);

#endif
