/* Flow control of eager messages, the same over every transport.
 *
 * A receiver tells each peer how many eager bytes it may have sent in all (a
 * cumulative limit, piggy-backed on every header, so a lost or repeated one
 * does no harm). A message's bytes are returned when a receive took it, or
 * when it was copied out while the session's unexpected bytes are within
 * PSP_UNEXPECTED_MAX; beyond that they are withheld until it is received, and
 * the sender turns to rendezvous. A connection's window is PSP_EAGER_WINDOW, or
 * its share of PSP_UNEXPECTED_MAX where many are up, at least 256 KiB. Memory
 * for unexpected messages is therefore at most PSP_UNEXPECTED_MAX and those
 * windows: about the same again, or 256 KiB per connection. Active messages
 * that nobody has polled count with them; see am.h.
 * Control messages need no credit. */
#ifndef PSCOMPY_PROTO_CREDIT_H
#define PSCOMPY_PROTO_CREDIT_H

#include "../types/conn.h"

/* What both sides may send before they have heard of each other's window. */
#define PSC_CREDIT_INITIAL (256u << 10)
/* An eager message may take at most half of that, so that credit for the next
 * one is always told before it is needed. */
#define PSC_EAGER_LIMIT (PSC_CREDIT_INITIAL / 2 - PSC_CREDIT_OVERHEAD)
/* What a message costs besides its payload: the record that keeps it. */
#define PSC_CREDIT_OVERHEAD 160u

static inline uint32_t psc_credit_cost(uint64_t len)
{
    return (uint32_t)len + PSC_CREDIT_OVERHEAD;
}

static inline bool psc_credit_has(const psc_conn_t *conn, uint32_t cost)
{
    return (int32_t)(conn->credit_limit - conn->credit_sent) >= (int32_t)cost;
}

void psc_credit_init(psc_conn_t *conn);
/* The connection came up: tell a window that is larger than the initial. */
void psc_credit_start(psc_conn_t *conn);
/* The limit to write into a header that leaves now. */
uint32_t psc_credit_stamp(psc_conn_t *conn);
/* A header brought the peer's limit. */
void psc_credit_heard(psc_conn_t *conn, uint32_t limit);
/* A message of this cost has come; false: the peer had no credit for it. */
bool psc_credit_spend(psc_conn_t *conn, uint32_t cost);
/* Bytes that the peer may use again. */
void psc_credit_return(psc_conn_t *conn, uint32_t cost);

#endif
