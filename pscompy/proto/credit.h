/* Flow control of eager messages, the same over every transport.
 *
 * A receiver reports to each peer how many eager bytes the peer may send in
 * total. The limit is cumulative and part of every header, so a lost or
 * repeated report does no harm. The bytes of a message are returned when a
 * receive took it, or when it was copied out while the session's unexpected
 * bytes are within PSP_UNEXPECTED_MAX. Beyond that bound they are withheld
 * until the message is received, and the sender switches to rendezvous. A
 * connection's window is PSP_EAGER_WINDOW, or its share of PSP_UNEXPECTED_MAX
 * if many connections are up, but at least 256 KiB. Memory for unexpected
 * messages is therefore at most PSP_UNEXPECTED_MAX plus all windows, which take
 * as much again, or 256 KiB per connection. Active messages that have not been
 * polled count as unexpected; see parts.h. A message that was put into an
 * advertised receive (tuple.h) needs memory, too, if that receive was
 * withdrawn meanwhile; such messages take at most PSC_PLACES_MAX per
 * connection. Control messages need no credit. */
#pragma once

#include "../core/types/connection.h"

/* An eager message may take at most half of PSC_CREDIT_INITIAL, so that credit
 * for the next message is always reported before it is needed. */
#define PSC_EAGER_LIMIT (PSC_CREDIT_INITIAL / 2 - PSC_CREDIT_OVERHEAD)
/* Credit that a message costs besides its payload, for the record that keeps it
 * (psc_unexp_t). */
#define PSC_CREDIT_OVERHEAD 192u

static inline uint32_t psc_credit_cost(uint64_t len)
{
    return (uint32_t)len + PSC_CREDIT_OVERHEAD;
}

/* Call when the connection is up: report a window that is larger than the
 * initial one. */
void psc_credit_start(psc_conn_t *conn);
/* Store the limit on this side's eager bytes that a header from the peer
 * reports. */
void psc_credit_heard(psc_conn_t *conn, uint32_t limit);
/* Allow the peer to send `cost` further eager bytes. */
void psc_credit_return(psc_conn_t *conn, uint32_t cost);
/* Send a control message on the main lane. Its header, which begins with the
 * credit, gets the limit on the peer's eager bytes that is valid now. */
psc_status_t psc_credit_send(psc_conn_t *conn, psc_wire_id_t id, void *header,
                             uint8_t header_len, const void *payload,
                             size_t len);
