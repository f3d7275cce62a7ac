/* Eager: the message is sent at once, in one piece, copied or directly from the
 * user's buffer, as the transport prefers. */
#pragma once

#include "credit.h"
#include "match.h"
#include "protocol.h"

extern const psc_proto_t psc_eager;

/* Returns true if a message of `len` bytes may be sent eagerly. */
bool psc_eager_fits(const psc_conn_t *conn, uint64_t len);
/* Send an eager message. Returns PSC_INPROGRESS if the transport keeps the
 * pieces; the transport then completes `comp`. Returns PSC_ERR_NO_RESOURCE if
 * nothing was sent. */
psc_status_t psc_eager_send(psc_conn_t *conn, const psc_message_head_t *head,
                            const psc_iov_t *iov, size_t n_iov, uint64_t len,
                            psc_comp_t *comp);

/* Count an eager message that was sent, in the counter `how`, and spend its
 * credit. */
void psc_eager_left(psc_conn_t *conn, psc_counter_t how, uint64_t len);

/* Handle an eager message that arrives, whole or header first (see
 * psc_upcalls_t). */
psc_status_t psc_eager_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_eager_begin(psc_lane_t *lane, const psc_wire_eager_t *wire,
                             uint64_t len, psc_dest_t *dest);
/* The payload has arrived completely. Call psc_eager_end_receive if it is in
 * the memory of its receive, psc_eager_end_record if it is in the record of an
 * unexpected message (psc_unexp_t). */
void psc_eager_end_receive(psc_lane_t *lane);
void psc_eager_end_record(psc_lane_t *lane);

/* Finish a receive whose buffer has a message of `len` bytes; the tag in the
 * receive's result is set already. */
void psc_eager_landed(psc_conn_t *conn, psc_req_t *req, uint64_t len);
/* The payload of an unexpected message (psc_unexp_t) is complete: finish the
 * receive that has claimed the message, if there is one. */
void psc_eager_complete(psc_unexp_t *unexp);
/* Finish a receive with a complete unexpected message. */
void psc_eager_finish(psc_req_t *req, psc_unexp_t *unexp);
/* Copy a complete unexpected message into a receive's buffer, fill *result_p,
 * and free the message's record. */
psc_status_t psc_eager_deliver(psc_unexp_t *unexp, const psc_iov_t *iov,
                               size_t n_iov, psc_result_t *result_p);
