/* Positions in the order of the messages that one side sends as eager messages
 * or announces by RTS. */
#pragma once

#include "../core/types/connection.h"

#define PSC_POSITION_BUCKETS 32u

/* The eager bytes (psc_flow_t) and the RTSs sent up to there, each modulo
 * 2^32. */
typedef uint64_t psc_position_t;

/* For each hash of context and tag: the position of the last message. */
struct psc_positions {
    psc_position_t last[PSC_POSITION_BUCKETS];
};

static inline psc_position_t psc_position(uint32_t eager, uint32_t rts)
{
    return (uint64_t)rts << 32 | eager;
}

static inline uint32_t psc_position_bucket(uint32_t context, int32_t tag)
{
    return (context * 7 + (uint32_t)tag) % PSC_POSITION_BUCKETS;
}

/* Note that an eager message or an RTS with this context and tag was sent. */
static inline void psc_position_note(psc_conn_t *conn, uint32_t context,
                                     int32_t tag)
{
    if (__builtin_expect(conn->positions != NULL, 0))
        conn->positions->last[psc_position_bucket(context, tag)] =
            psc_position(conn->flow.sent, conn->rts_sent);
}
