/* The rendezvous: a message is announced by RTS, then moved by get, put or
 * fragments, and ended by FIN. */
#pragma once

#include "../core/memory/memory.h"
#include "match.h"
#include "../core/types/connection.h"
#include "protocol.h"

/* ---- rndv_keys.c ---- */

/* The keys by which a peer gets or puts the data of a rendezvous, and the
 * registrations that they stand for. */

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

/* ---- rndv.c ---- */

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

/* ---- rndv_direct.c ---- */

/* RPUT and RGET, the rendezvous by put and by get; see rndv.h. */

/* Issue the next pieces by put or get. Returns PSC_OK once all pieces are
 * complete, or nothing is in flight after an error (req->error);
 * PSC_ERR_UNSUPPORTED if no lane can move the rest. */
psc_status_t psc_rndv_move(psc_req_t *req, bool is_put);
/* No lane can move the rest, and nothing is in flight: forget what was moved,
 * so that the whole message can be moved in another way. */
void psc_rndv_begin_again(psc_req_t *req);
/* Runs stage PUT: puts the next pieces. */
psc_status_t psc_rndv_put(psc_req_t *req);
/* Runs stage FLUSH: waits until all puts are visible at the target. */
psc_status_t psc_rndv_flush(psc_req_t *req);
/* Runs stage GET: gets the next pieces. */
psc_status_t psc_rndv_get(psc_req_t *req);
/* Returns the result of a put or get of the program (rma.h) once its accesses
 * have ended. The key was checked before it was unpacked, so a transport that
 * finds it invalid says that the owner has closed the region. */
psc_status_t psc_rndv_one_sided_result(const psc_req_t *req);

/* ---- rndv_am.c ---- */

/* FRAG, the rendezvous by active messages; see rndv.h. */

/* Runs stage FRAG: sends the next fragments. */
psc_status_t psc_rndv_frag(psc_req_t *req);
psc_status_t psc_rndv_frag_arrived(psc_lane_t *lane, const psc_am_t *am);
/* Returns PSC_ERR_UNSUPPORTED if the payload covers too many pieces to be
 * received in place; the caller uses a bounce buffer. */
psc_status_t psc_rndv_frag_begin(psc_lane_t *lane, const psc_wire_frag_t *wire,
                                 uint64_t len, psc_dest_t *dest);
void psc_rndv_frag_end(psc_lane_t *lane);

/* ---- rndv_fin.c ---- */

/* FIN, the message that ends a rendezvous; see rndv.h. */

#define PSC_FINS_MAX 16u /* maximum number of FINs in one message */

/* Send one message with the FINs of these requests of the peer. */
psc_status_t psc_rndv_fin(psc_conn_t *conn, psc_status_t result,
                          const uint64_t *ids, uint32_t n);
/* Runs stage SEND_FIN: sends the FIN, or queues it for psc_rndv_send_fins. */
psc_status_t psc_rndv_send_fin(psc_req_t *req);
/* Send the FINs of the requests in conn->work.fins. Returns true if any request
 * was ended. */
bool psc_rndv_send_fins(psc_conn_t *conn);
psc_status_t psc_rndv_fin_arrived(psc_lane_t *lane, const psc_am_t *am);

/* ---- rndv_rts.c ---- */

/* RTS: the start of a rendezvous on either side; see rndv.h.
 */

extern const psc_proto_t psc_rndv;

/* Announce the message of a request in stage SEND, which then waits in stage
 * AWAIT_RTR. */
psc_status_t psc_rndv_start(psc_req_t *req);
psc_status_t psc_rndv_rts_arrived(psc_lane_t *lane, const psc_am_t *am);
