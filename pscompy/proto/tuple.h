/* Receives that the peer can see and take (PSC_CAP_EXPOSE, or by messages:
 * tuple_am.c), so that the bytes of a long message are copied by a side that is
 * inside the library, while the other side computes (TupleQ; Koop, Sridhar and
 * Panda, the paper's section 4).
 *
 * match.c remains the only authority. It advertises a long receive that names
 * its source if no hidden receive (one that is not advertised) that was posted
 * earlier could get the same message; receives from any source are never
 * advertised. The sender of a long message looks for a receive before it would
 * send eagerly or announce. If it claims one, the record of the claim takes the
 * message's place among the sender's messages. The order holds by these rules:
 *
 *  1. A receive is advertised only if no unexpected message and no hidden
 *     receive posted earlier overlaps with it. So among overlapping receives
 *     the order of advertising is the order of posting, and the sender claims
 *     the first that fits.
 *  2. A receive is claimed only if all messages that this sender has sent
 *     otherwise, and that fit the receive, have been matched. The receiver
 *     reports its progress (`seen`) with every receive that it advertises or
 *     withdraws, so none of those messages has matched a
 *     receive that is still advertised after that.
 *  3. A message that matches an advertised receive, also one that comes back
 *     after a cancelled probe, gets the receive only after the receive was
 *     withdrawn. A claim counts as the arrival of its message: a message that
 *     comes back after the claim finds the receive taken, as it would after an
 *     arrival.
 *
 * tests/proto/test_tuple_model.py tries these rules, and what happens without
 * each of them. */
#pragma once

#include "../core/types/connection.h"
#include "protocol.h"

/* ---- tuple.c ---- */

extern const psc_proto_t psc_tuple;

/* Counts failures in a row, so that a sender that keeps finding no receive to
 * claim looks less often, and a receiver whose advertised receives are not
 * claimed advertises fewer. */
typedef struct psc_tuple_pause {
    /* how often in a row no receive was found, or an advertised receive was not
     * claimed */
    uint8_t misses;
    /* how many more messages do not look for a receive, or how many more
     * receives are not advertised, until the next attempt */
    uint8_t skips;
} psc_tuple_pause_t;

/* The state of the messages and receives that share a hash of context and
 * tag. */
typedef struct psc_tuple_bucket {
    /* sender: pauses looking for receives if the peer advertises some, but the
     * bucket's messages can claim none of them */
    psc_tuple_pause_t look;
    /* receiver: pauses advertising this bucket's receives if only short
     * messages arrive for them */
    psc_tuple_pause_t advertise;
} psc_tuple_bucket_t;

struct psc_tuple {
    /* the operations that expose and claim receives: those of the transport, or
     * psc_tuple_am_ops */
    const psc_transport_ops_t *ops;
    /* least length of a receive that is advertised, and of a message that looks
     * for an advertised receive */
    uint64_t min;
    uint32_t n_advertised; /* number of receives that are advertised now */
    /* of messages that are not sent into advertised receives */
    psc_positions_t positions;
    psc_tuple_bucket_t buckets[PSC_POSITION_BUCKETS];
};

static inline psc_tuple_bucket_t *
psc_tuple_bucket(psc_tuple_t *tuple, uint32_t context, int32_t tag)
{
    return &tuple->buckets[psc_position_bucket(context, tag)];
}

/* ---- tuple_am.c ---- */

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
 * receive before. The message of that PLACED is requeued (message.h), and
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
