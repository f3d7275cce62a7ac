/* Receives that the peer sees by messages, where the transport has no
 * PSC_CAP_EXPOSE but PSC_CAP_PUT_AM: the sender of a long message puts it into
 * the receive at once, without an RTS and its answer.
 *
 *   ADVERTISE  receiver: a message of up to `len` bytes with these match bits
 *              may be put into the receive, by the key that follows
 *   PLACED     sender: the message is in the receive, which cannot be claimed
 *              again
 *   CONCEAL    receiver: the receive was used otherwise or cancelled
 *   CONCEALED  sender: the receive was not claimed, and will not be
 *
 * A receive that is cancelled, or is to get a message that was put back, leaves
 * its queue at once, but the sender may write into its memory until the sender
 * has answered CONCEAL, by CONCEALED, or by PLACED if it had claimed the
 * receive before. The message of that PLACED is requeued (requeue.h), and
 * matched as if it arrived now, so that the order of messages does not depend
 * on what the sender knows. The memory is revoked if the connection ends. Only
 * an arriving message gets the receive at once, without an answer. This is
 * safe, because the sender does not claim a receive that fits one of its
 * earlier messages until it is told (`seen`) that the earlier message has
 * matched; and CONCEAL is sent before the sender is told.
 *
 * A side that cannot put answers CONCEAL all the same, and announces its
 * messages by RTS. No receive is advertised while messages without a receive
 * fill PSP_UNEXPECTED_MAX.
 *
 * tests/proto/test_tuple_put_model.py tries these rules, and what happens
 * without each of them. */
#pragma once

#include "../core/types/connection.h"

/* Longest message that is put into an advertised receive. */
#define PSC_PLACE_MAX (4u << 20)
/* Maximum number of bytes that the peer of a connection may put into advertised
 * receives before the next: it bounds the memory that messages need which are
 * requeued. */
#define PSC_PLACES_MAX (32u << 20)

/* The functions expose, conceal, exposed and claim. */
extern const psc_transport_ops_t psc_tuple_am_ops;

/* The connection's lane is known. Returns false if its receives are not
 * advertised by messages, or if there is no memory. */
bool psc_tuple_am_begin(psc_conn_t *conn);
void psc_tuple_am_end(psc_conn_t *conn);

/* Ask the peer by CONCEAL to give up the receive. The peer answers by PLACED or
 * by CONCEALED (psc_recv_returned), unless the connection ends. */
void psc_tuple_am_ask(psc_conn_t *conn, psc_exposed_t *recv, uint64_t seen);
psc_status_t psc_tuple_am_placed_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_tuple_am_advertise_arrived(psc_lane_t *lane,
                                            const psc_am_t *am);
psc_status_t psc_tuple_am_conceal_arrived(psc_lane_t *lane, const psc_am_t *am);
psc_status_t psc_tuple_am_concealed_arrived(psc_lane_t *lane,
                                            const psc_am_t *am);
/* Send the CONCEAL and CONCEALED messages that are due
 * (conn->lost.replay_due). Returns true if anything was sent. */
bool psc_tuple_am_flush(psc_conn_t *conn);

static inline psc_req_t *psc_tuple_req(psc_exposed_t *advert)
{
    return psc_container_of(advert, psc_bulk_t, record.advert)->req;
}
