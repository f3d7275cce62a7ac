/* Eager: the message travels at once, in one piece, copied or from the user's
 * buffer, as the transport prefers. */
#ifndef PSCOMPY_PROTO_EAGER_H
#define PSCOMPY_PROTO_EAGER_H

#include "credit.h"
#include "match.h"

typedef struct psc_message_head {
    uint32_t context;
    int32_t tag;
    uint16_t aux;
} psc_message_head_t;

/* May a message of this length go eagerly now? */
bool psc_eager_fits(const psc_conn_t *conn, uint64_t len);
/* Send it. comp is used (PSC_INPROGRESS) when the transport keeps the
 * pieces; NO_RESOURCE: nothing happened. */
psc_status_t psc_eager_send(psc_conn_t *conn, const psc_message_head_t *head,
                            const psc_iov_t *iov, size_t n_iov, uint64_t len,
                            psc_comp_t *comp);

/* It has left, this way: count it. */
void psc_eager_left(psc_conn_t *conn, psc_counter_t how, uint64_t len);

/* Arrivals (see psc_upcalls_t). */
psc_status_t psc_eager_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_eager_begin(psc_lane_t *lane, const psc_wire_eager_t *wire,
                             uint64_t len, psc_dest_t *dest);
/* The payload is complete: in the memory of its receive, or in a record. */
void psc_eager_end_receive(psc_lane_t *lane);
void psc_eager_end_record(psc_lane_t *lane);

/* A message of this length is in the receive's buffer; its tag is known. */
void psc_eager_landed(psc_conn_t *conn, psc_req_t *req, uint64_t len);
/* Give a complete unexpected message to a receive's buffer. */
psc_status_t psc_eager_deliver(psc_unexp_t *unexp, const psc_iov_t *iov,
                               size_t n_iov, psc_result_t *result_p);

#endif
