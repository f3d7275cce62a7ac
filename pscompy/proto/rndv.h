/* Rendezvous: RTS announces a message, the receiver answers when it has a
 * buffer, and the data goes directly into that buffer.
 *
 *   RPUT  RTS ->  <- RTR(keys)   put ...  FIN ->          rndv_direct.c
 *   RGET  RTS(keys) ->           get ...  <- FIN          rndv_direct.c
 *   FRAG  RTS ->  <- RTR         FRAG ... ->  [<- FIN]    rndv_am.c
 *
 * Fragments over several lanes end with a FIN of the receiver.
 *
 * The receiver chooses the scheme, because it knows the abilities of both sides
 * when the RTS has arrived. Each file advances the stages of its own scheme.
 * Shared functions are here, the keys in rndv_keys.c, the RTS in rndv_rts.c,
 * the FIN in rndv_fin.c. */
#pragma once

#include "match.h"

/* Bytes that one call for a request in the stage PUT, GET or FRAG issues before
 * other requests are served. */
#define PSC_BULK_BURST (1u << 20)
/* Maximum number of operations that a request in one of these stages may have
 * in flight, unless it is spread over several lanes (stripe.h). */
#define PSC_BULK_INFLIGHT 16u
/* Maximum number of RTSs of one peer that may wait on this side without a
 * receive; each costs a record (psc_unexp_t). Peers that obey their
 * psc_worker_config_t.rts_max, which is lower, do not reach it. */
#define PSC_RTS_LIMIT (1u << 20)

/* Returns true if the configuration permits a rendezvous by get. */
bool psc_rndv_may_get(const psc_conn_t *conn);

/* ---- the sending side ---- */

/* Send the RTS of a request; flags: PSC_RTS_LATE or 0. */
psc_status_t psc_rndv_announce(psc_req_t *req, uint16_t flags);
/* The peer has answered an RTS, so that it does not count against
 * psc_worker_config_t.rts_max any more. */
void psc_rndv_rts_answered(psc_conn_t *conn);
psc_status_t psc_rndv_rtr_arrived(psc_lane_t *lane, const psc_am_t *am);

/* ---- the receiving side ---- */

/* The message that an RTS announced. */
typedef struct psc_announcement {
    psc_conn_t *conn;
    int32_t tag;
    uint64_t send_id, len, offset;
    uint32_t n_keys;
    const uint8_t *keys;
    size_t keys_len;
} psc_announcement_t;

/* Start the transfer: the receive has a buffer and the RTS has arrived. Returns
 * PSC_ERR_NO_MEMORY if memory is short. Then the receive has ended, and the
 * caller must end the connection, because the sender would wait forever. */
psc_status_t psc_rndv_recv_start(psc_req_t *req,
                                 const psc_announcement_t *announcement);
void psc_rndv_recv_unexpected(psc_req_t *req, psc_unexp_t *unexp);
/* Finish a receive whose message is in the buffer already. */
void psc_rndv_recv_landed(psc_req_t *req, psc_conn_t *conn, int32_t tag,
                          uint64_t len);
/* Store an RTS in the record of its message, which has room for the keys. */
void psc_rndv_fill(psc_unexp_t *unexp, const psc_am_t *am);
/* Runs stage SEND_RTR: asks the sender for the data. */
psc_status_t psc_rndv_send_rtr(psc_req_t *req);

/* ---- moving data ---- */

/* A request has issued PSC_BULK_BURST bytes: queue it behind other requests. */
psc_status_t psc_rndv_pause(psc_req_t *req);
/* The data of a receive is in place: send the FIN that confirms it
 * (req->confirm), or finish the request. */
void psc_rndv_received(psc_req_t *req);
/* Completion function of the operations that move data (puts, gets and
 * FRAGs). */
void psc_rndv_comp(psc_comp_t *comp, psc_status_t status);
